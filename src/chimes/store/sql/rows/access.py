"""Loading and writing the rows of schedules, runs and logs, shared by the transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, select, update

from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import LastRunSummary, Schedule, pass_slot, returned_slot
from chimes.store.sql.database.base import Tx
from chimes.store.sql.rows.corrupt import decode_run, decode_schedule, decode_schedule_and_damage
from chimes.store.sql.rows.run import log_values, run_values, state_values
from chimes.store.sql.rows.schedule import (
    SUMMARY_COLUMNS,
    cursor_values,
    schedule_values,
    summary_of,
)
from chimes.store.sql.rows.values import TargetTexts, micros
from chimes.store.sql.tables import nodes, run_logs, runs, schedules

_SCHEDULE = select(schedules).where(schedules.c.id == bindparam("schedule_id"))
_WRITE_SCHEDULE = (
    update(schedules)
    .where(schedules.c.id == bindparam("this_id"))
    .values({each.name: bindparam(each.name) for each in schedules.c if each.name != "id"})
)
_RUN = select(runs).where(runs.c.id == bindparam("run_id"))
_LEASE = select(nodes.c.lease_until).where(nodes.c.id == bindparam("node_id"))
_LAST_NUMBER = (
    select(func.max(run_logs.c.number)).where(run_logs.c.run_id == runs.c.id).scalar_subquery()
)


# --- schedules ----------------------------------------------------------------------------------
def load_schedule(tx: Tx, schedule_id: ScheduleId) -> Schedule | None:
    row = tx.first(tx.for_update(_SCHEDULE, schedules.c.id), {"schedule_id": schedule_id})
    return None if row is None else decode_schedule(row)


def load_schedule_and_damage(
    tx: Tx, schedule_id: ScheduleId
) -> tuple[Schedule | None, frozenset[str]]:
    row = tx.first(tx.for_update(_SCHEDULE, schedules.c.id), {"schedule_id": schedule_id})
    return (None, frozenset()) if row is None else decode_schedule_and_damage(row)


def load_schedules_and_damage(
    tx: Tx, ids: Collection[ScheduleId]
) -> dict[ScheduleId, tuple[Schedule, frozenset[str]]]:
    statement = select(schedules).where(tx.dialect.among(schedules.c.id, "ids"))
    found = tx.rows(tx.for_update(statement, schedules.c.id), {"ids": tx.dialect.listed(ids)})
    return {ScheduleId(row.id): decode_schedule_and_damage(row) for row in found}


def load_schedules(tx: Tx, ids: Collection[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Loads and locks schedules; rows that cannot be decoded are left out."""
    if not ids or not tx.schedules_usable:
        return {}
    statement = select(schedules).where(tx.dialect.among(schedules.c.id, "ids"))
    found = tx.rows(tx.for_update(statement, schedules.c.id), {"ids": tx.dialect.listed(ids)})
    read = [decode_schedule_and_damage(row) for row in found]
    return {schedule.id: schedule for schedule, damage in read if not damage}


def load_summaries(tx: Tx, ids: Collection[ScheduleId]) -> dict[ScheduleId, LastRunSummary]:
    """Loads and locks the columns of schedules that a completion updates."""
    if not ids or not tx.schedules_usable:
        return {}
    columns = [schedules.c[name] for name in SUMMARY_COLUMNS]
    statement = select(*columns).where(tx.dialect.among(schedules.c.id, "ids"))
    found = tx.rows(tx.for_update(statement, schedules.c.id), {"ids": tx.dialect.listed(ids)})
    return {row[0]: summary_of(row) for row in found}


def write_schedule(tx: Tx, schedule: Schedule) -> None:
    tx.run(_WRITE_SCHEDULE, {"this_id": schedule.id, **schedule_values(schedule)})


def skip_taken_slots(tx: Tx, before: Schedule, after: Schedule, now: datetime) -> Schedule:
    """Moves a cursor that was set back past future slots that have a run."""
    while slot := returned_slot(before, after, now):
        if not tx.dialect.find_slot_runs(tx.connection, [(after.id, micros(slot))]):
            break
        after = pass_slot(after)
    return after


