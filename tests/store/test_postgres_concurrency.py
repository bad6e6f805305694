"""Concurrency of many nodes on PostgreSQL: every row has one owner, nothing waits for ever or is
lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from chimes.errors import QuotaExceeded
from chimes.model import replace
from chimes.model.access import Quota
from chimes.model.audit import verify_chain
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import reschedule_next
from chimes.store.port import ClaimRequest, FireResult
from chimes.store.sql import SqlStore, open_postgres
from chimes.store.sql.rows.values import schedule_number
from chimes.triggers import Every
from tests.builders import (
    ALICE,
    LEASE,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    an_entry,
)
from tests.store.key_races import (
    AUDIT_HEAD,
    KINDS_OF_KEY,
    check_blocked_run_is_unblocked_by_a_concurrent_completion,
    check_concurrently_added_runs_are_not_both_admitted,
)


class Nodes:
    """Stores like those of several processes: each has its own connections."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stack = AsyncExitStack()

    async def store(self) -> SqlStore:
        store = open_postgres(self._url)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def stores(self, count: int) -> list[SqlStore]:
        return [await self.store() for _ in range(count)]

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[Nodes]:
    nodes = Nodes(postgres_url)
    yield nodes
    await nodes.close()


async def due_now(store: SqlStore, **given: Any) -> ScheduleId:
    now = await store.now()
    trigger = Every("1m", anchor=now)
    schedule = a_schedule(trigger=trigger, next_slot=now, next_run_at=now, **given)
    await store.add_schedule(schedule)
    return schedule.id


def runs_of(fired: FireResult) -> tuple[Run, ...]:
    return fired.claimed + fired.others


@pytest.mark.parametrize("workers", [5, 10])
async def test_one_of_many_workers_gets_a_due_schedule(nodes: Nodes, workers: int) -> None:
    stores = await nodes.stores(workers)
    schedule_id = await due_now(stores[0])
    answers = await asyncio.gather(*(s.fire_due(plan, limit=10) for s in stores))
    got = [answer for answer in answers if runs_of(answer)]
    assert len(got) == 1
    assert len(runs_of(got[0])) == 1
    page = await stores[0].list_runs(RunQuery(schedule_id=schedule_id))
    assert len(page.items) == 1


# The row lock is held during the transaction.
async def test_a_locked_schedule_is_skipped_and_fired_later(
    nodes: Nodes, postgres_url: str
) -> None:
    store = await nodes.store()
    held = await due_now(store)
    free = await due_now(store)
    other = await asyncpg.connect(postgres_url)
    try:
        transaction = other.transaction()
        await transaction.start()
        await lock_schedule(other, held)
        first = await store.fire_due(plan, limit=10)
        assert [run.schedule_id for run in runs_of(first)] == [free]
        second = await store.fire_due(plan, limit=10)
        assert (runs_of(second), second.more) == ((), True)
        await transaction.rollback()
    finally:
        await other.close()
    third = await store.fire_due(plan, limit=10)
    assert [run.schedule_id for run in runs_of(third)] == [held]


# Whichever node fires it, the slot has the same run.
async def test_a_slot_that_is_fired_again_keeps_its_run(nodes: Nodes) -> None:
    first, second = await nodes.stores(2)
    schedule_id = await due_now(first)
    (run,) = runs_of(await first.fire_due(plan, limit=1))
    back = await first.get_schedule(schedule_id)
    assert back is not None
    await second.change_schedule(
        back.id, lambda s, now: replace(s, next_slot=run.slot, next_run_at=run.slot)
    )
    again = await second.fire_due(plan, limit=1)
    assert runs_of(again) == ()
    moved = await second.get_schedule(back.id)
    assert moved is not None
    assert moved.next_slot == back.next_slot
    assert (await second.get_run(run.id)) == run


async def test_every_slot_has_one_run_under_concurrent_firing(nodes: Nodes) -> None:
    stores = await nodes.stores(4)
    names = [await due_now(stores[0]) for _ in range(60)]

    async def drain(store: SqlStore) -> int:
        made = 0
        while True:
            fired = await store.fire_due(plan, limit=7)
            made += len(runs_of(fired))
            if not fired.more:
                return made

    made = await asyncio.gather(*(drain(store) for store in stores))
    assert sum(made) == len(names)
    page = await stores[0].list_runs(RunQuery(limit=None))
    assert Counter(run.schedule_id for run in page.items) == dict.fromkeys(names, 1)


async def test_a_run_is_claimed_by_one_node(nodes: Nodes) -> None:
    stores = await nodes.stores(4)
    now = await stores[0].now()
    for number, store in enumerate(stores):
        await store.join(a_node(f"n{number}"), LEASE)
    await stores[0].add_runs(
        [replace(a_run(), created_at=now, planned_at=now, available_at=now) for _ in range(60)]
    )

    async def take(number: int) -> list[RunId]:
        offer = ClaimRequest(node_id=NodeId(f"n{number}"), capabilities=frozenset({"http"}), free=5)
        got: list[RunId] = []
        while claimed := await stores[number].claim(offer):
            got.extend(run.id for run in claimed)
        return got

    taken = await asyncio.gather(*(take(number) for number in range(4)))
    everything = [run_id for each in taken for run_id in each]
    assert len(everything) == len(set(everything)) == 60


