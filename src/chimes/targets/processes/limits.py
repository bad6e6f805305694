"""How much of what a task says is kept."""

from __future__ import annotations

from dataclasses import dataclass

#: Characters of a line.
MAX_LINE = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """Of one attempt."""

    lines: int
    bytes: int
