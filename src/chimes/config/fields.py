"""The table of settings: how each is read, and what it is called in the environment.

`chimes.yaml` uses the field's own name or one of its spellings; the environment `CHIMES_` and the
name in capitals, or one of the aliases: the seeds' own names (R3.38). The first name that is set
wins (C23).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from chimes.config.reading import (
    Read,
    chats,
    choice,
    duration,
    flag,
    headers,
    level,
    names,
    number,
    path,
    price,
    rate,
    roles,
    seconds,
    text,
    zone,
)


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
