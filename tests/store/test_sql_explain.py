"""Hot statements on SQLite use indexes: their cost must not grow with the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, bindparam, select, text
from sqlalchemy.dialects import sqlite as sqlalchemy_sqlite

from chimes.clock import SystemClock
from chimes.model.listing import DeliveryQuery, InboxQuery, RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.store.sql import SqlStore, nodes, open_sqlite
from chimes.store.sql import completion as effects
from chimes.store.sql import insights as attention
from chimes.store.sql import notifications as deliveries
from chimes.store.sql import notifications as inbox
from chimes.store.sql import rollups as windows
from chimes.store.sql import tables as message_tables
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects import sqlite
from chimes.store.sql.due_schedules import WITH_BACKLOG
from chimes.store.sql.listing import (
    RUN_SORTS,
    SCHEDULE_SORTS,
    delivery_conditions,
    inbox_conditions,
    page_of,
    run_conditions,
    schedule_conditions,
)
from chimes.store.sql.rows.notifications import delivery_of, item_of
from chimes.store.sql.rows.run import run_of
from chimes.store.sql.rows.schedule import schedule_of
from chimes.store.sql.runs import ENDED_BEFORE
from chimes.store.sql.tables import WAITING, runs, schedules
from tests.builders import ALICE, NOW
from tests.tables import each_row

AnyQuery = ScheduleQuery | RunQuery | DeliveryQuery | InboxQuery

DIALECT = sqlite.SqliteDialect()
_DELIVERY_CANDIDATES = DIALECT.among(message_tables.deliveries.c.id, "ids")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = open_sqlite(tmp_path / "chimes.db")
    await opened.open()
    yield opened
    await opened.close()


def compiled(statement: Select[tuple[object, ...]]) -> str:
    return str(statement.compile(dialect=sqlalchemy_sqlite.dialect(paramstyle="named")))


async def explained(store: SqlStore, statement: str) -> list[str]:
    def work(tx: Tx) -> list[str]:
        names = dict.fromkeys(_names(statement))
        rows = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", names)
        return [row[3] for row in rows]

    return await store._database.read(work)


def _names(statement: str) -> list[str]:
    return list(text(statement).compile().params)


HOT = {
    "next_due": (sqlite.NEXT_DUE, ["SEARCH schedules USING INDEX schedules_due"]),
    "due": (
        sqlite.DUE_SCHEDULES,
        ["SEARCH schedules USING INDEX schedules_due (next_run_at>? AND next_run_at<?)"],
    ),
    "admitted": (
        sqlite.ADMITTED,
        ["SEARCH runs USING INDEX runs_active_by_key (concurrency_key=?)"],
    ),
    "oldest active": (
        sqlite.OLDEST_ACTIVE,
        ["SEARCH runs USING INDEX runs_active_by_key (concurrency_key=?)"],
    ),
    "blocked keys": (
        sqlite.BLOCKED_KEYS,
        ["SEARCH runs USING INDEX runs_blocked (concurrency_key=?)"],
    ),
    "slots": (
        sqlite.SLOTS_TAKEN,
        ["SEARCH runs USING INDEX sqlite_autoindex_runs_2 (schedule_id=? AND slot=?)"],
    ),
    "ranks": (
        sqlite.RANKS,
        [
            "SEARCH runs USING INDEX runs_claimable (rank<?)",
        ],
    ),
    "claimable": (
        sqlite.CLAIMABLE_OF_RANK,
        ["SEARCH runs USING INDEX runs_claimable (rank=? AND available_at<?)"],
    ),
    "next available": (
        sqlite.NEXT_AVAILABLE,
        ["SEARCH runs USING INDEX runs_claimable (rank=?)"],
    ),
    "finish": (
        compiled(select(runs).where(DIALECT.among(runs.c.id, "ids"))),
        ["SEARCH runs USING INDEX sqlite_autoindex_runs_1 (id=?)"],
    ),
    "recording": (
        compiled(select(schedules).where(DIALECT.among(schedules.c.id, "ids"))),
        ["SEARCH schedules USING INDEX sqlite_autoindex_schedules_1 (id=?)"],
    ),
    "waiting of a key": (
        compiled(effects.BLOCKED_OF_KEY),
        ["SEARCH runs USING INDEX runs_blocked (concurrency_key=?)"],
    ),
    "backlog": (
        compiled(WITH_BACKLOG.where(DIALECT.among(schedules.c.id, "ids"))),
        [
            "SEARCH schedules USING INDEX sqlite_autoindex_schedules_1 (id=?)",
            "SEARCH runs USING INDEX runs_blocked (concurrency_key=? AND rank<?)",
        ],
    ),
    "waiting of a schedule": (
        compiled(select(runs).where(runs.c.schedule_id == bindparam("one"), text(WAITING))),
        ["SEARCH runs USING INDEX runs_waiting_by_schedule (schedule_id=?)"],
    ),
    "cancels to hear": (
        compiled(nodes.TO_CANCEL),
        ["SEARCH runs USING INDEX runs_held (holder=?)"],
    ),
    "lost": (
        compiled(nodes.runs_of_holders(DIALECT)),
        ["SEARCH runs USING INDEX runs_held (holder=?)"],
    ),
    "holders": (compiled(nodes.HOLDERS), ["SEARCH runs USING COVERING INDEX runs_held"]),
    "anybody lost": (compiled(nodes.RESCUE_NEEDED), ["SEARCH runs USING COVERING INDEX runs_held"]),
    "old runs": (
        compiled(ENDED_BEFORE),
        ["SEARCH runs USING INDEX runs_ended (finished_at>? AND finished_at<?)"],
    ),
    "runs by status": (
        compiled(windows.STATUS_ROLLUPS),
        ["SEARCH run_tallies USING PRIMARY KEY (owner_type=? AND owner_id=?)"],
    ),
    "pending deliveries": (
        sqlite.PENDING_DELIVERIES,
        ["SEARCH deliveries USING INDEX deliveries_pending (available_at<?)"],
    ),
    "next delivery": (
        sqlite.NEXT_DELIVERY,
        ["SEARCH deliveries USING INDEX deliveries_pending"],
    ),
    "settling deliveries": (
        compiled(select(message_tables.deliveries).where(_DELIVERY_CANDIDATES)),
        ["SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (id=?)"],
    ),
    "old deliveries": (
        compiled(deliveries.ENDED_DELIVERIES),
        ["SEARCH deliveries USING COVERING INDEX deliveries_ended (finished_at"],
    ),
    "old items": (
        compiled(inbox.OLD_ITEMS),
        ["SEARCH inbox USING INDEX inbox_created (created_at<?)"],
    ),
    "deliveries by state": (
        compiled(attention.STATES),
        ["SCAN deliveries USING COVERING INDEX deliveries_by_state"],
    ),
    "needing attention": (
        compiled(attention.statements(DIALECT.statistics, owned=False).stopped_or_failing),
        [
            "SCAN schedules USING INDEX schedules_troubled",
            "SEARCH runs USING INDEX runs_by_schedule (schedule_id=?)",
        ],
    ),
    "enabled schedules": (
        compiled(attention.ENABLED),
        ["SCAN schedules USING COVERING INDEX schedules_owned"],
    ),
}


@each_row("name", HOT)
async def test_a_hot_statement_uses_its_index(opened: SqlStore, name: str) -> None:
    statement, expected = HOT[name]
    plan = await explained(opened, statement)
    for step in expected:
        assert any(line.startswith(step) for line in plan), plan
    tables = ("SCAN runs", "SCAN schedules", "SCAN deliveries", "SCAN inbox")
    scans = [line for line in plan if line.startswith(tables) and "USING" not in line]
    assert scans == []


@each_row(
    "name",
    [
        *("due", "claimable", "waiting of a key", "old runs", "admitted", "ranks"),
        *("pending deliveries", "old deliveries", "old items"),
    ],
)
async def test_an_ordered_statement_needs_no_sort(opened: SqlStore, name: str) -> None:
    plan = await explained(opened, HOT[name][0])
    assert [line for line in plan if "TEMP B-TREE" in line] == []


async def plans_of_page(store: SqlStore, query: AnyQuery) -> list[str]:
    """Returns the plans of the statements of one page."""
    found: list[str] = []

    class Explaining(Tx):
        def rows(self, statement: Any, given: Any = None) -> list[Any]:
            shown = statement.compile(
                dialect=self.connection.dialect, compile_kwargs={"literal_binds": True}
            )
            rows = self.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {shown}")
            found.extend(row[3] for row in rows)
            return []

    def work(tx: Tx) -> None:
        explaining = Explaining(tx.connection, tx.dialect, SystemClock())
        if isinstance(query, DeliveryQuery):
            by, table = delivery_conditions(query), message_tables.deliveries
            page_of(explaining, table.c.created_at, query, by, delivery_of, descending=True)
        elif isinstance(query, InboxQuery):
            by, table = inbox_conditions(query), message_tables.inbox
            page_of(explaining, table.c.created_at, query, by, item_of, descending=True)
        elif isinstance(query, RunQuery):
            conditions = run_conditions(query)
            page_of(
                explaining,
                RUN_SORTS[query.sort],
                query,
                conditions,
                run_of,
                descending=query.descending,
            )
        else:
            conditions = schedule_conditions(query, tx.dialect)
            page_of(
                explaining,
                SCHEDULE_SORTS[query.sort],
                query,
                conditions,
                schedule_of,
                descending=query.descending,
            )

    await store._database.read(work)
    return found


PAGES = [
    (ScheduleQuery(), "schedules_created"),
    (ScheduleQuery(after=(1, "a")), "schedules_created"),
    (ScheduleQuery(sort=ScheduleSort.NAME), "schedules_named"),
    (ScheduleQuery(sort=ScheduleSort.NAME, descending=True, after=("n", "a")), "schedules_named"),
    (DeliveryQuery(), "deliveries_created"),
    (DeliveryQuery(owner=ALICE, after=(1, "a")), "deliveries_by_owner"),
    (DeliveryQuery(states=(DeliveryState.DEAD,)), "deliveries_by_state"),
    (InboxQuery(owner=ALICE), "inbox_by_owner"),
    (InboxQuery(owner=ALICE, unread=True, after=(1, "a")), "inbox_by_owner"),
    (InboxQuery(), "inbox_created"),
    (RunQuery(), "runs_created"),
    (RunQuery(after=(1, "a")), "runs_created"),
    (RunQuery(schedule_id="s"), "runs_by_schedule"),
    (RunQuery(schedule_id="s", after=(1, "a")), "runs_by_schedule"),
    (RunQuery(statuses=(RunStatus.FAILED,)), "runs_by_status"),
    (RunQuery(requirement="sync:crm"), "runs_by_source"),
    (RunQuery(requirement="sync:crm", descending=False, after=(1, "a")), "runs_by_source"),
    (RunQuery(requirement="sync:crm", created_since=NOW, created_until=NOW), "runs_by_source"),
    (RunQuery(requirement="sync:crm", statuses=(RunStatus.FAILED,)), "runs_by_source"),
    (RunQuery(requirement="sync:crm", concurrency_key="sync:crm#a"), "runs_by_source"),
]


@each_row(("query", "index"), PAGES)
async def test_a_page_follows_an_index(opened: SqlStore, query: AnyQuery, index: str) -> None:
    (step,) = await plans_of_page(opened, query)
    assert f"USING INDEX {index}" in step
