"""Hot operations on MariaDB use indexes: their cost must not grow with the tables.

The tables contain rows, because MariaDB plans by their statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chimes.store.sql import SqlStore
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.mariadb import _READ_COUNTERS
from tests.servers import MARIADB, shared
from tests.store import hot_statements
from tests.store.filled_tables import FILLED, fill_tables
from tests.store.hot_statements import LOCKS, Hot, executed, rolled_back
from tests.store.mariadb_rig import connect, opened, rows_of, sql
from tests.tables import each_row

TABLES = {table.name for table in FILLED} - {"nodes"} | {"wakeups"}
#: MariaDB prefers to sort for these pages, which only people ask for.
SORTED = {"schedules by name", "everyone's inbox"}
HOT = (
    {name: hot for name, hot in hot_statements.HOT.items() if name not in SORTED}
    | LOCKS
    | {
        "wake-ups": Hot(
            lambda tx: tx.connection.exec_driver_sql(_READ_COUNTERS).all(), frozenset({"pk"}), 8
        )
    }
)
#: These read a whole index, because all entries are requested.
WHOLE = {"rescue needed"}


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """One database for all tests: filling it takes longer than explaining."""
    url = shared(MARIADB).new_database()

    async def set_up() -> None:
        async with opened(url) as store:
            await store._database.write(fill_tables)
        names = ", ".join(table.name for table in FILLED)
        await sql(url, f"ANALYZE TABLE {names} PERSISTENT FOR ALL")

    asyncio.run(set_up())
    yield url
    shared(MARIADB).drop_database(url)


@pytest.fixture
async def store(filled: str) -> AsyncIterator[SqlStore]:
    async with opened(filled) as store:
        yield store


async def explained(store: SqlStore, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    names = ("id", "kind", "table", "type", "possible", "key", "length", "ref", "rows", "extra")
    for statement, given in await executed(store, HOT[name]):

        def explain(tx: Tx, statement: str = statement, given: Any = given) -> list[dict[str, Any]]:
            rows = tx.connection.exec_driver_sql(f"EXPLAIN {statement}", given).all()
            return [dict(zip(names, row, strict=True)) for row in rows]

        found += await rolled_back(store, explain)
    return found


def summary(steps: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{step['table']} {step['type']} {step['key']} {step['extra']}" for step in steps
    )


@each_row("name", HOT)
async def test_a_hot_operation_uses_its_indexes(store: SqlStore, name: str) -> None:
    steps = await explained(store, name)
    ours = [step for step in steps if _table(step) in TABLES]
    assert ours, summary(steps)
    for step in ours:
        index = "pk" if step["key"] == "PRIMARY" else step["key"]
        assert index in HOT[name].indexes, summary(steps)
        assert step["type"] != "ALL", summary(steps)
        whole = step["type"] == "index" and not _is_read_in_order(step)
        assert name in WHOLE or not whole, summary(steps)


#: Aliases in statements of several rows, and of pages.
_ALIASES = {"this": "cursors"}


def _table(step: dict[str, Any]) -> str:
    return _ALIASES.get(step["table"], str(step["table"]))


def _is_read_in_order(step: dict[str, Any]) -> bool:
    """A page that follows an index stops at its limit; `test_few_rows_are_read` measures it."""
    return "filesort" not in (step["extra"] or "")


@each_row("name", [name for name, hot in HOT.items() if hot.ordered])
async def test_an_ordered_operation_needs_no_sort(store: SqlStore, name: str) -> None:
    steps = await explained(store, name)
    assert not any("filesort" in (step["extra"] or "") for step in steps), summary(steps)


# The cost of a claim depends on the number of runs claimed.
@each_row("name", HOT)
async def test_few_rows_are_read(store: SqlStore, name: str) -> None:
    hot = HOT[name]

    def work(tx: Tx) -> int:
        def reads() -> int:
            statement = "SHOW SESSION STATUS LIKE 'Handler_read%%'"
            rows = tx.connection.exec_driver_sql(statement).all()
            return sum(int(value) for name, value in rows if not name.endswith("_tmp"))

        before = reads()
        asking = reads() - before
        hot.work(tx)
        return reads() - before - 2 * asking

    # Temporary tables count too: lists that are passed as a table, and rows that are sorted.
    read = await rolled_back(store, work)
    assert read <= hot.most * 3 + 10, summary(await explained(store, name))


async def test_a_store_works_on_the_filled_database(filled: str) -> None:
    async with opened(filled) as store:
        assert (await store.counts()).schedules > 1000
    connection = await connect(filled)
    try:
        assert await rows_of(connection, "SELECT count(*) FROM claims") == [(2000,)]
    finally:
        await connection.ensure_closed()
