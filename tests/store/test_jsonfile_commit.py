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


class Counting:
    def __init__(self) -> None:
        self.fsyncs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        os.fsync(descriptor)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(disk, "os", counting)
    return counting


async def test_changes_that_arrive_together_share_a_write(
    tmp_path: Path, counting: Counting
) -> None:
    async with opened(tmp_path) as store:
        counting.fsyncs = 0
        await asyncio.gather(*(store.add_schedule(a_schedule()) for _ in range(50)))
        # File and directory: once for all, or for those that came before the first write and after.
        assert counting.fsyncs <= 4
        assert len(document(tmp_path)["jobs"]) == 50


async def test_a_change_alone_costs_one_file_and_one_directory(
    tmp_path: Path, counting: Counting
) -> None:
    async with opened(tmp_path) as store:
        counting.fsyncs = 0
        await store.add_schedule(a_schedule())
        assert counting.fsyncs == 2


# A beat every ten seconds would otherwise rewrite the file for ever.
async def test_beats_and_reads_write_nothing(tmp_path: Path, counting: Counting) -> None:
    async with opened(tmp_path) as store:
        counting.fsyncs = 0
        node = await store.join(a_node(), LEASE)
        await store.heartbeat(node.id, LEASE, clock=NOW)
        await store.remember_request("s", "k", "print", keep=LEASE)
        await store.next_due()
        await store.rescue(limit=10)
        assert counting.fsyncs == 0


async def test_a_request_under_way_is_written_with_the_change_it_guards(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.remember_request("s", "k", "print", keep=LEASE)
        assert "chimes" not in document(tmp_path)
        await store.add_schedule(a_schedule())
        (request,) = document(tmp_path)["chimes"]["requests"]
        assert (request["scope"], request["key"], request["status"]) == ("s", "k", 0)


# Every answer comes after its change is on the disk, whatever else is going on.
async def test_an_answer_comes_after_the_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:

        async def add(number: int) -> None:
            added = await store.add_schedule(a_schedule(id=ScheduleId(f"s{number}")))
            assert added.id in {each["id"] for each in document(tmp_path)["jobs"]}

        for start in range(0, 30, 10):
            await asyncio.gather(*(add(start + number) for number in range(10)))


# The heartbeat has a thread and a loop of its own.
async def test_several_threads_with_their_own_loops(tmp_path: Path) -> None:
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


async def test_the_loop_goes_on_while_a_write_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def fsync(self, descriptor: int) -> None:
            reached.set()
            go_on.wait(10)

    async with opened(tmp_path) as store:
        monkeypatch.setattr(disk, "os", Slow())
        adding = asyncio.create_task(store.add_schedule(a_schedule()))
        await asyncio.to_thread(reached.wait, 10)
        assert await store.next_due() is not None
        assert not adding.done()
        go_on.set()
        await adding


async def test_close_twice_is_harmless_and_open_again_works(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path, clock=SettableClock())
    await store.open()
    schedule = await store.add_schedule(a_schedule())
    await store.close()
    await store.close()
    await store.open()
    assert await dumped(store) == [schedule]
    await store.close()


# A thread changed the state, a write failed and undid that, and only then the thread comes to wait.
def test_a_change_that_was_undone_before_it_was_reported_is_refused() -> None:
    lock = StateLock()
    failed = threading.Event()

    def write(begin: Callable[[], None]) -> None:
        begin()
        raise OSError("the disk is full")

    commits = GroupCommit(lock, write, lambda error: failed.set())
    with lock:
        pass  # the change of this thread
    with ThreadPoolExecutor(1) as other:
        error = other.submit(lambda: commits.join().exception(10)).result(10)
    assert isinstance(error, StoreUnavailable)
    assert failed.is_set()
    with pytest.raises(StoreUnavailable, match="lost"):
        commits.join()
    commits.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        commits.join()


# --- the lock -------------------------------------------------------------------------------------
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


async def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
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


async def test_a_second_store_in_the_same_process_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreLocked, match=str(os.getpid())):
            await JsonFileStore(tmp_path).open()


async def test_a_stale_lock_file_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("99999999999999999999\n")
    async with opened(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


# --- too much of it -------------------------------------------------------------------------------
@pytest.mark.parametrize(("seconds", "warned"), [(0.1, False), (0.04, True)])
async def test_more_than_twenty_changes_a_second_are_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float, warned: bool
) -> None:
    clock = SettableClock()
    async with opened(tmp_path, clock) as store:
        for _ in range(int(25 / seconds)):
            clock.advance(seconds)
            store._pace.count()
        await store.add_runs([a_run()])
    assert caplog.text.count("SQLite store is the better choice") == warned
