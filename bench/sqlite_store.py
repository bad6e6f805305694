"""How fast the SQLite store is, on a real file with everything on (WAL, synchronous=FULL).

Every figure is the median of several rounds; the file lies in a temporary directory, so set
TMPDIR to the disk that is meant. `--rows` sets how many runs the table has when counts() and the
lists are measured, `--idle` for how many seconds an idle node is watched.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.node import Node
from chimes.model.planning import plan
from chimes.model.run import Attempt, AttemptEnd, Completion, LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.port import ClaimRequest
from chimes.store.sql import SqlStore, open_sqlite
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every

NOW = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)
NODE = NodeId("bench-1")
PLACES = ClaimRequest(node_id=NODE, capabilities=frozenset({"http"}), free=1000)
LEASE = timedelta(hours=10)


def a_schedule(number: int, *, due: datetime) -> Schedule:
    """Half of them cron with a zone, half an interval; each with a target of its own."""
    trigger = (
        Cron(f"{number % 60} 9 * * *", timezone="Asia/Bangkok")
        if number % 2
        else Every("1h", anchor=NOW)
    )
    return Schedule(
        id=ScheduleId(f"0193b2c4-0000-7000-8000-{number:012d}"),
        name=f"schedule {number}",
        trigger=trigger,
        target=HttpTarget(url=f"https://example.com/hooks/{number}", body='{"n": 1}'),
        next_slot=due,
        next_run_at=due,
        created_at=NOW,
        updated_at=NOW,
    )


def an_entry(schedule: Schedule) -> AuditEntry:
    return AuditEntry(
        at=NOW,
        actor="user:alice",
        interface="native",
        verb="create",
        object_kind="schedule",
        object_id=schedule.id,
        changes={"name": [None, schedule.name]},
    )


def a_completion(run: Run) -> Completion:
    attempt = Attempt(
        number=run.attempt,
        fence=run.fence,
        node=NODE,
        started_at=NOW,
        finished_at=NOW,
        end=AttemptEnd.SUCCEEDED,
    )
    return Completion(
        run_id=run.id,
        fence=run.fence,
        attempt=attempt,
        status=RunStatus.SUCCEEDED,
        result={"status": 200, "body": "ok"},
        logs=(LogEntry(at=NOW, message="200 in 12 ms"),),
    )


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """In milliseconds."""
    start = perf_counter()
    await work()
    return (perf_counter() - start) * 1000


async def repeated(rounds: int, work: Callable[[], Awaitable[object]]) -> float:
    return median([await timed(work) for _ in range(rounds)])


def say(what: str, figure: float, unit: str = "ms") -> None:
    print(f"{what:<58} {figure:>12,.2f} {unit}")


class Clocked:
    """Wall time, and CPU time beside it: on a busy machine only the second can be compared."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._cpu: list[float] = []

    def __enter__(self) -> None:
        self._wall.append(-perf_counter())
        self._cpu.append(-process_time())

    def __exit__(self, *_: object) -> None:
        self._wall[-1] += perf_counter()
        self._cpu[-1] += process_time()

    def say(self, what: str) -> None:
        say(what, median(self._wall) * 1000)
        say("  of CPU", median(self._cpu) * 1000)


async def opened(directory: Path, clock: SettableClock | None = None) -> SqlStore:
    store = open_sqlite(directory / "chimes.db", clock=clock)
    await store.open()
    now = await store.now()
    node = Node(
        id=NODE,
        version="0",
        roles=("worker",),
        capacity=1000,
        started_at=now,
        heartbeat_at=now,
        lease_until=now,
    )
    await store.join(node, LEASE)
    return store


async def measure_adding(store: SqlStore, callers: int = 50, each: int = 40) -> None:
    far = NOW + timedelta(days=3000)
    adding = Clocked()
    for round_ in range(5):
        base = 1_000_000 * (round_ + 1)

        async def caller(number: int, base: int = base) -> None:
            for index in range(each):
                schedule = a_schedule(base + number * each + index, due=far)
                await store.add_schedule(schedule, an_entry(schedule))

        with adding:
            await asyncio.gather(*(caller(number) for number in range(callers)))
    adding.say(f"add_schedule with audit, {callers} callers, {callers * each} in all")
    single = await repeated(20, lambda: store.append_audit(an_entry(a_schedule(0, due=far))))
    say("one small write alone", single)


async def measure_a_due_second(
    store: SqlStore, clock: SettableClock, first: int, count: int = 1000
) -> None:
    """The clock stands at the second in which all are due."""
    fired, finished = Clocked(), Clocked()
    for round_ in range(5):
        base = first + 10_000 * round_
        new = [a_schedule(base + index, due=clock.now()) for index in range(count)]
        await asyncio.gather(*(store.add_schedule(schedule) for schedule in new))
        with fired:
            answer = await store.fire_due(plan, limit=count, request=PLACES)
        assert len(answer.claimed) == count, len(answer.claimed)
        verdicts = [a_completion(run) for run in answer.claimed]
        with finished:
            done = await store.finish(verdicts)
        assert len(done.accepted) == count
    fired.say(f"fire_due of {count} due schedules, all claimed")
    finished.say(f"finish of {count} verdicts with a log line each")


async def measure_idle_verbs(store: SqlStore, clock: SettableClock) -> None:
    say("next_due", await repeated(200, store.next_due))
    say(
        "fire_due with nothing due",
        await repeated(200, lambda: store.fire_due(plan, limit=500, request=PLACES)),
    )
    say("claim with nothing there", await repeated(200, lambda: store.claim(PLACES)))
    say("rescue with nothing to do", await repeated(200, lambda: store.rescue(limit=100)))

    async def heartbeat() -> None:
        # A row that stays as it is costs SQLite no commit: time has to pass.
        clock.advance(0.001)
        await store.heartbeat(NODE, LEASE, clock=NOW)

    say("beat", await repeated(50, heartbeat))


