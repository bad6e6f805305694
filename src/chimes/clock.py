"""The system clock, and conversion of times to the integers that stores keep.

No other module reads the time of the machine, so that tests can replace it.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, in UTC. Embedded stores use it as the store's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...


class SystemClock:
    def __init__(self) -> None:
        #: Tests shift the clock of a process with CHIMES_TEST_CLOCK=+600.
        self._offset = timedelta(seconds=float(os.environ.get("CHIMES_TEST_CLOCK") or 0))

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset

    #: Not a method of its own, because it is called several times per run.
    monotonic = staticmethod(time.monotonic)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch. Exact, unlike `timestamp()`, which goes through a float."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """The reverse of `to_micros`."""
    return EPOCH + micros * MICROSECOND
