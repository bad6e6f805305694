"""Runs: adding, reading, canceling and deleting, and their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ScalarSelect, bindparam, delete, select, text, update

from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Page, RunQuery
from chimes.model.run import LogEntry, Run, cancel_step, owns_fence, request_cancel
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Rows
from chimes.store.sql.due_schedules import delete_old_batches
from chimes.store.sql.listing import RUN_SORTS, page_of, run_conditions
from chimes.store.sql.locks import (
    busy_on_lock_timeout,
    lock_for_completion,
    lock_schedules,
    lock_schedules_and_keys,
)
from chimes.store.sql.prefetch import free_prefetched_capacity
from chimes.store.sql.records import append_audit
from chimes.store.sql.rollups import add_inserted_runs, subtract_deleted_runs
from chimes.store.sql.rows.access import (
    ExistingRuns,
    insert_logs,
    insert_runs,
    load_run,
    load_runs,
)
from chimes.store.sql.rows.corrupt import decode_run
from chimes.store.sql.rows.run import log_of
from chimes.store.sql.rows.values import maybe_moment, micros
from chimes.store.sql.tables import ENDED, run_logs, runs, schedules

_flow = runs.alias("flow")
_OPEN_PARENT = select(_flow.c.id).where(
    _flow.c.id == runs.c.parent_id, _flow.c.finished_at.is_(None)
)
_TO_FORGET = select(runs.c.id, runs.c.schedule_id, runs.c.slot, runs.c.missed_until).where(
    runs.c.parent_id.is_(None) | ~_OPEN_PARENT.exists()
)
ENDED_BEFORE = (
    _TO_FORGET.where(text(ENDED), runs.c.finished_at < bindparam("before"))
    .order_by(runs.c.finished_at, runs.c.id)
    .limit(bindparam("most"))
)
_PURGED = (
    update(schedules)
    .where(
        schedules.c.id == bindparam("purged_id"),
        (schedules.c.purged_until.is_(None)) | (schedules.c.purged_until < bindparam("mark")),
    )
    .values(purged_until=bindparam("mark"))
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
    if stored is not None:
        return load_run(tx, stored)
    row = tx.dialect.oldest_active(tx.connection, run.concurrency_key)
    return None if row is None else decode_run(row)


def add_unless_active(tx: Tx, run: Run, audit: AuditEntry | None) -> tuple[Run, bool]:
    with busy_on_lock_timeout(tx, f"{run.concurrency_key}"):
        lock_schedules_and_keys(tx, [(run.schedule_id, run.concurrency_key)])
    existing = find_existing(tx, run)
    if existing is not None:
        return existing, False
    insert_runs(tx, [run])
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return run, True


def find_slot_runs(
    tx: Tx, schedule_id: ScheduleId, slots: Collection[datetime]
) -> dict[datetime, Run]:
    pairs = [(str(schedule_id), micros(slot)) for slot in slots]
    rows = tx.dialect.find_slot_runs(tx.connection, pairs) if pairs else ()
    found = load_runs(tx, [RunId(row.id) for row in rows])
    return {run.slot: run for run in found.values() if run.slot is not None}


def list_runs(tx: Tx, query: RunQuery) -> Page[Run]:
    return page_of(
        tx,
        RUN_SORTS[query.sort],
        query,
        run_conditions(query),
        decode_run,
        descending=query.descending,
    )


def next_available(tx: Tx) -> datetime | None:
    return maybe_moment(tx.dialect.next_available(tx.connection))


def cancel_run(tx: Tx, run_id: RunId, reason: str, audit: AuditEntry | None) -> Run | None:
    lock_for_completion(tx, [run_id])
    run = load_run(tx, run_id)
    if run is None:
        return None
    now = tx.now()
    after = request_cancel(run, reason, now)
    if not run.status.terminal:
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
    return _forget(tx, tx.rows(ENDED_BEFORE, {"before": micros(before), "most": limit}))


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
    lock_schedules_and_keys(tx, [(run.schedule_id, run.concurrency_key) for run in wanted])
    stored = ExistingRuns(tx, wanted)
    existing = load_runs(tx, [found for run in wanted if (found := stored.find(run)) is not None])
    over = _ended_parents(tx, wanted)
    keys = {run.concurrency_key for run in wanted if run.concurrency_key is not None}
    admitted = _admitted(tx, keys)
    full = {
        key
        for run in wanted
        if (key := run.concurrency_key) is not None and admitted[key] >= run.concurrency_limit
    }
    if full and free_prefetched_capacity(tx, full):
        admitted = _admitted(tx, keys)
    answer: list[Run] = []
    new: list[Run] = []
    for run in wanted:
        found = stored.find(run)
        if found is None:
            added = cancel_step(run, tx.now()) if run.parent_id in over else run
            key = run.concurrency_key
            if key is not None and not added.status.terminal:
                added = replace(added, blocked=admitted[key] >= run.concurrency_limit)
                admitted[key] += not added.blocked
            stored.add(added)
            existing[added.id] = added
            new.append(added)
            found = added.id
        answer.append(existing[found])
    insert_runs(tx, new)
    if any(run.status.terminal for run in new):
        write_outbox_of_inserted(tx, new, tx.now())
        add_inserted_runs(tx, new)
    return tuple(answer)


def _admitted(tx: Tx, keys: Collection[str]) -> Counter[str]:
    rows = tx.dialect.admitted(tx.connection, keys) if keys else ()
    return Counter(row.concurrency_key for row in rows)


def _ended_parents(tx: Tx, wanted: Sequence[Run]) -> set[RunId]:
    """Locks the active flows, so that none ends while its new steps are not visible yet. Returns
    the flows that have ended."""
    parents = load_runs(tx, {run.parent_id for run in wanted if run.parent_id is not None})
    return {run.id for run in parents.values() if run.status.terminal}


def _forget(tx: Tx, old: Rows) -> int:
    if not old:
        return 0
    marks: dict[str, int] = {}
    for row in old:
        if row.schedule_id is not None and row.slot is not None:
            mark = row.slot if row.missed_until is None else row.missed_until
            marks[row.schedule_id] = max(mark, marks.get(row.schedule_id, mark))
    if marks:
        lock_schedules(tx, marks.keys())
        tx.run(_PURGED, [{"purged_id": name, "mark": marks[name]} for name in sorted(marks)])
    subtract_deleted_runs(tx, [row.id for row in old])
    parameters = {"ids": tx.dialect.listed([row.id for row in old])}
    tx.run(delete(run_logs).where(tx.dialect.among(run_logs.c.run_id, "ids")), parameters)
    return tx.run(delete(runs).where(tx.dialect.among(runs.c.id, "ids")), parameters)
