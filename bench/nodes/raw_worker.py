"""Claims and completes runs with the bare statements: the limit of the database itself with the
tables of Chimes.

    python nodes/raw_worker.py URL

The command {"at"} claims on one connection from the moment `at` and completes the claimed runs as
succeeded on another, until nothing is left; the next claim overlaps with the completion. Nothing is
executed and no row is decoded. The reply is that of claimer.py.
"""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import uvloop

from chimes.store.sql.dialects.postgres_statements import CLAIM, FINISH_UNIFORM
from chimes.store.sql.tables import runs
from nodes.claimer import CAPABILITIES, join_store
from nodes.protocol import commands, reply, sleep_until

#: The batch of a worker with 500 permits.
BATCH = 250
#: The settings of the store's own connections.
SESSION = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off"}
ATTEMPT = (
    '{"number":1,"fence":1,"node":"%s","started_at":"2026-01-01T00:00:00.000001Z"'
    ',"finished_at":"2026-01-01T00:00:00.000002Z","end":"succeeded"}'
)
_ID, _FENCE = (list(runs.c.keys()).index(name) for name in ("id", "fence"))


async def finish(connection: asyncpg.Connection, node: str, rows: list[asyncpg.Record]) -> int:
    ids = [row[_ID] for row in rows]
    shared = (rows[0][_FENCE], "succeeded", None, '{"value":null}', "", "")
    attempts = [ATTEMPT % node] * len(ids)
    return len(await connection.fetch(FINISH_UNIFORM, ids, attempts, *shared, None, False))


async def work(connections: list[asyncpg.Connection], node: str) -> list[tuple[float, int]]:
    claiming, finishing = connections

    async def claim() -> list[asyncpg.Record]:
        return await claiming.fetch(CLAIM % (BATCH, BATCH), None, list(CAPABILITIES), node)

    batches = []
    next_claim = asyncio.create_task(claim())
    while rows := await next_claim:
        next_claim = asyncio.create_task(claim())
        batches.append((await finish(finishing, node, rows), time.monotonic()))
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
