"""Looks after the runs in hand: stops those that somebody asked to cancel or took away, gives
back those that cannot begin, and finds runs that the store gave this node without its knowing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

from chimes.clock import Clock
from chimes.engine.capacity import Capacity
from chimes.engine.executor import STUCK_AFTER, Executor
from chimes.engine.in_flight import Stop
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import AtOnce, Rest, Told, Until
from chimes.model.listing import RunQuery
from chimes.model.run import Reason, Run, RunStatus
from chimes.store.port import Store

#: At least this many seconds lie between two looks, however much is going on in the store.
SPACING = 0.25
#: Seconds after which a node that carries nothing out looks all the same: a claim whose answer was
#: lost may come true after everybody has looked for it.
IDLE_LOOK = 30.0


class Reconciler:
    name = "oversight"

    def __init__(
        self,
        store: Store,
        membership: Membership,
        hands: Executor,
        capacities: Sequence[Capacity],
        *,
        clock: Clock,
        time: StoreClock,
        poll: timedelta,
    ) -> None:
        self._store = store
        self._membership = membership
        self._hands = hands
        self._capacities = capacities
        self._clock = clock
        self._time = time
        self._poll = poll
        self._looked_at = clock.monotonic()

    async def once(self) -> Rest:
        since = self._store.changes()
        await self.give_back()
        # Whether what waits for its time is still there is asked by the waiting room.
        idle = self._hands.only_waiting and not any(each.doubtful for each in self._capacities)
        left = IDLE_LOOK - (self._clock.monotonic() - self._looked_at)
        if idle and left > 0:
            self._hands.stirred.clear()
            return Told(event=self._hands.stirred, seconds=left)
        await self._look()
        self._looked_at = self._clock.monotonic()
        return Until(since=since, moment=self._time.now() + self._poll)

    async def give_back(self) -> None:
        holds = self._hands.unstarted()
        if holds:
            await self._store.release(holds)
            self._hands.given_back(holds)

    async def _look(self) -> None:
        before, dropped = self._hands.executing, self._hands.dropped
        asked = {each: each.asked for each in self._capacities if not each.asking}
        mine_now = RunQuery(
            holder=self._membership.node_id, statuses=(RunStatus.RUNNING,), limit=None
        )
        rows = (await self._store.list_runs(mine_now)).items
        mine = {(run.id, run.fence): run for run in rows}
        after = self._hands.executing
        for key, hold in before.items():
            row = mine.get(key)
            if key not in after:
                continue
            if row is None:
                if not hold.completing:
                    self._hands.stop(hold, Stop.LOST)
            elif row.cancel_requested:
                self._hands.stop(hold, Stop.CANCEL, row.reason or Reason.CANCELED_BY_HAND)
        self._hands.forget(dropped - mine.keys())
        for capacity in self._capacities:
            # Only while no question for runs is on its way can a run be told to be a stray.
            if asked.get(capacity) == capacity.asked:
                await self._release_strays(rows, capacity.pool.offers)
                capacity.doubtful = False

    async def _release_strays(self, rows: Sequence[Run], offers: frozenset[str]) -> None:
        """Runs that this node does not know of; it has not marked them as started either."""
        strays = [
            (run.id, run.fence)
            for run in rows
            if run.target.needs in offers and not run.started and not self._hands.knows(run)
        ]
        if strays:
            await self._store.release(strays)


# @@ What a node does that may no longer trust its lease: stop everything, then join anew.


class Rejoining:
    name = "rejoining"

    def __init__(self, store: Store, membership: Membership, hands: Executor) -> None:
        self._store = store
        self._membership = membership
        self._hands = hands

    async def once(self) -> Rest:
        lost = self._membership.lost
        if not lost.is_set():
            return Told(event=lost)
        stuck = self._hands.stuck
        self._hands.stop_all(Stop.LOST)
        # Verdicts that still reach the store in time spare their runs another attempt.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hands.empty.wait(), STUCK_AFTER + 1)
        if self._hands.stuck == stuck and self._hands.empty.is_set():
            # Nothing of the old lease goes on here, so nobody has to wait for its end. A verdict
            # that is not written yet may still come in time: leaving would repeat its run.
            await self._store.leave(self._membership.node_id)
        await self._membership.join()
        return AtOnce()
