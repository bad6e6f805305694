"""The simulator against a real node that goes through the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from chimes import Chimes, Context
from chimes.config import Settings
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.simulation import Outage, Simulation, simulate
from chimes.testing import AppHarness

START = datetime(2030, 3, 9, 3, 20, tzinfo=UTC)
WORKERS = 3
Row = tuple[str, str, str, str, str]


class Node:
    """A real node under a clock that stands still, whose tasks take virtual time."""

    def __init__(self, durations: dict[str, timedelta]) -> None:
        self.app = Chimes("memory://")
        self._durations = durations
        #: When the tasks that have started end, with the event that lets them.
        self.ends: dict[str, tuple[datetime, asyncio.Event]] = {}
        self.harness = AppHarness(
            self.app,
            now=START,
            settings=Settings(
                workers=WORKERS,
                lease=timedelta(days=900),
                heartbeat=timedelta(seconds=0.1),
                poll_interval=timedelta(seconds=0.05),
            ),
        )

        @self.app.task(timeout="20h")
        async def work(context: Context) -> None:
            gate = asyncio.Event()
            run = context.run_id
            length = durations[str(context.schedule_name)]
            self.ends[run] = self.harness.clock.now() + length, gate
            try:
                if length:
                    await gate.wait()
            finally:
                del self.ends[run]

    async def settle(self) -> None:
        """Until everything that can happen now has happened."""
        store, clock = self.app.runtime().services.store, self.harness.clock
        async with asyncio.timeout(60):
            quiet = 0
            while quiet < 3:
                store.wake()
                seen = store.changes()
                await asyncio.sleep(0.005)
                due = await store.next_due()
                runs = [run for run in await self.harness.runs() if not run.status.terminal]
                running = [run for run in runs if run.status is RunStatus.RUNNING]
                claimable = [
                    run for run in runs if run.claimable and run.available_at <= clock.now()
                ]
                busy = (
                    (due is not None and due <= clock.now())
                    or len(running) != len(self.ends)
                    or any(end <= clock.now() for end, _gate in self.ends.values())
                    or any(run.cancel_requested for run in running)
                    or (claimable and len(running) < WORKERS)
                    or store.changes() != seen
                )
                quiet = 0 if busy else quiet + 1

    async def run_until(self, end: datetime) -> None:
        clock = self.harness.clock
        await self.app.start()
        try:
            await self.settle()
            while True:
                moments = [each for each, _gate in self.ends.values()]
                due = await self.app.runtime().services.store.next_due()
                moment = min([*moments, *([due] if due else [])], default=end)
                if moment > end:
                    break
                clock.advance(moment - clock.now())
                # What ends now, ends before anything fires.
                for at, gate in list(self.ends.values()):
                    if at <= moment:
                        gate.set()
                await self.settle()
            clock.advance(end - clock.now())
        finally:
            for _at, gate in self.ends.values():
                gate.set()
            await self.app.stop()

    async def schedules(self) -> tuple[Schedule, ...]:
        return tuple(
            (
                await self.app.runtime().services.store.list_schedules(ScheduleQuery(limit=None))
            ).items
        )


@asynccontextmanager
async def a_node(
    durations: dict[str, timedelta], declare: Callable[[Chimes], None]
) -> AsyncIterator[Node]:
    node = Node(durations)
    declare(node.app)
    async with node.harness:
        yield node


def declare_all(app: Chimes) -> None:
    def add(name: str, trigger: str, **options: object) -> None:
        app.schedule(name, trigger, "work", **options)  # type: ignore[arg-type]

    berlin: dict[str, object] = {"timezone": "America/New_York"}
    # Clock change on 10 March 2030, 07:00Z.
    add("daily", "30 2 * * *", **berlin)
    add("half-hourly", "*/30 * * * *", overlap="skip", catch_up="one", **berlin)
    add("queues", "0 * * * *", overlap="queue", catch_up="all")
    add("replaces", "15 */2 * * *", overlap="cancel_old", catch_up="skip")
    add("beside", "10 * * * *", overlap="allow", catch_up="all", catch_up_limit=4)
    add("jittered", "every 50m", jitter="20m", catch_up="one")
    add("urgent", "5 * * * *", priority=7, catch_up="skip")
    add("bounded", "0 */3 * * *", max_runs=6)
    add("dependent", "20 * * * *", depends_on="replaces", depends_within="2h")


DURATIONS = {
    "daily": timedelta(minutes=5),
    "half-hourly": timedelta(minutes=40),
    "queues": timedelta(minutes=75),
    "replaces": timedelta(minutes=130),
    "beside": timedelta(minutes=90),
    "jittered": timedelta(minutes=3),
    "urgent": timedelta(minutes=1),
    "bounded": timedelta(0),
    "dependent": timedelta(minutes=2),
}


def _row(
    name: str, slot: datetime | None, status: RunStatus, started_at: datetime | None, reason: str
) -> Row:
    return name, str(slot), status.value, str(started_at), reason


def of_node(runs: list[Run]) -> list[Row]:
    return sorted(
        _row(run.schedule_name, run.slot, run.status, run.started_at, run.reason) for run in runs
    )


def of_simulation(found: Simulation) -> list[Row]:
    return sorted(
        _row(row.name, row.slot, row.status, row.started_at, row.reason) for row in found.runs
    )


def simulated(
    schedules: tuple[Schedule, ...],
    durations: dict[str, timedelta],
    end: datetime,
    outages: tuple[Outage, ...] = (),
    capacity: int = WORKERS,
) -> Simulation:
    lengths = {ScheduleId(each.id): durations[each.name] for each in schedules}
    return simulate(
        schedules,
        START,
        end,
        capacity=capacity,
        durations=lengths,
        default_duration=timedelta(0),
        outages=outages,
        keep_cursors=True,
    )


async def test_a_real_node_does_what_the_simulation_says() -> None:
    """More work than three permits: runs wait, overlap, are skipped and replaced."""
    end = START + timedelta(hours=30)
    async with a_node(DURATIONS, declare_all) as node:
        expected = simulated(await node.schedules(), DURATIONS, end)
        await node.run_until(end)
        # What had not ended by then went on while the node stopped.
        ended = tuple(row for row in expected.runs if row.status.terminal)
        slots = {(row.schedule_id, row.slot) for row in ended}
        real = [run for run in await node.harness.runs() if (run.schedule_id, run.slot) in slots]
        rows = of_simulation(replace(expected, runs=ended))
        assert rows == of_node(real)
        assert len(rows) > 150
        assert {row[2] for row in rows} >= {"succeeded", "skipped", "canceled"}
        assert expected.waiting > 0
        assert expected.concurrent == WORKERS


async def test_an_outage_has_the_misfire_rules_of_a_real_node() -> None:
    """With tasks that take no time, so that the harness itself can drive the node."""
    durations = dict.fromkeys(DURATIONS, timedelta(0))
    down, up = START + timedelta(hours=3, minutes=1), START + timedelta(hours=9)
    end = START + timedelta(hours=14)
    async with a_node(durations, declare_all) as node:
        harness = node.harness
        schedules = await node.schedules()
        expected = simulated(schedules, durations, end, (Outage(since=down, until=up),), 50)
        await harness.run_until(down - START)
        harness.clock.advance(up - harness.clock.now())
        await harness.run_until(end)
        assert of_simulation(expected) == of_node(await harness.runs())
        reasons = {(row.status.value, row.reason) for row in expected.runs}
        assert {("missed", "misfire"), ("succeeded", "")} <= reasons
