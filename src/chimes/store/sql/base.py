"""Row loading and writing, lock order and degraded mode, shared by all parts of the SQL store."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from chimes.errors import StoreBusy
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.audit import AuditEntry, chain_entry
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import LastRunSummary, Schedule
from chimes.store.sql.database.base import Database, Tx, Work
from chimes.store.sql.rows.corrupt import decode_run, decode_schedule, decode_schedule_and_damage
from chimes.store.sql.rows.records import audit_values
from chimes.store.sql.rows.run import log_values, run_values, state_values
from chimes.store.sql.rows.schedule import (
    SUMMARY_COLUMNS,
    cursor_values,
    schedule_values,
    summary_of,
)
from chimes.store.sql.rows.values import TargetTexts, micros
from chimes.store.sql.tables import (
    ACTIVE,
    audit,
    audit_head,
    concurrency_keys,
    nodes,
    run_logs,
    runs,
    schedules,
)

_SCHEDULE = select(schedules).where(schedules.c.id == bindparam("schedule_id"))
_WRITE_SCHEDULE = (
    update(schedules)
    .where(schedules.c.id == bindparam("this_id"))
    .values({each.name: bindparam(each.name) for each in schedules.c if each.name != "id"})
)
_RUN = select(runs).where(runs.c.id == bindparam("run_id"))
_LEASE = select(nodes.c.lease_until).where(nodes.c.id == bindparam("node_id"))
_AUDIT_HEAD = select(audit_head.c.number, audit_head.c.hash)
_MOVE_AUDIT_HEAD = update(audit_head).values(number=bindparam("number"), hash=bindparam("hash"))
_ADD_AUDIT = insert(audit)
_LAST_NUMBER = (
    select(func.max(run_logs.c.number)).where(run_logs.c.run_id == runs.c.id).scalar_subquery()
)


class SqlBase:
    def __init__(self, database: Database) -> None:
        self._database = database
        #: The node that joined last through this store; recorded with the batches that it fires.
        self._node_id: NodeId | None = None


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


def append_logs(tx: Tx, logs: dict[RunId, list[LogEntry]]) -> None:
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


# --- the rest -----------------------------------------------------------------------------------
def is_alive(tx: Tx, node_id: NodeId, now: datetime) -> bool:
    row = tx.first(_LEASE, {"node_id": node_id})
    return row is not None and row.lease_until > micros(now)


def append_audit(tx: Tx, entry: AuditEntry) -> AuditEntry:
    (appended,) = append_audits(tx, [entry])
    return appended


def append_audits(tx: Tx, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Locks the head of the audit chain. This is the last lock of every transaction, because all
    appending transactions wait for it."""
    if not entries:
        return []
    last = tx.first(tx.for_update(_AUDIT_HEAD, audit_head.c.id))
    assert last is not None
    number, previous = last.number, last.hash
    appended: list[AuditEntry] = []
    for entry in entries:
        appended.append(chain_entry(entry, number=number + 1, previous_hash=previous))
        number, previous = appended[-1].number, appended[-1].hash
    tx.run(_ADD_AUDIT, [audit_values(entry) for entry in appended])
    tx.run(_MOVE_AUDIT_HEAD, {"number": number, "hash": previous})
    return appended


def adopt_audit(tx: Tx, entry: AuditEntry) -> None:
    """Inserts the entry unchanged; the chain continues from it."""
    tx.run(_ADD_AUDIT, audit_values(entry))
    tx.run(_MOVE_AUDIT_HEAD, {"number": entry.number, "hash": entry.hash})


def last_audit_number(tx: Tx) -> int:
    last = tx.first(tx.for_update(_AUDIT_HEAD, audit_head.c.id))
    assert last is not None
    return int(last.number)


# Lock order of every transaction, which prevents deadlocks:
#
# schedules (by id) -> concurrency keys (by key) -> runs (by id) -> nodes -> deliveries (by id) ->
# inbox (by id) -> head of the audit chain
#
# Whether a run is admitted depends on the other runs of its concurrency key. A transaction that
# adds or ends a run therefore locks the key: the row of the schedule, or a row in
# `concurrency_keys`. It reads the runs of the key in a later statement than the one that acquired
# the lock, because only a later statement sees what the previous lock holder committed. Without
# this, a run that one node inserts as blocked could be missed by the node that ends the run before
# it.

_OWN = "schedule:"
_LOCK_TARGETS = select(runs.c.schedule_id, runs.c.concurrency_key, runs.c.kind)


def is_own_key(key: str) -> bool:
    """Returns whether the lock of this key is the row of its schedule."""
    return key.startswith(_OWN)


