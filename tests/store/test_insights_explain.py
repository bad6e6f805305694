"""Dashboard queries use indexes: their cost must not grow with the number of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import QUARTER, RunFilter, Window
from chimes.model.listing import AuditQuery, DeliveryQuery, RunQuery, ScheduleQuery
from chimes.model.notification import DeliveryState
from chimes.model.run import Origin, RunStatus
from chimes.store.sql import SqlStore, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.testing import SettableClock
from tests.builders import ALICE, HOUR, MINUTE, NOW, a_schedule
from tests.ended_runs import ended
from tests.tables import each_row

Query = Callable[[SqlStore], Awaitable[object]]

WINDOW = Window.last(timedelta(days=7), NOW)
IDS = [ScheduleId(f"schedule {number}") for number in range(20)]
QUESTIONS: dict[str, tuple[Query, set[str]]] = {
    "counts": (
        lambda store: store.count_runs(WINDOW, step=QUARTER),
        {"PRIMARY KEY", "runs_ended", "runs_by_status"},
    ),
    "counts of an owner": (
        lambda store: store.count_runs(WINDOW, RunFilter(owner=ALICE, origin=Origin.SCHEDULE)),
        {"PRIMARY KEY", "runs_ended", "runs_by_status"},
    ),
    "counts of a schedule": (
        lambda store: store.count_runs(WINDOW, RunFilter(schedule_id=IDS[0])),
        {"runs_by_schedule"},
    ),
    "lags": (
        lambda store: store.run_lags(WINDOW, ALICE, step=HOUR),
        {"PRIMARY KEY", "runs_ended", "runs_by_status"},
    ),
    "lags by node": (
        lambda store: store.run_lags(WINDOW, step=HOUR, by_node=True),
        {"PRIMARY KEY", "runs_ended", "runs_by_status"},
    ),
    "newest results": (
        lambda store: store.newest_results(IDS, each=30),
        {"runs_by_schedule"},
    ),
    "running": (lambda store: store.running_now(limit=5), {"runs_by_status"}),
    "attention": (
        lambda store: store.needing_attention(late=MINUTE, limit=5),
        {"runs_by_schedule", "runs_by_status", "runs_planned", "schedules_due"},
    ),
    "errors": (lambda store: store.error_groups(WINDOW, limit=5), {"runs_by_status"}),
    "errors of a schedule": (
        lambda store: store.error_groups(WINDOW, RunFilter(schedule_id=IDS[0]), limit=5),
        {"runs_by_schedule"},
    ),
    # The origin of the runs of a page.
    "origins": (
        lambda store: store.list_audit(
            AuditQuery(object_ids=tuple(IDS), verbs=("run",), since=NOW - HOUR, until=NOW)
        ),
        {"audit_by_object"},
    ),
    "schedules": (
        lambda store: store.schedule_counts(ScheduleQuery(owner=ALICE)),
        {"schedules_owned", "runs_by_schedule"},
    ),
    "last lines": (
        lambda store: store.last_logs([RunId(f"run {number}") for number in range(20)]),
        {"run_logs USING PRIMARY KEY"},
    ),
    "newest failures": (
        lambda store: store.list_runs(
            RunQuery(statuses=(RunStatus.FAILED,), created_since=NOW - 24 * HOUR, limit=50)
        ),
        {"runs_by_status"},
    ),
    "dead letters": (
        lambda store: store.list_deliveries(DeliveryQuery(states=(DeliveryState.DEAD,), limit=50)),
        {"deliveries_by_state"},
    ),
    "rolling up": (lambda store: store.roll_up(limit=1), {"runs_ended"}),
}


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = open_sqlite(tmp_path / "chimes.db", clock=SettableClock())
    await opened.open()
    schedule = a_schedule()
    await opened.load([schedule, ended(NOW, schedule=schedule, lag=HOUR)])
    await opened.load([ended(NOW - n * MINUTE, schedule=schedule) for n in range(1, 200)])
    yield opened
    await opened.close()


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


@each_row("name", QUESTIONS)
async def test_a_query_uses_indexes(opened: SqlStore, name: str) -> None:
    ask, indexes = QUESTIONS[name]
    with listening() as asked:
        await ask(opened)

    def work(tx: Tx) -> list[str]:
        plans = []
        for statement, given in asked:
            rows = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
            plans += [row[3] for row in rows]
        return plans

    plan = await opened._database.read(work)
    assert asked
    used = " ".join(plan)
    assert {index for index in indexes if index not in used} == set(), plan
    whole = (
        "SCAN run_logs",
        "SCAN deliveries",
        "SCAN runs",
        "SCAN run_tallies",
        "SCAN run_lags",
        "SCAN node_lags",
    )
    assert [line for line in plan if line.startswith(whole)] == []


#: Queries for which PostgreSQL has other indexes or another plan.
ON_POSTGRES: dict[str, set[str]] = {
    "counts": {"runs_ended_at", "runs_active"},
    "counts of an owner": {"runs_ended_at", "runs_active"},
    "counts of a schedule": {"runs_scheduled"},
    "lags": {"runs_ended_at", "runs_active"},
    "lags by node": {"node_lags_pkey", "runs_ended_at", "runs_active"},
    "newest results": {"runs_scheduled"},
    "attention": {"runs_scheduled", "runs_unusual", "runs_claimable", "schedules_due"},
    "errors": {"runs_unusual"},
    "errors of a schedule": {"runs_scheduled"},
    "schedules": {"runs_scheduled"},
    "rolling up": {"runs_ended_at"},
}


@pytest.fixture
async def on_postgres(postgres_url: str) -> AsyncIterator[SqlStore]:
    opened = open_postgres(postgres_url, clock=SettableClock())
    await opened.open()
    await opened.load([ended(NOW - HOUR)])
    yield opened
    await opened.close()


@each_row("name", ON_POSTGRES)
async def test_a_query_can_use_indexes_on_postgresql(on_postgres: SqlStore, name: str) -> None:
    """Sequential scans are disabled, because they are the cheapest plan for an empty table."""
    with listening() as asked:
        await QUESTIONS[name][0](on_postgres)

    def work(tx: Tx) -> list[str]:
        tx.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plans = []
        for statement, given in asked:
            rows = tx.connection.exec_driver_sql(f"EXPLAIN {statement}", given)
            plans += [row[0] for row in rows]
        return plans

    plan = await on_postgres._database.write(work)
    assert asked
    used = " ".join(plan)
    assert {index for index in ON_POSTGRES[name] if index not in used} == set(), plan
    assert [line for line in plan if "Seq Scan on run" in line] == []


async def test_corrupt_rows_are_counted(opened: SqlStore) -> None:
    """One corrupt row must not keep the others from being counted."""

    def corrupt(tx: Tx) -> None:
        tx.run(text("UPDATE runs SET attempts = '{oops', target = '' WHERE id LIKE '%7'"))

    await opened._database.write(corrupt)
    (before,) = await opened.count_runs(WINDOW)
    by_node = await opened.run_lags(WINDOW, by_node=True)
    assert before.total == 200
    assert {bucket.node for bucket in by_node} == {"node-1", "?"}
    clock = opened._database._clock  # type: ignore[attr-defined]
    clock.advance(3600)
    while await opened.roll_up(limit=100):
        pass
    assert await opened.count_runs(WINDOW) == (before,)
    assert await opened.run_lags(WINDOW, by_node=True) == by_node
