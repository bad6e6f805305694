"""How far ahead a node looks, and when it looks again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from chimes.engine.prefetch import (
    AHEAD,
    ASK_AGAIN,
    CAUTION,
    COST,
    FURTHEST,
    LAST_CALL,
    TELLING,
    TO_SPARE,
    PrefetchPlanner,
)
from chimes.model.ids import RunId
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.store.port import Pressing
from chimes.testing import SettableClock
from tests.builders import NOW, SECOND

DUE = NOW + 4 * SECOND


class Coming:
    """What a store says is to come; not more than that."""

    looks_ahead = True

    def __init__(self, answer: Pressing | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[timedelta, timedelta]] = []

    async def pressing(self, within: timedelta, each: timedelta) -> Pressing | None:
        self.asked.append((within, each))
        return self.answer

    async def confirm(self, holds: Sequence[tuple[RunId, int]]) -> frozenset[tuple[RunId, int]]:
        raise AssertionError(f"nothing is confirmed here: {holds}")


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOW)


async def test_what_is_no_crowd_is_left_to_its_usual_time(clock: SettableClock) -> None:
    store = Coming()
    outlook = PrefetchPlanner(store, clock)
    assert await outlook.until(NOW) == NOW + AHEAD
    assert store.asked == [(FURTHEST, timedelta(seconds=COST * CAUTION))]
    far = NOW + timedelta(minutes=1)
    assert outlook.next_look(far, NOW) == far - FURTHEST
    assert outlook.next_look(far, far - FURTHEST) == far - AHEAD
    assert outlook.next_look(far, far - AHEAD) == far


async def test_a_large_crowd_is_begun_in_time(clock: SettableClock) -> None:
    begin_by = DUE - 2 * SECOND
    outlook = PrefetchPlanner(Coming(Pressing(due=DUE, begin_by=begin_by)), clock)
    begin = begin_by - PREFETCH_CUTOFF - TO_SPARE
    assert await outlook.until(NOW) == NOW + AHEAD
    assert outlook.next_look(DUE, NOW) == begin
    clock.advance(begin - NOW)
    assert await outlook.until(begin) == DUE
    # It looks no further than it must, however late it comes to it.
    clock.advance(DUE - SECOND - begin)
    assert await outlook.until(DUE - SECOND) == DUE - SECOND + AHEAD


async def test_the_store_is_not_asked_all_the_time(clock: SettableClock) -> None:
    store = Coming()
    outlook = PrefetchPlanner(store, clock)
    for _ in range(5):
        await outlook.until(NOW)
    assert len(store.asked) == 1
    clock.advance(timedelta(seconds=ASK_AGAIN))
    await outlook.until(NOW)
    assert len(store.asked) == 2


async def test_it_learns_what_taking_one_costs(clock: SettableClock) -> None:
    store = Coming()
    outlook = PrefetchPlanner(store, clock)
    outlook.took(TELLING - 1, 100.0)
    for _ in range(100):
        outlook.took(200, 200 * 0.001)
    await outlook.until(NOW)
    ((_, each),) = store.asked
    assert each.total_seconds() == pytest.approx(0.001 * CAUTION, rel=0.01)


async def test_what_cannot_be_taken_is_left_alone_for_a_moment(clock: SettableClock) -> None:
    outlook = PrefetchPlanner(Coming(), clock)
    due = NOW + SECOND
    assert await outlook.until(NOW) == NOW + AHEAD
    outlook.in_vain()
    assert outlook.next_look(due, NOW) == due
    clock.advance(timedelta(seconds=0.1))
    now = NOW + timedelta(seconds=0.1)
    # Somebody has changed something: it is looked at again, but not now.
    assert await outlook.until(now) == now
    wait = (outlook.next_look(due, now) - NOW).total_seconds()
    assert wait == pytest.approx(ASK_AGAIN, abs=0.001)
    clock.advance(timedelta(seconds=ASK_AGAIN))
    assert await outlook.until(now) == now + AHEAD


async def test_who_found_no_place_is_called_once_more(clock: SettableClock) -> None:
    outlook = PrefetchPlanner(Coming(), clock)
    due = NOW + SECOND
    assert outlook.next_look(due, NOW) == due
    outlook.left_over = True
    assert outlook.next_look(due, NOW) == due - LAST_CALL
    assert outlook.next_look(due, due - LAST_CALL) == due
