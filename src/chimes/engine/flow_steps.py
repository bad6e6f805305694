"""Child runs of the flows in flight: one duty adds them, another notices when they end.

A step that ends in this process is reported directly; one that ends on another node is found when
the store wakes this node, or at the next poll. However many flows there are, one statement adds
the steps of all of them, and one query finds the ended ones.

Steps that only wait (ADR 81) are ended by services. A flow that has nothing else to do goes back to
the queue; a wait that ended just before is found by the watcher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from chimes.clock import Clock
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollAfter, PollAtTime, PollNow, PollOnEvent
from chimes.errors import ChimesError, StoreUnavailable
from chimes.model.flow_graph import FlowGraph
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.recipient import Recipient
from chimes.model.run import Run, RunStatus
from chimes.model.wait import WaitKind, expedite, expire_wait, is_wait, time_waited, wait_of
from chimes.services.waits import announce_approval, publish_graph, receive_stored_event
from chimes.store.port import Store

T = TypeVar("T")
_log = logging.getLogger("chimes.flows")

#: Rows in one insert, and ids in one query.
BATCH = 1000
TERMINAL = tuple(status for status in RunStatus if status.terminal)
#: Maximum share of the time that is spent on queries.
MAX_QUERY_SHARE = 0.1
#: Seconds between two tries while the store is unavailable.
RETRY_PAUSE = 0.25


class FlowSteps:
    """The steps of all flows in flight."""

    def __init__(self, store: Store, time: StoreClock, clock: Clock, poll: timedelta) -> None:
        self.store = store
        self._time = time
        self._flows: dict[RunId, FlowRunSteps] = {}
        #: Graphs that this process has published.
        self.published: set[FlowGraph] = set()
        self.writer = StepWriter(store)
        self.watcher = StepWatcher(store, self, time, clock, poll)

    def open(self, flow: Run) -> FlowRunSteps:
        """For a flow that starts or resumes here."""
        steps = self._flows[flow.id] = FlowRunSteps(flow, self)
        return steps

    def close(self, flow: Run) -> None:
        self._flows.pop(flow.id, None)

    def suspended(self, flow: RunId, waits: Collection[RunId]) -> None:
        """The flow is back in the queue; one of its waits may have ended before it was."""
        self.watcher.suspended[flow] = tuple(waits)
        self.watcher.changed.set()

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
        self._waits: dict[RunId, Run] = {}
        #: Whether the steps of earlier attempts are known, so that `waited` is right.
        self.complete = flow.fence == 1

    def now(self) -> datetime:
        return self._steps.now()

    @property
    def waited(self) -> timedelta:
        """How long the flow has waited; not part of its timeout."""
        return time_waited(self._waits.values(), self.now())

    async def children(self) -> Sequence[Run]:
        # With the first fence no earlier attempt can have added a step.
        if self._flow.fence == 1:
            return ()
        found = self._watch(await self._steps.writer.read(self._flow.id))
        self.complete = True
        return found

    async def children_of(self, flow: RunId) -> Sequence[Run]:
        return await self._steps.writer.read(flow)

    async def publish(self, graph: FlowGraph) -> None:
        """A picture is worth no delay: an error is ignored, and the next run tries again."""
        if graph in self._steps.published:
            return
        self._steps.published.add(graph)
        try:
            await publish_graph(self._steps.store, graph, self.now())
        except ChimesError as error:
            self._steps.published.discard(graph)
            _log.warning("the steps of flow %s cannot be published: %s", graph.name, error)

    async def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        return self._watch(await self._steps.writer.write(runs))

    async def ended(self, until: datetime | None = None) -> Sequence[Run]:
        while not self._ended:
            self._changed.clear()
            seconds = None if until is None else (until - self.now()).total_seconds()
            if seconds is not None and seconds <= 0:
                return ()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue
        ended, self._ended = self._ended, {}
        return tuple(ended.values())

    async def begin_wait(self, run: Run, recipients: Sequence[Recipient]) -> Run:
        wait, store = wait_of(run), self._steps.store
        if wait is None or wait.kind is WaitKind.TIME:
            return run
        if wait.kind is WaitKind.APPROVAL:
            everyone = (*recipients, *self._flow.policy.delivery)
            await _until_available(lambda: announce_approval(store, run, everyone))
            return run
        used = {
            str(row.result["event_id"])
            for row in self._waits.values()
            if row.result is not None and "event_id" in row.result
        }
        since = self._flow.created_at
        found = await _until_available(lambda: receive_stored_event(store, run, since, used))
        return self._known(run if found is None else found)

    async def expire_wait(self, run_id: RunId) -> Run:
        found = await _until_available(lambda: self._steps.store.change_run(run_id, expire_wait))
        return self._known(found or self._waits[run_id])

    def _known(self, row: Run) -> Run:
        if row.status.terminal:
            self.unfinished.discard(row.id)
        if is_wait(row):
            self._waits[row.id] = row
        return row

    def step_ended(self, step: Run) -> None:
        self._known(step)
        self._ended[step.id] = step
        self._changed.set()

    def _watch(self, rows: Sequence[Run]) -> Sequence[Run]:
        for row in rows:
            if is_wait(row):
                self._waits[row.id] = row
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
        #: Flows that have gone back to the queue, with what they wait for; looked at once.
        self.suspended: dict[RunId, tuple[RunId, ...]] = {}

    async def run_once(self) -> NextPoll:
        since = self._store.changes()
        began = self._clock.monotonic()
        if began < self._not_before:
            return PollAfter(self._not_before - began)
        await self._resume_suspended()
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

    async def _resume_suspended(self) -> None:
        """A wait that ended before its flow was back in the queue found no flow to continue."""
        while self.suspended:
            flow, waits = next(iter(self.suspended.items()))
            query = RunQuery(ids=waits[:BATCH], statuses=TERMINAL, limit=1)
            if (await self._store.list_runs(query)).items:
                await self._store.change_run(flow, expedite)
            self.suspended.pop(flow, None)


async def _until_available(operation: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_PAUSE)


def _future() -> asyncio.Future[Sequence[Run]]:
    return asyncio.get_running_loop().create_future()


def _answer(request: _Request, rows: Sequence[Run]) -> None:
    if not request.answer.done():
        request.answer.set_result(rows)
