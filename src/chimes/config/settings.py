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
from typing import TYPE_CHECKING

from chimes.envelope import BadKey, parse_keys
from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.values import format_duration_go, parse_duration, suggest_name

if TYPE_CHECKING:
    from chimes.config.connections import Connection

ROLES = ("api", "scheduler", "worker")
#: Roles of users and keys that can create schedules.
ACCESS_ROLES = ("member", "admin")
#: Of users and keys, from least to most.
USER_ROLES = ("viewer", "member", "operator", "admin")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    #: URL of the store: sqlite:///path | json:///dir | memory:// (`json`, `sqlite`: in the data
    #: directory) | postgresql://… | mariadb://… | redis://…. Empty: SQLite in the data directory.
    store: str = ""
    #: Accept a Redis server whose settings may lose acknowledged writes.
    allow_volatile: bool = False
    #: Data directory.
    data_dir: Path = Path("data")
    #: Address to listen on; other than loopback only with a key.
    host: str = "127.0.0.1"
    #: Port to listen on; 0 chooses a free one.
    port: int = 7100
    #: Roles of this node: `api`, `scheduler`, `worker`.
    roles: tuple[str, ...] = ROLES
    #: Concurrent runs of a node; None: 4 on the JSON store, otherwise 100.
    workers: int | None = None
    #: Concurrent sync tasks of a node, in addition to `workers`; 0: none.
    sync_workers: int = 16
    #: A sync task without output or heartbeat for this long has stalled, and fails.
    sync_stall_after: timedelta = timedelta(seconds=60)
    #: Number of tasks per collection whose log is kept; -1: all.
    sync_log_runs: int = -1
    #: Timeout of an attempt, unless the policy sets one.
    default_timeout: timedelta = timedelta(seconds=10)
    #: Retries after the first attempt, unless the policy sets them.
    max_retries: int = 3
    #: Wait before a retry, unless the policy sets it.
    retry_backoff: timedelta = timedelta(seconds=5)
    #: How late a slot may start without counting as missed, unless the policy sets it.
    misfire_grace: timedelta = timedelta(seconds=60)
    #: Time zone of triggers without one.
    default_timezone: str = "UTC"
    #: Log level: debug, info, warning, error or critical.
    log_level: str = "info"
    #: json | text | auto (text on a terminal).
    log_format: str = "auto"
    #: How long a node is trusted without a heartbeat; then its runs are rescued.
    lease: timedelta = timedelta(seconds=30)
    #: Interval between renewals of the lease; None: a third of it.
    heartbeat: timedelta | None = None
    #: How often a node polls the store.
    poll_interval: timedelta = timedelta(seconds=1)
    #: Application whose tasks and flows this node executes, as `module:name`.
    app: str = ""
    #: Mode of declared schedules that set none: True is db, False is memory.
    use_db_driven_scheduling: bool = True
    #: How long running attempts may go on after SIGTERM.
    shutdown_grace: timedelta = timedelta(seconds=30)
    #: Length of a tick of `max_dispatch_per_tick`.
    dispatch_tick: timedelta = timedelta(seconds=15)
    #: Maximum of schedules fired per tick; 0: no limit.
    max_dispatch_per_tick: int = 0
    #: How long ended runs are kept.
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
    #: Addresses that may be called although they are private or on an unusual port.
    egress_allow: tuple[str, ...] = ()
    #: If set, the only addresses that may be called, besides `egress_allow`.
    egress_only: tuple[str, ...] = ()
    #: Callbacks may use the metadata address of a cloud.
    egress_allow_metadata: bool = False
    #: Additional values of `Host` in requests.
    allowed_hosts: tuple[str, ...] = ()
    #: Proxies whose headers say who the client is: addresses or networks; empty: none.
    trusted_proxies: tuple[str, ...] = ()
    #: Origins whose pages may call the API.
    cors_origins: tuple[str, ...] = ()
    #: A key with all rights, for the first start.
    admin_token: str = ""
    #: Key file of Ksana: one key per line, `#` comments.
    auth_keys_file: Path | None = None
    #: Schedules that an owner may have.
    max_schedules_per_owner: int = 1000
    #: The highest priority that members may choose, so that none overtakes all others.
    max_priority_member: int = 0
    #: Bytes of stored results per owner; 0: no limit; None: 1 GiB, without a limit for the system.
    max_result_bytes_per_owner: int | None = None
    #: Requests per second of one key or address.
    requests_per_second: float = 20.0
    #: Active schedules per owner that were created through the Softnix API or a chat; None: 20
    #: with API keys and for chats.
    max_active_per_owner: int | None = None
    #: Time zone of schedules created through the Softnix API and in chats whose owner has set
    #: none.
    softnix_default_timezone: str = "Asia/Bangkok"
    #: False: schedules created through the Softnix API do not fire.
    softnix_scheduler_enabled: bool = True
    #: Total attempts to send a prompt to the agent.
    dispatch_attempts: int = 3
    #: First back-off between attempts to send a prompt.
    dispatch_backoff: timedelta = timedelta(seconds=5)
    #: `openai` (a chat endpoint) or `runs` (a run pipeline); empty: no agent targets.
    agent_pipeline: str = ""
    #: Base URL without `/v1` and `/runs`.
    agent_url: str = ""
    #: Model of prompts that name none.
    agent_model: str = ""
    #: API key of the agent pipeline.
    agent_api_key: str = ""
    #: Default limit of an answer; 0: the limit of the model.
    agent_max_tokens: int = 0
    #: Default timeout of an agent run.
    agent_timeout: timedelta = timedelta(minutes=10)
    #: Price of a million tokens of the prompt, to compute the cost of a run.
    agent_input_price: float = 0.0
    #: Price of a million tokens of the answer.
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
    #: Token of the Telegram bot; empty: no bot.
    telegram_token: str = ""
    #: Base URL of the Telegram Bot API.
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
    #: Sender of e-mail.
    smtp_from: str = ""
    #: Domains that mail may be sent to; empty: any.
    smtp_allowed: tuple[str, ...] = ()
    #: URL of the dashboard, for links in messages and the return from an identity provider.
    public_url: str = ""
    #: What users and keys with the role viewer see: schedules and runs of their owner, or of all
    #: owners: `own`, `all`.
    viewers_see: str = "own"
    #: Execute commands on this node, and accept schedules with commands.
    allow_commands: bool = False
    #: Roles that may create commands.
    command_roles: tuple[str, ...] = ("admin",)
    #: Concurrent commands of a node, in addition to `workers`.
    command_workers: int = 16
    #: Labels of this node, which commands can require: `name=value`.
    labels: tuple[tuple[str, str], ...] = ()
    #: Requests per minute that one webhook accepts; 0: no limit.
    hook_requests_per_minute: int = 600
    #: Whether `/ui/cron`, the page for cron expressions, needs no account.
    public_cron_page: bool = False
    #: Directories below which file triggers may watch; empty: any.
    file_trigger_dirs: tuple[str, ...] = ()
    #: Roles that may create file triggers.
    file_trigger_roles: tuple[str, ...] = ("admin",)
    #: How often file triggers look; a file counts once its size is the same twice.
    file_trigger_interval: timedelta = timedelta(seconds=5)
    #: Issuer URL of an OpenID Connect provider; empty: none. Needs the extra `oidc`.
    oidc_issuer: str = ""
    #: Client id at the provider.
    oidc_client_id: str = ""
    #: Empty: a public client, which PKCE alone protects.
    oidc_client_secret: str = ""
    #: Scopes that are requested of the provider.
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: Name of the provider on the sign-in page; empty: its host.
    oidc_name: str = ""
    #: Claim with the user's name; `a.b` is the claim `b` within `a`.
    oidc_user_claim: str = "preferred_username"
    #: Claim with the user's groups.
    oidc_groups_claim: str = "groups"
    #: Roles by group of the provider or proxy.
    sso_roles: tuple[tuple[str, str], ...] = ()
    #: Role of users without such a group; empty: they may not sign in.
    sso_default_role: str = ""
    #: False: only users that exist already may sign in.
    sso_create_users: bool = True
    #: The first sign-in takes over an existing user of the same name.
    sso_link_existing: bool = False
    #: Header in which a proxy of `trusted_proxies` names the user whom it has authenticated.
    proxy_user_header: str = ""
    #: Header with the groups of that user, separated by commas.
    proxy_groups_header: str = ""
    #: Engines, brokers and databases that schedules use by name, of `connections:` in the file.
    connections: tuple[Connection, ...] = ()


