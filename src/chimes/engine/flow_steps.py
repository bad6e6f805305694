"""The child runs of the flows in hand: one duty adds them, another sees them end.

A step that ended here is heard of at once, one that ended on another node when the store's wake-up
comes or at the next poll. However many flows there are, one statement adds the rows of all of
them, and one asks for those steps of all of them that have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.membership import StoreClock
from chimes.engine.poller import After, AtOnce, Rest, Told, Until
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.run import Run, RunStatus
from chimes.store.port import Store

#: Rows added by one statement, and ids that one question names.
BATCH = 1000
ENDED = tuple(status for status in RunStatus if status.terminal)
#: Asking takes at most this share of the time.
SHARE = 0.1


class FlowSteps:
    """What both duties and the flows work on."""

    def __init__(self, store: Store, time: StoreClock, clock: Clock, poll: timedelta) -> None:
        self._time = time
        self._flows: dict[RunId, StepsOfRun] = {}
        self.writing = StepWriting(store)
        self.watching = StepWatching(store, self, time, clock, poll)

    def of(self, flow: Run) -> StepsOfRun:
        """The steps of a flow that is begun or taken over here; `forget` it in the end."""
        steps = self._flows[flow.id] = StepsOfRun(flow, self)
        return steps

    def forget(self, flow: Run) -> None:
        self._flows.pop(flow.id, None)

    def heard(self, step: Run) -> None:
        """A step has ended; whoever has its flow in hand goes on."""
        flow = self._flows.get(step.parent_id) if step.parent_id is not None else None
        if flow is not None:
            flow.heard(step)

    @property
    def under_way(self) -> list[RunId]:
        return [step for flow in self._flows.values() for step in flow.under_way]

    def now(self) -> datetime:
        return self._time.now()


class StepsOfRun:
    """The steps of one flow, as `chimes.targets.base.Steps` has it."""

    def __init__(self, flow: Run, steps: FlowSteps) -> None:
        self._flow = flow
        self._steps = steps
        self._news: dict[RunId, Run] = {}
        self._told = asyncio.Event()
        self.under_way: set[RunId] = set()

    def now(self) -> datetime:
        return self._steps.now()

    async def children(self) -> Sequence[Run]:
        # Nobody had it before, so nobody can have given it a step.
        if self._flow.fence == 1:
            return ()
        return self._watched(await self._steps.writing.read(self._flow.id))

    async def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        return self._watched(await self._steps.writing.write(runs))

    async def ended(self) -> Sequence[Run]:
        while not self._news:
            self._told.clear()
            await self._told.wait()
        news, self._news = self._news, {}
        return tuple(news.values())

    def heard(self, step: Run) -> None:
        self.under_way.discard(step.id)
        self._news[step.id] = step
        self._told.set()

    def _watched(self, rows: Sequence[Run]) -> Sequence[Run]:
        # One that is fast may have ended here before the answer came that it was added.
        open_ = (row.id for row in rows if not row.status.terminal and row.id not in self._news)
        self.under_way.update(open_)
        if self.under_way:
            self._steps.watching.stirred.set()
        return rows


@dataclass(slots=True)
class _Wanted:
    """Rows to add, or without them: the children of a flow."""

    answer: asyncio.Future[Sequence[Run]]
    runs: Sequence[Run] = ()
    children_of: RunId | None = None


class StepWriting:
    """Adds steps in batches. What it adds may be added again after a lost answer: the ids of steps
    are always the same."""

    name = "steps"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: list[_Wanted] = []
        self._arrived = asyncio.Event()

    async def write(self, runs: Sequence[Run]) -> Sequence[Run]:
        return await self._put(_Wanted(answer=_future(), runs=runs))

    async def read(self, flow: RunId) -> Sequence[Run]:
        return await self._put(_Wanted(answer=_future(), children_of=flow))

    async def _put(self, wanted: _Wanted) -> Sequence[Run]:
        self._pending.append(wanted)
        self._arrived.set()
        return await wanted.answer

    async def once(self) -> Rest:
        # A flow that was stopped meanwhile wants nothing more.
        self._pending = [each for each in self._pending if not each.answer.done()]
        batch: list[_Wanted] = []
        for wanted in self._pending:
            if wanted.children_of is not None:
                query = RunQuery(parent_id=wanted.children_of, descending=False, limit=None)
                _answer(wanted, (await self._store.list_runs(query)).items)
            elif not batch or sum(len(each.runs) for each in batch) + len(wanted.runs) <= BATCH:
                batch.append(wanted)
        if batch:
            await self._write(batch)
        self._pending = [each for each in self._pending if not each.answer.done()]
        if self._pending:
            return AtOnce()
        self._arrived.clear()
        return Told(event=self._arrived)

    async def _write(self, batch: Sequence[_Wanted]) -> None:
        try:
            rows = iter(await self._store.add_runs([run for each in batch for run in each.runs]))
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) == 1:
                # It cannot be stored, now or later: that is the end of this flow only.
                if not batch[0].answer.done():
                    batch[0].answer.set_exception(error)
                return
            for each in batch:
                await self._write([each])
        else:
            for each in batch:
                _answer(each, [next(rows) for _ in each.runs])


class StepWatching:
    """Finds steps that ended without this process hearing of it."""

    name = "step watch"

    def __init__(
        self, store: Store, steps: FlowSteps, time: StoreClock, clock: Clock, poll: timedelta
    ) -> None:
        self._store = store
        self._steps = steps
        self._time = time
        self._clock = clock
        self._poll = poll
        self._look_again = 0.0
        #: Set when there is a step to watch.
        self.stirred = asyncio.Event()

    async def once(self) -> Rest:
        since = self._store.changes()
        began = self._clock.monotonic()
        if began < self._look_again:
            return After(self._look_again - began)
        under_way = self._steps.under_way
        if not under_way:
            self.stirred.clear()
            return Told(event=self.stirred)
        for start in range(0, len(under_way), BATCH):
            ids = tuple(under_way[start : start + BATCH])
            page = await self._store.list_runs(RunQuery(ids=ids, statuses=ENDED, limit=None))
            for step in page.items:
                self._steps.heard(step)
        ended = self._clock.monotonic()
        self._look_again = ended + (ended - began) / SHARE
        return Until(since=since, moment=self._time.now() + self._poll)


def _future() -> asyncio.Future[Sequence[Run]]:
    return asyncio.get_running_loop().create_future()


def _answer(wanted: _Wanted, rows: Sequence[Run]) -> None:
    if not wanted.answer.done():
        wanted.answer.set_result(rows)
