"""For tests of Chimes and of programs that use it: a clock that stands still until told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: A Tuesday without anything special about it, in any zone.
DEFAULT_NOW = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)


class SettableClock:
    """Time passes only by `advance`; `set` is somebody turning the wall clock, which the monotonic
    one does not notice."""

    def __init__(self, now: datetime = DEFAULT_NOW) -> None:
        self._now = _utc(now)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, by: timedelta | float) -> datetime:
        """A timedelta or seconds, never backwards; returns the new time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("time does not run backwards; use set() to turn the clock")
        self._now += step
        self._monotonic += step.total_seconds()
        return self._now

    def set(self, moment: datetime) -> None:
        self._now = _utc(moment)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("an aware datetime is needed")
    return moment.astimezone(UTC)
