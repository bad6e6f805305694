"""The recorder writes single completions immediately, and many without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from chimes.clock import SystemClock
from chimes.engine.in_flight import Capacity, Claim, InFlightRun, Pool
from chimes.engine.poller import PollNow, PollOnEvent
from chimes.engine.recorder import WORTH_A_WRITE, WRITE_SPACING, Recorder
from chimes.model.ids import NodeId
from chimes.model.run import Completion, Run, claim, complete
from chimes.store.port import CompletionResult, Store
from tests.builders import NOW, a_completion, a_run


class SlowStore:
    """Accepts completions when `answer` is set."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.batches: list[int] = []

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        self.batches.append(len(completions))
        await self.answer.wait()
        accepted = [complete(each.run, each, NOW) for each in completions if each.run is not None]
        return CompletionResult(accepted=tuple(accepted))


class Desk:
    def __init__(self) -> None:
        self.store = SlowStore()
        self.recorded: list[tuple[Claim, Run | None]] = []
        self.recorder = Recorder(
            cast(Store, self.store),
            SystemClock(),
            lambda recorded, _completion, run: self.recorded.append((recorded, run)),
        )
        self._capacity = Capacity(Pool(name="worker", runners=(), permits=1), asyncio.Event())

    def record(self, count: int) -> list[Claim]:
        claims: list[Claim] = []
        for _number in range(count):
            run = claim(a_run(), NodeId("node"), NOW)
            attempt = InFlightRun(run, self._capacity, lambda _attempt: None, lambda: NOW)
            self.recorder.record(attempt, a_completion(run, NOW))
            claims.append(attempt.claim)
        return claims


async def test_completions_that_are_many_are_written_without_a_pause() -> None:
    desk = Desk()
    claims = desk.record(1)
    writing = asyncio.create_task(desk.recorder.run_once())
    await asyncio.sleep(0)
    assert desk.store.batches == [1]
    claims += desk.record(WORTH_A_WRITE)
    desk.store.answer.set()
    assert isinstance(await writing, PollNow)
    await desk.recorder.run_once()
    assert desk.store.batches == [1, WORTH_A_WRITE]
    assert [each for each, run in desk.recorded if run is not None] == claims


async def test_a_few_completions_wait_for_others_after_a_write() -> None:
    desk = Desk()
    desk.store.answer.set()
    desk.record(2)
    pause = await desk.recorder.run_once()
    assert isinstance(pause, PollOnEvent)
    assert pause.seconds == WRITE_SPACING
    desk.record(WORTH_A_WRITE - 1)
    assert not pause.event.is_set()
    desk.record(1)
    assert pause.event.is_set()
    await desk.recorder.run_once()
    # Nothing is left: the next one is written as soon as it arrives.
    idle = await desk.recorder.run_once()
    assert isinstance(idle, PollOnEvent)
    assert idle.seconds is None
    assert not idle.event.is_set()
    desk.record(1)
    assert idle.event.is_set()
