"""Speed of the SQLite store on a real file with production settings (WAL, synchronous=FULL).

Every figure is the median of several rounds. The file is in a temporary directory: set TMPDIR to
select the disk. `--rows` is the number of runs in the table when counts() and lists are measured,
`--idle` the number of seconds for which an idle node is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

from suite.sqlite_tables import fill_schedules

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
REQUEST = ClaimRequest(node_id=NODE, capabilities=frozenset({"http"}), free=1000)
LEASE = timedelta(hours=10)


def make_schedule(number: int, *, due: datetime) -> Schedule:
    """Odd numbers have a cron trigger with a zone, even ones an interval; targets differ."""
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


def make_audit_entry(schedule: Schedule) -> AuditEntry:
    return AuditEntry(
        at=NOW,
        actor="user:alice",
        interface="native",
        verb="create",
        object_kind="schedule",
        object_id=schedule.id,
        changes={"name": [None, schedule.name]},
    )


def make_completion(run: Run) -> Completion:
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


async def elapsed_ms(work: Callable[[], Awaitable[object]]) -> float:
    start = perf_counter()
    await work()
    return (perf_counter() - start) * 1000


async def median_ms(rounds: int, work: Callable[[], Awaitable[object]]) -> float:
    return median([await elapsed_ms(work) for _ in range(rounds)])


def print_figure(what: str, figure: float, unit: str = "ms") -> None:
    print(f"{what:<58} {figure:>12,.2f} {unit}")


class Timer:
    """Measures wall time and CPU time; only the second is comparable on a busy machine."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._cpu: list[float] = []

    def __enter__(self) -> None:
        self._wall.append(-perf_counter())
        self._cpu.append(-process_time())

    def __exit__(self, *_: object) -> None:
        self._wall[-1] += perf_counter()
        self._cpu[-1] += process_time()

    def report(self, what: str) -> None:
        print_figure(what, median(self._wall) * 1000)
        print_figure("  CPU time", median(self._cpu) * 1000)


async def open_store(directory: Path, clock: SettableClock | None = None) -> SqlStore:
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


async def measure_add(store: SqlStore, callers: int = 50, each: int = 40) -> None:
    far = NOW + timedelta(days=3000)
    adding = Timer()
    for round_ in range(5):
        base = 1_000_000 * (round_ + 1)

        async def caller(number: int, base: int = base) -> None:
            for index in range(each):
                schedule = make_schedule(base + number * each + index, due=far)
                await store.add_schedule(schedule, make_audit_entry(schedule))

        with adding:
            await asyncio.gather(*(caller(number) for number in range(callers)))
    adding.report(f"add_schedule with audit, {callers} callers, {callers * each} in total")
    single = await median_ms(
        20, lambda: store.append_audit(make_audit_entry(make_schedule(0, due=far)))
    )
    print_figure("a single small write", single)


async def measure_due_second(
    store: SqlStore, clock: SettableClock, first: int, count: int = 1000
) -> None:
    """All schedules are due at the time of the stopped clock."""
    fired, finished = Timer(), Timer()
    for round_ in range(5):
        base = first + 10_000 * round_
        new = [make_schedule(base + index, due=clock.now()) for index in range(count)]
        await asyncio.gather(*(store.add_schedule(schedule) for schedule in new))
        with fired:
            result = await store.fire_due(plan, limit=count, request=REQUEST)
        assert len(result.claimed) == count, len(result.claimed)
        completions = [make_completion(run) for run in result.claimed]
        with finished:
            done = await store.finish(completions)
        assert len(done.accepted) == count
    fired.report(f"fire_due of {count} due schedules, all claimed")
    finished.report(f"finish of {count} completions with a log line each")


async def measure_idle_verbs(store: SqlStore, clock: SettableClock) -> None:
    print_figure("next_due", await median_ms(200, store.next_due))
    print_figure(
        "fire_due with nothing due",
        await median_ms(200, lambda: store.fire_due(plan, limit=500, request=REQUEST)),
    )
    print_figure("claim with an empty queue", await median_ms(200, lambda: store.claim(REQUEST)))
    print_figure("rescue with no lost run", await median_ms(200, lambda: store.rescue(limit=100)))

    async def heartbeat() -> None:
        # SQLite does not commit an unchanged row, so time must pass.
        clock.advance(0.001)
        await store.heartbeat(NODE, LEASE, clock=NOW)

    print_figure("heartbeat", await median_ms(50, heartbeat))


