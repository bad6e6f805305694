"""What a target must look like to be saved. Every refusal is a 422 that names the field."""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import assert_never

from chimes.errors import InvalidInput
from chimes.model.action_rules import check_action_target
from chimes.model.egress import Egress
from chimes.model.http_url import parse_http_url
from chimes.model.json_rules import MAX_ARGUMENT_BYTES as MAX_ARGUMENT_BYTES
from chimes.model.json_rules import check_arguments, encoded
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.wording import say

MAX_BODY_BYTES = 64 * 1024
MAX_PROMPT_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 64 * 1024
MAX_TOKENS = 1_000_000
MAX_NAME_LENGTH = 200
MAX_SOURCE_NAME_LENGTH = 100
MAX_HEADERS = 100
MAX_HEADER_VALUE_BYTES = 8 * 1024
MAX_HEADER_NAME_LENGTH = 128
MAX_EXPECTED_STATUSES = 20
MAX_SIGNING_SECRETS = 5
SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix, not a secret
SECRET_BYTES = range(24, 65)

_NAME = re.compile(r"\w[\w.-]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECRET_PLACEHOLDER = re.compile(r"\{\{\s*secret[.:\s]")

#: Ours to send: framing, routing, and the identity of a run (S38).
RESERVED_HEADERS = frozenset(
    {
        "connection", "content-length", "cookie", "cookie2", "expect", "host", "http2-settings",
        "idempotency-key", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
        "x-ksana-run-id",
    }
)  # fmt: skip
RESERVED_PREFIXES = ("proxy-", "webhook-", "x-chimes-")
REFUSED_METHODS = frozenset({"CONNECT", "TRACE", "TRACK"})


def check_target(target: Target, *, egress: Egress | None = None) -> None:
    """Whatever can be said about a target by itself; whether anybody offers it is the service's
    question."""
    match target:
        case HttpTarget():
            check_http_target(target, egress=egress)
        case TaskTarget():
            check_name(target.name)
            check_arguments(target.args, "args")
        case FlowTarget():
            check_name(target.name)
            check_arguments(target.input, "input")
        case SyncTarget():
            check_source_name(target.source, "source")
            check_source_name(target.collection, "collection")
        case AgentTarget():
            check_prompt(target)
        case ActionTarget():
            check_action_target(target)
        case MessageTarget():
            check_message(target)
        case _:
            assert_never(target)


def check_message(target: MessageTarget) -> None:
    if not target.text.strip():
        raise InvalidInput(say("a message needs its text"), field="text", code="missing")
    if len(encoded(target.text, "text")) > MAX_MESSAGE_BYTES:
        raise InvalidInput(
            say("a message has at most {most} bytes", most=MAX_MESSAGE_BYTES),
            field="text",
            code="too_long",
        )
    if "\x00" in target.text:
        raise InvalidInput(say("a message has no NUL characters"), field="text", code="bad_text")


def check_prompt(target: AgentTarget) -> None:
    if not target.prompt.strip():
        raise InvalidInput(say("a prompt is needed"), field="prompt", code="missing")
    if len(encoded(target.prompt, "prompt")) > MAX_PROMPT_BYTES:
        raise InvalidInput(
            say("a prompt has at most {most} bytes", most=MAX_PROMPT_BYTES),
            field="prompt",
            code="too_long",
        )
    if "\x00" in target.prompt:
        raise InvalidInput(say("a NUL character is not allowed"), field="prompt", code="not_text")
    if target.pipeline not in ("", "openai", "runs"):
        raise InvalidInput(
            say("a pipeline is openai or runs"), field="pipeline", code="unknown_pipeline"
        )
    if len(target.model) > MAX_NAME_LENGTH or _CONTROL.search(target.model):
        raise InvalidInput(
            say("a model has at most {most} characters", most=MAX_NAME_LENGTH),
            field="model",
            code="bad_name",
        )
    if target.max_tokens is not None and not 1 <= target.max_tokens <= MAX_TOKENS:
        raise InvalidInput(
            say("max_tokens lies between 1 and {most}", most=MAX_TOKENS),
            field="max_tokens",
            code="out_of_range",
        )


def check_name(name: str) -> None:
    """The name of a task or a flow: a word, never a path and never something to import (S66)."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidInput(
            say(
                "a name has 1 to {most} letters, digits and any of _ . -",
                most=MAX_NAME_LENGTH,
            ),
            field="name",
            code="bad_name",
        )


def check_source_name(name: str, field: str) -> None:
    """The id of a source or of a collection: they are parts of keys and of task ids."""
    if len(name) > MAX_SOURCE_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidInput(
            say(
                "{field}: 1 to {most} letters, digits and any of _ . -",
                field=field,
                most=MAX_SOURCE_NAME_LENGTH,
            ),
            field=field,
            code="bad_name",
        )


def check_http_target(target: HttpTarget, *, egress: Egress | None = None) -> None:
    """With `egress`, a URL whose address or port can be seen to be denied is refused as well;
    names are judged when they are dialled."""
    check_method(target.method)
    url = parse_http_url(target.url)
    if egress is not None and (denial := egress.literal_verdict(url)) is not None:
        raise InvalidInput(str(denial), field="url", code="egress_denied")
    _check_headers(target)
    _check_body(target.body)
    _check_expected_status(target.expected_status)
    check_signing(target.signing_secrets)
    _check_secret_placeholders(target)


@lru_cache(maxsize=256)
def signing_key(secret: str) -> bytes:
    """The key in a Standard Webhooks secret, `whsec_` and base64."""
    if not secret.startswith(SECRET_PREFIX):
        raise _bad_secret(say("a signing secret must start with whsec_"))
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _bad_secret(say("a signing secret must be whsec_ and base64")) from None
    if len(key) not in SECRET_BYTES:
        raise _bad_secret(
            say(
                "a signing secret must hold {least} to {most} bytes, not {count}",
                least=SECRET_BYTES[0],
                most=SECRET_BYTES[-1],
                count=len(key),
            )
        )
    return key


def _bad_secret(message: str) -> InvalidInput:
    return InvalidInput(message, field="signing_secrets", code="signing_secret")


def check_method(method: str) -> None:
    if len(method) > 32 or not _TOKEN.fullmatch(method):
        raise InvalidInput(
            say("the method must be a word such as GET or POST"), field="method", code="method"
        )
    if method.upper() in REFUSED_METHODS:
        raise InvalidInput(
            say("{method} cannot be used", method=method.upper()), field="method", code="method"
        )


def _check_headers(target: HttpTarget) -> None:
    if len(target.headers) > MAX_HEADERS:
        raise InvalidInput(
            say("more than {most} headers", most=MAX_HEADERS),
            field="headers",
            code="too_many_headers",
        )
    seen: set[str] = set()
    for name, value in target.headers.items():
        check_header_name(name)
        lower = name.lower()
        if lower in seen:
            raise _bad_header(name, say("{name} is given twice", name=name), "header_twice")
        seen.add(lower)
        _check_header_value(name, value)


def check_header_name(name: str) -> None:
    if len(name) > MAX_HEADER_NAME_LENGTH or not _TOKEN.fullmatch(name):
        raise InvalidInput(
            say("{name!r} is not a header name", name=name[:MAX_HEADER_NAME_LENGTH]),
            field="headers",
            code="header_name",
        )
    lower = name.lower()
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        raise _bad_header(name, say("{name} is set by Chimes itself", name=name), "header_reserved")


def _check_header_value(name: str, value: str) -> None:
    if _CONTROL.search(value):
        raise _bad_header(name, say("{name} holds a control character", name=name), "header_value")
    if len(encoded(value, f"headers.{name}")) > MAX_HEADER_VALUE_BYTES:
        raise _bad_header(
            name,
            say(
                "{name} is longer than {most} bytes",
                name=name,
                most=MAX_HEADER_VALUE_BYTES,
            ),
            "header_too_long",
        )


def _bad_header(name: str, message: str, code: str) -> InvalidInput:
    return InvalidInput(message, field=f"headers.{name}", code=code)


def _check_body(body: str) -> None:
    if len(encoded(body, "body")) > MAX_BODY_BYTES:
        raise InvalidInput(
            say("the body is longer than {most} bytes", most=MAX_BODY_BYTES),
            field="body",
            code="body_too_long",
        )
    if "\x00" in body:
        raise InvalidInput(say("the body holds a NUL character"), field="body", code="not_text")


def _check_expected_status(statuses: tuple[int, ...]) -> None:
    if len(statuses) > MAX_EXPECTED_STATUSES or any(
        not 200 <= status <= 599 for status in statuses
    ):
        raise InvalidInput(
            say(
                "expected_status must be at most {most} numbers from 200 to 599",
                most=MAX_EXPECTED_STATUSES,
            ),
            field="expected_status",
            code="expected_status",
        )


def check_signing(secrets: tuple[str, ...]) -> None:
    if len(secrets) > MAX_SIGNING_SECRETS:
        raise _bad_secret(
            say(
                "more than {most} signing secrets",
                most=MAX_SIGNING_SECRETS,
            )
        )
    for secret in secrets:
        signing_key(secret)


def _check_secret_placeholders(target: HttpTarget) -> None:
    """No stored secrets exist, so one that is named belongs to nobody here (S45)."""
    texts = {"url": target.url, "body": target.body}
    texts |= {f"headers.{name}": value for name, value in target.headers.items()}
    for field, text in texts.items():
        if _SECRET_PLACEHOLDER.search(text):
            raise InvalidInput(say("there is no such secret"), field=field, code="unknown_secret")
