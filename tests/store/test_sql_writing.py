"""The writer of a SQLite store: group commit, and its behaviour on errors."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from pathlib import Path

import pytest

from chimes.errors import AlreadyExists, NotFound, StoreUnavailable
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.node import HeartbeatResult
from chimes.model.planning import plan
from chimes.model.run import Completion, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.sql import SqlStore, open_sqlite
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.sqlite import CHECKPOINT_ROWS
from chimes.store.sql.rows.values import Value, Values
from chimes.store.sql.tables import store_facts
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    NOW,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
    log_lines,
)
from tests.store.remembered import forget
from tests.targets.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chimes.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = open_sqlite(path, clock=SettableClock())
    await store.open()
    yield store
    await store.close()


class BusyWriter:
    """Keeps the writer busy until released, so that other work queues up behind it."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._entered = threading.Event()
        self._go = threading.Event()

    async def __aenter__(self) -> BusyWriter:
        self._task = asyncio.create_task(self._store._database.write(self._hold))
        await asyncio.to_thread(self._entered.wait, 10)
        return self

    def _hold(self, tx: Tx) -> None:
        self._entered.set()
        self._go.wait(60)

    async def __aexit__(self, *_: object) -> None:
        self._go.set()
        await self._task


async def until_submitted(store: SqlStore, count: int) -> None:
    """One turn of the loop is enough for every task to submit its work."""
    await asyncio.sleep(0)
    assert len(store._database._writer._queue) == count


async def ids(store: SqlStore) -> set[str]:
    page = await store.list_schedules(ScheduleQuery(limit=None))
    return {schedule.id for schedule in page.items}


async def test_writes_that_arrive_together_are_committed_together(store: SqlStore) -> None:
    commits: list[str] = []
    writer = store._database._writer
    writer._driver.set_trace_callback(commits.append)
    async with BusyWriter(store):
        adding = [
            asyncio.create_task(store.add_schedule(a_schedule(id=f"s{n}"))) for n in range(50)
        ]
        await until_submitted(store, 50)
    await asyncio.gather(*adding)
    writer._driver.set_trace_callback(None)
    assert commits.count("COMMIT") == 2
    assert len(await ids(store)) == 50


