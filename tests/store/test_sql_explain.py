"""Hot operations on SQLite use indexes: their cost must not grow with the tables."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chimes.store.sql import SqlStore, open_sqlite
from chimes.store.sql.database.base import Tx
from tests.store.filled_tables import FILLED, fill_tables
from tests.store.hot_statements import HOT, executed, rolled_back
from tests.tables import each_row

TABLES = {table.name for table in FILLED} - {"nodes"}
_STEP = re.compile(
    r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(?:INDEX (\w+)|(\w+ PRIMARY KEY)))?"
)
#: Instructions of the virtual machine: for a row that a statement reads, and for the statement.
_PER_ROW = 80
_PER_STATEMENT = 600


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for all tests: filling it takes longer than explaining."""
    path = tmp_path_factory.mktemp("explained") / "chimes.db"

    async def set_up() -> None:
        store = open_sqlite(path)
        await store.open()
        await store._database.write(fill_tables)
        await store.close()

    asyncio.run(set_up())
    return path


@pytest.fixture
async def store(filled: Path) -> AsyncIterator[SqlStore]:
    store = open_sqlite(filled)
    await store.open()
    yield store
    await store.close()


async def explained(store: SqlStore, name: str) -> list[str]:
    found: list[str] = []
    for statement, given in await executed(store, HOT[name]):
        one = given[0] if isinstance(given, list) else given

        def explain(tx: Tx, statement: str = statement, one: object = one) -> list[str]:
            rows = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", one)
            return [row[3] for row in rows]

        found += await rolled_back(store, explain)
    return found


def steps(plan: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yields how each table is read, its name and the index."""
    for line in plan:
        match = _STEP.match(line)
        if match is None:
            continue
        kind, table, index, primary = match.groups()
        if index is not None and index.startswith("sqlite_autoindex") and index.endswith("_1"):
            index = "pk"
        yield kind, table, index or ("pk" if primary else "")


@each_row("name", HOT)
async def test_a_hot_operation_uses_its_indexes(store: SqlStore, name: str) -> None:
    plan = await explained(store, name)
    read = [step for step in steps(plan) if step[1] in TABLES]
    assert read, plan
    assert {index for _, _, index in read} <= HOT[name].indexes, plan
    if name != "rescue needed":
        unbounded = [step for step in read if step[0] == "SCAN" and not HOT[name].ordered]
        assert all(step[2].endswith(PAGED) for step in unbounded), plan


#: Indexes that pages are read from in their order, up to the limit of the page.
PAGED = ("_created", "_named", "_owner", "_state", "queue_order")


@each_row("name", [name for name, hot in HOT.items() if hot.ordered])
async def test_an_ordered_operation_needs_no_sort(store: SqlStore, name: str) -> None:
    plan = await explained(store, name)
    assert [line for line in plan if "TEMP B-TREE" in line] == []


@each_row("name", HOT)
async def test_the_cost_depends_on_the_rows_that_are_needed(store: SqlStore, name: str) -> None:
    """Counts instructions: SQLite does not tell how many rows a statement has read."""
    hot = HOT[name]

    def work(tx: Tx) -> tuple[int, int]:
        driver = tx.connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        instructions = 0

        def count() -> int:
            nonlocal instructions
            instructions += 1
            return 0

        statements: list[str] = []
        driver.set_trace_callback(statements.append)
        driver.set_progress_handler(count, 1)
        try:
            hot.work(tx)
        finally:
            driver.set_progress_handler(None, 0)
            driver.set_trace_callback(None)
        return instructions, len(statements)

    instructions, statements = await rolled_back(store, work)
    assert instructions <= hot.most * _PER_ROW + statements * _PER_STATEMENT
