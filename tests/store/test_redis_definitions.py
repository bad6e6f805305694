"""Definitions of runs are stored once, remembered by processes, and deleted when unused; firing
reads the cursors of schedules only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from chimes.model import replace
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import AttemptEnd, Run, own_key
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget, TaskTarget
from chimes.store.redis import RedisStore, wire
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    INBOX,
    MINUTE,
    a_completion,
    a_node,
    a_retry,
    a_run,
    a_schedule,
    claim_request,
    due_schedule,
)
from tests.servers.redis_places import empty_redis_url
from tests.store.redis_calls import Calls
from tests.store.redis_rig import opened, plain_client

DAY = timedelta(days=1)
CAPABILITIES = frozenset({"http", "task:mail.send"})


@pytest.fixture
def url() -> str:
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
        await store.join(a_node("node-1"), 365 * DAY)
        yield store


@pytest.fixture
async def other(url: str, clock: SettableClock) -> AsyncIterator[RedisStore]:
    """Another process."""
    async with opened(url, clock) as store:
        yield store


def definitions(client: redis.Redis) -> set[str]:
    keys = set(client.scan_iter("chimes:definition:*"))
    assert {key.rpartition(":")[2] for key in keys} == set(
        client.zrange("chimes:definitions", 0, -1)
    )
    return keys


def a_task(number: int, **given: Any) -> Run:
    return a_run(target=TaskTarget(name="mail.send", args={"number": number}), **given)


def edited(schedule: Schedule, **changes: Any) -> Schedule:
    return replace(schedule, version=schedule.version + 1, **changes)


# --- layout -----------------------------------------------------------------------------------
async def test_run_hash_has_neither_target_nor_policy(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    """In no state of a run: what equal runs share is stored once, and the hash stays packed."""
    secret, note = "http://127.0.0.1/" + "secret" * 20, "policy-marker"
    policy = Policy(overlap=Overlap.QUEUE, concurrency_key=note, max_retries=3, delivery=(INBOX,))
    schedule = due_schedule(target=HttpTarget(url=secret), policy=policy, owner=ALICE)
    await store.add_schedule(schedule)
    ids: list[str] = []

    def check() -> None:
        for run_id in ids:
            key = f"chimes:run:{run_id}"
            fields = client.hgetall(key)
            text = " ".join(value for name, value in fields.items() if name != "key")
            for word in ("secret", "max_retries", note, schedule.name, "alice", "delivery"):
                assert word not in text, (word, fields)
            assert not {"target", "policy", "owner", "id"} & set(fields)
            assert client.object("encoding", key) == "listpack", fields
        assert len(definitions(client)) == 1

    for _ in range(4):
        fired = await store.fire_due(plan, limit=10)
        ids += [run.id for run in fired.others]
        check()
        clock.advance(MINUTE)
    for end in (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED):
        (run,) = await store.claim(claim_request(free=1))
        check()
        await store.start(run.id, run.fence)
        await store.finish([a_completion(run, clock.now(), end)])
        check()
    (run,) = await store.claim(claim_request(free=1))
    await store.finish([a_retry(run, clock.now(), MINUTE)])
    check()
    assert len(ids) == 4
    for run_id in ids:
        run_ = await store.get_run(run_id)  # type: ignore[arg-type]
        assert run_ is not None
        assert (run_.target, run_.policy, run_.owner) == (schedule.target, policy, ALICE)


async def test_enqueued_tasks_share_a_definition_and_keep_their_arguments(
    store: RedisStore, other: RedisStore, client: redis.Redis
) -> None:
    await store.add_runs([a_task(number) for number in range(20)])
    await store.add_runs([a_task(1, policy=Policy(max_retries=7))])
    assert len(definitions(client)) == 2
    held = await other.claim(claim_request(free=20, capabilities=CAPABILITIES))
    assert sorted(run.target.args["number"] for run in held) == list(range(20))  # type: ignore[union-attr]


async def test_queued_and_claimed_runs_have_their_own_structures(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    await store.add_runs([a_run(), a_run()])
    assert client.hlen("chimes:queue") == 2
    (held,) = await store.claim(claim_request(free=1))
    assert (client.hlen("chimes:queue"), client.zcard("chimes:claims:node-1")) == (1, 1)
    await store.finish([a_completion(held, clock.now())])
    assert (client.hlen("chimes:queue"), client.zcard("chimes:claims:node-1")) == (1, 0)
    assert not client.hexists(f"chimes:run:{held.id}", "holder")


async def test_runs_with_the_own_key_of_their_schedule_are_listed_by_it(
    store: RedisStore, client: redis.Redis
) -> None:
    schedule = await store.add_schedule(a_schedule())
    own = a_run(schedule, concurrency_key=own_key(schedule.id))
    without = a_run(schedule)
    foreign = a_run(concurrency_key=own_key(schedule.id))
    await store.add_runs([own, without, foreign])
    page = await store.list_runs(RunQuery(concurrency_key=own_key(schedule.id)))
    assert {run.id for run in page.items} == {own.id, foreign.id}
    assert client.zcard(f"chimes:runs:key:{own_key(schedule.id)}") == 1


# --- remembering ------------------------------------------------------------------------------
async def test_definitions_are_read_once(
    store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add_runs([a_run() for _ in range(30)])
    calls = Calls(other, monkeypatch)
    assert len(await other.claim(claim_request(free=10))) == 10
    assert calls.trips == 2
    assert len(await other.claim(claim_request(free=10))) == 10
    assert calls.trips == 3


async def test_schedules_are_read_once_by_firing(
    store: RedisStore,
    other: RedisStore,
    clock: SettableClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = await store.add_schedule(due_schedule())
    calls = Calls(other, monkeypatch)

    async def trips() -> int:
        calls.reset()
        assert len((await other.fire_due(plan, limit=10)).others) == 1
        clock.advance(MINUTE)
        return calls.trips

    assert await trips() == 3
    assert await trips() == 2
    # An edit by another process is seen.
    target = HttpTarget(url="http://127.0.0.1/other")
    await store.change_schedule(schedule.id, lambda was, now: edited(was, target=target))
    assert await trips() == 3
    newest = (await store.list_runs(RunQuery(limit=1))).items[0]
    assert (newest.target, newest.schedule_version) == (target, schedule.version + 1)


async def test_definition_that_was_lost_is_stored_again(
    store: RedisStore, other: RedisStore, client: redis.Redis
) -> None:
    """A process believes that it is stored; a restored backup does not have it."""
    await store.add_runs([a_run()])
    (key,) = definitions(client)
    client.delete(key, "chimes:definitions")
    (run,) = await store.add_runs([a_run()])
    assert definitions(client) == {key}
    assert await other.get_run(run.id) == run


# --- retention --------------------------------------------------------------------------------
async def test_unused_definitions_are_deleted(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    await store.add_runs([old := a_run(owner=ALICE, created_at=clock.now())])
    (unused,) = definitions(client)
    await store.claim(claim_request())
    clock.advance(DAY)
    await store.add_runs([a_run(created_at=clock.now())])
    (used,) = definitions(client) - {unused}
    clock.advance(10 * DAY)
    # A run of it is still active.
    assert await store.prune_unused(before=clock.now(), limit=10) == 0
    assert definitions(client) == {unused, used}
    run = await store.get_run(old.id)
    assert run is not None
    await store.finish([a_completion(run, clock.now())])
    clock.advance(DAY)
    assert await store.prune_runs(before=clock.now(), limit=10) == 1
    assert await store.prune_unused(before=clock.now(), limit=10) == 1
    assert definitions(client) == {used}


async def test_definition_in_use_is_marked_and_stays(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    """Its first runs are gone, later ones are not."""
    for _ in range(5):
        await store.add_runs([a_run(created_at=clock.now())])
        for run in await store.claim(claim_request()):
            await store.finish([a_completion(run, clock.now())])
        clock.advance(DAY)
    before = clock.now() - 2 * DAY
    assert await store.prune_runs(before=before, limit=10) == 3
    assert await store.prune_unused(before=clock.now(), limit=10) == 0
    assert len(definitions(client)) == 1


async def test_definition_used_during_its_deletion_stays(
    store: RedisStore,
    other: RedisStore,
    client: redis.Redis,
    clock: SettableClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store.add_runs([run := a_run()])
    await store.cancel_run(run.id, "")
    clock.advance(9 * DAY)
    await store.prune_runs(before=clock.now(), limit=10)
    read = store._context.read

    async def read_and_race(verb: str, *args: Any) -> Any:
        answer = await read(verb, *args)
        if verb == "old_definitions":
            await other.add_runs([a_run(created_at=clock.now())])
        return answer

    monkeypatch.setattr(store._context, "read", read_and_race)
    assert await store.prune_unused(before=clock.now(), limit=10) == 0
    assert len(definitions(client)) == 1


async def test_edits_leave_no_definition_for_ever(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(due_schedule())
    for number in range(3):
        (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
        await store.finish([a_completion(run, clock.now())])
        clock.advance(MINUTE)
        await store.change_schedule(
            schedule.id,
            lambda was, now, n=number: edited(was, name=f"name {n}"),  # type: ignore[misc]
        )
    assert len(definitions(client)) == 3
    clock.advance(5 * DAY)
    await store.prune_runs(before=clock.now(), limit=10)
    assert await store.prune_unused(before=clock.now(), limit=10) == 3
    assert definitions(client) == set()
    # The next run stores its definition.
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert [run.schedule_name for run in fired.claimed] == ["name 2"]
    assert len(definitions(client)) == 1


async def test_firing_does_not_depend_on_the_size_of_the_cache(
    store: RedisStore, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for some schedules of a batch may evict the others."""
    monkeypatch.setattr(wire, "MOST", 2)
    schedules = [await store.add_schedule(due_schedule()) for _ in range(6)]
    for _ in range(2):
        fired = await store.fire_due(plan, limit=10)
        assert {run.schedule_id for run in fired.others} == {each.id for each in schedules}
        assert [each.id for each, _plan in fired.plans] == [each.id for each in schedules]
        runs = {run.id: run for run in (await store.list_runs(RunQuery())).items}
        assert {run.schedule_id for run in runs.values()} == {each.id for each in schedules}
        clock.advance(MINUTE)
