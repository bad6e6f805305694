"""The estimate of the store's time, and its lower bound: waiting never ends early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

import pytest

from chimes.engine.membership import RECENT, StoreClock
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import NOW


class SkewedStore:
    """A node's clock, and a store clock that is an hour ahead."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.time = StoreClock(cast(Store, None), self.clock)
        self.skew = timedelta(hours=1)

    @property
    def store_now(self) -> datetime:
        return self.clock.now() + self.skew

    def ask(self, way_there: float, way_back: float) -> None:
        before = self.clock.monotonic()
        self.clock.advance(way_there)
        now = self.store_now
        self.clock.advance(way_back)
        self.time.observe(now, before)

    def excess_of(self, seconds: float) -> float:
        """Seconds by which a wait of `seconds` is too long."""
        waits = self.time.seconds_until(self.store_now + timedelta(seconds=seconds))
        return waits - seconds


def test_a_slow_answer_makes_waits_late_and_never_early() -> None:
    skewed = SkewedStore()
    skewed.ask(0.0, 0.2)
    assert skewed.excess_of(1) == pytest.approx(0.2)
    skewed.ask(0.3, 0.0)
    assert skewed.excess_of(1) == pytest.approx(0.0)


def test_a_weaker_bound_does_not_replace_a_stronger_one() -> None:
    skewed = SkewedStore()
    skewed.ask(0.001, 0.001)
    skewed.ask(0.0, 0.5)
    assert skewed.excess_of(1) == pytest.approx(0.001)
    skewed.clock.advance(RECENT)
    skewed.ask(0.0, 0.5)
    assert skewed.excess_of(1) == pytest.approx(0.5)


def test_a_clock_set_back_is_accepted_immediately() -> None:
    skewed = SkewedStore()
    skewed.ask(0.001, 0.001)
    skewed.skew -= timedelta(seconds=3)
    skewed.ask(0.001, 0.002)
    assert skewed.excess_of(1) == pytest.approx(0.002)
    skewed.skew += timedelta(seconds=3)
    skewed.ask(0.001, 0.002)
    assert skewed.excess_of(1) == pytest.approx(0.002)


def test_a_slow_answer_does_not_spoil_the_estimate() -> None:
    skewed = SkewedStore()
    skewed.ask(0.001, 0.001)
    skewed.ask(7.0, 0.0)
    assert abs(skewed.time.now() - skewed.store_now) < timedelta(milliseconds=10)
    skewed.skew -= timedelta(seconds=60)
    skewed.ask(1.0, 1.0)
    assert abs(skewed.time.now() - skewed.store_now) < timedelta(milliseconds=10)


def test_monotonic_times_map_to_store_times() -> None:
    skewed = SkewedStore()
    skewed.ask(0.0, 0.0)
    assert skewed.time.at(skewed.clock.monotonic()) == skewed.time.now() == NOW + skewed.skew


def test_duties_with_the_same_interval_share_their_ticks() -> None:
    skewed = SkewedStore()
    second, five = timedelta(seconds=1), timedelta(seconds=5)
    skewed.clock.advance(2.4)
    assert skewed.time.seconds_to_tick(second) == pytest.approx(0.6)
    assert skewed.time.seconds_to_tick(five) == pytest.approx(2.6)
    skewed.clock.advance(0.6)
    assert skewed.time.seconds_to_tick(second) == pytest.approx(1.0)
    assert skewed.time.seconds_to_tick(five) == pytest.approx(2.0)


def test_an_early_wakeup_does_not_poll_twice() -> None:
    skewed = SkewedStore()
    skewed.clock.advance(2.98)
    assert skewed.time.seconds_to_tick(timedelta(seconds=1)) == pytest.approx(1.02)
