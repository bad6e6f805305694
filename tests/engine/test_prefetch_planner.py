"""How far ahead the scheduler prefetches, and when it checks again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from chimes.engine.prefetch import (
    COST_MARGIN,
    FULL_CAPACITY_LEAD,
    INITIAL_COST,
    MAX_LEAD,
    MIN_LEAD,
    MIN_SAMPLE,
    QUERY_INTERVAL,
    SAFETY_MARGIN,
    PrefetchPlanner,
)
from chimes.model.ids import RunId
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.store.port import PrefetchWindow
from chimes.testing import SettableClock
from tests.builders import NOW, SECOND

DUE = NOW + 4 * SECOND


class ScriptedStore:
    """A store with a scripted answer to `next_prefetch`."""

    supports_prefetch = True

    def __init__(self, answer: PrefetchWindow | None = None) -> None:
        self.answer = answer
        self.queries: list[tuple[timedelta, timedelta]] = []

    async def next_prefetch(self, within: timedelta, each: timedelta) -> PrefetchWindow | None:
        self.queries.append((within, each))
        return self.answer

    async def confirm_prefetched(
        self, claims: Sequence[tuple[RunId, int]]
    ) -> frozenset[tuple[RunId, int]]:
        raise AssertionError(f"nothing is confirmed here: {claims}")


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOW)


async def test_a_small_batch_has_the_minimum_lead(clock: SettableClock) -> None:
    store = ScriptedStore()
    planner = PrefetchPlanner(store, clock)
    assert await planner.horizon(NOW) == NOW + MIN_LEAD
    assert store.queries == [(MAX_LEAD, timedelta(seconds=INITIAL_COST * COST_MARGIN))]
    far = NOW + timedelta(minutes=1)
    assert planner.next_check(far, NOW) == far - MAX_LEAD
    assert planner.next_check(far, far - MAX_LEAD) == far - MIN_LEAD
    assert planner.next_check(far, far - MIN_LEAD) == far


async def test_a_large_batch_is_started_in_time(clock: SettableClock) -> None:
    begin_by = DUE - 2 * SECOND
    planner = PrefetchPlanner(ScriptedStore(PrefetchWindow(due=DUE, begin_by=begin_by)), clock)
    begin = begin_by - PREFETCH_CUTOFF - SAFETY_MARGIN
    assert await planner.horizon(NOW) == NOW + MIN_LEAD
    assert planner.next_check(DUE, NOW) == begin
    clock.advance(begin - NOW)
    assert await planner.horizon(begin) == DUE
    # The horizon is no further than necessary, however late the check is.
    clock.advance(DUE - SECOND - begin)
    assert await planner.horizon(DUE - SECOND) == DUE - SECOND + MIN_LEAD


async def test_queries_are_rate_limited(clock: SettableClock) -> None:
    store = ScriptedStore()
    planner = PrefetchPlanner(store, clock)
    for _ in range(5):
        await planner.horizon(NOW)
    assert len(store.queries) == 1
    clock.advance(timedelta(seconds=QUERY_INTERVAL))
    await planner.horizon(NOW)
    assert len(store.queries) == 2


async def test_the_cost_estimate_follows_observations(clock: SettableClock) -> None:
    store = ScriptedStore()
    planner = PrefetchPlanner(store, clock)
    planner.observe(MIN_SAMPLE - 1, 100.0)
    for _ in range(100):
        planner.observe(200, 200 * 0.001)
    await planner.horizon(NOW)
    ((_, each),) = store.queries
    assert each.total_seconds() == pytest.approx(0.001 * COST_MARGIN, rel=0.01)


async def test_prefetch_pauses_after_an_empty_claim(clock: SettableClock) -> None:
    planner = PrefetchPlanner(ScriptedStore(), clock)
    due = NOW + SECOND
    assert await planner.horizon(NOW) == NOW + MIN_LEAD
    planner.pause()
    assert planner.next_check(due, NOW) == due
    clock.advance(timedelta(seconds=0.1))
    now = NOW + timedelta(seconds=0.1)
    # After a change it is checked again, but not yet.
    assert await planner.horizon(now) == now
    wait = (planner.next_check(due, now) - NOW).total_seconds()
    assert wait == pytest.approx(QUERY_INTERVAL, abs=0.001)
    clock.advance(timedelta(seconds=QUERY_INTERVAL))
    assert await planner.horizon(now) == now + MIN_LEAD


async def test_an_incomplete_batch_is_checked_again(clock: SettableClock) -> None:
    planner = PrefetchPlanner(ScriptedStore(), clock)
    due = NOW + SECOND
    assert planner.next_check(due, NOW) == due
    planner.incomplete = True
    assert planner.next_check(due, NOW) == due - FULL_CAPACITY_LEAD
    assert planner.next_check(due, due - FULL_CAPACITY_LEAD) == due
