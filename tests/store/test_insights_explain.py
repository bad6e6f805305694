"""Lists and statistics of the dashboard read small indexes: their cost must not grow with the
number of runs. Each query is explained on each database, with as many rows as its planner needs to
prefer an index."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import QUARTER, RunFilter, Window
from chimes.model.listing import (
    AuditQuery,
    DeliveryQuery,
    RunQuery,
    ScheduleQuery,
    ScheduleSort,
)
from chimes.model.notification import DeliveryState
from chimes.model.run import Origin, Run, RunStatus
from chimes.store.sql import SqlStore, open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_node,
    a_run,
    a_schedule,
    a_sync_run,
    claim_request,
)
from tests.ended_runs import ended
from tests.tables import each_row

Query = Callable[[SqlStore], Awaitable[object]]

WINDOW = Window.last(timedelta(days=7), NOW)
SCHEDULES = [
    a_schedule(
        id=ScheduleId(f"schedule {number}"),
        owner=ALICE if number % 20 == 0 else BOB,
        enabled=number != 1,
        next_run_at=NOW + number * MINUTE,
        last_status=RunStatus.FAILED if number % 40 == 0 else RunStatus.SUCCEEDED,
    )
    for number in range(200)
]
IDS = [schedule.id for schedule in SCHEDULES[:20]]
RUNS = 4_000
ACTIVE = {RunStatus.QUEUED, RunStatus.RUNNING}
PROBLEMS = set(RunStatus) - ACTIVE - {RunStatus.SUCCEEDED}


def runs_with(*statuses: RunStatus, **given: Any) -> Query:
    return lambda store: store.list_runs(RunQuery(statuses=statuses, **given))


#: Parts of what a window is counted from: the runs created after the mark, and the open ones.
_COUNTED = {"runs_created", "open_runs"}
#: Queries, and the tables and indexes that they use.
QUERIES: dict[str, tuple[Query, set[str]]] = {
    "counts": (lambda store: store.count_runs(WINDOW, step=QUARTER), _COUNTED),
    "counts of all times": (lambda store: store.counts(), {*_COUNTED, "cursors_due"}),
    "counts of an owner": (
        lambda store: store.count_runs(WINDOW, RunFilter(owner=ALICE, origin=Origin.SCHEDULE)),
        _COUNTED,
    ),
    "counts of a schedule": (
        lambda store: store.count_runs(WINDOW, RunFilter(schedule_id=IDS[0])),
        {"runs_by_schedule"},
    ),
    "lags": (lambda store: store.run_lags(WINDOW, ALICE, step=HOUR), _COUNTED),
    "lags by node": (lambda store: store.run_lags(WINDOW, step=HOUR, by_node=True), _COUNTED),
    "newest results": (lambda store: store.newest_results(IDS, each=5), {"runs_by_schedule"}),
    "newest results of an owner": (
        lambda store: store.newest_results(IDS, each=5, owner=ALICE),
        {"runs_by_schedule"},
    ),
    "running": (lambda store: store.running_now(limit=5), {"claims"}),
    "running of an owner": (lambda store: store.running_now(ALICE, limit=5), {"claims"}),
    "attention": (
        lambda store: store.needing_attention(late=MINUTE, limit=5),
        {*_COUNTED, "runs_by_schedule", "runs_problems", "queue", "cursors_due"},
    ),
    "attention of an owner": (
        lambda store: store.needing_attention(ALICE, late=MINUTE, limit=5),
        {*_COUNTED, "runs_by_schedule", "runs_problems", "queue"},
    ),
    "errors": (lambda store: store.error_groups(WINDOW, limit=5), {"runs_problems"}),
    "errors of a schedule": (
        lambda store: store.error_groups(WINDOW, RunFilter(schedule_id=IDS[0]), limit=5),
        {"runs_by_schedule"},
    ),
    "failing schedules": (
        lambda store: store.schedule_counts(ScheduleQuery(owner=ALICE)),
        {"runs_by_schedule"},
    ),
    "rolling up": (lambda store: store.roll_up(limit=1), _COUNTED),
    # The origin of the runs of a page.
    "origins": (
        lambda store: store.list_audit(
            AuditQuery(object_ids=tuple(IDS), verbs=("run",), since=NOW - HOUR, until=NOW)
        ),
        set(),
    ),
    "last lines": (lambda store: store.last_logs([RunId("ended 1"), RunId("ended 2")]), set()),
    "dead letters": (
        lambda store: store.list_deliveries(DeliveryQuery(states=(DeliveryState.DEAD,), limit=50)),
        set(),
    ),
    "newest runs": (lambda store: store.list_runs(RunQuery()), {"runs_created"}),
    "runs of a schedule": (
        lambda store: store.list_runs(RunQuery(schedule_id=IDS[0])),
        {"runs_by_schedule"},
    ),
    "problems of a schedule": (
        runs_with(*sorted(PROBLEMS), schedule_id=IDS[0]),
        {"runs_by_schedule"},
    ),
    "runs of a schedule's own key": (
        lambda store: store.list_runs(RunQuery(concurrency_key=f"schedule:{IDS[0]}")),
        {"runs_by_schedule"},
    ),
    "runs of a source": (
        lambda store: store.list_runs(RunQuery(requirement="sync:crm")),
        {"runs_by_source"},
    ),
    "steps of a flow": (
        lambda store: store.list_runs(RunQuery(parent_id=RunId("ended 1"))),
        {"runs_by_parent"},
    ),
    "runs of a node": (
        lambda store: store.list_runs(RunQuery(holder=NodeId("node-1"))),
        {"claims"},
    ),
    "active runs": (runs_with(*sorted(ACTIVE)), {"queue", "claims"}),
    "queued": (runs_with(RunStatus.QUEUED), {"queue"}),
    "running ones": (runs_with(RunStatus.RUNNING), {"claims"}),
    "succeeded": (runs_with(RunStatus.SUCCEEDED), {"runs_created"}),
    **{status.value: (runs_with(status), {"runs_problems"}) for status in sorted(PROBLEMS)},
    "recent failures": (
        runs_with(RunStatus.FAILED, created_since=NOW - 24 * HOUR),
        {"runs_problems"},
    ),
    "schedules": (lambda store: store.list_schedules(ScheduleQuery()), {"schedules_created"}),
    "schedules by next run": (
        lambda store: store.list_schedules(ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT, limit=5)),
        {"cursors_due"},
    ),
    "next page of schedules by next run": (
        lambda store: store.list_schedules(
            ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT, limit=5, after=(1, IDS[0]))
        ),
        {"cursors_due"},
    ),
    "schedules by name": (
        lambda store: store.list_schedules(ScheduleQuery(sort=ScheduleSort.NAME, limit=5)),
        {"schedules_named"},
    ),
}
#: Lists that read all runs from the newest on, until a page is full.
NEWEST_FIRST = {"newest runs", "succeeded"}
#: Other plans of MariaDB. Two indexes begin with the schedule: of runs as few as here it reads the
#: smaller one. It sorts schedules that are not deleted.
ON_MARIADB: dict[str, set[str]] = {
    "counts of a schedule": {"runs_by_slot"},
    "schedules": set(),
    "schedules by name": set(),
}


async def fill(store: SqlStore) -> None:
    """One in twenty runs is a problem; few are active, or steps, or of a source."""

    def history(number: int) -> Run:
        status = sorted(PROBLEMS)[number % len(PROBLEMS)] if number % 20 == 0 else None
        given = {"parent_id": RunId("ended 1")} if number % 100 == 1 else {}
        return ended(
            NOW - number * MINUTE - HOUR,
            status or RunStatus.SUCCEEDED,
            SCHEDULES[number % len(SCHEDULES)],
            id=RunId(f"ended {number}"),
            **given,
        )

    sources = [a_sync_run(created_at=NOW - HOUR, status=RunStatus.FAILED, finished_at=NOW)]
    await store.load([*SCHEDULES, *(history(number) for number in range(RUNS)), *sources])
    while await store.roll_up(limit=1_000):
        pass
    await store.join(a_node(), HOUR)
    await store.load([a_run(SCHEDULES[5], origin=Origin.SCHEDULE) for _ in range(6)])
    await store.claim(claim_request(free=3))


@contextmanager
def listening() -> Iterator[list[tuple[str, Any]]]:
    """Records the statements sent meanwhile, on any database."""
    found: list[tuple[str, Any]] = []

    def record(_c: Any, _k: Any, statement: str, given: Any, _x: Any, many: bool) -> None:
        if not many and statement.lstrip().startswith(("SELECT", "WITH")):
            found.append((statement, given))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", record)


async def plan_of(store: SqlStore, query: Query, explain: str) -> list[tuple[Any, ...]]:
    with listening() as sent:
        await query(store)
    assert sent

    def work(tx: Tx) -> list[tuple[Any, ...]]:
        return [
            tuple(row)
            for statement, given in sent
            if "FOR UPDATE" not in statement
            for row in tx.connection.exec_driver_sql(f"{explain} {statement}", given)
        ]

    return await store._database.read(work)


@asynccontextmanager
async def filled(store: SqlStore, analyze: str) -> AsyncIterator[SqlStore]:
    await store.open()
    await fill(store)
    await store._database.write(lambda tx: tx.connection.exec_driver_sql(analyze).close())
    yield store
    await store.close()


def check(used: str, parts: set[str], plan: object) -> None:
    """`used`: the names in the plan. Only queries that begin at a time may read all runs from
    there."""
    assert {part for part in parts if part not in used} == set(), plan
    assert "runs_created" in parts or "runs_created" not in used, plan


@pytest.fixture
async def on_sqlite(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = open_sqlite(tmp_path / "chimes.db", clock=SettableClock())
    # Statistics are not needed, and a store does not gather them.
    async with filled(store, "SELECT 1") as store:
        yield store


@each_row("name", QUERIES)
async def test_queries_use_indexes_on_sqlite(on_sqlite: SqlStore, name: str) -> None:
    query, parts = QUERIES[name]
    plan = [row[3] for row in await plan_of(on_sqlite, query, "EXPLAIN QUERY PLAN")]
    check(" ".join(plan), parts, plan)
    whole = [line for line in plan if line.startswith(("SCAN run", "SCAN node_lags", "SCAN audit"))]
    assert name in NEWEST_FIRST or whole == [], plan
    assert "SCAN deliveries" not in plan, plan


@pytest.fixture
async def on_postgres(postgres_url: str, patient_store: None) -> AsyncIterator[SqlStore]:
    async with filled(open_postgres(postgres_url, clock=SettableClock()), "ANALYZE") as store:
        yield store


@each_row("name", QUERIES)
async def test_queries_use_indexes_on_postgresql(on_postgres: SqlStore, name: str) -> None:
    query, parts = QUERIES[name]
    plan = [row[0] for row in await plan_of(on_postgres, query, "EXPLAIN")]
    check(" ".join(plan), parts, plan)
    assert [line for line in plan if "Seq Scan on runs" in line] == [], plan


async def test_postgresql_expects_few_runs_after_the_mark(on_postgres: SqlStore) -> None:
    """Otherwise it reads all runs of a large table."""
    plan = [
        row[0] for row in await plan_of(on_postgres, QUERIES["counts of all times"][0], "EXPLAIN")
    ]
    (line,) = [line for line in plan if "runs_created" in line]
    expected = re.search(r"rows=(\d+)", line)
    assert expected is not None
    assert int(expected[1]) < RUNS / 100


@pytest.fixture
async def on_mariadb(mariadb_url: str, patient_store: None) -> AsyncIterator[SqlStore]:
    analyze = "ANALYZE TABLE runs, queue, claims, schedules, cursors, schedule_stats, definitions"
    async with filled(open_mariadb(mariadb_url, clock=SettableClock()), analyze) as store:
        yield store


@each_row("name", QUERIES)
async def test_queries_use_indexes_on_mariadb(on_mariadb: SqlStore, name: str) -> None:
    query, parts = QUERIES[name]
    plan = await plan_of(on_mariadb, query, "EXPLAIN")
    used = " ".join(str(each) for row in plan for each in (row[2], row[5]))
    check(used, ON_MARIADB.get(name, parts), plan)
    whole = [row for row in plan if row[2] == "runs" and row[3] in ("ALL", "index")]
    assert name in NEWEST_FIRST or whole == [], plan


async def test_corrupt_rows_are_counted(on_sqlite: SqlStore) -> None:
    """One corrupt row must not keep the others from being counted."""

    def corrupt(tx: Tx) -> None:
        tx.run(text("UPDATE runs SET attempts = '{oops' WHERE id LIKE '%7'"))
        tx.run(text("UPDATE definitions SET target = '' WHERE schedule_id LIKE '%7'"))

    (before,) = await on_sqlite.count_runs(WINDOW)
    by_node = await on_sqlite.run_lags(WINDOW, by_node=True)
    assert before.total > RUNS
    await on_sqlite._database.write(corrupt)
    assert await on_sqlite.count_runs(WINDOW) == (before,)
    assert await on_sqlite.run_lags(WINDOW, by_node=True) == by_node
    # A clock that was set back makes the next pass count everything again.
    clock = on_sqlite._database._clock  # type: ignore[attr-defined]
    clock.set(NOW - 2 * HOUR)
    while await on_sqlite.roll_up(limit=1_000):
        pass
    clock.set(NOW + SECOND)
    assert await on_sqlite.count_runs(WINDOW) == (before,)
    assert await on_sqlite.run_lags(WINDOW, by_node=True) == by_node
