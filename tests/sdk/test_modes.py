"""Mode db, mode memory, both in one worker, and migration between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from chimes import Chimes
from chimes.clock import SystemClock
from chimes.errors import Conflict, NotFound
from chimes.model.run import Origin, Run, RunStatus
from tests.sdk.inspection import QUICK, eventually, runs_of, stored

SECOND = timedelta(seconds=1)


def an_app(
    url: str, *names: str, every: str = "every 1s", clock: Any = None, **options: Any
) -> Chimes:
    app = Chimes(url, settings=QUICK, clock=clock)

    @app.task
    async def tick() -> None: ...

    for name in names or ("tick",):
        # On a slow machine a run may still be in progress at the next slot.
        app.schedule(name, every, tick, **({"overlap": "allow"} | options))
    return app


async def wait_for_ticks(app: Chimes, count: int, name: str = "tick") -> list[Run]:
    """All runs, once this many have succeeded."""
    await eventually(
        lambda: runs_of(app, name, RunStatus.SUCCEEDED), lambda runs: len(runs) >= count, 30
    )
    return await runs_of(app, name)


def slots(runs: list[Run]) -> list[datetime]:
    return [run.slot for run in runs if run.slot is not None]


def is_gapless(runs: list[Run], step: timedelta = SECOND) -> bool:
    found = slots(runs)
    return all(after - before == step for before, after in pairwise(found))


class AnHourAhead(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


async def test_many_memory_mode_workers_run_each_slot_once(shared_url: str) -> None:
    apps = [an_app(shared_url, mode="memory") for _ in range(3)]
    for app in apps:
        await app.start()
    try:
        runs = await wait_for_ticks(apps[0], 4)
        assert is_gapless(runs)
        assert await apps[0].list_schedules() == []
    finally:
        for app in apps:
            await app.stop()


@pytest.mark.parametrize("server", ["postgres_url", "mariadb_url"])
async def test_worker_with_a_wrong_clock_fires_the_same_slots(
    server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server)
    apps = [an_app(url, mode="memory"), an_app(url, mode="memory", clock=AnHourAhead())]
    for app in apps:
        await app.start()
    try:
        runs = await wait_for_ticks(apps[0], 3)
        assert is_gapless(runs)
        assert max(slots(runs)) < datetime.now(UTC) + timedelta(minutes=5)
    finally:
        for app in apps:
            await app.stop()


async def test_both_modes_side_by_side_in_one_worker(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Chimes(url, settings=QUICK)

    @app.task
    async def tick() -> None: ...

    app.schedule("kept", "every 1s", tick, mode="db", overlap="allow")
    app.schedule("here", "every 1s", tick, mode="memory", overlap="allow")
    app.schedule("usual", "@daily", tick)
    await app.start()
    try:
        for name in ("kept", "here"):
            runs = await wait_for_ticks(app, 2, name)
            assert is_gapless(runs)
        assert {info.name for info in await app.list_schedules()} == {"kept", "usual"}
        warnings = [each for each in caplog.records if "timed in memory" in each.getMessage()]
        assert len(warnings) == 1
        assert warnings[0].levelname == "WARNING"
    finally:
        await app.stop()


async def test_flag_sets_the_default_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def kept(**options: Any) -> list[str]:
        app = Chimes("memory://", **options)

        @app.task
        async def tick() -> None: ...

        app.schedule("db", "@daily", tick, mode="db")
        app.schedule("memory", "@daily", tick, mode="memory")
        app.schedule("usual", "@daily", tick)
        async with app:
            await app.sync()
            return sorted(info.name for info in await app.list_schedules())

    assert await kept() == ["db", "usual"]
    assert await kept(use_db_driven_scheduling=False) == ["db"]
    # Settings of the operator take precedence over the code.
    monkeypatch.setenv("CHIMES_USE_DB_DRIVEN_SCHEDULING", "false")
    assert await kept() == ["db"]
    monkeypatch.setenv("CHIMES_USE_DB_DRIVEN_SCHEDULING", "true")
    assert await kept(use_db_driven_scheduling=False) == ["db", "usual"]


async def test_no_warning_without_memory_mode(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app("memory://")
    await app.start()
    await app.stop()
    assert "timed in memory" not in caplog.text


async def test_methods_reject_memory_mode_schedules() -> None:
    app = an_app("memory://", "here", every="@daily", mode="memory")
    await app.start()
    try:
        for verb in (
            app.get_schedule("here"),
            app.set_schedule_enabled("here", False),
            app.reschedule_for("here", "2030-01-01T00:00:00Z"),
        ):
            with pytest.raises(Conflict, match="timed in memory"):
                await verb
        with pytest.raises(NotFound):
            await app.get_schedule("nothing")
        assert await app.delete_schedule("here") is False
        handle = await app.trigger_schedule("here")
        await handle.result("10s")
        run = await handle.run()
        assert (run.schedule_name, run.origin, run.slot) == ("here", Origin.MANUAL, None)
    finally:
        await app.stop()


# One worker of the old release and one of the new.
async def test_workers_of_both_modes_create_the_same_runs(shared_url: str) -> None:
    old, new = an_app(shared_url, mode="memory"), an_app(shared_url, mode="db")
    await old.start()
    await new.start()
    try:
        runs = await wait_for_ticks(new, 4)
        assert is_gapless(runs)
        assert len({run.schedule_id for run in runs}) == 1
    finally:
        await old.stop()
        await new.stop()


# --- backfill -----------------------------------------------------------------------------------
async def test_backfill_moves_schedules_from_memory_into_the_store(shared_url: str) -> None:
    specs = {"hourly": "@hourly", "daily": "0 9 * * *", "weekly": "0 2 * * 0"}
    app = Chimes(shared_url, use_db_driven_scheduling=False)

    @app.task
    async def tick() -> None: ...

    for name, spec in specs.items():
        app.schedule(name, spec, tick)
    async with app:
        shown = await app.backfill_schedules()
        assert [each.name for each in shown] == list(specs)
        assert all(each.created for each in shown)
        assert await app.list_schedules() == []
        # The canary.
        (canary,) = await app.backfill_schedules(confirm=True, only=["daily"])
        assert canary.created
        assert [info.name for info in await app.list_schedules()] == ["daily"]
        done = await app.backfill_schedules(confirm=True)
        assert {each.name: each.created for each in done} == {
            "hourly": True,
            "daily": False,
            "weekly": True,
        }
        for info in await app.list_schedules():
            schedule = await stored(app, info.name)
            # Computed from the creation time.
            assert info.next_run_at == schedule.trigger.next_after(info.created_at)
            assert info.cron_spec == specs[info.name]
        # ON CONFLICT DO NOTHING.
        before = await stored(app, "daily")
        again = await app.backfill_schedules(confirm=True)
        assert not any(each.created for each in again)
        assert await stored(app, "daily") == before
        with pytest.raises(NotFound, match="did you mean daily"):
            await app.backfill_schedules(only=["dialy"])


async def test_release_with_mode_db_after_a_backfill_changes_nothing(shared_url: str) -> None:
    old = an_app(shared_url, every="@hourly", mode="memory")
    async with old:
        await old.backfill_schedules(confirm=True)
        before = await stored(old, "tick")
    async with an_app(shared_url, every="@hourly", mode="db") as new:
        await new.sync()
        assert await stored(new, "tick") == before


async def test_rollback_to_memory_repeats_no_slot(shared_url: str) -> None:
    new = an_app(shared_url, mode="db")
    await new.start()
    await eventually(lambda: runs_of(new, "tick", RunStatus.SUCCEEDED), len)
    await new.stop()
    async with new:
        assert await new.delete_schedule("tick")
        before = {run.id for run in await runs_of(new, "tick")}
    old = an_app(shared_url, mode="memory")
    await old.start()
    try:
        runs = await eventually(
            lambda: runs_of(old, "tick", RunStatus.SUCCEEDED),
            lambda runs: len({run.id for run in runs} - before) >= 2,
        )
        assert len(set(slots(runs))) == len(runs)
    finally:
        await old.stop()
