"""A store of layout 1 is converted by `chimes store migrate`, also if it is interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from chimes.cli.store.commands import encode_item
from chimes.envelope import NO_KEYS
from chimes.errors import SchemaMismatch, StoreLost
from chimes.model.ids import NodeId, RunId
from chimes.model.listing import DeliveryQuery, RunQuery, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.recipient import Channel
from chimes.model.run import Run, RunStatus, own_key
from chimes.model.schedule import Schedule
from chimes.store.port import Store
from chimes.store.redis import RedisStore, migration, open_redis, server
from chimes.store.redis.connection import parse_address
from chimes.store.redis.server import inspect_redis
from chimes.testing import SettableClock
from tests.builders import (
    CAPABILITIES,
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    claim_request,
)
from tests.servers.redis_places import empty_redis_url
from tests.store.redis_rig import all_keys, opened, plain_client
from tests.store_contract.scenes import contents

DATA = Path(__file__).parent / "redis_layout_1"
REPOSITORY = Path(__file__).parents[2]
SHOWN = json.loads((DATA / "shown.json").read_text())
EXPORTED = [json.loads(line) for line in (DATA / "export.jsonl").read_text().splitlines()]
OFFERED = CAPABILITIES | {"task:mail.send"}


@pytest.fixture
def url() -> str:
    return empty_redis_url().partition("?")[0]


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    """With the keys of the old store."""
    with plain_client(url) as client:
        for line in (DATA / "keys.jsonl").read_text().splitlines():
            key, kind, value = json.loads(line)
            match kind:
                case "hash":
                    client.hset(key, mapping=value)
                case "zset":
                    client.zadd(key, dict(value))
                case "set":
                    client.sadd(key, *value)
                case "list":
                    client.rpush(key, *value)
                case other:
                    raise AssertionError(other)
        yield client


@pytest.fixture
def clock() -> SettableClock:
    """After the leases of the recorded nodes."""
    return SettableClock(datetime.fromisoformat(SHOWN["now"]) + MINUTE)


async def migrate(url: str, clock: SettableClock) -> tuple[str | None, str]:
    return await open_redis(url, clock=clock).migrate()


async def exported(store: Store) -> list[Any]:
    items = [encode_item(item, NO_KEYS) for item in await contents(store)]
    return [json.loads(json.dumps(item)) for item in items]


def recorded(kind: str) -> dict[str, dict[str, Any]]:
    return {plain["id"]: plain for name, plain in EXPORTED if name == kind}


async def check(store: RedisStore) -> None:
    """Everything that the verbs return, before anything changes."""
    assert await exported(store) == EXPORTED
    counts = await store.counts()
    assert {status.value: number for status, number in counts.runs.items()} == SHOWN["runs"]
    assert await store.next_due() == datetime.fromisoformat(SHOWN["next_due"])
    assert await store.next_available() == datetime.fromisoformat(SHOWN["next_available"])
    runs = recorded("run")
    for name, plain in runs.items():
        run = await store.get_run(RunId(name))
        assert run is not None
        assert json.loads(json.dumps(encode_item(run, NO_KEYS))) == ["run", plain]
    for status in RunStatus:
        listed = (await store.list_runs(RunQuery(statuses=(status,), limit=None))).items
        wanted = {name for name, plain in runs.items() if plain["status"] == status}
        assert {run.id for run in listed} == wanted
    for node in ("node-1", "node-2"):
        listed = (await store.list_runs(RunQuery(holder=NodeId(node), limit=None))).items
        assert {run.id for run in listed} == {
            name for name, plain in runs.items() if plain.get("holder") == node
        }
    schedules = recorded("schedule")
    for name in schedules:
        of_schedule = {each for each, plain in runs.items() if plain.get("schedule_id") == name}
        listed = (await store.list_runs(RunQuery(schedule_id=name, limit=None))).items  # type: ignore[arg-type]
        assert {run.id for run in listed} == of_schedule
        keyed = (await store.list_runs(RunQuery(concurrency_key=own_key(name), limit=None))).items  # type: ignore[arg-type]
        assert {run.id for run in keyed} == {
            each
            for each, plain in runs.items()
            if plain.get("concurrency_key") == own_key(name)  # type: ignore[arg-type]
        }
    listed_schedules = (await store.list_schedules(ScheduleQuery(limit=None))).items
    assert {each.id for each in listed_schedules} == {
        name for name, plain in schedules.items() if "deleted_at" not in plain
    }
    deliveries = (await store.list_deliveries(DeliveryQuery(limit=None))).items
    assert {each.id for each in deliveries} == set(recorded("delivery"))


async def finish_everything(store: RedisStore, clock: SettableClock) -> list[Run]:
    """Executes all runs, in the order in which they are claimed."""
    await store.join(a_node("node-9"), 10 * HOUR)
    await store.rescue(limit=100)
    clock.advance(HOUR + MINUTE)
    ended: list[Run] = []
    while held := await store.claim(claim_request("node-9", free=1, capabilities=OFFERED)):
        ended += (await store.finish([a_completion(run, clock.now()) for run in held])).accepted
    return ended


async def test_converted_store_has_everything(
    url: str, client: redis.Redis, clock: SettableClock
) -> None:
    eventnative = {key: value for key, value in all_keys(client).items() if "sync_tasks" in key}
    assert eventnative
    assert await migrate(url, clock) == ("1", "2")
    assert await migrate(url, clock) == ("2", "2")
    async with opened(url, clock) as store:
        await check(store)
    after = all_keys(client)
    assert {key: value for key, value in after.items() if "sync_tasks" in key} == eventnative
    assert not [key for key in after if key.startswith("chimes:held:")]
    definitions = [key for key in after if key.startswith("chimes:definition:")]
    assert 5 < len(definitions) < len(recorded("run"))
    for name in recorded("run"):
        fields = client.hgetall(f"chimes:run:{name}")
        assert "def" in fields
        assert "rest" not in fields
        assert '"target"' not in fields["body"]


async def test_converted_store_is_the_same_as_an_imported_one(
    url: str, client: redis.Redis, clock: SettableClock
) -> None:
    """Claiming, unblocking, firing and sending go on."""
    active = {
        name: plain
        for name, plain in recorded("run").items()
        if plain["status"] in ("queued", "running")
    }
    canceled = {name for name, plain in active.items() if plain.get("cancel_requested")}
    await migrate(url, clock)
    other_clock = SettableClock(clock.now())
    async with opened(url, clock) as store:
        items = await contents(store)
        ended = await finish_everything(store, clock)
        assert {run.id for run in ended} == active.keys() - canceled
        fired = await store.fire_due(plan, limit=100)
        pending = await store.claim_deliveries(list(Channel), limit=100, lease=HOUR, overdue=HOUR)
        assert await store.prune_runs(before=clock.now() + HOUR, limit=1000) > 30
        assert client.hlen("chimes:queue") == sum(not run.status.terminal for run in fired.others)
    async with opened(empty_redis_url(), other_clock) as other:
        # An import returns running runs to the queue.
        await other.load(items)
        assert {run.id for run in await finish_everything(other, other_clock)} == active.keys()
        again = await other.fire_due(plan, limit=100)
        assert {run.id for run in again.others} == {run.id for run in fired.others} != set()
        sent = await other.claim_deliveries(list(Channel), limit=100, lease=HOUR, overdue=HOUR)
        assert {each.id for each in sent} == {each.id for each in pending} != set()


async def test_store_of_the_former_layout_is_refused(
    url: str, client: redis.Redis, clock: SettableClock
) -> None:
    before = all_keys(client)
    with pytest.raises(SchemaMismatch, match="chimes store migrate"):
        await open_redis(url, clock=clock).open()
    with pytest.raises(SchemaMismatch, match="chimes store migrate"):
        await open_redis(url, clock=clock).init()
    inspected = await inspect_redis(url, clock, allow_volatile=True)
    assert (inspected.layout, inspected.head) == ("1", "2")
    # Nodes of that version may still be running.
    with pytest.raises(SchemaMismatch, match="node-1, node-2"):
        await migrate(url, SettableClock(NOW))
    assert all_keys(client) == before
    client.hset("chimes:store", "layout", "9")
    with pytest.raises(SchemaMismatch, match="is 9"):
        await migrate(url, clock)


@contextmanager
def former_version() -> Iterator[None]:
    """The checks of the identity are those of layout 1; scripts of both check the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "LAYOUT", "1")
        yield


