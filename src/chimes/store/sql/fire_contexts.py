"""What a plan has to know about due schedules: who has their places, and their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import FireContext, concurrency_key, stops_only_its_own
from chimes.model.schedule import Schedule
from chimes.store.sql.database import Tx
from chimes.store.sql.locking import hold_keys, is_own_key
from chimes.store.sql.rows.parts import maybe_moment
from chimes.store.sql.tables import runs, schedules

_DEPENDENCIES = (schedules.c.id, schedules.c.last_success_at)


def contexts_of(tx: Tx, due: Sequence[Schedule]) -> list[FireContext]:
    """What the plan hears of each, besides the schedule, which is held."""
    if not due:
        return []
    keys = [concurrency_key(schedule) for schedule in due]
    # Their own keys are held with the schedules.
    hold_keys(tx, {key for key in keys if not is_own_key(key)})
    admitted: dict[str, list[RunId]] = {}
    for row in tx.dialect.admitted(tx.connection, keys):
        admitted.setdefault(row.concurrency_key, []).append(RunId(row.id))
    careful = {key for key, each in zip(keys, due, strict=True) if stops_only_its_own(each)}
    owners = _owners(tx, [run_id for key in careful for run_id in admitted.get(key, ())])
    succeeded = _successes(tx, {s.depends_on.schedule_id for s in due if s.depends_on})
    return [
        FireContext(
            admitted=tuple(admitted.get(key, ())),
            others=frozenset(
                run_id for run_id in admitted.get(key, ()) if owners[run_id] != schedule.id
            )
            if stops_only_its_own(schedule)
            else frozenset(),
            dependency_succeeded_at=succeeded.get(schedule.depends_on.schedule_id)
            if schedule.depends_on
            else None,
        )
        for key, schedule in zip(keys, due, strict=True)
    ]


def _owners(tx: Tx, ids: Sequence[RunId]) -> dict[RunId, str | None]:
    """The schedules of runs."""
    if not ids:
        return {}
    statement = select(runs.c.id, runs.c.schedule_id).where(tx.dialect.among(runs.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {RunId(row.id): row.schedule_id for row in rows}


def _successes(tx: Tx, ids: set[ScheduleId]) -> dict[str, datetime | None]:
    if not ids:
        return {}
    statement = select(*_DEPENDENCIES).where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {row.id: maybe_moment(row.last_success_at) for row in rows}
