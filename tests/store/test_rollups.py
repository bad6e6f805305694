"""Rollups of the SQL stores: runs that are committed late, withdrawn, or deleted by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from chimes.model.ids import RunId
from chimes.model.insights import Window
from chimes.model.run import RunStatus
from chimes.store.sql import SqlStore, open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.store.sql.joined_transaction import add_run_in
from chimes.testing import SettableClock
from tests.builders import HOUR, NOW, SECOND, a_completion, a_node, a_run, claim_request
from tests.ended_runs import ended

WINDOW = Window.last(HOUR, NOW)
OK, QUEUED, RUNNING = RunStatus.SUCCEEDED, RunStatus.QUEUED, RunStatus.RUNNING


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def store(tmp_path: Path, clock: SettableClock) -> AsyncIterator[SqlStore]:
    store = open_sqlite(tmp_path / "chimes.db", clock=clock)
    await store.open()
    await store.join(a_node(), 24 * HOUR)
    yield store
    await store.close()


async def execute(store: SqlStore, statement: str) -> None:
    await store._database.write(lambda tx: tx.run(text(statement)))


async def number_of(store: SqlStore, table: str) -> int:
    def work(tx: Tx) -> int:
        return int(tx.rows(text(f"SELECT count(*) AS number FROM {table}"))[0].number)

    return await store._database.read(work)


async def roll_up_all(store: SqlStore, clock: SettableClock) -> None:
    clock.advance(3600)
    while await store.roll_up(limit=2):
        pass


async def counted(store: SqlStore) -> dict[RunStatus, int]:
    (tally,) = await store.count_runs(WINDOW)
    return dict(tally.statuses)


async def test_run_that_is_committed_late_is_counted(tmp_path: Path, clock: SettableClock) -> None:
    """Rollups pass the time of its creation while its transaction is open."""
    path = tmp_path / "chimes.db"
    store = open_sqlite(path, clock=clock)
    await store.open()
    await _commit_late(store, clock, f"sqlite:///{path}")
    await store.close()


async def _commit_late(store: SqlStore, clock: SettableClock, url: str) -> None:
    """On SQLite no other transaction writes meanwhile, so only the mark moves afterwards."""
    await store.load([ended(NOW - SECOND), ended(NOW + SECOND)])
    engine = create_engine(url)
    with engine.begin() as connection:
        run = add_run_in(connection, store.dialect, clock, lambda now: a_run(created_at=now))
    engine.dispose()
    await _check_late(store, clock, run.id)


async def _check_late(store: SqlStore, clock: SettableClock, run_id: RunId) -> None:
    assert await counted(store) == {OK: 2, QUEUED: 1}
    await roll_up_all(store, clock)
    assert await counted(store) == {OK: 2, QUEUED: 1}
    await store.join(a_node(), 24 * HOUR)
    (claimed,) = await store.claim(claim_request())
    assert claimed.id == run_id
    assert await counted(store) == {OK: 2, RUNNING: 1}
    await store.finish([a_completion(claimed, clock.now())])
    assert await counted(store) == {OK: 3}
    await roll_up_all(store, clock)
    assert await counted(store) == {OK: 3}
    assert await number_of(store, "open_runs") == 0
    assert await store.forget_runs([run_id]) == 1
    assert await counted(store) == {OK: 2}


@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
async def test_run_that_is_committed_late_on_a_server_is_counted(
    request: pytest.FixtureRequest, clock: SettableClock, name: str
) -> None:
    """The rollups pass the run while its transaction is open."""
    on_postgres = name == "postgresql"
    url = request.getfixturevalue("postgres_url" if on_postgres else "mariadb_url")
    store = (open_postgres if on_postgres else open_mariadb)(url, clock=clock)
    await store.open()
    await store.load([ended(NOW - SECOND), ended(NOW + SECOND)])
    driver = "postgresql+asyncpg" if on_postgres else "mariadb+asyncmy"
    engine = create_async_engine(f"{driver}://{url.partition('://')[2]}")
    async with engine.begin() as connection:
        run = await connection.run_sync(
            lambda sync: add_run_in(sync, store.dialect, clock, lambda now: a_run(created_at=now))
        )
        await roll_up_all(store, clock)
        assert await counted(store) == {OK: 2}
    await engine.dispose()
    await _check_late(store, clock, run.id)
    await store.close()


async def test_run_that_is_withdrawn_and_made_again_is_counted_once(
    store: SqlStore, clock: SettableClock
) -> None:
    """A slot whose run was withdrawn fires again under the same id."""
    run = a_run(id=RunId("again"))
    await store.add_runs([run])
    await roll_up_all(store, clock)
    assert await number_of(store, "open_runs") == 1
    await execute(store, "DELETE FROM queue")
    await execute(store, "DELETE FROM runs")
    assert await counted(store) == {}
    await store.add_runs([a_run(id=run.id, created_at=clock.now())])
    assert await counted(store) == {QUEUED: 1}
    (claimed,) = await store.claim(claim_request())
    await store.finish([a_completion(claimed, clock.now())])
    for _ in range(3):
        assert await counted(store) == {OK: 1}
        await roll_up_all(store, clock)
    assert await number_of(store, "open_runs") == 0


async def test_open_runs_that_were_deleted_are_forgotten(
    store: SqlStore, clock: SettableClock
) -> None:
    await store.add_runs([a_run()])
    await roll_up_all(store, clock)
    (claimed,) = await store.claim(claim_request())
    await store.finish([a_completion(claimed, clock.now())])
    assert await number_of(store, "open_runs") == 1
    assert await store.forget_runs([claimed.id]) == 1
    assert await number_of(store, "open_runs") == 0


async def test_open_runs_that_were_deleted_by_hand_are_forgotten(
    store: SqlStore, clock: SettableClock
) -> None:
    await store.add_runs([a_run()])
    await roll_up_all(store, clock)
    await execute(store, "DELETE FROM queue")
    await execute(store, "DELETE FROM runs")
    await roll_up_all(store, clock)
    assert await number_of(store, "open_runs") == 0
    assert await counted(store) == {}


async def test_missing_mark_is_written_again(store: SqlStore, clock: SettableClock) -> None:
    await store.load([ended(NOW), ended(NOW - SECOND)])
    await execute(store, "DELETE FROM store_facts WHERE name = 'counted_until'")
    assert await counted(store) == {OK: 2}
    await roll_up_all(store, clock)
    assert await counted(store) == {OK: 2}
    assert await number_of(store, "store_facts WHERE name = 'counted_until' AND value > 0") == 1
