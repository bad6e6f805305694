"""Runs that are taken ahead of their time (PERFORMANCE: lateness of a crowd).

A node may claim the run of a slot shortly before it is due, and begin at the very moment. Until
the slot is closed, a change of the schedule takes the run back as if it had never been made.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from chimes.model.change import replace
from chimes.model.planning import OnTime
from chimes.model.run import Origin, Run
from chimes.model.schedule import Schedule

#: So many schedules have to come due together for it to pay to take them ahead of their time.
CROWD = 50
#: So long before its time a slot counts as begun: changes come too late for it.
CLOSED = timedelta(milliseconds=100)

_MICROSECOND = timedelta(microseconds=1)
#: Longer than anybody looks ahead.
_LONG_BEFORE = timedelta(days=1)


def may_be_ahead(schedule: Schedule, offers: Collection[str], now: datetime) -> bool:
    """Whether it is worth asking what its next slot, which is not due, comes to. One slot ahead at
    most, at the very moment it stands for: then `last_slot` tells whether there is one."""
    return (
        schedule.next_slot is not None
        and schedule.next_slot == schedule.next_run_at
        and (schedule.last_slot is None or schedule.last_slot <= now)
        and schedule.policy.concurrency_key is None
        and schedule.depends_on is None
        and schedule.target.needs in offers
    )


def taken_ahead(firing: OnTime, now: datetime) -> OnTime:
    """What a plan for its due time comes to at `now`.

    A slot that is taken back is fired again, under the same run id. So that nobody takes the one
    for the other, each claim ahead has a fence that no other claim of that slot has: it tells the
    moment of the claim."""
    due = firing.before.next_run_at
    assert due is not None
    return replace(firing, now=now, fence=2 + (now - due + _LONG_BEFORE) // _MICROSECOND)


def maybe_ahead(schedule: Schedule, now: datetime) -> bool:
    """Whether there may be a run that can still be taken back."""
    return schedule.last_slot is not None and schedule.last_slot > now + CLOSED


def can_be_taken_back(run: Run, now: datetime) -> bool:
    """Nothing begins before its time, so it has not begun; and it is not closed."""
    return (
        run.origin is Origin.SCHEDULE
        and run.slot is not None
        and not run.status.terminal
        and run.planned_at > now + CLOSED
    )


def taken_back(schedule: Schedule, run: Run, last_slot: datetime | None) -> Schedule:
    """The schedule without that run of it; `last_slot` is the newest slot before that has a row.
    `last_enqueued_at` stays: something was put into the queue then."""
    return replace(
        schedule,
        next_slot=run.slot,
        next_run_at=run.planned_at,
        last_slot=max(filter(None, (last_slot, schedule.purged_until)), default=None),
        fired_count=schedule.fired_count - 1,
    )