@asynccontextmanager
async def connected_before(url: str, clock: SettableClock) -> AsyncIterator[RedisStore]:
    """A process of the former version, connected to the store of layout 1."""
    store = open_redis(url, clock=clock)
    with former_version():
        await store.open()
    try:
        yield store
    finally:
        await store.close()


async def check_refused(store: RedisStore, client: redis.Redis) -> None:
    before = all_keys(client)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.add_runs([a_run()]),
        lambda: store.add_schedule(a_schedule()),
        lambda: store.claim(claim_request("node-8", capabilities=OFFERED)),
        lambda: store.heartbeat(NodeId("node-8"), LEASE, clock=NOW),
        lambda: store.join(a_node("node-8"), LEASE),
        store.counts,
    ]
    with former_version():
        # The only call that accepts another store refuses its layout.
        with pytest.raises(SchemaMismatch):
            await store.epoch()
        for call in calls:
            with pytest.raises(StoreLost) as caught:
                await call()
            assert caught.value.details["code"] == "store_lost"
    assert all_keys(client) == before


@pytest.mark.parametrize("founded", ["first", "forced"])
async def test_connected_process_of_the_former_layout_is_refused(
    url: str, client: redis.Redis, clock: SettableClock, founded: str
) -> None:
    client.hset("chimes:store", "founded", founded)
    async with connected_before(url, clock) as former:
        await former.join(a_node("node-8"), LEASE)
        with pytest.raises(SchemaMismatch, match="node-8"):
            await migrate(url, clock)
        await former.counts()
        # Stalled until its lease has ended.
        clock.advance(2 * LEASE)
        await migrate(url, clock)
        await check_refused(former, client)


