"""When the store's scheduling does not work although the store does (R2.33, C12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chimes.engine.events import (
    DutyFailed,
    DutyRecovered,
    Event,
    FallbackBegan,
    FallbackEnded,
)
from chimes.engine.scheduler import Scheduler
from chimes.errors import StoreError
from chimes.wording import say


class Fallback:
    """A listener of the engine. A store that does not answer at all is no reason: then nothing
    runs, and what was missed is caught up with (C12). Anything else that the scheduler raises
    is: a schedules table that is gone, broken or unreadable."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        #: Set whenever `active` changes.
        self.changed = asyncio.Event()
        self._failing: set[str] = set()

    @property
    def active(self) -> bool:
        return bool(self._failing)

    hears = (DutyFailed, DutyRecovered)

    def __call__(self, event: Event) -> None:
        if isinstance(event, DutyFailed) and event.duty == Scheduler.name:
            self.failed(event.duty, event.error)
        elif isinstance(event, DutyRecovered) and event.duty == Scheduler.name:
            self.recovered(event.duty)

    def failed(self, what: str, error: Exception) -> None:
        if isinstance(error, StoreError | TimeoutError):
            return
        before = self.active
        self._failing.add(what)
        if not before:
            self.changed.set()
            self._emit(FallbackBegan(error=error))

    def recovered(self, what: str) -> None:
        before = self.active
        self._failing.discard(what)
        if before and not self.active:
            self.changed.set()
            self._emit(FallbackEnded())

    @property
    def reason(self) -> str:
        return say("scheduling from memory: the store cannot schedule") if self.active else ""
