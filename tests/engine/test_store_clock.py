"""The lower bound of the store's time: waiting for a moment never ends early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

import pytest

from chimes.engine.membership import RECENT, StoreClock
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import NOW


class Watch:
    """A node's clock, and a store clock that is an hour ahead."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.time = StoreClock(cast(Store, None), self.clock)
        self.skew = timedelta(hours=1)

    @property
    def there(self) -> datetime:
        return self.clock.now() + self.skew

    def ask(self, way_there: float, way_back: float) -> None:
        before = self.clock.monotonic()
        self.clock.advance(way_there)
        now = self.there
        self.clock.advance(way_back)
        self.time.observe(now, before)

    def early_by(self, seconds: float) -> float:
        """By how many seconds a wait of `seconds` from now is too long."""
        waits = self.time.seconds_until(self.there + timedelta(seconds=seconds))
        return waits - seconds


def test_a_slow_answer_makes_waits_late_and_never_early() -> None:
    watch = Watch()
    watch.ask(0.0, 0.2)
    assert watch.early_by(1) == pytest.approx(0.2)
    watch.ask(0.3, 0.0)
    assert watch.early_by(1) == pytest.approx(0.0)


def test_a_weaker_bound_does_not_replace_a_stronger_one() -> None:
    watch = Watch()
    watch.ask(0.001, 0.001)
    watch.ask(0.0, 0.5)
    assert watch.early_by(1) == pytest.approx(0.001)
    watch.clock.advance(RECENT)
    watch.ask(0.0, 0.5)
    assert watch.early_by(1) == pytest.approx(0.5)


def test_a_clock_set_back_is_accepted_immediately() -> None:
    watch = Watch()
    watch.ask(0.001, 0.001)
    watch.skew -= timedelta(seconds=3)
    watch.ask(0.001, 0.002)
    assert watch.early_by(1) == pytest.approx(0.002)
    watch.skew += timedelta(seconds=3)
    watch.ask(0.001, 0.002)
    assert watch.early_by(1) == pytest.approx(0.002)


def test_monotonic_times_map_to_store_times() -> None:
    watch = Watch()
    watch.ask(0.0, 0.0)
    assert watch.time.at(watch.clock.monotonic()) == watch.time.now() == NOW + watch.skew


def test_duties_with_the_same_interval_share_their_ticks() -> None:
    watch = Watch()
    second, five = timedelta(seconds=1), timedelta(seconds=5)
    watch.clock.advance(2.4)
    assert watch.time.seconds_to_tick(second) == pytest.approx(0.6)
    assert watch.time.seconds_to_tick(five) == pytest.approx(2.6)
    watch.clock.advance(0.6)
    assert watch.time.seconds_to_tick(second) == pytest.approx(1.0)
    assert watch.time.seconds_to_tick(five) == pytest.approx(2.0)


def test_an_early_wakeup_does_not_poll_twice() -> None:
    watch = Watch()
    watch.clock.advance(2.98)
    assert watch.time.seconds_to_tick(timedelta(seconds=1)) == pytest.approx(1.02)
