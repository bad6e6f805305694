"""Rows of idle concurrency keys are deleted while other transactions wait for them, on several
connections: no two transactions hold the same key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from sqlalchemy import delete, select, text

from chimes.store.sql import SqlStore, open_mariadb, open_postgres
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import lock_keys, lock_owner
from chimes.store.sql.runs import prune_unused
from chimes.store.sql.tables import concurrency_keys
from tests.builders import ALICE, LEASE, NOW, a_completion, a_node, a_run, claim_request

KEY = "shared"
PAUSES = {"postgresql": "SELECT pg_sleep(0.004)", "mariadb": "SELECT SLEEP(0.004)"}
LONG_PAUSES = {"postgresql": "SELECT pg_sleep(0.4)", "mariadb": "SELECT SLEEP(0.4)"}


@dataclass
class Site:
    kind: str
    stores: list[SqlStore]
    #: Transactions that hold the key now, and the most that did at a time.
    holders: int = 0
    most: int = 0
    held: int = 0

    async def hold(self, store: SqlStore) -> None:
        def work(tx: Tx) -> None:
            lock_keys(tx, [KEY])
            self.holders += 1
            self.most = max(self.most, self.holders)
            try:
                tx.connection.execute(text(PAUSES[self.kind]))
                self.held += 1
            finally:
                self.holders -= 1

        await store._database.write(work)

    async def delete_idle(self, store: SqlStore) -> int:
        return await store._database.write(lambda tx: prune_unused(tx, NOW, 100))

    async def names(self) -> set[str]:
        read = self.stores[0]._database.read
        rows = await read(lambda tx: tx.tuples(select(concurrency_keys.c.name)))
        return {row[0] for row in rows}


@pytest.fixture(params=["postgresql", "mariadb"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    prefix, open_it = {
        "postgresql": ("postgres", open_postgres),
        "mariadb": ("mariadb", open_mariadb),
    }[request.param]
    url = request.getfixturevalue(f"{prefix}_url")
    async with AsyncExitStack() as stack:
        stores = []
        for _number in range(4):
            store = open_it(url)
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield Site(request.param, stores)


async def test_key_has_one_holder_while_its_row_is_deleted_again_and_again(site: Site) -> None:
    *locking, deleting = site.stores
    deleted = 0

    async def hold(store: SqlStore) -> None:
        for _round in range(40):
            await site.hold(store)

    async def delete_rows() -> None:
        nonlocal deleted
        while site.held < 40 * len(locking):
            deleted += await site.delete_idle(deleting)
            # Also without the checks of retention, as a transaction that waits may find it.
            await deleting._database.write(lambda tx: tx.run(delete(concurrency_keys)))

    async with asyncio.timeout(120):
        await asyncio.gather(*(hold(each) for each in locking), delete_rows())
    assert site.held == 40 * len(locking)
    assert site.most == 1
    await site.hold(locking[0])
    assert await site.delete_idle(deleting) == 1
    assert await site.names() == set()


async def test_waiting_transactions_take_turns_after_the_row_was_deleted(site: Site) -> None:
    first, second, third, deleting = site.stores
    await site.hold(first)
    waits = asyncio.Event()

    def delete_slowly(tx: Tx) -> None:
        tx.run(delete(concurrency_keys))
        waits.set()
        tx.connection.execute(text(LONG_PAUSES[site.kind]))

    deletion = asyncio.create_task(deleting._database.write(delete_slowly))
    async with asyncio.timeout(60):
        await waits.wait()
        await asyncio.gather(*(site.hold(store) for store in (first, second, third)), deletion)
    assert (site.held, site.most) == (4, 1)


async def test_rows_of_idle_keys_and_owners_are_deleted(site: Site) -> None:
    store = site.stores[0]
    now = await store.now()
    await store.join(a_node(), LEASE)
    await store.add_runs([a_run(concurrency_key="busy", available_at=now)])
    (busy,) = await store.claim(claim_request())
    waiting = [a_run(concurrency_key=key, available_at=now) for key in ("busy", "waits")]
    await store.add_runs(waiting)
    await store._database.write(lambda tx: lock_keys(tx, ["idle"]))
    await store._database.write(lambda tx: lock_owner(tx, ALICE))
    assert await site.names() == {"busy", "waits", "idle", f"owner:{ALICE}"}
    await site.delete_idle(store)
    assert await site.names() == {"busy", "waits"}
    await store.finish([a_completion(busy, await store.now())])
    while runs := await store.claim(claim_request()):
        await store.finish([a_completion(run, await store.now()) for run in runs])
    await site.delete_idle(store)
    assert await site.names() == set()


async def test_row_that_a_transaction_holds_is_not_deleted(site: Site) -> None:
    holding, deleting = site.stores[:2]
    held = asyncio.Event()

    def hold_long(tx: Tx) -> None:
        lock_keys(tx, [KEY])
        held.set()
        tx.connection.execute(text(LONG_PAUSES[site.kind]))

    # A committed row: what is inserted and not committed is not visible to the deletion anyway.
    await site.hold(holding)
    task = asyncio.create_task(holding._database.write(hold_long))
    async with asyncio.timeout(60):
        await held.wait()
        assert await site.delete_idle(deleting) == 0
        assert not task.done()
        await task
    assert await site.names() == {KEY}
