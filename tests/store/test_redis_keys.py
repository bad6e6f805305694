"""EventNative task keys, read by a plain client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis

from chimes.model.ids import RunId
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import AttemptEnd, LogEntry, Run, RunStatus
from chimes.model.target import SyncTarget
from chimes.store.redis import RedisStore
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    NOW,
    SECOND,
    a_completion,
    a_node,
    a_sync_run,
    claim_request,
    due_schedule,
    with_definition,
)
from tests.servers.redis_places import empty_redis_url
from tests.store.redis_rig import opened, plain_client

PAIR = SyncTarget(source="shop", collection="orders")
CAPABILITIES = frozenset({PAIR.requirement})
QUEUE = "sync_tasks_priority_queue"
INDEX = "sync_tasks_index:source#shop:collection#orders"


@pytest.fixture
def url() -> str:
    """A URL without prefix, as in EventNative."""
    return empty_redis_url().partition("?")[0]


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with plain_client(url) as client:
        yield client


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def store(url: str, clock: SettableClock) -> AsyncIterator[RedisStore]:
    async with opened(url, clock) as store:
        await store.join(a_node("node-1"), LEASE)
        yield store


def task(number: int, collection: str = "orders", **given: object) -> Run:
    pair = SyncTarget(source="shop", collection=collection)
    run_id = RunId(f"0193a6e0-0000-7000-8000-{number:012d}")
    return a_sync_run(pair, **{"id": run_id, "priority": 300} | given)


def task_name(run: Run) -> str:
    assert isinstance(run.target, SyncTarget)
    return f"{run.target.source}_{run.target.collection}_{run.id}"


async def claimed(store: RedisStore, free: int = 10) -> tuple[Run, ...]:
    return await store.claim(claim_request(free=free, capabilities=CAPABILITIES))


async def test_keys_of_a_task_from_queue_to_end(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    run, _ = await store.add_unless_active(task(1))
    name = task_name(run)
    unix = int(NOW.timestamp())
    score = 300 * 10**12 - unix
    assert client.zrange(QUEUE, 0, -1, withscores=True) == [(name, score)]
    assert client.zrange(INDEX, 0, -1, withscores=True) == [(name, unix)]
    created = f"{NOW:%Y-%m-%dT%H:%M:%S.%fZ}"
    waiting = {
        "id": name,
        "source": "shop",
        "collection": "orders",
        "priority": str(score),
        "created_at": created,
        "started_at": "",
        "finished_at": "",
        "status": "SCHEDULED",
    }
    assert client.hgetall(f"sync_tasks#{name}") == waiting

    begun = clock.advance(1.25)
    (held,) = await claimed(store)
    started = f"{begun:%Y-%m-%dT%H:%M:%S.%fZ}"
    running = waiting | {"status": "RUNNING", "started_at": started}
    assert client.hgetall(f"sync_tasks#{name}") == running
    assert client.zcard(QUEUE) == 0

    ended = clock.advance(0.000001)
    await store.finish([a_completion(held, clock.now())])
    finished = f"{ended:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert client.hgetall(f"sync_tasks#{name}") == running | {
        "status": "SUCCESS",
        "finished_at": finished,
    }
    assert client.zrange(INDEX, 0, -1) == [name]


@pytest.mark.parametrize(
    ("end", "word"),
    [
        (AttemptEnd.SUCCEEDED, "SUCCESS"),
        (AttemptEnd.FAILED, "FAILED"),
        (AttemptEnd.TIMEOUT, "FAILED"),
        (AttemptEnd.CANCELED, "CANCELED"),
    ],
)
async def test_status_uses_eventnative_words(
    store: RedisStore, client: redis.Redis, clock: SettableClock, end: AttemptEnd, word: str
) -> None:
    run, _ = await store.add_unless_active(task(1))
    (held,) = await claimed(store)
    await store.finish([a_completion(held, clock.now(), end)])
    assert client.hget(f"sync_tasks#{task_name(run)}", "status") == word


async def test_canceled_task_leaves_the_queue(store: RedisStore, client: redis.Redis) -> None:
    run, _ = await store.add_unless_active(task(1))
    await store.cancel_run(run.id, "enough")
    assert client.exists(QUEUE) == 0
    assert client.hget(f"sync_tasks#{task_name(run)}", "status") == "CANCELED"


async def test_queue_is_in_claim_order(store: RedisStore, client: redis.Redis) -> None:
    """By priority, then by age."""
    old, new, urgent = (
        task(1, "a", priority=200, created_at=NOW - 5 * SECOND, available_at=NOW - 5 * SECOND),
        task(2, "b", priority=200),
        task(3, "c", priority=300),
    )
    await store.add_runs([new, old, urgent])
    best_first = client.zrange(QUEUE, 0, -1, desc=True)
    assert best_first == [task_name(urgent), task_name(old), task_name(new)]
    assert [task_name(run) for run in await claimed(store)] == best_first


async def test_lost_task_is_queued_again(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    """EventNative lost tasks if it crashed after the pop."""
    run, _ = await store.add_unless_active(task(1))
    await claimed(store)
    clock.advance(LEASE)
    await store.rescue(limit=10)
    assert client.zrange(QUEUE, 0, -1) == [task_name(run)]
    assert client.hget(f"sync_tasks#{task_name(run)}", "status") == "SCHEDULED"


async def test_log_entries_keep_their_order_within_a_second(
    store: RedisStore, client: redis.Redis
) -> None:
    run, _ = await store.add_unless_active(task(1))
    (held,) = await claimed(store)
    at = datetime(2021, 3, 10, 22, 45, 2, 578999, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    entries = [
        LogEntry(at=at, message="second"),
        LogEntry(at=at - tick, message="น้ำ 水", level="error"),
        LogEntry(at=at + tick, message="same"),
        LogEntry(at=at + tick, message="same"),
    ]
    assert await store.append_logs(held.id, held.fence, entries)
    stored = client.zrange(f"sync_tasks#{task_name(run)}:logs", 0, -1, withscores=True)
    found = [json.loads(member) for member, _ in stored]
    assert [(each["time"], each["message"], each["level"]) for each in found] == [
        ("2021-03-10T22:45:02.578998Z", "น้ำ 水", "error"),
        ("2021-03-10T22:45:02.578999Z", "second", "info"),
        ("2021-03-10T22:45:02.579000Z", "same", "info"),
        ("2021-03-10T22:45:02.579000Z", "same", "info"),
    ]
    assert [score for _, score in stored] == [
        pytest.approx(1615416302.578998 + n / 1_000_000, abs=4e-7) for n in (0, 1, 2, 2)
    ]
    assert [each["number"] for each in found] == [2, 1, 3, 4]


async def test_skipped_slot_creates_no_task_keys(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    """The slot leaves a skipped run."""
    policy = Policy(overlap=Overlap.SKIP, concurrency_key=PAIR.key)
    await store.add_schedule(due_schedule(target=PAIR, policy=policy))
    first, _ = await store.add_unless_active(task(1))
    (skipped,) = (await store.fire_due(plan, limit=5)).others
    assert skipped.status is RunStatus.SKIPPED
    assert client.zrange(INDEX, 0, -1) == [task_name(first)]
    assert list(client.scan_iter("sync_tasks#*")) == [f"sync_tasks#{task_name(first)}"]


async def test_fired_slot_creates_task_keys(store: RedisStore, client: redis.Redis) -> None:
    await store.add_schedule(due_schedule(target=PAIR, priority=200))
    fired = await store.fire_due(plan, limit=5, request=claim_request(capabilities=CAPABILITIES))
    (run,) = fired.claimed
    assert client.hget(f"sync_tasks#{task_name(run)}", "status") == "RUNNING"
    assert client.zrange(INDEX, 0, -1) == [task_name(run)]
    assert client.exists(QUEUE) == 0


async def test_pruned_tasks_leave_no_keys(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    before = set(client.scan_iter())
    run, _ = await store.add_unless_active(task(1))
    (held,) = await claimed(store)
    await store.append_logs(held.id, held.fence, [LogEntry(at=NOW, message="a line")])
    await store.finish([a_completion(held, clock.now())])
    assert client.exists(f"sync_tasks#{task_name(run)}:logs") == 1
    assert await store.prune_runs(before=clock.now() + SECOND, limit=10) == 1
    clock.advance(timedelta(days=3))
    assert await store.prune_unused(before=clock.now(), limit=10) == 1
    assert set(client.scan_iter()) == before


async def test_deleted_logs_leave_no_log_key(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    run, _ = await store.add_unless_active(task(1))
    (held,) = await claimed(store)
    await store.append_logs(held.id, held.fence, [LogEntry(at=NOW, message="a line")])
    await store.finish([a_completion(held, clock.now())])
    await store.drop_logs([run.id])
    assert client.exists(f"sync_tasks#{task_name(run)}:logs") == 0


async def test_prefix_is_added_to_every_key(url: str, client: redis.Redis) -> None:
    async with opened(f"{url}?prefix=mine:") as store:
        await store.add_runs([task(1), with_definition(task(2), schedule_id=None)])
        names = list(client.scan_iter())
        assert names
        assert all(name.startswith("mine:") for name in names)
        assert f"mine:{QUEUE}" in names
    async with opened(f"{url}?prefix=yours:") as other:
        assert (await other.counts()).runs == {}
