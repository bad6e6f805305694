"""All settings: their defaults, their names, and how each value is parsed."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

from chimes.envelope import BadKey, parse_keys
from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.values import format_duration_go, parse_duration, suggest_name

ROLES = ("api", "scheduler", "worker")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    #: URL of the store: sqlite:///path | json:///dir | memory:// (`json`, `sqlite`: in the data
    #: directory) | postgresql://… | mariadb://… | redis://…. Empty: SQLite in the data directory.
    store: str = ""
    #: Accept a Redis server whose settings may lose acknowledged writes.
    allow_volatile: bool = False
    data_dir: Path = Path("data")
    host: str = "127.0.0.1"
    port: int = 7100
    roles: tuple[str, ...] = ROLES
    #: Concurrent runs of a node; None: 4 on the JSON store, otherwise 100.
    workers: int | None = None
    #: Concurrent sync tasks of a node, in addition to `workers`; 0: none.
    sync_workers: int = 16
    #: A sync task without output or heartbeat for this long has stalled, and fails.
    sync_stall_after: timedelta = timedelta(seconds=60)
    #: Number of tasks per collection whose log is kept; -1: all.
    sync_log_runs: int = -1
    default_timeout: timedelta = timedelta(seconds=10)
    max_retries: int = 3
    retry_backoff: timedelta = timedelta(seconds=5)
    misfire_grace: timedelta = timedelta(seconds=60)
    default_timezone: str = "UTC"
    log_level: str = "info"
    #: json | text | auto (text on a terminal).
    log_format: str = "auto"
    lease: timedelta = timedelta(seconds=30)
    #: Interval between renewals of the lease; None: a third of it.
    heartbeat: timedelta | None = None
    poll_interval: timedelta = timedelta(seconds=1)
    #: Application whose tasks and flows this node executes, as `module:name`.
    app: str = ""
    #: Mode of declared schedules that set none: True is db, False is memory.
    use_db_driven_scheduling: bool = True
    shutdown_grace: timedelta = timedelta(seconds=30)
    #: Length of a tick of `max_dispatch_per_tick`.
    dispatch_tick: timedelta = timedelta(seconds=15)
    #: Maximum of schedules fired per tick; 0: no limit.
    max_dispatch_per_tick: int = 0
    retention: timedelta = timedelta(days=30)
    #: How long audit entries are kept; None: for ever.
    audit_retention: timedelta | None = None
    #: Signs the checkpoint of pruned audit entries.
    audit_key: str = ""
    #: Encrypts the secrets in the store: 32 bytes in base64; further keys, after commas, only
    #: decrypt. Empty: a generated file in the data directory of an embedded store.
    secret_key: str = ""
    #: Callbacks to private addresses; None: allowed in open mode only.
    allow_private_targets: bool | None = None
    egress_allow: tuple[str, ...] = ()
    egress_only: tuple[str, ...] = ()
    egress_allow_metadata: bool = False
    allowed_hosts: tuple[str, ...] = ()
    #: Proxies whose headers say who the client is: addresses or networks; empty: none.
    trusted_proxies: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    admin_token: str = ""
    #: Key file of Ksana: one key per line, `#` comments.
    auth_keys_file: Path | None = None
    max_schedules_per_owner: int = 1000
    #: The highest priority that members may choose, so that none overtakes all others.
    max_priority_member: int = 0
    #: Bytes of stored results per owner; 0: no limit; None: 1 GiB, without a limit for the system.
    max_result_bytes_per_owner: int | None = None
    requests_per_second: float = 20.0
    #: Active schedules per owner that were created through the Softnix API or a chat; None: 20
    #: with API keys and for chats.
    max_active_per_owner: int | None = None
    #: Time zone of schedules created through the Softnix API and in chats whose owner has set
    #: none.
    softnix_default_timezone: str = "Asia/Bangkok"
    #: False: schedules created through the Softnix API do not fire.
    softnix_scheduler_enabled: bool = True
    #: Total attempts to send a prompt to the agent, and the first back-off between them.
    dispatch_attempts: int = 3
    dispatch_backoff: timedelta = timedelta(seconds=5)
    #: `openai` (a chat endpoint) or `runs` (a run pipeline); empty: no agent targets.
    agent_pipeline: str = ""
    #: Base URL without `/v1` and `/runs`.
    agent_url: str = ""
    agent_model: str = ""
    agent_api_key: str = ""
    #: Default limit of an answer; 0: the limit of the model.
    agent_max_tokens: int = 0
    #: Default timeout of an agent run.
    agent_timeout: timedelta = timedelta(minutes=10)
    #: Prices of a million tokens, to compute the cost of a run.
    agent_input_price: float = 0.0
    agent_output_price: float = 0.0
    #: URL at which the pipeline can call this server back; empty: it is only polled.
    agent_callback_url: str = ""
    #: Base URL before `/action-types/{id}/execute`, with placeholders `{kn_id}` and `{branch}`.
    #: Empty: no action targets.
    action_url: str = ""
    #: Additional headers of every request to the action service.
    action_headers: tuple[tuple[str, str], ...] = ()
    #: Timeout of one request to the action service.
    action_timeout: timedelta = timedelta(seconds=30)
    #: Default timeout of an action.
    schedule_execution_timeout: timedelta = timedelta(minutes=10)
    #: Token that callers of `/in/v1` must send; empty: none, in open mode.
    internal_token: str = ""
    telegram_token: str = ""
    telegram_api_url: str = "https://api.telegram.org"
    #: Chats that may use the bot and receive results; empty: none.
    telegram_allowed_chats: tuple[str, ...] = ()
    #: URL at which Telegram can reach this server; empty: long polling.
    telegram_webhook_url: str = ""
    #: Secret that Telegram sends with each update; empty: derived from the token.
    telegram_webhook_secret: str = ""
    #: Rate limit of messages per chat.
    telegram_per_minute: int = 30
    #: smtp://user:password@host:port, or smtps://; empty: no e-mail.
    smtp_url: str = ""
    smtp_from: str = ""
    #: Domains that mail may be sent to; empty: any.
    smtp_allowed: tuple[str, ...] = ()
    #: URL of the dashboard, for links in messages.
    public_url: str = ""


# --- readers: parse a value from text (environment, flags) or YAML, or raise `Expected` -----------
Read = Callable[[object], object]

TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
MAX_DURATION = timedelta(days=36500)
LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADERS_EXPECTED = _("headers as `Name: value`, or an object of strings")


class Expected(ValueError):
    """The value is invalid; the message describes a valid one."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Expected(_("text"))
    if any(ord(char) < 32 for char in value):
        raise Expected(_("text without control characters"))
    return value.strip()


