"""The log of one attempt, from its first line until all of it is in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.run import LogEntry
from chimes.wording import say

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
    return say(
        "more than {lines} lines or {characters} characters: "
        "the rest of this attempt's log is left out",
        lines=limits.lines,
        characters=limits.characters,
    )
