"""Log records of the operator's own code as lines of its task's log."""

from __future__ import annotations

import logging
from collections.abc import Callable


class LineHandler(logging.Handler):
    def __init__(self, line: Callable[[str, str], None]) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line(_level_of(record.levelno), self.format(record))
        except Exception:
            self.handleError(record)


def _level_of(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
