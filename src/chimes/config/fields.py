"""The table of settings: how each is read, and what it is called in the environment.

`chimes.yaml` uses the field's own name; the environment `CHIMES_` and the name in capitals, or one
of the aliases, which are the seeds' own names (R3.38). The first name that is set wins (C23).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.config.reading import (
    Read,
    choice,
    duration,
    flag,
    level,
    names,
    number,
    path,
    rate,
    roles,
    text,
    zone,
)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    read: Read
    aliases: tuple[str, ...] = ()
    #: Never shown by `config show`, never logged (S69).
    secret: bool = False
    #: A URL that may hold a password, which is never shown.
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
_LEASE = duration(least=timedelta(seconds=1), most=timedelta(hours=1))

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
    Field("lease", _LEASE),
    Field("heartbeat", _SHORT),
    Field("poll_interval", _SHORT),
    Field("app", text),
    Field("use_db_driven_scheduling", flag),
    Field("shutdown_grace", duration()),
    Field("max_dispatch_per_tick", number(0, 10_000_000)),
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
)

FIELDS: Mapping[str, Field] = {field.name: field for field in _ALL}
