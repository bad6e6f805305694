"""From a run to the request that one attempt of it sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from yarl import URL

from chimes.model.http_url import HttpUrl, on_the_wire, parse_http_url
from chimes.targets.base import Call
from chimes.targets.http_callback.masking import masked_tail, secrets_of
from chimes.targets.http_callback.placeholders import (
    fill_body,
    fill_header,
    fill_url,
    header_safe,
    looks_like_json,
    run_facts,
)
from chimes.targets.http_callback.signing import signatures

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    method: str
    destination: HttpUrl
    url: URL
    headers: dict[str, str]
    body: bytes
    verify_tls: bool
    #: For results and logs.
    shown_url: str
    secrets: tuple[str, ...]


def build_request(call: Call, *, user_agent: str, node_id: str) -> Request:
    target = call.run.target
    destination = parse_http_url(target.url)
    facts = run_facts(call.run, call.triggered_at)
    tail = fill_url(destination.tail, facts)
    given = {name.lower(): value for name, value in target.headers.items()}
    content_type = given.get("content-type") or inferred_content_type(target.body)
    body = fill_body(target.body, facts, form=content_type.lower().startswith(FORM)).encode()
    headers = {name: fill_header(value, facts) for name, value in target.headers.items()}
    if "user-agent" not in given:
        headers["User-Agent"] = user_agent
    if "accept-encoding" not in given:
        # What response.py can undo; aiohttp would offer all that happens to be installed.
        headers["Accept-Encoding"] = "gzip, deflate"
    if body and "content-type" not in given:
        headers["Content-Type"] = content_type
    headers |= _identity(call, facts, body)
    if node_id:
        headers["X-Chimes-Node"] = node_id
    return Request(
        method=target.method,
        destination=destination,
        url=wire_url(destination, tail),
        headers=headers,
        body=body,
        verify_tls=target.verify_tls,
        shown_url=destination.origin + masked_tail(tail),
        secrets=secrets_of(target, tail),
    )


def _identity(call: Call, facts: dict[str, str], body: bytes) -> dict[str, str]:
    """What lets a receiver know the run, refuse stale attempts and trust the sender."""
    run = call.run
    # The store's time: a node whose clock is off must not look like a replay (F50, S42).
    timestamp = int(call.triggered_at.timestamp())
    headers = {
        "X-Ksana-Run-Id": run.id,
        "Idempotency-Key": run.id,
        "webhook-id": run.id,
        "webhook-timestamp": str(timestamp),
        "X-Chimes-Attempt": facts["attempt"],
        "X-Chimes-Fence": facts["fence"],
        "X-Chimes-Slot": facts["slot"],
    }
    if run.schedule_id:
        headers["X-Chimes-Schedule-Id"] = header_safe(run.schedule_id)
    if run.target.signing_secrets:
        headers["webhook-signature"] = signatures(
            run.target.signing_secrets, message_id=run.id, timestamp=timestamp, body=body
        )
    return headers


@lru_cache(maxsize=1024)
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