def move_cursors(tx: Tx, moved: Iterable[Schedule]) -> None:
    values = [{"id": schedule.id, **cursor_values(schedule)} for schedule in moved]
    tx.dialect.move_cursors(tx.connection, values)


# --- runs ---------------------------------------------------------------------------------------
def load_run(tx: Tx, run_id: RunId) -> Run | None:
    row = tx.first(tx.for_update(_RUN, runs.c.id), {"run_id": run_id})
    return None if row is None else decode_run(row)


def load_runs(tx: Tx, ids: Collection[RunId]) -> dict[RunId, Run]:
    if not ids:
        return {}
    statement = select(runs).where(tx.dialect.among(runs.c.id, "ids"))
    found = tx.rows(tx.for_update(statement, runs.c.id), {"ids": tx.dialect.listed(ids)})
    return {RunId(row.id): decode_run(row) for row in found}


class ExistingRuns:
    """Finds the runs of a batch whose row exists already, by id or by slot."""

    def __init__(self, tx: Tx, new: Sequence[Run]) -> None:
        ids = select(runs.c.id).where(tx.dialect.among(runs.c.id, "ids"))
        found = tx.rows(ids, {"ids": tx.dialect.listed([run.id for run in new])}) if new else ()
        self._by_id: dict[str, str] = {row.id: row.id for row in found}
        pairs = [slot for run in new if (slot := _slot(run)) is not None]
        slot_rows = tx.dialect.find_slot_runs(tx.connection, pairs) if pairs else ()
        self._by_slot: dict[tuple[str, int], str] = {
            (row.schedule_id, row.slot): row.id for row in slot_rows
        }

    def find(self, run: Run) -> RunId | None:
        """Returns the id of the existing row."""
        slot = _slot(run)
        found = self._by_id.get(run.id) or (self._by_slot.get(slot) if slot else None)
        return None if found is None else RunId(found)

    def add(self, run: Run) -> bool:
        """Returns False if the row exists already."""
        if self.find(run) is not None:
            return False
        self._by_id[run.id] = run.id
        if (slot := _slot(run)) is not None:
            self._by_slot[slot] = run.id
        return True


def _slot(run: Run) -> tuple[str, int] | None:
    if run.schedule_id is None or run.slot is None:
        return None
    return (run.schedule_id, micros(run.slot))


def insert_runs(
    tx: Tx, new: Iterable[Run], texts: TargetTexts | None = None, batch_id: int | None = None
) -> None:
    texts = texts or TargetTexts()
    values = [run_values(run, texts, batch_id) for run in new]
    tx.dialect.insert_many(tx.connection, runs, values)


def write_states(tx: Tx, changed: Iterable[Run]) -> None:
    values = [{"id": run.id, **state_values(run)} for run in changed]
    tx.dialect.write_states(tx.connection, values)


def insert_logs(tx: Tx, logs: dict[RunId, list[LogEntry]]) -> None:
    """Line numbers continue from the end of each run's log."""
    wanted = [run_id for run_id, entries in logs.items() if entries]
    if not wanted:
        return
    statement = select(runs.c.id, _LAST_NUMBER.label("last")).where(
        tx.dialect.among(runs.c.id, "ids")
    )
    rows = tx.rows(statement, {"ids": tx.dialect.listed(wanted)})
    last: dict[str, int | None] = {row.id: row.last for row in rows}
    values = [
        log_values(run_id, number, entry)
        for run_id in wanted
        for number, entry in enumerate(logs[run_id], (last[run_id] or 0) + 1)
    ]
    tx.dialect.insert_many(tx.connection, run_logs, values)


# --- nodes --------------------------------------------------------------------------------------
def is_alive(tx: Tx, node_id: NodeId, now: datetime) -> bool:
    row = tx.first(_LEASE, {"node_id": node_id})
    return row is not None and row.lease_until > micros(now)
