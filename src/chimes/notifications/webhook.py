"""The webhook channel, one signed POST (Standard Webhooks) under the egress rules of callbacks, and
the Slack channel, the same to an incoming webhook of Slack in its own format."""

from __future__ import annotations

import asyncio
import json
import ssl
from urllib.parse import quote

import aiohttp

from chimes.egress import Egress, parse_http_url
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import fill_secrets
from chimes.model.recipient import CLOUDEVENTS, Channel
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.message import NotificationMessage, split
from chimes.targets.http.connection import (
    EgressDenied,
    Exchange,
    GuardedConnector,
    Lookup,
    Reply,
    system_lookup,
    wait_asked,
)
from chimes.targets.http.request import (
    Request,
    fill_url,
    secret_facts,
    signatures,
    wire_url,
)
from chimes.targets.http.runner import failure_of
from chimes.triggers import format_moment

#: Kinds of messages whose facts are under their own name.
_NAMED_FACTS = ("monitor", "approval")
SECONDS = 20.0
EOL = "\r\n"


class Webhook:
    channel = Channel.WEBHOOK
    capacity = 16

    def __init__(
        self,
        *,
        egress: Egress,
        user_agent: str,
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._egress = egress
        self._user_agent = user_agent
        self._lookup = lookup
        self._tls = tls
        self._seconds = seconds
        self._exchange: Exchange | None = None

    async def open(self) -> None:
        self._exchange = Exchange(
            GuardedConnector(
                rules=self._egress, limit=self.capacity, lookup=self._lookup, tls=self._tls
            )
        )

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close()

    def body(self, attempt: DeliveryAttempt) -> bytes:
        return body_of(attempt)

    async def send(self, attempt: DeliveryAttempt) -> Result:
        assert self._exchange is not None, "open() was not called"
        try:
            request = request_of(attempt, self._user_agent, self.body(attempt))
        except InvalidInput as error:
            # The recipient was saved under older rules.
            return Refused(error=error.message, code="invalid_url")
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._exchange.send(request)
        except TimeoutError:
            return Retry(
                error=_("timed out after {seconds:g} s", seconds=self._seconds), code="timeout"
            )
        except (aiohttp.ClientError, EgressDenied, OSError) as error:
            failure = failure_of(error)
            result = Retry if failure.retryable else Refused
            return result(error=failure.text, code=failure.code)
        return _result_of(reply, attempt)


def _result_of(reply: Reply, attempt: DeliveryAttempt) -> Result:
    status = reply.status
    if 200 <= status <= 299:
        return Sent(receipt=str(status))
    text = f"HTTP {status} {reply.phrase}".rstrip()
    if 300 <= status <= 399:
        return Refused(
            error=_("{answer}: redirects are not followed", answer=text), code="redirect"
        )
    if status in (408, 429) or status >= 500:
        wait = wait_asked(reply.retry_after, attempt.now) if status in (429, 503) else None
        rate_limited = status == 429 and wait is not None
        return Retry(error=text, code=f"http_{status}", after=wait, rate_limited=rate_limited)
    return Refused(error=text, code="gone" if status == 410 else f"http_{status}")


def body_of(attempt: DeliveryAttempt) -> bytes:
    message = attempt.message
    run = message.kind == "run"
    kind = f"run.{message.status or 'ended'}" if run else message.kind
    if message.kind == "monitor" and message.status:
        kind = f"monitor.{message.status}"
    head: dict[str, object] = {"type": kind, "timestamp": format_moment(attempt.now)}
    if attempt.recipient.envelope == CLOUDEVENTS:
        schedule_id = message.schedule_id
        source = f"chimes/schedules/{quote(schedule_id, safe='')}" if schedule_id else "chimes"
        head = {
            "specversion": "1.0",
            "id": attempt.delivery_id,
            "source": source,
            "type": f"chimes.{kind}",
            "time": format_moment(attempt.now),
            "datacontenttype": "application/json",
        }
    named = {str(message.kind): message.facts} if message.kind in _NAMED_FACTS else {}
    content = head | {
        "data": {
            "delivery_id": attempt.delivery_id,
            "run": message.facts if run else None,
            "digest": message.facts if message.kind == "digest" else None,
            **named,
            "schedule": None
            if message.schedule_id is None
            else {"id": message.schedule_id, "name": message.schedule_name},
            "status": message.status,
            "title": message.title,
            "text": message.text,
            "language": message.language,
            "artifacts": [{"name": each.name, "url": each.url} for each in message.artifacts],
        },
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def request_of(attempt: DeliveryAttempt, user_agent: str, body: bytes) -> Request:
    destination = parse_http_url(attempt.recipient.to)
    url = wire_url(destination, fill_url(destination.tail, secret_facts(attempt.secrets)))
    cloudevents = attempt.recipient.envelope == CLOUDEVENTS
    content_type = "application/cloudevents+json" if cloudevents else "application/json"
    # The store's time: with a wrong node clock the receiver would reject it as a replay.
    timestamp = int(attempt.now.timestamp())
    lines = [
        f"POST {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        f"User-Agent: {user_agent}",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        f"Idempotency-Key: {attempt.delivery_id}",
        f"webhook-id: {attempt.delivery_id}",
        f"webhook-timestamp: {timestamp}",
    ]
    secrets = fill_secrets(attempt.recipient.signing_secrets, attempt.secrets)
    if secrets:
        signed = signatures(secrets, message_id=attempt.delivery_id, timestamp=timestamp, body=body)
        lines.append(f"webhook-signature: {signed}")
    head = EOL.join([*lines, "", ""]).encode()
    return Request("POST", url, head, body, True, destination.origin, secrets)


# --- Slack ----------------------------------------------------------------------------------------
# Limits of Slack's blocks, in characters.
MAX_HEADER = 150
MAX_SECTION = 3000
#: Sections of one message; the run has the rest.
MAX_SECTIONS = 10


class Slack(Webhook):
    channel = Channel.SLACK

    def body(self, attempt: DeliveryAttempt) -> bytes:
        text = json.dumps(blocks_of(attempt.message), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def blocks_of(message: NotificationMessage) -> dict[str, object]:
    """`text` is what notifications and screen readers show."""
    blocks: list[dict[str, object]] = [
        {"type": "header", "text": {"type": "plain_text", "text": message.title[:MAX_HEADER]}}
    ]
    for part in split(message.text, MAX_SECTION // 2)[:MAX_SECTIONS]:
        section = {"type": "mrkdwn", "text": escape(part)[:MAX_SECTION], "verbatim": True}
        blocks.append({"type": "section", "text": section})
    if message.link:
        link = {"type": "mrkdwn", "text": f"<{message.link}>"}
        blocks.append({"type": "context", "elements": [link]})
    return {"text": escape(message.title), "blocks": blocks}


def escape(text: str) -> str:
    """So that no text of a run becomes a mention or a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
