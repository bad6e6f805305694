"""The settings themselves: one field per knob, with its default."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.duration import format_duration_go, parse_duration
from chimes.triggers.json_values import nearest

ROLES = ("api", "scheduler", "worker")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    #: Where the data is kept: sqlite:///path | json:///dir | memory:// (plain `json`, `sqlite`:
    #: in the data directory) | postgresql://… | mariadb://… | redis://…. Empty: SQLite in the data
    #: directory.
    store: str = ""
    #: Use a Redis server also where its settings would lose what it has acknowledged (F42).
    allow_volatile: bool = False
    data_dir: Path = Path("data")
    host: str = "127.0.0.1"
    port: int = 7100
    roles: tuple[str, ...] = ROLES
    #: Runs a node carries out at once; None: 4 on the JSON store (R3.22), otherwise 100.
    workers: int | None = None
    #: Sync tasks a node carries out at once, apart from `workers` (R4.4); 0: none.
    sync_workers: int = 16
    #: A sync task that shows no sign of life for so long has stalled, and fails.
    sync_stall_after: timedelta = timedelta(seconds=60)
    #: Of how many tasks of each collection the log is kept; -1: of all that there are.
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
    #: Time between two renewals of the lease; None: a third of it.
    heartbeat: timedelta | None = None
    poll_interval: timedelta = timedelta(seconds=1)
    #: The application whose tasks and flows this node carries out, as `module:name`.
    app: str = ""
    #: False: what the application declares is timed in memory unless it says otherwise (R2.15).
    use_db_driven_scheduling: bool = True
    shutdown_grace: timedelta = timedelta(seconds=30)
    #: How long a tick is, for the cap on what is fired in one (R1.38).
    dispatch_tick: timedelta = timedelta(seconds=15)
    #: Schedules fired in one tick; 0: no cap (C13).
    max_dispatch_per_tick: int = 0
    retention: timedelta = timedelta(days=30)
    #: None: allowed in open mode only (RELIABILITY 9).
    allow_private_targets: bool | None = None
    egress_allow: tuple[str, ...] = ()
    egress_only: tuple[str, ...] = ()
    egress_allow_metadata: bool = False
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    admin_token: str = ""
    #: Ksana's key file: one key per line, `#` comments.
    auth_keys_file: Path | None = None
    max_schedules_per_owner: int = 1000
    requests_per_second: float = 20.0
    #: Active schedules of an owner that were made through the Softnix door or a chat (R1.38);
    #: None: 20 where keys are on, and for chats.
    max_active_per_owner: int | None = None
    #: The zone of schedules made through the Softnix door and in chats, where their owner has
    #: chosen none (C3).
    softnix_default_timezone: str = "Asia/Bangkok"
    #: False: schedules made through the Softnix door do not fire (R1.38).
    softnix_scheduler_enabled: bool = True
    #: Attempts to hand a prompt over, in total, and the first wait between them (R1.32).
    dispatch_attempts: int = 3
    dispatch_backoff: timedelta = timedelta(seconds=5)
    #: `openai` (a chat endpoint) or `runs` (a run pipeline); empty: agent targets are not offered.
    agent_pipeline: str = ""
    #: Without `/v1` and without `/runs`.
    agent_url: str = ""
    agent_model: str = ""
    agent_api_key: str = ""
    #: Of an answer, unless the target says otherwise; 0: as many as the model likes.
    agent_max_tokens: int = 0
    #: How long an agent run may take, unless its policy says otherwise.
    agent_timeout: timedelta = timedelta(minutes=10)
    #: Prices of a million tokens, for the cost of a run.
    agent_input_price: float = 0.0
    agent_output_price: float = 0.0
    #: Where the pipeline can call this server back; empty: it is polled only.
    agent_callback_url: str = ""
    #: In front of `/action-types/{id}/execute`; `{kn_id}` and `{branch}` in it are filled in.
    #: Empty: actions are not offered.
    action_url: str = ""
    #: Sent with every request to it, besides our own.
    action_headers: tuple[tuple[str, str], ...] = ()
    #: Of one request to it.
    action_timeout: timedelta = timedelta(seconds=30)
    #: How long an action may take, unless its policy says otherwise (R0.34).
    schedule_execution_timeout: timedelta = timedelta(minutes=10)
    #: What a caller of `/in/v1` has to show (C15); empty: nothing, in open mode.
    internal_token: str = ""
    telegram_token: str = ""
    telegram_api_url: str = "https://api.telegram.org"
    #: Chats that the bot answers, and that results are sent to; empty: nobody.
    telegram_allowed_chats: tuple[str, ...] = ()
    #: Where Telegram can reach this server; empty: long polling.
    telegram_webhook_url: str = ""
    #: What Telegram sends along with each update; empty: made from the token.
    telegram_webhook_secret: str = ""
    #: Messages that a chat may send (R1.37).
    telegram_per_minute: int = 30
    #: smtp://user:password@host:port, or smtps://; empty: no e-mail.
    smtp_url: str = ""
    smtp_from: str = ""
    #: Domains that mail may be sent to; empty: any.
    smtp_allowed: tuple[str, ...] = ()
    #: The address of the dashboard, for links in messages.
    public_url: str = ""


# @@ One setting from its text (environment, flags) or from its YAML value.
#
# A reader returns the value, or raises `Expected` with what it wanted; the caller knows the key
# and what was given.

Read = Callable[[object], object]

TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
LONGEST = timedelta(days=36500)
LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADERS_WANTED = _("headers as `Name: value`, or as an object of texts")


class Expected(ValueError):
    """The value is not what the setting needs; the message says what that is."""


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


def number(least: int, most: int) -> Read:
    def read(value: object) -> int:
        if isinstance(value, str) and value.strip().isascii():
            stripped = value.strip()
            value = int(stripped) if stripped.isdecimal() and len(stripped) < 20 else None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Expected(_("a whole number between {least} and {most}", least=least, most=most))
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
    # YAML reads a bare 1 as a number and yes as a truth value, so both may arrive.
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Expected(_("true or false (also 1/0, yes/no)"))


def duration(*, least: timedelta = timedelta(0), most: timedelta = LONGEST) -> Read:
    def read(value: object) -> timedelta:
        if not isinstance(value, str | timedelta):
            raise Expected(_("a duration such as 10s, 1h30m or PT1H30M"))
        try:
            found = parse_duration(value, allow_zero=True)
        except InvalidTrigger as error:
            raise _expected(_("a duration such as 10s, 1h30m or PT1H30M"), error.hint) from None
        if found < least:
            raise Expected(_("a duration of {least} or more", least=format_duration_go(least)))
        if found > most:
            raise Expected(_("a duration of {most} or less", most=format_duration_go(most)))
        return found

    return read


def seconds(*, least: timedelta = timedelta(0), most: timedelta = LONGEST) -> Read:
    """A duration; a bare number, as in the names that end in _SEC, means seconds (R1.38)."""
    read = duration(least=least, most=most)

    def either(value: object) -> object:
        number = _float(value)
        return read(value if math.isnan(number) else f"{number:.6f}s")

    return either


def names(value: object) -> tuple[str, ...]:
    """A list; in the environment, separated by commas."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise Expected(_("a list of texts, or one text separated by commas"))
    return tuple(text(each) for each in value if each.strip())


