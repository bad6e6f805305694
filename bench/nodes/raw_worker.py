"""The statements that claim runs and write their verdicts, and nothing else: what the database
itself can do with the tables of Chimes.

    python nodes/raw_worker.py URL

A command {"at"} claims from the moment `at` on, on one connection, and writes on another that what
was claimed has succeeded, until nothing is left; the next claim is on its way meanwhile. Nothing is
carried out, and no row is made into a run. The answer is that of claimer.py.
"""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import uvloop

from chimes.store.sql.dialects.postgres_statements import CLAIM, FINISH_UNIFORM
from chimes.store.sql.tables import runs
from nodes.claimer import OFFERS, opened
from nodes.conversation import commands, say, until

#: As many as a worker with 500 places claims at a time.
BATCH = 250
#: As the store's own sessions have it.
SESSION = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off"}
ATTEMPT = (
    '{"number":1,"fence":1,"node":"%s","started_at":"2026-01-01T00:00:00.000001Z"'
    ',"finished_at":"2026-01-01T00:00:00.000002Z","end":"succeeded"}'
)
_ID, _FENCE = (list(runs.c.keys()).index(name) for name in ("id", "fence"))


async def finish(connection: asyncpg.Connection, node: str, rows: list[asyncpg.Record]) -> int:
    ids = [row[_ID] for row in rows]
    alike = (rows[0][_FENCE], "succeeded", None, '{"value":null}', "", "")
    attempts = [ATTEMPT % node] * len(ids)
    return len(await connection.fetch(FINISH_UNIFORM, ids, attempts, *alike, None, False))


async def work(connections: list[asyncpg.Connection], node: str) -> list[tuple[float, int]]:
    claiming, finishing = connections

    async def claim() -> list[asyncpg.Record]:
        return await claiming.fetch(CLAIM % (BATCH, BATCH), None, list(OFFERS), node)

    batches = []
    coming = asyncio.create_task(claim())
    while rows := await coming:
        coming = asyncio.create_task(claim())
        batches.append((await finish(finishing, node, rows), time.monotonic()))
    return [(moment, count) for count, moment in batches]


async def main(url: str) -> None:
    store, node = await opened(url, 0)
    connections = [await asyncpg.connect(url, server_settings=SESSION) for _ in range(2)]
    async for command in commands():
        await until(command["at"])
        say({"batches": await work(connections, node)})
    for connection in connections:
        await connection.close()
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
