"""Sync tasks: their checkpoints, and an index to list them by. Prefetched runs: changes by SQL undo
a prefetch. Nothing that the code of 0002 uses changes, so `min_revision` stays."""

from __future__ import annotations

import sqlalchemy as sa

from chimes.store.sql.migrations.steps import create_index, create_table, dialect, execute
from chimes.store.sql.migrations.versions.v0001_first import CONCURRENCY_KEY, IDENTITY, MOMENT, TEXT
from chimes.store.sql.migrations.views import POSTGRES_VIEWS_0003

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    create_table(
        "kept_states",
        sa.Column("name", CONCURRENCY_KEY, primary_key=True),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.Column("run_id", IDENTITY, nullable=False),
    )
    create_index("runs_by_source", "runs", ["needs", "created_at", "id"], where="kind = 'sync'")
    if dialect() == "postgresql":
        for statement in POSTGRES_VIEWS_0003:
            execute(statement)
