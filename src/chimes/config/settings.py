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