async def test_a_failing_job_rolls_back_only_itself(store: SqlStore) -> None:
    await store.add_schedule(a_schedule(id="taken"))

    def refuse(schedule: Schedule, now: datetime) -> Schedule:
        raise ValueError("not like that")

    async with BusyWriter(store):
        works = [
            store.add_schedule(a_schedule(id="first"), an_entry()),
            store.add_schedule(a_schedule(id="taken"), an_entry()),
            store.change_schedule(ScheduleId("taken"), refuse, an_entry()),
            store.change_schedule(ScheduleId("nobody"), refuse),
            store.add_schedule(a_schedule(id="last"), an_entry()),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        await until_submitted(store, len(works))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = [type(answer) for answer in answers]
    assert kinds == [Schedule, AlreadyExists, ValueError, NotFound, Schedule]
    assert await ids(store) == {"first", "taken", "last"}
    entries = await store.list_audit(AuditQuery())
    assert [entry.number for entry in entries] == [2, 1]


async def test_a_half_done_job_is_rolled_back(store: SqlStore) -> None:
    def runs(schedule: Schedule, now: datetime) -> list[object]:
        raise ValueError("too late")

    before = await store.add_schedule(a_schedule(id="kept"))
    with pytest.raises(ValueError, match="too late"):
        await store.change_schedule(before.id, lambda schedule, now: schedule, runs=runs)

    def work(tx: Tx) -> None:
        tx.connection.exec_driver_sql("DELETE FROM schedules")
        raise ValueError("after the delete")

    with pytest.raises(ValueError, match="after the delete"):
        await store._database.write(work)
    assert await store.get_schedule(before.id) == before


async def test_a_canceled_caller_changes_nothing(store: SqlStore) -> None:
    async with BusyWriter(store):
        leaving = asyncio.create_task(store.add_schedule(a_schedule(id="left")))
        staying = asyncio.create_task(store.add_schedule(a_schedule(id="stayed")))
        await until_submitted(store, 2)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    await staying
    assert await ids(store) == {"stayed"}


async def test_a_heartbeat_precedes_waiting_jobs(store: SqlStore) -> None:
    await store.join(a_node(), LEASE)
    order: list[str] = []
    async with BusyWriter(store):
        tasks = [
            asyncio.create_task(store._database.write(lambda tx: order.append("work"))),
            asyncio.create_task(
                store._database.write(lambda tx: order.append("beat"), urgent=True)
            ),
        ]
        await until_submitted(store, 2)
    await asyncio.gather(*tasks)
    assert order == ["beat", "work"]


async def test_a_thread_with_its_own_loop_may_send_heartbeats(store: SqlStore) -> None:
    """The heartbeat thread must not depend on the loop that executes the runs."""
    await store.join(a_node(), LEASE)
    beats: list[HeartbeatResult] = []

    def thread() -> None:
        async def heartbeat() -> None:
            beats.append(await store.heartbeat(NodeId("node-1"), LEASE, clock=NOW))

        asyncio.run(heartbeat())

    beating = threading.Thread(target=thread)
    beating.start()
    # Joined without giving the loop a turn: it may as well be blocked.
    beating.join(60)
    assert beats == [HeartbeatResult(alive=True, now=NOW)]


async def test_a_full_disk_is_reported_and_rolled_back(store: SqlStore) -> None:
    writer = store._database._writer
    pages = writer._driver.execute("PRAGMA page_count").fetchone()[0]
    writer._driver.execute(f"PRAGMA max_page_count = {pages + 20}")
    added: set[str] = set()

    async def fill() -> None:
        for number in range(1000):
            schedule = a_schedule(id=f"s{number}", name="x" * 2000)
            await store.add_schedule(schedule, an_entry())
            added.add(schedule.id)

    with pytest.raises(StoreUnavailable, match="database or disk is full"):
        await fill()
    assert added
    assert await ids(store) == added
    assert len(await store.list_audit(AuditQuery(limit=5000))) == len(added)
    assert writer._driver.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    writer._driver.execute(f"PRAGMA max_page_count = {pages + 10_000}")
    await store.add_schedule(a_schedule(id="room-again"))
    assert await ids(store) == added | {"room-again"}


async def test_operation_on_a_closed_store_is_an_error(store: SqlStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.add_schedule(a_schedule())
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.next_due()


async def test_closing_writes_submitted_jobs(path: Path) -> None:
    store = open_sqlite(path)
    await store.open()
    tasks = [asyncio.create_task(store.add_schedule(a_schedule(id=f"s{n}"))) for n in range(30)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*tasks)
    await store.open()
    assert len(await ids(store)) == 30
    await store.close()


async def test_corrupt_row_does_not_affect_others(store: SqlStore) -> None:
    await store.add_schedule(due_schedule(id="good"))
    await store.add_schedule(due_schedule(id="strange"))

    def corrupt(tx: Tx) -> None:
        tx.connection.exec_driver_sql(
            """UPDATE schedules SET target = '{"kind":"from the future"}' WHERE id = 'strange'"""
        )

    await store._database.write(corrupt)
    await forget(store)
    fired = await store.fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] == ["good"]
    again = await store.fire_due(plan, limit=10)
    assert again.others == ()

    def look(tx: Tx) -> tuple[object, ...]:
        statement = (
            "SELECT next_run_at, last_status, last_error FROM schedules"
            " JOIN cursors ON cursors.schedule = schedules.key"
            " JOIN schedule_stats ON schedule_stats.schedule = schedules.key WHERE id = 'strange'"
        )
        return tuple(tx.connection.exec_driver_sql(statement).one())

    next_run_at, last_status, last_error = await store._database.read(look)
    assert (next_run_at, last_status) == (None, "failed")
    assert "from the future" in str(last_error)


async def test_lone_surrogate_does_not_prevent_a_completion(
    store: SqlStore,
) -> None:
    await store.join(a_node(), LEASE)
    await store.add_runs([a_run(id=RunId("run"))])
    (run,) = await store.claim(claim_request())
    told = a_completion(run, NOW)
    completion = Completion(
        run_id=run.id,
        fence=run.fence,
        attempt=told.attempt,
        status=RunStatus.SUCCEEDED,
        result={"body": "half \ud83d"},
        error="half \ud83d",
        logs=log_lines("half \ud83d"),
    )
    finished = await store.finish([completion])
    assert finished.refused == ()
    kept = await store.get_run(run.id)
    assert kept is not None
    assert kept.error == "half ?"
    assert kept.result == {"body": "half ?"}


async def test_missing_rows_are_inserted_around_those_that_exist(store: SqlStore) -> None:
    """Also where one statement inserts many rows."""
    columns = ("name", "value")

    def insert(names: Iterable[int]) -> Callable[[Tx], list[Value]]:
        rows: list[Values] = [(f"fact {number}", number) for number in names]
        return lambda tx: list(
            tx.dialect.insert_missing(tx.connection, store_facts, columns, rows, unique="name")
        )

    def stored(tx: Tx) -> int:
        statement = "SELECT count(*) FROM store_facts WHERE name LIKE 'fact %'"
        return int(tx.connection.exec_driver_sql(statement).scalar_one())

    assert len(await store._database.write(insert(range(0, 200, 50)))) == 4
    added = await store._database.write(insert(range(150)))
    assert added == [f"fact {number}" for number in range(150) if number % 50]
    assert await store._database.write(insert(range(150))) == []
    assert await store._database.read(stored) == 151


async def test_the_log_is_copied_into_the_file_while_nothing_is_written(
    store: SqlStore, path: Path
) -> None:
    rows: list[Values] = [(f"fact {number}", number) for number in range(CHECKPOINT_ROWS)]
    columns = ("name", "value")
    await store._database.write(
        lambda tx: tx.dialect.insert_many(tx.connection, store_facts, columns, rows)
    )

    def copied() -> int:
        """The rows in the file itself: its log is not read."""
        statement = "SELECT count(*) FROM store_facts WHERE name LIKE 'fact %'"
        with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
            try:
                return int(file.execute(statement).fetchone()[0])
            except sqlite3.DatabaseError:  # nothing or only a part was copied
                return 0

    await until(lambda: copied() == CHECKPOINT_ROWS)
