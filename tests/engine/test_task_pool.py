"""The task pool: few asyncio tasks execute many attempts without delaying each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from chimes.engine.executor import TaskPool
from chimes.engine.in_flight import Capacity, InFlightRun, StopReason
from tests.builders import NOW, a_run


def attempts(count: int) -> list[InFlightRun]:
    return [
        InFlightRun(a_run(), cast(Capacity, None), lambda _: None, lambda: NOW)
        for _ in range(count)
    ]


class Executed:
    """Records the executed attempts and their tasks."""

    def __init__(self, one: Callable[[InFlightRun], Awaitable[None]] | None = None) -> None:
        self.order: list[InFlightRun] = []
        self.tasks: set[asyncio.Task[None] | None] = set()
        self.one = one

    async def __call__(self, attempt: InFlightRun) -> None:
        assert attempt.task is asyncio.current_task()
        self.order.append(attempt)
        self.tasks.add(attempt.task)
        if self.one is not None:
            await self.one(attempt)


async def run_loop(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_attempts_that_never_suspend_share_a_task() -> None:
    executed = Executed()
    given = attempts(100)
    pool = TaskPool(executed)
    pool.submit(given)
    await run_loop(2)
    assert executed.order == given
    assert len(executed.tasks) == 1


async def test_suspending_attempts_start_in_order_within_a_few_turns() -> None:
    go_on = asyncio.Event()

    async def one(_: InFlightRun) -> None:
        await go_on.wait()

    executed = Executed(one)
    given = attempts(500)
    pool = TaskPool(executed)
    pool.submit(given)
    await run_loop()
    assert executed.order == given
    assert len(executed.tasks) == 500
    go_on.set()
    # The next batch starts with as many tasks at once.
    more = attempts(500)
    pool.submit(more)
    await run_loop(3)
    assert executed.order == given + more


async def test_attempts_that_end_together_start_no_tasks_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = asyncio.Event()

    async def one(_: InFlightRun) -> None:
        await go_on.wait()

    pool = TaskPool(Executed(one))
    pool.submit(attempts(200))
    await run_loop()
    created: list[object] = []
    create = asyncio.create_task
    monkeypatch.setattr(
        asyncio, "create_task", lambda *args, **kwargs: created.append(1) or create(*args, **kwargs)
    )
    go_on.set()
    # All 200 end while the tasks for these wait for their first step.
    pool.submit(attempts(200))
    await run_loop(3)
    assert len(created) <= 200


async def test_a_suspended_attempt_does_not_delay_the_queue() -> None:
    never = asyncio.Event()
    given = attempts(50)

    async def one(attempt: InFlightRun) -> None:
        if attempt is given[10]:
            await never.wait()

    executed = Executed(one)
    TaskPool(executed).submit(given)
    await run_loop(6)
    assert executed.order == given
    never.set()
    await run_loop(2)


async def test_finished_attempts_are_skipped() -> None:
    executed = Executed()
    given = attempts(3)
    TaskPool(executed).submit(given)
    given[1].finished = True
    await run_loop(2)
    assert executed.order == [given[0], given[2]]


async def test_a_canceled_task_is_not_reused() -> None:
    given = attempts(5)

    async def one(attempt: InFlightRun) -> None:
        if attempt is given[2]:
            attempt.stop = StopReason.CANCEL
            assert attempt.task is not None
            # It ends without handling the cancellation.
            attempt.task.cancel()

    executed = Executed(one)
    TaskPool(executed).submit(given)
    await run_loop(6)
    assert executed.order == given
    assert given[2].task is not given[3].task
    assert given[3].task is given[4].task


async def test_a_suspended_task_is_not_reused() -> None:
    """Sessions and callbacks may be bound to a task: the next attempt must not get them."""
    given = attempts(4)

    async def one(attempt: InFlightRun) -> None:
        if attempt is given[1]:
            await asyncio.sleep(0)

    executed = Executed(one)
    pool = TaskPool(executed)
    pool.submit(given)
    await run_loop()
    more = attempts(1)
    pool.submit(more)
    await run_loop()
    assert executed.order == given + more
    assert given[0].task is given[1].task
    assert given[1].task not in (given[2].task, given[3].task, more[0].task)


async def test_a_pending_cancellation_does_not_reach_the_next_attempt() -> None:
    given = attempts(3)

    async def one(attempt: InFlightRun) -> None:
        if attempt is given[0]:
            # The function cancels its own task, without suspending.
            assert attempt.task is not None
            attempt.task.cancel()
        else:
            await asyncio.sleep(0)
            waited.append(attempt)

    waited: list[InFlightRun] = []
    TaskPool(Executed(one)).submit(given)
    await run_loop()
    assert waited == given[1:]


async def test_the_number_of_tasks_is_bounded() -> None:
    async def one(_: InFlightRun) -> None:
        await asyncio.sleep(0)

    executed = Executed(one)
    pool = TaskPool(executed)
    before = asyncio.all_tasks()
    for _ in range(100):
        pool.submit(attempts(2))
        pool.submit(attempts(2))
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks() - before) <= 20
    await run_loop()
    assert len(executed.order) == 400


async def test_a_bug_in_one_attempt_does_not_affect_others() -> None:
    given = attempts(5)

    async def one(attempt: InFlightRun) -> None:
        if attempt is given[2]:
            raise RuntimeError("a bug")

    executed = Executed(one)
    TaskPool(executed).submit(given)
    await run_loop(6)
    assert executed.order == given
    # Retrieved here: otherwise the task reports it whenever it is collected, during another test.
    failed = given[2].task
    assert failed is not None
    assert str(failed.exception()) == "a bug"
