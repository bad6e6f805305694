"""Fallback to memory scheduling while the schedules table is broken."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from chimes import Chimes
from chimes.model.run import Run, RunStatus
from tests.sdk.inspection import QUICK, eventually, runs_of
from tests.sdk.test_modes import is_gapless, slots
from tests.sdk.test_transactional_enqueue import async_url

GONE = "schedules_gone"


@pytest.fixture(autouse=True)
def frequent_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refreshes the local schedules more often than in production."""
    monkeypatch.setattr("chimes.sdk.memory_mode.REFRESH", timedelta(seconds=1))


async def rename(url: str, before: str, after: str) -> None:
    statement = f"ALTER TABLE {before} RENAME TO {after}"
    if url.startswith("sqlite"):
        await asyncio.to_thread(_rename_in_file, Path(url.removeprefix("sqlite:///")), statement)
        return
    engine = create_async_engine(async_url(url))
    async with engine.begin() as connection:
        await connection.execute(text(statement))
    await engine.dispose()


def _rename_in_file(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, timeout=10)
    with connection:
        connection.execute(statement)
    connection.close()


def an_app(url: str) -> Chimes:
    app = Chimes(url, settings=QUICK)

    @app.task
    async def tick() -> str:
        return "done"

    app.schedule("tick", "every 1s", tick, overlap="allow", catch_up="all")
    app.schedule("paused", "every 1s", tick, enabled=False)
    return app


async def more_runs(app: Chimes, count: int) -> list[Run]:
    """Waits until this many more runs have succeeded."""
    before = len(await runs_of(app, "tick", RunStatus.SUCCEEDED))
    await eventually(
        lambda: runs_of(app, "tick", RunStatus.SUCCEEDED),
        lambda runs: len(runs) >= before + count,
    )
    return await runs_of(app, "tick")


def falling_back(app: Chimes) -> bool:
    assert app.node is not None
    return app.node.fallback.active


async def until(app: Chimes, wanted: bool) -> None:
    async def asked() -> bool:
        return falling_back(app)

    await eventually(asked, lambda active: active is wanted)


async def test_fallback_while_the_schedules_table_is_missing(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    apps = [an_app(shared_url), an_app(shared_url)]
    for app in apps:
        await app.start()
    first = apps[0]
    assert first.node is not None
    try:
        await more_runs(first, 2)
        assert not falling_back(first)

        await rename(shared_url, "schedules", GONE)
        for app in apps:
            await until(app, True)
        assert first.node.metrics.registry.get_sample_value("chimes_fallback") == 1
        assert "scheduling from memory" in first.node.not_ready
        assert "the store cannot schedule" in caplog.text
        broken = await more_runs(first, 3)
        assert is_gapless(broken)

        await rename(shared_url, GONE, "schedules")
        for app in apps:
            await until(app, False)
        assert first.node.metrics.registry.get_sample_value("chimes_fallback") == 0
        healed = await more_runs(first, 2)
        assert is_gapless(healed)
        assert {run.status for run in healed} <= {
            RunStatus.SUCCEEDED,
            RunStatus.QUEUED,
            RunStatus.RUNNING,
        }
        assert all(run.attempt <= 1 for run in healed)
        assert len({run.schedule_id for run in healed}) == 1
        # The pause of an operator is respected.
        assert await runs_of(first, "paused") == []
    finally:
        for app in apps:
            await app.stop()


async def test_start_while_the_schedules_table_is_broken(shared_url: str) -> None:
    app = an_app(shared_url)
    await app.start()
    before = await more_runs(app, 1)
    await app.stop()
    await rename(shared_url, "schedules", GONE)
    again = an_app(shared_url)
    await again.start()
    try:
        assert falling_back(again)
        runs = await more_runs(again, 2)
        # The id is found in the runs, so the slots are those of the same schedule.
        assert {run.schedule_id for run in runs} == {before[0].schedule_id}
        assert len(set(slots(runs))) == len(runs)
        await rename(shared_url, GONE, "schedules")
        await until(again, False)
        healed = await more_runs(again, 2)
        assert len(set(slots(healed))) == len(healed)
        assert {info.name for info in await again.list_schedules()} == {"tick", "paused"}
    finally:
        await again.stop()


async def test_nothing_runs_while_the_whole_store_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No fallback; missed slots are caught up afterwards."""
    from tests.servers import start_postgres

    with start_postgres() as server:
        app = an_app(server.new_database())
        await app.start()
        try:
            before = len(await more_runs(app, 1))
            await asyncio.to_thread(server.pause)
            try:
                await asyncio.sleep(3)  # a few slots pass
                assert not falling_back(app)
            finally:
                await asyncio.to_thread(server.resume)
            runs = await more_runs(app, 4)
            assert is_gapless(runs, timedelta(seconds=1))
            assert len(runs) > before + 3
        finally:
            await app.stop()
    assert "the store cannot schedule" not in caplog.text
