"""Hours of work under the virtual clock, with retention: nothing grows."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest

from chimes.config import Settings
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Policy
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.torture import simulation
from chimes.torture.simulation import ACTOR, START, Simulation
from chimes.triggers import trigger_from_dict

HOUR = 3600.0
SETTINGS = Settings(
    retention=timedelta(hours=1),
    lease=timedelta(minutes=3),
    poll_interval=timedelta(minutes=1),
    workers=4,
)
SCHEDULES = 6


class LongSimulation(Simulation):
    """Two nodes without faults; measures at the end of each of four equal parts."""

    def __init__(self, hours: float) -> None:
        super().__init__(1, nodes=2)
        self._part = hours * HOUR / 4

    def measure(self) -> list[dict[str, int]]:
        async def work() -> list[dict[str, int]]:
            for node in self.nodes:
                node.start()
            await asyncio.sleep(1)
            for number in range(SCHEDULES):
                schedule = self._schedule(number)
                await self._ask(lambda services, s=schedule: services.schedules.create(ACTOR, s))
            found = []
            for _part in range(4):
                await asyncio.sleep(self._part)
                found.append(self._counts())
            return found

        return self.loop.run(work())

    def _schedule(self, number: int) -> Schedule:
        behaviour = ("hook", "fail", "flaky")[number % 3]
        return Schedule(
            id=ScheduleId(f"s{number}"),
            name=f"s{number}",
            trigger=trigger_from_dict({"kind": "every", "every": "60s"}),
            target=HttpTarget(url=f"http://127.0.0.1:9/{behaviour}/s{number}"),
            policy=Policy(misfire=Misfire.ALL, max_retries=1),
            created_at=START,
            updated_at=START,
        )

    def _counts(self) -> dict[str, int]:
        # The simulation's own record of what happened.
        self.effects.clear()
        self._log_lines.clear()
        self._versions.clear()
        self.loop._tasks[:] = [task for task in self.loop._tasks if not task.done()]
        gc.collect()
        state = self.store._state
        tables = {name: len(getattr(state, name)) for name in state.__slots__}
        return tables | {
            "objects": len(gc.get_objects()),
            "tasks": len(asyncio.all_tasks(asyncio.get_running_loop())),
            "timers": len(self.loop._timers),
        }


@pytest.mark.parametrize("hours", [8, pytest.param(24, marks=pytest.mark.long)])
def test_nothing_grows(hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "SETTINGS", SETTINGS)
    measured = LongSimulation(hours).measure()
    first, last = measured[0], measured[-1]
    # An hour of runs and at most the minute until the next pruning.
    assert SCHEDULES * 55 <= last["runs"] <= SCHEDULES * 65
    assert first.keys() == last.keys()
    grown = {
        name: [each[name] for each in measured]
        for name in first
        # Some more runs may wait for the pruning at one time than at the other.
        if last[name] > first[name] * 1.02 + 10
    }
    assert not grown
