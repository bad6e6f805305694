"""How late it is at the store, at least: what waits for a moment there never comes early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

import pytest

from chimes.engine.membership import RECENT, StoreClock
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import NOW


class Watch:
    """A node's clock, and a store's that is an hour ahead of it."""

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
        """How much longer than it should somebody waits who waits so long from now."""
        waits = self.time.seconds_until(self.there + timedelta(seconds=seconds))
        return waits - seconds


def test_a_slow_answer_makes_late_and_never_early() -> None:
    watch = Watch()
    watch.ask(0.0, 0.2)
    assert watch.early_by(1) == pytest.approx(0.2)
    watch.ask(0.3, 0.0)
    assert watch.early_by(1) == pytest.approx(0.0)


def test_an_answer_that_says_less_is_not_believed_more() -> None:
    watch = Watch()
    watch.ask(0.001, 0.001)
    watch.ask(0.0, 0.5)
    assert watch.early_by(1) == pytest.approx(0.001)
    watch.clock.advance(RECENT)
    watch.ask(0.0, 0.5)
    assert watch.early_by(1) == pytest.approx(0.5)


# F51
def test_a_clock_that_was_put_back_is_believed_at_once() -> None:
    watch = Watch()
    watch.ask(0.001, 0.001)
    watch.skew -= timedelta(seconds=3)
    watch.ask(0.001, 0.002)
    assert watch.early_by(1) == pytest.approx(0.002)
    watch.skew += timedelta(seconds=3)
    watch.ask(0.001, 0.002)
    assert watch.early_by(1) == pytest.approx(0.002)


def test_a_moment_here_is_a_moment_there() -> None:
    watch = Watch()
    watch.ask(0.0, 0.0)
    assert watch.time.at(watch.clock.monotonic()) == watch.time.now() == NOW + watch.skew


def test_all_who_look_every_so_often_look_at_the_same_moments() -> None:
    watch = Watch()
    second, five = timedelta(seconds=1), timedelta(seconds=5)
    watch.clock.advance(2.4)
    assert watch.time.seconds_to_tick(second) == pytest.approx(0.6)
    assert watch.time.seconds_to_tick(five) == pytest.approx(2.6)
    watch.clock.advance(0.6)
    assert watch.time.seconds_to_tick(second) == pytest.approx(1.0)
    assert watch.time.seconds_to_tick(five) == pytest.approx(2.0)


def test_who_wakes_a_little_early_does_not_look_twice() -> None:
    watch = Watch()
    watch.clock.advance(2.98)
    assert watch.time.seconds_to_tick(timedelta(seconds=1)) == pytest.approx(1.02)
