"""The scheduler's duty: turn due schedules into runs, then sleep until the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from chimes.clock import Clock
from chimes.engine.capacity import Capacity, Reserved
from chimes.engine.events import Events, ScheduleBroken, SchedulesFired
from chimes.engine.hands import Hands
from chimes.engine.lifecycle import After, AtOnce, Rest, Until
from chimes.engine.membership import Membership
from chimes.engine.storetime import StoreTime
from chimes.failpoints import hit
from chimes.model.ids import ScheduleId
from chimes.model.planning import AnyFiring, FireContext, plan
from chimes.model.schedule import Schedule
from chimes.store.port import Places, Planner, Store

#: Schedules in one transaction: more would let the first of a crowd wait for the last.
BATCH = 200


class Scheduler:
    name = "scheduler"

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreTime,
        events: Events,
        poll: timedelta,
        hands: Hands | None = None,
        capacities: Sequence[Capacity] = (),
        most: int = 0,
        planner: Planner = plan,
    ) -> None:
        """The first of the capacities takes runs as they are fired; without hands everything goes
        into the queue. `most` schedules are fired in one pass (C13; 0: all that are due)."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._poll = poll
        self._hands = hands
        self._capacity = capacities[0] if hands is not None else None
        self._capacities = capacities
        self._most = most
        self._planner = planner
        self._due = datetime.max.replace(tzinfo=UTC)
        self._due_since: int | None = None
        self._moved: dict[ScheduleId, Schedule] = {}

    async def once(self) -> Rest:
        since = self._store.changes()
        known = self._due_since == since and self._time.now() >= self._due
        self._due_since = None
        if not known:
            due = await self._store.next_due()
            now = await self._time.ask()
            if due is None or due > now:
                return self._sleep(since, due, now)
        left = self._most
        more, progress = True, False
        while more:
            limit = min(BATCH, left) if self._most else BATCH
            more, moved = await self._fire(limit)
            progress |= moved
            left -= limit
            if self._most and left <= 0:
                return After(self._poll.total_seconds())
            await asyncio.sleep(0)
        # What is due and still does not move is looked at again, but not without a break.
        return AtOnce() if progress or known else After(self._poll.total_seconds())

    def _sleep(self, since: int, due: datetime | None, now: datetime) -> Rest:
        poll = now + self._poll
        if due is None or due > poll:
            return Until(since=since, moment=poll)
        # On waking there is no need to ask again what is due, unless something has changed.
        self._due, self._due_since = due, since
        return Until(since=since, moment=due)

    async def _fire(self, limit: int) -> tuple[bool, bool]:
        """One batch: whether more are due, and whether any cursor moved."""
        began = self._clock.monotonic()
        self._moved.clear()
        with self._offer() as reserved:
            fired = await self._store.fire_due(
                self._plan, limit=limit, places=self._places(reserved)
            )
            if fired.claimed or fired.others:
                hit("fire.after")
            if self._hands is not None and self._capacity is not None:
                reserved.used = self._hands.take(fired.claimed, self._capacity)
        queued = {run.target.needs for run in fired.others if run.claimable}
        for capacity in self._capacities:
            capacity.backlog |= not queued.isdisjoint(capacity.pool.offers)
        for schedule in fired.broken:
            self._events.emit(ScheduleBroken(schedule=schedule))
        if self._moved or fired.claimed or fired.others:
            self._events.emit(
                SchedulesFired(
                    schedules=tuple(self._moved.values()),
                    runs=fired.claimed + fired.others,
                    seconds=self._clock.monotonic() - began,
                )
            )
        return fired.more, bool(self._moved or fired.broken)

    def _plan(self, schedule: Schedule, context: FireContext, now: datetime) -> AnyFiring:
        firing = self._planner(schedule, context, now)
        if firing.schedule.next_run_at != schedule.next_run_at:
            self._moved[schedule.id] = firing.schedule
        hit("fire.before_commit")
        return firing

    def _offer(self) -> AbstractContextManager[Reserved]:
        capacity = self._capacity
        if capacity is None or capacity.backlog or not self._membership.trusted:
            return nullcontext(Reserved(0))
        return capacity.reserve()

    def _places(self, reserved: Reserved) -> Places | None:
        if not reserved.free or self._capacity is None:
            return None
        return Places(
            node_id=self._membership.node_id,
            offers=self._capacity.pool.offers,
            free=reserved.free,
        )
