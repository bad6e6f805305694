"""From a run to the request that one attempt of it sends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from yarl import URL

from chimes.errors import InvalidInput
from chimes.model.http_url import HttpUrl, on_the_wire, parse_http_url
from chimes.model.target import HttpTarget
from chimes.model.target_rules import check_header_name, check_method
from chimes.redaction import masked_tail
from chimes.targets.base import Call
from chimes.targets.http_callback.masking import secrets_of
from chimes.targets.http_callback.placeholders import (
    body_has_placeholders,
    fill_body,
    fill_header,
    fill_url,
    head_has_placeholders,
    header_safe,
    looks_like_json,
    run_facts,
)
from chimes.targets.http_callback.signing import signatures
from chimes.triggers import format_moment
from chimes.wording import say

FORM = "application/x-www-form-urlencoded"
#: A request of another method says that it has no body.
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
EOL = "\r\n"


class Request(NamedTuple):
    method: str
    url: URL
    #: The request line and the headers, with the empty line that ends them.
    head: bytes
    body: bytes
    verify_tls: bool
    #: For results and logs.
    shown_url: str
    secrets: tuple[str, ...]


class Frame(NamedTuple):
    """What is the same for all attempts that send the same path and headers."""

    url: URL
    #: The head up to what the run and the body add.
    head: str
    #: Of the target's own headers.
    content_type: str | None
    shown_url: str
    secrets: tuple[str, ...]


class Framing(NamedTuple):
    """All that a frame is made of; placeholders are filled."""

    method: str
    url: str
    tail: str
    headers: tuple[tuple[str, str], ...]
    signing_secrets: tuple[str, ...]
    user_agent: str
    node_id: str


def build_request(call: Call, target: HttpTarget, *, user_agent: str, node_id: str) -> Request:
    """`target` is that of the call's run."""
    method = target.method.upper()
    tail = parse_http_url(target.url).tail
    headers = tuple(target.headers.items())
    facts: Mapping[str, str] = {}
    varies = head_has_placeholders(target)
    if varies or body_has_placeholders(target):
        facts = run_facts(call.run, call.triggered_at)
    if varies:
        tail = fill_url(tail, facts)
        headers = tuple((name, fill_header(value, facts)) for name, value in headers)
    framing = Framing(
        method, target.url, tail, headers, target.signing_secrets, user_agent, node_id
    )
    # One that varies would only push the others out.
    frame = frame_of(framing) if varies else known_frame(framing)
    content_type = frame.content_type or inferred_content_type(target.body)
    body = fill_body(target.body, facts, form=content_type.startswith(FORM)).encode()
    head = frame.head + _identity(call, target, body)
    if body:
        if frame.content_type is None:
            head += f"Content-Type: {content_type}{EOL}"
        head += f"Content-Length: {len(body)}{EOL}"
    elif method not in METHODS_WITHOUT_BODY:
        head += f"Content-Length: 0{EOL}"
    return Request(
        method,
        frame.url,
        f"{head}{EOL}".encode(),
        body,
        target.verify_tls,
        frame.shown_url,
        frame.secrets,
    )


def frame_of(framing: Framing) -> Frame:
    """Method and names are checked again: they may have been saved under other rules, and what
    frames a request is ours (S38)."""
    check_method(framing.method)
    destination = parse_http_url(framing.url)
    url = wire_url(destination, framing.tail)
    # What response.py can undo of the encodings.
    lines = {
        "host": f"Host: {url.host_port_subcomponent}",
        "user-agent": f"User-Agent: {framing.user_agent}",
        "accept": "Accept: */*",
        "accept-encoding": "Accept-Encoding: gzip, deflate",
    }
    first = f"{framing.method} {url.raw_path_qs} HTTP/1.1"
    content_type = None
    for name, value in framing.headers:
        check_header_name(name)
        key = name.lower()
        lines[key] = f"{name}: {value}"
        if key == "content-type":
            content_type = value
    if framing.node_id:
        lines["x-chimes-node"] = f"X-Chimes-Node: {framing.node_id}"
    return Frame(
        url=url,
        head="".join(map(_line, (first, *lines.values()))),
        content_type=content_type,
        shown_url=destination.origin + masked_tail(framing.tail),
        secrets=secrets_of(framing.headers, framing.signing_secrets, framing.tail),
    )


known_frame = lru_cache(maxsize=1024)(frame_of)


def _identity(call: Call, target: HttpTarget, body: bytes) -> str:
    """What lets a receiver know the run, refuse stale attempts and trust the sender."""
    run = call.run
    run_id = header_safe(run.id)
    # The store's time: a node whose clock is off must not look like a replay (F50, S42).
    timestamp = int(call.triggered_at.timestamp())
    lines = (
        f"X-Ksana-Run-Id: {run_id}{EOL}"
        f"Idempotency-Key: {run_id}{EOL}"
        f"webhook-id: {run_id}{EOL}"
        f"webhook-timestamp: {timestamp}{EOL}"
        f"X-Chimes-Attempt: {run.attempt}{EOL}"
        f"X-Chimes-Fence: {run.fence}{EOL}"
        f"X-Chimes-Slot: {format_moment(run.slot or run.planned_at)}{EOL}"
    )
    if run.schedule_id:
        lines += f"X-Chimes-Schedule-Id: {header_safe(run.schedule_id)}{EOL}"
    if target.signing_secrets:
        signed = signatures(
            target.signing_secrets, message_id=run.id, timestamp=timestamp, body=body
        )
        lines += f"webhook-signature: {signed}{EOL}"
    return lines


def _line(text: str) -> str:
    """Nothing in a line can begin another one, or a request of its own (S37)."""
    if "\r" in text or "\n" in text or "\x00" in text:
        raise InvalidInput(
            say("a header holds a control character"), field="headers", code="header_value"
        )
    return text + EOL


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
