"""Notifications: outbox and inbox. Token buckets shared by all nodes. Scopes of API keys. Nothing
that the code of 0003 uses changes, so `min_revision` stays: nodes of 0003 continue, but neither
write nor send deliveries (ADR 24)."""

from __future__ import annotations

import sqlalchemy as sa

from chimes.store.sql.migrations.steps import (
    add_column,
    create_index,
    create_table,
    dialect,
    execute,
)
from chimes.store.sql.migrations.versions.v0001_first import FLAG, IDENTITY, MOMENT, TEXT, WORD

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    _deliveries()
    _inbox()
    create_table(
        "buckets",
        sa.Column("name", IDENTITY, primary_key=True),
        sa.Column("tokens", sa.Float(53), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("granted", sa.BigInteger(), nullable=False),
        sa.Column("full_at", MOMENT, nullable=False),
    )
    if dialect() == "postgresql":
        # A commit that changed nothing else does not wait for the disk.
        execute("ALTER TABLE buckets SET UNLOGGED")
        execute("ALTER TABLE buckets SET (fillfactor = 50)")
    add_column("api_keys", sa.Column("scopes", TEXT, nullable=False, server_default="[]"))


def _deliveries() -> None:
    create_table(
        "deliveries",
        sa.Column("id", IDENTITY, primary_key=True),
        sa.Column("run_id", IDENTITY, nullable=False),
        sa.Column("schedule_id", IDENTITY),
        sa.Column("schedule_name", TEXT, nullable=False),
        sa.Column("owner_type", WORD, nullable=False),
        sa.Column("owner_id", IDENTITY, nullable=False),
        sa.Column("channel", WORD, nullable=False),
        sa.Column("recipient", TEXT, nullable=False),
        sa.Column("occasion", WORD, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("available_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT),
        sa.Column("error", TEXT, nullable=False),
        sa.Column("code", WORD, nullable=False),
        sa.Column("receipt", TEXT, nullable=False),
    )
    create_index(
        "deliveries_pending", "deliveries", ["available_at", "id"], where="state = 'pending'"
    )
    create_index(
        "deliveries_ended", "deliveries", ["finished_at", "id"], where="finished_at IS NOT NULL"
    )
    create_index("deliveries_by_run", "deliveries", ["run_id"])
    create_index(
        "deliveries_by_owner", "deliveries", ["owner_type", "owner_id", "created_at", "id"]
    )
    create_index("deliveries_by_state", "deliveries", ["state", "created_at", "id"])
    create_index("deliveries_created", "deliveries", ["created_at", "id"])


def _inbox() -> None:
    create_table(
        "inbox",
        sa.Column("id", IDENTITY, primary_key=True),
        sa.Column("owner_type", WORD, nullable=False),
        sa.Column("owner_id", IDENTITY, nullable=False),
        sa.Column("run_id", IDENTITY),
        sa.Column("schedule_id", IDENTITY),
        sa.Column("schedule_name", TEXT, nullable=False),
        sa.Column("title", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("status", WORD, nullable=False),
        sa.Column("artifacts", TEXT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("read_at", MOMENT),
        sa.Column("starred", FLAG, nullable=False),
        sa.Column("archived_at", MOMENT),
        sa.Column("snoozed_until", MOMENT),
    )
    create_index("inbox_by_owner", "inbox", ["owner_type", "owner_id", "created_at", "id"])
    create_index("inbox_created", "inbox", ["created_at", "id"])
    create_index("inbox_by_run", "inbox", ["run_id"])
