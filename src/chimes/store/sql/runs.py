"""Runs: adding, reading, canceling and deleting, and their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ScalarSelect, bindparam, delete, select, text, update

from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Page, RunQuery
from chimes.model.run import LogEntry, Run, cancel_step, owns_fence, request_cancel
from chimes.store.sql.base import (
    ExistingRuns,
    SqlBase,
    append_audit,
    append_logs,
    busy_on_lock_timeout,
    insert_runs,
    load_run,
    load_runs,
    lock_for_completion,
    lock_schedules,
    lock_schedules_and_keys,
    write_runs,
)
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Rows
from chimes.store.sql.due_schedules import delete_old_batches
from chimes.store.sql.listing import RUN_SORTS, page_of, run_conditions
from chimes.store.sql.prefetch import free_prefetched_capacity
from chimes.store.sql.rollups import add_inserted_runs, subtract_deleted_runs
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


class SqlRuns(SqlBase):
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        def work(tx: Tx) -> tuple[Run, ...]:
            answer = _add_runs(tx, runs)
            if audit is not None:
                append_audit(tx, audit)
            tx.wakes = True
            return answer

        return await write_runs(self._database, work)

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        """Checks, locks, checks again. Usually the first check is enough and needs no lock."""
        existing = await self._database.query(lambda tx: _find_existing(tx, run))
        if existing is not None:
            return existing, False

        def work(tx: Tx) -> tuple[Run, bool]:
            with busy_on_lock_timeout(tx, f"{run.concurrency_key}"):
                lock_schedules_and_keys(tx, [(run.schedule_id, run.concurrency_key)])
            existing = _find_existing(tx, run)
            if existing is not None:
                return existing, False
            insert_runs(tx, [run])
            if audit is not None:
                append_audit(tx, audit)
            tx.wakes = True
            return run, True

        return await write_runs(self._database, work)

    async def get_run(self, run_id: RunId) -> Run | None:
        return await self._database.query(lambda tx: load_run(tx, run_id))

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        pairs = [(str(schedule_id), micros(slot)) for slot in slots]

        def work(tx: Tx) -> dict[datetime, Run]:
            rows = tx.dialect.find_slot_runs(tx.connection, pairs) if pairs else ()
            found = load_runs(tx, [RunId(row.id) for row in rows])
            return {run.slot: run for run in found.values() if run.slot is not None}

        return await self._database.read(work)

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        column = RUN_SORTS[query.sort]
        return await self._database.query(
            lambda tx: page_of(
                tx,
                column,
                query,
                run_conditions(query),
                decode_run,
                descending=query.descending,
            )
        )

    async def next_available(self) -> datetime | None:
        return maybe_moment(
            await self._database.query(lambda tx: tx.dialect.next_available(tx.connection))
        )

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        def work(tx: Tx) -> Run | None:
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

        return await write_runs(self._database, work)

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        parameters = {"before": micros(before), "most": limit}
        one = {**parameters, "most": 1}
        if self._database.has_single_writer and not await self._database.read(
            lambda tx: tx.rows(ENDED_BEFORE, one)
        ):
            return 0

        def work(tx: Tx) -> int:
            delete_old_batches(tx, before)
            return _forget(tx, tx.rows(ENDED_BEFORE, parameters))

        return await self._database.write(work)

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        def work(tx: Tx) -> int:
            among = tx.dialect.among(runs.c.id, "ids")
            wanted = _TO_FORGET.where(runs.c.finished_at.is_not(None), among)
            return _forget(tx, tx.rows(wanted, {"ids": tx.dialect.listed(run_ids)}))

        return await self._database.write(work) if run_ids else 0

    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        def work(tx: Tx) -> bool:
            run = load_run(tx, run_id)
            if run is None or not owns_fence(run, fence):
                return False
            append_logs(tx, {run_id: list(entries)})
            return True

        return await self._database.write(work)

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        parameters = {"run_id": run_id, "after": after, "most": limit}
        rows = await self._database.query(lambda tx: tx.rows(_LOGS, parameters))
        return tuple(log_of(row) for row in rows)

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        def work(tx: Tx) -> dict[RunId, LogEntry]:
            wanted = _LAST_LOGS.where(tx.dialect.among(runs.c.id, "ids"))
            rows = tx.rows(wanted, {"ids": tx.dialect.listed(run_ids)})
            return {RunId(row.id): log_of(row) for row in rows if row.number is not None}

        return await self._database.query(work) if run_ids else {}

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        def work(tx: Tx) -> None:
            among, listed = tx.dialect.among, tx.dialect.listed
            # Two statements: as one, MariaDB would scan all log lines.
            ended = tx.rows(
                select(runs.c.id).where(among(runs.c.id, "ids"), runs.c.finished_at.is_not(None)),
                {"ids": listed(run_ids)},
            )
            if ended:
                parameters = {"ids": listed([row.id for row in ended])}
                tx.run(delete(run_logs).where(among(run_logs.c.run_id, "ids")), parameters)

        if run_ids:
            await self._database.write(work)


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


def _find_existing(tx: Tx, run: Run) -> Run | None:
    """Returns the run with the same id or slot, or the oldest active run of its key."""
    assert run.concurrency_key is not None
    stored = ExistingRuns(tx, [run]).find(run)
    if stored is not None:
        return load_run(tx, stored)
    row = tx.dialect.oldest_active(tx.connection, run.concurrency_key)
    return None if row is None else decode_run(row)


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
