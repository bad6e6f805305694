"""The clock and the harness for tests of applications."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from chimes import Chimes, Context, RunFailed
from chimes.errors import InvalidInput
from chimes.model.node import Node
from chimes.testing import DEFAULT_NOW, AppHarness, SettableClock, result_of


def test_clock_only_moves_when_advanced() -> None:
    clock = SettableClock()
    assert (clock.now(), clock.monotonic()) == (DEFAULT_NOW, 0.0)
    assert clock.advance(1.5) == DEFAULT_NOW + timedelta(seconds=1.5)
    assert clock.advance(timedelta(minutes=1)) == clock.now()
    assert clock.monotonic() == 61.5


def test_setting_the_wall_clock_leaves_the_monotonic_clock() -> None:
    clock = SettableClock()
    clock.set(datetime(2031, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2031, 1, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() == 0.0


def test_negative_advance_and_naive_datetime_are_errors() -> None:
    with pytest.raises(ValueError, match="backwards"):
        SettableClock().advance(-1)
    with pytest.raises(ValueError, match="aware"):
        SettableClock(datetime(2030, 1, 1))  # noqa: DTZ001


# --- the harness --------------------------------------------------------------------------------
def an_app() -> tuple[Chimes, list[object]]:
    app = Chimes("postgresql://nowhere.example/shop")
    calls: list[object] = []

    @app.task(retries=2, retry_backoff="10m")
    async def flaky(context: Context, fail: int) -> str:
        calls.append(context.attempt)
        if context.attempt <= fail:
            raise ValueError("not yet")
        return f"attempt {context.attempt}"

    @app.task
    def chain(depth: int) -> int:
        calls.append(depth)
        return depth

    flow = app.flow("report")

    @flow.step
    async def numbers(count: int) -> list[int]:
        return list(range(count))

    @flow.step(after=[numbers], retries=1, retry_backoff="1h")
    def total(context: Context, numbers: list[int]) -> int:
        if context.attempt == 1:
            raise ValueError("again")
        return sum(numbers)

    app.schedule("hourly", "0 * * * *", chain, args={"depth": 1})
    return app, calls


@pytest.fixture
def chimes_app() -> Chimes:
    return an_app()[0]


@pytest.fixture(params=["memory", "sqlite"])
def chimes_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'test.db'}"


async def test_runs_execute_when_their_time_comes(chimes_harness: AppHarness) -> None:
    harness, app = chimes_harness, chimes_harness.app
    later = await app.enqueue("chain", {"depth": 7}, delay="90m")
    await app.enqueue("flaky", {"fail": 1})
    [queued] = await harness.assert_enqueued("chain", args={"depth": 7}, count=1)
    assert queued.available_at == DEFAULT_NOW + timedelta(minutes=90)
    await harness.assert_not_enqueued("chain", args={"depth": 8})
    with pytest.raises(AssertionError, match=r"found 1; the queue has: .*'depth': 7"):
        await harness.assert_enqueued("chain", count=2)
    assert await harness.run_due() == []
    # The failed attempt waits for its retry.
    [waiting] = await harness.runs("flaky")
    assert (waiting.status, waiting.attempt) == ("queued", 1)
    ended = await harness.run_until("2h")
    assert harness.clock.now() == DEFAULT_NOW + timedelta(hours=2)
    assert [(run.target.requirement, result_of(run)) for run in ended] == [
        ("task:flaky", "attempt 2"),
        ("task:chain", 1),  # 10:00
        ("task:chain", 7),  # 10:30
        ("task:chain", 1),  # 11:00
    ]
    assert await later.result("1s") == 7
    assert all(node.lease_until <= harness.clock.now() for node in await _nodes(harness))


async def _nodes(harness: AppHarness) -> tuple[Node, ...]:
    return await harness.app.runtime().services.store.nodes()


async def test_a_jump_of_the_clock_is_an_outage(chimes_harness: AppHarness) -> None:
    """No lease is lost, and the misfire policy decides about the missed slots."""
    harness = chimes_harness
    handle = await harness.app.enqueue("chain", {"depth": 3})
    harness.clock.advance(timedelta(hours=5, minutes=30))
    ended = await harness.run_due()
    statuses = sorted(run.status.value for run in ended if run.schedule_name == "hourly")
    assert statuses.count("succeeded") == 1
    assert "missed" in statuses
    assert (await handle.run()).attempt == 1


async def test_a_flow_waits_for_the_retry_of_a_step(chimes_harness: AppHarness) -> None:
    handle = await chimes_harness.app.flows["report"].start({"count": 4})
    await chimes_harness.assert_enqueued("report", args={"count": 4})
    await chimes_harness.run_due()
    assert not (await handle.status()).terminal
    ended = await chimes_harness.run_until("1h", check=True)
    assert "flow:report" in {run.target.requirement for run in ended}
    assert await handle.result("1s") == {"total": 6}


async def test_a_flow_waits_for_weeks_in_a_moment() -> None:
    app = an_app()[0]
    flow = app.flow("order")
    paid = flow.wait_for_event("paid", expires_in="400h", default=None)
    rest = flow.sleep("rest", "400h", after=[paid])
    approve = flow.wait_for_approval("approve", after=[rest])

    @flow.step(after=[approve])
    def ship(approve: dict[str, object]) -> object:
        return approve["reason"]

    async with AppHarness(app) as harness:
        handle = await flow.start()
        await harness.run_due()
        assert (await handle.run()).reason == "wait:paid"
        assert len(await app.send_event("paid", 5)) == 1
        await harness.run_until("401h")
        assert (await handle.run()).reason == "wait:approve"
        (waiting,) = [run for run in await harness.runs() if run.step == "approve"]
        await app.approve(waiting.id, reason="checked")
        await harness.run_due()
        assert await handle.result("1s") == {"ship": "checked"}


async def test_failures_are_visible() -> None:
    app, calls = an_app()
    async with AppHarness(app) as harness:
        await app.enqueue("flaky", {"fail": 9})
        ended = await harness.run_until("20m")
        assert [(run.status, run.error) for run in ended] == [("failed", "ValueError: not yet")]
        assert calls == [1, 2, 3]
        await app.enqueue("flaky", {"fail": 9})
        with pytest.raises(RunFailed, match="not yet"):
            await harness.run_until("20m", check=True)
    assert not app.is_open


async def test_tasks_of_other_applications_and_endless_ones() -> None:
    app, _calls = an_app()
    gate = asyncio.Event()

    @app.task
    async def endless() -> None:
        await gate.wait()

    app.schedule("elsewhere", "@hourly", {"kind": "task", "name": "elsewhere"})
    async with AppHarness(app) as harness:
        await harness.run_until("1h")
        await harness.assert_enqueued("elsewhere", count=1)
        await app.enqueue("endless")
        with pytest.raises(TimeoutError, match="task:endless"):
            await harness.run_due(within=0.3)


def test_a_server_is_no_test_store() -> None:
    with pytest.raises(InvalidInput, match="clock of its own"):
        AppHarness(Chimes("memory://"), store="postgresql://h/d")


def test_the_project_of_the_guide_passes(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs/guides/testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", guide, re.DOTALL)
    assert [name for name, _text in blocks] == ["shop.py", "conftest.py", "test_shop.py"]
    for name, text in blocks:
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "--rootdir=.",
            "-c",
            "/dev/null",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
