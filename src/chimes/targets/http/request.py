"""Builds the HTTP request of one attempt: placeholders, headers, signature, secrets to mask."""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from yarl import URL

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.egress import HttpUrl, on_the_wire, parse_http_url
from chimes.model.run import Run
from chimes.model.target import HttpTarget
from chimes.model.validation import check_header_name, check_method, signing_key
from chimes.redaction import HIDDEN, is_secret_name, mask_url, secrets_in
from chimes.targets.base import Call
from chimes.triggers import format_moment

# Placeholders. Text is replaced, nothing is evaluated.
#
# `{{name}}` is filled in url, header values and body; unknown names stay unchanged.
# Ksana's `"<filled-by-service>"` is filled by its key: in a JSON body wherever it is the whole
# value of a known key, at any depth; elsewhere after `key=` or `key:` on the same line.

MARKER = "<filled-by-service>"
_MARKER_CORE = "filled-by-service"

_NAMED = re.compile(r"\{\{ *([a-z_]+) *\}\}")
_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_KEYED_MARKER = re.compile(
    r"\b([a-z_]+)([\"']?[ \t]*[=:][ \t]*[\"']?)(?:<|%3[Cc])"
    r"filled-by-service(?:>|%3[Ee])"
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Encode = Callable[[str], str]


def run_facts(run: Run, triggered_at: datetime) -> dict[str, str]:
    planned = format_moment(run.slot or run.planned_at)
    schedule_id = run.schedule_id or ""
    return {
        "run_id": run.id,
        "job_id": schedule_id,
        "schedule_id": schedule_id,
        "schedule_name": run.schedule_name,
        "slot": planned,
        "scheduled_at": planned,
        "triggered_at": format_moment(triggered_at),
        "attempt": str(run.attempt),
        "fence": str(run.fence),
    }


def head_has_placeholders(target: HttpTarget) -> bool:
    return "{{" in target.url or any("{{" in value for value in target.headers.values())


def body_has_placeholders(target: HttpTarget) -> bool:
    return "{{" in target.body or _MARKER_CORE in target.body


def fill_url(tail: str, facts: Mapping[str, str]) -> str:
    return _fill_named(tail, facts, _in_url)


def fill_header(value: str, facts: Mapping[str, str]) -> str:
    return _fill_named(value, facts, header_safe)


def fill_body(body: str, facts: Mapping[str, str], *, form: bool) -> str:
    """`form`: the body is sent as application/x-www-form-urlencoded."""
    marked, named = _MARKER_CORE in body, "{{" in body
    if not marked and not named:
        return body
    json_like = looks_like_json(body)
    encode = _in_json if json_like else _in_url if form else str
    if marked:
        body = _fill_json(body, facts) if json_like else _fill_keyed(body, facts, encode)
    return _fill_named(body, facts, encode) if named else body


def looks_like_json(body: str) -> bool:
    """Ksana's rule for the content type, ignoring white space and placeholders."""
    start = body.lstrip()[:2]
    return start[:1] in ("{", "[") and start != "{{"


def _fill_named(text: str, facts: Mapping[str, str], encode: Encode) -> str:
    if "{{" not in text:
        return text
    return _NAMED.sub(
        lambda found: encode(facts[found[1]]) if found[1] in facts else found[0], text
    )


def _fill_json(body: str, facts: Mapping[str, str]) -> str:
    """Replaces marked strings only; every other byte stays unchanged."""
    try:
        json.loads(_NAMED.sub("0", body))
    except (ValueError, RecursionError):
        return _fill_keyed(body, facts, _in_json)
    pieces: list[str] = []
    copied = 0
    previous: re.Match[str] | None = None
    for token in _JSON_STRING.finditer(body):
        if (
            previous is not None
            and _MARKER_CORE in token[0]
            and _string(token[0]) == MARKER
            and _COLON.fullmatch(body, previous.end(), token.start())
        ):
            fact = facts.get(_string(previous[0]))
            if fact is not None:
                pieces += (body[copied : token.start() + 1], _in_json(fact), '"')
                copied = token.end()
        previous = token
    return "".join((*pieces, body[copied:]))


def _string(token: str) -> str:
    return str(json.loads(token)) if "\\" in token else token[1:-1]


def _fill_keyed(body: str, facts: Mapping[str, str], encode: Encode) -> str:
    return _KEYED_MARKER.sub(
        lambda found: (
            found[1] + found[2] + encode(facts[found[1]]) if found[1] in facts else found[0]
        ),
        body,
    )


def _in_url(value: str) -> str:
    return quote(value, safe="")


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def header_safe(value: str) -> str:
    """A value that is safe inside a header."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


# Secrets are masked in everything that is stored and logged about a callback.

# Shorter values occur everywhere; masking them would garble results.
_SHORTEST_SECRET = 8


def secrets_of(
    headers: Iterable[tuple[str, str]], signing_secrets: Iterable[str], tail: str
) -> tuple[str, ...]:
    """Values to mask, longest first so that none is part of another."""
    found = set(signing_secrets)
    for name, value in headers:
        if is_secret_name(name):
            found.add(value)
            # `Bearer <token>`: a receiver may echo the token alone.
            found.update(value.split())
    for value in secrets_in(tail):
        found |= {value, unquote(value)}
    return _scrubbable(found)


@lru_cache(maxsize=1024)
def secrets_of_body(body: str) -> tuple[str, ...]:
    """Secrets in a JSON body or a form, which a receiver may echo."""
    return _scrubbable(secrets_in(body))


def _scrubbable(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True))


def scrubbed(value: object, secrets: Sequence[str]) -> object:
    """Masks secrets in a text, mapping or list."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {key: scrubbed(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [scrubbed(inner, secrets) for inner in value]
    return value


# Standard Webhooks 1.0.0 signatures.


def signatures(secrets: Iterable[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """One signature per secret, so that receivers verify with either key during a rotation."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(signing_key(secret), content, "sha256")).decode()
        for secret in secrets
    )


FORM = "application/x-www-form-urlencoded"
#: Other methods send no body.
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
EOL = "\r\n"


class Request(NamedTuple):
    method: str
    url: URL
    #: Request line and headers including the final empty line.
    head: bytes
    body: bytes
    verify_tls: bool
    #: For results and logs.
    shown_url: str
    secrets: tuple[str, ...]


class Frame(NamedTuple):
    """Parts shared by all attempts with the same path and headers."""

    url: URL
    #: The head without what the run and the body add.
    head: str
    #: Secrets in the target's own headers.
    content_type: str | None
    shown_url: str
    secrets: tuple[str, ...]


class Framing(NamedTuple):
    """Cache key of a frame; placeholders are filled."""

    method: str
    url: str
    tail: str
    headers: tuple[tuple[str, str], ...]
    signing_secrets: tuple[str, ...]
    user_agent: str
    node_id: str


def build_request(call: Call, target: HttpTarget, *, user_agent: str, node_id: str) -> Request:
    """`target` is the target of the call's run."""
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
    # A varying frame would only evict the others.
    frame = frame_of(framing) if varies else known_frame(framing)
    content_type = frame.content_type or inferred_content_type(target.body)
    body = fill_body(target.body, facts, form=content_type.startswith(FORM)).encode()
    in_body = secrets_of_body(target.body)
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
        _scrubbable((*frame.secrets, *in_body)) if in_body else frame.secrets,
    )


def frame_of(framing: Framing) -> Frame:
    """Checks method and header names again: they may have been saved under other rules, and framing
    headers are set here."""
    check_method(framing.method)
    destination = parse_http_url(framing.url)
    url = wire_url(destination, framing.tail)
    # `connection.py` decodes these encodings.
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
        shown_url=destination.origin + mask_url(framing.tail),
        secrets=secrets_of(framing.headers, framing.signing_secrets, framing.tail),
    )


known_frame = lru_cache(maxsize=1024)(frame_of)


def _identity(call: Call, target: HttpTarget, body: bytes) -> str:
    """Headers that identify the run and attempt and authenticate the sender."""
    run = call.run
    run_id = header_safe(run.id)
    # Store time: a node with a wrong clock must not look like a replay.
    timestamp = int(call.triggered_at.timestamp())
    lines = (
        f"X-Chimes-Run-Id: {run_id}{EOL}"
        # Receivers written for Ksana read this name.
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
    """Removes line breaks, so that a value cannot start another header or request."""
    if "\r" in text or "\n" in text or "\x00" in text:
        raise InvalidInput(
            _("a header holds a control character"), field="headers", code="header_value"
        )
    return text + EOL


def wire_url(destination: HttpUrl, tail: str) -> URL:
    """Built from the checked parts; yarl does not parse the text again."""
    path, _unused, query = on_the_wire(tail).partition("?")
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
