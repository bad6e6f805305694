"""Hours of work under the virtual clock, with retention: nothing grows, in memory and on files."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.config import Settings
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Outcome
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.notifications.inbox import Inbox
from chimes.targets.base import Call
from chimes.testing import SettableClock
from chimes.torture import simulation
from chimes.torture.simulation import ACTOR, START, Simulation
from chimes.triggers import trigger_from_dict
from tests.builders import INBOX
from tests.engine.rig import FAILURE, SUCCESS, Rig, eventually
from tests.store_contract.stores import KINDS, Home, StoreKind

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


@pytest.mark.parametrize(
    "hours", [8, pytest.param(24, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
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


# --- on a file ------------------------------------------------------------------------------------
STEP = timedelta(minutes=1)
DAY = timedelta(hours=24)
TEMPORARY = ("-wal", ".tmp")
POLICY = Policy(max_retries=1, retry_backoff=timedelta(seconds=10), delivery=(INBOX,))
#: The counts are in files and in this process, so time passes by steps.
FILE_SETTINGS = {
    "retention": timedelta(hours=1),
    "audit_retention": timedelta(hours=1),
    "poll_interval": timedelta(milliseconds=20),
    # Longer than the day: heartbeats are threads, which have no part in the steps.
    "lease": timedelta(hours=48),
}


async def flaky(call: Call) -> Outcome:
    """Every second slot fails at first, every sixth finally."""
    minute = call.run.planned_at.minute
    fails = minute % 10 == 0 and (call.run.attempt == 1 or minute % 30 == 0)
    return FAILURE if fails else SUCCESS


async def _settled(rig: Rig, clock: SettableClock) -> None:
    """Waits until nothing that is due is left."""

    async def open_work() -> bool:
        due = await rig.store.next_due()
        available = await rig.store.next_available()
        now = clock.now()
        return (
            (due is not None and due <= now)
            or (available is not None and available <= now)
            or bool(await rig.store.running_now(limit=1))
        )

    rig.store.wake()
    await eventually(open_work, lambda found: not found)


def _measure(path: Path) -> dict[str, int]:
    gc.collect()
    found = {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "objects": len(gc.get_objects()),
        "bytes": sum(
            each.stat().st_size
            for each in path.iterdir()
            # The log of SQLite grows to its limit, and a JSON file may be being written.
            if not each.name.endswith(TEMPORARY)
        ),
    }
    database = path / "chimes.db"
    if database.exists():
        connection = sqlite3.connect(database)
        try:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (name,) in tables.fetchall():
                found[name] = connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        finally:
            connection.close()
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind", [each for each in KINDS if each.name in ("sqlite", "json")], ids=lambda kind: kind.name
)
async def test_a_day_leaves_no_files_connections_and_rows(kind: StoreKind, tmp_path: Path) -> None:
    """A real engine on a file, with failures, retries and messages."""
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    rig = Rig(await home.open(), kind.name)
    rig.runner.script = [flaky]
    await rig.engine(clock=clock, senders=[Inbox()], **FILE_SETTINGS)
    for _schedule in range(3):
        await rig.every(300, clock.now(), policy=POLICY)
    measured = []
    try:
        for step in range(1, DAY // STEP + 1):
            clock.advance(STEP)
            await _settled(rig, clock)
            rig.runner.calls.clear()
            rig.events.clear()
            if step % (DAY // STEP // 4) == 0:
                measured.append(_measure(tmp_path))
    finally:
        await rig.close()
        await home.close()
    # The database file reaches its size when its log is written back for the first time.
    _start, first, *_others, last = measured
    assert first.keys() == last.keys()
    grown = {
        name: [each[name] for each in measured]
        for name in last
        if last[name] > first[name] * 1.05 + 10
    }
    assert not grown