def path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Expected(_("a path"))
    return Path(value).expanduser()


def number(minimum: int, maximum: int) -> Read:
    def read(value: object) -> int:
        if isinstance(value, str) and value.strip().isascii():
            stripped = value.strip()
            value = int(stripped) if stripped.isdecimal() and len(stripped) < 20 else None
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise Expected(
                _(
                    "a whole number between {minimum} and {maximum}",
                    minimum=minimum,
                    maximum=maximum,
                )
            )
        return value

    return read


def rate(value: object) -> float:
    found = _float(value)
    if not (math.isfinite(found) and found > 0):
        raise Expected(_("a number above 0"))
    return found


def price(value: object) -> float:
    found = _float(value)
    if not (math.isfinite(found) and found >= 0):
        raise Expected(_("a number, 0 or more"))
    return found


def _float(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    # YAML parses a bare 1 as a number and yes as a boolean.
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Expected(_("true or false (also 1/0, yes/no)"))


def duration(*, minimum: timedelta = timedelta(0), maximum: timedelta = MAX_DURATION) -> Read:
    def read(value: object) -> timedelta:
        if not isinstance(value, str | timedelta):
            raise Expected(_("a duration such as 10s, 1h30m or PT1H30M"))
        try:
            found = parse_duration(value, allow_zero=True)
        except InvalidTrigger as error:
            raise _expected(_("a duration such as 10s, 1h30m or PT1H30M"), error.hint) from None
        if found < minimum:
            raise Expected(
                _("a duration of {minimum} or more", minimum=format_duration_go(minimum))
            )
        if found > maximum:
            raise Expected(
                _("a duration of {maximum} or less", maximum=format_duration_go(maximum))
            )
        return found

    return read


def seconds(*, minimum: timedelta = timedelta(0), maximum: timedelta = MAX_DURATION) -> Read:
    """A duration; a bare number is in seconds, as in the variables that end in _SEC."""
    read = duration(minimum=minimum, maximum=maximum)

    def either(value: object) -> object:
        number = _float(value)
        return read(value if math.isnan(number) else f"{number:.6f}s")

    return either


def names(value: object) -> tuple[str, ...]:
    """A list; comma-separated in the environment."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise Expected(_("a list of strings, or a comma-separated string"))
    return tuple(text(each) for each in value if each.strip())


def networks(value: object) -> tuple[str, ...]:
    """Addresses and networks. No host names: a forged DNS answer would be trusted."""
    try:
        found = [ip_network(each, strict=False) for each in names(value)]
    except ValueError:
        raise Expected(_("addresses or networks, such as 10.0.0.5 or 10.1.0.0/16")) from None
    return tuple(str(each).removesuffix(f"/{each.max_prefixlen}") for each in found)


def headers(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; in the environment a JSON object, or `Name: value` separated by semicolons or
    newlines."""
    if isinstance(value, str):
        value = _parse_headers(value)
    if not isinstance(value, dict):
        raise Expected(_HEADERS_EXPECTED)
    found = tuple((str(name), text(str(each))) for name, each in value.items())
    for name, each in found:
        if not _TOKEN.fullmatch(name) or not each or not isinstance(value[name], str | int):
            raise Expected(_HEADERS_EXPECTED)
    if len({name.lower() for name, _value in found}) != len(found):
        raise Expected(_("no duplicate headers"))
    return found


def _parse_headers(given: str) -> object:
    if given.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(given)
        return None
    parts = [part.partition(":") for part in re.split(r"[;\n]", given) if part.strip()]
    return {name.strip(): value.strip() for name, _colon, value in parts}


def chats(value: object) -> tuple[str, ...]:
    """Ids of Telegram chats; those of groups are negative."""
    given = names([str(each) for each in value] if isinstance(value, list | tuple) else value)
    if not all(each.removeprefix("-").isdecimal() for each in given):
        raise Expected(_("ids of chats, such as 123456789 or -1001234567890"))
    return given


def choice(*known: str) -> Read:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in known:
            wanted = _("one of {known}", known=", ".join(filter(None, known)))
            raise _expected(wanted, suggest_name(word, known) if word else None)
        return word

    return read


def secret_keys(value: object) -> str:
    given = text(value)
    try:
        parse_keys(given)
    except BadKey as bad:
        raise Expected(bad.args[0]) from None
    return given


def roles(value: object) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(each.lower() for each in names(value)))
    wanted = _("one or more of {known}", known=", ".join(ROLES))
    if not given:
        raise Expected(wanted)
    for each in given:
        if each not in ROLES:
            raise _expected(wanted, suggest_name(each, ROLES) if each else None)
    return tuple(role for role in ROLES if role in given)


