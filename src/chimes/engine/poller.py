"""The polling loop of every duty. A duty is one pass that returns when to run the next."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, assert_never

from chimes.engine.events import DutyFailed, DutyRecovered, Events
from chimes.store.port import Store

MIN_BACKOFF = 0.1
MAX_BACKOFF = 5.0


@dataclass(frozen=True, slots=True)
class PollNow:
    """There is more to do; other tasks get a turn first."""


@dataclass(frozen=True, slots=True)
class PollWithoutYield:
    """There is more to do, before the tasks that this pass has started get a turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PollAtTime:
    """When the store changed after `since`, or at `moment` by the store's clock."""

    since: int
    moment: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class PollOnChange:
    """When the store changed after `since`, or after `seconds`."""

    since: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PollOnEvent:
    """When the event is set, or after `seconds`."""

    event: asyncio.Event
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PollAfter:
    """After `seconds`, whatever changes meanwhile."""

    seconds: float


NextPoll = PollNow | PollWithoutYield | PollAtTime | PollOnChange | PollOnEvent | PollAfter


class Duty(Protocol):
    name: str

    async def run_once(self) -> NextPoll:
        """One pass. An exception is reported, and the pass is repeated after a back-off."""


class DrainGate:
    """Suspends a duty that brings in work while the node drains.

    A pass under way may still bring some: `Executor.accept` releases it."""

    def __init__(self, duty: Duty, accepting: asyncio.Event) -> None:
        self.name = duty.name
        self._duty = duty
        self._accepting = accepting

    async def run_once(self) -> NextPoll:
        if not self._accepting.is_set():
            return PollOnEvent(event=self._accepting)
        return await self._duty.run_once()


class Poller:
    """Runs a duty until it is stopped.

    An unavailable store or a bug in one pass never ends the loop: it backs off, with jitter so
    that nodes do not retry in step."""

    def __init__(
        self,
        duty: Duty,
        *,
        store: Store,
        events: Events,
        rng: random.Random,
        spacing: float = 0.0,
        stop_timeout: float = 5.0,
    ) -> None:
        """`spacing`: minimum seconds between two passes."""
        self._duty = duty
        self._store = store
        self._events = events
        self._rng = rng
        self._spacing = spacing
        self._stop_timeout = stop_timeout
        self._failures = 0
        self._stopping = False
        self._waiting = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=f"chimes {self._duty.name}")

    async def stop(self) -> None:
        """Ends a wait immediately, and a pass under way within `stop_timeout`."""
        self._stopping = True
        task = self._task
        if task is None:
            return
        if self._waiting:
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self._stop_timeout)
        if not done:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _loop(self) -> None:
        while not self._stopping:
            try:
                next_poll = await self._duty.run_once()
                if self._failures:
                    self._failures = 0
                    self._events.emit(DutyRecovered(duty=self._duty.name))
                await self._wait(next_poll)
            except Exception as error:
                self._events.emit(
                    DutyFailed(duty=self._duty.name, error=error, first=not self._failures)
                )
                self._failures += 1
                await self._back_off()

    async def _wait(self, next_poll: NextPoll) -> None:
        if self._stopping:
            return
        self._waiting = True
        try:
            if self._spacing:
                await asyncio.sleep(self._spacing)
            match next_poll:
                case PollNow():
                    await asyncio.sleep(0)
                case PollWithoutYield():
                    pass
                case PollAtTime():
                    await self._store.wait_for_work(next_poll.since, next_poll.moment)
                case PollOnChange():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(next_poll.seconds):
                            await self._store.wait_for_work(next_poll.since, None)
                case PollOnEvent():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(next_poll.seconds):
                            await next_poll.event.wait()
                case PollAfter():
                    await asyncio.sleep(next_poll.seconds)
                case _:
                    assert_never(next_poll)
        finally:
            self._waiting = False

    async def _back_off(self) -> None:
        if self._stopping:
            return
        self._waiting = True
        try:
            await asyncio.sleep(self._backoff_seconds())
        finally:
            self._waiting = False

    def _backoff_seconds(self) -> float:
        longest = min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(self._failures, 10))
        return longest * (0.5 + self._rng.random() / 2)
