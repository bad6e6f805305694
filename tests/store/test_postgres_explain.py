"""Hot statements on PostgreSQL use indexes: their cost must not grow with the tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import Select, select
from sqlalchemy.dialects.postgresql import asyncpg as driver

from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.store.sql import SqlStore, nodes, open_postgres, prefetch
from chimes.store.sql import completion as effects
from chimes.store.sql import insights as attention
from chimes.store.sql import notifications as deliveries
from chimes.store.sql import tables as message_tables
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects import postgres_statements as postgres
from chimes.store.sql.dialects.postgres import PostgresDialect
from chimes.store.sql.due_schedules import WITH_BACKLOG
from chimes.store.sql.listing import (
    RUN_SORTS,
    SCHEDULE_SORTS,
    page_of,
    run_conditions,
    schedule_conditions,
)
from chimes.store.sql.rows.run import run_of
from chimes.store.sql.rows.schedule import schedule_of
from chimes.store.sql.tables import schedules
from tests.builders import NOW, SECOND, a_delivery, a_run, a_schedule, a_sync_run, an_item
from tests.servers import POSTGRES, shared
from tests.tables import each_row

DIALECT = PostgresDialect()
_DELIVERY_CANDIDATES = DIALECT.among(message_tables.deliveries.c.id, "ids")


async def fill(url: str) -> None:
    """Inserts enough rows for an index to matter."""
    store = open_postgres(url)
    await store.open()
    await store.load([a_schedule(created_at=NOW + number * SECOND) for number in range(600)])
    await store.load(
        [
            a_run(
                status=RunStatus.SUCCEEDED,
                finished_at=NOW,
                created_at=NOW + number * SECOND,
                schedule_id=ScheduleId(f"s{number % 3}"),
                slot=NOW + number * SECOND,
            )
            for number in range(600)
        ]
    )
    await store.load([a_run() for _ in range(100)])
    await store.load([a_sync_run(created_at=NOW + number * SECOND) for number in range(50)])
    sent = {"state": DeliveryState.DELIVERED, "finished_at": NOW}
    await store.load([a_delivery(**sent) for _ in range(600)])
    await store.load([a_delivery(available_at=NOW + n * SECOND) for n in range(100)])
    await store.load([an_item(created_at=NOW + number * SECOND) for number in range(600)])
    await store._database.write(lambda tx: tx.connection.exec_driver_sql("ANALYZE"))
    await store.close()


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """One database for all tests: filling it takes longer than explaining."""
    url = shared(POSTGRES).new_database()
    asyncio.run(fill(url))
    yield url
    shared(POSTGRES).drop_database(url)


@pytest.fixture
async def store(filled: str) -> AsyncIterator[SqlStore]:
    store = open_postgres(filled)
    await store.open()
    yield store
    await store.close()


def compiled(statement: Select[Any]) -> str:
    return str(statement.compile(dialect=driver.dialect()))


HOT: dict[str, tuple[str, tuple[object, ...], set[str]]] = {
    "next due": (postgres.NEXT_DUE, (), {"schedules_due"}),
    "due": (postgres.DUE_SCHEDULES % 200, (1,), {"schedules_due"}),
    "pressing": (postgres.NEXT_PREFETCH % 20_000, (1, 1), {"schedules_due"}),
    "coming": (postgres.DUE_TIMES % 50, (1,), {"schedules_due"}),
    "confirm": (postgres.UNCONFIRMED, (["r"] * 200, [1] * 200, 1), {"runs_pkey"}),
    "ahead": (compiled(prefetch.PREFETCHED_OF_SCHEDULE), ("s1", 10**18), {"runs_by_slot"}),
    "before": (compiled(prefetch.PREVIOUS_SLOT), ("s1", 10**18, 1), {"runs_by_slot"}),
    "admitted": (postgres.ADMITTED, (["k"],), {"runs_active"}),
    "oldest active": (postgres.OLDEST_ACTIVE, ("k",), {"runs_active", "runs_pkey"}),
    "blocked keys": (postgres.BLOCKED_KEYS, (["k"],), {"runs_blocked"}),
    "slots": (postgres.SLOTS_TAKEN, (["s"], [1]), {"runs_by_slot"}),
    "claimable": (
        postgres.CLAIMABLE_RUNS % (10, 10),
        (1, ["http"]),
        {"runs_claimable"},
    ),
    "take": (
        postgres.CLAIM % (10, 10),
        (1, ["http"], "n"),
        {"runs_claimable", "runs_pkey", "nodes_pkey"},
    ),
    "next available": (postgres.NEXT_AVAILABLE, (), {"runs_claimable"}),
    "fire": (
        postgres.FIRE_PLAIN,
        (
            ["s"] * 200,
            ["r"] * 200,
            *([1] * 200 for _ in range(4)),
            ["http"] * 200,
            [1] * 200,
            1,
            1,
            1,
            "n",
            1,
        ),
        {"schedules_pkey"},
    ),
    "fire alike": (
        postgres.FIRE_UNIFORM,
        (
            ["s"] * 200,
            ["r"] * 200,
            *([1] * 200 for _ in range(2)),
            *(1, 1, "http", 1),
            *(1, 1, 1, "n", 1),
        ),
        {"schedules_pkey"},
    ),
    "finish": (
        postgres.FINISH_PLAIN,
        (
            ["r"] * 200,
            ["{}"] * 200,
            [1] * 200,
            ["succeeded"] * 200,
            [None] * 200,
            *([""] * 200 for _ in range(3)),
            1,
            True,
        ),
        {"runs_pkey", "runs_blocked", "schedules_pkey"},
    ),
    "finish alike": (
        postgres.FINISH_UNIFORM,
        (["r"] * 200, ["{}"] * 200, 1, "succeeded", None, "", "", "", 1, True),
        {"runs_pkey", "runs_blocked", "schedules_pkey"},
    ),
    "pending deliveries": (
        postgres.PENDING_DELIVERIES % 50,
        (1, 1, ["inbox"]),
        {"deliveries_pending"},
    ),
    "next delivery": (postgres.NEXT_DELIVERY, (), {"deliveries_pending"}),
    "settling deliveries": (
        compiled(select(message_tables.deliveries).where(_DELIVERY_CANDIDATES)),
        (["d"] * 50,),
        {"deliveries_pkey"},
    ),
    "old deliveries": (
        compiled(deliveries.ENDED_DELIVERIES),
        (1, 100),
        {"deliveries_ended"},
    ),
    "recording": (
        compiled(select(schedules).where(DIALECT.among(schedules.c.id, "ids"))),
        (["s"] * 200,),
        {"schedules_pkey"},
    ),
    "needing attention": (
        compiled(attention.statements(DIALECT.statistics, owned=False).stopped_or_failing),
        (1, "failed", "", 0, 1, "chimes", "", 1, "succeeded"),
        {"schedules_troubled", "runs_scheduled"},
    ),
    "waiting of a key": (compiled(effects.BLOCKED_OF_KEY), ("k", 10), {"runs_blocked"}),
    "backlog": (
        compiled(WITH_BACKLOG.where(DIALECT.among(schedules.c.id, "ids"))),
        ("schedule:", 2, 1, "schedule", 1, ["s"] * 200),
        {"runs_blocked", "schedules_pkey"},
    ),
    "cancels to hear": (compiled(nodes.TO_CANCEL), ("n", 1), {"runs_held"}),
    "lost": (compiled(nodes.runs_of_holders(DIALECT)), (["n"], 10), {"runs_held"}),
}


# Runs of other kinds do not write to the index of tasks.
async def test_the_index_of_tasks_has_no_entry_of_another_run(postgres_url: str) -> None:
    store = open_postgres(postgres_url)
    await store.open()
    size = "SELECT pg_relation_size('runs_by_source')"

    async def bytes_of_index() -> int:
        return int(
            await store._database.read(lambda tx: tx.connection.exec_driver_sql(size).scalar_one())
        )

    empty = await bytes_of_index()
    await store.add_runs([a_run() for _ in range(50)])
    assert await bytes_of_index() == empty
    await store.add_unless_active(a_sync_run())
    assert await bytes_of_index() > empty
    await store.close()


def walk(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in walk(child))]


@each_row("name", HOT)
async def test_a_hot_statement_uses_its_index(store: SqlStore, name: str) -> None:
    statement, given, expected = HOT[name]

    def explain(tx: Tx) -> list[dict[str, Any]]:
        shown = tx.connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", given).scalar()
        plan = json.loads(shown) if isinstance(shown, str) else shown
        return walk(plan[0]["Plan"])

    found = await store._database.write(explain)
    assert [node for node in found if node["Node Type"] == "Seq Scan"] == []
    assert {node["Index Name"] for node in found if "Index Name" in node} == expected


@each_row("name", ["due", "claimable", "waiting of a key", "pending deliveries"])
async def test_an_ordered_statement_needs_no_sort(store: SqlStore, name: str) -> None:
    statement, given, _ = HOT[name]

    def explain(tx: Tx) -> str:
        rows = tx.connection.exec_driver_sql(f"EXPLAIN {statement}", given)
        return "\n".join(row[0] for row in rows)

    assert "Sort" not in await store._database.read(explain)


PAGES = [
    (ScheduleQuery(limit=50), "schedules_created_at"),
    (RunQuery(limit=50), "runs_created_at"),
    (RunQuery(limit=50, after=(1, "a")), "runs_created_at"),
    (RunQuery(limit=50, schedule_id="s"), "runs_scheduled"),
    (RunQuery(limit=50, requirement="sync:crm"), "runs_by_source"),
    (
        RunQuery(limit=50, requirement="sync:crm", descending=False, after=(1, "a")),
        "runs_by_source",
    ),
    (
        RunQuery(limit=50, requirement="sync:crm", created_since=NOW, created_until=NOW),
        "runs_by_source",
    ),
    # None has failed: the index of failed runs is the shortest.
    (RunQuery(limit=50, requirement="sync:crm", statuses=(RunStatus.FAILED,)), "runs_unusual"),
    (RunQuery(limit=50, requirement="sync:crm", concurrency_key="sync:crm#a"), "runs_by_source"),
]


@each_row(("query", "index"), PAGES)
async def test_a_page_follows_an_index(
    store: SqlStore, query: ScheduleQuery | RunQuery, index: str
) -> None:
    found: list[str] = []

    class Explaining(Tx):
        def rows(self, statement: Any, given: Any = None) -> list[Any]:
            shown = statement.compile(
                dialect=self.connection.dialect, compile_kwargs={"literal_binds": True}
            )
            rows = self.connection.exec_driver_sql(f"EXPLAIN {shown}")
            found.extend(row[0] for row in rows)
            return []

    def work(tx: Tx) -> None:
        explaining = Explaining(tx.connection, tx.dialect, None, reading=True)
        if isinstance(query, RunQuery):
            page_of(
                explaining,
                RUN_SORTS[query.sort],
                query,
                run_conditions(query),
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
    plan = "\n".join(found)
    assert index in plan
    assert "Seq Scan" not in plan
