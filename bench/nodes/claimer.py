"""Stores of Chimes that fire due schedules in a loop, without an engine and without tasks.

    python nodes/claimer.py URL STORES

The command {"at", "limit", "stores"} makes that many stores call `fire_due` in a loop, with permits
for all runs, from the moment `at` until nothing is due. The reply lists the commit time and the
number of runs of each batch.
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
from nodes.protocol import commands, reply, sleep_until

CAPABILITIES = frozenset({f"task:{TASK}"})
LEASE = timedelta(minutes=30)

Batches = list[tuple[float, int]]


async def join_store(url: str, number: int) -> tuple[Store, NodeId]:
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
        capabilities=tuple(CAPABILITIES),
    )
    await store.join(node, LEASE)
    return store, node_id


async def fire(store: Store, node_id: NodeId, limit: int) -> Batches:
    request = ClaimRequest(node_id=node_id, capabilities=CAPABILITIES, free=limit)
    batches: Batches = []
    more = True
    while more:
        fired = await store.fire_due(plan, limit=limit, request=request)
        if fired.broken:
            raise RuntimeError(f"broken schedule: {fired.broken[0].last_error}")
        found = len(fired.claimed) + len(fired.others)
        if found:
            batches.append((time.monotonic(), found))
        more = fired.more
    return batches


async def main(url: str, count: int) -> None:
    stores = [await join_store(url, number) for number in range(count)]
    # The settings of a node.
    tune_garbage_collector()
    async for command in commands():
        gc.collect()
        await sleep_until(command["at"])
        answers = await asyncio.gather(
            *(fire(*each, command["limit"]) for each in stores[: command["stores"]])
        )
        reply({"batches": [batch for batches in answers for batch in batches]})
    for store, _ in stores:
        await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
