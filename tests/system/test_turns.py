"""A real node with a long queue of one owner starts the run of another one soon."""

from __future__ import annotations

import asyncio

import pytest

from chimes.clock import SystemClock
from chimes.config import Settings
from chimes.config.location import store_location
from chimes.model.target import HttpTarget
from chimes.runtime.composition import build_store
from tests.builders import ALICE, BOB, a_run
from tests.system.conftest import Start
from tests.system.receiver import Receiver

pytestmark = pytest.mark.timeout(300)
MANY = 2000
WORKERS = 4


def test_a_second_owner_does_not_wait_for_the_first(
    store: str, start: Start, receiver: Receiver
) -> None:
    now = SystemClock().now()
    times = {"created_at": now, "planned_at": now, "available_at": now}
    first, second = (HttpTarget(url=receiver.url(path)) for path in ("/first", "/second"))
    runs = [a_run(owner=ALICE, target=first, **times) for _ in range(MANY)]
    runs.append(a_run(owner=BOB, target=second, **times))

    async def fill() -> None:
        stored = build_store(store_location(Settings(store=store)), SystemClock())
        await stored.open()
        await stored.add_runs(runs)
        await stored.close()

    asyncio.run(fill())
    start(store, CHIMES_WORKERS=str(WORKERS))
    receiver.wait_for("/second", 1)
    order = [call.path for call in receiver.calls()]
    # A claim or two of other runs, and those that overtake it on their way.
    assert order.index("/second") <= 4 * WORKERS
