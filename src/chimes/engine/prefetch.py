"""How far ahead a node looks: the larger the crowd, the further (ADR 22).

A crowd has to be in hand before it closes. So what comes due is laid out in its order, each with
the time that taking it has cost here of late: that tells when to begin with it.
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
from chimes.model.ids import RunId
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.store.port import LookingAhead, Pressing

#: A crowd of any size is taken so long before its time; a large one earlier, but not more than
#: this.
AHEAD = timedelta(seconds=1.5)
FURTHEST = timedelta(seconds=5)
#: Seconds between two questions what is to come, however much changes.
ASK_AGAIN = 0.25
#: To be through before it closes, whatever else turns up.
TO_SPARE = timedelta(milliseconds=400)
#: So shortly before its time a crowd gets the places too that were left to what comes meanwhile:
#: hardly anything comes any more, and the rest of the crowd would be late.
LAST_CALL = timedelta(milliseconds=250)
#: Seconds that taking one schedule costs: before anything is known, and what is believed at all.
COST, LEAST_COST, MOST_COST = 200e-6, 20e-6, 2e-3
#: Fewer in one batch say little about what one costs.
TELLING = 50
#: How much of a new figure counts.
WEIGHT = 0.2
#: Crowds are not as even as the last one.
CAUTION = 1.25


class PrefetchPlanner:
    def __init__(self, store: LookingAhead, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cost = COST
        self._asked = -math.inf
        #: PollAtTime then there is nothing to be taken, as far as is known; whether somebody has asked
        #: meanwhile.
        self._pause_until = -math.inf
        self._put_off = False
        self._pressing: Pressing | None = None
        #: A part of a crowd found no place.
        self.left_over = False

    @property
    def furthest(self) -> timedelta:
        return max(AHEAD, FURTHEST)

    def took(self, schedules: int, seconds: float) -> None:
        """A batch of a crowd."""
        if schedules >= TELLING:
            cost = min(max(seconds / schedules, LEAST_COST), MOST_COST)
            self._cost += WEIGHT * (cost - self._cost)

    def in_vain(self) -> None:
        """Nothing of what was in sight could be taken: it is left alone for a moment."""
        self._pause_until = self._clock.monotonic() + ASK_AGAIN

    async def until(self, now: datetime) -> datetime:
        """What is due by then is to be taken now, if it is a crowd."""
        asked = self._clock.monotonic()
        self._put_off = asked < self._pause_until
        if self._put_off:
            return now
        if asked - self._asked >= ASK_AGAIN:
            each = timedelta(seconds=self._cost * CAUTION)
            self._pressing = await self._store.pressing(self.furthest, each)
            self._asked = asked
        pressing = self._pressing
        if pressing is None or now < self._begin(pressing):
            return now + AHEAD
        return max(now + AHEAD, pressing.due)

    def next_look(self, due: datetime, now: datetime) -> datetime:
        """When to look again, if the next is due then and nothing changes; `due`: no more before
        it."""
        times = [due - self.furthest, due - AHEAD]
        if self._pressing is not None:
            times.append(self._begin(self._pressing))
        if self.left_over:
            times.append(due - LAST_CALL)
        if self._put_off:
            times.append(now + timedelta(seconds=self._pause_until - self._clock.monotonic()))
        return min((each for each in times if each > now), default=due)

    @staticmethod
    def _begin(pressing: Pressing) -> datetime:
        return pressing.begin_by - PREFETCH_CUTOFF - TO_SPARE


# @@ Where runs wait that were claimed ahead of their time, each with its place and ready to go.
#
# Shortly before their time the store is asked which of them nothing takes back any more; at their
# time, by the store's clock and never before, all of those go at once. Of one that was not among
# them the store is asked once more then; it goes late, or is let go: somebody took it back.

#: Runs in one question, and questions at once: between closing and its time a crowd has a tenth of
#: a second for all of them.
BATCH = 1000
AT_ONCE = 2


class PrefetchQueue:
    name = "waiting room"

    def __init__(
        self,
        store: LookingAhead,
        time: StoreClock,
        *,
        go: Callable[[Sequence[InFlightRun]], None],
        turn_away: Callable[[InFlightRun], None],
    ) -> None:
        """`go` begins with them, in their order."""
        self._store = store
        self._time = time
        self._go = go
        self._turn_away = turn_away
        self._arrived = asyncio.Event()
        #: By the moment they are planned for: not asked about, and asked about in vain.
        self._new: dict[datetime, list[InFlightRun]] = {}
        self._doubtful: dict[datetime, list[InFlightRun]] = {}
        #: Those that nothing takes back any more, by moment and rank.
        self._sure: dict[datetime, dict[int, list[InFlightRun]]] = {}
        self._armed: set[datetime] = set()

    def admit(self, hold: InFlightRun) -> None:
        hold.waiting = True
        self._new.setdefault(hold.run.planned_at, []).append(hold)
        self._arrived.set()

    async def once(self) -> NextPoll:
        self._arrived.clear()
        for moment in [each for each in self._new if self._closed(each)]:
            await self._time.recent()
            # Others may have come in after the last answer.
            while waiting := self._new[moment]:
                asking = (self._ask_all(moment, waiting) for _ in range(AT_ONCE))
                failures = await asyncio.gather(*asking, return_exceptions=True)
                if failed := next((each for each in failures if each is not None), None):
                    raise failed
            del self._new[moment]
        for moment in [each for each in self._doubtful if self._come(each)]:
            await self._ask_again(moment)
        return PollOnEvent(event=self._arrived, seconds=self._rest())

    async def _ask_all(self, moment: datetime, waiting: list[InFlightRun]) -> None:
        """Others may come in meanwhile."""
        while waiting:
            asked = waiting[:BATCH]
            del waiting[:BATCH]
            try:
                sure, unsure = await self._answers(asked)
            except BaseException:
                waiting[:0] = asked
                raise
            for hold in sure:
                self._confirm(hold)
            if unsure:
                self._doubtful.setdefault(moment, []).extend(unsure)

    async def _ask_again(self, moment: datetime) -> None:
        sure, unsure = await self._answers(self._doubtful[moment])
        del self._doubtful[moment]
        for hold in sure:
            self._confirm(hold)
        for hold in unsure:
            self._turn_away(hold)

    async def _answers(
        self, holds: list[InFlightRun]
    ) -> tuple[list[InFlightRun], list[InFlightRun]]:
        """Without those that have been stopped."""
        answer = await self._store.confirm([_claim(each) for each in holds if not each.handed_over])
        left = [hold for hold in holds if not hold.handed_over]
        sure = [hold for hold in left if _claim(hold) in answer]
        return sure, [hold for hold in left if _claim(hold) not in answer]

    def _confirm(self, hold: InFlightRun) -> None:
        moment = hold.run.planned_at
        self._sure.setdefault(moment, {}).setdefault(hold.run.rank, []).append(hold)
        # Also for one that comes after the others have gone.
        self._arm(moment)

    # --- going --------------------------------------------------------------------------------
    def _arm(self, moment: datetime) -> None:
        if moment not in self._armed:
            self._armed.add(moment)
            self._later(moment)

    def _later(self, moment: datetime) -> None:
        seconds = max(0.0, self._time.seconds_until(moment))
        asyncio.get_running_loop().call_later(seconds, self._open, moment)

    def _open(self, moment: datetime) -> None:
        if not self._come(moment):
            self._later(moment)
            return
        self._armed.discard(moment)
        ranks = self._sure.pop(moment, {})
        tidying = gc.isenabled()
        gc.disable()
        self._go([hold for rank in sorted(ranks, reverse=True) for hold in ranks[rank]])
        if tidying:
            # Behind the last of them: it would hold up those that come after it.
            asyncio.get_running_loop().call_soon(gc.enable)

    # --- time ---------------------------------------------------------------------------------
    def _closed(self, moment: datetime) -> bool:
        return self._time.seconds_until(moment - PREFETCH_CUTOFF) <= 0

    def _come(self, moment: datetime) -> bool:
        return self._time.seconds_until(moment) <= 0

    def _rest(self) -> float | None:
        times = [each - PREFETCH_CUTOFF for each in self._new] + list(self._doubtful)
        return max(0.0, self._time.seconds_until(min(times))) if times else None


def _claim(hold: InFlightRun) -> tuple[RunId, int]:
    """By the fence too: a slot that was taken back may have been taken again, by this node."""
    return hold.run.id, hold.run.fence
