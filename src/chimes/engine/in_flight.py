"""One attempt in the hands of this process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.engine.capacity import Capacity
from chimes.i18n import _
from chimes.model.run import LogEntry, Run
from chimes.targets.base import Unwritten

# @@ The log of one attempt, from its first line until all of it is in the store.

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """How much of an attempt's log is kept. Targets have limits of their own, below these, for
    what they pass on: these hold whatever a target does."""

    lines: int
    characters: int


USUAL = LogLimits(lines=1000, characters=4 * 1024 * 1024)
#: By the kind of the target. The output of a sync is what its users come for (R4.3), and that of a
#: task is followed to its end (UX D.1, 12).
BY_KIND = {
    "sync": LogLimits(lines=10_100, characters=5 * 1024 * 1024),
    "task": LogLimits(lines=50_100, characters=6 * 1024 * 1024),
}


class AttemptLog:
    """Lines wait here until the store has said that it has them. `in_doubt` of the first ones were
    sent without an answer: they may be there or not."""

    __slots__ = (
        "_characters",
        "_last",
        "_limits",
        "_lines",
        "base",
        "closed",
        "in_doubt",
        "pending",
        "sending",
        "written",
    )

    def __init__(self, kind: str) -> None:
        self._limits = BY_KIND.get(kind, USUAL)
        self._lines = 0
        self._characters = 0
        self._last: datetime | None = None
        self.pending: list[LogEntry] = []
        self.in_doubt = 0
        #: Some of them are on their way to the store.
        self.sending = False
        #: How many the store has for certain.
        self.written = 0
        #: How many lines of earlier attempts it has; None: nobody has looked yet.
        self.base: int | None = None
        #: Nothing more is sent ahead of the verdict: the store would not take it.
        self.closed = False

    @property
    def settled(self) -> bool:
        """Whether it is known of every line if the store has it."""
        return not self.sending and not self.in_doubt

    def add(self, at: datetime, level: str, message: str) -> None:
        limits = self._limits
        if self._lines > limits.lines:
            return
        # Each later than the one before, so that a line is known by its time.
        if self._last is not None and at <= self._last:
            at = self._last + _TICK
        self._last = at
        self._lines += 1
        self._characters += len(message)
        if self._lines > limits.lines or self._characters > limits.characters:
            self._lines = limits.lines + 1
            level, message = "warning", _cut(limits)
        self.pending.append(LogEntry(at=at, level=level, message=str(message)))

    def sent(self, batch: Sequence[LogEntry]) -> None:
        self.in_doubt = len(batch)

    def arrived(self) -> None:
        """What was in doubt is in the store."""
        self.written += self.in_doubt
        del self.pending[: self.in_doubt]
        self.in_doubt = 0

    def lost(self) -> None:
        """What was in doubt is not in the store."""
        self.in_doubt = 0


def _cut(limits: LogLimits) -> str:
    return _(
        "more than {lines} lines or {characters} characters: "
        "the rest of this attempt's log is left out",
        lines=limits.lines,
        characters=limits.characters,
    )


class Stop(StrEnum):
    """Why an attempt is told to stop before its target has answered."""

    CANCEL = "canceled"
    TIMEOUT = "timeout"
    #: Another node owns the run now, or may soon.
    LOST = "ownership lost"
    DRAIN = "the grace of the shutdown is over"


class InFlightRun:
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
        speaking: Callable[[InFlightRun], None],
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
