"""An index of the schedules that may need attention, so that healthy ones are not read. Nothing
else changes: the code of 0007 continues, and this code works without the index."""

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
