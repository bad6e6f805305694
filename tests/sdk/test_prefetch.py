"""Prefetch of many runs due at one instant, on real nodes with PostgreSQL: no run is early,
duplicated or started after a pause."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, pause_schedule
from chimes.model.target import TaskTarget
from chimes.store.sql import SqlStore, open_postgres
from chimes.triggers import Every
from tests.builders import a_schedule
from tests.sdk.process import DEADLINE, Start, Worker

RUNS = 200
#: Batches that a test may need until one of them is prefetched in time.
TURNS = 8
APP = """
import os
import time
from chimes import Chimes

app = Chimes(os.environ["CHIMES_STORE"])
calls = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@app.task(name="note")
async def note(number: int) -> None:
    os.write(calls, f"{number} {time.time()!r}\\n".encode())
"""


@pytest.fixture
async def store(postgres_url: str, patient_store: None) -> AsyncIterator[SqlStore]:
    store = open_postgres(postgres_url)
    await store.open()
    yield store
    await store.close()


class Site:
    """Nodes with the application, and the recorded calls."""

    def __init__(self, start: Start, url: str, home: Path) -> None:
        (home / "noting.py").write_text(APP)
        self._start = start
        self._environment = {
            "CHIMES_STORE": url,
            "CHIMES_WORKERS": "300",
            "CHIMES_POLL_INTERVAL": "0.2s",
            "PYTHONPATH": str(home),
            "CALLS": str(home / "calls"),
        }
        self._calls = home / "calls"

    def node(self, lease: str = "30s") -> Worker:
        environment = self._environment | {"CHIMES_LEASE": lease}
        return self._start("worker", "--app", "noting:app", **environment).ready()

    def calls(self) -> list[tuple[int, float]]:
        lines = self._calls.read_text().split("\n")[:-1] if self._calls.exists() else []
        return [(int(number), float(at)) for number, at in (line.split() for line in lines)]


@pytest.fixture
def site(start: Start, postgres_url: str, tmp_path: Path) -> Site:
    return Site(start, postgres_url, tmp_path)


async def create_due_batch(
    store: SqlStore, seconds: float, first: int = 0
) -> tuple[list[Schedule], datetime]:
    slot = await store.now() + timedelta(seconds=seconds)
    made = [
        a_schedule(
            trigger=Every(timedelta(days=365), anchor=slot),
            next_slot=slot,
            next_run_at=slot,
            target=TaskTarget(name="note", args={"number": number}),
        )
        for number in range(first, first + RUNS)
    ]
    await store.load(made)
    return made, slot


async def runs(store: SqlStore, *statuses: RunStatus) -> list[Run]:
    return list((await store.list_runs(RunQuery(statuses=statuses, limit=None))).items)


async def until_runs(store: SqlStore, count: int, *statuses: RunStatus) -> list[Run]:
    end = time.monotonic() + DEADLINE
    while len(found := await runs(store, *statuses)) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}"
        await asyncio.sleep(0.02)
    return found


async def test_no_run_is_early_or_duplicated(store: SqlStore, site: Site) -> None:
    site.node()
    ended: list[Run] = []
    # A slow machine may prefetch nothing before the slot; a later batch is further ahead.
    for turn in range(TURNS):
        _, slot = await create_due_batch(store, 4 * (turn + 1), turn * RUNS)
        ended = await until_runs(store, (turn + 1) * RUNS, RunStatus.SUCCEEDED)
        # The database and the nodes share this machine's clock.
        assert min(at for number, at in site.calls() if number >= turn * RUNS) >= slot.timestamp()
        if any(run.created_at < run.planned_at for run in ended):
            break
    else:
        pytest.fail("no run was prefetched")
    assert Counter(number for number, _ in site.calls()) == Counter(range(len(ended)))
    assert {run.attempt for run in ended} == {1}


async def test_schedule_paused_a_second_before_does_not_run(store: SqlStore, site: Site) -> None:
    site.node()
    expected: set[int] = set()
    in_time: set[ScheduleId] = set()

    async def tried(first: int) -> None:
        made, slot = await create_due_batch(store, 2.5, first)
        # The batch is claimed in one transaction; reading one of its runs takes the least time.
        end = time.monotonic() + DEADLINE
        while not (await store.list_runs(RunQuery(schedule_id=made[0].id))).items:
            assert time.monotonic() < end, "not claimed"
            await asyncio.sleep(0.01)

        def pause(schedule: Schedule, now: datetime) -> Schedule:
            in_time.discard(schedule.id)
            if now < slot - PREFETCH_CUTOFF:
                in_time.add(schedule.id)
            return pause_schedule(schedule, now, "me")

        # Few, so that they are paused before the slot also on a slow machine.
        await asyncio.gather(*(store.change_schedule(each.id, pause) for each in made[:3]))
        expected.update(first + n for n, each in enumerate(made) if each.id not in in_time)
        await until_runs(store, len(expected), RunStatus.SUCCEEDED)

    # On a slow machine the pause may come too late.
    for turn in range(TURNS):
        if not in_time:
            await tried(turn * RUNS)
    assert in_time
    assert Counter(number for number, _ in site.calls()) == Counter(expected)
    assert len(await runs(store)) == len(expected)


# kill -9 inside the prefetch window; the other node takes over after the lease.
async def test_prefetched_runs_of_a_killed_node_run_once(store: SqlStore, site: Site) -> None:
    node = site.node(lease="3s")
    _, slot = await create_due_batch(store, 2.5)
    await until_runs(store, RUNS)
    node.kill()
    # On a slow machine the kill may come too late: then these may be repeated.
    begun = {number for number, _ in site.calls()}
    other = site.node()
    ended = await until_runs(store, RUNS, RunStatus.SUCCEEDED)
    calls = site.calls()
    counted = Counter(number for number, _ in calls)
    assert set(counted) == set(range(RUNS))
    assert {number for number in counted if counted[number] > 1} <= begun
    assert min(at for _, at in calls) >= slot.timestamp()
    assert all(run.attempt <= 2 and len(run.attempts) <= 2 for run in ended)
    assert other.stop() == 0
