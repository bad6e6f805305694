"""The only place that reads the machine's clocks (STYLE 3, R3.46)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, in UTC. Embedded stores use it as the store's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
