"""Schedules whose rows this version cannot read: they stop alone (R2.10), and whoever watches is
told of them as of any other that is broken."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from chimes.model.ids import ScheduleId
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, set_aside
from chimes.store.sql.database import Tx
from chimes.store.sql.dialects.base import Rows
from chimes.store.sql.rows.mending import readable_schedule
from chimes.store.sql.rows.parts import Value


def stop_unreadable(tx: Tx, errors: Mapping[ScheduleId, str]) -> None:
    """As `set_aside` does; the rest of the row stays as it is."""
    values: list[dict[str, Value]] = [
        {
            "id": schedule_id,
            "next_slot": None,
            "next_run_at": None,
            "last_status": RunStatus.FAILED.value,
            "last_error": error,
        }
        for schedule_id, error in errors.items()
    ]
    tx.dialect.move_cursors(tx.connection, values)


def as_far_as_readable(rows: Rows, errors: Mapping[ScheduleId, str]) -> list[Schedule]:
    """To be shown; one of which nothing can be is in the log."""
    found: list[Schedule] = []
    for row in rows:
        if row.id in errors:
            with suppress(Exception):
                found.append(set_aside(readable_schedule(row), errors[row.id]))
    return found
