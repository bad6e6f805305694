"""Rate limits shared by several nodes, and quotas of owners."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from chimes.errors import RateLimited, StoreUnavailable
from chimes.model.access import Owner, OwnerType, Quota
from chimes.services.access import OwnerQuotas, SharedLimiter
from chimes.store.memory import MemoryStore
from chimes.store.port import TokenGrant
from chimes.testing import SettableClock

CHAT = Owner(type=OwnerType.CHAT, id="7")
ANNA = Owner(type=OwnerType.USER, id="anna")


class CountingStore(MemoryStore):
    """Counts token requests, and can be unavailable."""

    calls = 0
    broken = False

    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        if self.broken:
            raise StoreUnavailable()
        self.calls += 1
        await asyncio.sleep(0)
        return await super().take_tokens(name, rate=rate, burst=burst, count=count)


@pytest.fixture
def counting(clock: SettableClock) -> CountingStore:
    return CountingStore(clock)


def node(store: CountingStore, clock: SettableClock) -> SharedLimiter:
    return SharedLimiter(store, clock, rate=20, burst=40)


async def allowed(limiter: SharedLimiter, times: int, caller: str = "user:anna") -> int:
    passed = 0
    for _ in range(times):
        try:
            await limiter.take(caller)
        except RateLimited:
            continue
        passed += 1
    return passed


async def test_nodes_share_one_limit(counting: CountingStore, clock: SettableClock) -> None:
    nodes = [node(counting, clock) for _ in range(3)]
    passed = 0
    for _ in range(40):
        for each in nodes:
            passed += await allowed(each, 1)
    assert passed == 40
    clock.advance(1)
    assert sum([await allowed(each, 40) for each in nodes]) == 20
    assert await allowed(nodes[0], 1, "user:bob") == 1


# Fetched tokens that a node does not spend expire.
async def test_never_more_than_the_limit_over_time(
    counting: CountingStore, clock: SettableClock
) -> None:
    nodes = [node(counting, clock) for _ in range(4)]
    passed = 0
    for step in range(200):
        passed += await allowed(nodes[step % 4], 3)
        clock.advance(0.05)
    assert passed <= 40 + 20 * 10
    assert passed >= 20 * 10 * 0.8


async def test_callers_below_the_limit_are_never_rejected(
    counting: CountingStore, clock: SettableClock
) -> None:
    """Also if its requests are spread over several nodes."""
    nodes = [node(counting, clock) for _ in range(19)]
    for step in range(500):
        assert await allowed(nodes[step % 19], 1) == 1
        clock.advance(1 / 19)


async def test_busy_caller_needs_few_store_writes(
    counting: CountingStore, clock: SettableClock
) -> None:
    limiter = node(counting, clock)
    for _ in range(200):
        assert await allowed(limiter, 1) == 1
        clock.advance(0.05)
    assert counting.calls < 200 / 3


async def test_rejections_write_nothing(counting: CountingStore, clock: SettableClock) -> None:
    limiter = node(counting, clock)
    await allowed(limiter, 40)
    before = counting.calls
    assert await allowed(limiter, 500) == 0
    assert counting.calls <= before + 2
    with pytest.raises(RateLimited) as refused:
        await limiter.take("user:anna")
    assert timedelta() < refused.value.retry_after <= timedelta(seconds=0.05)


async def test_concurrent_calls_respect_the_limit(
    counting: CountingStore, clock: SettableClock
) -> None:
    limiter = node(counting, clock)
    answers = await asyncio.gather(
        *(limiter.take("user:anna") for _ in range(100)), return_exceptions=True
    )
    assert sum(not isinstance(each, BaseException) for each in answers) == 40
    assert all(isinstance(each, RateLimited) for each in answers if isinstance(each, Exception))
    assert counting.calls < 20


async def test_limit_is_local_while_the_store_is_unavailable(
    counting: CountingStore, clock: SettableClock
) -> None:
    counting.broken = True
    limiter = node(counting, clock)
    assert await allowed(limiter, 100) == 40
    counting.broken = False
    clock.advance(1)
    assert await allowed(limiter, 5) == 5


async def test_idle_callers_are_evicted(counting: CountingStore, clock: SettableClock) -> None:
    limiter = SharedLimiter(counting, clock, rate=1, burst=1)
    for number in range(10_001):
        await limiter.take(str(number))
    assert len(limiter._fetched) == 10_000


@pytest.mark.parametrize(
    ("rule", "owner", "quotas"),
    [
        ({}, ANNA, ()),
        ({}, CHAT, (20,)),
        ({"auth_enabled": True}, ANNA, (9, 20)),
        ({"auth_enabled": True, "active": 3}, CHAT, (9, 3)),
        ({"active": 3}, ANNA, (3,)),
        ({"active": 0}, CHAT, ()),
        ({"active": 0, "auth_enabled": True}, ANNA, (9,)),
    ],
)
def test_quotas_of_an_owner(rule: dict[str, int], owner: Owner, quotas: tuple[int, ...]) -> None:
    given = {"active": None, "auth_enabled": False} | rule
    found = OwnerQuotas(schedules=9, **given)(owner)  # type: ignore[arg-type]
    assert tuple(each.limit for each in found) == quotas
    for each in found:
        assert each in (
            Quota(limit=9),
            Quota(limit=each.limit, active=True, namespace="softnix"),
        )
