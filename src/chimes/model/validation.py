"""Validates schedules, policies, targets and recipients before they are saved.

InvalidInput names the field that is wrong. These checks are pure; `services/schedules/rules.py` has
those that depend on the caller, on limits or on the store.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

from chimes.egress import Egress, parse_http_url
from chimes.errors import InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import secret_fields, secret_names
from chimes.model.limit import check_limit_names
from chimes.model.policy import Policy
from chimes.model.recipient import SELECTABLE_EVENTS, Channel, NotifyOn, Recipient
from chimes.model.run import reserved_prefix
from chimes.model.schedule import Schedule
from chimes.model.sync import MAX_SYNC_TIMEOUT, require_exclusive
from chimes.model.target import (
    MAX_REQUIRED_LABELS,
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    ConnectionTarget,
    DaskTarget,
    EngineTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    PublishTarget,
    RedisStreamTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.redaction import is_placeholder
from chimes.triggers import (
    Cron,
    Every,
    Trigger,
    format_duration_iso,
    never_fires,
    parse_zone,
)

MAX_ARGUMENT_BYTES = 64 * 1024
MAX_ARGUMENT_DEPTH = 32


def check_arguments(arguments: Mapping[str, object], field: str) -> None:
    """Portable JSON within the size limit."""
    check_json(arguments, field)
    check_size(arguments, field, MAX_ARGUMENT_BYTES)


def check_size(value: object, field: str, most: int) -> None:
    """Limit the size of the encoded JSON."""
    if len(json.dumps(value, ensure_ascii=False).encode()) > most:
        raise InvalidInput(
            _(
                "{field} is longer than {most} bytes",
                field=field,
                most=most,
            ),
            field=field,
            code="too_long",
        )


def check_json(value: object, field: str, depth: int = 0) -> None:
    if depth > MAX_ARGUMENT_DEPTH:
        raise InvalidInput(
            _(
                "nested deeper than {most} levels",
                most=MAX_ARGUMENT_DEPTH,
            ),
            field=field,
            code="json_too_deep",
        )
    match value:
        case None | bool() | int():
            pass
        case float():
            if not math.isfinite(value):
                raise InvalidInput(
                    _("{value} is not a JSON number", value=value), field=field, code="bad_number"
                )
        case str():
            if "\x00" in value:
                raise InvalidInput(
                    _("a NUL character is not allowed"), field=field, code="not_text"
                )
            encode_text(value, field)
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise InvalidInput(
                        _("JSON keys must be strings"), field=field, code="wrong_type"
                    )
                check_json(key, field, depth + 1)
                check_json(inner, f"{field}.{key}", depth + 1)
        case list() | tuple():
            for place, inner in enumerate(value):
                check_json(inner, f"{field}[{place}]", depth + 1)
        case _:
            raise InvalidInput(
                _("{type} cannot be written as JSON", type=type(value).__name__),
                field=field,
                code="wrong_type",
            )


def encode_text(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(_("not valid Unicode text"), field=field, code="not_text") from None


#: Length of the id columns in KWeaver.
MAX_ID_LENGTH = 40
MAX_IDENTITIES = 10_000
MAX_IDENTITIES_BYTES = 128 * 1024

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_action_target(target: ActionTarget) -> None:
    check_action_id(target.action_type_id, "action_type_id")
    check_action_id(target.kn_id, "kn_id")
    check_action_id(target.branch, "branch")
    _check_identities(target.identities)
    check_arguments(target.params, "params")
    for value, field in ((target.account_id, "account.id"), (target.account_type, "account.type")):
        if value:
            check_action_id(value, field)


def check_action_id(value: str, field: str) -> None:
    """Ids come from another system: any text that fits into a path and a header."""
    if not value.strip():
        raise InvalidInput(_("{field} is required", field=field), field=field, code="missing")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(
            _(
                "{field} must have at most {most} characters",
                field=field,
                most=MAX_ID_LENGTH,
            ),
            field=field,
            code="too_long",
        )
    if value in (".", ".."):
        # These change the meaning of a path.
        raise InvalidInput(
            _("{field} cannot be {value!r}", field=field, value=value),
            field=field,
            code="bad_name",
        )
    if _CONTROL_CHARACTERS.search(value):
        raise InvalidInput(
            _("{field} contains a control character", field=field), field=field, code="not_text"
        )
    encode_text(value, field)


def _check_identities(identities: tuple[object, ...]) -> None:
    if len(identities) > MAX_IDENTITIES:
        raise InvalidInput(
            _("more than {most} identities", most=MAX_IDENTITIES),
            field="identities",
            code="too_many",
        )
    for place, identity in enumerate(identities):
        if not isinstance(identity, Mapping):
            raise InvalidInput(
                _("an identity must be a JSON object"),
                field=f"identities[{place}]",
                code="wrong_type",
            )
    check_json(identities, "identities")
    check_size(identities, "identities", MAX_IDENTITIES_BYTES)


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

#: Set by Chimes: framing, routing, and the identity of a run.
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
    """Checks that depend on the target alone; the service checks that a node can execute it."""
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
            check_placeholders(target)
        case MessageTarget():
            check_message(target)
        case CommandTarget():
            check_command(target)
        case CeleryTarget() | DaskTarget() | KubernetesTarget():
            check_engine_target(target)
        case AmqpTarget() | NatsTarget() | RedisStreamTarget() | KafkaTarget():
            check_publish_target(target)
        case _:
            assert_never(target)


# --- targets of connections
_CONNECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: Subjects of NATS have no spaces, and messages are not published to wildcards.
_SUBJECT = re.compile(r"[^\s*>]+")
_TOPIC = re.compile(r"[^\s/]+")


def check_engine_target(target: EngineTarget) -> None:
    _check_connection(target)
    match target:
        case CeleryTarget():
            _check_word(target.task, "task")
            _check_word(target.queue, "queue", required=False)
            check_json(target.args, "args")
            check_size(target.args, "args", MAX_ARGUMENT_BYTES)
            check_arguments(target.kwargs, "kwargs")
        case DaskTarget():
            if not _FUNCTION.fullmatch(target.function) or len(target.function) > NAME_LIMIT:
                raise InvalidInput(
                    _("expected module:function, such as shop.reports:daily"),
                    field="function",
                    code="bad_name",
                )
            check_json(target.args, "args")
            check_size(target.args, "args", MAX_ARGUMENT_BYTES)
            check_arguments(target.kwargs, "kwargs")
        case KubernetesTarget():
            _check_word(target.image, "image")
            if target.namespace and not _NAMESPACE.fullmatch(target.namespace):
                raise InvalidInput(
                    _("the name of a namespace has small letters, digits and `-`"),
                    field="namespace",
                    code="bad_name",
                )
            for place, each in enumerate(target.command):
                _check_plain_text(each, f"command[{place}]")
            _check_variables(target.env)
            check_arguments(target.manifest, "manifest")
    check_placeholders(target)


def check_publish_target(target: PublishTarget) -> None:
    _check_connection(target)
    match target:
        case AmqpTarget():
            _check_word(target.exchange, "exchange", required=False)
            _check_word(target.routing_key, "routing_key", required=not target.exchange)
        case NatsTarget():
            _check_word(target.subject, "subject", _SUBJECT)
        case KafkaTarget():
            _check_word(target.topic, "topic", _TOPIC)
            _check_plain_text(target.key, "key")
        case RedisStreamTarget():
            _check_word(target.stream, "stream")
            if not target.fields and not target.cloudevents:
                raise InvalidInput(_("an entry needs a field"), field="fields", code="missing")
            check_arguments(target.fields, "fields")
            if any(not name.strip() or name == "message_id" for name in target.fields):
                raise InvalidInput(
                    _("`message_id` is set by Chimes itself, and a field has a name"),
                    field="fields",
                    code="reserved",
                )
    body = "" if isinstance(target, RedisStreamTarget) else target.body
    if len(encode_text(body, "body")) > MAX_BODY_BYTES:
        raise InvalidInput(
            _("a message must have at most {most} bytes", most=MAX_BODY_BYTES),
            field="body",
            code="too_long",
        )
    check_placeholders(target)


def _check_connection(target: ConnectionTarget) -> None:
    if not _CONNECTION.fullmatch(target.connection):
        raise InvalidInput(
            _("expected the name of a connection in chimes.yaml"),
            field="connection",
            code="missing" if not target.connection else "bad_name",
        )


def _check_word(
    text: str, field: str, pattern: re.Pattern[str] | None = None, *, required: bool = True
) -> None:
    """A name without control characters; placeholders may be part of it."""
    if required and not text.strip():
        raise InvalidInput(_("{field} is missing", field=field), field=field, code="missing")
    plain = _PLACEHOLDER_MARK.sub("x", text)
    if len(text) > 255 or _CONTROL_CHARACTERS.search(text):
        raise InvalidInput(
            _("expected a name of at most 255 characters"), field=field, code="bad_name"
        )
    if pattern is not None and not pattern.fullmatch(plain):
        raise InvalidInput(
            _("{field} has a character that is not allowed in it", field=field),
            field=field,
            code="bad_name",
        )


_PLACEHOLDER_MARK = re.compile(r"\{\{ *[a-z_]+ *\}\}")

MAX_COMMAND_BYTES = 64 * 1024
MAX_VARIABLES = 200
MAX_VARIABLE_BYTES = 32 * 1024
MIN_MEMORY_LIMIT = 1024 * 1024
MAX_MEMORY_LIMIT = 2**50
MAX_CPU_LIMIT = timedelta(days=7)
MAX_OUTPUT_LIMIT = 2**40
MAX_KILL_AFTER = timedelta(minutes=10)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,30}\$?")
_UMASK = re.compile(r"[0-7]{1,4}")
#: Names and values of labels, as `chimes.config.settings` accepts them for nodes.
_NODE_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
#: Variables that Chimes sets.
_OWN_VARIABLES = frozenset(
    {
        *("CHIMES_RUN_ID", "CHIMES_SLOT", "CHIMES_ATTEMPT"),
        *("CHIMES_SCHEDULE", "CHIMES_SCHEDULE_ID"),
    }
)
#: Placeholders of secrets, which only variables and standard input may have.
_SECRET_MARK = re.compile(r"\{\{\s*secret[.:\s]")


def check_command(target: CommandTarget) -> None:
    if bool(target.command) == bool(target.shell.strip()):
        raise InvalidInput(
            _("give either `command`, the program and its arguments, or `shell`, a text"),
            field="command",
            code="missing" if not target.command else "given_twice",
        )
    if target.command and not target.command[0].strip():
        raise InvalidInput(_("the program has no name"), field="command[0]", code="missing")
    for field, text in (
        *((f"command[{place}]", each) for place, each in enumerate(target.command)),
        ("shell", target.shell),
    ):
        _check_plain_text(text, field)
        if _SECRET_MARK.search(text):
            raise InvalidInput(
                _(
                    "a secret cannot be part of a command, which other users of the machine can "
                    "see; put it into `env` or `stdin`"
                ),
                field=field,
                code="secret_not_used",
            )
    if len("\0".join((*target.command, target.shell)).encode()) > MAX_COMMAND_BYTES:
        raise InvalidInput(
            _("a command has at most {most} bytes", most=MAX_COMMAND_BYTES),
            field="command" if target.command else "shell",
            code="too_long",
        )
    _check_plain_text(target.cwd, "cwd")
    if target.cwd and not target.cwd.startswith("/"):
        raise InvalidInput(
            _("the working directory must be an absolute path, such as /srv/shop"),
            field="cwd",
            code="not_absolute",
        )
    _check_variables(target.env)
    _check_plain_text(target.stdin, "stdin")
    if len(target.stdin.encode()) > MAX_COMMAND_BYTES:
        raise InvalidInput(
            _("the standard input has at most {most} bytes", most=MAX_COMMAND_BYTES),
            field="stdin",
            code="too_long",
        )
    if target.user and not _USER.fullmatch(target.user):
        raise InvalidInput(_("expected the name of a user"), field="user", code="bad_name")
    if target.umask and not _UMASK.fullmatch(target.umask):
        raise InvalidInput(
            _("a umask is an octal number such as 027"), field="umask", code="bad_umask"
        )
    if any(not 0 <= each <= 255 for each in target.success_codes):
        raise InvalidInput(
            _("exit codes are numbers from 0 to 255"), field="success_codes", code="out_of_range"
        )
    _check_command_limits(target)
    _check_required_labels(target.requires)
    check_placeholders(target)


def _check_plain_text(text: str, field: str) -> None:
    encode_text(text, field)
    if "\x00" in text:
        raise InvalidInput(_("a NUL character is not allowed"), field=field, code="not_text")


def _check_variables(variables: Mapping[str, str]) -> None:
    if len(variables) > MAX_VARIABLES:
        raise InvalidInput(
            _("more than {most} variables", most=MAX_VARIABLES), field="env", code="too_many"
        )
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise InvalidInput(
                _("{name!r} is not the name of a variable", name=name[:128]),
                field="env",
                code="bad_name",
            )
        if name in _OWN_VARIABLES:
            raise InvalidInput(
                _("{name} is set by Chimes itself", name=name),
                field=f"env.{name}",
                code="reserved",
            )
        _check_plain_text(value, f"env.{name}")
        if len(value.encode()) > MAX_VARIABLE_BYTES:
            raise InvalidInput(
                _("{name} is longer than {most} bytes", name=name, most=MAX_VARIABLE_BYTES),
                field=f"env.{name}",
                code="too_long",
            )


def _check_command_limits(target: CommandTarget) -> None:
    second = timedelta(seconds=1)
    for field, value, least, most in (
        ("cpu_limit", target.cpu_limit, second, MAX_CPU_LIMIT),
        ("kill_after", target.kill_after, timedelta(), MAX_KILL_AFTER),
    ):
        if value is not None and not least <= value <= most:
            raise InvalidInput(
                _(
                    "{field} must be between {least} and {most}",
                    field=field,
                    least=format_duration_iso(least),
                    most=format_duration_iso(most),
                ),
                field=field,
                code="out_of_range",
            )
    for field, number, lowest, highest in (
        ("memory_limit", target.memory_limit, MIN_MEMORY_LIMIT, MAX_MEMORY_LIMIT),
        ("output_limit", target.output_limit, 1, MAX_OUTPUT_LIMIT),
    ):
        if number is not None and not lowest <= number <= highest:
            raise InvalidInput(
                _(
                    "{field} must be between {least} and {most}",
                    field=field,
                    least=lowest,
                    most=highest,
                ),
                field=field,
                code="out_of_range",
            )


def _check_required_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_REQUIRED_LABELS:
        raise InvalidInput(
            _("at most {most} labels", most=MAX_REQUIRED_LABELS), field="requires", code="too_many"
        )
    for name, value in labels.items():
        if not (_NODE_LABEL.fullmatch(name) and _NODE_LABEL.fullmatch(value)):
            raise InvalidInput(
                _(
                    "names and values of labels have 1 to 32 letters, digits and any of _ . -, "
                    "such as zone=eu, not {text!r}",
                    text=f"{name[:64]}={value[:64]}",
                ),
                field="requires",
                code="bad_label",
            )


def check_message(target: MessageTarget) -> None:
    if not target.text.strip():
        raise InvalidInput(_("a message needs a text"), field="text", code="missing")
    if len(encode_text(target.text, "text")) > MAX_MESSAGE_BYTES:
        raise InvalidInput(
            _("a message must have at most {most} bytes", most=MAX_MESSAGE_BYTES),
            field="text",
            code="too_long",
        )
    if "\x00" in target.text:
        raise InvalidInput(
            _("a message must not contain NUL characters"), field="text", code="bad_text"
        )


def check_prompt(target: AgentTarget) -> None:
    if not target.prompt.strip():
        raise InvalidInput(_("a prompt is required"), field="prompt", code="missing")
    if len(encode_text(target.prompt, "prompt")) > MAX_PROMPT_BYTES:
        raise InvalidInput(
            _("a prompt must have at most {most} bytes", most=MAX_PROMPT_BYTES),
            field="prompt",
            code="too_long",
        )
    if "\x00" in target.prompt:
        raise InvalidInput(_("a NUL character is not allowed"), field="prompt", code="not_text")
    if target.pipeline not in ("", "openai", "runs"):
        raise InvalidInput(
            _("a pipeline must be openai or runs"), field="pipeline", code="unknown_pipeline"
        )
    if len(target.model) > MAX_NAME_LENGTH or _CONTROL.search(target.model):
        raise InvalidInput(
            _("a model must have at most {most} characters", most=MAX_NAME_LENGTH),
            field="model",
            code="bad_name",
        )
    if target.max_tokens is not None and not 1 <= target.max_tokens <= MAX_TOKENS:
        raise InvalidInput(
            _("max_tokens must be between 1 and {most}", most=MAX_TOKENS),
            field="max_tokens",
            code="out_of_range",
        )


def check_name(name: str) -> None:
    """The name of a task or a flow: never a path or an importable name."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "a name must have 1 to {most} letters, digits and any of _ . -",
                most=MAX_NAME_LENGTH,
            ),
            field="name",
            code="bad_name",
        )


