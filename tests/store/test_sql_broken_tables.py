"""Tables of schedules that cannot be used: runs that are claimed continue to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from chimes.model.ids import NodeId
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from chimes.store.sql.store import SqlStore
from chimes.testing import SettableClock
from tests.builders import LEASE, NOW, a_completion, a_node, a_run, claim_request, due_schedule
from tests.store.remembered import forget
from tests.store_contract.stores import KINDS, Home

SQL = [kind for kind in KINDS if kind.name in ("sqlite", "postgresql", "mariadb")]
#: What a run needs only to update its schedule, and as a lock.
TABLES = ("schedules", "cursors", "schedule_stats")


@pytest.fixture(params=SQL, ids=lambda kind: kind.name)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    home = Home(request.param, tmp_path, SettableClock(NOW))
    opened = await home.open()
    assert isinstance(opened, SqlStore)
    await opened.join(a_node("node-1"), LEASE)
    yield opened
    await home.close()


async def rename(store: SqlStore, table: str, new: str) -> None:
    statement = text(f"ALTER TABLE {table} RENAME TO {new}")
    await store._database.write(lambda tx: tx.connection.execute(statement))


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("table", TABLES)
async def test_runs_are_claimed_and_completed_without_a_table(
    store: SqlStore, table: str, known: bool
) -> None:
    """Also by a process that has not seen their schedules before."""
    for _ in range(2):
        await store.add_schedule(due_schedule())
    assert len((await store.fire_due(plan, limit=10)).others) == 2
    await rename(store, table, "elsewhere")
    if not known:
        await forget(store)
    claimed = await store.claim(claim_request())
    assert len(claimed) == 2
    finished = await store.finish([a_completion(run, NOW) for run in claimed])
    assert [run.status for run in finished.accepted] == [RunStatus.SUCCEEDED] * 2
    with pytest.raises(Exception, match=table):
        await store.add_schedule(due_schedule())
    await rename(store, "elsewhere", table)
    await store.add_schedule(due_schedule())
    fired = await store.fire_due(plan, limit=10)
    assert (len(fired.others), fired.broken) == (1, ())
    for run in claimed:
        found = await store.get_run(run.id)
        assert found is not None
        assert found.status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("table", TABLES)
async def test_runs_of_a_lost_node_return_to_the_queue_without_a_table(
    store: SqlStore, table: str
) -> None:
    await store.add_schedule(due_schedule())
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    await rename(store, table, "elsewhere")
    await store.leave(NodeId("node-1"))
    await store.join(a_node("node-2"), LEASE)
    (again,) = await store.claim(claim_request("node-2"))
    assert (again.id, again.fence, again.holder) == (run.id, run.fence + 1, "node-2")
    await rename(store, "elsewhere", table)


@pytest.mark.parametrize("table", TABLES)
async def test_a_blocked_run_follows_without_a_table(store: SqlStore, table: str) -> None:
    """The rows of the queue contain the concurrency key."""
    schedule = await store.add_schedule(due_schedule())
    (first,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    second, waiting = await store.add_runs(
        [a_run(schedule_id=schedule.id, concurrency_key=first.concurrency_key) for _ in range(2)]
    )
    assert (second.blocked, waiting.blocked) == (True, True)
    await rename(store, table, "elsewhere")
    await store.finish([a_completion(first, NOW)])
    assert [run.id for run in await store.claim(claim_request())] == [second.id]
    await rename(store, "elsewhere", table)
