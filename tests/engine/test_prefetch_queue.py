"""Prefetched runs are all confirmed, whenever they were added."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from chimes.clock import SystemClock
from chimes.engine.in_flight import Capacity, InFlightRun
from chimes.engine.membership import StoreClock
from chimes.engine.prefetch import PrefetchQueue
from chimes.model.ids import NodeId, RunId
from chimes.model.planning import FireContext, plan, prefetch_plan
from chimes.model.run import claim
from chimes.store.port import PrefetchWindow, Store
from tests.builders import due_schedule


class ConfirmingStore:
    """A store that confirms everything; `then` is called when it has answered."""

    supports_prefetch = True

    def __init__(self) -> None:
        self.confirmed: list[tuple[RunId, int]] = []
        self.then = lambda: None

    async def now(self) -> datetime:
        return SystemClock().now()

    async def next_prefetch(self, within: timedelta, each: timedelta) -> PrefetchWindow | None:
        raise AssertionError((within, each))

    async def confirm_prefetched(
        self, attempts: Sequence[tuple[RunId, int]]
    ) -> frozenset[tuple[RunId, int]]:
        self.confirmed += attempts
        asyncio.get_running_loop().call_soon(self.then)
        return frozenset(attempts)


def an_attempt(slot: datetime) -> InFlightRun:
    firing = plan(due_schedule(slot), FireContext(), slot)
    assert firing.on_time
    now = slot - timedelta(seconds=1)
    run = claim(prefetch_plan(firing, now).runs[0], NodeId("node-1"), now)
    return InFlightRun(run, cast(Capacity, None), lambda _: None, lambda: slot)


async def test_a_run_added_after_the_last_answer_is_confirmed_too() -> None:
    store = ConfirmingStore()
    gone: list[InFlightRun] = []
    all_gone = asyncio.Event()

    def start(attempts: Sequence[InFlightRun]) -> None:
        gone.extend(attempts)
        if len(gone) == 2:
            all_gone.set()

    queue = PrefetchQueue(
        store,
        StoreClock(cast(Store, store), SystemClock()),
        start=start,
        drop=lambda attempt: None,
    )
    # It is due, so it is confirmed immediately.
    slot = SystemClock().now()
    first, second = an_attempt(slot), an_attempt(slot)
    queue.add(first)

    def another() -> None:
        store.then = lambda: None
        queue.add(second)

    store.then = another
    await queue.run_once()
    assert store.confirmed == [(each.run.id, each.run.fence) for each in (first, second)]
    async with asyncio.timeout(60):
        await all_gone.wait()
    assert gone == [first, second]
