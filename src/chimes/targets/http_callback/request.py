"""From a run to the request that one attempt of it sends."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from multidict import CIMultiDict, istr
from yarl import URL

from chimes.model.http_url import HttpUrl, on_the_wire, parse_http_url
from chimes.model.target import HttpTarget
from chimes.redaction import masked_tail
from chimes.targets.base import Call
from chimes.targets.http_callback.masking import secrets_of
from chimes.targets.http_callback.placeholders import (
    fill_body,
    fill_header,
    fill_url,
    has_placeholders,
    header_safe,
    looks_like_json,
    run_facts,
)
from chimes.targets.http_callback.signing import signatures
from chimes.triggers import format_moment

FORM = "application/x-www-form-urlencoded"

# istr: aiohttp copies and compares names a few times per request, and folds plain ones each time.
USER_AGENT = istr("User-Agent")
ACCEPT_ENCODING = istr("Accept-Encoding")
CONTENT_TYPE = istr("Content-Type")
KSANA_RUN_ID = istr("X-Ksana-Run-Id")
IDEMPOTENCY_KEY = istr("Idempotency-Key")
WEBHOOK_ID = istr("webhook-id")
WEBHOOK_TIMESTAMP = istr("webhook-timestamp")
WEBHOOK_SIGNATURE = istr("webhook-signature")
ATTEMPT = istr("X-Chimes-Attempt")
FENCE = istr("X-Chimes-Fence")
SLOT = istr("X-Chimes-Slot")
SCHEDULE_ID = istr("X-Chimes-Schedule-Id")
NODE = istr("X-Chimes-Node")


class Request(NamedTuple):
    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes
    verify_tls: bool
    #: For results and logs.
    shown_url: str
    secrets: tuple[str, ...]


def build_request(call: Call, target: HttpTarget, *, user_agent: str, node_id: str) -> Request:
    """`target` is that of the call's run."""
    destination = parse_http_url(target.url)
    facts = run_facts(call.run, call.triggered_at) if has_placeholders(target) else {}
    tail = fill_url(destination.tail, facts)
    headers = _own_headers(target, facts, user_agent)
    content_type = headers.get(CONTENT_TYPE) or inferred_content_type(target.body)
    body = fill_body(target.body, facts, form=content_type.startswith(FORM)).encode()
    if body:
        headers.setdefault(CONTENT_TYPE, content_type)
    headers.extend(_identity(call, target, body))
    if node_id:
        headers[NODE] = node_id
    url, shown = wire_and_shown(target.url, tail)
    return Request(
        target.method, url, headers, body, target.verify_tls, shown, secrets_of(target, tail)
    )


def _own_headers(target: HttpTarget, facts: dict[str, str], user_agent: str) -> CIMultiDict[str]:
    # What response.py can undo; aiohttp would offer all that happens to be installed.
    headers = CIMultiDict({USER_AGENT: user_agent, ACCEPT_ENCODING: "gzip, deflate"})
    for name, value in target.headers.items():
        headers[name] = fill_header(value, facts)
    return headers


def _identity(call: Call, target: HttpTarget, body: bytes) -> list[tuple[istr, str]]:
    """What lets a receiver know the run, refuse stale attempts and trust the sender."""
    run = call.run
    # The store's time: a node whose clock is off must not look like a replay (F50, S42).
    timestamp = int(call.triggered_at.timestamp())
    headers = [
        (KSANA_RUN_ID, run.id),
        (IDEMPOTENCY_KEY, run.id),
        (WEBHOOK_ID, run.id),
        (WEBHOOK_TIMESTAMP, str(timestamp)),
        (ATTEMPT, str(run.attempt)),
        (FENCE, str(run.fence)),
        (SLOT, format_moment(run.slot or run.planned_at)),
    ]
    if run.schedule_id:
        headers.append((SCHEDULE_ID, header_safe(run.schedule_id)))
    if target.signing_secrets:
        signed = signatures(
            target.signing_secrets, message_id=run.id, timestamp=timestamp, body=body
        )
        headers.append((WEBHOOK_SIGNATURE, signed))
    return headers


@lru_cache(maxsize=1024)
def wire_and_shown(text: str, tail: str) -> tuple[URL, str]:
    """The URL to dial and the one to show; `tail` is that of `text` with placeholders filled."""
    destination = parse_http_url(text)
    return wire_url(destination, tail), destination.origin + masked_tail(tail)


def wire_url(destination: HttpUrl, tail: str) -> URL:
    """Built from the parts that were judged; yarl never parses the text (S36)."""
    path, _, query = on_the_wire(tail).partition("?")
    return URL.build(
        scheme=destination.scheme,
        host=destination.bracketed_host,
        port=destination.port,
        path=path,
        query_string=query,
        encoded=True,
    )


def inferred_content_type(body: str) -> str:
    return "application/json" if looks_like_json(body) else "text/plain"