def level(value: object) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    return str(choice(*LEVELS)(_LEVEL_ALIASES.get(word, word)))


def zone(value: object) -> str:
    from chimes.triggers.zones import parse_zone

    try:
        return parse_zone(text(value)).name
    except InvalidTrigger as error:
        raise _expected(_("an IANA time zone such as Asia/Bangkok"), error.hint) from None


def _expected(wanted: str, hint: str | None) -> Expected:
    return Expected(_("{message} ({hint})", message=wanted, hint=hint) if hint else wanted)


# --- table of settings ----------------------------------------------------------------------------
# In `chimes.yaml` a setting has its own name or one of its `file_aliases`; in the environment
# `CHIMES_` and the name in capitals, or one of its `variable_aliases`. Aliases are the names of
# older systems. The first name that is set takes precedence.


@dataclass(frozen=True, slots=True)
class FileAlias:
    """An alternative name of a setting in `chimes.yaml`, with its own format of the value."""

    name: str
    read: Read


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    read: Read
    variable_aliases: tuple[str, ...] = ()
    file_aliases: tuple[FileAlias, ...] = ()
    #: Masked in `config show` and logs.
    secret: bool = False
    #: A URL whose password is masked.
    secret_part: bool = False
    #: Can only be set in `chimes.yaml`, because it weakens security.
    file_only: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return (f"CHIMES_{self.name.upper()}", *self.variable_aliases)

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


_POSITIVE = duration(minimum=timedelta(milliseconds=1))
_POSITIVE_SECONDS = seconds(minimum=timedelta(milliseconds=1))
_MIN_LEASE, _MAX_LEASE = timedelta(seconds=1), timedelta(hours=1)
_LEASE = duration(minimum=_MIN_LEASE, maximum=_MAX_LEASE)
_LEASE_SECONDS = seconds(minimum=_MIN_LEASE, maximum=_MAX_LEASE)

