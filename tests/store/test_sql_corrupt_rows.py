"""Corrupt rows: the other rows are still listed, fired, claimed and completed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from chimes.errors import Conflict
from chimes.model import replace
from chimes.model.ids import NodeId, RunId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import delete_schedule
from chimes.model.target import SyncTarget, TaskTarget
from chimes.store.sql.database.base import Tx
from chimes.store.sql.store import SqlStore
from chimes.testing import SettableClock
from tests.builders import (
    CAPABILITIES,
    LEASE,
    NOW,
    SECOND,
    SYNC,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    a_sync_run,
    claim_request,
    due_schedule,
    with_definition,
)
from tests.store.remembered import forget
from tests.store_contract.stores import KINDS, Home

SQL = [kind for kind in KINDS if kind.name in ("sqlite", "postgresql", "mariadb")]


@pytest.fixture(params=SQL, ids=lambda kind: kind.name)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    home = Home(request.param, tmp_path, SettableClock(NOW))
    opened = await home.open()
    assert isinstance(opened, SqlStore)
    await opened.join(a_node("node-1"), LEASE)
    yield opened
    await home.close()


async def damage(store: SqlStore, table: str, row_id: str, **columns: str | None) -> None:
    """Writes columns of a row behind the back of the store. Other processes may not know what this
    one remembers of the row."""
    quote = "`" if store.dialect.name == "mariadb" else '"'
    changes = ", ".join(f"{quote}{name}{quote} = :{name}" for name in columns)
    condition = "id = :row_id"
    if table == "definitions":
        run = f"SELECT definition FROM runs WHERE {condition}"
        condition = f"{quote}key{quote} = ({run})"
    statement = text(f"UPDATE {table} SET {changes} WHERE {condition}")
    changed = await store._database.write(
        lambda tx: tx.run(statement, {"row_id": row_id, **columns})
    )
    assert changed == 1
    await forget(store)


def own_definition(run: Run) -> Run:
    """Runs of equal definitions share a row."""
    return with_definition(run, policy=replace(run.policy, max_retries=7))


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("definitions", name) for name in ("target", "policy", "owner_type")),
        *(("runs", name) for name in ("attempts", "result", "origin")),
    ],
)
async def test_a_corrupt_run_fails_and_the_others_are_claimed(
    store: SqlStore, table: str, column: str
) -> None:
    good, bad, waiting = a_run(), own_definition(a_run()), a_run()
    bad = replace(bad, concurrency_key="shared")
    waiting = replace(waiting, concurrency_key="shared")
    await store.add_runs([good, bad, waiting])
    assert (await get_run(store, waiting.id)).blocked
    await damage(store, table, bad.id, **{column: "junk"})
    assert [run.id for run in await store.claim(claim_request(free=10))] == [good.id]
    ended = await get_run(store, bad.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)
    assert column.removesuffix("_type") in ended.error
    assert [run.id for run in await store.claim(claim_request(free=10))] == [waiting.id]
    assert len((await store.list_runs(RunQuery())).items) == 3
    assert await active_rows(store, bad.id) == 0


async def test_a_corrupt_status_matters_only_after_the_end(store: SqlStore) -> None:
    """Queue and claims contain the state of an active run."""
    run, other = await store.add_runs([a_run(), a_run()])
    await damage(store, "runs", run.id, status="junk")
    assert await get_run(store, run.id) == run
    claimed = await store.claim(claim_request(free=10))
    assert {each.id for each in claimed} == {run.id, other.id}
    await store.finish([a_completion(each, NOW) for each in claimed])
    assert (await get_run(store, run.id)).status is RunStatus.SUCCEEDED
    await damage(store, "runs", run.id, status="junk")
    ended = await get_run(store, run.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)
    assert "status" in ended.error
    assert len((await store.list_runs(RunQuery())).items) == 2
    assert await store.claim(claim_request(free=10)) == ()


async def active_rows(store: SqlStore, run_id: RunId) -> int:
    def count(tx: Tx) -> int:
        statements = [
            text(f"SELECT count(*) FROM {name} WHERE run_id = :id") for name in ("queue", "claims")
        ]
        return sum(tx.rows(each, {"id": run_id})[0][0] for each in statements)

    return await store._database.read(count)


async def test_corrupt_arguments_fail_only_their_run(store: SqlStore) -> None:
    """Enqueued tasks share a definition; their arguments are stored with each run."""
    good, bad = (a_run(target=TaskTarget(name="work", args={"n": n})) for n in range(2))
    await store.add_runs([good, bad])
    await damage(store, "runs", bad.id, args="[1")
    (claimed,) = await store.claim(claim_request(free=10, capabilities=frozenset({"task:work"})))
    assert (claimed.id, claimed.target) == (good.id, good.target)
    ended = await get_run(store, bad.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)
    assert "args of this run cannot be read" in ended.error


async def test_a_run_without_its_definition_fails_alone(store: SqlStore) -> None:
    good, bad = a_run(), own_definition(a_run())
    await store.add_runs([good, bad])
    quote = "`" if store.dialect.name == "mariadb" else '"'
    gone = text(
        f"DELETE FROM definitions WHERE {quote}key{quote} ="
        " (SELECT definition FROM runs WHERE id = :run_id)"
    )
    await store._database.write(lambda tx: tx.run(gone, {"run_id": bad.id}))
    await forget(store)
    listed = {run.id: run for run in (await store.list_runs(RunQuery())).items}
    assert listed[good.id] == good
    assert "the definition of this run is missing" in listed[bad.id].error
    assert [run.id for run in await store.claim(claim_request(free=10))] == [good.id]
    ended = await get_run(store, bad.id)
    assert (ended.status, ended.reason) == (RunStatus.FAILED, Reason.UNREADABLE)


async def test_a_corrupt_definition_of_a_schedule_fails_its_runs_until_an_edit(
    store: SqlStore,
) -> None:
    """Each version of a schedule has a definition of its own."""
    schedule = await store.add_schedule(due_schedule())
    (run,) = (await store.fire_due(plan, limit=10)).others
    await damage(store, "definitions", run.id, target="junk")
    assert await store.claim(claim_request(free=10)) == ()
    assert (await get_run(store, run.id)).reason == Reason.UNREADABLE
    slot = NOW - SECOND
    await store.change_schedule(
        schedule.id,
        lambda now_is, at: replace(
            now_is, version=now_is.version + 1, next_slot=slot, next_run_at=slot
        ),
    )
    assert len((await store.fire_due(plan, limit=10)).others) == 1
    (again,) = await store.claim(claim_request(free=10))
    assert (again.slot, again.target) == (slot, schedule.target)


# The task is still listed among the tasks of its source.
@pytest.mark.parametrize("key", [SYNC.key, None])
async def test_a_corrupt_task_is_still_listed_for_its_source(
    store: SqlStore, key: str | None
) -> None:
    good, bad = a_sync_run(), replace(a_sync_run(), concurrency_key=key)
    await store.add_runs([bad])
    await damage(store, "definitions", bad.id, target='{"kind": "sync", "source": ')
    (listed,) = (await store.list_runs(RunQuery(requirement=SYNC.requirement))).items
    assert listed.target == (SYNC if key else SyncTarget(source="crm", collection="unreadable"))
    assert (listed.reason, listed.id) == (Reason.UNREADABLE, bad.id)
    if key is not None:
        assert await store.add_unless_active(good) == (listed, False)
    assert await store.claim(claim_request(capabilities=CAPABILITIES)) == ()
    assert (await get_run(store, bad.id)).status is RunStatus.FAILED
    assert await store.add_unless_active(good) == (good, True)


async def test_a_corrupt_sync_schedule_is_disabled_alone(store: SqlStore) -> None:
    good, bad = due_schedule(target=SYNC), due_schedule(target=SYNC)
    await store.add_schedule(good)
    await store.add_schedule(bad)
    await damage(store, "schedules", bad.id, target='{"kind": "sync"}')
    fired = await store.fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] == [good.id]
    aside = await store.get_schedule(bad.id)
    assert aside is not None
    assert (aside.next_run_at, aside.id) == (None, bad.id)


# It is reported like a schedule that cannot be planned.
@pytest.mark.parametrize("column", ["trigger", "target", "policy"])
async def test_a_corrupt_schedule_counts_as_broken_and_has_its_metrics(
    store: SqlStore, column: str
) -> None:
    good, bad = due_schedule(), due_schedule(name="bad one")
    await store.add_schedule(good)
    await store.add_schedule(bad)
    await damage(store, "schedules", bad.id, **{column: "junk"})
    fired = await store.fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] == [good.id]
    (broken,) = fired.broken
    assert (broken.id, broken.name, broken.next_run_at) == (bad.id, "bad one", None)
    assert broken.last_error
    asked = text("SELECT success, error_message FROM cb_schedule_metrics WHERE schedule_id = :id")
    (row,) = await store._database.read(lambda tx: tx.rows(asked, {"id": bad.id}))
    assert (bool(row.success), row.error_message) == (False, broken.last_error)


async def get_run(store: SqlStore, run_id: RunId) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    return run


@pytest.mark.parametrize("column", ["trigger", "target", "policy", "labels"])
async def test_a_corrupt_schedule_is_listed_and_can_be_deleted(
    store: SqlStore, column: str
) -> None:
    good, bad = a_schedule(), a_schedule(name="bad one")
    await store.add_schedule(good)
    await store.add_schedule(bad)
    await damage(store, "schedules", bad.id, **{column: "junk"})
    listed = {each.id: each for each in (await store.list_schedules(ScheduleQuery())).items}
    assert listed[good.id] == good
    assert listed[bad.id].name == "bad one"
    assert f"{column} of this schedule cannot be read" in listed[bad.id].last_error

    with pytest.raises(Conflict, match=f"replace the {column}"):
        await store.change_schedule(bad.id, lambda now_is, at: replace(now_is, name="renamed"))
    gone = await store.change_schedule(bad.id, lambda now_is, at: delete_schedule(now_is, at, "me"))
    assert gone.deleted_at is not None
    assert [each.id for each in (await store.list_schedules(ScheduleQuery())).items] == [good.id]


async def test_a_corrupt_schedule_can_be_repaired(store: SqlStore) -> None:
    schedule = a_schedule()
    await store.add_schedule(schedule)
    await damage(store, "schedules", schedule.id, policy="[]")
    mended = await store.change_schedule(
        schedule.id,
        lambda now_is, at: replace(now_is, policy=replace(schedule.policy, max_retries=7)),
    )
    assert (await store.get_schedule(schedule.id)) == mended
    assert mended.policy.max_retries == 7


async def test_a_corrupt_run_of_a_dead_node_is_rescued(store: SqlStore) -> None:
    await store.add_runs([good := a_run(), bad := own_definition(a_run())])
    assert len(await store.claim(claim_request(free=10))) == 2
    await damage(store, "definitions", bad.id, target="junk")
    await store.leave(NodeId("node-1"))
    await store.join(a_node("node-2"), LEASE)
    again = await store.claim(claim_request("node-2", free=10))
    assert [run.id for run in again] == [good.id]
    assert (await get_run(store, bad.id)).status is RunStatus.FAILED
