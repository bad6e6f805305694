"""One attempt in the hands of this process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from chimes.engine.attempt_log import AttemptLog
from chimes.engine.capacity import Capacity
from chimes.model.run import LogEntry, Run
from chimes.targets.base import Unwritten


class Stop(StrEnum):
    """Why an attempt is told to stop before its target has answered."""

    CANCEL = "canceled"
    TIMEOUT = "timeout"
    #: Another node owns the run now, or may soon.
    LOST = "ownership lost"
    DRAIN = "the grace of the shutdown is over"


class Hold:
    __slots__ = (
        "_now",
        "_speaking",
        "began",
        "began_at",
        "begun",
        "capacity",
        "completing",
        "ended",
        "handed_over",
        "log",
        "placed",
        "reason",
        "run",
        "seconds",
        "stop",
        "task",
        "timer",
        "waiting",
    )

    def __init__(
        self,
        run: Run,
        capacity: Capacity,
        speaking: Callable[[Hold], None],
        now: Callable[[], datetime],
    ) -> None:
        """`speaking` is told when its first line comes; `now` is the store's time, near enough
        for a line."""
        self.run = run
        #: Whose place it has taken.
        self.capacity = capacity
        #: Whether it still has it.
        self.placed = True
        #: For its time, in the waiting room.
        self.waiting = False
        self.begun = False
        #: The attempt has ended for this process; at most its verdict is on its way.
        self.handed_over = False
        #: It ends its run itself: that the store has it as ended is no reason to stop it.
        self.completing = False
        #: On the monotonic clock; before its first step it has all its time.
        self.began = math.inf
        self.began_at: datetime | None = None
        #: When its target had answered, on the monotonic clock.
        self.ended: float | None = None
        self.seconds = 0.0
        self.stop: Stop | None = None
        self.reason = ""
        #: What carries it out, from its first step to the answer of its target.
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        #: None: it has said nothing.
        self.log: AttemptLog | None = None
        self._speaking = speaking
        self._now = now

    def add_log(self, level: str, message: str) -> None:
        if self.handed_over:
            return
        if self.log is None:
            self.log = AttemptLog(self.run.target.kind)
            self._speaking(self)
        self.log.add(self._now(), level, message)

    def is_canceled(self) -> bool:
        return self.stop is Stop.CANCEL

    def ends_its_run(self) -> None:
        self.completing = True

    @property
    def logs(self) -> tuple[LogEntry, ...]:
        """The lines that the store has not said to have."""
        return () if self.log is None else tuple(self.log.pending)

    def unwritten(self) -> Unwritten:
        """For a target that ends its run itself, from any thread: what arrives in between is then
        in both, never in none."""
        if self.log is None:
            return Unwritten()
        entries = tuple(self.log.pending)
        return Unwritten(entries=entries, last=(self.log.base or 0) + self.log.written)
