"""Token buckets that all nodes share."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from chimes.store.port import Store, TokenGrant
from chimes.testing import SettableClock
from tests.builders import HOUR, MINUTE, SECOND
from tests.store_contract.stores import Home

NO_WAIT = timedelta()


async def test_new_bucket_is_full(store: Store) -> None:
    for left in (2, 1, 0):
        answer = await store.take_tokens("chat:1", rate=1, burst=3)
        assert answer == TokenGrant(granted=1, remaining=left, wait=NO_WAIT)
    answer = await store.take_tokens("chat:1", rate=1, burst=3)
    assert answer == TokenGrant(granted=0, remaining=0, wait=SECOND)
    # A rejected request takes no tokens.
    assert await store.take_tokens("chat:1", rate=1, burst=3) == answer


async def test_buckets_are_independent(store: Store) -> None:
    for name in ("a", "A", "b", "น้ำ", "x" * 400 + "1", "x" * 400 + "2", "a ", ""):
        taken = await store.take_tokens(name, rate=1, burst=1)
        assert taken.granted == 1, name
    assert (await store.take_tokens("x" * 400 + "2", rate=1, burst=1)).granted == 0


async def test_tokens_refill_by_the_store_clock(store: Store, clock: SettableClock) -> None:
    async def take(count: int = 1) -> TokenGrant:
        return await store.take_tokens("a", rate=0.5, burst=4, count=count)

    assert (await take(4)).remaining == 0
    clock.advance(1)
    assert await take() == TokenGrant(granted=0, remaining=0, wait=SECOND)
    clock.advance(1)
    assert await take() == TokenGrant(granted=1, remaining=0, wait=NO_WAIT)
    clock.advance(7)
    assert await take() == TokenGrant(granted=1, remaining=2, wait=NO_WAIT)


async def test_bucket_does_not_exceed_its_burst(store: Store, clock: SettableClock) -> None:
    await store.take_tokens("a", rate=10, burst=5, count=5)
    clock.advance(HOUR)
    assert await store.take_tokens("a", rate=10, burst=5) == TokenGrant(
        granted=1, remaining=4, wait=NO_WAIT
    )
    # The burst was lowered by a settings change.
    assert (await store.take_tokens("a", rate=10, burst=2)).remaining == 1


async def test_tokens_are_taken_all_or_none(store: Store, clock: SettableClock) -> None:
    async def take(count: int) -> TokenGrant:
        return await store.take_tokens("a", rate=2, burst=10, count=count)

    assert await take(8) == TokenGrant(granted=8, remaining=2, wait=NO_WAIT)
    assert await take(3) == TokenGrant(granted=0, remaining=2, wait=SECOND / 2)
    assert await take(2) == TokenGrant(granted=2, remaining=0, wait=NO_WAIT)
    clock.advance(1.5)
    assert await take(3) == TokenGrant(granted=3, remaining=0, wait=NO_WAIT)


async def test_returned_tokens_can_be_taken_again(store: Store, clock: SettableClock) -> None:
    async def take(count: int = 1) -> TokenGrant:
        return await store.take_tokens("a", rate=1, burst=3, count=count)

    assert (await take(3)).remaining == 0
    assert await take(-2) == TokenGrant(granted=-2, remaining=2, wait=NO_WAIT)
    assert [(await take()).granted for _ in range(3)] == [1, 1, 0]
    # Never more than the capacity, also of a new bucket.
    await take(-1)
    clock.advance(2.5)
    assert await take(-2) == TokenGrant(granted=-2, remaining=3, wait=NO_WAIT)
    assert [(await take()).granted for _ in range(4)] == [1, 1, 1, 0]
    assert (await store.take_tokens("new", rate=1, burst=3, count=-1)).remaining == 3
    assert (await store.take_tokens("new", rate=1, burst=3, count=4)).granted == 0


async def test_clock_set_back_adds_no_tokens(store: Store, clock: SettableClock) -> None:
    await store.take_tokens("a", rate=1, burst=2, count=2)
    clock.set(clock.now() - MINUTE)
    assert (await store.take_tokens("a", rate=1, burst=2)).granted == 0


async def test_concurrent_takers_never_exceed_the_bucket(store: Store) -> None:
    taken = await asyncio.gather(
        *(store.take_tokens("a", rate=0.001, burst=30) for _ in range(100))
    )
    assert sum(each.granted for each in taken) == 30
    assert sorted(each.remaining for each in taken if each.granted) == list(range(30))


async def test_nodes_share_a_bucket(shared_home: Home) -> None:
    stores = [await shared_home.open() for _ in range(3)]
    taken = await asyncio.gather(
        *(stores[n % 3].take_tokens("a", rate=0.001, burst=20, count=2) for n in range(30))
    )
    assert sum(each.granted for each in taken) == 20


async def test_only_full_buckets_are_pruned(store: Store, clock: SettableClock) -> None:
    await store.take_tokens("slow", rate=0.001, burst=2, count=2)
    await store.take_tokens("quick", rate=1, burst=2, count=2)
    now = clock.advance(10)
    await store.prune_messages(before=now, limit=100)
    assert (await store.take_tokens("slow", rate=0.001, burst=2)).granted == 0
    assert (await store.take_tokens("quick", rate=1, burst=2)).remaining == 1