async def measure_reads(store: SqlStore, schedule_id: ScheduleId) -> None:
    print_figure("counts()", await median_ms(5, store.counts))
    print_figure("get_schedule", await median_ms(200, lambda: store.get_schedule(schedule_id)))
    for sort in ScheduleSort:
        query = ScheduleQuery(sort=sort)
        print_figure(
            f"list_schedules by {sort}", await median_ms(5, lambda q=query: store.list_schedules(q))
        )
    print_figure(
        "list_schedules by text",
        await median_ms(5, lambda: store.list_schedules(ScheduleQuery(text="e 99999"))),
    )
    print_figure("list_runs, newest", await median_ms(20, lambda: store.list_runs(RunQuery())))
    of_one = RunQuery(schedule_id=schedule_id)
    print_figure("list_runs of one schedule", await median_ms(20, lambda: store.list_runs(of_one)))
    failed = RunQuery(statuses=(RunStatus.FAILED,))
    print_figure("list_runs, failed", await median_ms(20, lambda: store.list_runs(failed)))


def fill_runs(path: Path, count: int) -> None:
    """Copies the existing runs, which have ended; every twentieth copy has failed."""
    with sqlite3.connect(path) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        failed = "n.value % 20 = 0"
        chosen = {
            "id": "lower(hex(randomblob(16)))",
            "slot": "NULL",
            "created_at": "created_at - n.value * 1000000",
            "planned_at": "planned_at - n.value * 1000000",
            "status": f"CASE WHEN {failed} THEN 'failed' ELSE 'succeeded' END",
            "problem": f"CASE WHEN {failed} THEN 'failed' END",
        }
        columns = ", ".join(f'"{name}"' for name in names)
        values = ", ".join(chosen.get(name, f'"{name}"') for name in names)
        existing = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        copies = max(0, count // existing)
        connection.execute(
            f"WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n"
            f" WHERE value < {copies}) INSERT INTO runs ({columns})"
            f" SELECT {values} FROM n, (SELECT * FROM runs LIMIT {existing})"
        )
    connection.close()


def idle_node(path: str, seconds: float) -> None:
    asyncio.run(_idle_node(path, seconds))


async def _idle_node(path: str, seconds: float) -> None:
    """A node that waits for work while nothing is due."""
    store = await open_store(Path(path).parent)
    await store.next_due()
    before, memory, began = process_time(), resident_mib(), perf_counter()
    until = await store.now() + timedelta(seconds=seconds)
    while await store.now() < until:
        await store.wait_for_work(store.changes(), until)
    cpu = (process_time() - before) / (perf_counter() - began) * 100
    print_figure(f"idle node, CPU over {seconds:.0f} s", cpu, "%")
    print_figure("resident memory of this process", resident_mib(), "MiB")
    print_figure("  increase while idle", resident_mib() - memory, "MiB")
    await store.close()


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def contend(path: str, number: int, answers: multiprocessing.Queue[list[float]]) -> None:
    async def write() -> list[float]:
        store = open_sqlite(path)
        await store.open()
        waits = []
        for index in range(300):
            schedule = make_schedule(50_000_000 + number * 1000 + index, due=NOW)
            waits.append(await elapsed_ms(lambda s=schedule: store.add_schedule(s)))
        await store.close()
        return waits

    answers.put(asyncio.run(write()))


def measure_contention(path: Path, processes: int = 4) -> None:
    """Latency of a write while several processes write continuously."""
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
    print_figure(f"write, {processes} processes at once, median", median(waits))
    print_figure(f"write, {processes} processes at once, p99", quantiles(waits, n=100)[98])
    print_figure(f"write, {processes} processes at once, longest", max(waits))


async def main(rows: int, idle: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        clock = SettableClock(NOW)
        store = await open_store(directory, clock)
        await measure_add(store)
        await measure_due_second(store, clock, 10_000_000)
        await store.close()
        path = directory / "chimes.db"
        far = NOW + timedelta(days=2000)
        fill_schedules(path, [make_schedule(index, due=far) for index in range(100_000)])
        print("--- with 100,000 schedules")
        store = await open_store(directory, clock)
        await measure_due_second(store, clock, 20_000_000)
        await measure_idle_verbs(store, clock)
        await store.close()
        if rows:
            fill_runs(path, rows)
            print(f"--- and {rows:,} runs")
            store = await open_store(directory, clock)
            await measure_reads(store, make_schedule(10_000_000, due=NOW).id)
            await measure_idle_verbs(store, clock)
            await store.close()
        if idle:
            print("--- idle, on the system clock")
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
    options = parser.parse_args()
    asyncio.run(main(options.rows, options.idle))
