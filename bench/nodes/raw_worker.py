"""Claims and completes runs with the bare statements: the limit of the database itself with the
tables of Chimes.

    python nodes/raw_worker.py URL

The command {"at"} claims on one connection from the moment `at` and completes the claimed runs as
succeeded on another, until nothing is left; the next claim overlaps with the completion. Nothing is
executed and no run is decoded. The reply is that of claimer.py.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count

import asyncpg
import uvloop

from chimes.store.sql.dialects.postgres import CLAIM, _columns, _end_claimed
from chimes.store.sql.rows.run import ENDING
from chimes.store.sql.rows.values import Values
from chimes.store.sql.tables import RUN_COLUMNS
from nodes.claimer import CAPABILITIES, join_store
from nodes.protocol import commands, reply, sleep_until

#: The batch of a worker with 500 permits.
BATCH = 250
#: The settings of the store's own connections.
SESSION = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off"}
_NAMES = [each.name for each in RUN_COLUMNS]
_ID, _FENCE = (_NAMES.index(name) for name in ("id", "claim_fence"))
#: Microseconds that differ, as the times of attempts do.
_moments = count(1_800_000_000_000_000)


def succeeded(row: asyncpg.Record) -> Values:
    """The columns of ENDING of a run that has succeeded at its first attempt."""
    values = {
        "id": row[_ID],
        "fence": row[_FENCE],
        "status": "succeeded",
        "attempt_started_at": next(_moments),
        "attempt_finished_at": next(_moments),
        "result": '{"value":null}',
    }
    return tuple(values.get(name) for name in ENDING)


async def finish(connection: asyncpg.Connection, rows: list[asyncpg.Record]) -> int:
    """The statement of `finish`: deletes the claims and writes the ends of their runs."""
    rows = sorted(rows, key=lambda row: row[_ID])
    parameters, kinds = _columns([succeeded(row) for row in rows])
    ended = await connection.fetchval(_end_claimed(kinds), *parameters, None)
    if len(ended) != len(rows):
        raise RuntimeError(f"{len(rows)} claims, of which {len(ended)} ended")
    return len(ended)


async def work(connections: list[asyncpg.Connection], node: str) -> list[tuple[float, int]]:
    claiming, finishing = connections

    async def claim() -> list[asyncpg.Record]:
        statement = CLAIM % {"limit": BATCH}
        return await claiming.fetch(statement, None, list(CAPABILITIES), node, [], [])

    batches = []
    next_claim = asyncio.create_task(claim())
    while rows := await next_claim:
        next_claim = asyncio.create_task(claim())
        batches.append((await finish(finishing, rows), time.monotonic()))
    return [(moment, count) for count, moment in batches]


async def main(url: str) -> None:
    store, node = await join_store(url, 0)
    connections = [await asyncpg.connect(url, server_settings=SESSION) for _ in range(2)]
    async for command in commands():
        await sleep_until(command["at"])
        reply({"batches": await work(connections, node)})
    for connection in connections:
        await connection.close()
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
