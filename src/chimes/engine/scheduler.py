"""The scheduler turns due schedules into runs, then sleeps until the next one is due."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

from chimes.clock import Clock
from chimes.engine.events import Events, ScheduleBroken, SchedulesFired
from chimes.engine.executor import Executor
from chimes.engine.in_flight import Capacity, Reservation
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import NextPoll, PollAfter, PollAtTime, PollNow, PollOnChange
from chimes.engine.prefetch import FULL_CAPACITY_LEAD, PrefetchPlanner
from chimes.failpoints import hit
from chimes.model.planning import FirePlan, Planner, plan
from chimes.model.schedule import Schedule
from chimes.services.schedules.prompts import is_postponed
from chimes.store.port import ClaimRequest, PrefetchStore, Store

#: Schedules in one transaction: in a larger one the first would wait long for the last.
BATCH = 200
#: Prefetched runs leave a tenth of the permits free for runs that come meanwhile, at most so many.
MAX_KEPT_FREE = 20
ZERO = timedelta(0)


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
        executor: Executor | None = None,
        capacities: Sequence[Capacity] = (),
        max_per_tick: int = 0,
        tick: timedelta = timedelta(seconds=15),
        planner: Planner = plan,
    ) -> None:
        """The first of the capacities takes runs as they are fired; without an executor all runs
        are queued. `max_per_tick`: schedules fired in a `tick`; 0: no limit."""
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._poll = poll
        self._executor = executor
        self._capacity = capacities[0] if executor is not None else None
        self._capacities = capacities
        self._rate_limit = RateLimit(clock, limit=max_per_tick, period=tick.total_seconds())
        self._planner = planner
        #: The next due time, valid while the store's change counter is `_due_since`.
        self._due = datetime.max.replace(tzinfo=UTC)
        self._due_since: int | None = None
        #: None: nothing is claimed before its time.
        self._prefetch: PrefetchPlanner | None = None
        if executor is not None and executor.prefetched is not None and not max_per_tick:
            assert isinstance(store, PrefetchStore)
            self._prefetch = PrefetchPlanner(store, clock)

    async def run_once(self) -> NextPoll:
        since = self._store.changes()
        known_due = self._due_since == since and self._time.now() >= self._due
        self._due_since = None
        if not known_due:
            due = await self._store.next_due()
            now = await self._time.recent()
            if due is not None and due <= now:
                now = await self._time.fetch_now()
            if due is None or due > now:
                if due is not None and await self._prefetch_batch(due, now):
                    return PollNow()
                return self._sleep(since, due, now)
        more, progress = True, False
        while more:
            limit = self._rate_limit.allowance(BATCH)
            if not limit:
                return PollAfter(self._rate_limit.seconds_to_wait())
            more, count = await self._fire(limit)
            progress |= count > 0
            await asyncio.sleep(0)
        # Schedules that are due and do not move are tried again, but not in a busy loop.
        return PollNow() if progress or known_due else PollAfter(self._poll.total_seconds())

    async def _prefetch_batch(self, due: datetime, now: datetime) -> bool:
        """Whether anything was claimed before its time."""
        if self._prefetch is None or due - now > self._prefetch.max_lead:
            return False
        horizon = await self._prefetch.horizon(now)
        fired, more = 0, due <= horizon
        use_all = due - now <= FULL_CAPACITY_LEAD
        while more:
            lead = horizon - self._time.now()
            more, count = await self._fire(BATCH, lead=lead, use_all_permits=use_all)
            fired += count
            await asyncio.sleep(0)
        if due <= horizon and not fired:
            self._prefetch.pause()
        return fired > 0

    def _sleep(self, since: int, due: datetime | None, now: datetime) -> NextPoll:
        seconds = self._time.seconds_to_tick(self._poll)
        check = due
        if due is not None and self._prefetch is not None:
            check = self._prefetch.next_check(due, now)
        if check is None or (check - now).total_seconds() > seconds:
            return PollOnChange(since=since, seconds=seconds)
        if check == due:
            # The next pass need not ask what is due, unless something has changed.
            self._due, self._due_since = due, since
        return PollAtTime(since=since, moment=check)

    async def _fire(
        self, limit: int, lead: timedelta = ZERO, *, use_all_permits: bool = False
    ) -> tuple[bool, int]:
        """Fires one batch: whether more are due, and how many schedules moved on. With a `lead`,
        schedules that come due within it are prefetched."""
        prefetching = lead > ZERO
        began = self._clock.monotonic()
        with self._reserve() as reservation:
            free = reservation.free
            if prefetching and self._capacity is not None and not use_all_permits:
                free -= min(self._capacity.total // 10, MAX_KEPT_FREE)
            if prefetching and free <= 0:
                return False, 0
            fired = await self._store.fire_due(
                self._planner, limit=limit, request=self._request(free), prefetch=max(lead, ZERO)
            )
            if fired.claimed or fired.others:
                hit("fire.after")
            if self._executor is not None and self._capacity is not None:
                reservation.used = self._executor.accept(fired.claimed, self._capacity)
        queued = {run.target.requirement for run in fired.others if run.claimable}
        for capacity in self._capacities:
            capacity.backlog |= not queued.isdisjoint(capacity.pool.capabilities)
        for schedule in fired.broken:
            self._events.emit(ScheduleBroken(schedule=schedule))
        runs = fired.claimed + fired.others
        plans = tuple(plan for before, plan in fired.plans if _moves_cursor(before, plan))
        seconds = self._clock.monotonic() - began
        if plans or runs:
            self._events.emit(SchedulesFired(plans=plans, runs=runs, seconds=seconds))
        moved = len(plans) + len(fired.broken)
        self._rate_limit.record(moved)
        if prefetching and self._prefetch is not None:
            self._prefetch.observe(moved, seconds)
            self._prefetch.incomplete = 0 < moved == free
        return fired.more, moved

    def _reserve(self) -> AbstractContextManager[Reservation]:
        capacity = self._capacity
        if capacity is None or capacity.backlog or not self._membership.trusted:
            return nullcontext(Reservation(0))
        return capacity.reserve()

    def _request(self, free: int) -> ClaimRequest | None:
        if not free or self._capacity is None:
            return None
        return ClaimRequest(
            node_id=self._membership.node_id,
            capabilities=self._capacity.pool.capabilities,
            free=free,
        )


def _moves_cursor(before: Schedule, plan: FirePlan) -> bool:
    """Whether a slot was used up; a postponed schedule only gets a later due time."""
    return plan.on_time or (
        plan.schedule.next_run_at != before.next_run_at and not is_postponed(before, plan)
    )


class RateLimit:
    """At most `limit` in any period, as a sliding window; 0: no limit."""

    def __init__(self, clock: Clock, *, limit: int, period: float) -> None:
        self._clock = clock
        self._limit = limit
        self._period = period
        self._recent: deque[tuple[float, int]] = deque()

    def allowance(self, batch: int) -> int:
        """How many of a batch are allowed now."""
        if not self._limit:
            return batch
        since = self._clock.monotonic() - self._period
        while self._recent and self._recent[0][0] <= since:
            self._recent.popleft()
        return max(0, min(batch, self._limit - sum(count for _, count in self._recent)))

    def record(self, count: int) -> None:
        if self._limit and count:
            self._recent.append((self._clock.monotonic(), count))

    def seconds_to_wait(self) -> float:
        """Until there is an allowance again."""
        oldest = self._recent[0][0] if self._recent else self._clock.monotonic()
        return max(0.0, oldest + self._period - self._clock.monotonic())
