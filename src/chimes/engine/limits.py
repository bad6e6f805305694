"""Lets claimed runs start under their named limits (ADR 74).

An attempt whose policy names limits enters each of them before its target is called, and leaves
them afterwards. All nodes share the state of a limit, a document that is changed with
compare-and-set; one task per limit and process does so for all its attempts together.

An attempt that cannot start at once waits in the process if it is one of the first, so that it
starts without delay. The others go back to the queue until it is about their turn, so that they
take no permits of the node from other runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chimes.clock import Clock
from chimes.engine.events import BreakerClosed, BreakerOpened, Events, RunDeferred
from chimes.engine.in_flight import Capacity, InFlightRun
from chimes.engine.membership import Membership, StoreClock
from chimes.errors import StoreUnavailable
from chimes.model.access import Owner
from chimes.model.ids import RunId
from chimes.model.limit import (
    Admission,
    BreakerState,
    Limit,
    LimitState,
    Waiter,
    admit,
    breaker_state,
    drop_void,
    give_back,
    leave,
    unknown_limit,
)
from chimes.model.listing import RunQuery
from chimes.model.run import WAITING_PREFIX, AttemptEnd, Outcome, Run, RunStatus
from chimes.services.limits import change_state, limits_for, read_state
from chimes.store.port import Store

#: Seconds for which a definition is remembered.
DEFINITION_SECONDS = 1.0
#: Seconds between two looks at the state while runs wait in the process.
POLL_SECONDS = 0.25
#: Seconds between two checks whether the runs that have permits still run.
CHECK_SECONDS = 1.0
#: The runs that may wait in the process are this part of the permits of their pool.
WAITING_PART = 4
#: Least and most seconds in the queue.
SHORTEST_DEFERRAL, LONGEST_DEFERRAL = 0.2, 60.0
#: Assumed duration of a run under a limit, until some have ended.
FIRST_DURATION = 0.5
RETRY_SECONDS = 0.25
#: Seconds for which a run that has entered a limit waits for another one.
HOLD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Deferral:
    """The run goes back to the queue."""

    reason: str
    seconds: float


REFUSED = Deferral("", 0.0)


@dataclass(slots=True, eq=False)
class _Waiting:
    waiter: Waiter
    capacity: Capacity
    #: None: admitted.
    decided: asyncio.Future[Deferral | None]
    #: It does not wait.
    once: bool


@dataclass(slots=True)
class _Ended:
    """A run that leaves a limit; `started`: its call was made."""

    run_id: RunId
    fence: int
    started: bool
    succeeded: bool | None


def _not_started(waiter: Waiter) -> _Ended:
    return _Ended(waiter.run_id, waiter.fence, started=False, succeeded=None)


class LimitGate:
    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
    ) -> None:
        self._store = store
        self.membership = membership
        self.clock = clock
        self.time = time
        self.events = events
        self._definitions: dict[Owner, tuple[float, Mapping[str, Limit]]] = {}
        self._limits: dict[tuple[Owner | None, str], SharedLimit] = {}
        #: Attempts that wait in the process, by their pool.
        self.waiting: Counter[Capacity] = Counter()

    async def enter(self, attempt: InFlightRun) -> Deferral | None:
        """Waits until the run may start under all its limits; or says how long it goes back to the
        queue.

        A run that has entered some of its limits does not wait for another one for long: it would
        keep runs out that need only the first. It gives back what it has, waits for the limit that
        refused it, and then tries the others."""
        run = attempt.run
        waiter = Waiter(run_id=run.id, fence=run.fence, order=_order(run))
        limits = await self._find(attempt)
        patience = 0.0
        while True:
            refused = await self._enter_all(attempt, waiter, limits, patience)
            if refused is None:
                attempt.limits = tuple(limits)
                return None
            if isinstance(refused, Deferral):
                self.events.emit(RunDeferred(run=run, seconds=refused.seconds))
                return refused
            limits = [refused, *(each for each in limits if each is not refused)]
            patience = HOLD_SECONDS

    async def _enter_all(
        self,
        attempt: InFlightRun,
        waiter: Waiter,
        limits: Sequence[SharedLimit],
        patience: float,
    ) -> Deferral | SharedLimit | None:
        """None: entered. Otherwise the run is in none of them; the limit that refused it is
        returned, or how long the run goes back to the queue."""
        entered: list[SharedLimit] = []
        done = False
        try:
            for limit in limits:
                try:
                    async with asyncio.timeout(patience if entered and patience else None):
                        once = bool(entered) and not patience
                        refused = await limit.enter(waiter, attempt.capacity, once=once)
                except TimeoutError:
                    return limit
                if refused is not None:
                    return limit if refused is REFUSED else refused
                entered.append(limit)
            done = True
            return None
        finally:
            if not done:
                for each in entered:
                    each.leave(_not_started(waiter), None)

    def leave(self, attempt: InFlightRun, outcome: Outcome | None) -> None:
        """The attempt is over."""
        ended = _Ended(
            run_id=attempt.run.id,
            fence=attempt.run.fence,
            started=attempt.started,
            succeeded=None if outcome is None else _SUCCEEDED.get(outcome.end),
        )
        for limit in attempt.limits:
            limit.leave(ended, None if outcome is None else attempt.duration)
        attempt.limits = ()

    async def _find(self, attempt: InFlightRun) -> Sequence[SharedLimit]:
        owner = attempt.run.owner
        known = await self._definitions_of(owner)
        found: list[SharedLimit] = []
        for name in sorted(attempt.run.policy.limits):
            limit = known.get(name)
            if limit is None:
                # Deleted since the schedule was written.
                attempt.add_log("warning", unknown_limit(name))
                continue
            key = limit.owner, name
            shared = self._limits.get(key)
            if shared is None:
                shared = self._limits[key] = SharedLimit(self, self._store, limit)
            shared.limit = limit
            found.append(shared)
        return found

    async def _definitions_of(self, owner: Owner) -> Mapping[str, Limit]:
        read = self._definitions.get(owner)
        now = self.clock.monotonic()
        if read is not None and now - read[0] < DEFINITION_SECONDS:
            return read[1]
        while True:
            with contextlib.suppress(StoreUnavailable):
                known = await limits_for(self._store, owner)
                break
            await asyncio.sleep(RETRY_SECONDS)
        if len(self._definitions) > 1000:
            self._definitions.clear()
        self._definitions[owner] = now, known
        return known


_SUCCEEDED = {
    AttemptEnd.SUCCEEDED: True,
    AttemptEnd.FAILED: False,
    AttemptEnd.TIMEOUT: False,
}


def _order(run: Run) -> tuple[int, float, str]:
    return (-run.rank, run.planned_at.timestamp(), run.id)


@dataclass(slots=True, eq=False)
class SharedLimit:
    """One limit in this process: the attempts that wait for it and those that leave it."""

    gate: LimitGate
    store: Store
    limit: Limit
    waiting: list[_Waiting] = field(default_factory=list)
    ended: list[_Ended] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    checked_at: float = 0.0
    #: Mean duration of its runs.
    duration: float = FIRST_DURATION
    #: When the runs return that went back to the queue, on the monotonic clock.
    returns: deque[float] = field(default_factory=deque)

    async def enter(
        self, waiter: Waiter, capacity: Capacity, *, once: bool = False
    ) -> Deferral | None:
        """None: entered. `once`: REFUSED instead of waiting."""
        decided = asyncio.get_running_loop().create_future()
        entry = _Waiting(waiter, capacity, decided, once)
        self.waiting.append(entry)
        self.gate.waiting[capacity] += 1
        self._wake()
        try:
            found: Deferral | None = await decided
        except BaseException:
            if decided.done() and not decided.cancelled() and decided.result() is None:
                # Admitted just before the attempt was stopped.
                self.leave(_not_started(waiter), None)
            raise
        finally:
            if entry in self.waiting:
                self.waiting.remove(entry)
            self.gate.waiting[capacity] -= 1
        return found

    def leave(self, ended: _Ended, seconds: float | None) -> None:
        if seconds is not None:
            self.duration += (seconds - self.duration) / 8
        if not ended.started or self.limit.has_state_after_call:
            self.ended.append(ended)
            self._wake()

    def _wake(self) -> None:
        self.changed.set()
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self.waiting or self.ended:
            self.changed.clear()
            try:
                seconds = await self._pass()
            except StoreUnavailable:
                seconds = RETRY_SECONDS
            if not self.waiting and not self.ended:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.changed.wait()

    async def _pass(self) -> float:
        """Changes the state once; returns the seconds until the next pass."""
        # Others that were granted or gave up meanwhile are no longer in the list.
        waiting = sorted(self.waiting, key=lambda each: each.waiter.order)
        ended = list(self.ended)
        void = await self._find_void(waiting)
        admission, before, after = await self._change(waiting, ended, void)
        del self.ended[: len(ended)]
        self._report(before, after)
        kept = self._keep(waiting)
        rest: list[_Waiting] = []
        for each in waiting:
            if each.waiter.run_id in admission.admitted:
                self._decide(each, None)
            else:
                rest.append(each)
        for each in rest:
            if each.once:
                self._decide(each, REFUSED)
        for each in [each for each in rest if not each.once][kept:]:
            self._decide(
                each, Deferral(f"{WAITING_PREFIX}{self.limit.name}", self._deferral(admission))
            )
        if admission.at_concurrency and rest:
            return min(POLL_SECONDS, admission.wait or POLL_SECONDS)
        wait = POLL_SECONDS if admission.wait is None else admission.wait
        return min(max(wait, 0.001), POLL_SECONDS)

    async def _change(
        self, waiting: Sequence[_Waiting], ended: Sequence[_Ended], void: Mapping[str, int]
    ) -> tuple[Admission, LimitState, LimitState]:
        gate, limit = self.gate, self.limit
        keep = self._keep(waiting)
        now = gate.clock.monotonic()
        while self.returns and self.returns[0] < now:
            self.returns.popleft()
        decided: tuple[Admission, LimitState, LimitState] | None = None

        def change(state: LimitState) -> LimitState:
            nonlocal decided
            at = gate.time.now().timestamp()
            after = drop_void(state, void) if void else state
            for each in ended:
                if each.started:
                    after = leave(
                        after, limit, each.run_id, each.fence, at, succeeded=each.succeeded
                    )
                else:
                    after = give_back(after, limit, each.run_id, each.fence)
            after, admission = admit(
                after,
                limit,
                gate.membership.node_id,
                [each.waiter for each in waiting if not each.decided.done()],
                at,
                keep=keep,
                queued=len(self.returns),
            )
            decided = admission, state, after
            return after

        await change_state(self.store, limit, change)
        assert decided is not None
        return decided

    def _decide(self, entry: _Waiting, deferral: Deferral | None) -> None:
        if not entry.decided.done():
            entry.decided.set_result(deferral)
            self.waiting.remove(entry)
        elif deferral is None:
            # It was stopped while its permit was written.
            self.leave(_not_started(entry.waiter), None)

    def _keep(self, waiting: Sequence[_Waiting]) -> int:
        """How many of the attempts may wait in the process: it has other work, too."""
        if not waiting:
            return 0
        capacity = waiting[0].capacity
        others = self.gate.waiting[capacity] - len(waiting)
        return max(0, capacity.total // WAITING_PART - others)

    def _deferral(self, admission: Admission) -> float:
        """Runs return one after another, as fast as they can start."""
        limit, now = self.limit, self.gate.clock.monotonic()
        pace = 0.0
        if rate := limit.calls_per_second:
            pace = 1 / rate
        if limit.concurrency is not None:
            pace = max(pace, self.duration / limit.concurrency)
        first = now + max(SHORTEST_DEFERRAL, admission.wait or 0.0)
        at = max(first, (self.returns[-1] if self.returns else 0.0) + pace)
        at = min(at, now + LONGEST_DEFERRAL)
        self.returns.append(at)
        return at - now

    async def _find_void(self, waiting: Sequence[_Waiting]) -> Mapping[str, int]:
        """Permits of runs that do not run any more: their node is lost, or could not write."""
        now = self.gate.clock.monotonic()
        if not waiting or now - self.checked_at < CHECK_SECONDS:
            return {}
        self.checked_at = now
        state = await read_state(self.store, self.limit)
        full = self.limit.concurrency is not None and len(state.permits) >= self.limit.concurrency
        if not full and not state.probe:
            return {}
        # At most MAX_CONCURRENCY, which one query takes.
        ids = tuple(map(RunId, state.permits))
        page = await self.store.list_runs(RunQuery(ids=ids, limit=None))
        running = {run.id: run.fence for run in page.items if run.status is RunStatus.RUNNING}
        return {
            run_id: fence
            for run_id, fence in state.permits.items()
            if running.get(RunId(run_id)) != fence
        }

    def _report(self, before: LimitState, after: LimitState) -> None:
        now = self.gate.time.now().timestamp()
        if after.open_until > max(before.open_until, now):
            self.gate.events.emit(BreakerOpened(limit=self.limit, failures=after.failures))
        elif before.open_until and breaker_state(after, now) is BreakerState.CLOSED:
            self.gate.events.emit(BreakerClosed(limit=self.limit))