def check_source_name(name: str, field: str) -> None:
    """The id of a source or collection, which becomes part of keys and task ids."""
    if len(name) > MAX_SOURCE_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "{field} must have 1 to {most} letters, digits and any of _ . -",
                field=field,
                most=MAX_SOURCE_NAME_LENGTH,
            ),
            field=field,
            code="bad_name",
        )


def check_http_target(target: HttpTarget, *, egress: Egress | None = None) -> None:
    """With `egress`, a URL with a denied address or port is rejected too; host names are checked
    when they are dialled."""
    check_method(target.method)
    url = parse_http_url(target.url)
    if egress is not None and (denial := egress.check_url(url)) is not None:
        raise InvalidInput(str(denial), field="url", code="egress_denied")
    _check_headers(target)
    _check_body(target.body)
    _check_expected_status(target.expected_status)
    check_signing(target.signing_secrets)
    check_placeholders(target)


def check_placeholders(value: Target | Recipient) -> None:
    """Raises InvalidInput for a placeholder of a secret that is not well formed. Whether the secret
    exists is checked by the service."""
    for _field, _name in secret_fields(value):
        pass


@lru_cache(maxsize=256)
def signing_key(secret: str) -> bytes:
    """The key in a Standard Webhooks secret, `whsec_` and base64."""
    if not secret.startswith(SECRET_PREFIX):
        raise _bad_secret(_("a signing secret must start with whsec_"))
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _bad_secret(_("a signing secret must be whsec_ and base64")) from None
    if len(key) not in SECRET_BYTES:
        raise _bad_secret(
            _(
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
            _("the method must be a word such as GET or POST"), field="method", code="method"
        )
    if method.upper() in REFUSED_METHODS:
        raise InvalidInput(
            _("{method} cannot be used", method=method.upper()), field="method", code="method"
        )


def _check_headers(target: HttpTarget) -> None:
    if len(target.headers) > MAX_HEADERS:
        raise InvalidInput(
            _("more than {most} headers", most=MAX_HEADERS),
            field="headers",
            code="too_many_headers",
        )
    seen: set[str] = set()
    for name, value in target.headers.items():
        check_header_name(name)
        lower = name.lower()
        if lower in seen:
            raise _bad_header(name, _("{name} is given twice", name=name), "header_twice")
        seen.add(lower)
        _check_header_value(name, value)


def check_header_name(name: str) -> None:
    if len(name) > MAX_HEADER_NAME_LENGTH or not _TOKEN.fullmatch(name):
        raise InvalidInput(
            _("{name!r} is not a header name", name=name[:MAX_HEADER_NAME_LENGTH]),
            field="headers",
            code="header_name",
        )
    lower = name.lower()
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        raise _bad_header(name, _("{name} is set by Chimes itself", name=name), "header_reserved")


def _check_header_value(name: str, value: str) -> None:
    if _CONTROL.search(value):
        raise _bad_header(name, _("{name} contains a control character", name=name), "header_value")
    if len(encode_text(value, f"headers.{name}")) > MAX_HEADER_VALUE_BYTES:
        raise _bad_header(
            name,
            _(
                "{name} is longer than {most} bytes",
                name=name,
                most=MAX_HEADER_VALUE_BYTES,
            ),
            "header_too_long",
        )


def _bad_header(name: str, message: str, code: str) -> InvalidInput:
    return InvalidInput(message, field=f"headers.{name}", code=code)


def _check_body(body: str) -> None:
    if len(encode_text(body, "body")) > MAX_BODY_BYTES:
        raise InvalidInput(
            _("the body is longer than {most} bytes", most=MAX_BODY_BYTES),
            field="body",
            code="body_too_long",
        )
    if "\x00" in body:
        raise InvalidInput(_("the body contains a NUL character"), field="body", code="not_text")


def _check_expected_status(statuses: tuple[int, ...]) -> None:
    if len(statuses) > MAX_EXPECTED_STATUSES or any(
        not 200 <= status <= 599 for status in statuses
    ):
        raise InvalidInput(
            _(
                "expected_status must be at most {most} numbers from 200 to 599",
                most=MAX_EXPECTED_STATUSES,
            ),
            field="expected_status",
            code="expected_status",
        )


def check_signing(secrets: tuple[str, ...]) -> None:
    if len(secrets) > MAX_SIGNING_SECRETS:
        raise _bad_secret(
            _(
                "more than {most} signing secrets",
                most=MAX_SIGNING_SECRETS,
            )
        )
    for secret in secrets:
        # The value of a named secret is checked when it is used.
        if not is_placeholder(secret):
            signing_key(secret)


# --- recipients

MAX_RECIPIENTS = 10
MAX_ADDRESS_LENGTH = 254
LANGUAGES = ("", "en", "th", "zh")
MAX_LATE_AFTER = timedelta(days=7)
#: Longest wait of an escalation.
MAX_ESCALATION = timedelta(days=7)

_CHAT_ID = re.compile(r"-?[1-9][0-9]{0,18}")
_CHAT_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}@){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")


def check_recipients(recipients: Sequence[Recipient], *, egress: Egress | None = None) -> None:
    """With `egress`, a denied URL is rejected too."""
    if len(recipients) > MAX_RECIPIENTS:
        raise InvalidInput(
            _("at most {most} recipients", most=MAX_RECIPIENTS),
            field="delivery",
            code="too_many",
        )
    seen: set[tuple[Channel, str]] = set()
    for place, recipient in enumerate(recipients):
        try:
            _check(recipient, egress)
            if (recipient.channel, recipient.to) in seen:
                raise InvalidInput(
                    _("given twice; put both events under `on`"), field="to", code="twice"
                )
        except InvalidInput as error:
            raise error.within(f"delivery[{place}]") from None
        seen.add((recipient.channel, recipient.to))


#: Channels whose recipient is a URL, which may name secrets.
_BY_URL = (Channel.WEBHOOK, Channel.SLACK, Channel.APPRISE)
MAX_SERVICE_URL = 2000
_SERVICE_URL = re.compile(r"(?i)[a-z][a-z0-9+.-]{1,30}://\S+")


def is_chat_id(text: str) -> bool:
    """Whether it is the number of a chat, not a public name."""
    return _CHAT_ID.fullmatch(text) is not None


def _check(recipient: Recipient, egress: Egress | None) -> None:
    match recipient.channel:
        case Channel.INBOX:
            if recipient.to:
                raise InvalidInput(
                    _("the inbox is the owner's; leave `to` out"), field="to", code="not_empty"
                )
        case Channel.TELEGRAM:
            if not is_chat_id(recipient.to) and not _CHAT_NAME.fullmatch(recipient.to):
                raise InvalidInput(
                    _("a chat must be its number, or @ and its public name"),
                    field="to",
                    code="bad_chat",
                )
        case Channel.WEBHOOK | Channel.SLACK:
            _check_url(recipient.to, egress)
        case Channel.APPRISE:
            _check_service(recipient.to)
        case Channel.EMAIL:
            if len(recipient.to) > MAX_ADDRESS_LENGTH or not _ADDRESS.fullmatch(recipient.to):
                raise InvalidInput(
                    _("expected an address such as ada@example.com"), field="to", code="bad_address"
                )
        case _:
            assert_never(recipient.channel)
    _check_options(recipient)


def _check_options(recipient: Recipient) -> None:
    check_placeholders(recipient)
    if recipient.channel not in _BY_URL and secret_names(recipient.to):
        raise InvalidInput(_("only a URL can contain a secret"), field="to", code="secret_not_used")
    _check_events(recipient.on, "on")
    if not recipient.on:
        raise InvalidInput(
            _("choose at least one of success, failure, recovery, late and always"),
            field="on",
            code="missing",
        )
    _check_envelope(recipient)
    _check_times(recipient)
    if recipient.language not in LANGUAGES:
        raise InvalidInput(
            _("a language must be en, th or zh"), field="language", code="unknown_language"
        )
    if recipient.signing_secrets and recipient.channel is not Channel.WEBHOOK:
        raise InvalidInput(
            _("only a webhook has signing secrets"), field="signing_secrets", code="signing_secret"
        )
    check_signing(recipient.signing_secrets)


def _check_service(to: str) -> None:
    """Whether the service exists is known to the nodes that have Apprise."""
    if len(to) > MAX_SERVICE_URL or not _SERVICE_URL.fullmatch(to):
        raise InvalidInput(
            _("expected the URL of a service, such as ntfy://topic or discord://ID/TOKEN"),
            field="to",
            code="bad_address",
        )
    if to.lower().startswith(("http://", "https://")):
        raise InvalidInput(
            _("an http URL is a webhook: use the channel webhook, or slack"),
            field="to",
            code="bad_address",
        )


def _check_events(given: Sequence[NotifyOn], field: str) -> None:
    for each in given:
        if each not in SELECTABLE_EVENTS:
            raise InvalidInput(
                _("{word!r} is not an event to select", word=each.value),
                field=field,
                code="unknown_occasion",
            )


def _check_envelope(recipient: Recipient) -> None:
    if recipient.envelope and recipient.channel is not Channel.WEBHOOK:
        raise InvalidInput(
            _("only a webhook has an envelope"), field="envelope", code="not_a_webhook"
        )


def _check_times(recipient: Recipient) -> None:
    if not timedelta() < recipient.late_after <= MAX_LATE_AFTER:
        raise InvalidInput(
            _("late_after must be above 0 and at most a week"),
            field="late_after",
            code="out_of_range",
        )
    _check_escalation(recipient)
    if (quiet := recipient.quiet) is not None:
        if recipient.channel is Channel.INBOX:
            raise InvalidInput(
                _("an inbox has no quiet hours"),
                field="quiet",
                code="not_empty",
            )
        if quiet.start == quiet.end:
            raise InvalidInput(
                _("quiet hours must start and end at different times"),
                field="quiet.to",
                code="out_of_range",
            )
        _check_events(quiet.except_for, "quiet.except")
        _check_zone(quiet.zone, "quiet.zone")
    if (digest := recipient.digest) is not None:
        if not 0 <= digest.weekday <= 6:
            raise InvalidInput(
                _("a weekday must be 0 (Monday) to 6"), field="digest.on", code="out_of_range"
            )
        _check_events(digest.except_for, "digest.except")
        _check_zone(digest.zone, "digest.zone")


def _check_escalation(recipient: Recipient) -> None:
    after = recipient.after
    if after is None:
        return
    if not timedelta() < after <= MAX_ESCALATION:
        raise InvalidInput(
            _("after must be above 0 and at most a week"), field="after", code="out_of_range"
        )
    if not {NotifyOn.FAILURE, NotifyOn.ALWAYS}.intersection(recipient.on):
        raise InvalidInput(
            _("an escalation is about failures: add failure to `on`, or leave `after` out"),
            field="on",
            code="not_failure",
        )
    if recipient.digest is not None:
        raise InvalidInput(
            _("an escalation cannot be part of a digest: leave out `after` or `digest`"),
            field="after",
            code="not_empty",
        )


def _check_zone(name: str, field: str) -> None:
    """A missing zone becomes the owner's when saved."""
    if name:
        parse_zone(name, field=field)


def _check_url(text: str, egress: Egress | None) -> None:
    try:
        url = parse_http_url(text)
    except InvalidInput as error:
        error.field = "to"
        raise
    if egress is not None and (denial := egress.check_url(url)) is not None:
        raise InvalidInput(str(denial), field="to", code="egress_denied")


# --- schedules and policies -----------------------------------------------------------------------
#: Longest timeouts by kind of target. The timeout of a flow covers all its steps.
LONGEST_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(minutes=15),
    "task": timedelta(days=7),
    "flow": timedelta(days=365),
    "sync": MAX_SYNC_TIMEOUT,
    "agent": timedelta(days=1),
    "action": timedelta(days=1),
    "message": timedelta(minutes=1),
    "command": timedelta(days=7),
    "celery": timedelta(days=7),
    "dask": timedelta(days=7),
    "kubernetes": timedelta(days=7),
    "amqp": timedelta(minutes=5),
    "nats": timedelta(minutes=5),
    "redis_stream": timedelta(minutes=5),
    "kafka": timedelta(minutes=5),
}
NAME_LIMIT = 200
ID_LIMIT = 200
LABEL_LIMIT = 50
PRIORITY_LIMIT = 1000
SHORTEST_INTERVAL = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(days=365)
MAX_RETRIES = 100
#: Largest `end_after_successes`.
MAX_SUCCESSES = 1_000_000
#: Largest `auto_pause_after`.
MAX_FAILURES_IN_A_ROW = 100
MAX_CONCURRENT_RUNS = 1_000_000
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MAX_CONSECUTIVE_MARKS = 8
_FIRES_CHECKED = 60
_SECOND = timedelta(seconds=1)


