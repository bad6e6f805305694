"""The schema of the first release."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def word(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


IDENTITY = word(255)
CONCURRENCY_KEY = word(300)
#: An owner's type and id; SQLite, where this revision was released, does not limit lengths.
OWNER = sa.String(255).with_variant(sa.String(330, collation="C"), "postgresql")
WORD = word(64)
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
MOMENT = sa.BigInteger()
FLAG = sa.SmallInteger()


def upgrade() -> None:
    _schedules()
    _runs()
    _run_logs()
    _nodes()
    _audit()
    _api_keys()
    _requests()


def _on_files() -> bool:
    """PostgreSQL, where this revision was never released, gets its indexes with the next one."""
    return op.get_bind().dialect.name == "sqlite"


def _partial(name: str, table: str, columns: Sequence[str | sa.TextClause], where: str) -> None:
    op.create_index(
        name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )


def _schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("namespace", IDENTITY, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("owner_type", WORD, nullable=False),
        sa.Column("owner_id", IDENTITY, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("trigger", TEXT, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("policy", TEXT, nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("labels", TEXT, nullable=False),
        sa.Column("enabled", FLAG, nullable=False),
        sa.Column("pause_note", TEXT, nullable=False),
        sa.Column("pause_until", MOMENT),
        sa.Column("depends_on", TEXT),
        sa.Column("door_data", TEXT, nullable=False),
        sa.Column("next_slot", MOMENT),
        sa.Column("next_run_at", MOMENT),
        sa.Column("last_slot", MOMENT),
        sa.Column("last_enqueued_at", MOMENT),
        sa.Column("last_run_at", MOMENT),
        sa.Column("last_status", WORD),
        sa.Column("last_error", TEXT, nullable=False),
        sa.Column("last_success_at", MOMENT),
        sa.Column("fired_count", sa.BigInteger(), nullable=False),
        sa.Column("purged_until", MOMENT),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("updated_by", TEXT, nullable=False),
        sa.Column("deleted_at", MOMENT),
        sa.PrimaryKeyConstraint("id"),
    )
    if _on_files():
        _partial("schedules_created", "schedules", ["created_at", "id"], "deleted_at IS NULL")
    _partial(
        "schedules_due",
        "schedules",
        ["next_run_at", "id"],
        "enabled = 1 AND deleted_at IS NULL AND next_run_at IS NOT NULL",
    )
    _partial("schedules_named", "schedules", ["name", "id"], "deleted_at IS NULL")
    op.create_index(
        "schedules_owned", "schedules", ["owner_type", "owner_id", "deleted_at", "enabled"]
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("schedule_id", IDENTITY),
        sa.Column("schedule_name", TEXT, nullable=False),
        sa.Column("schedule_version", sa.BigInteger(), nullable=False),
        sa.Column("namespace", IDENTITY, nullable=False),
        sa.Column("owner_type", WORD, nullable=False),
        sa.Column("owner_id", IDENTITY, nullable=False),
        sa.Column("slot", MOMENT),
        sa.Column("origin", WORD, nullable=False),
        sa.Column("parent_id", IDENTITY),
        sa.Column("step", TEXT, nullable=False),
        sa.Column("retry_of", IDENTITY),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("policy", TEXT, nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("catch_up", FLAG, nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("concurrency_key", CONCURRENCY_KEY),
        sa.Column("concurrency_limit", sa.BigInteger(), nullable=False),
        sa.Column("blocked", FLAG, nullable=False),
        sa.Column("status", WORD, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("holder", IDENTITY),
        sa.Column("started", FLAG, nullable=False),
        sa.Column("cancel_requested", FLAG, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("planned_at", MOMENT, nullable=False),
        sa.Column("available_at", MOMENT, nullable=False),
        sa.Column("claimed_at", MOMENT),
        sa.Column("started_at", MOMENT),
        sa.Column("finished_at", MOMENT),
        sa.Column("result", TEXT),
        sa.Column("error", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("missed_count", sa.BigInteger(), nullable=False),
        sa.Column("missed_until", MOMENT),
        sa.Column("attempts", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("schedule_id", "slot", name="runs_one_per_slot"),
    )
    _partial(
        "runs_blocked",
        "runs",
        ["concurrency_key", sa.text("rank DESC"), "available_at", "planned_at", "id"],
        "status = 'queued' AND blocked = 1",
    )
    _partial(
        "runs_claimable",
        "runs",
        [sa.text("rank DESC"), "available_at", "planned_at", "id"],
        "status = 'queued' AND blocked = 0",
    )
    _partial("runs_held", "runs", ["holder"], "holder IS NOT NULL")
    if _on_files():
        _runs_on_files()


def _runs_on_files() -> None:
    _partial(
        "runs_active_by_key",
        "runs",
        ["concurrency_key", "created_at", "id", "blocked"],
        "status IN ('queued', 'running')",
    )
    op.create_index("runs_by_schedule", "runs", ["schedule_id", "created_at", "id"])
    op.create_index("runs_by_status", "runs", ["status", "created_at", "id"])
    op.create_index("runs_created", "runs", ["created_at", "id"])
    _partial("runs_ended", "runs", ["finished_at", "id"], "finished_at IS NOT NULL")
    op.create_index("runs_planned", "runs", ["planned_at", "id"])
    _partial("runs_waiting_by_schedule", "runs", ["schedule_id"], "status = 'queued'")


def _run_logs() -> None:
    op.create_table(
        "run_logs",
        sa.Column("run_id", IDENTITY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("level", WORD, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "number"),
        sqlite_with_rowid=False,
    )


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("version", WORD, nullable=False),
        sa.Column("roles", TEXT, nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("heartbeat_at", MOMENT, nullable=False),
        sa.Column("lease_until", MOMENT, nullable=False),
        sa.Column("clock_offset", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("door", WORD, nullable=False),
        sa.Column("verb", WORD, nullable=False),
        sa.Column("object_kind", WORD, nullable=False),
        sa.Column("object_id", IDENTITY, nullable=False),
        sa.Column("owner", OWNER, nullable=False),
        sa.Column("changes", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.Column("allowed", FLAG, nullable=False),
        sa.Column("previous_hash", WORD, nullable=False),
        sa.Column("hash", WORD, nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("audit_by_object", "audit", ["object_id", "number"])
    op.create_index("audit_by_owner", "audit", ["owner", "number"])


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", IDENTITY, nullable=False),
        sa.Column("secret_hash", IDENTITY, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("role", WORD, nullable=False),
        sa.Column("owner_type", WORD, nullable=False),
        sa.Column("owner_id", IDENTITY, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("last_used_at", MOMENT),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id"),
    )


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("scope", IDENTITY, nullable=False),
        sa.Column("request_key", IDENTITY, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.Column("headers", TEXT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("scope", "request_key"),
    )
    op.create_index("requests_expiring", "requests", ["expires_at"])
