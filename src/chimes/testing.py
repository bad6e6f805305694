"""Test support for Chimes and applications: a clock that tests control."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: An ordinary Tuesday in every zone.
DEFAULT_NOW = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)


class SettableClock:
    """Time passes only by `advance`. `set` changes the wall clock but not the monotonic clock."""

    def __init__(self, now: datetime = DEFAULT_NOW) -> None:
        self._now = _utc(now)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, by: timedelta | float) -> datetime:
        """Advance by a timedelta or seconds, never backwards; returns the new time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("cannot advance backwards; use set() to change the wall clock")
        self._now += step
        self._monotonic += step.total_seconds()
        return self._now

    def set(self, moment: datetime) -> None:
        self._now = _utc(moment)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("an aware datetime is required")
    return moment.astimezone(UTC)
