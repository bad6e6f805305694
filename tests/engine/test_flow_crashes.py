"""Node processes with flows, killed in the middle of a step."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from chimes.engine import Engine
from chimes.model.access import Actor
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Run, RunStatus
from chimes.model.target import FlowTarget
from chimes.model.wait import Approval, ApprovalStatus, Decision, decide_wait
from chimes.services.waits import ApprovalService
from chimes.store.port import Store
from chimes.store.sql import open_sqlite
from tests.builders import a_run
from tests.engine.flow_node import SETTINGS, runners
from tests.engine.flows import DAY
from tests.engine.rig import eventually, until

ROOT = Path(__file__).parents[2]
DONE = {"value": {"last": "one, two, three"}}


class Scene:
    def __init__(self, directory: Path, store: Store) -> None:
        self.store = store
        self._directory = directory
        self._nodes: list[asyncio.subprocess.Process] = []
        self._engines: list[Engine] = []

    @property
    def _files(self) -> tuple[str, str, str]:
        return tuple(str(self._directory / name) for name in ("chimes.db", "effects", "gate"))

    async def start_node(self, role: str) -> asyncio.subprocess.Process:
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.engine.flow_node", *self._files, role),
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            stdout=asyncio.subprocess.PIPE,
        )
        self._nodes.append(node)
        assert node.stdout is not None
        assert await asyncio.wait_for(node.stdout.readline(), 60) == b"ready\n"
        return node

    async def take_over(self) -> Engine:
        _, effects, gate = self._files
        engine = Engine(self.store, runners(effects, gate, "all"), settings=SETTINGS)
        await engine.start()
        self._engines.append(engine)
        return engine

    async def start_flow(self, name: str = "crashing") -> RunId:
        now = await self.store.now()
        times = {"created_at": now, "planned_at": now, "available_at": now}
        flow = a_run(target=FlowTarget(name=name), policy=Policy(timeout=DAY), **times)
        await self.store.add_runs([flow])
        return flow.id

    def open_gate(self) -> None:
        (self._directory / "gate").touch()

    def effects(self) -> list[str]:
        path = self._directory / "effects"
        return path.read_text().splitlines() if path.exists() else []

    async def ended(self, run_id: RunId) -> Run:
        async def look() -> Run:
            run = await self.store.get_run(run_id)
            assert run is not None
            return run

        return await eventually(look, lambda run: run.status.terminal, within=60)

    async def steps(self, run_id: RunId) -> dict[str, Run]:
        page = await self.store.list_runs(RunQuery(parent_id=run_id, limit=None))
        return {run.step: run for run in page.items}

    async def close(self) -> None:
        for node in self._nodes:
            if node.returncode is None:
                node.kill()
                await node.wait()
        for engine in self._engines:
            await engine.drain()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    scene = Scene(tmp_path, store)
    yield scene
    scene.open_gate()
    await scene.close()
    await store.close()


async def kill(node: asyncio.subprocess.Process) -> None:
    node.kill()
    assert await asyncio.wait_for(node.wait(), 60) == -signal.SIGKILL


async def test_finished_steps_are_not_repeated_after_a_kill(scene: Scene) -> None:
    node = await scene.start_node("all")
    run_id = await scene.start_flow()
    await until(lambda: "middle 1" in scene.effects())
    await kill(node)
    scene.open_gate()
    await scene.take_over()
    run = await scene.ended(run_id)
    assert (run.status, run.result) == (RunStatus.SUCCEEDED, DONE)
    assert (run.attempt, run.fence, len(run.attempts)) == (1, 2, 1), "no attempt was lost"
    assert scene.effects() == ["first 1", "middle 1", "middle 2", "last 1"]
    steps = await scene.steps(run_id)
    ends = {name: [attempt.end for attempt in step.attempts] for name, step in steps.items()}
    assert ends == {
        "first": [AttemptEnd.SUCCEEDED],
        "middle": [AttemptEnd.LOST, AttemptEnd.SUCCEEDED],
        "last": [AttemptEnd.SUCCEEDED],
    }


async def test_a_step_outlives_the_node_of_its_flow(scene: Scene) -> None:
    orchestrating = await scene.start_node("flows")
    await scene.start_node("steps")
    run_id = await scene.start_flow()
    await until(lambda: "middle 1" in scene.effects())
    await kill(orchestrating)
    await scene.take_over()
    scene.open_gate()
    run = await scene.ended(run_id)
    assert (run.status, run.result, run.attempt) == (RunStatus.SUCCEEDED, DONE, 1)
    assert scene.effects() == ["first 1", "middle 1", "last 1"]
    for step in (await scene.steps(run_id)).values():
        assert (step.attempt, step.status) == (1, RunStatus.SUCCEEDED)


# A wait is a row: no process has to live for it, and a decision needs none.
async def test_a_flow_waits_without_a_node(scene: Scene) -> None:
    node = await scene.start_node("all")
    run_id = await scene.start_flow("waiting")

    async def flow() -> Run:
        run = await scene.store.get_run(run_id)
        assert run is not None
        return run

    await eventually(flow, lambda run: run.reason == "wait:approve", within=60)
    node.kill()
    await node.wait()
    approvals = ApprovalService(scene.store)
    (approval,) = await approvals.find(Actor(), ApprovalStatus.OPEN, limit=10)
    await approvals.decide(Actor(), approval.id, Decision.APPROVE)
    assert (await flow()).available_at <= await scene.store.now(), "due at once"
    await scene.take_over()
    assert (await scene.ended(run_id)).status is RunStatus.SUCCEEDED
    assert scene.effects() == ["ask", "publish"]


# The process that decides can die before it lets the flow continue.
async def test_a_flow_whose_wake_up_was_lost_looks_again(scene: Scene) -> None:
    engine = await scene.take_over()
    run_id = await scene.start_flow("waiting")
    approvals = ApprovalService(scene.store)

    async def found() -> list[Approval]:
        return await approvals.find(Actor(), ApprovalStatus.OPEN, limit=10)

    (approval,) = await eventually(found, bool, within=60)
    assert engine is not None
    decide = partial(_approve, by="user:ann")
    await scene.store.change_run(RunId(approval.id), decide)
    assert (await scene.ended(run_id)).status is RunStatus.SUCCEEDED


def _approve(run: Run, now: datetime, *, by: str) -> Run:
    return decide_wait(run, Decision.APPROVE, by, "", now)
