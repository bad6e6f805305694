"""The worker claims queued runs up to the free permits of one pool.

Each process has one claim loop per pool; the executor distributes the claimed runs in memory.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from chimes.engine.executor import Executor
from chimes.engine.in_flight import Capacity
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import (
    NextPoll,
    PollAfter,
    PollAtTime,
    PollNow,
    PollOnChange,
    PollOnEvent,
    PollWithoutYield,
)
from chimes.failpoints import hit
from chimes.store.port import ClaimRequest, Store

#: Seconds of pause after a claim that returned nothing although runs were available.
EMPTY_CLAIM_PAUSE = 0.02


def claim_limit(permits: int) -> int:
    """Half of the permits, so that the store selects the next runs while those of the last claim
    execute."""
    return max(1, (permits + 1) // 2)


class Worker:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        executor: Executor,
        capacity: Capacity,
        *,
        time: StoreClock,
        poll: timedelta,
    ) -> None:
        self.name = capacity.pool.name
        self._store = store
        self._membership = membership
        self._executor = executor
        self._capacity = capacity
        self._time = time
        self._poll = poll
        self._last_claim_empty = False
        self._claim_limit = claim_limit(capacity.total)

    async def run_once(self) -> NextPoll:
        since = self._store.changes()
        capacity = self._capacity
        # Without a trusted lease the store may be unavailable, so its wake-ups are not relied on.
        if not self._membership.trusted or not capacity.capabilities:
            return PollAfter(self._time.seconds_to_tick(self._poll))
        if not capacity.free:
            return PollOnEvent(event=capacity.available)
        if not capacity.backlog:
            # The last claim emptied the queue, and a read is cheaper than a claim.
            next_poll = await self._wait_for_run(since)
            if next_poll is not None:
                return next_poll
        with capacity.reserve(self._claim_limit) as reservation:
            if not reservation.free:
                return PollOnEvent(event=capacity.available)
            runs = await self._store.claim(self._request(reservation.free))
            if runs:
                hit("claim.after")
            reservation.used = self._executor.accept(runs, capacity)
        capacity.backlog = len(runs) == reservation.free
        self._last_claim_empty = not runs
        more = capacity.backlog and reservation.used and capacity.free
        return PollWithoutYield() if more else PollNow()

    async def _wait_for_run(self, since: int) -> NextPoll | None:
        """None: there is a run to claim now."""
        now = await self._time.recent()
        available = await self._store.next_available()
        if available is not None and available <= now:
            now = await self._time.fetch_now()
        last_claim_empty, self._last_claim_empty = self._last_claim_empty, False
        poll = PollOnChange(since=since, seconds=self._time.seconds_to_tick(self._poll))
        if available is not None and now < available < now + timedelta(seconds=poll.seconds):
            return PollAtTime(since=since, moment=available)
        if available is None or available > now:
            return poll
        if not last_claim_empty:
            return None
        # The available runs require what this node or this pool cannot execute: other changes of
        # the queue must not make it claim in a loop.
        await asyncio.sleep(EMPTY_CLAIM_PAUSE)
        return poll

    def _request(self, free: int) -> ClaimRequest:
        return ClaimRequest(
            node_id=self._membership.node_id, capabilities=self._capacity.capabilities, free=free
        )
