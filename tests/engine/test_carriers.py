"""Attempts are carried out one after another by few tasks, and none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from chimes.engine.capacity import Capacity
from chimes.engine.executor import TaskPool
from chimes.engine.in_flight import InFlightRun, Stop
from tests.builders import NOW, a_run


def holds(count: int) -> list[InFlightRun]:
    return [
        InFlightRun(a_run(), cast(Capacity, None), lambda _: None, lambda: NOW)
        for _ in range(count)
    ]


class Carried:
    """What was carried out, by which tasks."""

    def __init__(self, one: Callable[[InFlightRun], Awaitable[None]] | None = None) -> None:
        self.order: list[InFlightRun] = []
        self.tasks: set[asyncio.Task[None] | None] = set()
        self.one = one

    async def __call__(self, hold: InFlightRun) -> None:
        assert hold.task is asyncio.current_task()
        self.order.append(hold)
        self.tasks.add(hold.task)
        if self.one is not None:
            await self.one(hold)


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_attempts_that_never_wait_share_a_task() -> None:
    carried = Carried()
    given = holds(100)
    carriers = TaskPool(carried)
    carriers.put(given)
    await turns(2)
    assert carried.order == given
    assert len(carried.tasks) == 1


async def test_attempts_that_wait_all_begin_in_their_order_within_a_few_turns() -> None:
    go_on = asyncio.Event()

    async def one(_: InFlightRun) -> None:
        await go_on.wait()

    carried = Carried(one)
    given = holds(500)
    carriers = TaskPool(carried)
    carriers.put(given)
    await turns()
    assert carried.order == given
    assert len(carried.tasks) == 500
    go_on.set()
    # Next time as many begin at once, and none is left behind.
    more = holds(500)
    carriers.put(more)
    await turns(3)
    assert carried.order == given + more


async def test_one_that_waits_does_not_hold_up_those_behind_it() -> None:
    never = asyncio.Event()
    given = holds(50)

    async def one(hold: InFlightRun) -> None:
        if hold is given[10]:
            await never.wait()

    carried = Carried(one)
    TaskPool(carried).put(given)
    await turns(6)
    assert carried.order == given
    never.set()
    await turns(2)


async def test_those_that_were_handed_over_before_are_passed_over() -> None:
    carried = Carried()
    given = holds(3)
    TaskPool(carried).put(given)
    given[1].handed_over = True
    await turns(2)
    assert carried.order == [given[0], given[2]]


async def test_a_task_that_was_told_to_stop_carries_out_nothing_else() -> None:
    given = holds(5)

    async def one(hold: InFlightRun) -> None:
        if hold is given[2]:
            hold.stop = Stop.CANCEL
            assert hold.task is not None
            # It ends without having listened.
            hold.task.cancel()

    carried = Carried(one)
    TaskPool(carried).put(given)
    await turns(6)
    assert carried.order == given
    assert given[2].task is not given[3].task
    assert given[3].task is given[4].task


async def test_who_has_waited_carries_out_nothing_else() -> None:
    """Sessions, callbacks and the like hang on a task: they are not found by the next."""
    given = holds(4)

    async def one(hold: InFlightRun) -> None:
        if hold is given[1]:
            await asyncio.sleep(0)

    carried = Carried(one)
    carriers = TaskPool(carried)
    carriers.put(given)
    await turns()
    more = holds(1)
    carriers.put(more)
    await turns()
    assert carried.order == given + more
    assert given[0].task is given[1].task
    assert given[1].task not in (given[2].task, given[3].task, more[0].task)


async def test_a_cancellation_that_is_left_behind_meets_nobody_else() -> None:
    given = holds(3)

    async def one(hold: InFlightRun) -> None:
        if hold is given[0]:
            # The doing of the function itself, which has not even waited.
            assert hold.task is not None
            hold.task.cancel()
        else:
            await asyncio.sleep(0)
            waited.append(hold)

    waited: list[InFlightRun] = []
    TaskPool(Carried(one)).put(given)
    await turns()
    assert waited == given[1:]


async def test_there_are_never_more_at_once_than_attempts() -> None:
    async def one(_: InFlightRun) -> None:
        await asyncio.sleep(0)

    carried = Carried(one)
    carriers = TaskPool(carried)
    before = asyncio.all_tasks()
    for _ in range(100):
        carriers.put(holds(2))
        carriers.put(holds(2))
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks() - before) <= 20
    await turns()
    assert len(carried.order) == 400


async def test_a_bug_in_one_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = holds(5)

    async def one(hold: InFlightRun) -> None:
        if hold is given[2]:
            raise RuntimeError("a bug")

    carried = Carried(one)
    TaskPool(carried).put(given)
    await turns(6)
    assert carried.order == given
