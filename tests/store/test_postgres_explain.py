"""Hot operations on PostgreSQL use indexes: their cost must not grow with the tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from chimes.model.planning import plan
from chimes.store.sql import SqlStore, open_postgres
from chimes.store.sql.database.base import Tx
from chimes.store.sql.rows.values import schedule_number
from tests.builders import LEASE, a_node, a_run, a_schedule, a_sync_run, claim_request
from tests.servers import POSTGRES, shared
from tests.store import hot_statements
from tests.store.filled_tables import CLAIMED, FILLED, fill_tables
from tests.store.hot_statements import AT_ONCE, LOCKS, PREFETCH, executed, rolled_back
from tests.tables import each_row

#: Read all claims, of which there are no more than permits: what happens when a node ends or is
#: lost, and the check for that.
ALL_CLAIMS = {
    name: replace(hot_statements.HOT[name], most=hot_statements.HOT[name].most + CLAIMED)
    for name in ("runs of a node", "lost", "rescue needed")
}
HOT = hot_statements.HOT | LOCKS | PREFETCH | AT_ONCE | ALL_CLAIMS
TABLES = {table.name for table in FILLED} - {"nodes"}


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """One database for all tests: filling it takes longer than explaining."""
    url = shared(POSTGRES).new_database()

    async def set_up() -> None:
        store = open_postgres(url)
        await store.open()
        await store._database.write(fill_tables)
        await store._database.write(lambda tx: tx.connection.exec_driver_sql("ANALYZE"))
        await store.close()

    asyncio.run(set_up())
    yield url
    shared(POSTGRES).drop_database(url)


@pytest.fixture
async def store(filled: str) -> AsyncIterator[SqlStore]:
    store = open_postgres(filled)
    await store.open()
    yield store
    await store.close()


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


async def explained(store: SqlStore, name: str) -> list[dict[str, Any]]:
    """Returns the steps of the plans of all statements, with what they have read."""
    found: list[dict[str, Any]] = []
    for statement, given in await executed(store, HOT[name]):

        def explain(tx: Tx, statement: str = statement, given: Any = given) -> list[dict[str, Any]]:
            asked = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            shown = tx.connection.exec_driver_sql(asked, given).scalar()
            plan = json.loads(shown) if isinstance(shown, str) else shown
            return walk(plan[0]["Plan"])

        found += await rolled_back(store, explain)
    return found


def is_scan(step: dict[str, Any]) -> bool:
    return "Scan" in step["Node Type"]


def rows_read(step: dict[str, Any]) -> float:
    removed = sum(
        step.get(name, 0) for name in ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    )
    return float((step["Actual Rows"] + removed) * step["Actual Loops"])


def summary(steps: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{step['Node Type']} {step.get('Index Name') or step.get('Relation Name')}"
        f" {rows_read(step):g}"
        for step in steps
        if is_scan(step)
    )


def index_of(step: dict[str, Any]) -> str:
    index = str(step.get("Index Name", ""))
    return "pk" if index.endswith("_pkey") else index


@each_row("name", HOT)
async def test_a_hot_operation_uses_its_indexes(store: SqlStore, name: str) -> None:
    steps = await explained(store, name)
    used = {index_of(step) for step in steps if "Index Name" in step}
    assert used or name in ALL_CLAIMS, summary(steps)
    assert used <= HOT[name].indexes, summary(steps)
    indexed = TABLES - {"claims"} if name in ALL_CLAIMS else TABLES
    scanned = [
        step
        for step in steps
        if step["Node Type"] == "Seq Scan" and step["Relation Name"] in indexed
    ]
    assert scanned == [], summary(steps)


@each_row("name", [name for name, hot in HOT.items() if hot.ordered])
async def test_an_ordered_operation_needs_no_sort(store: SqlStore, name: str) -> None:
    steps = await explained(store, name)
    assert [step for step in steps if step["Node Type"] == "Sort"] == []


@each_row("name", HOT)
async def test_few_rows_are_read(store: SqlStore, name: str) -> None:
    steps = await explained(store, name)
    # A bitmap scan of an index is counted with the rows that it finds.
    reading = [step for step in steps if step.get("Relation Name") in TABLES and is_scan(step)]
    assert sum(map(rows_read, reading)) <= HOT[name].most, summary(steps)


async def test_claims_are_looked_up_one_by_one_although_there_were_none(postgres_url: str) -> None:
    """The table of claims is often empty when its statistics are computed."""
    store = open_postgres(postgres_url)
    await store.open()
    await store._database.write(fill_tables)

    def empty_statistics(tx: Tx) -> None:
        for statement in (
            "CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT * FROM claims",
            "DELETE FROM claims",
            "ANALYZE claims",
            "INSERT INTO claims SELECT * FROM kept",
        ):
            tx.connection.exec_driver_sql(statement)

    await store._database.write(empty_statistics)
    for name in ("take claims", "end claimed"):
        steps = await explained(store, name)
        reading = [each for each in steps if each.get("Relation Name") == "claims"]
        read = sum(rows_read(step) for step in reading if is_scan(step))
        assert read <= HOT[name].most, summary(steps)
    await store.close()


async def test_a_plan_that_was_made_for_empty_tables_reads_few_rows(postgres_url: str) -> None:
    """A session keeps the plan of its first batches until the statistics are computed again, while
    every batch adds runs."""
    store = open_postgres(postgres_url)
    await store.open()
    hot = HOT["admitted"]
    ((statement, given),) = await executed(store, hot)
    values = [
        f"'{{{','.join(map(str, each))}}}'" if isinstance(each, list) else each for each in given
    ]
    asked = f"EXECUTE kept ({', '.join(map(str, values))})"

    def explain(tx: Tx) -> list[dict[str, Any]]:
        for each in (
            "ANALYZE runs, queue, claims",
            "SET LOCAL plan_cache_mode = force_generic_plan",
            f"PREPARE kept AS {statement}",
            asked,
        ):
            tx.connection.exec_driver_sql(each)
        fill_tables(tx)
        (shown,) = tx.connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}"
        ).scalars()
        tx.connection.exec_driver_sql("DEALLOCATE kept")
        return walk((json.loads(shown) if isinstance(shown, str) else shown)[0]["Plan"])

    steps = await rolled_back(store, explain)
    reading = [step for step in steps if step.get("Relation Name") in TABLES and is_scan(step)]
    assert 0 < sum(map(rows_read, reading)) <= hot.most, summary(steps)
    await store.close()


async def test_firing_writes_with_one_statement(postgres_url: str) -> None:
    store = open_postgres(postgres_url)
    await store.open()
    node = await store.join(a_node(), LEASE)
    slot = await store.now()
    made = [a_schedule(next_slot=slot, next_run_at=slot) for _ in range(3)]
    await store.load(made)
    sent: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        sent.append((statement, given))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        fired = await store.fire_due(plan, limit=10, request=claim_request(node.id))
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    assert sorted(run.schedule_id or "" for run in fired.claimed) == [each.id for each in made]
    ((_, given),) = [
        each
        for each in sent
        if all(f"{write} " in each[0] for write in ("UPDATE cursors", "INTO runs", "INTO claims"))
    ]
    # Keys and ids are each in two tables.
    lists = [sorted(each) for each in given if isinstance(each, list)]
    assert lists.count(sorted(schedule_number(each.id) for each in made)) == 1
    assert lists.count(sorted(run.id for run in fired.claimed)) == 1
    stored = [await store.get_schedule(each.id) for each in made]
    assert [(each.last_slot, each.fired_count) for each in stored if each] == [(slot, 1)] * 3
    await store.close()