_SETTINGS = (
    Field("store", text, secret_part=True),
    Field("allow_volatile", flag),
    Field("data_dir", path, ("DATA_DIR", "KSANA_DATA")),
    Field("host", text),
    Field("port", number(0, 65535), ("PORT",)),
    Field("roles", roles),
    Field("workers", number(1, 10_000), ("WORKERS",)),
    Field("sync_workers", number(0, 10_000)),
    Field("sync_stall_after", duration(minimum=timedelta(seconds=1))),
    Field("sync_log_runs", number(-1, 1_000_000)),
    Field("default_timeout", _POSITIVE, ("DEFAULT_TIMEOUT",)),
    Field("max_retries", number(0, 1000), ("MAX_RETRIES",)),
    Field("retry_backoff", duration(), ("RETRY_BACKOFF",)),
    Field("misfire_grace", duration()),
    Field("default_timezone", zone),
    Field("log_level", level, ("LOG_LEVEL",)),
    Field("log_format", choice("auto", "json", "text")),
    # The schedule lock of older systems is a lease: it is renewed while its holder lives.
    Field(
        "lease",
        _LEASE,
        ("CHIMES_SCHEDULE_LOCK_TIMEOUT",),
        (
            FileAlias("schedule_lock_timeout", _LEASE),
            FileAlias("scheduleLockTimeout", _LEASE_SECONDS),
        ),
    ),
    Field("heartbeat", _POSITIVE),
    Field(
        "poll_interval",
        _POSITIVE_SECONDS,
        ("CHIMES_SCHEDULE_POLL_INTERVAL", "SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC"),
        (
            FileAlias("schedule_poll_interval", _POSITIVE_SECONDS),
            FileAlias("schedulePollInterval", _POSITIVE_SECONDS),
        ),
    ),
    Field("app", text),
    Field("use_db_driven_scheduling", flag),
    Field("shutdown_grace", duration()),
    Field("dispatch_tick", _POSITIVE_SECONDS, ("SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC",)),
    Field(
        "max_dispatch_per_tick",
        number(0, 10_000_000),
        ("SOFTNIX_SCHEDULER_MAX_DISPATCH_PER_TICK",),
    ),
    Field("retention", duration(minimum=timedelta(hours=1))),
    Field("audit_retention", duration(minimum=timedelta(days=1))),
    Field("audit_key", text, secret=True),
    Field("secret_key", secret_keys, secret=True),
    Field("allow_private_targets", flag),
    Field("egress_allow", names),
    Field("egress_only", names),
    Field("egress_allow_metadata", flag, file_only=True),
    Field("allowed_hosts", names),
    # The variable of uvicorn and gunicorn, which applied before there was a setting.
    Field("trusted_proxies", networks, ("FORWARDED_ALLOW_IPS",)),
    Field("cors_origins", names),
    Field("admin_token", text, secret=True),
    Field("auth_keys_file", path, ("AUTH_KEYS_FILE",)),
    Field("max_schedules_per_owner", number(1, 10_000_000)),
    Field("max_priority_member", number(0, 1000)),
    Field("max_result_bytes_per_owner", number(0, 10**15)),
    Field("requests_per_second", rate),
    Field(
        "max_active_per_owner", number(0, 10_000_000), ("SOFTNIX_SCHEDULER_MAX_ACTIVE_PER_OWNER",)
    ),
    Field("softnix_default_timezone", zone, ("SOFTNIX_SCHEDULER_DEFAULT_TIMEZONE",)),
    Field("softnix_scheduler_enabled", flag, ("SOFTNIX_SCHEDULER_ENABLED",)),
    Field("dispatch_attempts", number(1, 100), ("SOFTNIX_SCHEDULER_RETRY_MAX_ATTEMPTS",)),
    Field("dispatch_backoff", seconds(), ("SOFTNIX_SCHEDULER_RETRY_BACKOFF_SEC",)),
    Field("agent_pipeline", choice("", "openai", "runs")),
    Field("agent_url", text, secret_part=True),
    Field("agent_model", text),
    Field("agent_api_key", text, secret=True),
    Field("agent_max_tokens", number(0, 1_000_000)),
    Field("agent_timeout", _POSITIVE),
    Field("agent_input_price", price),
    Field("agent_output_price", price),
    Field("agent_callback_url", text, secret_part=True),
    Field("action_url", text, secret_part=True),
    Field("action_headers", headers, secret=True),
    Field("action_timeout", _POSITIVE_SECONDS),
    Field(
        "schedule_execution_timeout",
        _POSITIVE_SECONDS,
        file_aliases=(FileAlias("scheduleExecutionTimeout", _POSITIVE_SECONDS),),
    ),
    Field("internal_token", text, secret=True),
    Field("telegram_token", text, secret=True),
    Field("telegram_api_url", text, secret_part=True),
    Field("telegram_allowed_chats", chats),
    Field("telegram_webhook_url", text, secret_part=True),
    Field("telegram_webhook_secret", text, secret=True),
    Field("telegram_per_minute", number(1, 10_000), ("SOFTNIX_TELEGRAM_RATE_LIMIT_PER_MINUTE",)),
    Field("smtp_url", text, secret_part=True),
    Field("smtp_from", text),
    Field("smtp_allowed", names),
    Field("public_url", text),
)

FIELDS: Mapping[str, Field] = {field.name: field for field in _SETTINGS}
#: Settings by alternative name in `chimes.yaml`.
FILE_ALIASES: Mapping[str, Field] = {
    alias.name: replace(field, read=alias.read)
    for field in _SETTINGS
    for alias in field.file_aliases
}
