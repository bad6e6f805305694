"""Flows on engines: steps are Python functions, executed by the real runners."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.engine import Engine
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.policy import Policy
from chimes.model.run import Run
from chimes.model.target import FlowTarget
from chimes.targets.base import TargetRunner
from chimes.targets.flow import FlowBuilder, FlowRunner
from chimes.targets.python import PythonTask, Registry
from tests.builders import a_run
from tests.engine.rig import Rig, eventually

DAY = timedelta(days=1)


def runners_for(*flows: FlowBuilder) -> list[TargetRunner]:
    complete = [flow.complete() for flow in flows]
    registry = Registry()
    for flow in complete:
        for task in flow.tasks:
            registry.add(task)
    return [PythonTask(registry), FlowRunner(complete)]


class FlowRig:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        #: Recorded by the steps.
        self.seen: list[Any] = []

    async def engine(self, *flows: FlowBuilder, **settings: Any) -> Engine:
        return await self.rig.engine(runners=runners_for(*flows), **settings)

    async def start(self, flow: FlowBuilder, *, limit: timedelta = DAY, **input: object) -> RunId:
        now = await self.rig.now()
        run = a_run(
            target=FlowTarget(name=flow.name, input=input),
            policy=Policy(timeout=limit),
            created_at=now,
            planned_at=now,
            available_at=now,
        )
        await self.rig.store.add_runs([run])
        return run.id

    async def ended(self, run_id: RunId) -> Run:
        return await eventually(
            lambda: self.rig.run(run_id), lambda run: run.status.terminal, within=60
        )

    async def steps(self, run_id: RunId) -> dict[str, Run]:
        page = await self.rig.store.list_runs(RunQuery(parent_id=run_id, limit=None))
        return {run.step: run for run in page.items}

    async def step(self, run_id: RunId, name: str, good: Any) -> Run:
        """A step's run, once it has the expected state."""

        async def look() -> Run | None:
            return (await self.steps(run_id)).get(name)

        found = await eventually(look, lambda run: run is not None and good(run))
        assert found is not None
        return found
