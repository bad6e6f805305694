"""The polling loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from chimes.engine import poller as poller_module
from chimes.engine.events import DutyFailed, DutyRecovered, Event, Events
from chimes.engine.poller import (
    NextPoll,
    PollAfter,
    PollAtTime,
    Poller,
    PollNow,
    PollOnChange,
    PollOnEvent,
    PollWithoutYield,
)
from chimes.errors import StoreUnavailable
from chimes.store.memory import MemoryStore
from tests.engine.rig import until


class Passes:
    name = "test"

    def __init__(self, *answers: NextPoll | Exception | Callable[[], Awaitable[NextPoll]]) -> None:
        self.answers = list(answers)
        self.count = 0
        self.forever = asyncio.Event()

    async def run_once(self) -> NextPoll:
        self.count += 1
        if not self.answers:
            return PollOnEvent(event=self.forever)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer


def poller(duty: Passes, events: list[Event], *, stop_timeout: float = 5.0) -> Poller:
    return Poller(
        duty,
        store=MemoryStore(),
        events=Events([events.append]),
        rng=random.Random(1),
        stop_timeout=stop_timeout,
    )


async def test_each_next_poll_leads_to_another_pass() -> None:
    store = MemoryStore()
    event_set = asyncio.Event()
    event_set.set()
    now = await store.now()
    rests = (
        PollNow(),
        PollWithoutYield(),
        PollAfter(0.001),
        PollOnEvent(event=event_set),
        PollOnEvent(event=asyncio.Event(), seconds=0.001),
        PollAtTime(since=store.changes(), moment=now),
        PollAtTime(since=-1, moment=now.replace(year=now.year + 1)),
        PollOnChange(since=store.changes(), seconds=0.001),
        PollOnChange(since=-1, seconds=3600),
    )
    duty = Passes(*rests)
    loop = poller(duty, [])
    loop.start()
    await until(lambda: duty.count == len(rests) + 1)
    await loop.stop()


async def test_failures_back_off_and_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module, "MIN_BACKOFF", 0.001)
    events: list[Event] = []
    duty = Passes(StoreUnavailable(), StoreUnavailable(), KeyError("bug"), PollNow())
    loop = poller(duty, events)
    loop.start()
    await until(lambda: duty.count == 5)
    await loop.stop()
    assert [e.first for e in events if isinstance(e, DutyFailed)] == [True, False, False]
    assert [type(e) for e in events].count(DutyRecovered) == 1


def test_the_backoff_grows_to_its_limit_with_jitter() -> None:
    loop = poller(Passes(), [])
    waits = []
    for failures in range(1, 12):
        loop._failures = failures
        waits.append(loop._backoff_seconds())
    assert all(wait <= poller_module.MAX_BACKOFF for wait in waits)
    assert min(waits[-5:]) >= poller_module.MAX_BACKOFF / 2
    assert waits[0] < 0.3
    assert len(set(waits)) == len(waits)


async def test_stop_ends_a_wait_and_lets_a_pass_finish() -> None:
    finished = []
    begun = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> NextPoll:
        begun.set()
        await go_on.wait()
        finished.append(True)
        return PollAfter(3600)

    duty = Passes(slow)
    loop = poller(duty, [])
    loop.start()
    await begun.wait()
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(stopping, 60)
    assert (finished, duty.count) == ([True], 1)


async def test_stop_cancels_a_hanging_pass() -> None:
    async def hanging() -> NextPoll:
        await asyncio.Event().wait()
        raise AssertionError

    duty = Passes(hanging)
    loop = poller(duty, [], stop_timeout=0.01)
    loop.start()
    await until(lambda: duty.count)
    await asyncio.wait_for(loop.stop(), 60)


async def test_a_listener_that_raises_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    Events([broken, seen.append]).emit(DutyRecovered(duty="x"))
    assert seen == [DutyRecovered(duty="x")]
    assert "a listener failed on DutyRecovered" in caplog.text