def clean_name(name: str, field: str = "name") -> str:
    """NFC and trimmed; rejects characters that are unsafe to store or display."""
    cleaned = unicodedata.normalize("NFC", check_text(name, field)).strip()
    if not cleaned:
        raise InvalidInput(_("a name is required"), field=field, code="missing")
    if len(cleaned) > NAME_LIMIT:
        raise InvalidInput(
            _(
                "a name has at most {most} characters, this one has {count}",
                most=NAME_LIMIT,
                count=len(cleaned),
            ),
            field=field,
            code="too_long",
        )
    return cleaned


def check_text(text: str, field: str) -> str:
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if (
            category in _FORBIDDEN_CATEGORIES
            or character in _BIDI_CONTROLS
            or marks > _MAX_CONSECUTIVE_MARKS
        ):
            raise InvalidInput(
                _("the character U+{code:04X} is not allowed here", code=ord(character)),
                field=field,
                code="bad_character",
            )
    return text


def check_id(schedule_id: str) -> str:
    if not 0 < len(schedule_id) <= ID_LIMIT:
        raise InvalidInput(
            _("an id has 1 to {most} characters", most=ID_LIMIT),
            field="id",
            code="too_long",
        )
    if any(character.isspace() or character in "/?#%\\" for character in schedule_id):
        raise InvalidInput(
            _("an id has no spaces and none of / ? # % \\"), field="id", code="bad_character"
        )
    return check_text(schedule_id, "id")


