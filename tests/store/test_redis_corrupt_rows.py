"""Corrupt records do not affect the others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from chimes.errors import Conflict
from chimes.model import replace
from chimes.model.ids import NodeId, RunId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.model.sync import task_id
from chimes.model.target import SyncTarget
from chimes.store.redis import RedisStore
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    LEASE,
    NOW,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    a_sync_run,
    an_entry,
    claim_request,
    due_schedule,
    log_lines,
)
from tests.servers.redis_places import empty_redis_url
from tests.store.redis_rig import opened, plain_client


@pytest.fixture
def url() -> str:
    return empty_redis_url().partition("?")[0]


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with plain_client(url) as client:
        yield client


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    async with opened(url, SettableClock()) as store:
        await store.join(a_node("node-1"), LEASE)
        yield store


@pytest.fixture
async def other(url: str) -> AsyncIterator[RedisStore]:
    """Another process, which does not remember what the first one wrote."""
    async with opened(url, SettableClock()) as store:
        yield store


def damage_schedule(client: redis.Redis, schedule: Schedule, part: str) -> None:
    key = f"chimes:schedule:{schedule.id}"
    body = str(client.hget(key, "body"))
    client.hset(key, "body", _with_junk(body, part))


def damage_run(client: redis.Redis, run: Run, part: str) -> None:
    key = f"chimes:run:{run.id}"
    if part == "rest":
        client.set(f"chimes:rest:{run.id}", "junk")
    elif part in ("body", "origin"):
        client.hset(key, "body", _with_junk(str(client.hget(key, "body")), part))
    else:
        key = f"chimes:definition:{client.hget(key, 'def')}"
        client.set(key, _with_junk(str(client.get(key)), part))


def _with_junk(body: str, part: str) -> str:
    if part in ("body", "definition"):
        return "junk"
    return json.dumps(json.loads(body) | {part: "junk"})


async def get_run(store: RedisStore, run_id: RunId) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    return run


@pytest.mark.parametrize(
    "part", ["body", "rest", "definition", "owner", "target", "policy", "origin", "unheard_of"]
)
async def test_corrupt_run_fails_and_the_others_are_claimed(
    store: RedisStore, other: RedisStore, client: redis.Redis, part: str
) -> None:
    good, bad, waiting = a_run(), a_run(owner=ALICE), a_run()
    bad = replace(bad, concurrency_key="shared")
    waiting = replace(waiting, concurrency_key="shared")
    await store.add_runs([good, bad, waiting])
    damage_run(client, bad, part)
    assert [run.id for run in await other.claim(claim_request(free=10))] == [good.id]
    ended = await get_run(store, bad.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)
    assert "of this run cannot be read" in ended.error
    # It blocks no other run.
    assert [run.id for run in await store.claim(claim_request(free=10))] == [waiting.id]
    assert len((await store.list_runs(RunQuery())).items) == 3


@pytest.mark.parametrize("part", ["body", "trigger", "target", "policy", "labels"])
async def test_corrupt_schedule_is_listed_and_can_be_deleted(
    store: RedisStore, client: redis.Redis, part: str
) -> None:
    good, bad = a_schedule(), a_schedule(name="bad one")
    await store.add_schedule(good)
    await store.add_schedule(bad)
    damage_schedule(client, bad, part)
    listed = {each.id: each for each in (await store.list_schedules(ScheduleQuery())).items}
    assert listed[good.id] == good
    assert f"{part}" in listed[bad.id].last_error
    assert "of this schedule cannot be read" in listed[bad.id].last_error
    with pytest.raises(Conflict, match=f"replace the .*{part}|{part}"):
        await store.change_schedule(bad.id, lambda now_is, at: replace(now_is, priority=3))
    gone = await store.change_schedule(bad.id, lambda now_is, at: delete_schedule(now_is, at, "me"))
    assert gone.deleted_at is not None
    assert [each.id for each in (await store.list_schedules(ScheduleQuery())).items] == [good.id]


async def test_corrupt_schedule_can_be_repaired(store: RedisStore, client: redis.Redis) -> None:
    schedule = await store.add_schedule(a_schedule())
    damage_schedule(client, schedule, "policy")
    mended = await store.change_schedule(
        schedule.id,
        lambda now_is, at: replace(now_is, policy=replace(schedule.policy, max_retries=7)),
    )
    assert await store.get_schedule(schedule.id) == mended
    assert mended.policy.max_retries == 7


async def test_corrupt_schedule_is_reported_as_broken_when_due(
    store: RedisStore, other: RedisStore, client: redis.Redis
) -> None:
    good, bad = await store.add_schedule(due_schedule()), await store.add_schedule(due_schedule())
    damage_schedule(client, bad, "trigger")
    fired = await other.fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] == [good.id]
    assert [schedule.id for schedule in fired.broken] == [bad.id]
    assert (await store.counts()).due == 0


async def test_corrupt_run_of_a_dead_node_is_rescued(
    store: RedisStore, other: RedisStore, client: redis.Redis
) -> None:
    await store.add_runs([good := a_run(), bad := a_run(owner=ALICE)])
    assert len(await store.claim(claim_request(free=10))) == 2
    damage_run(client, bad, "target")
    await other.leave(NodeId("node-1"))
    await store.join(a_node("node-2"), LEASE)
    assert [run.id for run in await store.claim(claim_request("node-2", free=10))] == [good.id]
    assert (await get_run(store, bad.id)).status is RunStatus.FAILED


async def test_run_whose_definition_is_missing_fails(
    store: RedisStore, other: RedisStore, client: redis.Redis
) -> None:
    await store.add_runs([bad := a_run(owner=ALICE), good := a_run()])
    client.delete(f"chimes:definition:{client.hget(f'chimes:run:{bad.id}', 'def')}")
    assert [run.id for run in await other.claim(claim_request(free=10))] == [good.id]
    ended = await get_run(other, bad.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)
    assert "the definition of this run is missing" in ended.error
    # The next run of the same kind stores it again.
    (again,) = await store.add_runs([a_run(owner=ALICE)])
    assert (await get_run(other, again.id)).definition == bad.definition


async def test_externally_deleted_records_do_not_affect_others(
    store: RedisStore, client: redis.Redis
) -> None:
    """Records deleted by other clients; indexes still refer to them."""
    key = {"concurrency_key": "shared"}
    gone, good = a_run(priority=9), a_run()
    held, first, blocked, next_one = a_run(priority=8), a_run(**key), a_run(**key), a_run(**key)
    await store.add_runs([gone, held, first, blocked, next_one, good])
    due, lost = await store.add_schedule(due_schedule()), await store.add_schedule(due_schedule())
    assert [run.id for run in await store.claim(claim_request(free=2))] == [gone.id, held.id]
    await store.release([(gone.id, 1)])
    for run in (gone, held, blocked):
        client.delete(f"chimes:run:{run.id}")
    client.delete(f"chimes:schedule:{lost.id}")
    client.delete(f"chimes:rest:{good.id}")
    assert {run.id for run in await store.claim(claim_request(free=10))} == {first.id, good.id}
    assert [run.schedule_id for run in (await store.fire_due(plan, limit=10)).others] == [due.id]
    await store.finish([a_completion(await get_run(store, first.id), NOW)])
    await store.leave(NodeId("node-1"))
    await store.join(a_node("node-2"), LEASE)
    again = {run.id for run in await store.claim(claim_request("node-2", free=10))}
    assert {next_one.id, good.id} <= again
    assert not {gone.id, held.id, blocked.id} & again
    assert await store.rescue(limit=10) == ()
    assert await store.prune_runs(before=NOW + LEASE, limit=10) == 1
    await store.list_runs(RunQuery(limit=None))
    await store.list_schedules(ScheduleQuery(limit=None))


QUEUE, INDEX = "sync_tasks_priority_queue", "sync_tasks_index:source#crm:collection#people"


@pytest.mark.parametrize("overwritten", [QUEUE, INDEX, "sync_tasks#{}", "sync_tasks#{}:logs"])
async def test_overwritten_eventnative_keys_do_not_affect_operations(
    store: RedisStore, client: redis.Redis, overwritten: str
) -> None:
    """The EventNative keys are a view: if other programs overwrite them, no operation fails or is
    applied partially."""
    target = SyncTarget(source="crm", collection="people")
    task = a_sync_run(target)
    key = overwritten.format(task_id(task))
    offered = claim_request(capabilities=frozenset({target.requirement}))

    def overwrite() -> None:
        client.delete(key)
        client.set(key, "mine")

    overwrite()
    added, created = await store.add_unless_active(task, an_entry())
    assert (added.id, created) == (task.id, True)
    overwrite()
    (held,) = await store.claim(offered)
    overwrite()
    await store.release([(held.id, held.fence)])
    overwrite()
    (held,) = await store.claim(offered)
    overwrite()
    assert await store.append_logs(held.id, held.fence, log_lines("one", "two"))
    overwrite()
    (ended,) = (await store.finish([a_completion(held, NOW)])).accepted
    assert ended.status is RunStatus.SUCCEEDED
    assert await get_run(store, task.id) == ended
    assert [line.message for line in await store.read_logs(task.id)] == ["one", "two"]
    overwrite()
    assert await store.prune_runs(before=NOW + LEASE, limit=10) == 1
    assert (await store.list_runs(RunQuery())).items == ()


async def test_overwritten_eventnative_keys_are_rebuilt(
    store: RedisStore, client: redis.Redis
) -> None:
    task = a_sync_run(SyncTarget(source="crm", collection="people"))
    for key in (QUEUE, INDEX, f"sync_tasks#{task_id(task)}"):
        client.set(key, "mine")
    await store.add_unless_active(task)
    assert client.zrange(QUEUE, 0, -1) == client.zrange(INDEX, 0, -1) == [task_id(task)]
    assert client.hget(f"sync_tasks#{task_id(task)}", "status") == "SCHEDULED"