class KeyWorkload:
    """Concurrently does everything that adds or ends runs of one concurrency key."""

    def __init__(
        self, stores: list[SqlStore], key: str | None, schedules: list[ScheduleId]
    ) -> None:
        self._stores = stores
        self._key = key
        self._schedules = schedules
        self._random = random.Random(7)

    async def work(self, number: int, seconds: float) -> None:
        store = self._stores[number % len(self._stores)]
        node = NodeId(f"node-{number}")
        await store.join(a_node(node), timedelta(minutes=5))
        offer = ClaimRequest(node_id=node, capabilities=frozenset({"http"}), free=2)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            await self._act(store, offer)
        await store.leave(node)

    async def _act(self, store: SqlStore, offer: ClaimRequest) -> None:
        name = self._random.choice(self._schedules)
        now = await store.now()
        match self._random.randrange(6):
            case 0:
                await store.change_schedule(
                    name,
                    lambda s, at: reschedule_next(s, at, at, "me"),
                )
                await store.fire_due(plan, limit=5, request=offer)
            case 1:
                new = replace(
                    a_run(schedule_id=name, concurrency_key=self._key or f"schedule:{name}"),
                    created_at=now,
                    planned_at=now,
                    available_at=now,
                )
                await store.add_runs([new])
            case 2:
                page = await store.list_runs(RunQuery(statuses=(RunStatus.QUEUED,), limit=5))
                for run in page.items[:1]:
                    await store.cancel_run(run.id, "because")
            case 3:
                claimed = await store.claim(offer)
                await store.release([(run.id, run.fence) for run in claimed])
            case _:
                claimed = await store.claim(offer)
                await store.finish([a_completion(run, now) for run in claimed])


@asynccontextmanager
async def audit_held(url: str) -> AsyncIterator[None]:
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(AUDIT_HEAD)
            yield
    finally:
        await other.close()


@pytest.mark.parametrize("kind", KINDS_OF_KEY)
async def test_blocked_run_is_unblocked_by_a_concurrent_completion(
    nodes: Nodes, postgres_url: str, kind: str
) -> None:
    await check_blocked_run_is_unblocked_by_a_concurrent_completion(
        *await nodes.stores(2), kind, audit_held(postgres_url)
    )


@pytest.mark.parametrize("kind", KINDS_OF_KEY)
async def test_two_runs_of_a_key_added_concurrently_are_not_both_admitted(
    nodes: Nodes, postgres_url: str, kind: str
) -> None:
    await check_concurrently_added_runs_are_not_both_admitted(
        *await nodes.stores(2), kind, audit_held(postgres_url)
    )


@pytest.mark.parametrize("key", [None, "shared"])
async def test_no_blocked_run_is_left_behind(nodes: Nodes, key: str | None) -> None:
    """All operations concurrently; the single races are tested above."""
    stores = await nodes.stores(3)
    policy = Policy(overlap=Overlap.QUEUE, max_concurrent_runs=1, concurrency_key=key)
    names = [await due_now(stores[0], policy=policy) for _ in range(2)]
    crowd = KeyWorkload(stores, key and f"system:default/{key}", names)
    await asyncio.gather(*(crowd.work(number, 2.5) for number in range(9)))
    await check_keys(stores[0])
    await complete_all(stores[0])


async def check_keys(store: SqlStore) -> None:
    """At most one run of a key is admitted, and if any is queued, then one is."""
    admitted: Counter[str | None] = Counter()
    until_another_session_waits: Counter[str | None] = Counter()
    page = await store.list_runs(
        RunQuery(statuses=(RunStatus.QUEUED, RunStatus.RUNNING), limit=None)
    )
    for run in page.items:
        (until_another_session_waits if run.blocked else admitted)[run.concurrency_key] += 1
    assert all(count == 1 for count in admitted.values()), admitted
    assert set(until_another_session_waits) <= set(admitted), (
        until_another_session_waits,
        admitted,
    )


async def complete_all(store: SqlStore) -> None:
    """Completes all queued runs."""
    node = NodeId("the-last")
    await store.join(a_node(node), timedelta(minutes=5))
    offer = ClaimRequest(node_id=node, capabilities=frozenset({"http"}), free=10)
    while claimed := await store.claim(offer):
        now = await store.now()
        await store.finish([a_completion(run, now) for run in claimed])
    left = await store.list_runs(
        RunQuery(statuses=(RunStatus.QUEUED, RunStatus.RUNNING), limit=None)
    )
    assert left.items == ()