def validate_schedule(schedule: Schedule, before: Schedule | None = None) -> Schedule:
    """The schedule with normalised name and policy. Raises InvalidInput with the invalid field.
    `before`: the stored one that it replaces."""
    kept = None
    if before is not None and reserved_prefix(before.policy, before.target) is not None:
        kept = before.policy.concurrency_key
    policy = validate_policy(schedule.policy, schedule.target, kept_key=kept)
    check_priority(schedule.priority, schedule.target)
    if len(schedule.labels) > LABEL_LIMIT:
        raise InvalidInput(
            _("at most {most} labels", most=LABEL_LIMIT),
            field="labels",
            code="too_many",
        )
    for name, value in schedule.labels.items():
        clean_name(name, "labels")
        check_text(value or "", f"labels.{name}")
    if schedule.depends_on is not None and schedule.depends_on.schedule_id == schedule.id:
        raise InvalidInput(
            _("a schedule cannot depend on itself"), field="depends_on", code="cycle"
        )
    check_text(schedule.pause_note, "note")
    return replace(schedule, name=clean_name(schedule.name), policy=policy)


def check_priority(priority: int, target: Target | None = None) -> None:
    """The priority class of a sync task is positive."""
    least = 1 if isinstance(target, SyncTarget) else -PRIORITY_LIMIT
    if not least <= priority <= PRIORITY_LIMIT:
        raise InvalidInput(
            _(
                "priority must be between {least} and {most}",
                least=least,
                most=PRIORITY_LIMIT,
            ),
            field="priority",
            code="out_of_range",
        )


