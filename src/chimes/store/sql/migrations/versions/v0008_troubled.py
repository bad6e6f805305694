"""An index of the schedules that somebody may have to look at, so that the others are not read for
it. Nothing else changes: the code of 0007 goes on, and this code does without it."""

from __future__ import annotations

from chimes.store.sql.migrations.steps import create_index

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    create_index(
        "schedules_troubled",
        "schedules",
        ["id"],
        where="deleted_at IS NULL AND (enabled = 0 OR last_status <> 'succeeded')",
    )
