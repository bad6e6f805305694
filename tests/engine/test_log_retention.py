"""Logs are kept for the last runs of each source and collection (sync_log_runs)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.engine.events import DutyFailed
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.run import Outcome, RunStatus
from chimes.model.target import SyncTarget
from chimes.store.memory import MemoryStore
from chimes.targets.base import Call
from tests.builders import a_sync_run
from tests.engine.rig import SUCCESS, Faults, Recording, Rig, eventually

ORDERS = SyncTarget(source="shop", collection="orders")
CLIENTS = SyncTarget(source="shop", collection="clients")


class Syncing(Recording):
    def __init__(self) -> None:
        super().__init__("sync")
        self.capabilities = frozenset({ORDERS.requirement})
        self.script = [self.speak]

    async def speak(self, call: Call) -> Outcome:
        call.log("info", "something")
        return SUCCESS


@pytest.fixture
async def memory_rig() -> Rig:
    return Rig(MemoryStore(), "memory")


async def execute_task(rig: Rig, target: SyncTarget, number: int) -> RunId:
    now = await rig.now()
    at = now + timedelta(microseconds=number)
    task = a_sync_run(target, created_at=at, available_at=now, planned_at=now)
    await rig.store.add_unless_active(task)
    await rig.reached(task.id, RunStatus.SUCCEEDED)
    return task.id


async def with_logs(rig: Rig, ids: list[RunId]) -> list[bool]:
    return [bool(await rig.store.read_logs(run_id)) for run_id in ids]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (-1, [True] * 4),
        (0, [False] * 4),
        (1, [False] * 3 + [True]),
        (3, [False] + [True] * 3),
    ],
)
async def test_logs_of_the_last_runs_of_each_pair_are_kept(
    rig: Rig, keep: int, expected: list[bool]
) -> None:
    await rig.engine(runners=[Syncing()], sync_log_runs=keep)
    clients = await execute_task(rig, CLIENTS, 0)
    orders = [await execute_task(rig, ORDERS, number) for number in range(4)]
    # Reading takes at most a tenth of the time: after one second it pauses for ten.
    await eventually(lambda: with_logs(rig, orders), lambda found: found == expected, within=60)
    assert await with_logs(rig, [clients]) == [keep != 0]


async def test_older_runs_are_trimmed_once(memory_rig: Rig) -> None:
    rig = memory_rig
    first = await rig.engine(runners=[Syncing()], sync_log_runs=-1)
    before = [await execute_task(rig, ORDERS, number) for number in range(60)]
    await first.drain()
    faults = Faults(rig.store)
    faults.failing = {"drop_logs": StoreUnavailable("away")}
    await rig.engine(store=faults.store, runners=[Syncing()], sync_log_runs=2)
    last = await execute_task(rig, ORDERS, 100)
    await eventually(lambda: _failures(rig), bool)
    faults.failing = {}
    await eventually(
        lambda: with_logs(rig, [*before, last]), lambda found: found == [False] * 59 + [True] * 2
    )
    await rig.close()


async def _failures(rig: Rig) -> list[DutyFailed]:
    return [event for event in rig.emitted(DutyFailed) if event.duty == "log retention"]
