"""Child runs of the flows in flight: one duty adds them, another notices when they end.

A step that ends in this process is reported directly; one that ends on another node is found when
the store wakes this node, or at the next poll. However many flows there are, one statement adds
the steps of all of them, and one query finds the ended ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollAfter, PollAtTime, PollNow, PollOnEvent
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.run import Run, RunStatus
from chimes.store.port import Store

#: Rows in one insert, and ids in one query.
BATCH = 1000
TERMINAL = tuple(status for status in RunStatus if status.terminal)
#: Maximum share of the time that is spent on queries.
MAX_QUERY_SHARE = 0.1


class FlowSteps:
    """The steps of all flows in flight."""

    def __init__(self, store: Store, time: StoreClock, clock: Clock, poll: timedelta) -> None:
        self._time = time
        self._flows: dict[RunId, FlowRunSteps] = {}
        self.writer = StepWriter(store)
        self.watcher = StepWatcher(store, self, time, clock, poll)

    def open(self, flow: Run) -> FlowRunSteps:
        """For a flow that starts or resumes here."""
        steps = self._flows[flow.id] = FlowRunSteps(flow, self)
        return steps

    def close(self, flow: Run) -> None:
        self._flows.pop(flow.id, None)

    def step_ended(self, step: Run) -> None:
        flow = self._flows.get(step.parent_id) if step.parent_id is not None else None
        if flow is not None:
            flow.step_ended(step)

    @property
    def unfinished(self) -> list[RunId]:
        return [step for flow in self._flows.values() for step in flow.unfinished]

    def now(self) -> datetime:
        return self._time.now()


class FlowRunSteps:
    """The steps of one flow: implements `chimes.targets.base.Steps`."""

    def __init__(self, flow: Run, steps: FlowSteps) -> None:
        self._flow = flow
        self._steps = steps
        self._ended: dict[RunId, Run] = {}
        self._changed = asyncio.Event()
        self.unfinished: set[RunId] = set()

    def now(self) -> datetime:
        return self._steps.now()

    async def children(self) -> Sequence[Run]:
        # With the first fence no earlier attempt can have added a step.
        if self._flow.fence == 1:
            return ()
        return self._watch(await self._steps.writer.read(self._flow.id))

    async def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        return self._watch(await self._steps.writer.write(runs))

    async def ended(self) -> Sequence[Run]:
        while not self._ended:
            self._changed.clear()
            await self._changed.wait()
        ended, self._ended = self._ended, {}
        return tuple(ended.values())

    def step_ended(self, step: Run) -> None:
        self.unfinished.discard(step.id)
        self._ended[step.id] = step
        self._changed.set()

    def _watch(self, rows: Sequence[Run]) -> Sequence[Run]:
        # A fast step may have ended here before the answer to its insert arrived.
        self.unfinished.update(
            row.id for row in rows if not row.status.terminal and row.id not in self._ended
        )
        if self.unfinished:
            self._steps.watcher.changed.set()
        return rows


@dataclass(slots=True)
class _Request:
    """Rows to add, or the flow whose children to read."""

    answer: asyncio.Future[Sequence[Run]]
    runs: Sequence[Run] = ()
    children_of: RunId | None = None


class StepWriter:
    """Adds steps in batches. Repeating an insert after a lost answer is harmless: a step always
    has the same id."""

    name = "steps"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: list[_Request] = []
        self._arrived = asyncio.Event()

    async def write(self, runs: Sequence[Run]) -> Sequence[Run]:
        return await self._submit(_Request(answer=_future(), runs=runs))

    async def read(self, flow: RunId) -> Sequence[Run]:
        return await self._submit(_Request(answer=_future(), children_of=flow))

    async def _submit(self, request: _Request) -> Sequence[Run]:
        self._pending.append(request)
        self._arrived.set()
        return await request.answer

    async def run_once(self) -> NextPoll:
        # The requests of a flow that was stopped meanwhile are canceled.
        self._pending = [each for each in self._pending if not each.answer.done()]
        batch: list[_Request] = []
        for request in self._pending:
            if request.children_of is not None:
                query = RunQuery(parent_id=request.children_of, descending=False, limit=None)
                _answer(request, (await self._store.list_runs(query)).items)
            elif not batch or sum(len(each.runs) for each in batch) + len(request.runs) <= BATCH:
                batch.append(request)
        if batch:
            await self._write(batch)
        self._pending = [each for each in self._pending if not each.answer.done()]
        if self._pending:
            return PollNow()
        self._arrived.clear()
        return PollOnEvent(event=self._arrived)

    async def _write(self, batch: Sequence[_Request]) -> None:
        try:
            rows = iter(await self._store.add_runs([run for each in batch for run in each.runs]))
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) == 1:
                # The steps cannot be stored, now or later: only their flow fails.
                if not batch[0].answer.done():
                    batch[0].answer.set_exception(error)
                return
            for each in batch:
                await self._write([each])
        else:
            for each in batch:
                _answer(each, [next(rows) for _ in each.runs])


class StepWatcher:
    """Finds steps that ended outside this process."""

    name = "step watcher"

    def __init__(
        self, store: Store, steps: FlowSteps, time: StoreClock, clock: Clock, poll: timedelta
    ) -> None:
        self._store = store
        self._steps = steps
        self._time = time
        self._clock = clock
        self._poll = poll
        self._not_before = 0.0
        #: Set when there is a step to watch.
        self.changed = asyncio.Event()

    async def run_once(self) -> NextPoll:
        since = self._store.changes()
        began = self._clock.monotonic()
        if began < self._not_before:
            return PollAfter(self._not_before - began)
        unfinished = self._steps.unfinished
        if not unfinished:
            self.changed.clear()
            return PollOnEvent(event=self.changed)
        for start in range(0, len(unfinished), BATCH):
            ids = tuple(unfinished[start : start + BATCH])
            page = await self._store.list_runs(RunQuery(ids=ids, statuses=TERMINAL, limit=None))
            for step in page.items:
                self._steps.step_ended(step)
        ended = self._clock.monotonic()
        self._not_before = ended + (ended - began) / MAX_QUERY_SHARE
        return PollAtTime(since=since, moment=self._time.now() + self._poll)


def _future() -> asyncio.Future[Sequence[Run]]:
    return asyncio.get_running_loop().create_future()


def _answer(request: _Request, rows: Sequence[Run]) -> None:
    if not request.answer.done():
        request.answer.set_result(rows)
