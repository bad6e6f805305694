"""The scheduler's duty: turn due schedules into runs, then sleep until the next one is due."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from chimes.clock import Clock
from chimes.engine.capacity import Capacity, Reserved
from chimes.engine.events import Events, ScheduleBroken, SchedulesFired
from chimes.engine.executor import Executor
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import After, AtOnce, Rest, Until, Within
from chimes.engine.prefetch import LAST_CALL
from chimes.failpoints import hit
from chimes.model.planning import AnyFiring, OnTime, plan
from chimes.model.schedule import Schedule
from chimes.services.schedules import is_put_off
from chimes.store.port import ClaimRequest, Planner, Store

# @@ How many schedules a node fires in a tick (R1.38, C13).


class DispatchCap:
    """In any stretch of time as long as a tick at most `most`, wherever it begins; 0: no cap."""

    def __init__(self, clock: Clock, *, most: int, tick: float) -> None:
        self._clock = clock
        self._most = most
        self._tick = tick
        self._fired: deque[tuple[float, int]] = deque()

    def room(self, batch: int) -> int:
        """How many of a batch may be fired now."""
        if not self._most:
            return batch
        since = self._clock.monotonic() - self._tick
        while self._fired and self._fired[0][0] <= since:
            self._fired.popleft()
        return max(0, min(batch, self._most - sum(count for _, count in self._fired)))

    def fired(self, count: int) -> None:
        if self._most and count:
            self._fired.append((self._clock.monotonic(), count))

    def wait(self) -> float:
        """Seconds until there is room again, where there is none."""
        oldest = self._fired[0][0] if self._fired else self._clock.monotonic()
        return max(0.0, oldest + self._tick - self._clock.monotonic())


#: Schedules in one transaction: more would let the first of a crowd wait for the last.
BATCH = 200
#: What waits for its time leaves a tenth of the places, but not more than this, to what comes
#: meanwhile.
LEFT_FREE = 20
NOT = timedelta(0)


class Scheduler:
    name = "scheduler"

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
        poll: timedelta,
        hands: Executor | None = None,
        capacities: Sequence[Capacity] = (),
        most: int = 0,
        tick: timedelta = timedelta(seconds=15),
        planner: Planner = plan,
    ) -> None:
        """The first of the capacities takes runs as they are fired; without hands everything goes
        into the queue. `most` schedules are fired in a `tick`, the rest waits for the next (C13; 0:
        all that are due)."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._poll = poll
        self._hands = hands
        self._capacity = capacities[0] if hands is not None else None
        self._capacities = capacities
        self._cap = DispatchCap(clock, most=most, tick=tick.total_seconds())
        self._planner = planner
        self._due = datetime.max.replace(tzinfo=UTC)
        self._due_since: int | None = None
        #: None: nothing is taken before its time.
        self._outlook = None if most or hands is None else hands.outlook

    async def once(self) -> Rest:
        since = self._store.changes()
        known = self._due_since == since and self._time.now() >= self._due
        self._due_since = None
        if not known:
            due = await self._store.next_due()
            now = await self._time.recent()
            if due is not None and due <= now:
                now = await self._time.ask()
            if due is None or due > now:
                if due is not None and await self._look_ahead(due, now):
                    return AtOnce()
                return self._sleep(since, due, now)
        more, progress = True, False
        while more:
            limit = self._cap.room(BATCH)
            if not limit:
                return After(self._cap.wait())
            more, count = await self._fire(limit)
            progress |= count > 0
            await asyncio.sleep(0)
        # What is due and still does not move is looked at again, but not without a break.
        return AtOnce() if progress or known else After(self._poll.total_seconds())

    async def _look_ahead(self, due: datetime, now: datetime) -> bool:
        """Whether anything was taken before its time."""
        if self._outlook is None or due - now > self._outlook.furthest:
            return False
        until = await self._outlook.until(now)
        taken, more = 0, due <= until
        last_call = due - now <= LAST_CALL
        while more:
            ahead = until - self._time.now()
            more, count = await self._fire(BATCH, ahead=ahead, to_the_last=last_call)
            taken += count
            await asyncio.sleep(0)
        if due <= until and not taken:
            self._outlook.in_vain()
        return taken > 0

    def _sleep(self, since: int, due: datetime | None, now: datetime) -> Rest:
        rest = self._time.rest_of(self._poll)
        look = due if due is None or self._outlook is None else self._outlook.next_look(due, now)
        if look is None or (look - now).total_seconds() > rest:
            return Within(since=since, seconds=rest)
        if look == due:
            # On waking there is no need to ask again what is due, unless something has changed.
            self._due, self._due_since = due, since
        return Until(since=since, moment=look)

    async def _fire(
        self, limit: int, ahead: timedelta = NOT, *, to_the_last: bool = False
    ) -> tuple[bool, int]:
        """One batch: whether more are due, and how many cursors moved. `to_the_last`: what is taken
        ahead may have all places."""
        began = self._clock.monotonic()
        with self._offer() as reserved:
            free = reserved.free
            if ahead > NOT and self._capacity is not None and not to_the_last:
                free -= min(self._capacity.total // 10, LEFT_FREE)
            if ahead > NOT and free <= 0:
                return False, 0
            fired = await self._store.fire_due(
                self._planner, limit=limit, places=self._places(free), ahead=max(ahead, NOT)
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
        runs = fired.claimed + fired.others
        firings = tuple(plan for before, plan in fired.plans if _moves_cursor(before, plan))
        seconds = self._clock.monotonic() - began
        if firings or runs:
            self._events.emit(SchedulesFired(firings=firings, runs=runs, seconds=seconds))
        moved = len(firings) + len(fired.broken)
        self._cap.fired(moved)
        if ahead > NOT and self._outlook is not None:
            self._outlook.took(moved, seconds)
            self._outlook.left_over = 0 < moved == free
        return fired.more, moved

    def _offer(self) -> AbstractContextManager[Reserved]:
        capacity = self._capacity
        if capacity is None or capacity.backlog or not self._membership.trusted:
            return nullcontext(Reserved(0))
        return capacity.reserve()

    def _places(self, free: int) -> ClaimRequest | None:
        if not free or self._capacity is None:
            return None
        return ClaimRequest(
            node_id=self._membership.node_id,
            offers=self._capacity.pool.offers,
            free=free,
        )


def _moves_cursor(before: Schedule, plan: AnyFiring) -> bool:
    """Whether a slot was used up; a put-off schedule only gets a later due time."""
    return isinstance(plan, OnTime) or (
        plan.schedule.next_run_at != before.next_run_at and not is_put_off(before, plan)
    )
