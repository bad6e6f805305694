"""Cost of the dashboard's store queries with 10,000 schedules and 1,000,000 runs.

    python bench/dashboard_store.py                     both databases, about six minutes
    python bench/dashboard_store.py --store sqlite --runs 200000

Inserts two weeks of history in bulk, rolls it up as maintenance does, and measures every query of
the dashboard: best and median wall time, and CPU time of this process and the database server. Wall
time depends on other load, so it exits with 1 only if the best wall time and the CPU time both
exceed the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from sqlalchemy import Table
from suite.postgres import Postgres

from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import QUARTER, RunFilter, Window
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, Run, RunDefinition, RunStatus, claim, own_key
from chimes.model.schedule import Schedule, run_definition
from chimes.model.target import HttpTarget
from chimes.store.sql import SqlStore, open_postgres, open_sqlite, tables
from chimes.store.sql.rows.run import (
    CLAIMS,
    PLANNED,
    QUEUE,
    STATE,
    claim_values,
    concurrency_number,
    planned_values,
    queue_values,
    state_values,
)
from chimes.store.sql.rows.schedule import (
    CURSOR,
    STATS,
    cursor_values,
    definition_digest,
    definition_values,
    edit_values,
    schedule_values,
    stats_values,
)
from chimes.store.sql.rows.values import micros, number_of, schedule_number
from chimes.testing import SettableClock
from chimes.triggers import Every

Row = tuple[object, ...]
#: A table, the names of columns, and rows with their values.
Rows = tuple[Table, tuple[str, ...], Iterator[Row]]

NOW = datetime(2030, 1, 15, 9, 7, tzinfo=UTC)
SPAN = timedelta(days=14)
OWNERS = [Owner(type=OwnerType.USER, id=f"user-{number}") for number in range(20)]
NODES = [NodeId(f"node-{number}") for number in range(3)]
#: Milliseconds for a whole page; no single query may exceed it.
BUDGET = 100.0
FAILED_ATTEMPTS = [
    f'[{{"number":1,"fence":1,"node":"{node}","started_at":"2030-01-01T00:00:00Z"'
    ',"finished_at":"2030-01-01T00:00:01Z","end":"failed"}]'
    for node in NODES
]
#: One schedule in this many has failed all its recent runs.
FAILING = 20
DAY, WEEK = timedelta(days=1), timedelta(days=7)


def schedules(number: int) -> Iterator[Schedule]:
    for n in range(number):
        due = NOW + timedelta(seconds=n % 3600 + 1)
        failing = n % FAILING == 0
        yield Schedule(
            id=ScheduleId(f"0193b2c4-0000-7000-8000-{n:012d}"),
            name=f"schedule {n}",
            owner=OWNERS[n % len(OWNERS)],
            trigger=Every("3h", anchor=NOW),
            target=HttpTarget(url=f"https://example.com/hooks/{n}", body='{"n": 1}'),
            labels={"team": f"team-{n % 7}"},
            next_slot=due,
            next_run_at=due,
            last_run_at=NOW - timedelta(hours=1),
            last_status=RunStatus.FAILED if failing else RunStatus.SUCCEEDED,
            last_error="connection refused" if failing else "",
            created_at=NOW - SPAN,
            updated_at=NOW - SPAN,
        )


def make_run(schedule: Schedule) -> Run:
    """A run that succeeded on time."""
    return Run(
        id=RunId("-"),
        definition=run_definition(schedule),
        slot=NOW,
        origin=Origin.SCHEDULE,
        concurrency_key=own_key(schedule.id),
        status=RunStatus.SUCCEEDED,
        attempt=1,
        fence=1,
        created_at=NOW,
        planned_at=NOW,
        available_at=NOW,
        result={"status": 200, "body": "ok"},
    )


def definition_row(definition: RunDefinition) -> dict[str, object]:
    values = definition_values(definition)
    digest = definition_digest(values)
    return {"key": number_of(digest), "digest": digest, **values, "used_at": micros(NOW)}


def run_row(run: Run) -> Row:
    key = number_of(definition_digest(definition_values(run.definition)))
    return planned_values(run, key, concurrency_number(run)) + state_values(run)


def ended_rows(every: list[Schedule], number: int) -> Iterator[Row]:
    """Rows of ended runs, oldest first: copies of one run per schedule, because building a million
    values takes longer than everything else. One schedule in twenty always fails, others fail
    sometimes; a few slots are missed."""
    chance = random.Random(7)
    column = {name: index for index, name in enumerate((*PLANNED, *STATE))}
    templates = [list(run_row(make_run(each))) for each in every]
    first, gap = micros(NOW - SPAN), SPAN / timedelta(microseconds=1) / number
    for n in range(number):
        row = templates[n % len(every)].copy()
        planned = int(first + n * gap)
        begun = planned + int(1000 * chance.lognormvariate(2.5, 1.2))
        finished = begun + int(1000 * chance.lognormvariate(6, 1))
        row[column["id"]] = f"{chance.getrandbits(128):032x}"
        for name in ("slot", "created_at", "planned_at", "available_at"):
            row[column[name]] = planned
        row[column["finished_at"]] = finished
        drawn = chance.random()
        if drawn < 0.002:
            status = RunStatus.MISSED
        else:
            for name in ("started_at", "claimed_at", "attempt_started_at"):
                row[column[name]] = begun
            row[column["attempt_finished_at"]] = finished
            row[column["node"]] = NODES[n % len(NODES)]
            failed = n % len(every) % FAILING == 0 or drawn < 0.01
            status = RunStatus.FAILED if failed else RunStatus.SUCCEEDED
        if status is RunStatus.FAILED:
            row[column["error"]] = f"error number {chance.randrange(40)}"
            row[column["attempts"]] = FAILED_ATTEMPTS[n % len(NODES)]
        if status is not RunStatus.SUCCEEDED:
            row[column["status"]] = row[column["problem"]] = status.value
        yield tuple(row)


def active_runs(every: list[Schedule]) -> tuple[list[Run], list[Run]]:
    """Queued and running ones."""
    runs = [
        replace(make_run(schedule), id=RunId(f"active-{n}"), result=None)
        for n, schedule in enumerate(every[:300])
    ]
    queued = [replace(run, status=RunStatus.QUEUED, attempt=0, fence=0) for run in runs]
    return queued[::2], [claim(run, NODES[0], NOW) for run in queued[1::2]]


def named(table: Table, rows: list[dict[str, object]]) -> Rows:
    names = tuple(rows[0])
    return table, names, (tuple(row[name] for name in names) for row in rows)


def rows_of(every: list[Schedule], number: int) -> Iterator[Rows]:
    """The rows of all tables."""
    defined = [definition_row(run_definition(each)) for each in every]
    keyed = [(schedule_number(each.id), each) for each in every]
    queued, running = active_runs(every)
    yield named(tables.definitions, defined)
    yield named(
        tables.schedules,
        [
            {"key": key, **schedule_values(each), "definition": definition["key"]}
            for (key, each), definition in zip(keyed, defined, strict=True)
        ],
    )
    yield named(
        tables.cursors,
        [
            dict(zip(CURSOR, cursor_values(key, each), strict=True))
            | edit_values(each, schedule_values(each))
            for key, each in keyed
        ],
    )
    yield tables.schedule_stats, STATS, (stats_values(key, each) for key, each in keyed)
    active = (run_row(run) for run in (*queued, *running))
    yield tables.runs, (*PLANNED, *STATE), chain(ended_rows(every, number), active)
    yield tables.queue, QUEUE, (queue_values(run, concurrency_number(run)) for run in queued)
    yield tables.claims, CLAIMS, (claim_values(run, concurrency_number(run)) for run in running)


def fill_sqlite(path: Path, every: list[Schedule], number: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -400000")
        # Creating indexes after the inserts is much faster.
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master"
            " WHERE type = 'index' AND tbl_name = 'runs' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for table, names, rows in rows_of(every, number):
            columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", rows)
        for _, statement in indexes:
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def fill_postgres(url: str, every: list[Schedule], number: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        indexes = await connection.fetch(
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE tablename = 'runs' AND indexname NOT IN (SELECT conname FROM pg_constraint)"
        )
        for name, _ in indexes:
            await connection.execute(f"DROP INDEX {name}")
        for table, names, rows in rows_of(every, number):
            await connection.copy_records_to_table(table.name, records=rows, columns=names)
        for _, statement in indexes:
            await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


Query = Callable[[], Awaitable[object]]


def queries(store: SqlStore, every: list[Schedule]) -> dict[str, Query]:
    day, week = Window.last(DAY, NOW), Window.last(WEEK, NOW)
    fortnight = Window.last(SPAN, NOW)
    ids = [schedule.id for schedule in every]
    one, mine = RunFilter(schedule_id=ids[3]), RunFilter(owner=OWNERS[3])
    hour, late = timedelta(hours=1), timedelta(minutes=1)
    label = ScheduleQuery(label="team", label_value="team-3")
    sort = ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT, limit=100)
    return {
        "schedule counts, all": lambda: store.schedule_counts(ScheduleQuery()),
        "schedule counts, one owner": lambda: store.schedule_counts(ScheduleQuery(owner=OWNERS[3])),
        "schedule counts, one label": lambda: store.schedule_counts(label),
        "runs by status, 24 h": lambda: store.count_runs(day),
        "runs by status, 7 d": lambda: store.count_runs(week),
        "runs by status, 7 d, one owner": lambda: store.count_runs(week, mine),
        "runs by status, 7 d, one schedule": lambda: store.count_runs(week, one),
        "histogram, 24 h by 15 min": lambda: store.count_runs(day, step=QUARTER),
        "heat map, 7 d by 15 min": lambda: store.count_runs(week, step=QUARTER),
        "heat map, 14 d by 15 min": lambda: store.count_runs(fortnight, step=QUARTER),
        "lag, 24 h": lambda: store.run_lags(day),
        "lag, 24 h by 15 min": lambda: store.run_lags(day, step=QUARTER),
        "lag, 24 h by 15 min and node": lambda: store.run_lags(day, step=QUARTER, by_node=True),
        "lag, 7 d by 1 h": lambda: store.run_lags(week, step=hour),
        "newest results of 100 schedules": lambda: store.newest_results(ids[:100], each=30),
        "durations of 200 schedules": lambda: store.newest_results(ids[:200], each=30),
        "200 points of one schedule": lambda: store.newest_results(ids[3:4], each=200),
        "running now": lambda: store.running_now(limit=20),
        "needs attention": lambda: store.needing_attention(late=late, limit=20),
        "needs attention, one owner": lambda: store.needing_attention(
            OWNERS[3], late=late, limit=20
        ),
        "error groups, 24 h": lambda: store.error_groups(day, limit=20),
        "error groups, 7 d": lambda: store.error_groups(week, limit=20),
        "page of schedules (list_schedules)": lambda: store.list_schedules(sort),
    }


async def timed(query: Query, rounds: int, cpu_clock: Callable[[], float]) -> list[float]:
    """Milliseconds of each round, followed by the mean CPU time of a round."""
    await query()
    took = []
    spent = cpu_clock()
    for _ in range(rounds):
        begun = perf_counter()
        await query()
        took.append(perf_counter() - begun)
    took.append((cpu_clock() - spent) / rounds)
    return [each * 1000 for each in took]


async def measure(
    store: SqlStore,
    every: list[Schedule],
    number: int,
    rounds: int,
    cpu_clock: Callable[[], float] = process_time,
) -> list[str]:
    slow = []
    begun, spent = perf_counter(), cpu_clock()
    batches = []
    while True:
        start = perf_counter()
        rolled = await store.roll_up(limit=1000)
        batches.append(perf_counter() - start)
        if rolled < 1000:
            break
    rolling, spent = perf_counter() - begun, cpu_clock() - spent
    print(
        f"  rolled up in {rolling:.0f} s: {spent / number * 1e6:.1f} us CPU per run,"
        f" {median(batches) * 1000:.1f} ms (at most {max(batches) * 1000:.0f}) per batch of 1000"
    )
    print(f"  {'':40} {'best':>8} {'median':>8} {'cpu':>8}")
    for name, query in queries(store, every).items():
        *took, spent = await timed(query, rounds, cpu_clock)
        late = min(*took, spent) > BUDGET
        figures = f"{min(took):8.1f} {median(took):8.1f} {spent:8.1f} ms"
        print(f"  {name:40} {figures}{'  over budget' if late else ''}", flush=True)
        if late:
            slow.append(name)
    return slow


async def on_sqlite(folder: Path, number: int, many: int, rounds: int) -> list[str]:
    path, clock = folder / "chimes.db", SettableClock(NOW)
    store = open_sqlite(path, clock=clock)
    await store.open()
    await store.close()
    every, begun = list(schedules(many)), perf_counter()
    await asyncio.to_thread(fill_sqlite, path, every, number)
    print(
        f"SQLite: {number} runs in {perf_counter() - begun:.0f} s, {path.stat().st_size >> 20} MB"
    )
    store = open_sqlite(path, clock=clock)
    await store.open()
    try:
        return await measure(store, every, number, rounds)
    finally:
        await store.close()


async def on_postgres(server: Postgres, number: int, many: int, rounds: int) -> list[str]:
    url = server.fresh_database("dashboard")
    store = open_postgres(url, clock=SettableClock(NOW))
    await store.open()
    try:
        every, begun = list(schedules(many)), perf_counter()
        await fill_postgres(url, every, number)
        print(f"PostgreSQL: {number} runs in {perf_counter() - begun:.0f} s")
        return await measure(
            store, every, number, rounds, lambda: process_time() + server.cpu_seconds()
        )
    finally:
        await store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), help="measure only this store")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    sizes = (options.runs, options.schedules, options.rounds)
    slow: list[str] = []
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    if options.store != "postgresql":
        with tempfile.TemporaryDirectory(prefix="chimes-dashboard-") as folder:
            slow += asyncio.run(on_sqlite(Path(folder), *sizes))
    if options.store != "sqlite":
        with Postgres() as server:
            slow += asyncio.run(on_postgres(server, *sizes))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
