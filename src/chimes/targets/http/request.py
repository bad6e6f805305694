"""Builds the HTTP request of one attempt: placeholders, headers, signature, secrets to mask."""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple
from urllib.parse import quote, unquote

from yarl import URL

from chimes.egress import HttpUrl, on_the_wire, parse_http_url
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import fill_secrets
from chimes.model.target import HttpTarget
from chimes.model.validation import check_header_name, check_method, signing_key
from chimes.redaction import is_secret_name, mask_url, secrets_in
from chimes.targets.base import PLACEHOLDER, Call, moment_text, run_facts
from chimes.targets.base import secret_facts as secret_facts
from chimes.telemetry import current_traceparent

# Placeholders. Text is replaced, nothing is evaluated.
#
# `{{name}}` is filled in url, header values and body; unknown names stay unchanged.
# Ksana's `"<filled-by-service>"` is filled by its key: in a JSON body wherever it is the whole
# value of a known key, at any depth; elsewhere after `key=` or `key:` on the same line.

MARKER = "<filled-by-service>"
_MARKER_CORE = "filled-by-service"

_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_KEYED_MARKER = re.compile(
    r"\b([a-z_]+)([\"']?[ \t]*[=:][ \t]*[\"']?)(?:<|%3[Cc])"
    r"filled-by-service(?:>|%3[Ee])"
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Encode = Callable[[str], str]


class _Placeholder(NamedTuple):
    name: str
    encode: Encode
    #: As it was written; stays if there is no such fact.
    text: str


#: Texts and the placeholders between them.
_Parts = tuple[str | _Placeholder, ...]
#: A text is searched for placeholders once. Longer bodies are not remembered.
_REMEMBERED_LENGTH = 16 * 1024


def fill_url(tail: str, facts: Mapping[str, str]) -> str:
    return _fill(_url_parts(tail), facts)


def fill_header(value: str, facts: Mapping[str, str]) -> str:
    return _fill(_header_parts(value), facts)


def fill_body(body: str, facts: Mapping[str, str], *, form: bool) -> str:
    """`form`: the body is sent as application/x-www-form-urlencoded."""
    find = _body_parts if len(body) <= _REMEMBERED_LENGTH else _body_parts.__wrapped__
    return _fill(find(body, form), facts)


def _fill(parts: _Parts, facts: Mapping[str, str]) -> str:
    return "".join(
        [
            part
            if isinstance(part, str)
            else part.encode(facts[part.name])
            if part.name in facts
            else part.text
            for part in parts
        ]
    )


@lru_cache(maxsize=1024)
def _url_parts(tail: str) -> _Parts:
    return tuple(_named_parts(tail, _in_url))


@lru_cache(maxsize=1024)
def _header_parts(value: str) -> _Parts:
    return tuple(_named_parts(value, header_safe))


@lru_cache(maxsize=1024)
def _body_parts(body: str, form: bool) -> _Parts:
    json_like = looks_like_json(body)
    encode = _in_json if json_like else _in_url if form else str
    marked: Iterable[str | _Placeholder] = (body,)
    if _MARKER_CORE in body:
        marked = _json_parts(body) if json_like else _keyed_parts(body, encode)
    return tuple(
        inner
        for part in marked
        for inner in (_named_parts(part, encode) if isinstance(part, str) else (part,))
    )


def looks_like_json(body: str) -> bool:
    """Ksana's rule for the content type, ignoring white space and placeholders."""
    start = body.lstrip()[:2]
    return start[:1] in ("{", "[") and start != "{{"


def _named_parts(text: str, encode: Encode) -> Iterator[str | _Placeholder]:
    copied = 0
    for found in PLACEHOLDER.finditer(text):
        yield text[copied : found.start()]
        yield _Placeholder(found[1], encode, found[0])
        copied = found.end()
    yield text[copied:]


def _json_parts(body: str) -> Iterator[str | _Placeholder]:
    """Marked strings only; every other byte stays unchanged."""
    try:
        json.loads(PLACEHOLDER.sub("0", body))
    except (ValueError, RecursionError):
        yield from _keyed_parts(body, _in_json)
        return
    copied = 0
    previous: re.Match[str] | None = None
    for token in _JSON_STRING.finditer(body):
        if (
            previous is not None
            and _MARKER_CORE in token[0]
            and _string(token[0]) == MARKER
            and _COLON.fullmatch(body, previous.end(), token.start())
        ):
            yield body[copied : token.start() + 1]
            yield _Placeholder(_string(previous[0]), _in_json, token[0][1:-1])
            copied = token.end() - 1
        previous = token
    yield body[copied:]


def _string(token: str) -> str:
    return str(json.loads(token)) if "\\" in token else token[1:-1]


def _keyed_parts(body: str, encode: Encode) -> Iterator[str | _Placeholder]:
    copied = 0
    for found in _KEYED_MARKER.finditer(body):
        yield body[copied : found.end(2)]
        yield _Placeholder(found[1], encode, body[found.end(2) : found.end()])
        copied = found.end()
    yield body[copied:]


def _in_url(value: str) -> str:
    return quote(value, safe="")


def _in_json(value: str) -> str:
    return encode_basestring(value)[1:-1]


def header_safe(value: str) -> str:
    """A value that is safe inside a header."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


# Secrets are masked in everything that is stored and logged about a callback.

# Shorter values occur everywhere; masking them would garble results.
_SHORTEST_SECRET = 8


def secrets_of(
    headers: Iterable[tuple[str, str]], signing_secrets: Iterable[str], tail: str, body: str
) -> tuple[str, ...]:
    """Values to mask, longest first so that none is part of another. A receiver may echo secrets of
    a JSON body or a form, too."""
    found = {*signing_secrets, *secrets_in(body)}
    for name, value in headers:
        if is_secret_name(name):
            found.add(value)
            # `Bearer <token>`: a receiver may echo the token alone.
            found.update(value.split())
    for value in secrets_in(tail):
        found |= {value, unquote(value)}
    return tuple(sorted((s for s in found if len(s) >= _SHORTEST_SECRET), key=len, reverse=True))


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
    #: Only its origin is used.
    url: URL
    #: Request line and headers including the final empty line.
    head: bytes
    body: bytes
    verify_tls: bool
    #: For results and logs.
    shown_url: str
    secrets: tuple[str, ...]


class _Address(NamedTuple):
    """Path and query of a target with its placeholders filled."""

    request_line: str
    shown_url: str
    secrets: tuple[str, ...]


class _Template(NamedTuple):
    """What the requests of a target have in common. None: contains placeholders."""

    target: HttpTarget
    method: str
    destination: HttpUrl
    origin: URL
    address: _Address | None
    #: Header lines without what the run and the body add.
    header_lines: str | None
    #: Whether the target sets the content type itself.
    content_type: str
    sets_content_type: bool
    body: bytes | None


#: Templates by identity of the target, because a target with headers has no hash; the template
#: keeps its target, so that no other object gets its identity. The runs of a schedule share it.
_templates: dict[tuple[int, str, str], _Template] = {}
_MAX_TEMPLATES = 1024
#: More than any target has without placeholders. A name can be filled in thousands of times.
MAX_REQUEST_BYTES = 1024 * 1024


def build_request(  # noqa: C901 (the parts of a request, in order)
    call: Call, target: HttpTarget, *, user_agent: str, node_id: str
) -> Request:
    """`target` is the target of the call's run."""
    key = (id(target), user_agent, node_id)
    template = _templates.get(key)
    if template is None:
        template = _template_of(target, user_agent, node_id)
        if _length(target) <= _REMEMBERED_LENGTH:
            if len(_templates) >= _MAX_TEMPLATES:
                _templates.clear()
            _templates[key] = template
    address, header_lines, body = template.address, template.header_lines, template.body
    event = _event_body(call, target, template.method)
    if event is not None:
        body = event.body
    if address is None or header_lines is None or body is None:
        of_run = run_facts(call.run, call.triggered_at)
        facts = of_run | secret_facts(call.secrets)
        headers, content_type = target.headers, template.content_type
        if header_lines is None:
            headers = {name: fill_header(value, facts) for name, value in headers.items()}
            content_type = _own_content_type(headers) or content_type
            header_lines = _header_lines(template.origin, headers, user_agent, node_id)
        if address is None:
            tail = fill_url(template.destination.tail, facts)
            # Results and logs show which secret was sent, not its value.
            shown = fill_url(template.destination.tail, of_run)
            address = _address_of(
                template.method, template.destination, tail, headers, target, shown=shown
            )
        if body is None:
            form = content_type.startswith(FORM)
            body = fill_body(target.body, facts, form=form).encode()
    head = address.request_line + header_lines + _identity(call, target, body)
    if body:
        if not template.sets_content_type:
            head += _line(f"Content-Type: {event.content_type if event else template.content_type}")
        head += f"Content-Length: {len(body)}{EOL}"
    elif template.method not in METHODS_WITHOUT_BODY:
        head += f"Content-Length: 0{EOL}"
    encoded_head = f"{head}{EOL}".encode()
    if len(encoded_head) + len(body) > MAX_REQUEST_BYTES + (len(event.body) if event else 0):
        raise InvalidInput(
            _(
                "the request has more than {most} bytes with its placeholders filled",
                most=MAX_REQUEST_BYTES,
            ),
            field="body",
            code="request_too_large",
        )
    return Request(
        template.method,
        template.origin,
        encoded_head,
        body,
        target.verify_tls,
        address.shown_url,
        address.secrets,
    )


class _EventBody(NamedTuple):
    body: bytes
    content_type: str


def _event_body(call: Call, target: HttpTarget, method: str) -> _EventBody | None:
    """The payload of the event that started the run, for a target without a body. Nothing is filled
    into it: others have written it."""
    cause = call.run.definition.cause
    if cause is None or target.body or method in METHODS_WITHOUT_BODY:
        return None
    content_type = header_safe(cause.content_type) or inferred_content_type(cause.payload)
    return _EventBody(cause.payload.encode(), content_type)


def _length(target: HttpTarget) -> int:
    """The characters that a template keeps."""
    headers = sum(len(name) + len(value) for name, value in target.headers.items())
    return len(target.url) + headers + len(target.body)


def _template_of(target: HttpTarget, user_agent: str, node_id: str) -> _Template:
    """Checks method and header names again: they may have been saved under other rules, and framing
    headers are set here."""
    method = target.method.upper()
    check_method(method)
    destination = parse_http_url(target.url)
    origin = wire_url(destination, "/").origin()
    headers = target.headers
    for name in headers:
        check_header_name(name)
    own_type = _own_content_type(headers)
    headers_vary = any("{{" in value for value in headers.values())
    body_varies = "{{" in target.body or _MARKER_CORE in target.body
    return _Template(
        target=target,
        method=method,
        destination=destination,
        origin=origin,
        address=None
        if "{{" in target.url or headers_vary
        else _address_of(method, destination, destination.tail, headers, target),
        header_lines=None if headers_vary else _header_lines(origin, headers, user_agent, node_id),
        content_type=own_type or inferred_content_type(target.body),
        sets_content_type=own_type is not None,
        body=None if body_varies else target.body.encode(),
    )


def _own_content_type(headers: Mapping[str, str]) -> str | None:
    return next((each for name, each in headers.items() if name.lower() == "content-type"), None)


def _address_of(
    method: str,
    destination: HttpUrl,
    tail: str,
    headers: Mapping[str, str],
    target: HttpTarget,
    *,
    shown: str | None = None,
) -> _Address:
    path, _unused, query = on_the_wire(tail).partition("?")
    return _Address(
        request_line=_line(f"{method} {path}{'?' if query else ''}{query} HTTP/1.1"),
        shown_url=destination.origin + mask_url(tail if shown is None else shown),
        secrets=secrets_of(headers.items(), target.signing_secrets, tail, target.body),
    )


def _header_lines(origin: URL, headers: Mapping[str, str], user_agent: str, node_id: str) -> str:
    # `connection.py` decodes these encodings.
    lines = {
        "host": f"Host: {origin.host_port_subcomponent}",
        "user-agent": f"User-Agent: {user_agent}",
        "accept": "Accept: */*",
        "accept-encoding": "Accept-Encoding: gzip, deflate",
    }
    lines |= {name.lower(): f"{name}: {value}" for name, value in headers.items()}
    if node_id:
        lines["x-chimes-node"] = f"X-Chimes-Node: {node_id}"
    return "".join(map(_line, lines.values()))


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
        f"X-Chimes-Slot: {moment_text(run.slot or run.planned_at)}{EOL}"
    )
    if run.schedule_id:
        lines += f"X-Chimes-Schedule-Id: {header_safe(run.schedule_id)}{EOL}"
    if target.signing_secrets:
        keys = fill_secrets(target.signing_secrets, call.secrets)
        signed = signatures(keys, message_id=run.id, timestamp=timestamp, body=body)
        lines += f"webhook-signature: {signed}{EOL}"
    trace = current_traceparent()
    if trace and not any(name.lower() == "traceparent" for name in target.headers):
        lines += f"traceparent: {trace}{EOL}"
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
