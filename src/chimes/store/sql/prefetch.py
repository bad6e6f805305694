"""Prefetched runs: confirmation, and undo of a prefetch.

Both hold the lock of the claim, so that only one of them can succeed: confirmation marks the claim
and skips locked ones; undo locks the claim and then reads the mark and the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam, select

from chimes.clock import MICROSECOND
from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import (
    PREFETCH_CUTOFF,
    PREFETCH_MINIMUM,
    can_withdraw,
    may_have_prefetched_run,
    withdraw_prefetched,
)
from chimes.model.schedule import Schedule
from chimes.store.port import PrefetchWindow
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import lock_schedules
from chimes.store.sql.rows.access import cursor_updates, load_runs, load_schedules
from chimes.store.sql.rows.values import maybe_moment, micros, moment_of, schedule_number
from chimes.store.sql.tables import claims, queue, runs, schedules

#: At most so many upcoming runs are counted: no node has more permits.
MAX_UPCOMING = 20_000

#: A schedule has a few at most, and an index has them in order.
UPCOMING_OF_SCHEDULE = select(runs.c.id).where(
    runs.c.schedule == bindparam("key"),
    runs.c.slot > bindparam("now"),
    runs.c.finished_at.is_(None),
)
PREVIOUS_SLOT = (
    select(runs.c.slot, runs.c.missed_until)
    .where(runs.c.schedule == bindparam("key"), runs.c.slot < bindparam("slot"))
    .order_by(runs.c.slot.desc())
    .limit(1)
)


def next_prefetch(tx: Tx, within: timedelta, each: timedelta) -> PrefetchWindow | None:
    until, cost = micros(tx.now() + within), each // MICROSECOND
    found = tx.dialect.next_prefetch(tx.connection, until, cost, MAX_UPCOMING)
    if found is None or found.number < PREFETCH_MINIMUM:
        return None
    return PrefetchWindow(due=moment_of(found.due), begin_by=moment_of(found.begin_by))


def confirm_prefetched(tx: Tx, held: Sequence[tuple[RunId, int]]) -> frozenset[tuple[RunId, int]]:
    clock = tx.clock_override()
    closed = None if clock is None else micros(tx.now() + PREFETCH_CUTOFF)
    left_out = tx.dialect.confirm_claims(tx.connection, closed, held)
    return frozenset(held).difference((RunId(row.id), row.fence) for row in left_out)


def undo_prefetch(tx: Tx, schedule: Schedule, now: datetime) -> tuple[Schedule, datetime]:
    """Undoes the prefetch of a locked schedule. Returns the schedule and the time at which that is
    certain. The caller writes the cursor of the schedule."""
    if not tx.dialect.prefetches or not may_have_prefetched_run(schedule, now):
        return schedule, now
    key = schedule_number(schedule.id)
    upcoming = tx.tuples(UPCOMING_OF_SCHEDULE, {"key": key, "now": micros(now)})
    prefetched = load_runs(tx, sorted(row[0] for row in upcoming))
    now = tx.now()
    withdrawn = [run for run in prefetched.values() if can_withdraw(run, now)]
    for run in sorted(withdrawn, key=lambda run: run.planned_at, reverse=True):
        assert run.slot is not None
        for table, column in ((queue, "run_id"), (claims, "run_id"), (runs, "id")):
            tx.dialect.delete_many(tx.connection, table, column, [run.id])
        row = tx.first(PREVIOUS_SLOT, {"key": key, "slot": micros(run.slot)})
        before = None if row is None else maybe_moment(row.missed_until or row.slot)
        schedule = withdraw_prefetched(schedule, run, before)
    return schedule, now


def withdraw_all(tx: Tx) -> None:
    """Undoes every prefetch that is not confirmed."""
    now = tx.now()
    upcoming = (
        select(schedules.c.id)
        .distinct()
        .select_from(claims.join(runs, runs.c.id == claims.c.run_id))
        .join(schedules, schedules.c.key == runs.c.schedule)
        .where(runs.c.slot > bindparam("now"))
    )
    ids = [ScheduleId(row[0]) for row in tx.tuples(upcoming, {"now": micros(now)})]
    if ids:
        lock_schedules(tx, ids)
        tx.wakes |= free_prefetched_capacity(tx, ids)


def free_prefetched_capacity(tx: Tx, schedule_ids: Collection[ScheduleId]) -> bool:
    """Undoes prefetched runs of these schedules, which are locked, in favour of a run that can
    start now. Returns whether capacity became free."""
    if not tx.dialect.prefetches:
        return False
    now = tx.now()
    loaded = load_schedules(tx, schedule_ids)
    changed = {
        schedule_number(before.id): after
        for before in loaded.values()
        if (after := undo_prefetch(tx, before, now)[0]) is not before
    }
    tx.dialect.write_all(tx.connection, [cursor_updates(changed)])
    return bool(changed)
