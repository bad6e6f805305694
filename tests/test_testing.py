"""The clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chimes.testing import DEFAULT_NOW, SettableClock


def test_clock_only_moves_when_advanced() -> None:
    clock = SettableClock()
    assert (clock.now(), clock.monotonic()) == (DEFAULT_NOW, 0.0)
    assert clock.advance(1.5) == DEFAULT_NOW + timedelta(seconds=1.5)
    assert clock.advance(timedelta(minutes=1)) == clock.now()
    assert clock.monotonic() == 61.5


def test_setting_the_wall_clock_leaves_the_monotonic_clock() -> None:
    clock = SettableClock()
    clock.set(datetime(2031, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2031, 1, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() == 0.0


def test_negative_advance_and_naive_datetime_are_errors() -> None:
    with pytest.raises(ValueError, match="backwards"):
        SettableClock().advance(-1)
    with pytest.raises(ValueError, match="aware"):
        SettableClock(datetime(2030, 1, 1))  # noqa: DTZ001
