"""Node processes, killed or suspended at each step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from chimes.engine import Engine
from chimes.engine.events import Event, RunRescued
from chimes.errors import StoreUnavailable
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.policy import OnLost, Policy
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import pause_schedule
from chimes.store.port import Store
from chimes.store.sql import open_sqlite
from chimes.triggers import Every
from tests.builders import a_run, a_schedule
from tests.engine.crash_node import SETTINGS, Effects
from tests.engine.rig import eventually, until

ROOT = Path(__file__).parents[2]
STEP = timedelta(seconds=0.3)


class Scene:
    """A database, the recorded calls, and one process with a failpoint."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.store = store
        self.database = directory / "chimes.db"
        self.effects_file = directory / "effects"
        self.events: list[Event] = []
        self.node: asyncio.subprocess.Process | None = None
        self.engine: Engine | None = None

    async def start_node(self, failpoints: str) -> asyncio.subprocess.Process:
        env = os.environ | {
            "CHIMES_TEST": "1",
            "CHIMES_FAILPOINTS": failpoints,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        }
        self.node = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.engine.crash_node",
            str(self.database),
            str(self.effects_file),
            env=env,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.node.stdout is not None
        await asyncio.wait_for(self.node.stdout.readline(), 60)
        return self.node

    async def take_over(self) -> None:
        async with asyncio.timeout(60):
            while True:
                engine = Engine(
                    self.store,
                    {"http": Effects(str(self.effects_file))},
                    settings=SETTINGS,
                    listeners=[self.events.append],
                )
                # A suspended process may hold the lock of the file.
                with contextlib.suppress(StoreUnavailable):
                    await engine.start()
                    self.engine = engine
                    return

    def effects(self) -> Counter[tuple[str, int]]:
        if not self.effects_file.exists():
            return Counter()
        lines = self.effects_file.read_text().splitlines()
        return Counter((run_id, int(fence)) for run_id, fence in (x.split() for x in lines))

    async def runs(self) -> list[Run]:
        runs = (await self.store.list_runs(RunQuery(limit=None))).items
        return sorted(runs, key=lambda run: run.planned_at)

    async def check(self) -> list[Run]:
        """Waits for the end of all runs and checks slots, calls and fences."""
        runs = await eventually(
            self.runs, lambda runs: runs and all(run.status.terminal for run in runs)
        )
        effects = self.effects()
        slots = [run.slot for run in runs if run.slot is not None]
        assert {b - a for a, b in pairwise(slots)} <= {STEP}, "every slot has one run"
        assert all(count == 1 for count in effects.values()), "once per run and fence"
        for run in runs:
            fences = [fence for run_id, fence in effects if run_id == run.id]
            assert len(fences) <= max(1, len(run.attempts)), "every call belongs to an attempt"
            if run.status is RunStatus.SUCCEEDED:
                assert run.attempts[-1].fence in fences, "a succeeded run has a call"
        return runs


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    scene = Scene(tmp_path, store)
    yield scene
    if scene.node is not None and scene.node.returncode is None:
        scene.node.send_signal(signal.SIGCONT)
        scene.node.kill()
        await scene.node.wait()
    if scene.engine is not None:
        await scene.engine.drain(timedelta(0))
    await store.close()


async def create_interval(store: Store, **given: object) -> None:
    first = await store.now()
    await store.add_schedule(
        a_schedule(trigger=Every(STEP, anchor=first), next_slot=first, next_run_at=first, **given)
    )


async def pause_all(store: Store) -> None:
    """Pauses the schedule, so that the existing runs can end."""
    for schedule in (await store.list_schedules(ScheduleQuery(enabled=True, limit=None))).items:
        await store.change_schedule(schedule.id, lambda s, now: pause_schedule(s, now, "test"))


@pytest.mark.parametrize(
    "step",
    [
        "fire.after",
        "claim.after",
        "run.claimed",
        "run.started",
        "run.before_effect",
        "run.before_record",
        "run.after_record",
    ],
)
async def test_a_kill_at_any_step_loses_and_repeats_nothing(scene: Scene, step: str) -> None:
    node = await scene.start_node(f"{step}:kill")
    if step == "claim.after":
        # Runs of slots are fired already claimed; only queued runs are claimed separately. In the
        # other cases a second in-flight run would be repeated as well.
        await scene.store.add_runs([a_run(available_at=await scene.store.now())])
    await create_interval(scene.store)
    await asyncio.wait_for(node.wait(), 90)
    assert node.returncode == -signal.SIGKILL
    await scene.take_over()
    seen = len(scene.effects())
    await until(lambda: len(scene.effects()) > seen + 2)
    await pause_all(scene.store)
    runs = await scene.check()
    repeated = [run for run in runs if len([r for r, _ in scene.effects() if r == run.id]) > 1]
    if step == "run.before_record":
        # Called twice under the same run id, one completion.
        assert len(repeated) >= 1
    else:
        assert repeated == []
    if step == "run.after_record":
        # Only the recorded run counts: on a busy machine the next one may be claimed already.
        first = min(runs, key=lambda run: run.planned_at)
        assert (first.status, first.attempt) == (RunStatus.SUCCEEDED, 1)


# With on_lost: stop.
async def test_a_kill_after_the_started_mark_ends_unknown(scene: Scene) -> None:
    node = await scene.start_node("run.before_effect:kill")
    await create_interval(scene.store, policy=Policy(on_lost=OnLost.STOP))
    await asyncio.wait_for(node.wait(), 90)
    await scene.take_over()
    await until(lambda: scene.effects())
    await pause_all(scene.store)
    runs = await scene.check()
    assert runs[0].status is RunStatus.UNKNOWN
    assert RunStatus.SUCCEEDED in {run.status for run in runs}
    assert scene.effects()[runs[0].id, 1] == 0


# The process is suspended past its lease, before or after the effect.
@pytest.mark.parametrize("step", ["run.before_effect", "run.before_record"])
async def test_a_node_suspended_past_its_lease_is_fenced(scene: Scene, step: str) -> None:
    node = await scene.start_node(f"{step}:stop:100")
    await create_interval(scene.store)
    run = (await eventually(scene.runs, bool))[0]
    (first,) = await scene.store.nodes()
    await scene.take_over()
    await until(lambda: any(isinstance(event, RunRescued) for event in scene.events))
    await until(lambda: scene.effects()[run.id, 2])
    node.send_signal(signal.SIGCONT)
    # The first node wakes up, notices the lost lease, and continues under another id.
    await eventually(
        scene.store.nodes,
        lambda nodes: len(nodes) == 2 and first.id not in {node.id for node in nodes},
    )
    await pause_all(scene.store)
    runs = await scene.check()
    assert runs[0].id == run.id
    assert (runs[0].status, runs[0].attempt) == (RunStatus.SUCCEEDED, 2)
    assert scene.effects()[run.id, 1] == (0 if step == "run.before_effect" else 1)


@pytest.mark.parametrize("failpoints", ["", "drain.mid:kill"])
async def test_a_stopped_node_leaves_nothing_behind(scene: Scene, failpoints: str) -> None:
    node = await scene.start_node(failpoints)
    await create_interval(scene.store)
    await until(lambda: len(scene.effects()) >= 2)
    node.terminate()
    await asyncio.wait_for(node.wait(), 90)
    assert node.returncode == (-signal.SIGKILL if failpoints else 0)
    await scene.take_over()
    seen = len(scene.effects())
    await until(lambda: len(scene.effects()) > seen)
    await pause_all(scene.store)
    runs = await scene.check()
    if not failpoints:
        assert all(run.attempt <= 1 for run in runs)
        assert await scene.store.nodes() != ()
