"""Hot statements on MariaDB use indexes: their cost must not grow with the tables.

The tables contain rows, because MariaDB plans by their statistics.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Select, bindparam, select, text
from sqlalchemy.dialects import mysql

from chimes.clock import EPOCH
from chimes.model.access import Owner, OwnerType
from chimes.model.listing import InboxQuery, RunQuery
from chimes.model.run import RunStatus
from chimes.store.sql import SqlStore, nodes
from chimes.store.sql import completion as effects
from chimes.store.sql import notifications as deliveries
from chimes.store.sql import notifications as inbox
from chimes.store.sql import rollups as windows
from chimes.store.sql import tables as message_tables
from chimes.store.sql.database.mariadb import _READ_COUNTERS
from chimes.store.sql.dialects import mariadb
from chimes.store.sql.listing import inbox_conditions, run_conditions
from chimes.store.sql.runs import ENDED_BEFORE
from chimes.store.sql.tables import WAITING, runs, schedules
from tests.servers import MARIADB, shared
from tests.store.mariadb_rig import connect, opened, rows_of
from tests.tables import each_row

DIALECT = mariadb.MariadbDialect()
ROWS = 2000


async def fill(url: str) -> None:
    """Inserts schedules, and a history of runs of which few are active."""
    connection = await connect(url)
    try:
        await rows_of(
            connection,
            "INSERT INTO schedules SELECT CONCAT('s', seq), 'native', CONCAT('name ', seq), 'user',"
            " CONCAT('u', seq MOD 50), 'http', '{}', '{}', '{}', 0, '{}', seq MOD 10 <> 0, '',"
            " NULL, NULL, '{}', seq, IF(seq MOD 10 = 0, NULL, seq), NULL, NULL, NULL, NULL, '',"
            " NULL, 0, NULL, 1, seq, '', seq, '', IF(seq MOD 20 = 0, 1, NULL), 'active', 0"
            f" FROM seq_1_to_{ROWS}",
        )
        await rows_of(
            connection,
            "INSERT INTO runs SELECT CONCAT('r', seq), CONCAT('s', seq MOD 40), '', 1, 'native',"
            " 'user', 'u1', seq, 'schedule', IF(seq MOD 100 = 0, 'r1', NULL), '', NULL, 'http',"
            " '{}', '{}', 0, 0, seq MOD 3, CONCAT('k', seq MOD 40), 1, IF(seq MOD 50 = 7, 1, 0),"
            " CASE WHEN seq MOD 50 IN (7, 8) THEN 'queued' WHEN seq MOD 50 = 9 THEN 'running'"
            " ELSE 'succeeded' END, 1, 1, IF(seq MOD 50 = 9, CONCAT('n', seq MOD 4), NULL), 0, 0,"
            " seq, seq, seq, seq, seq, IF(seq MOD 50 IN (7, 8, 9), NULL, seq), NULL, '', '', 0,"
            f" NULL, '[]', 'http', NULL FROM seq_1_to_{ROWS * 2}",
        )
        # The tasks of a few sources among many HTTP runs.
        await rows_of(
            connection,
            "INSERT INTO runs SELECT CONCAT('t', seq), NULL, '', 1, 'native', 'user', 'u1', NULL,"
            " 'manual', NULL, '', NULL, 'sync', '{}', '{}', 0, 0, 400, CONCAT('sync:s', seq MOD 8,"
            " '#c'), 1, 0, 'succeeded', 1, 1, NULL, 0, 0, seq * 8, seq, seq, seq, seq, seq, NULL,"
            f" '', '', 0, NULL, '[]', CONCAT('sync:s', seq MOD 8), NULL FROM seq_1_to_{ROWS // 4}",
        )
        # One in twenty deliveries is pending.
        await rows_of(
            connection,
            "INSERT INTO deliveries SELECT CONCAT('d', seq), CONCAT('r', seq), NULL, '', 'user',"
            " CONCAT('u', seq MOD 50), 'inbox', '{}', 'success', IF(seq MOD 20 = 0, 'pending',"
            " 'delivered'), 1, 1, 0, seq, seq, IF(seq MOD 20 = 0, NULL, seq), '', '', ''"
            f" FROM seq_1_to_{ROWS}",
        )
        await rows_of(
            connection,
            "INSERT INTO inbox SELECT CONCAT('i', seq), 'user', CONCAT('u', seq MOD 50), NULL,"
            " NULL, '', '', '', '', '[]', seq, NULL, 0, NULL, NULL"
            f" FROM seq_1_to_{ROWS}",
        )
        await rows_of(
            connection, "ANALYZE TABLE schedules, runs, deliveries, inbox PERSISTENT FOR ALL"
        )
    finally:
        await connection.ensure_closed()


@pytest.fixture(scope="module")
def filled() -> Any:
    """One database for all tests: filling it takes longer than explaining."""
    import asyncio

    url = shared(MARIADB).new_database()

    async def set_up() -> None:
        async with opened(url):
            await fill(url)

    asyncio.run(set_up())
    yield url
    shared(MARIADB).drop_database(url)


@pytest.fixture
async def connection(filled: str) -> AsyncIterator[Any]:
    connection = await connect(filled)
    yield connection
    await connection.ensure_closed()


def compiled(statement: Select[Any], **given: object) -> str:
    written = statement.compile(dialect=mysql.dialect(paramstyle="pyformat"))
    expanded = written.construct_expanded_state(given)
    return inlined(expanded.statement, **expanded.parameters)


def inlined(statement: str, **given: object) -> str:
    return statement % {name: _literal(value) for name, value in given.items()}


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_literal(each) for each in value)})"
    return str(value) if isinstance(value, int) else f"'{value}'"


def page(query: RunQuery) -> str:
    order = (runs.c.created_at.desc(), runs.c.id.desc())
    return compiled(select(runs).where(*run_conditions(query)).order_by(*order).limit(10))


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


IDS = ["r7", "r8", "r9"]
HOT: dict[str, tuple[str, list[str]]] = {
    "next due": (mariadb.NEXT_DUE, ["schedules_due"]),
    "due": (inlined(mariadb.DUE_SCHEDULES, now=100, limit=10), ["schedules_due"]),
    "admitted": (inlined(mariadb.ADMITTED, keys=("k1", "k2")), ["runs_by_key"]),
    "oldest active": (inlined(mariadb.OLDEST_ACTIVE, key="k7"), ["runs_by_key"]),
    "tasks": (page(RunQuery(requirement="sync:s1")), ["runs_by_source"]),
    "tasks of a time": (
        page(RunQuery(requirement="sync:s1", created_since=at(400), created_until=at(3200))),
        ["runs_by_source"],
    ),
    "tasks that failed": (
        page(RunQuery(requirement="sync:s1", statuses=(RunStatus.FAILED,))),
        ["runs_by_source", "runs_by_status"],
    ),
    "tasks of a pair": (
        page(RunQuery(requirement="sync:s1", concurrency_key="sync:s1#c")),
        ["runs_by_source", "runs_by_key"],
    ),
    "blocked keys": (inlined(mariadb.BLOCKED_KEYS, keys='["k1", "k7"]'), ["runs_by_key"]),
    "slots": (
        inlined(mariadb.SLOTS_TAKEN, pairs=json.dumps([["s1", 1], ["s2", 2]])),
        ["runs_one_per_slot"],
    ),
    "next rank": (inlined(mariadb.NEXT_RANK, below=2), ["runs_claimable"]),
    "claimable": (
        inlined(mariadb.CLAIMABLE_OF_RANK, rank=1, now=500, offers=("http",), limit=10),
        ["runs_claimable"],
    ),
    "available": (inlined(mariadb.AVAILABLE_IN_RANK, rank=1), ["runs_claimable"]),
    "finish": (compiled(select(runs).where(DIALECT.among(runs.c.id, "ids")), ids=IDS), ["PRIMARY"]),
    "recording": (
        compiled(select(schedules).where(DIALECT.among(schedules.c.id, "ids")), ids=["s1", "s2"]),
        ["PRIMARY"],
    ),
    "waiting of a key": (compiled(effects.BLOCKED_OF_KEY, key="k7", most=5), ["runs_by_key"]),
    "waiting of a schedule": (
        compiled(
            select(runs).where(runs.c.schedule_id == bindparam("one"), text(WAITING)), one="s7"
        ),
        ["runs_by_schedule", "runs_one_per_slot", "runs_by_status|runs_one_per_slot"],
    ),
    "cancels to hear": (compiled(nodes.TO_CANCEL, node_id="n1"), ["runs_held"]),
    "lost": (compiled(nodes.runs_of_holders(DIALECT), holders=["n1"], most=9), ["runs_held"]),
    "holders": (compiled(nodes.HOLDERS), ["runs_held"]),
    "anybody lost": (compiled(nodes.RESCUE_NEEDED, now=5), ["runs_held"]),
    "old runs": (compiled(ENDED_BEFORE, before=50, most=10), ["runs_ended"]),
    "pending deliveries": (
        inlined(mariadb.PENDING_DELIVERIES, now=500, overdue=1, channels=("inbox",), limit=10),
        ["deliveries_pending"],
    ),
    "next delivery": (mariadb.NEXT_DELIVERY, ["deliveries_pending"]),
    "settling deliveries": (
        compiled(
            select(message_tables.deliveries).where(
                DIALECT.among(message_tables.deliveries.c.id, "ids")
            ),
            ids=["d1", "d2"],
        ),
        ["PRIMARY"],
    ),
    "old deliveries": (
        compiled(deliveries.ENDED_DELIVERIES, before=50, most=10),
        ["deliveries_ended"],
    ),
    "old items": (compiled(inbox.OLD_ITEMS, before=50, most=10), ["inbox_created"]),
    "an inbox": (
        compiled(
            select(message_tables.inbox)
            .where(*inbox_conditions(InboxQuery(owner=Owner(type=OwnerType.USER, id="u7"))))
            .order_by(message_tables.inbox.c.created_at.desc(), message_tables.inbox.c.id.desc())
            .limit(10)
        ),
        ["inbox_by_owner"],
    ),
    "wake-ups": (_READ_COUNTERS, ["PRIMARY"]),
    "runs by status": (compiled(windows.STATUS_ROLLUPS), ["PRIMARY"]),
}
TABLES = ("runs", "run_tallies", "schedules", "wakeups", "deliveries", "inbox")
#: These return all rows of an index, because all are requested.
WHOLE = {"runs by status", "holders"}


async def explained(connection: Any, statement: str) -> list[dict[str, Any]]:
    rows = await rows_of(connection, f"EXPLAIN {statement}")
    names = ("id", "kind", "table", "type", "possible", "key", "length", "ref", "rows", "extra")
    return [dict(zip(names, row, strict=True)) for row in rows]


@each_row("name", HOT)
async def test_a_hot_statement_uses_its_index(connection: Any, name: str) -> None:
    statement, indexes = HOT[name]
    steps = await explained(connection, statement)
    ours = [step for step in steps if step["table"] in TABLES]
    assert ours, steps
    for step in ours:
        assert step["key"] in indexes, steps
        assert step["type"] != "ALL", steps
        assert name in WHOLE or step["type"] != "index", steps


@each_row(
    "name",
    [
        *("next due", "due", "claimable", "waiting of a key", "old runs"),
        *("tasks", "tasks of a time"),
        *("pending deliveries", "next delivery", "old deliveries", "old items", "an inbox"),
    ],
)
async def test_an_ordered_statement_needs_no_sort(connection: Any, name: str) -> None:
    steps = await explained(connection, HOT[name][0])
    assert not any("filesort" in (step["extra"] or "") for step in steps), steps


async def read_by(connection: Any, statement: str) -> int:
    """Returns how many rows and index entries the server read."""

    async def reads() -> int:
        rows = await rows_of(connection, "SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for name, value in rows if not name.endswith("_tmp"))

    before = await reads()
    asking = await reads() - before
    await rows_of(connection, statement)
    return await reads() - before - 2 * asking


# The cost of a claim depends on the number of runs claimed.
@each_row(
    ("name", "most"),
    [
        ("due", 15),
        ("claimable", 15),
        ("next due", 2),
        ("pending deliveries", 12),
        ("next delivery", 2),
        ("an inbox", 12),
        # 20 of the 100 runs of that key are active.
        ("oldest active", 24),
        ("tasks", 12),
        ("tasks of a time", 12),
        ("admitted", 12),
        # At least 40 are queued in each rank and under each key.
        ("next rank", 2),
        ("available", 2),
        ("blocked keys", 8),
        ("waiting of a key", 8),
    ],
)
async def test_few_rows_are_read(connection: Any, name: str, most: int) -> None:
    assert await read_by(connection, HOT[name][0]) <= most


async def test_a_store_works_on_the_filled_database(filled: str) -> None:
    async with opened(filled) as store:
        assert isinstance(store, SqlStore)
        assert (await store.counts()).schedules > 1000
