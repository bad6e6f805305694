"""Removes runs without a schedule from two PostgreSQL indexes, which each of their changes had to
write. The new indexes exist before the old ones are dropped, and no statement names them: the code
of 0007 and 0008 continues, and this code works with theirs."""

from __future__ import annotations

from chimes.store.sql.migrations.steps import create_index, dialect, drop_index, execute

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    if dialect() != "postgresql":
        return
    create_index(
        "runs_by_slot", "runs", ["schedule_id", "slot"], where="slot IS NOT NULL", unique=True
    )
    create_index(
        "runs_scheduled", "runs", ["schedule_id", "created_at"], where="schedule_id IS NOT NULL"
    )
    execute("ALTER TABLE runs DROP CONSTRAINT IF EXISTS runs_one_per_slot")
    drop_index("runs_of_schedule")
