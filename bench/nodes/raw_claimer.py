"""Connections that execute one claiming statement in a loop: the limit of the database itself.

    python nodes/raw_claimer.py URL CONNECTIONS

The command {"at", "statement"} executes it on every connection from the moment `at` until nothing
is due. The reply is that of claimer.py.
"""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import uvloop

from nodes.protocol import commands, reply, sleep_until


async def fire(connection: asyncpg.Connection, statement: str) -> list[tuple[float, int]]:
    batches = []
    while found := await connection.fetchval(statement):
        batches.append((time.monotonic(), found))
    return batches


async def main(url: str, count: int) -> None:
    connections = [await asyncpg.connect(url) for _ in range(count)]
    async for command in commands():
        # Prepare first: the statements of a store are prepared as well.
        statement = command["statement"]
        for connection in connections:
            await connection.fetchval(statement.replace("LIMIT", "LIMIT 0 * "))
        await sleep_until(command["at"])
        answers = await asyncio.gather(*(fire(each, statement) for each in connections))
        reply({"batches": [batch for batches in answers for batch in batches]})
    for connection in connections:
        await connection.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
