"""Options of a task apply when it is started through the API of any node, with or without the
application."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from chimes import Chimes
from chimes.client import AsyncClient
from chimes.model.policy import OnLost, Overlap, Policy
from chimes.model.run import RunStatus
from chimes.model.target import FlowTarget, TaskTarget
from tests.sdk.inspection import QUICK, runs_of, stored
from tests.sdk.process import Start


def an_app(url: str) -> tuple[Chimes, asyncio.Event]:
    app = Chimes(url, settings=QUICK)
    gate = asyncio.Event()

    @app.task(
        retries=3,
        retry_backoff="20ms",
        timeout="7s",
        concurrency=2,
        on_lost="stop",
        priority=5,
    )
    async def pay(number: int) -> int:
        await gate.wait()
        return number

    flow = app.flow("pipeline", timeout="2h", priority=2)

    @flow.step()
    async def load() -> int:
        return 1

    return app, gate


def assert_task_policy(policy: Policy) -> None:
    assert (policy.max_retries, policy.timeout) == (3, timedelta(seconds=7))
    assert (policy.retry_backoff, policy.on_lost) == (timedelta(milliseconds=20), OnLost.STOP)
    assert (policy.concurrency_key, policy.max_concurrent_runs) == ("task:pay", 2)
    assert policy.overlap is Overlap.QUEUE


async def test_options_through_the_api_of_another_node(start: Start, shared_url: str) -> None:
    server = start("serve", "--store", shared_url, "--port", "0", PORT="0").ready()
    app, gate = an_app(shared_url)
    later = datetime.now(UTC) + timedelta(hours=1)
    await app.start()
    try:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            handles = [await client.enqueue("pay", {"number": each}) for each in range(8)]
            assert sum(run.blocked for run in await runs_of(app)) == 6
            gate.set()
            assert [await each.result(30) for each in handles] == list(range(8))
            await client.schedule("payments", "0 9 * * *", "task:pay", args={"number": 1})
            assert_task_policy((await stored(app, "payments")).policy)
            assert (await stored(app, "payments")).priority == 5
            await client.schedule("payments", "0 9 * * *", "flow:pipeline")
            turned = await stored(app, "payments")
            assert (turned.policy.timeout, turned.priority) == (timedelta(hours=2), 2)
            assert (turned.policy.concurrency_key, turned.policy.max_retries) == (None, 0)
            await client.enqueue("pay", {"number": 9}, retries=0, priority=0, at=later)
        runs = await runs_of(app)
        for run in runs[:-1]:
            assert_task_policy(run.policy)
            assert (run.priority, run.status) == (5, RunStatus.SUCCEEDED)
        assert (runs[-1].policy.max_retries, runs[-1].priority) == (0, 0)
        assert runs[-1].concurrency_key == "task:pay"
    finally:
        await app.stop()


@pytest.mark.parametrize("kind", ["task", "flow"])
async def test_options_for_another_application(sqlite_url: str, kind: str) -> None:
    app, _ = an_app(sqlite_url)
    await app.start()
    try:
        other = Chimes(sqlite_url, settings=QUICK)
        target = TaskTarget(name="pay", args={"number": 1})
        other.schedule(
            "theirs", "0 9 * * *", target if kind == "task" else FlowTarget(name="pipeline")
        )
        async with other:
            await other.sync()
            found = await stored(other, "theirs")
            if kind == "task":
                assert_task_policy(found.policy)
                handle = await other.enqueue("pay", {"number": 4}, delay="1h")
                assert_task_policy((await handle.run()).policy)
                assert (await handle.run()).priority == found.priority == 5
            else:
                assert (found.policy.timeout, found.priority) == (timedelta(hours=2), 2)
    finally:
        await app.stop()
