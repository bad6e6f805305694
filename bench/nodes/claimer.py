"""Stores of Chimes that fire whatever is due, as fast as they can: no engine, no tasks.

    python nodes/claimer.py URL STORES

A command {"at", "limit", "stores"} lets that many of the stores call `fire_due` in a loop, with
places for everything, from the moment `at` until nothing is due. The answer: when each batch was
committed and how many runs it brought.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from datetime import timedelta

import uvloop
from suite.chimes_tables import TASK, open_store

from chimes.model.ids import NodeId
from chimes.model.node import Node
from chimes.model.planning import plan
from chimes.runtime.serve import tune_garbage_collector
from chimes.store.port import ClaimRequest, Store
from nodes.conversation import commands, say, until

OFFERS = frozenset({f"task:{TASK}"})
LEASE = timedelta(minutes=30)

Batches = list[tuple[float, int]]


async def opened(url: str, number: int) -> tuple[Store, NodeId]:
    store = open_store(url)
    await store.open()
    now = await store.now()
    node_id = NodeId(f"bench-{os.getpid()}-{number}")
    node = Node(
        id=node_id,
        version="0",
        roles=("scheduler", "worker"),
        capacity=1000,
        started_at=now,
        heartbeat_at=now,
        lease_until=now,
        capabilities=tuple(OFFERS),
    )
    await store.join(node, LEASE)
    return store, node_id


async def fire(store: Store, node_id: NodeId, limit: int) -> Batches:
    request = ClaimRequest(node_id=node_id, capabilities=OFFERS, free=limit)
    batches: Batches = []
    more = True
    while more:
        fired = await store.fire_due(plan, limit=limit, request=request)
        if fired.broken:
            raise RuntimeError(f"set aside: {fired.broken[0].last_error}")
        found = len(fired.claimed) + len(fired.others)
        if found:
            batches.append((time.monotonic(), found))
        more = fired.more
    return batches


async def main(url: str, count: int) -> None:
    stores = [await opened(url, number) for number in range(count)]
    # As in every node.
    tune_garbage_collector()
    async for command in commands():
        gc.collect()
        await until(command["at"])
        answers = await asyncio.gather(
            *(fire(*each, command["limit"]) for each in stores[: command["stores"]])
        )
        say({"batches": [batch for batches in answers for batch in batches]})
    for store, _ in stores:
        await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
