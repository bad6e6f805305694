"""Prefetch: claims a large batch of runs shortly before it is due (ADR 22).

`PrefetchPlanner` decides how far ahead the scheduler looks: each schedule that comes due costs
the time that claiming one took lately, so a larger batch starts earlier. `PrefetchQueue` holds
the claimed runs until their planned time.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.in_flight import InFlightRun
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollOnEvent
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.store.port import PrefetchStore, PrefetchWindow

#: How long before its time a batch of any size is claimed, and a large one at most.
MIN_LEAD = timedelta(seconds=1.5)
MAX_LEAD = timedelta(seconds=5)
#: Seconds between two questions to the store about what comes due.
QUERY_INTERVAL = 0.25
#: Reserve, so that a batch is claimed before it can no longer be changed.
SAFETY_MARGIN = timedelta(milliseconds=400)
#: From here on a batch may also use the permits that were kept free for other runs: few of those
#: still come, and the rest of the batch would start late.
FULL_CAPACITY_LEAD = timedelta(milliseconds=250)
#: Estimated seconds to claim one schedule: the initial value and its bounds.
INITIAL_COST, MIN_COST, MAX_COST = 200e-6, 20e-6, 2e-3
#: Smaller batches say little about the cost of one schedule.
MIN_SAMPLE = 50
#: Weight of a new sample in the moving average.
SMOOTHING = 0.2
#: Batches differ: the estimate is raised by this factor.
COST_MARGIN = 1.25


class PrefetchPlanner:
    def __init__(self, store: PrefetchStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cost = INITIAL_COST
        self._queried = -math.inf
        self._paused_until = -math.inf
        #: The last `horizon` fell into the pause.
        self._deferred = False
        self._pressing: PrefetchWindow | None = None
        #: Part of a batch found no permit.
        self.incomplete = False

    @property
    def max_lead(self) -> timedelta:
        return max(MIN_LEAD, MAX_LEAD)

    def observe(self, schedules: int, seconds: float) -> None:
        """Learns from one claimed batch."""
        if schedules >= MIN_SAMPLE:
            cost = min(max(seconds / schedules, MIN_COST), MAX_COST)
            self._cost += SMOOTHING * (cost - self._cost)

    def pause(self) -> None:
        """Nothing could be claimed: waits before the next try."""
        self._paused_until = self._clock.monotonic() + QUERY_INTERVAL

    async def horizon(self, now: datetime) -> datetime:
        """Up to which due time a batch is to be claimed now."""
        monotonic = self._clock.monotonic()
        self._deferred = monotonic < self._paused_until
        if self._deferred:
            return now
        if monotonic - self._queried >= QUERY_INTERVAL:
            each = timedelta(seconds=self._cost * COST_MARGIN)
            self._pressing = await self._store.next_prefetch(self.max_lead, each)
            self._queried = monotonic
        next_prefetch = self._pressing
        if next_prefetch is None or now < self._start(next_prefetch):
            return now + MIN_LEAD
        return max(now + MIN_LEAD, next_prefetch.due)

    def next_check(self, due: datetime, now: datetime) -> datetime:
        """When to look again if the next schedule is due at `due` and nothing changes."""
        times = [due - self.max_lead, due - MIN_LEAD]
        if self._pressing is not None:
            times.append(self._start(self._pressing))
        if self.incomplete:
            times.append(due - FULL_CAPACITY_LEAD)
        if self._deferred:
            times.append(now + timedelta(seconds=self._paused_until - self._clock.monotonic()))
        return min((each for each in times if each > now), default=due)

    @staticmethod
    def _start(next_prefetch: PrefetchWindow) -> datetime:
        return next_prefetch.begin_by - PREFETCH_CUTOFF - SAFETY_MARGIN


#: Runs in one confirmation, and concurrent confirmations: a batch has a tenth of a second between
#: closing and its time.
CONFIRM_BATCH = 1000
CONFIRM_CONCURRENCY = 2


class PrefetchQueue:
    """Prefetched runs that wait for their planned time, each with its permit.

    Until shortly before that time an edit of the schedule may take a run back. Then the store
    confirms which runs are final, and these start at their time by the store's clock, never
    earlier. Confirmation of any other run is requested again at its time: it starts late, or is
    dropped because it was taken back."""

    name = "prefetch"

    def __init__(
        self,
        store: PrefetchStore,
        time: StoreClock,
        *,
        start: Callable[[Sequence[InFlightRun]], None],
        drop: Callable[[InFlightRun], None],
    ) -> None:
        """`start` gets the runs in the order in which they start."""
        self._store = store
        self._time = time
        self._start = start
        self._drop = drop
        self._added = asyncio.Event()
        #: By planned time: not asked about yet, and not confirmed when asked.
        self._new: dict[datetime, list[InFlightRun]] = {}
        self._unconfirmed: dict[datetime, list[InFlightRun]] = {}
        #: By planned time and rank.
        self._confirmed: dict[datetime, dict[int, list[InFlightRun]]] = {}
        #: Planned times that have a timer.
        self._armed: set[datetime] = set()

    def add(self, attempt: InFlightRun) -> None:
        attempt.prefetched = True
        self._new.setdefault(attempt.run.planned_at, []).append(attempt)
        self._added.set()

    async def run_once(self) -> NextPoll:
        self._added.clear()
        for moment in [each for each in self._new if self._is_closed(each)]:
            await self._time.recent()
            # More may have been added since the last answer.
            while waiting := self._new[moment]:
                confirmations = (
                    self._confirm_all(moment, waiting) for _ in range(CONFIRM_CONCURRENCY)
                )
                failures = await asyncio.gather(*confirmations, return_exceptions=True)
                if failed := next((each for each in failures if each is not None), None):
                    raise failed
            del self._new[moment]
        for moment in [each for each in self._unconfirmed if self._is_due(each)]:
            await self._confirm_again(moment)
        return PollOnEvent(event=self._added, seconds=self._seconds_to_next())

    async def _confirm_all(self, moment: datetime, waiting: list[InFlightRun]) -> None:
        """`waiting` may grow meanwhile."""
        while waiting:
            batch = waiting[:CONFIRM_BATCH]
            del waiting[:CONFIRM_BATCH]
            try:
                confirmed, unconfirmed = await self._ask(batch)
            except BaseException:
                waiting[:0] = batch
                raise
            for attempt in confirmed:
                self._schedule(attempt)
            if unconfirmed:
                self._unconfirmed.setdefault(moment, []).extend(unconfirmed)

    async def _confirm_again(self, moment: datetime) -> None:
        confirmed, unconfirmed = await self._ask(self._unconfirmed[moment])
        del self._unconfirmed[moment]
        for attempt in confirmed:
            self._schedule(attempt)
        for attempt in unconfirmed:
            self._drop(attempt)

    async def _ask(
        self, attempts: list[InFlightRun]
    ) -> tuple[list[InFlightRun], list[InFlightRun]]:
        """Confirmed and unconfirmed ones, without those that were stopped. The claim includes the
        fence: a slot that was taken back may have been claimed again, also by this node."""
        answer = await self._store.confirm_prefetched(
            [each.claim for each in attempts if not each.finished]
        )
        left = [each for each in attempts if not each.finished]
        confirmed = [each for each in left if each.claim in answer]
        return confirmed, [each for each in left if each.claim not in answer]

    def _schedule(self, attempt: InFlightRun) -> None:
        moment = attempt.run.planned_at
        self._confirmed.setdefault(moment, {}).setdefault(attempt.run.rank, []).append(attempt)
        # Also for a run that is confirmed after the others have started.
        if moment not in self._armed:
            self._armed.add(moment)
            self._set_timer(moment)

    def _set_timer(self, moment: datetime) -> None:
        seconds = max(0.0, self._time.seconds_until(moment))
        asyncio.get_running_loop().call_later(seconds, self._start_due, moment)

    def _start_due(self, moment: datetime) -> None:
        if not self._is_due(moment):
            self._set_timer(moment)
            return
        self._armed.discard(moment)
        ranks = self._confirmed.pop(moment, {})
        # A collection would delay the last runs of the batch; it resumes behind their first steps.
        collecting = gc.isenabled()
        gc.disable()
        self._start([attempt for rank in sorted(ranks, reverse=True) for attempt in ranks[rank]])
        if collecting:
            asyncio.get_running_loop().call_soon(gc.enable)

    def _is_closed(self, moment: datetime) -> bool:
        return self._time.seconds_until(moment - PREFETCH_CUTOFF) <= 0

    def _is_due(self, moment: datetime) -> bool:
        return self._time.seconds_until(moment) <= 0

    def _seconds_to_next(self) -> float | None:
        times = [each - PREFETCH_CUTOFF for each in self._new] + list(self._unconfirmed)
        return max(0.0, self._time.seconds_until(min(times))) if times else None
