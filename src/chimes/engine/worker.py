"""The worker's duty: fill the free places of one pool from the queue. One claim loop per pool and
process; what it brings fans out in memory (PERFORMANCE)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from chimes.engine.capacity import Capacity
from chimes.engine.executor import Executor
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import After, AtOnce, GoOn, Rest, Told, Until, Within
from chimes.failpoints import hit
from chimes.store.port import ClaimRequest, Store

#: Seconds of rest after a claim that brought nothing although something was there.
IN_VAIN = 0.02


class Worker:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        hands: Executor,
        capacity: Capacity,
        *,
        time: StoreClock,
        poll: timedelta,
    ) -> None:
        self.name = capacity.pool.name
        self._store = store
        self._membership = membership
        self._hands = hands
        self._capacity = capacity
        self._time = time
        self._poll = poll
        self._in_vain = False
        #: Of a claim: half of the places, so that the store looks for the next runs while those
        #: of the last claim are carried out.
        self._most = max(1, (capacity.total + 1) // 2)

    async def once(self) -> Rest:
        since = self._store.changes()
        if not self._membership.trusted:
            # Not until the store says so: it may be the one that does not answer (F21).
            return After(self._time.rest_of(self._poll))
        if not self._capacity.offers:
            return After(self._time.rest_of(self._poll))
        if not self._capacity.free:
            return Told(event=self._capacity.room)
        if not self._capacity.backlog:
            # Nothing was left at the last claim: looking is cheaper than trying to take.
            rest = await self._nothing(since)
            if rest is not None:
                return rest
        with self._capacity.reserve(self._most) as reserved:
            if not reserved.free:
                return Told(event=self._capacity.room)
            runs = await self._store.claim(self._places(reserved.free))
            if runs:
                hit("claim.after")
            reserved.used = self._hands.take(runs, self._capacity)
        self._capacity.backlog = len(runs) == reserved.free
        self._in_vain = not runs
        more = self._capacity.backlog and reserved.used and self._capacity.free
        return GoOn() if more else AtOnce()

    async def _nothing(self, since: int) -> Rest | None:
        """Until when to rest; None: there is something to claim now."""
        now = await self._time.recent()
        available = await self._store.next_available()
        if available is not None and available <= now:
            now = await self._time.ask()
        in_vain, self._in_vain = self._in_vain, False
        poll = Within(since=since, seconds=self._time.rest_of(self._poll))
        if available is not None and now < available < now + timedelta(seconds=poll.seconds):
            return Until(since=since, moment=available)
        if available is None or available > now:
            return poll
        if not in_vain:
            return None
        # What the last claim left over is of a kind that this node does not know, or that has
        # places of another pool. However much changes there, it is not asked for all the time.
        await asyncio.sleep(IN_VAIN)
        return poll

    def _places(self, free: int) -> ClaimRequest:
        return ClaimRequest(
            node_id=self._membership.node_id, offers=self._capacity.offers, free=free
        )
