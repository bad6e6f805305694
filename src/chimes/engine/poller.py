"""The only loop of the engine. A duty is one pass that says when it wants to be called again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, assert_never

from chimes.engine.events import DutyFailed, DutyRecovered, Events
from chimes.store.port import Store

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0


@dataclass(frozen=True, slots=True)
class AtOnce:
    """There is more to do."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """There is more to do, before anything that this pass has set going has its turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Until:
    """Something changed in the store after `since`, or the store's clock reaches `moment`."""

    since: int
    moment: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Within:
    """Something changed in the store after `since`, or the seconds are over."""

    since: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Somebody in this process sets the event, or the seconds are over."""

    event: asyncio.Event
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class After:
    """The seconds are over, whatever happens meanwhile."""

    seconds: float


Rest = AtOnce | GoOn | Until | Within | Told | After


class Duty(Protocol):
    name: str

    async def once(self) -> Rest:
        """One pass. What it raises is logged, and the pass is tried again later."""


class Poller:
    """Calls a duty again and again until it is stopped.

    A store that cannot answer, or a bug in one pass, never ends the loop: it backs off with
    jitter, so that many nodes do not come back in step (F21), and says so once.
    """

    def __init__(
        self,
        duty: Duty,
        *,
        store: Store,
        events: Events,
        rng: random.Random,
        spacing: float = 0.0,
        patience: float = 5.0,
    ) -> None:
        self._duty = duty
        self._store = store
        self._events = events
        self._rng = rng
        self._spacing = spacing
        self._patience = patience
        self._failures = 0
        self._stopping = False
        self._resting = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=f"chimes {self._duty.name}")

    async def stop(self) -> None:
        """A pass under way may finish, within `patience`; a rest ends at once."""
        self._stopping = True
        task = self._task
        if task is None:
            return
        if self._resting:
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self._patience)
        if not done:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _loop(self) -> None:
        while not self._stopping:
            try:
                rest = await self._duty.once()
                if self._failures:
                    self._failures = 0
                    self._events.emit(DutyRecovered(duty=self._duty.name))
                await self._rest(rest)
            except Exception as error:
                self._events.emit(
                    DutyFailed(duty=self._duty.name, error=error, first=not self._failures)
                )
                self._failures += 1
                await self._sleep(self._backoff())

    async def _rest(self, rest: Rest) -> None:
        if self._stopping:
            return
        self._resting = True
        try:
            if self._spacing:
                await asyncio.sleep(self._spacing)
            match rest:
                case AtOnce():
                    await asyncio.sleep(0)
                case GoOn():
                    pass
                case Until():
                    await self._store.wait_for_work(rest.since, rest.moment)
                case Within():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(rest.seconds):
                            await self._store.wait_for_work(rest.since, None)
                case Told():
                    await _told(rest)
                case After():
                    await asyncio.sleep(rest.seconds)
                case _:
                    assert_never(rest)
        finally:
            self._resting = False

    async def _sleep(self, seconds: float) -> None:
        if self._stopping:
            return
        self._resting = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._resting = False

    def _backoff(self) -> float:
        longest = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self._failures, 10))
        return longest * (0.5 + self._rng.random() / 2)


async def _told(rest: Told) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(rest.event.wait(), rest.seconds)