# --- readers: parse a value from text (environment, flags) or YAML, or raise `Expected` -----------
Read = Callable[[object], object]

TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
MAX_DURATION = timedelta(days=36500)
LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: A node offers every selection of its labels, so they are few. Names and values are limited as
#: those that a command requires (`chimes.model.validation`).
MAX_LABELS = 6
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
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


def directories(value: object) -> tuple[str, ...]:
    """Absolute paths; comma-separated in the environment."""
    found = names(value)
    if not all(each.startswith("/") and ".." not in each.split("/") for each in found):
        raise Expected(_("absolute paths of directories, such as /srv/incoming"))
    return tuple(each.rstrip("/") or "/" for each in found)


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


def group_roles(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; in the environment `group=role`, separated by commas."""
    if isinstance(value, str):
        parts = [part.rpartition("=") for part in value.split(",") if part.strip()]
        value = {group.strip(): role.strip() for group, _equals, role in parts}
    if not isinstance(value, dict) or not all(
        isinstance(group, str) and group.strip() and role in USER_ROLES
        for group, role in value.items()
    ):
        raise Expected(
            _("roles by group, such as platform=admin, with {known}", known=", ".join(USER_ROLES))
        )
    return tuple(value.items())


def header_name(value: object) -> str:
    name = text(value)
    if name and not _TOKEN.fullmatch(name):
        raise Expected(_("the name of a header, such as X-Forwarded-User"))
    return name


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


def access_roles(value: object) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(each.lower() for each in names(value)))
    wanted = _("one or more of {known}", known=", ".join(ACCESS_ROLES))
    if not given:
        raise Expected(wanted)
    for each in given:
        if each not in ACCESS_ROLES:
            raise _expected(wanted, suggest_name(each, ACCESS_ROLES))
    return given


def node_labels(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; `name=value`, separated by commas, in the environment."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(each)) for name, each in value.items()]
    else:
        words = [each.partition("=") for each in names(value)]
        pairs = [(name.strip(), text.strip()) for name, _equals, text in words]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Expected(_("no duplicate labels"))
    if len(found) > MAX_LABELS:
        raise Expected(_("at most {most} labels", most=MAX_LABELS))
    if not all(_LABEL.fullmatch(each) for pair in pairs for each in pair):
        raise Expected(
            _(
                "labels such as zone=eu, whose names and values have 1 to 32 letters, digits and "
                "any of _ . -"
            )
        )
    return tuple(sorted(found.items()))


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
    Field("viewers_see", choice("own", "all")),
    Field("allow_commands", flag),
    Field("command_roles", access_roles),
    Field("command_workers", number(1, 10_000)),
    Field("labels", node_labels),
    Field("hook_requests_per_minute", number(0, 1_000_000)),
    Field("public_cron_page", flag),
    Field("file_trigger_dirs", directories),
    Field("file_trigger_roles", access_roles),
    Field("file_trigger_interval", _POSITIVE),
    Field("oidc_issuer", text),
    Field("oidc_client_id", text),
    Field("oidc_client_secret", text, secret=True),
    Field("oidc_scopes", names),
    Field("oidc_name", text),
    Field("oidc_user_claim", text),
    Field("oidc_groups_claim", text),
    Field("sso_roles", group_roles),
    Field("sso_default_role", choice("", *USER_ROLES)),
    Field("sso_create_users", flag),
    Field("sso_link_existing", flag),
    Field("proxy_user_header", header_name),
    Field("proxy_groups_header", header_name),
)

FIELDS: Mapping[str, Field] = {field.name: field for field in _SETTINGS}
#: Settings by alternative name in `chimes.yaml`.
FILE_ALIASES: Mapping[str, Field] = {
    alias.name: replace(field, read=alias.read)
    for field in _SETTINGS
    for alias in field.file_aliases
}
