"""The settings themselves: one field per knob, with its default."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

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
    #: Schedules fired in one pass; 0: no cap (C13).
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
