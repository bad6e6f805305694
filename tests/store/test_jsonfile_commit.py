"""Lock, group commit and the write rate warning."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import StoreLocked, StoreUnavailable
from chimes.model.ids import ScheduleId
from chimes.store.jsonfile import JsonFileStore
from chimes.store.jsonfile import files as disk
from chimes.store.jsonfile.store import GroupCommit, StateLock
from chimes.testing import SettableClock
from tests.builders import LEASE, NOW, a_node, a_run, a_schedule
from tests.store.jsonfiles import document, dumped, opened


class CountingOs:
    def __init__(self) -> None:
        self.fsyncs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        os.fsync(descriptor)


@pytest.fixture
def counting_os(monkeypatch: pytest.MonkeyPatch) -> CountingOs:
    counting_os = CountingOs()
    monkeypatch.setattr(disk, "os", counting_os)
    return counting_os


async def test_concurrent_changes_share_a_write(tmp_path: Path, counting_os: CountingOs) -> None:
    async with opened(tmp_path) as store:
        counting_os.fsyncs = 0
        await asyncio.gather(*(store.add_schedule(a_schedule()) for _ in range(50)))
        # File and directory, for at most two groups: before and after the first write started.
        assert counting_os.fsyncs <= 4
        assert len(document(tmp_path)["jobs"]) == 50


async def test_single_change_syncs_one_file_and_one_directory(
    tmp_path: Path, counting_os: CountingOs
) -> None:
    async with opened(tmp_path) as store:
        counting_os.fsyncs = 0
        await store.add_schedule(a_schedule())
        assert counting_os.fsyncs == 2


# Otherwise every heartbeat would rewrite the file.
async def test_heartbeats_and_reads_write_nothing(tmp_path: Path, counting_os: CountingOs) -> None:
    async with opened(tmp_path) as store:
        counting_os.fsyncs = 0
        node = await store.join(a_node(), LEASE)
        await store.heartbeat(node.id, LEASE, clock=NOW)
        await store.remember_request("s", "k", "print", keep=LEASE)
        await store.next_due()
        await store.rescue(limit=10)
        assert counting_os.fsyncs == 0


async def test_pending_request_is_written_with_the_change_it_guards(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.remember_request("s", "k", "print", keep=LEASE)
        assert "chimes" not in document(tmp_path)
        await store.add_schedule(a_schedule())
        (request,) = document(tmp_path)["chimes"]["requests"]
        assert (request["scope"], request["key"], request["status"]) == ("s", "k", 0)


# A call returns only when its change is on the disk.
async def test_calls_return_after_the_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:

        async def add(number: int) -> None:
            added = await store.add_schedule(a_schedule(id=ScheduleId(f"s{number}")))
            assert added.id in {each["id"] for each in document(tmp_path)["jobs"]}

        for start in range(0, 30, 10):
            await asyncio.gather(*(add(start + number) for number in range(10)))


# Heartbeats use their own thread and event loop.
async def test_several_threads_with_own_event_loops(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:

        def many(first: int) -> None:
            async def adding() -> None:
                for number in range(first, first + 10):
                    await store.add_schedule(a_schedule(id=ScheduleId(f"s{number:03d}")))

            asyncio.run(adding())

        with ThreadPoolExecutor(4) as pool:
            jobs = [asyncio.wrap_future(pool.submit(many, first)) for first in (0, 10, 20, 30)]
            await asyncio.gather(*jobs)
        before = await dumped(store)
    async with opened(tmp_path) as store:
        assert await dumped(store) == before
        assert len(before) == 40


async def test_event_loop_is_not_blocked_by_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, release = threading.Event(), threading.Event()

    class SlowOs(CountingOs):
        def fsync(self, descriptor: int) -> None:
            reached.set()
            release.wait(60)

    async with opened(tmp_path) as store:
        monkeypatch.setattr(disk, "os", SlowOs())
        adding = asyncio.create_task(store.add_schedule(a_schedule()))
        await asyncio.to_thread(reached.wait, 10)
        assert await store.next_due() is not None
        assert not adding.done()
        release.set()
        await adding


async def test_close_can_be_repeated_and_the_store_reopened(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path, clock=SettableClock())
    await store.open()
    schedule = await store.add_schedule(a_schedule())
    await store.close()
    await store.close()
    await store.open()
    assert await dumped(store) == [schedule]
    await store.close()


# A thread changes the state; a failed write undoes that before the thread calls `join`.
def test_change_undone_before_its_join_is_rejected() -> None:
    lock = StateLock()
    failed = threading.Event()

    def write(begin: Callable[[], None]) -> None:
        begin()
        raise OSError("the disk is full")

    commits = GroupCommit(lock, write, lambda error: failed.set())
    with lock:
        pass  # a change by this thread
    with ThreadPoolExecutor(1) as other:
        error = other.submit(lambda: commits.join().exception(60)).result(60)
    assert isinstance(error, StoreUnavailable)
    assert failed.is_set()
    with pytest.raises(StoreUnavailable, match="lost"):
        commits.join()
    commits.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        commits.join()


# --- lock -----------------------------------------------------------------------------------------
SECOND_PROCESS = """
import asyncio, sys
from pathlib import Path
from chimes.errors import StoreLocked, StoreUnavailable
from chimes.store.jsonfile import JsonFileStore

try:
    asyncio.run(JsonFileStore(Path(sys.argv[1])).open())
except StoreLocked as error:
    print(error)
    sys.exit(5)
"""


async def test_second_process_is_rejected_with_the_holder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SECOND_PROCESS, str(tmp_path)]
    async with opened(tmp_path) as store:
        await store.add_schedule(a_schedule())
        before = (tmp_path / "jobs.json").read_bytes()
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (5, "")
        assert f"process {os.getpid()}" in done.stdout
        assert (tmp_path / "jobs.json").read_bytes() == before
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_second_store_in_the_same_process_is_rejected(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreLocked, match=str(os.getpid())):
            await JsonFileStore(tmp_path).open()


async def test_stale_lock_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("99999999999999999999\n")
    async with opened(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


# --- write rate -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("seconds", "warned"), [(0.1, False), (0.04, True)])
async def test_more_than_twenty_changes_a_second_cause_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float, warned: bool
) -> None:
    clock = SettableClock()
    async with opened(tmp_path, clock) as store:
        for _ in range(int(25 / seconds)):
            clock.advance(seconds)
            store._pace.count()
        await store.add_runs([a_run()])
    assert caplog.text.count("SQLite store is the better choice") == warned