def schedule_of_key(key: str) -> ScheduleId:
    """Returns the schedule that a schedule's own key belongs to."""
    return ScheduleId(key.removeprefix(_OWN))


#: Schedule id and concurrency key of a run.
LockTarget = tuple[str | None, str | None]


def lock_schedules_and_keys(
    tx: Tx, keys: Iterable[LockTarget], *, skip: bool = False
) -> frozenset[str]:
    """Locks the schedules and concurrency keys of runs. With `skip`, schedules that another
    transaction has locked are skipped. Returns the schedules that were locked or have no row."""
    if not tx.dialect.locks_rows:
        return frozenset()
    wanted: set[str] = set()
    shared: set[str] = set()
    for schedule_id, key in keys:
        if schedule_id is not None:
            wanted.add(schedule_id)
        if key is None:
            continue
        if is_own_key(key):
            wanted.add(key.removeprefix(_OWN))
        else:
            shared.add(key)
    locked = lock_schedules(tx, wanted, skip=skip)
    # The schedule of a key may be missing: runs may be loaded without it.
    absent = wanted - locked
    if skip:
        absent -= _present(tx, absent)
    lock_keys(tx, shared | {f"{_OWN}{each}" for each in absent})
    return locked | absent


def lock_for_completion(tx: Tx, ids: Collection[RunId]) -> None:
    """Locks what must be locked before these runs may end. Schedule and key of a run never
    change."""
    if tx.dialect.locks_rows and ids:
        lock_schedules_and_keys(tx, lock_targets_of(tx, ids))


def lock_targets_of(tx: Tx, ids: Collection[RunId]) -> set[LockTarget]:
    """Includes the unfinished steps of flows, which end with their flow."""
    parameters = {"ids": tx.dialect.listed(ids)}
    rows = list(tx.rows(_LOCK_TARGETS.where(tx.dialect.among(runs.c.id, "ids")), parameters))
    if any(row.kind == "flow" for row in rows):
        steps = _LOCK_TARGETS.where(text(ACTIVE), tx.dialect.among(runs.c.parent_id, "ids"))
        rows.extend(tx.rows(steps, parameters))
    return {(row.schedule_id, row.concurrency_key) for row in rows}


def lock_schedules(tx: Tx, ids: Collection[str], *, skip: bool = False) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    parameters = {"ids": tx.dialect.listed(ids)}
    return frozenset(
        row.id for row in tx.rows(tx.for_update(statement, schedules.c.id, skip=skip), parameters)
    )


def _present(tx: Tx, ids: Collection[str]) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    return frozenset(row.id for row in tx.rows(statement, {"ids": tx.dialect.listed(ids)}))


def lock_keys(tx: Tx, keys: Collection[str]) -> None:
    if not keys or not tx.dialect.locks_rows:
        return
    column = concurrency_keys.c.key
    statement = tx.for_update(select(column).where(tx.dialect.among(column, "keys")), column)
    parameters = {"keys": tx.dialect.listed(keys)}
    missing = set(keys) - {row.key for row in tx.rows(statement, parameters)}
    if missing:
        # Also locks the new rows, and waits for transactions that insert the same key.
        tx.run(tx.dialect.insert_new(concurrency_keys), [{"key": key} for key in sorted(missing)])
        tx.rows(statement, parameters)


@contextmanager
def busy_on_lock_timeout(tx: Tx, what: str) -> Iterator[None]:
    """Waits for locks once, without a second try. Raises StoreBusy if another transaction held one
    of them for the whole wait."""
    try:
        yield
    except DBAPIError as error:
        if tx.dialect.lock_timed_out(error):
            raise StoreBusy(_("another transaction is using {key}; try again", key=what)) from error
        raise


def lock_owner(tx: Tx, owner: Owner) -> None:
    """Serializes transactions that count the same quota."""
    lock_keys(tx, [f"owner:{owner}"[:300]])


# Degraded mode: runs continue while the table of schedules cannot be used.
#
# A run needs its schedule only to update the schedule's summary and as the lock of its concurrency
# key. When a transaction fails for a reason that is neither a conflict nor an unavailable server,
# it is tried once more without touching that table. If the table was not the cause, the second try
# fails too and its error is raised.

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def write_runs(database: Database, work: Work[T]) -> T:
    try:
        return await database.write(work)
    except DBAPIError as error:
        _log.debug("retrying without the schedules table: %s", error)

    def without(tx: Tx) -> T:
        tx.schedules_usable = False
        return work(tx)

    return await database.write(without)