async def test_concurrent_audit_appends_form_one_chain(nodes: Nodes) -> None:
    stores = await nodes.stores(4)

    async def append(number: int) -> None:
        for _ in range(10):
            await stores[number % 4].append_audit(an_entry(object_id=f"o{number}"))

    await asyncio.gather(*(append(number) for number in range(8)))
    entries = sorted(await stores[0].list_audit(AuditQuery(limit=1000)), key=lambda e: e.number)
    assert [entry.number for entry in entries] == list(range(1, 81))
    assert verify_chain(list(entries)) is None


async def test_a_quota_holds_under_concurrent_adds(nodes: Nodes) -> None:
    stores = await nodes.stores(4)

    async def add(number: int) -> bool:
        try:
            await stores[number % 4].add_schedule(a_schedule(owner=ALICE), quotas=[Quota(limit=3)])
        except QuotaExceeded:
            return False
        return True

    added = await asyncio.gather(*(add(number) for number in range(12)))
    assert sum(added) == 3


async def test_of_two_concurrent_first_requests_one_wins(nodes: Nodes) -> None:
    stores = await nodes.stores(4)
    answers = await asyncio.gather(
        *(s.remember_request("s", "k", "f", keep=timedelta(hours=1)) for s in stores * 3)
    )
    assert answers.count(None) == 1
    assert {answer.fingerprint for answer in answers if answer} == {"f"}


async def test_the_same_run_added_concurrently_is_stored_once(nodes: Nodes) -> None:
    stores = await nodes.stores(4)
    run = a_run()
    answers = await asyncio.gather(*(store.add_runs([run]) for store in stores * 3))
    assert answers == [(run,)] * 12


# Two transactions that deadlock.
async def test_a_transaction_is_retried_after_a_deadlock(nodes: Nodes, postgres_url: str) -> None:
    store = await nodes.store()
    schedule = await store.add_schedule(a_schedule())
    (run,) = await store.add_runs([a_run(schedule_id=schedule.id)])
    other = await asyncpg.connect(postgres_url)
    try:
        # The store locks cursors before the queue; this transaction locks them in reverse order.
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT 1 FROM queue WHERE run_id = $1 FOR UPDATE", run.id)
        canceling = asyncio.ensure_future(store.cancel_run(run.id, "because"))
        await until_another_session_waits(other)
        gave_way = False
        try:
            await lock_schedule(other, schedule.id)
        except asyncpg.DeadlockDetectedError:
            gave_way = True
        await transaction.rollback()
        after = await canceling
    finally:
        await other.close()
    assert after is not None
    assert after.status is RunStatus.CANCELED
    # PostgreSQL chooses the victim: the first whose deadlock timeout ends, usually the store.
    assert gave_way or store.counters()["conflicts"] >= 1


async def lock_schedule(connection: asyncpg.Connection, schedule_id: ScheduleId) -> None:
    """The cursor of a schedule is its lock."""
    key = schedule_number(schedule_id)
    assert await connection.fetch("SELECT 1 FROM cursors WHERE schedule = $1 FOR UPDATE", key)


async def until_another_session_waits(connection: asyncpg.Connection) -> None:
    """Waits until another session waits for a lock of this connection."""
    async with asyncio.timeout(60):
        while not await connection.fetchval(  # noqa: ASYNC110
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY"
            " (pg_blocking_pids(pid))"
        ):
            await asyncio.sleep(0.01)  # no signal announces a wait


# A run without side effects ends in one statement, which must not overlook that request.
async def test_a_cancellation_is_kept_that_is_requested_while_the_run_ends(
    nodes: Nodes, postgres_url: str
) -> None:
    store = await nodes.store()
    await store.join(a_node("n1"), timedelta(minutes=5))
    now = await store.now()
    await store.add_runs([a_run(planned_at=now, available_at=now) for _ in range(3)])
    offer = ClaimRequest(node_id=NodeId("n1"), capabilities=frozenset({"http"}), free=3)
    first, asked, fenced = await store.claim(offer)
    completions = [
        replace(a_completion(first, now), run=first),
        replace(a_completion(asked, now), run=asked),
        replace(a_completion(fenced, now), run=replace(fenced, fence=9), fence=9),
    ]
    connection = await asyncpg.connect(postgres_url)
    try:
        canceling = connection.transaction()
        await canceling.start()
        await connection.execute(
            "UPDATE claims SET cancel_requested = 1 WHERE run_id = $1", asked.id
        )
        finishing = asyncio.create_task(store.finish(completions))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        async with asyncio.timeout(30):
            while not await connection.fetchval(waiting):
                await connection.execute("SELECT pg_stat_clear_snapshot()")
        await canceling.commit()
    finally:
        await connection.close()
    result = await finishing
    assert [run.id for run in result.accepted] == [first.id, asked.id]
    assert [run.cancel_requested for run in result.accepted] == [False, True]
    assert result.refused == (fenced.id,)
    stored = [await store.get_run(run.id) for run in (first, asked)]
    assert stored == list(result.accepted)
    left = await store.get_run(fenced.id)
    assert left is not None
    assert left.status is RunStatus.RUNNING