async def test_marker_files_stay_valid(
    url: str, client: redis.Redis, clock: SettableClock, tmp_path: Path
) -> None:
    marker = tmp_path / "stores.json"
    former = client.hgetall("chimes:store")
    marker.write_text(json.dumps({parse_address(url).shown: former["id"]}))
    before = marker.read_text()
    await migrate(url, clock)
    for _ in range(2):
        async with opened(url, clock, marker=marker) as store:
            assert (await store.epoch()).history != former["id"]
        assert marker.read_text() == before
    # A marker file that was written after the conversion is the same.
    async with opened(url, clock, marker=tmp_path / "other.json"):
        pass
    assert json.loads((tmp_path / "other.json").read_text()) == json.loads(before)
    anew = await open_redis(url, clock=clock, marker=tmp_path / "other.json").init()
    assert list(json.loads((tmp_path / "other.json").read_text()).values()) == [anew]
    async with opened(url, clock, marker=marker):
        pass
    assert list(json.loads(marker.read_text()).values()) == [anew]


async def test_empty_server_needs_no_conversion(url: str, clock: SettableClock) -> None:
    assert await migrate(url, clock) == (None, "2")


async def test_corrupt_records_of_the_former_layout_stay_corrupt(
    url: str, client: redis.Redis, clock: SettableClock
) -> None:
    bad = next(name for name, plain in recorded("run").items() if plain["status"] == "queued")
    broken = next(iter(recorded("schedule")))
    client.hset(f"chimes:run:{bad}", "body", "junk")
    client.hset(f"chimes:schedule:{broken}", "body", "junk")
    client.delete(f"chimes:run:{next(iter(recorded('run').keys() - {bad}))}")
    await migrate(url, clock)
    async with opened(url, clock) as store:
        run, schedule = await store.get_run(RunId(bad)), await store.get_schedule(broken)  # type: ignore[arg-type]
        assert run is not None
        assert "cannot be read" in run.error
        assert isinstance(schedule, Schedule)
        assert "cannot be read" in schedule.last_error
        await finish_everything(store, clock)
        assert bad in {each.id for each in (await store.list_runs(RunQuery(limit=None))).items}


MIGRATE = """
import asyncio, sys
from datetime import datetime
from chimes.store.redis import migration, open_redis
from chimes.testing import SettableClock
migration.BATCH = 10
clock = SettableClock(datetime.fromisoformat(sys.argv[2]))
asyncio.run(open_redis(sys.argv[1], clock=clock).migrate())
"""


@pytest.mark.parametrize("step", [2, 3, 5, 6])
async def test_killed_conversion_continues(
    url: str, client: redis.Redis, clock: SettableClock, step: int
) -> None:
    former = client.hget("chimes:store", "id")
    async with connected_before(url, clock) as connected:
        killed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", MIGRATE, url, clock.now().isoformat()],
            env={
                **os.environ,
                "CHIMES_TEST": "1",
                "CHIMES_FAILPOINTS": f"migrate.step@{step}:kill",
            },
            cwd=REPOSITORY,
            timeout=60,
            check=False,
        )
        assert killed.returncode == -9
        with pytest.raises(SchemaMismatch, match="chimes store migrate"):
            await open_redis(url, clock=clock).open()
        await check_refused(connected, client)
        begun = client.hgetall("chimes:store")
        assert begun["layout"] == "1-2"
        assert begun["origin"] == former != begun["id"]
        assert await migrate(url, clock) == ("1-2", "2")
        await check_refused(connected, client)
    assert client.hgetall("chimes:store") == begun | {"layout": "2"}
    async with opened(url, clock) as store:
        await check(store)


async def test_conversion_reports_its_progress(
    url: str, client: redis.Redis, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "BATCH", 20)
    seen: list[tuple[str, int, int]] = []
    await open_redis(url, clock=clock).migrate(lambda *step: seen.append(step))
    schedules, runs = len(recorded("schedule")), len(recorded("run"))
    assert seen[0] == ("schedules", schedules, schedules)
    assert seen[1:] == [("runs", min(at, runs), runs) for at in range(20, runs + 20, 20)]


async def test_converted_schedules_fire_without_the_former_key(
    url: str, client: redis.Redis, clock: SettableClock
) -> None:
    """Versions before stored the concurrency key of a schedule without its owner."""
    shared = next(
        name
        for name, plain in recorded("schedule").items()
        if plain["policy"].get("concurrency_key") == "shared"
    )
    client.hset(f"chimes:schedule:{shared}", "key", "shared")
    await migrate(url, clock)
    assert client.hget(f"chimes:cursor:{shared}", "key") == "system:default/shared"
    async with opened(url, clock) as store:
        await store.join(a_node("node-9"), LEASE)
        await store.add_runs([a_run()])
        assert (await store.fire_due(plan, limit=100)).others
