"""The answer in the run's log while it comes in: whole lines, at most once a second."""

from __future__ import annotations

from collections.abc import Callable

from chimes.redaction import Redactor
from chimes.targets.agent_prompt.answer import KEEP_LIMIT, clean

EVERY_SECONDS = 1.0
LONGEST_ENTRY = 4000


class LiveText:
    def __init__(
        self, log: Callable[[str, str], None], redactor: Redactor, clock: Callable[[], float]
    ) -> None:
        self._log = log
        self._redactor = redactor
        self._clock = clock
        self._line = ""
        self._waiting: list[str] = []
        self._size = 0
        self._told_at = clock()

    def add(self, piece: str) -> None:
        """Only whole lines are told: a secret that comes in pieces is seen as a whole."""
        if self._size > KEEP_LIMIT:
            return
        self._size += len(piece)
        *whole, self._line = (self._line + piece).split("\n")
        self._waiting.extend(whole)
        if self._waiting and self._clock() - self._told_at >= EVERY_SECONDS:
            self._tell()

    def end(self) -> None:
        self._waiting.append(self._line)
        self._line = ""
        self._tell()

    def _tell(self) -> None:
        text = self._redactor.text(clean("\n".join(self._waiting)).strip())
        self._waiting.clear()
        self._told_at = self._clock()
        for start in range(0, len(text), LONGEST_ENTRY):
            self._log("info", text[start : start + LONGEST_ENTRY])
