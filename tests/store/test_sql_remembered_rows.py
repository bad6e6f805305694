"""What a process remembers of rows is never older than what another process has committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, apply_edit, delete_schedule, pause_schedule
from chimes.model.target import HttpTarget, TaskTarget
from chimes.store.port import ClaimRequest
from chimes.store.sql import SqlStore, open_mariadb, open_postgres
from chimes.store.sql.database.base import MOST_CHARACTERS, Memory, Tx
from chimes.store.sql.runs import add_runs
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import (
    MINUTE,
    NOW,
    TARGET,
    a_completion,
    a_node,
    a_run,
    claim_request,
    due_schedule,
)
from tests.store.remembered import forget
from tests.store.server_rig import SERVERS

TASK_CLAIM = ClaimRequest(
    node_id=claim_request().node_id, capabilities=frozenset({"task:work"}), free=10
)
DAY = timedelta(days=1)


class Site:
    """Two processes with one clock."""

    def __init__(self, one: SqlStore, other: SqlStore, clock: SettableClock) -> None:
        self.one, self.other, self.clock = one, other, clock


@pytest.fixture(params=SERVERS)
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    on_postgres = request.param == "postgresql"
    url = request.getfixturevalue("postgres_url" if on_postgres else "mariadb_url")
    clock = SettableClock(NOW)
    async with AsyncExitStack() as stack:
        stores: list[SqlStore] = []
        for _ in range(2):
            store = (open_postgres if on_postgres else open_mariadb)(url, clock=clock)
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        await stores[0].join(a_node("node-1"), timedelta(days=1000))
        yield Site(*stores, clock)


async def fired(store: SqlStore) -> list[Run]:
    return list((await store.fire_due(plan, limit=10)).others)


async def added(site: Site) -> Schedule:
    """A minutely schedule that both processes have fired."""
    schedule = await site.one.add_schedule(due_schedule(trigger=Every("1m", anchor=NOW)))
    for store in (site.one, site.other):
        assert [run.target for run in await fired(store)] == [TARGET]
        site.clock.advance(MINUTE)
    return schedule


async def test_an_edit_of_another_process_is_fired(site: Site) -> None:
    schedule = await added(site)
    new = HttpTarget(url="http://127.0.0.1:9/new")
    edited = await site.one.change_schedule(
        schedule.id, lambda now_is, at: apply_edit(now_is, replace(now_is, target=new), at, "me")
    )
    (run,) = await fired(site.other)
    assert (run.target, run.schedule_version) == (new, edited.version)
    page = await site.one.list_runs(RunQuery(descending=False))
    assert [each.target for each in page.items] == [TARGET, TARGET, new]


async def test_an_edit_that_keeps_the_version_is_fired(site: Site) -> None:
    """An import writes a schedule with the version that it had elsewhere."""
    schedule = await added(site)
    new = HttpTarget(url="http://127.0.0.1:9/imported")
    await site.one.change_schedule(schedule.id, lambda now_is, at: replace(now_is, target=new))
    (run,) = await fired(site.other)
    assert (run.target, run.schedule_version) == (new, schedule.version)


@pytest.mark.parametrize("change", [pause_schedule, delete_schedule])
async def test_a_schedule_that_another_process_stopped_does_not_fire(
    site: Site, change: object
) -> None:
    schedule = await added(site)
    assert callable(change)
    await site.one.change_schedule(schedule.id, lambda now_is, at: change(now_is, at, "me"))
    assert await fired(site.other) == []


async def test_a_definition_that_was_rolled_back_is_stored_again(site: Site) -> None:
    first, second = (a_run(target=TaskTarget(name="work", args={"n": n})) for n in range(2))

    def fail(tx: Tx) -> None:
        add_runs(tx, [first], None)
        raise ValueError("rolled back")

    with pytest.raises(ValueError, match="rolled back"):
        await site.one._database.write(fail)
    await site.one.add_runs([second])
    assert await site.one.get_run(first.id) is None
    assert await site.other.get_run(second.id) == second


async def pruned(site: Site, retention: timedelta) -> None:
    before = site.clock.now() - retention
    await site.one.prune_runs(before=before, limit=100)
    await site.one.prune_unused(before=before, limit=100)


async def test_a_definition_in_use_survives_the_retention(site: Site) -> None:
    """One process remembers the definition of a task while the other one deletes old runs."""

    def task(n: int) -> Run:
        now = site.clock.now()
        times = {"created_at": now, "planned_at": now, "available_at": now}
        return a_run(target=TaskTarget(name="work", args={"n": n}), **times)

    for day in range(12):
        new = task(day)
        await site.other.add_runs([new])
        assert await site.one.get_run(new.id) == new
        (claimed,) = await site.one.claim(TASK_CLAIM)
        assert claimed.target == new.target
        await site.one.finish([a_completion(claimed, site.clock.now())])
        site.clock.advance(DAY)
        await pruned(site, 3 * DAY)
    await forget(site.one)
    left = (await site.one.list_runs(RunQuery())).items
    assert [(run.status, run.target.kind) for run in left] == [(RunStatus.SUCCEEDED, "task")] * 3


async def test_unused_definitions_are_deleted_with_their_runs(site: Site) -> None:
    old = a_run(target=TaskTarget(name="work", args={}))
    schedule = await added(site)
    await site.one.add_runs([old])
    for run in (
        *await site.one.claim(TASK_CLAIM),
        *await site.one.claim(claim_request()),
        *await site.one.claim(claim_request()),
    ):
        await site.one.finish([a_completion(run, site.clock.now())])
    await site.one.change_schedule(schedule.id, lambda now_is, at: pause_schedule(now_is, at, "me"))
    site.clock.advance(30 * DAY)
    await pruned(site, 5 * DAY)
    count = "SELECT count(*) FROM definitions"
    left = await site.one._database.read(
        lambda tx: tx.connection.exec_driver_sql(count).scalar_one()
    )
    # That of the current version of the schedule.
    assert left == 1
    again = a_run(target=TaskTarget(name="work", args={"again": True}))
    await site.one.add_runs([again])
    assert await site.other.get_run(again.id) == again


def test_memory_is_limited_by_entries_and_characters() -> None:
    memory: Memory[int, str] = Memory(3)
    for number in range(4):
        memory.put(number, "x")
    assert [memory.get(number) for number in range(4)] == [None, None, None, "x"]
    memory.put(5, "large", MOST_CHARACTERS - 1)
    assert memory.get(3) == "x"
    memory.put(6, "y", 2)
    assert [memory.get(number) for number in (3, 5, 6)] == [None, None, "y"]
