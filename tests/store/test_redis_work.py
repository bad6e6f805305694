"""Round trips per method, and conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import pytest
import redis

from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.audit import verify_chain
from chimes.model.ids import NodeId
from chimes.model.listing import AuditQuery, RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.planning import FireContext, FirePlan, plan
from chimes.model.run import Completion, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.store.redis import RedisStore, due_schedules
from chimes.store.redis import connection as connections
from chimes.store.redis.context import Context
from chimes.store.redis.rows import Revision, ScheduleRows
from chimes.store.redis.wire import Wire
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    LEASE,
    NOW,
    SECOND,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
    log_lines,
)
from tests.servers.kinds import REDIS
from tests.servers.redis_places import empty_redis_url
from tests.servers.server import start
from tests.store.redis_calls import Calls
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


def by_worker(run: Run) -> Completion:
    """As a worker reports it, with its copy of the run."""
    return replace(a_completion(run, NOW), run=run)


# --- round trips ------------------------------------------------------------------------------
async def test_batch_takes_as_many_round_trips_as_one_run(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(store, monkeypatch)
    await store.add_runs([a_run(concurrency_key=str(number)) for number in range(100)])
    assert calls.trips == 1
    held = await store.claim(claim_request(free=100))
    assert (len(held), calls.trips) == (100, 2)
    finished = await store.finish([by_worker(run) for run in held])
    assert (len(finished.accepted), calls.trips) == (100, 3)
    await store.load([due_schedule() for _ in range(50)])
    calls.reset()
    fired = await store.fire_due(plan, limit=100, request=claim_request(free=100))
    assert (len(fired.claimed), calls.trips) == (50, 2)
    await store.finish([by_worker(run) for run in fired.claimed])
    assert calls.trips == 3


async def test_completion_of_a_started_run_takes_one_round_trip(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add_runs([a_run()])
    (run,) = await store.claim(claim_request())
    assert await store.start(run.id, run.fence)
    calls = Calls(store, monkeypatch)
    (ended,) = (await store.finish([by_worker(run)])).accepted
    assert calls.trips == 1
    assert await store.get_run(run.id) == ended


async def test_completion_reads_runs_changed_by_other_nodes(store: RedisStore) -> None:
    """The copy of the worker is outdated."""
    async with opened(f"redis://{store._connections.address.shown.partition('://')[2]}") as other:
        await store.add_runs([a_run(), a_run()])
        one, two = await store.claim(claim_request())
        await other.cancel_run(one.id, "enough")
        await other.start(two.id, two.fence)
        finished = await store.finish([by_worker(run) for run in (one, two)])
        assert [run.cancel_requested for run in finished.accepted] == [True, False]
        for run in finished.accepted:
            assert await other.get_run(run.id) == run


async def test_completion_with_an_old_fence_is_refused(store: RedisStore) -> None:
    """Although the copy of the worker matches its completion."""
    await store.add_runs([a_run()])
    (first,) = await store.claim(claim_request())
    await store.release([(first.id, first.fence)])
    (second,) = await store.claim(claim_request())
    assert (await store.finish([by_worker(first)])).refused == (first.id,)
    # Twice in one call, and repeated after a lost answer: recorded once.
    twice = await store.finish([by_worker(second), by_worker(second)])
    assert [run.status for run in twice.accepted] == [RunStatus.SUCCEEDED] * 2
    again = await store.finish([by_worker(second)])
    assert again.accepted == (await store.get_run(second.id),)
    assert len(again.accepted[0].attempts) == 1


# --- lists ------------------------------------------------------------------------------------
RUNS = 400


@pytest.mark.parametrize(
    "query",
    [
        RunQuery(limit=5),
        RunQuery(limit=5, descending=False),
        RunQuery(limit=5, sort=RunSort.PLANNED_AT),
        RunQuery(limit=5, created_since=NOW + 390 * SECOND),
        RunQuery(limit=5, schedule_id=None, statuses=(RunStatus.FAILED,)),
        RunQuery(limit=5, statuses=(RunStatus.FAILED, RunStatus.RUNNING)),
        RunQuery(limit=5, concurrency_key="k7"),
        RunQuery(limit=5, concurrency_key="k7", statuses=(RunStatus.QUEUED,)),
        RunQuery(limit=5, holder=NodeId("node-1")),
        RunQuery(limit=5, after=(1_894_698_000_000_000 + 200_000_000, "run-x")),
    ],
    ids=str,
)
async def test_run_page_loads_only_its_records(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, query: RunQuery
) -> None:
    runs = [
        a_run(created_at=at, planned_at=at, available_at=at, concurrency_key=f"k{number % 40}")
        for number in range(RUNS)
        for at in [NOW + number * SECOND]
    ]
    failed = [
        replace(run, status=RunStatus.FAILED, finished_at=NOW) if number % 50 == 0 else run
        for number, run in enumerate(runs)
    ]
    await store.load(failed)
    calls = Calls(store, monkeypatch)
    page = await store.list_runs(query)
    assert calls.records <= 60
    assert calls.trips <= 4
    assert len(page.items) <= 5


@pytest.mark.parametrize(
    "query",
    [
        ScheduleQuery(limit=5, sort=sort, descending=down)
        for sort in ScheduleSort
        for down in (False, True)
    ]
    + [ScheduleQuery(limit=5, owner=BOB), ScheduleQuery(name="n7")],
    ids=str,
)
async def test_schedule_page_loads_only_its_records(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, query: ScheduleQuery
) -> None:
    await store.load(
        [
            a_schedule(
                name=f"n{number}",
                owner=BOB if number % 100 == 0 else ALICE,
                created_at=NOW + number * SECOND,
            )
            for number in range(RUNS)
        ]
    )
    calls = Calls(store, monkeypatch)
    page = await store.list_schedules(query)
    assert page.items
    assert calls.records <= 60


async def test_counting_loads_no_records(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.load([a_schedule() for _ in range(30)])
    calls = Calls(store, monkeypatch)
    await store.counts()
    assert await store.count_schedules(ScheduleQuery()) == 30
    assert (calls.trips, calls.records) == (2, 0)


async def test_export_batches_its_round_trips(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add_runs([a_run() for _ in range(300)])
    (held,) = await store.claim(claim_request(free=1))
    await store.append_logs(held.id, held.fence, log_lines("one", "two"))
    calls = Calls(store, monkeypatch)
    items = [item async for item in store.dump()]
    assert len(items) == 301
    # Three passes over cursors, ended and active runs, each with a few trips of its own.
    assert len(items) / calls.trips > 20


# --- firing -----------------------------------------------------------------------------------
async def test_schedule_of_a_node_that_died_while_firing_fires_later(
    url: str, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_schedules, "RESERVED_MICROS", 3_000_000)
    schedule = await store.add_schedule(due_schedule())

    def die(*_: object) -> FirePlan:
        raise KeyboardInterrupt

    async with opened(url, SettableClock()) as other:
        with pytest.raises(KeyboardInterrupt):
            await store.fire_due(die, limit=5)
        fired = await other.fire_due(plan, limit=5)
        assert fired.others == (), "the claiming node may still be firing"
        async with asyncio.timeout(60):
            while not fired.others:
                await asyncio.sleep(0.02)
                fired = await other.fire_due(plan, limit=5)
    assert [run.schedule_id for run in fired.others] == [schedule.id]
    assert await store.next_due() == NOW + 60 * SECOND


async def test_schedule_changed_while_firing_is_planned_again(
    store: RedisStore, client: redis.Redis
) -> None:
    changing, steady = (
        await store.add_schedule(due_schedule()),
        await store.add_schedule(due_schedule()),
    )
    planned: list[str] = []

    def plan_and_interfere(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        if schedule.id == changing.id and not planned:
            client.hincrby(f"chimes:cursor:{changing.id}", "rev", 1)
        planned.append(schedule.id)
        return plan(schedule, context, now)

    fired = await store.fire_due(plan_and_interfere, limit=5)
    assert sorted(planned) == sorted([changing.id, steady.id, changing.id])
    assert {run.schedule_id for run in fired.others} == {changing.id, steady.id}
    assert len(fired.others) == 2


# --- silent server ----------------------------------------------------------------------------
async def test_silent_server_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.3)
    with start(REDIS) as server:
        async with opened(server.url) as store:
            run = a_run()
            server.pause()
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(StoreUnavailable) as caught:
                        await store.add_runs([run])
                    with pytest.raises(StoreUnavailable, match="cannot be used now"):
                        await store.counts()
            finally:
                server.resume()
            assert caught.value.details["code"] == "commit_unknown"
            # A repeated call stores the run once.
            assert [each.id for each in await store.add_runs([run])] == [run.id]
            assert (await store.counts()).runs == {RunStatus.QUEUED: 1}
            assert store.counters()["ambiguous"] == 1


# --- concurrency ------------------------------------------------------------------------------
async def test_many_concurrent_changes_all_succeed(url: str, store: RedisStore) -> None:
    """Two nodes change the same schedules, each change with an audit entry."""
    schedules = [await store.add_schedule(a_schedule()) for _ in range(5)]
    async with opened(url, SettableClock()) as other:
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(
                    each.change_schedule(
                        schedule.id,
                        lambda now_is, at: replace(now_is, priority=now_is.priority + 1),
                        an_entry(),
                    )
                    for schedule in schedules
                    for each in (store, other)
                    for _ in range(20)
                )
            )
        found = [await other.get_schedule(schedule.id) for schedule in schedules]
        assert [schedule.priority for schedule in found if schedule] == [40] * 5
        entries = await other.list_audit(AuditQuery(limit=500))
        assert [entry.number for entry in entries] == list(range(200, 0, -1))
        assert verify_chain(list(reversed(entries))) is None


# --- namespaces -------------------------------------------------------------------------------
@pytest.fixture
def decoded_schedules(monkeypatch: pytest.MonkeyPatch) -> list[Wire]:
    """Schedules decoded so far."""
    found: list[Wire] = []
    original = ScheduleRows.schedule

    def counted(self: ScheduleRows, record: Wire) -> tuple[Schedule, Revision]:
        found.append(record)
        return original(self, record)

    monkeypatch.setattr(ScheduleRows, "schedule", counted)
    return found


@pytest.mark.parametrize("given", [{}, {"owner": ALICE}, {"enabled": True}, {"limit": 2}])
async def test_listing_a_small_namespace_reads_no_other(
    store: RedisStore, decoded_schedules: list[Wire], given: dict[str, Any]
) -> None:
    """Each node reads the schedules of its file once per lease."""
    for number in range(120):
        await store.add_schedule(a_schedule(owner=(ALICE, BOB)[number % 2]))
    few = [await store.add_schedule(a_schedule(namespace="sync", owner=ALICE)) for _ in range(3)]
    query = ScheduleQuery(**({"namespace": "sync", "limit": None} | given))
    decoded_schedules.clear()
    page = await store.list_schedules(query)
    wanted = sorted(few, key=lambda each: each.id)[: query.limit]
    assert [each.id for each in page.items] == [each.id for each in wanted]
    assert await store.count_schedules(replace(query, limit=None)) == 3
    assert len(decoded_schedules) <= 6


async def test_listing_by_owner_reads_only_its_schedules(
    store: RedisStore, decoded_schedules: list[Wire]
) -> None:
    for _ in range(120):
        await store.add_schedule(a_schedule(namespace="large", owner=BOB))
    mine = await store.add_schedule(a_schedule(namespace="large", owner=ALICE))
    decoded_schedules.clear()
    page = await store.list_schedules(ScheduleQuery(namespace="large", owner=ALICE))
    assert [each.id for each in page.items] == [mine.id]
    assert len(decoded_schedules) == 1


async def test_namespace_index_follows_changes(store: RedisStore) -> None:
    moved, gone, kept = [await store.add_schedule(a_schedule(namespace="a")) for _ in range(3)]
    await store.change_schedule(moved.id, lambda was, at: replace(was, namespace="b"))
    await store.change_schedule(gone.id, lambda was, at: delete_schedule(was, at, "me"))

    async def held(namespace: str) -> list[str]:
        query = ScheduleQuery(namespace=namespace)
        found = [each.id for each in (await store.list_schedules(query)).items]
        assert await store.count_schedules(query) == len(found)
        return found

    assert await held("a") == [kept.id]
    assert await held("b") == [moved.id]
    assert await held("c") == []


# --- rescue -----------------------------------------------------------------------------------
async def test_rescue_leaves_a_run_that_a_live_node_claimed_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SettableClock()
    async with opened(url, clock) as first, opened(url, clock) as second:
        await first.join(a_node("gone"), LEASE)
        await first.add_runs([a_run(available_at=clock.now())])
        (lost,) = await first.claim(claim_request("gone"))
        clock.advance(LEASE + SECOND)
        await second.join(a_node("alive"), LEASE)
        read, raced = Context.read, False

        async def read_and_race(ctx: Context, name: str, *given: Any) -> Any:
            nonlocal raced
            answer = await read(ctx, name, *given)
            if name == "orphans" and not raced:
                raced = True
                assert len(await second.rescue(limit=10)) == 1
                assert len(await second.claim(claim_request("alive"))) == 1
            return answer

        monkeypatch.setattr(Context, "read", read_and_race)
        assert await first.rescue(limit=10) == ()
        run = await first.get_run(lost.id)
        assert run is not None
        assert (run.holder, run.fence) == ("alive", 2)
