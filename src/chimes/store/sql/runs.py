"""Runs and their logs: adding, reading, canceling and deleting, with all that only they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ScalarSelect, bindparam, delete, or_, select, update

from chimes.model import replace
from chimes.model.access import unused_keys
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import run_checkpoint_names, schedule_checkpoint_names
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Page, RunQuery
from chimes.model.run import LogEntry, Run, cancel_step, owns_fence
from chimes.store.codec.values import USED_INTERVAL
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Rows
from chimes.store.sql.due_schedules import delete_old_batches
from chimes.store.sql.listing import RUN_SORTS, page_of, run_conditions
from chimes.store.sql.locks import (
    admitted_runs,
    busy_on_lock_timeout,
    lock_for_completion,
    lock_schedules,
    lock_schedules_and_keys,
    oldest_active,
)
from chimes.store.sql.prefetch import free_prefetched_capacity
from chimes.store.sql.records import append_audit, key_of
from chimes.store.sql.rollups import add_inserted_runs, subtract_deleted_runs
from chimes.store.sql.rows.access import (
    SELECT_RUNS,
    ExistingRuns,
    decode_runs,
    find_slot_runs,
    insert_logs,
    insert_runs,
    load_run,
    load_runs,
)
from chimes.store.sql.rows.run import concurrency_number, log_of
from chimes.store.sql.rows.values import maybe_moment, micros, schedule_number
from chimes.store.sql.tables import (
    api_keys,
    claims,
    concurrency_keys,
    cursors,
    definitions,
    kept_states,
    queue,
    run_logs,
    runs,
    schedule_stats,
    schedules,
)

_flow = runs.alias("flow")
_OPEN_PARENT = select(_flow.c.id).where(
    _flow.c.id == runs.c.parent_id, _flow.c.finished_at.is_(None)
)
_TO_FORGET = select(runs.c.id, runs.c.schedule, runs.c.slot, runs.c.missed_until).where(
    runs.c.parent_id.is_(None) | ~_OPEN_PARENT.exists()
)
#: In the order of their creation, because nothing that changes at the end of a run is in an index.
ENDED_BEFORE = (
    _TO_FORGET.where(
        runs.c.created_at < bindparam("before"), runs.c.finished_at < bindparam("before")
    )
    .order_by(runs.c.created_at, runs.c.id)
    .limit(bindparam("most"))
)
_PURGED = (
    update(cursors)
    .where(
        cursors.c.schedule == bindparam("purged_key"),
        (cursors.c.purged_until.is_(None)) | (cursors.c.purged_until < bindparam("mark")),
    )
    .values(purged_until=bindparam("mark"))
)
#: Of runs that may have checkpoints of their own.
_WITH_CHECKPOINTS = (
    select(runs.c.id)
    .join(definitions, definitions.c.key == runs.c.definition)
    .where(definitions.c.kind.in_(("agent", "action")))
)
_LOGS = (
    select(run_logs)
    .where(run_logs.c.run_id == bindparam("run_id"), run_logs.c.number > bindparam("after"))
    .order_by(run_logs.c.number)
    .limit(bindparam("most"))
)


def _last(column: str) -> ScalarSelect[Any]:
    """Reads the end of each log by itself: a maximum per run would scan all lines."""
    return (
        select(run_logs.c[column])
        .where(run_logs.c.run_id == runs.c.id)
        .order_by(run_logs.c.number.desc())
        .limit(1)
        .correlate(runs)
        .scalar_subquery()
    )


_LAST_LOGS = select(
    runs.c.id, *(_last(name).label(name) for name in ("number", "at", "level", "message"))
)


def add_runs(tx: Tx, wanted: Sequence[Run], audit: AuditEntry | None) -> tuple[Run, ...]:
    answer = _add_runs(tx, wanted)
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return answer


def find_existing(tx: Tx, run: Run) -> Run | None:
    """Returns the run with the same id or slot, or the oldest active run of its key."""
    assert run.concurrency_key is not None
    stored = ExistingRuns(tx, [run]).find(run)
    if stored is None:
        number = concurrency_number(run)
        assert number is not None
        stored = oldest_active(tx, number)
    return None if stored is None else load_run(tx, stored)


def add_unless_active(tx: Tx, run: Run, audit: AuditEntry | None) -> tuple[Run, bool]:
    with busy_on_lock_timeout(tx, f"{run.concurrency_key}"):
        lock_schedules_and_keys(tx, [(run.schedule_id, run.concurrency_key)])
    existing = find_existing(tx, run)
    if existing is not None:
        return existing, False
    insert_runs(tx, [run])
    add_inserted_runs(tx, [run])
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return run, True


def slot_runs(tx: Tx, schedule_id: ScheduleId, slots: Collection[datetime]) -> dict[datetime, Run]:
    rows = find_slot_runs(tx, [(str(schedule_id), micros(slot)) for slot in slots])
    found = load_runs(tx, [RunId(row.id) for row in rows])
    return {run.slot: run for run in found.values() if run.slot is not None}


def list_runs(tx: Tx, query: RunQuery) -> Page[Run]:
    return page_of(
        tx,
        SELECT_RUNS.where(*run_conditions(query)),
        RUN_SORTS[query.sort],
        runs.c.id,
        query,
        lambda rows: decode_runs(tx, rows),
        descending=query.descending,
    )


def next_available(tx: Tx) -> datetime | None:
    return maybe_moment(tx.dialect.next_available(tx.connection))


def change_run(
    tx: Tx, run_id: RunId, change: Callable[[Run, datetime], Run], audit: AuditEntry | None
) -> Run | None:
    lock_for_completion(tx, [run_id])
    run = load_run(tx, run_id)
    if run is None:
        return None
    now = tx.now()
    after = change(run, now)
    if after is not run:
        effects = CompletionEffects(tx, now, [run])
        effects.apply(after)
        effects.write()
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return after


def anything_prunable(tx: Tx, before: datetime) -> bool:
    return bool(tx.rows(ENDED_BEFORE, {"before": micros(before), "most": 1}))


def prune_runs(tx: Tx, before: datetime, limit: int) -> int:
    delete_old_batches(tx, before)
    parameters = {"before": micros(before), "most": limit}
    return _forget(tx, tx.rows(ENDED_BEFORE, parameters))


def forget_runs(tx: Tx, run_ids: Sequence[RunId]) -> int:
    among = tx.dialect.among(runs.c.id, "ids")
    wanted = _TO_FORGET.where(runs.c.finished_at.is_not(None), among)
    return _forget(tx, tx.rows(wanted, {"ids": tx.dialect.listed(run_ids)}))


def append_logs(tx: Tx, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
    run = load_run(tx, run_id)
    if run is None or not owns_fence(run, fence):
        return False
    insert_logs(tx, {run_id: list(entries)})
    return True


def read_logs(tx: Tx, run_id: RunId, after: int, limit: int) -> tuple[LogEntry, ...]:
    rows = tx.rows(_LOGS, {"run_id": run_id, "after": after, "most": limit})
    return tuple(log_of(row) for row in rows)


def last_logs(tx: Tx, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
    wanted = _LAST_LOGS.where(tx.dialect.among(runs.c.id, "ids"))
    rows = tx.rows(wanted, {"ids": tx.dialect.listed(run_ids)})
    return {RunId(row.id): log_of(row) for row in rows if row.number is not None}


def drop_logs(tx: Tx, run_ids: Sequence[RunId]) -> None:
    among, listed = tx.dialect.among, tx.dialect.listed
    # Two statements: as one, MariaDB would scan all log lines.
    ended = tx.rows(
        select(runs.c.id).where(among(runs.c.id, "ids"), runs.c.finished_at.is_not(None)),
        {"ids": listed(run_ids)},
    )
    if ended:
        parameters = {"ids": listed([row.id for row in ended])}
        tx.run(delete(run_logs).where(among(run_logs.c.run_id, "ids")), parameters)


def _add_runs(tx: Tx, wanted: Sequence[Run]) -> tuple[Run, ...]:
    lock_schedules_and_keys(tx, {(run.schedule_id, run.concurrency_key) for run in wanted})
    stored = ExistingRuns(tx, wanted)
    existing = load_runs(tx, [found for run in wanted if (found := stored.find(run)) is not None])
    over = _ended_parents(tx, wanted)
    numbers = {run.id: concurrency_number(run) for run in wanted}
    admitted = _admitted(tx, numbers.values())
    full = {
        run.schedule_id
        for run in wanted
        if (number := numbers[run.id]) is not None
        and number < 0
        and admitted[number] >= run.concurrency_limit
    }
    if full and free_prefetched_capacity(tx, {each for each in full if each is not None}):
        admitted = _admitted(tx, numbers.values())
    answer: list[Run] = []
    new: list[Run] = []
    for run in wanted:
        found = stored.find(run)
        if found is None:
            added = cancel_step(run, tx.now()) if run.parent_id in over else run
            number = numbers[run.id]
            if number is not None and not added.status.terminal:
                added = replace(added, blocked=admitted[number] >= run.concurrency_limit)
                admitted[number] += not added.blocked
            stored.add(added)
            existing[added.id] = added
            new.append(added)
            found = added.id
        answer.append(existing[found])
    missing = {run.id for run in new} - {run.id for run in insert_runs(tx, new)}
    if missing:
        # Another transaction, which shares no lock with this one, has inserted them meanwhile.
        existing |= load_runs(tx, sorted(missing))
        answer = [existing[run.id] for run in answer]
    if any(run.status.terminal for run in new):
        write_outbox_of_inserted(tx, new, tx.now())
    add_inserted_runs(tx, new)
    return tuple(answer)


def _admitted(tx: Tx, numbers: Iterable[int | None]) -> Counter[int]:
    found = admitted_runs(tx, {number for number in numbers if number is not None})
    return Counter({number: len(ids) for number, ids in found.items()})


def _ended_parents(tx: Tx, wanted: Sequence[Run]) -> set[RunId]:
    """Locks the active flows, so that none ends while its new steps are not visible yet. Returns
    the flows that have ended."""
    parents = load_runs(tx, {run.parent_id for run in wanted if run.parent_id is not None})
    return {run.id for run in parents.values() if run.status.terminal}


def _forget(tx: Tx, old: Rows) -> int:
    if not old:
        return 0
    marks: dict[int, int] = {}
    for row in old:
        if row.schedule is not None and row.slot is not None:
            mark = row.slot if row.missed_until is None else row.missed_until
            marks[row.schedule] = max(mark, marks.get(row.schedule, mark))
    # In the order of their keys, as everywhere.
    for key in sorted(marks):
        tx.run(_PURGED, {"purged_key": key, "mark": marks[key]})
    ids = [row.id for row in old]
    subtract_deleted_runs(tx, ids)
    own = _WITH_CHECKPOINTS.where(tx.dialect.among(runs.c.id, "ids"))
    names = [
        name
        for row in tx.tuples(own, {"ids": tx.dialect.listed(ids)})
        for name in run_checkpoint_names(row[0])
    ]
    tx.dialect.delete_many(tx.connection, kept_states, "name", names)
    for table, column in ((run_logs, "run_id"), (runs, "id")):
        tx.dialect.delete_many(tx.connection, table, column, ids)
    return len(ids)


# --- what no run uses any more --------------------------------------------------------------------
#: `is_declared_id`.
_DECLARED = "________-____-5___-____-____________"
#: Deleted schedules without runs (`is_purgeable`).
PURGEABLE = (
    select(schedules.c.id)
    .join(cursors, cursors.c.schedule == schedules.c.key)
    .where(
        schedules.c.deleted_at < bindparam("before"),
        or_(cursors.c.purged_until.is_(None), cursors.c.purged_until < bindparam("before")),
        schedules.c.id.not_like(_DECLARED),
        ~select(runs.c.id).where(runs.c.schedule == schedules.c.key).exists(),
    )
    .order_by(schedules.c.deleted_at, schedules.c.id)
    .limit(bindparam("most"))
)
_old = runs.alias("old")
#: Definitions that nothing refers to. A definition is marked as used once a day while it is in use,
#: so its runs were created at most a day after the mark: only few runs as old are left.
UNUSED_DEFINITIONS = (
    select(definitions.c.key)
    .where(
        definitions.c.used_at < bindparam("unused_since"),
        ~select(schedules.c.key)
        .where(
            schedules.c.key == definitions.c.schedule,
            schedules.c.definition == definitions.c.key,
        )
        .exists(),
        definitions.c.key.not_in(
            select(_old.c.definition).where(_old.c.created_at < bindparam("before"))
        ),
    )
    .limit(bindparam("most"))
)
#: Keys without active runs, and all rows of owners.
IDLE_KEYS = (
    select(concurrency_keys.c.key)
    .where(
        ~select(queue.c.run_id).where(queue.c.concurrency == concurrency_keys.c.key).exists(),
        ~select(claims.c.run_id).where(claims.c.concurrency == concurrency_keys.c.key).exists(),
    )
    .limit(bindparam("most"))
)


def prune_unused(tx: Tx, before: datetime, limit: int) -> int:
    delete_old_batches(tx, before)
    return (
        _purge_schedules(tx, before, limit)
        + _delete_idle_keys(tx, limit)
        + _delete_definitions(tx, before, limit)
        + _delete_api_keys(tx, before, limit)
    )


def _purge_schedules(tx: Tx, before: datetime, limit: int) -> int:
    parameters: dict[str, object] = {"before": micros(before), "most": limit}
    found = [row[0] for row in tx.tuples(PURGEABLE, parameters)]
    if found and tx.locking:
        # Looks again at those that are locked: one may have been restored meanwhile.
        locked = lock_schedules(tx, found, skip=True)
        again = PURGEABLE.where(tx.dialect.among(schedules.c.id, "ids"))
        parameters["ids"] = tx.dialect.listed(sorted(locked))
        found = [row[0] for row in tx.tuples(again, parameters)]
    keys = sorted(schedule_number(each) for each in found)
    for table, column in ((cursors, "schedule"), (schedule_stats, "schedule"), (schedules, "key")):
        tx.dialect.delete_many(tx.connection, table, column, keys)
    names = sorted(name for each in found for name in schedule_checkpoint_names(each))
    tx.dialect.delete_many(tx.connection, kept_states, "name", names)
    return len(keys)


def _delete_idle_keys(tx: Tx, limit: int) -> int:
    """A row that is deleted shortly before it is needed is inserted again (`lock_keys`), so it does
    not matter when it was used last. One that a transaction holds stays."""
    parameters: dict[str, object] = {"most": limit}
    column = concurrency_keys.c.key
    idle = [row[0] for row in tx.tuples(IDLE_KEYS, parameters)]
    if idle and tx.locking:
        among = tx.dialect.among(column, "keys")
        locking = tx.for_update(select(column).where(among), column, skip=True)
        locked = [row[0] for row in tx.tuples(locking, {"keys": tx.dialect.listed(sorted(idle))})]
        # Runs of the last holder of the lock are visible only to a later statement.
        parameters["keys"] = tx.dialect.listed(locked)
        idle = [row[0] for row in tx.tuples(IDLE_KEYS.where(among), parameters)]
    tx.dialect.delete_many(tx.connection, concurrency_keys, "key", sorted(idle))
    return len(idle)


def _delete_definitions(tx: Tx, before: datetime, limit: int) -> int:
    parameters = {
        "unused_since": micros(before - 2 * USED_INTERVAL),
        "before": micros(before),
        "most": limit,
    }
    unused = [row[0] for row in tx.tuples(UNUSED_DEFINITIONS, parameters)]
    tx.dialect.delete_many(tx.connection, definitions, "key", unused)
    return len(unused)


def _delete_api_keys(tx: Tx, before: datetime, limit: int) -> int:
    rows = tx.rows(tx.for_update(select(api_keys), api_keys.c.id))
    gone = [key.id for key in unused_keys((key_of(row) for row in rows), before)[:limit]]
    tx.dialect.delete_many(tx.connection, api_keys, "id", gone)
    return len(gone)
