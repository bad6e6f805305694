"""Deliveries and shared limits on servers: several nodes, by the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from chimes.model.notification import Delivery, DeliveryState
from chimes.model.policy import Policy
from chimes.model.recipient import Channel
from chimes.model.run import AttemptEnd
from chimes.store.sql import SqlStore, open_mariadb, open_postgres
from tests.builders import (
    INBOX,
    MINUTE,
    SECOND,
    a_completion,
    a_delivery_completion,
    a_node,
    a_run,
    claim_request,
)
from tests.store.server_rig import until_listening
from tests.store_contract.scenes import all_deliveries

NODES = 3


@pytest.fixture(params=["postgresql", "mariadb"])
async def stores(
    request: pytest.FixtureRequest, patient_store: None
) -> AsyncIterator[list[SqlStore]]:
    """Stores like those of several processes, each with a node."""
    known = {
        "postgresql": ("postgres_url", open_postgres),
        "mariadb": ("mariadb_url", open_mariadb),
    }
    fixture, open_it = known[request.param]
    url = request.getfixturevalue(fixture)
    made = [open_it(url) for _ in range(NODES)]
    for number, store in enumerate(made):
        await store.open()
        await store.join(a_node(f"node-{number}"), timedelta(minutes=10))
    yield made
    for store in made:
        await store.close()


# Each run is notified once, whichever node ends it and whichever sends.
async def test_concurrent_completions_and_senders(stores: list[SqlStore]) -> None:
    now = await stores[0].now()
    policy = Policy(delivery=(INBOX,))
    shared = {"concurrency_key": "k", "concurrency_limit": 20}
    times = {"created_at": now, "planned_at": now, "available_at": now}
    runs = [a_run(policy=policy, **times, **shared) for _ in range(60)]
    await stores[0].add_runs(runs)
    sent: list[Delivery] = []
    working = True

    async def work(number: int) -> None:
        store = stores[number % NODES]
        end = AttemptEnd.SUCCEEDED if number % 2 else AttemptEnd.FAILED
        while claimed := await store.claim(claim_request(f"node-{number % NODES}", 5)):
            completions = [a_completion(run, await store.now(), end) for run in claimed]
            assert not (await store.finish(completions)).refused
            await store.finish(completions)  # as after a lost response

    async def send(store: SqlStore) -> None:
        while True:
            last = not working
            claimed = await store.claim_deliveries(Channel, limit=4, lease=MINUTE, overdue=MINUTE)
            sent.extend(
                await store.finish_deliveries([a_delivery_completion(each) for each in claimed])
            )
            if last and not claimed:
                return

    senders = [asyncio.ensure_future(send(store)) for store in stores]
    await asyncio.gather(*(work(number) for number in range(2 * NODES)))
    working = False
    await asyncio.gather(*senders)
    for store in stores:  # a delivery that another node has locked is left for the next pass
        await send(store)
    rows = await all_deliveries(stores[0])
    assert {row.state for row in rows.values()} == {DeliveryState.DELIVERED}
    assert sorted(row.run_id for row in sent) == sorted(run.id for run in runs)
    assert {row.fence for row in rows.values()} == {1}


# The server's clock decides, and is read before the row exists and can be locked.
async def test_a_bucket_grants_no_more_than_its_rate(stores: list[SqlStore]) -> None:
    rate, burst = 50.0, 10
    first = await stores[0].now()

    async def take(store: SqlStore) -> int:
        return sum(
            [(await store.take_tokens("a", rate=rate, burst=burst)).granted for _ in "x" * 9]
        )

    granted = sum(await asyncio.gather(*(take(store) for store in stores * 5)))
    granted += (await stores[0].take_tokens("a", rate=rate, burst=burst, count=burst)).granted
    elapsed = (await stores[0].now() - first) / SECOND
    assert burst <= granted <= burst + rate * elapsed


# A waiting node is woken by a delivery of another node's run.
async def test_a_sender_on_another_node_is_woken(stores: list[SqlStore]) -> None:
    now = await stores[0].now()
    times = {"created_at": now, "planned_at": now, "available_at": now}
    await until_listening(stores[1])
    seen = stores[1].changes()
    await stores[0].add_runs([a_run(policy=Policy(delivery=(INBOX,)), **times)])
    await asyncio.wait_for(stores[1].wait_for_work(seen, None), 60)
    (run,) = await stores[0].claim(claim_request("node-0"))
    seen = stores[1].changes()
    await stores[0].finish([a_completion(run, now)])
    await asyncio.wait_for(stores[1].wait_for_work(seen, None), 60)
    assert await stores[1].next_delivery() is not None
