"""Several processes on one SQLite file, and killed processes."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

from chimes.clock import SystemClock
from chimes.errors import StoreUnavailable
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.listing import RunQuery
from chimes.store.sql import SqlStore, open_sqlite
from chimes.store.sql.database import sqlite
from chimes.store.sql.migrations import HEAD
from tests.builders import LEASE, a_node, a_schedule, due_schedule
from tests.store.sqlite_process import Child, child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chimes.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = open_sqlite(path)
    await store.open()
    yield store
    await store.close()


async def wait_for_line(started: Child, line: str) -> None:
    await asyncio.to_thread(started.wait_for, line)


def five_seconds_ago() -> datetime:
    return SystemClock().now() - timedelta(seconds=5)


async def test_two_processes_fire_every_due_slot_once(store: SqlStore, path: Path) -> None:
    slot = five_seconds_ago()
    for _ in range(200):
        await store.add_schedule(due_schedule(slot))
    with child("fire", path, "node-a") as one, child("fire", path, "node-b") as two:
        for each in (one, two):
            await wait_for_line(each, "ready")
        for each in (one, two):
            each.go()
        lines = [await asyncio.to_thread(each.rest) for each in (one, two)]
    fired = [line.split()[1] for rest in lines for line in rest if line.startswith("fired")]
    assert [rest[-1] for rest in lines] == ["done", "done"]
    assert len(fired) == len(set(fired)) == 200
    page = await store.list_runs(RunQuery(limit=None))
    assert {run.id for run in page.items} == set(fired)
    assert {run.slot for run in page.items} == {slot}


async def test_a_killed_process_leaves_every_acknowledged_write(path: Path) -> None:
    acknowledged: set[str] = set()
    for life in range(3):
        with child("write", path, f"life-{life}") as writer:
            for _ in range(40):
                acknowledged.add((await asyncio.to_thread(writer.line)).removeprefix("added "))
            writer.process.send_signal(signal.SIGKILL)
            rest = await asyncio.to_thread(writer.rest)
            # The last line may have been cut.
            acknowledged.update(line.removeprefix("added ") for line in rest[:-1])
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        there = {row[0] for row in connection.execute("SELECT id FROM schedules")}
        connection.close()
        assert acknowledged <= there
    store = open_sqlite(path)
    await store.open()
    for schedule_id in acknowledged:
        assert await store.get_schedule(ScheduleId(schedule_id)) is not None
    await store.close()


async def test_a_disk_that_fails_in_the_middle_of_a_group(path: Path) -> None:
    with child("limited", path, "s") as writer:
        lines = [line.split(" ", 2) for line in await asyncio.to_thread(writer.rest)]
    added = {line[1] for line in lines if line[0] == "added"}
    refused = {line[1]: line[2] for line in lines if line[0] == "refused"}
    assert len(refused) > 1
    assert all(reason.startswith("cannot write: ") for reason in refused.values())
    # The last one came after the disk recovered.
    assert lines[-1][0] == "added"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    there = {row[0] for row in connection.execute("SELECT id FROM schedules")}
    connection.close()
    assert there == added | {"s-first"}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 60.0)


async def test_a_short_lock_of_another_process_delays_a_write(
    patient: None, store: SqlStore, path: Path
) -> None:
    with child("lock", path) as locker:
        await wait_for_line(locker, "locked")
        adding = asyncio.create_task(store.add_schedule(a_schedule(id="waits")))
        # Long enough to be refused by anything that does not wait; reads continue.
        done, _ = await asyncio.wait([adding], timeout=2)
        assert not done
        assert await store.get_schedule(ScheduleId("waits")) is None
        locker.go()
        await wait_for_line(locker, "done")
        assert (await adding).id == "waits"
    assert await store.get_schedule(ScheduleId("waits")) is not None


async def test_a_long_lock_is_reported_after_five_seconds(store: SqlStore, path: Path) -> None:
    await store.join(a_node(), LEASE)
    with child("lock", path) as locker:
        await wait_for_line(locker, "locked")
        began = monotonic()
        answers = await asyncio.gather(
            store.add_schedule(a_schedule(id="refused")),
            store.heartbeat(NodeId("node-1"), LEASE, clock=five_seconds_ago()),
            return_exceptions=True,
        )
        assert monotonic() - began >= 5
        for answer in answers:
            assert isinstance(answer, StoreUnavailable)
            assert "locked for 5 s" in answer.message
        locker.go()
        await wait_for_line(locker, "done")
    # It recovers alone, and refused writes have not happened.
    await store.add_schedule(a_schedule(id="accepted"))
    assert await store.get_schedule(ScheduleId("refused")) is None


async def test_a_commit_of_another_process_wakes_this_one(store: SqlStore, path: Path) -> None:
    with child("add", path, "from-elsewhere") as other:
        await wait_for_line(other, "ready")
        since = store.changes()
        waiting = asyncio.create_task(store.wait_for_work(since, None))
        await asyncio.sleep(0)
        other.go()
        await wait_for_line(other, "done")
        await asyncio.wait_for(waiting, 60)
    assert store.changes() > since
    assert await store.next_due() is not None


async def test_own_commits_do_not_wake_this_process(store: SqlStore) -> None:
    """Otherwise every heartbeat would start a scheduler pass."""
    node = await store.join(a_node(), LEASE)
    since = store.changes()
    for _ in range(3):
        await store.heartbeat(node.id, LEASE, clock=five_seconds_ago())
    until = await store.now() + timedelta(seconds=0.5)
    await store.wait_for_work(since, until)
    assert await store.now() >= until
    assert store.changes() == since


async def test_two_processes_that_start_at_once_set_the_file_up_once(path: Path) -> None:
    with child("start", path) as one, child("start", path) as two:
        for each in (one, two):
            await wait_for_line(each, "ready")
        for each in (one, two):
            each.go()
        answers = [await asyncio.to_thread(each.rest) for each in (one, two)]
    assert answers == [[f"schema {HEAD}"], [f"schema {HEAD}"]]
