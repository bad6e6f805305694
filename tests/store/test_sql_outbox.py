"""The outbox on SQL: written in the transaction that ends a run, also in one of the caller, and
without cost for runs without notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, update
from sqlalchemy.ext.asyncio import create_async_engine

from chimes.model.notification import DeliveryState
from chimes.model.policy import Misfire, Policy
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import Completion, Reason, Run, RunStatus
from chimes.sdk.transactions import run_on_asyncpg
from chimes.store.sql import SqlStore, open_postgres, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.store.sql.joined_transaction import complete_run_in
from chimes.store.sql.tables import deliveries, inbox
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import (
    HOUR,
    INBOX,
    MINUTE,
    NOW,
    a_completion,
    a_delivery,
    a_run,
    an_item,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import all_deliveries, running_run, running_slot

WITH_RECIPIENTS = Policy(delivery=(INBOX,))
EVERY_OTHER_HOUR = Every("2h", anchor=NOW - HOUR)


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = open_sqlite(tmp_path / "chimes.db", clock=SettableClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[SqlStore]:
    store = open_postgres(postgres_url, clock=SettableClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> SqlStore:
    found: SqlStore = request.getfixturevalue(request.param)
    return found


# --- the caller's transaction -------------------------------------------------------------------
def ending(store: SqlStore, run: Run) -> Callable[[Connection], Completion]:
    def make(now: datetime) -> Completion:
        return a_completion(run, now)

    return lambda connection: complete_run_in(
        connection, store.dialect, SettableClock(), run.id, run.fence, make
    )


async def test_a_run_completed_in_a_transaction_of_the_caller_is_notified(sqlite: SqlStore) -> None:
    run = await running_run(sqlite, a_run(policy=WITH_RECIPIENTS))
    location = (await sqlite.status()).location
    engine = create_engine(f"sqlite:///{location}")

    def end(*, commit: bool) -> None:
        with engine.connect() as connection:
            ending(sqlite, run)(connection)
            if commit:
                connection.commit()

    await asyncio.to_thread(end, commit=False)
    assert await all_deliveries(sqlite) == {}, "a rolled back transaction notifies nobody"
    await asyncio.to_thread(end, commit=True)
    (row,) = (await all_deliveries(sqlite)).values()
    assert (row.run_id, row.notify_on) == (run.id, NotifyOn.SUCCESS)
    # The worker's own completion is a repetition.
    await sqlite.finish([a_completion(run, NOW)])
    assert await all_deliveries(sqlite) == {row.id: row}
    engine.dispose()


@pytest.mark.parametrize("driver", ["sqlalchemy", "asyncpg"])
async def test_a_completion_in_a_transaction_wakes_the_senders(
    postgres: SqlStore, postgres_url: str, driver: str
) -> None:
    run = await running_run(postgres, a_run(policy=WITH_RECIPIENTS))
    seen = postgres.changes()
    if driver == "asyncpg":
        raw = await asyncpg.connect(postgres_url)
        async with raw.transaction():
            await run_on_asyncpg(raw, ending(postgres, run))
        await raw.close()
    else:
        engine = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg"))
        async with engine.begin() as connection:
            await connection.run_sync(ending(postgres, run))
        await engine.dispose()
    (row,) = (await all_deliveries(postgres)).values()
    assert (row.run_id, row.notify_on) == (run.id, NotifyOn.SUCCESS)
    async with asyncio.timeout(60):
        await postgres.wait_for_work(seen, None)


# --- no cost for other runs ---------------------------------------------------------------------
@contextmanager
def statements() -> Iterator[list[str]]:
    found: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", record)


async def count_statements_of_a_run(store: SqlStore, policy: Policy, number: int) -> int:
    """Counts the statements of firing and completing a run, and of missing a slot."""
    late = Policy(misfire=Misfire.SKIP, misfire_grace=MINUTE, delivery=policy.delivery)
    await store.add_schedule(due_schedule(NOW - HOUR, policy=late, trigger=EVERY_OTHER_HOUR))
    with statements() as found:
        _, run = await running_slot(store, policy=policy)
        await store.finish([a_completion(run, NOW)])
    touched = [each for each in found if "deliveries" in each]
    assert bool(touched) is bool(policy.delivery)
    assert len((await all_deliveries(store)).values()) == 2 * number
    return len(found)


async def test_runs_without_notifications_have_no_outbox_cost(store: SqlStore) -> None:
    await count_statements_of_a_run(store, Policy(), 0)  # statements that are sent only once
    without = await count_statements_of_a_run(store, Policy(), 0)
    told = await count_statements_of_a_run(store, WITH_RECIPIENTS, 1)
    assert without < told


# --- corrupt rows -------------------------------------------------------------------------------
async def damage(store: SqlStore, table: Any, row_id: str, **values: object) -> None:
    def work(tx: Tx) -> None:
        tx.run(update(table).where(table.c.id == row_id).values(**values))

    await store._database.write(work)


@pytest.mark.parametrize(
    "values",
    [{"recipient": "{"}, {"recipient": '{"channel": "pigeon"}'}, {"occasion": "never"}],
)
async def test_a_corrupt_delivery_is_given_up_alone(
    sqlite: SqlStore, values: dict[str, object]
) -> None:
    bad, good = a_delivery(), a_delivery()
    await sqlite.load([bad, good])
    await damage(sqlite, deliveries, bad.id, **values)
    assert set(await all_deliveries(sqlite)) == {bad.id, good.id}
    claimed = await sqlite.claim_deliveries(Channel, limit=9, lease=MINUTE, overdue=MINUTE)
    assert [each.id for each in claimed] == [good.id]
    dead = (await all_deliveries(sqlite))[bad.id]
    assert (dead.state, dead.code) == (DeliveryState.DEAD, Reason.UNREADABLE)
    assert "cannot be read" in dead.error


async def test_an_item_without_readable_artifacts_is_shown(sqlite: SqlStore) -> None:
    item = await sqlite.add_inbox(an_item())
    await damage(sqlite, inbox, item.id, artifacts="[1]")
    shown = await sqlite.change_inbox(item.id, lambda before, now: before)
    assert shown == item


# A batch in which runs end as they are inserted, and others are claimed
async def test_one_pass_with_missed_and_fired_slots(store: SqlStore) -> None:
    late = Policy(misfire=Misfire.SKIP, misfire_grace=MINUTE, delivery=(INBOX,))
    for _ in range(2):
        await store.add_schedule(due_schedule(NOW - HOUR, policy=late, trigger=EVERY_OTHER_HOUR))
    schedule, run = await running_slot(store, policy=WITH_RECIPIENTS)
    rows = (await all_deliveries(store)).values()
    assert {row.notify_on for row in rows} == {NotifyOn.FAILURE}
    assert len(rows) == 2
    (ended,) = (await store.finish([a_completion(run, NOW)])).accepted
    assert ended.status is RunStatus.SUCCEEDED
    assert len(await all_deliveries(store)) == 3
    assert await store.claim(claim_request()) == ()
    assert (await store.get_schedule(schedule.id)) is not None
