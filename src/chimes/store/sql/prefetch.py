"""Prefetched runs: confirmation, and undo of a prefetch.

Both hold the lock of the run, so that only one of them can succeed: confirmation marks the run and
skips locked runs; undo locks the run and then reads the mark and the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, select, text

from chimes.clock import MICROSECOND
from chimes.model.ids import RunId
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
from chimes.store.sql.locks import is_own_key, schedule_of_key
from chimes.store.sql.rows.access import load_schedules, move_cursors
from chimes.store.sql.rows.corrupt import decode_run
from chimes.store.sql.rows.values import maybe_moment, micros, moment_of
from chimes.store.sql.tables import ACTIVE, runs

#: At most so many upcoming runs are counted: no node has more permits.
MAX_UPCOMING = 20_000

#: A schedule has a few at most, and an index has them in order.
PREFETCHED_OF_SCHEDULE = select(runs).where(
    runs.c.schedule_id == bindparam("schedule_id"),
    runs.c.slot > bindparam("now"),
    text(ACTIVE),
)
PREVIOUS_SLOT = (
    select(runs.c.slot, runs.c.missed_until)
    .where(runs.c.schedule_id == bindparam("schedule_id"), runs.c.slot < bindparam("slot"))
    .order_by(runs.c.slot.desc())
    .limit(1)
)


def next_prefetch(tx: Tx, within: timedelta, each: timedelta) -> PrefetchWindow | None:
    until, cost = micros(tx.now() + within), each // MICROSECOND
    found = tx.dialect.next_prefetch(tx.connection, until, cost, MAX_UPCOMING)
    if found is None or found.number < PREFETCH_MINIMUM:
        return None
    return PrefetchWindow(due=moment_of(found.due), begin_by=moment_of(found.begin_by))


def confirm_prefetched(tx: Tx, claims: Sequence[tuple[RunId, int]]) -> frozenset[tuple[RunId, int]]:
    clock = tx.clock_override()
    closed = None if clock is None else micros(tx.now() + PREFETCH_CUTOFF)
    left_out = tx.dialect.unconfirmed(tx.connection, closed, claims)
    return frozenset(claims).difference((RunId(row.id), row.fence) for row in left_out)


def undo_prefetch(tx: Tx, schedule: Schedule, now: datetime) -> tuple[Schedule, datetime]:
    """Undoes the prefetch of a locked schedule. Returns the schedule and the time at which that is
    certain. The caller writes the row of the schedule."""
    if not tx.dialect.fast or not may_have_prefetched_run(schedule, now):
        return schedule, now
    parameters = {"schedule_id": schedule.id, "now": micros(now)}
    prefetched = [
        decode_run(row)
        for row in tx.rows(tx.for_update(PREFETCHED_OF_SCHEDULE, runs.c.id), parameters)
    ]
    now = tx.now()
    withdrawn = [run for run in prefetched if can_withdraw(run, now)]
    for run in sorted(withdrawn, key=lambda run: run.planned_at, reverse=True):
        assert run.slot is not None
        tx.run(delete(runs).where(runs.c.id == run.id))
        row = tx.first(PREVIOUS_SLOT, {"schedule_id": schedule.id, "slot": micros(run.slot)})
        before = None if row is None else maybe_moment(row.missed_until or row.slot)
        schedule = withdraw_prefetched(schedule, run, before)
    return schedule, now


def free_prefetched_capacity(tx: Tx, keys: Collection[str]) -> bool:
    """Undoes prefetched runs of these keys in favour of a run that can start now. The keys are
    locked. Returns whether capacity became free."""
    if not tx.dialect.fast:
        return False
    now = tx.now()
    owners = {schedule_of_key(key) for key in keys if is_own_key(key)}
    changed = [
        after
        for before in load_schedules(tx, owners).values()
        if (after := undo_prefetch(tx, before, now)[0]) is not before
    ]
    move_cursors(tx, changed)
    return bool(changed)