async def measure_reading(store: SqlStore, schedule_id: ScheduleId) -> None:
    say("counts()", await repeated(5, store.counts))
    say("get_schedule", await repeated(200, lambda: store.get_schedule(schedule_id)))
    for sort in ScheduleSort:
        query = ScheduleQuery(sort=sort)
        say(f"list_schedules by {sort}", await repeated(5, lambda q=query: store.list_schedules(q)))
    say(
        "list_schedules by text",
        await repeated(5, lambda: store.list_schedules(ScheduleQuery(text="e 99999"))),
    )
    say("list_runs, newest", await repeated(20, lambda: store.list_runs(RunQuery())))
    of_one = RunQuery(schedule_id=schedule_id)
    say("list_runs of one schedule", await repeated(20, lambda: store.list_runs(of_one)))
    failed = RunQuery(statuses=(RunStatus.FAILED,))
    say("list_runs, failed", await repeated(20, lambda: store.list_runs(failed)))


def fill_schedules(path: Path, store_schedules: Sequence[Schedule]) -> None:
    """Straight into the table, through a second connection."""
    from chimes.store.sql.rows.schedule import schedule_values

    rows = [schedule_values(schedule) for schedule in store_schedules]
    names = list(rows[0])
    marks = ", ".join(f":{name}" for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    with sqlite3.connect(path) as connection:
        connection.executemany(f"INSERT INTO schedules ({columns}) VALUES ({marks})", rows)
    connection.close()


def fill_runs(path: Path, count: int) -> None:
    """Copies of the runs that are there, spread over the statuses."""
    with sqlite3.connect(path) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        chosen = {
            "id": "lower(hex(randomblob(16)))",
            "slot": "NULL",
            "created_at": "created_at - n.value * 1000000",
            "planned_at": "planned_at - n.value * 1000000",
            "status": "CASE n.value % 20 WHEN 0 THEN 'failed' ELSE 'succeeded' END",
        }
        columns = ", ".join(f'"{name}"' for name in names)
        values = ", ".join(chosen.get(name, f'"{name}"') for name in names)
        there = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        copies = max(0, count // there)
        connection.execute(
            f"WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n"
            f" WHERE value < {copies}) INSERT INTO runs ({columns})"
            f" SELECT {values} FROM n, (SELECT * FROM runs LIMIT {there})"
        )
    connection.close()


def idle_node(path: str, seconds: float) -> None:
    asyncio.run(_idle_node(path, seconds))


async def _idle_node(path: str, seconds: float) -> None:
    """What a node does while nothing is due: it waits to be told."""
    store = await opened(Path(path).parent)
    await store.next_due()
    before, memory, began = process_time(), resident(), perf_counter()
    until = await store.now() + timedelta(seconds=seconds)
    while await store.now() < until:
        await store.wait_for_work(store.changes(), until)
    cpu = (process_time() - before) / (perf_counter() - began) * 100
    say(f"idle node, CPU over {seconds:.0f} s", cpu, "%")
    say("resident memory of that process", resident(), "MiB")
    say("  more than before", resident() - memory, "MiB")
    await store.close()


def resident() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def contend(path: str, number: int, answers: multiprocessing.Queue[list[float]]) -> None:
    async def write() -> list[float]:
        store = open_sqlite(path)
        await store.open()
        waits = []
        for index in range(300):
            schedule = a_schedule(50_000_000 + number * 1000 + index, due=NOW)
            waits.append(await timed(lambda s=schedule: store.add_schedule(s)))
        await store.close()
        return waits

    answers.put(asyncio.run(write()))


def measure_contention(path: Path, processes: int = 4) -> None:
    """F39: how long a write waits while several processes write as fast as they can."""
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[list[float]] = context.Queue()
    running = [
        context.Process(target=contend, args=(str(path), number, answers))
        for number in range(processes)
    ]
    for process in running:
        process.start()
    waits = [wait for _ in running for wait in answers.get()]
    for process in running:
        process.join()
    say(f"write, {processes} processes at once, median", median(waits))
    say(f"write, {processes} processes at once, p99", quantiles(waits, n=100)[98])
    say(f"write, {processes} processes at once, longest", max(waits))


async def main(rows: int, idle: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        clock = SettableClock(NOW)
        store = await opened(directory, clock)
        await measure_adding(store)
        await measure_a_due_second(store, clock, 10_000_000)
        await store.close()
        path = directory / "chimes.db"
        far = NOW + timedelta(days=2000)
        fill_schedules(path, [a_schedule(index, due=far) for index in range(100_000)])
        print("--- with 100,000 schedules")
        store = await opened(directory, clock)
        await measure_a_due_second(store, clock, 20_000_000)
        await measure_idle_verbs(store, clock)
        await store.close()
        if rows:
            fill_runs(path, rows)
            print(f"--- and {rows:,} runs")
            store = await opened(directory, clock)
            await measure_reading(store, a_schedule(10_000_000, due=NOW).id)
            await measure_idle_verbs(store, clock)
            await store.close()
        if idle:
            print("--- idle, on the machine's clock")
            process = multiprocessing.get_context("spawn").Process(
                target=idle_node, args=(str(path), idle)
            )
            process.start()
            process.join()
        print("--- several processes")
        measure_contention(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--idle", type=float, default=20)
    given = parser.parse_args()
    asyncio.run(main(given.rows, given.idle))
