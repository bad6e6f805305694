"""Compares in-flight runs with the store: stops canceled and lost ones, releases unstarted ones.

It also finds runs that the store gave this node in a claim whose answer was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

from chimes.clock import Clock
from chimes.engine.executor import STUCK_AFTER, Executor
from chimes.engine.in_flight import Capacity, StopReason
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import NextPoll, PollAtTime, PollNow, PollOnEvent
from chimes.model.listing import RunQuery
from chimes.model.run import Reason, Run, RunStatus
from chimes.store.port import Store

#: Minimum seconds between two passes, however much changes in the store.
SPACING = 0.25
#: Seconds after which a node without executing runs checks all the same: a claim whose answer was
#: lost may be committed after the last check.
IDLE_INTERVAL = 30.0


class Reconciler:
    name = "reconciler"

    def __init__(
        self,
        store: Store,
        membership: Membership,
        executor: Executor,
        capacities: Sequence[Capacity],
        *,
        clock: Clock,
        time: StoreClock,
        poll: timedelta,
    ) -> None:
        self._store = store
        self._membership = membership
        self._executor = executor
        self._capacities = capacities
        self._clock = clock
        self._time = time
        self._poll = poll
        self._reconciled = clock.monotonic()

    async def run_once(self) -> NextPoll:
        since = self._store.changes()
        await self.release_unstarted()
        # The prefetch queue checks its runs itself.
        in_doubt = any(capacity.claim_in_doubt for capacity in self._capacities)
        left = IDLE_INTERVAL - (self._clock.monotonic() - self._reconciled)
        if self._executor.only_prefetched and not in_doubt and left > 0:
            self._executor.reconcile.clear()
            return PollOnEvent(event=self._executor.reconcile, seconds=left)
        await self._reconcile()
        self._reconciled = self._clock.monotonic()
        return PollAtTime(since=since, moment=self._time.now() + self._poll)

    async def release_unstarted(self) -> None:
        claims = self._executor.releasable
        if claims:
            await self._store.release(claims)
            self._executor.forget_released(claims)

    async def _reconcile(self) -> None:
        before, abandoned = self._executor.executing, self._executor.abandoned
        claims = {each: each.claims for each in self._capacities if not each.is_claiming}
        query = RunQuery(holder=self._membership.node_id, statuses=(RunStatus.RUNNING,), limit=None)
        rows = (await self._store.list_runs(query)).items
        owned = {(run.id, run.fence): run for run in rows}
        after = self._executor.executing
        for claim, attempt in before.items():
            row = owned.get(claim)
            if claim not in after:
                continue
            if row is None:
                if not attempt.self_completing:
                    self._executor.stop(attempt, StopReason.LOST)
            elif row.cancel_requested:
                reason = row.reason or Reason.CANCELED_BY_HAND
                self._executor.stop(attempt, StopReason.CANCEL, reason)
        self._executor.forget_abandoned(abandoned - owned.keys())
        for capacity in self._capacities:
            # A run is a stray only if no claim was under way when the store was read.
            if claims.get(capacity) == capacity.claims:
                await self._release_strays(rows, capacity.pool.capabilities)
                capacity.claim_in_doubt = False

    async def _release_strays(self, rows: Sequence[Run], capabilities: frozenset[str]) -> None:
        """Releases unstarted runs of this node that it does not know of."""
        strays = [
            (run.id, run.fence)
            for run in rows
            if run.target.requirement in capabilities
            and not run.started
            and not self._executor.tracks(run)
        ]
        if strays:
            await self._store.release(strays)


class LeaseRecovery:
    """Stops all runs when the lease can no longer be trusted, then joins again."""

    name = "lease recovery"

    def __init__(self, store: Store, membership: Membership, executor: Executor) -> None:
        self._store = store
        self._membership = membership
        self._executor = executor

    async def run_once(self) -> NextPoll:
        lost = self._membership.lost
        if not lost.is_set():
            return PollOnEvent(event=lost)
        stuck = self._executor.stuck_total
        self._executor.stop_all(StopReason.LOST)
        # A completion that still reaches the store in time saves its run another attempt.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STUCK_AFTER + 1):
                await self._executor.empty.wait()
        if self._executor.stuck_total == stuck and self._executor.empty.is_set():
            # Nothing of the old lease continues, so no node has to wait for its end. With an
            # unwritten completion the lease stays: leaving would repeat its run.
            await self._store.leave(self._membership.node_id)
        await self._membership.join()
        return PollNow()