def validate_policy(policy: Policy, target: Target, *, kept_key: str | None = None) -> Policy:
    """The policy as runs of this target use it. Raises InvalidInput. `kept_key`: a stored
    concurrency key, allowed even if it is reserved now, so that other fields can be changed."""
    if isinstance(target, SyncTarget):
        policy = require_exclusive(policy, target)
    prefix = reserved_prefix(policy, target)
    if prefix is not None and policy.concurrency_key != kept_key:
        raise InvalidInput(
            _(
                "keys that begin with {prefix} are reserved for Chimes itself; choose another name",
                prefix=prefix,
            ),
            field="policy.concurrency_key",
            code="reserved",
        )
    check_policy(policy, longest_timeout=longest_timeout(target))
    return policy


def check_policy(policy: Policy, *, longest_timeout: timedelta) -> None:
    zero = timedelta()
    for field, value, low, high in (
        ("misfire_grace", policy.misfire_grace, zero, LONGEST_WAIT),
        ("retry_backoff", policy.retry_backoff, zero, LONGEST_WAIT),
        ("backoff_cap", policy.backoff_cap, zero, LONGEST_WAIT),
        ("timeout", policy.timeout, timedelta(milliseconds=1), longest_timeout),
    ):
        if not low <= value <= high:
            raise InvalidInput(
                _(
                    "{field} must be between {least} and {most}",
                    field=field,
                    least=format_duration_iso(low),
                    most=format_duration_iso(high),
                ),
                field=f"policy.{field}",
                code="out_of_range",
            )
    for field, number, least, most in (
        ("catch_up_limit", policy.catch_up_limit, 1, 100_000),
        ("max_retries", policy.max_retries, 0, MAX_RETRIES),
        ("max_concurrent_runs", policy.max_concurrent_runs or 1, 1, MAX_CONCURRENT_RUNS),
        (
            "end_after_successes",
            1 if policy.end_after_successes is None else policy.end_after_successes,
            1,
            MAX_SUCCESSES,
        ),
        (
            "auto_pause_after",
            1 if policy.auto_pause_after is None else policy.auto_pause_after,
            1,
            MAX_FAILURES_IN_A_ROW,
        ),
    ):
        if not least <= number <= most:
            raise InvalidInput(
                _(
                    "{field} must be between {least} and {most}",
                    field=field,
                    least=least,
                    most=most,
                ),
                field=f"policy.{field}",
                code="out_of_range",
            )
    if policy.concurrency_key is not None:
        clean_name(policy.concurrency_key, "policy.concurrency_key")
    if policy.limits:
        check_limit_names(policy.limits)
    if policy.max_concurrent_runs == 0:
        raise InvalidInput(
            _("max_concurrent_runs must be at least 1"),
            field="policy.max_concurrent_runs",
            code="out_of_range",
        )


def check_interval(trigger: Trigger, shortest: timedelta, now: datetime) -> None:
    """Checks an interval itself, and a cron expression by its next fires, because only one with a
    seconds field can be this fast. `@every` counts as an interval."""
    interval = isinstance(trigger, Cron) and "@every" in trigger.expression
    if isinstance(trigger, Every):
        closest = trigger.every
    elif shortest <= _SECOND and not interval:
        return
    else:
        fires = [fire.at for fire in trigger.fires(now, _FIRES_CHECKED)]
        closest = min((b - a for a, b in pairwise(fires)), default=shortest)
    if closest < shortest:
        raise InvalidTrigger(
            _("the shortest allowed interval is {shortest:g} s", shortest=shortest.total_seconds()),
            field="trigger.every" if isinstance(trigger, Every) else "trigger.expression",
            code="interval_too_short",
        )


def check_fires(trigger: Trigger, after: datetime) -> None:
    """Raises InvalidTrigger for a trigger that would never fire."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("this trigger would never fire"), field="trigger", code="never_fires"
        )


def longest_timeout(target: Target) -> timedelta:
    return LONGEST_TIMEOUTS[target.kind]
