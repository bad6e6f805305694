"""Multiple nodes: requirements of runs and capabilities of nodes, lock rows, facts about the store,
claim metrics and, where the database supports them, the compatibility views."""

from __future__ import annotations

import sqlalchemy as sa

from chimes.store.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    dialect,
    execute,
)
from chimes.store.sql.migrations.versions.v0001_first import (
    CONCURRENCY_KEY,
    IDENTITY,
    MOMENT,
    TEXT,
    WORD,
    word,
)
from chimes.store.sql.migrations.views import POSTGRES, SQLITE

revision = "0002"
down_revision = "0001"

#: 0.002 as a number: the oldest revision whose code still works on this schema.
_MIN_REVISION = 2


def upgrade() -> None:
    # Every target of the first release was an HTTP callback, whose requirement is its kind.
    add_column("runs", sa.Column("needs", word(300), nullable=False, server_default="http"))
    add_column("runs", sa.Column("batch_id", sa.BigInteger()))
    add_column("nodes", sa.Column("offers", TEXT, nullable=False, server_default="[]"))
    create_index(
        "runs_by_parent",
        "runs",
        ["parent_id", "created_at", "id"],
        where="parent_id IS NOT NULL",
    )
    _locks()
    _facts()
    _metrics()
    if dialect() == "postgresql":
        _postgresql()
    for statement in POSTGRES if dialect() == "postgresql" else SQLITE:
        execute(statement)


def _locks() -> None:
    create_table("concurrency_keys", sa.Column("key", CONCURRENCY_KEY, primary_key=True))
    create_table(
        "audit_head",
        sa.Column("id", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", WORD, nullable=False),
    )
    execute(
        "INSERT INTO audit_head (id, number, hash)"
        " SELECT 1, coalesce(max(number), 0), coalesce((SELECT hash FROM audit"
        " ORDER BY number DESC LIMIT 1), '') FROM audit"
        " HAVING NOT EXISTS (SELECT 1 FROM audit_head)"
    )


def _facts() -> None:
    create_table(
        "store_facts",
        sa.Column("name", WORD, primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
    )
    for name, value in (("epoch", 0), ("min_revision", _MIN_REVISION)):
        execute(
            f"INSERT INTO store_facts (name, value) SELECT '{name}', {value}"  # noqa: S608
            f" WHERE NOT EXISTS (SELECT 1 FROM store_facts WHERE name = '{name}')"
        )
    execute(f"UPDATE store_facts SET value = {_MIN_REVISION} WHERE name = 'min_revision'")  # noqa: S608


def _metrics() -> None:
    create_table(
        "fire_batches",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("node_id", IDENTITY, nullable=False),
        sa.Column("claimed_at", MOMENT, nullable=False),
        sa.Column("enqueued_at", MOMENT, nullable=False),
        sa.Column("duration_ms", sa.Float(53), nullable=False),
    )
    create_table(
        "fire_failures",
        sa.Column("batch_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("schedule_id", IDENTITY, primary_key=True),
        sa.Column("error", TEXT, nullable=False),
    )
    create_table(
        "sql_changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("schedule_id", IDENTITY, nullable=False),
        sa.Column("changes", TEXT, nullable=False),
    )


def _postgresql() -> None:
    # Free space on each page for the next version of a row: updates that change no indexed column
    # then stay on their page and touch no index.
    for table in ("schedules", "runs"):
        execute(f"ALTER TABLE {table} SET (fillfactor = 70)")
    create_index("schedules_created_at", "schedules", ["created_at"], where="deleted_at IS NULL")
    create_index(
        "runs_active",
        "runs",
        ["concurrency_key", "blocked"],
        where="status IN ('queued', 'running')",
    )
    create_index("runs_ended_at", "runs", ["finished_at"], where="finished_at IS NOT NULL")
    create_index(
        "runs_unusual",
        "runs",
        ["status", "created_at"],
        where="status NOT IN ('queued', 'running', 'succeeded')",
    )
    create_index("runs_of_schedule", "runs", ["schedule_id", "created_at"])
    create_index("runs_created_at", "runs", ["created_at"])
    create_index("runs_planned_at", "runs", ["planned_at"], using="brin")