def headers(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; in the environment a JSON object, or `Name: value` and further ones after a
    semicolon or in lines of their own."""
    if isinstance(value, str):
        value = _mapping_of(value)
    if not isinstance(value, dict):
        raise Expected(_HEADERS_WANTED)
    found = tuple((str(name), text(str(each))) for name, each in value.items())
    for name, each in found:
        if not _TOKEN.fullmatch(name) or not each or not isinstance(value[name], str | int):
            raise Expected(_HEADERS_WANTED)
    if len({name.lower() for name, _unused in found}) != len(found):
        raise Expected(_("each header once"))
    return found


def _mapping_of(given: str) -> object:
    if given.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(given)
        return None
    parts = [part.partition(":") for part in re.split(r"[;\n]", given) if part.strip()]
    return {name.strip(): value.strip() for name, _unused, value in parts}


def chats(value: object) -> tuple[str, ...]:
    """Numbers of Telegram chats; those of groups are negative."""
    given = names([str(each) for each in value] if isinstance(value, list | tuple) else value)
    if not all(each.removeprefix("-").isdecimal() for each in given):
        raise Expected(_("numbers of chats, such as 123456789 or -1001234567890"))
    return given


def choice(*known: str) -> Read:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in known:
            wanted = _("one of {known}", known=", ".join(filter(None, known)))
            raise _expected(wanted, nearest(word, known) if word else None)
        return word

    return read


def roles(value: object) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(each.lower() for each in names(value)))
    wanted = _("one or more of {known}", known=", ".join(ROLES))
    if not given:
        raise Expected(wanted)
    for each in given:
        if each not in ROLES:
            raise _expected(wanted, nearest(each, ROLES) if each else None)
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


# @@ The table of settings: how each is read, and what it is called in the environment.
#
# `chimes.yaml` uses the field's own name or one of its spellings; the environment `CHIMES_` and
# the name in capitals, or one of the aliases: the seeds' own names (R3.38). The first name that
# is set wins (C23).


@dataclass(frozen=True, slots=True)
class Spelling:
    """Another name of a setting in `chimes.yaml`, where its value may be written differently."""

    name: str
    read: Read


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    read: Read
    aliases: tuple[str, ...] = ()
    #: Other names in `chimes.yaml`, after its own.
    spellings: tuple[Spelling, ...] = ()
    #: Never shown by `config show`, never logged (S69).
    secret: bool = False
    #: A URL that may hold a password, which is never shown nor logged.
    secret_part: bool = False
    #: Only `chimes.yaml` may set it (RELIABILITY 9).
    file_only: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return (f"CHIMES_{self.name.upper()}", *self.aliases)

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


_SHORT = duration(least=timedelta(milliseconds=1))
_POLL = seconds(least=timedelta(milliseconds=1))
_SHORTEST_LEASE, _LONGEST_LEASE = timedelta(seconds=1), timedelta(hours=1)
_LEASE = duration(least=_SHORTEST_LEASE, most=_LONGEST_LEASE)
_LOCK = seconds(least=_SHORTEST_LEASE, most=_LONGEST_LEASE)

_ALL = (
    Field("store", text, secret_part=True),
    Field("allow_volatile", flag),
    Field("data_dir", path, ("DATA_DIR", "KSANA_DATA")),
    Field("host", text),
    Field("port", number(0, 65535), ("PORT",)),
    Field("roles", roles),
    Field("workers", number(1, 10_000), ("WORKERS",)),
    Field("sync_workers", number(0, 10_000)),
    Field("sync_stall_after", duration(least=timedelta(seconds=1))),
    Field("sync_log_runs", number(-1, 1_000_000)),
    Field("default_timeout", _SHORT, ("DEFAULT_TIMEOUT",)),
    Field("max_retries", number(0, 1000), ("MAX_RETRIES",)),
    Field("retry_backoff", duration(), ("RETRY_BACKOFF",)),
    Field("misfire_grace", duration()),
    Field("default_timezone", zone),
    Field("log_level", level, ("LOG_LEVEL",)),
    Field("log_format", choice("auto", "json", "text")),
    # C4: a lock that is renewed while its holder lives is a lease.
    Field(
        "lease",
        _LEASE,
        ("CHIMES_SCHEDULE_LOCK_TIMEOUT",),
        (Spelling("schedule_lock_timeout", _LEASE), Spelling("scheduleLockTimeout", _LOCK)),
    ),
    Field("heartbeat", _SHORT),
    Field(
        "poll_interval",
        _POLL,
        ("CHIMES_SCHEDULE_POLL_INTERVAL", "SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC"),
        (Spelling("schedule_poll_interval", _POLL), Spelling("schedulePollInterval", _POLL)),
    ),
    Field("app", text),
    Field("use_db_driven_scheduling", flag),
    Field("shutdown_grace", duration()),
    Field("dispatch_tick", _POLL, ("SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC",)),
    Field(
        "max_dispatch_per_tick",
        number(0, 10_000_000),
        ("SOFTNIX_SCHEDULER_MAX_DISPATCH_PER_TICK",),
    ),
    Field("retention", duration(least=timedelta(hours=1))),
    Field("allow_private_targets", flag),
    Field("egress_allow", names),
    Field("egress_only", names),
    Field("egress_allow_metadata", flag, file_only=True),
    Field("allowed_hosts", names),
    Field("cors_origins", names),
    Field("admin_token", text, secret=True),
    Field("auth_keys_file", path, ("AUTH_KEYS_FILE",)),
    Field("max_schedules_per_owner", number(1, 10_000_000)),
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
    Field("agent_timeout", _SHORT),
    Field("agent_input_price", price),
    Field("agent_output_price", price),
    Field("agent_callback_url", text, secret_part=True),
    Field("action_url", text, secret_part=True),
    Field("action_headers", headers, secret=True),
    Field("action_timeout", _POLL),
    Field(
        "schedule_execution_timeout",
        _POLL,
        spellings=(Spelling("scheduleExecutionTimeout", _POLL),),
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

FIELDS: Mapping[str, Field] = {field.name: field for field in _ALL}
#: Other names in `chimes.yaml`, by name.
SPELLINGS: Mapping[str, Field] = {
    spelling.name: replace(field, read=spelling.read)
    for field in _ALL
    for spelling in field.spellings
}
