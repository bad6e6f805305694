"""Failed writes: callers get an error, memory and disk stay consistent."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model.ids import ScheduleId
from chimes.model.planning import plan
from chimes.model.run import Run, mark_lost
from chimes.model.schedule import Schedule
from chimes.store.jsonfile import JsonFileStore
from chimes.store.jsonfile import files as disk
from chimes.store.port import Item
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    NOW,
    a_completion,
    a_key,
    a_node,
    a_run,
    a_schedule,
    a_sync_run,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store.jsonfiles import crash, document, dumped, opened

SEAM = ("open", "write", "fsync", "replace", "rename", "link", "unlink", "close", "truncate")


class Disk:
    """The os module as the store's disk sees it, counting and failing calls on order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: Callable[[str, int], bool] = lambda name, number: False
        self.error = errno.EIO
        self.before: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in SEAM:
            return real

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            self.before(name)
            if self.fail(name, len(self.calls)):
                raise OSError(self.error, os.strerror(self.error))
            # No machine crashes in these tests, so nothing has to reach the platter.
            return None if name == "fsync" else real(*given, **named)

        return call


@pytest.fixture
def seam(monkeypatch: pytest.MonkeyPatch) -> Disk:
    seam = Disk()
    monkeypatch.setattr(disk, "os", seam)
    return seam


Step = Callable[[JsonFileStore], Awaitable[object]]


def steps() -> list[Step]:
    """A small life; each step is one change."""
    schedule, key, run = due_schedule(id=ScheduleId("a")), a_key(), a_run()
    task = a_sync_run()
    claimed: list[Run] = []

    async def claim(store: JsonFileStore) -> None:
        claimed.extend(await store.claim(claim_request()))

    async def finish(store: JsonFileStore) -> None:
        await store.finish([a_completion(each, NOW) for each in claimed])

    return [
        lambda store: store.add_schedule(schedule, an_entry()),
        lambda store: store.fire_due(plan, limit=5),
        lambda store: store.add_key(key, an_entry()),
        claim,
        finish,
        lambda store: store.add_runs([run], an_entry()),
        lambda store: store.set_checkpoint("cursor", "1", an_entry()),
        lambda store: store.add_unless_active(task),
        lambda store: store.set_checkpoint("cursor", None),
        lambda store: store.prune_runs(before=NOW.replace(year=2031), limit=5),
    ]


async def contents(store: JsonFileStore) -> list[Item]:
    return sorted(await dumped(store), key=repr)


# the n-th call fails, for every n, until a life comes through clean
async def test_every_single_io_error_leaves_memory_and_disk_together(
    tmp_path: Path, seam: Disk
) -> None:
    n = failures = 0
    calls = 1
    while calls > n:
        n += 1
        seam.calls.clear()
        seam.fail = failing_at(n)
        store = JsonFileStore(tmp_path / str(n), clock=SettableClock())
        try:
            await store.open()
        except StoreUnavailable:
            failures += 1
            await store.open()
        await store.join(a_node(), LEASE)
        for step in steps():
            before = await contents(store)
            try:
                await step(store)
            except StoreUnavailable:
                failures += 1
                assert await contents(store) == before
                on_disk = await contents_of_copy(tmp_path / str(n), tmp_path / f"copy-{n}")
                await step(store)
                assert on_disk in (settled(before), settled(await contents(store)))
        model, calls = await contents(store), len(seam.calls)
        seam.fail = failing_at(0)
        crash(store)
        async with opened(tmp_path / str(n)) as again:
            assert await contents(again) == model
        await store.close()
        assert leftovers(tmp_path / str(n)) == []
    assert failures > 30


def failing_at(n: int) -> Callable[[str, int], bool]:
    return lambda name, number: number == n


async def contents_of_copy(directory: Path, copy: Path) -> list[Item]:
    """What another process would find on the disk."""
    shutil.copytree(directory, copy)
    async with opened(copy) as store:
        return await contents(store)


def settled(items: list[Item]) -> list[Item]:
    """As a restart leaves them."""
    lost_with_it = [
        mark_lost(item, NOW) if isinstance(item, Run) and item.holder else item for item in items
    ]
    return sorted(lost_with_it, key=repr)


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]


# the error is the disk's, the old file is whole, and it goes on when there is room again
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "replace"])
async def test_a_failed_write_is_told_and_undone(tmp_path: Path, seam: Disk, call: str) -> None:
    async with opened(tmp_path) as store:
        kept = await store.add_schedule(a_schedule(), an_entry())
        before, file = await contents(store), (tmp_path / "jobs.json").read_bytes()
        seam.error = errno.ENOSPC
        seam.fail = lambda name, number: name == call
        refused = a_schedule()
        if call != "link":  # a file system without links is no failure: the file is copied
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="No space left"):
                    await store.add_schedule(refused, an_entry())
            assert await contents(store) == before
            assert (tmp_path / "jobs.json").read_bytes() == file
            assert "No space left" in (await store.status()).degraded
            assert leftovers(tmp_path) == []
            seam.fail = lambda name, number: False
        await store.add_schedule(refused, an_entry())
        assert (await store.status()).degraded == ""
        assert await store.next_due() == kept.next_run_at
        model = await contents(store)
    async with opened(tmp_path) as store:
        assert await contents(store) == model


async def test_where_rename_refuses_the_old_file_is_removed_first(
    tmp_path: Path, seam: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "WINDOWS", True)
    seam.error = errno.EACCES
    seam.fail = lambda name, number: name == "replace"
    async with opened(tmp_path) as store:
        schedule = await store.add_schedule(a_schedule())
    assert "rename" in seam.calls
    async with opened(tmp_path) as store:
        assert await dumped(store) == [schedule]


# os.write takes a part and says nothing
async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, descriptor: int, data: memoryview) -> int:
            return os.write(descriptor, data[:100])

    monkeypatch.setattr(disk, "os", Short())
    async with opened(tmp_path) as store:
        schedule = await store.add_schedule(a_schedule())
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) == schedule


# Those who wait for a failed write and those who came after it built on what is now undone.
async def test_a_failed_write_is_told_to_all_who_built_on_it(tmp_path: Path, seam: Disk) -> None:
    async with opened(tmp_path) as store:
        reached, go_on = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                go_on.wait(10)

        seam.before = hold
        seam.fail = lambda name, number: name == "fsync"
        first = asyncio.create_task(store.add_schedule(a_schedule()))
        await asyncio.to_thread(reached.wait, 10)
        later = [asyncio.create_task(store.add_schedule(a_schedule())) for _ in range(5)]
        await asyncio.sleep(0)  # each of them runs until it waits for its write
        assert len(await dumped(store)) == 6
        go_on.set()
        answers = await asyncio.gather(first, *later, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 6
        assert await dumped(store) == []


# nobody is sent to a task that goes with the write it was in.
async def test_a_task_that_stands_is_told_of_once_it_is_safe(tmp_path: Path, seam: Disk) -> None:
    async with opened(tmp_path) as store:
        reached, go_on = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                go_on.wait(10)

        seam.before = hold
        seam.fail = lambda name, number: name == "fsync"
        first = asyncio.create_task(store.add_unless_active(a_sync_run()))
        await asyncio.to_thread(reached.wait, 10)
        second = asyncio.create_task(store.add_unless_active(a_sync_run()))
        await asyncio.sleep(0)  # it runs until it waits for its write
        go_on.set()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
        assert await dumped(store) == []
        seam.before, seam.fail = lambda name: None, lambda name, number: False
        kept = await store.add_schedule(a_schedule())
        assert await dumped(store) == [kept]
        assert len(document(tmp_path)["jobs"]) == 1


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(
    tmp_path: Path, seam: Disk
) -> None:
    async with opened(tmp_path) as store:
        reached, go_on = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                go_on.wait(10)

        seam.before = hold
        tasks = [asyncio.create_task(store.add_schedule(a_schedule())) for _ in range(3)]
        await asyncio.to_thread(reached.wait, 10)
        tasks[1].cancel()
        go_on.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [type(answer) for answer in answers]
        assert kinds == [Schedule, asyncio.CancelledError, Schedule]
        assert len(await dumped(store)) == 3
    assert len(document(tmp_path)["jobs"]) == 3


# What cannot be encoded is refused alone; the file goes on.
async def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(StoreUnavailable):
            await store.add_schedule(a_schedule(compat_data={"a": object()}))
        schedule = await store.add_schedule(a_schedule())
    async with opened(tmp_path) as store:
        assert await dumped(store) == [schedule]


async def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    with pytest.raises(StoreUnavailable):
        await store.add_schedule(a_schedule())
    await store.close()
    assert document(tmp_path)["jobs"] == []


async def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file"):
        await JsonFileStore(tmp_path / "file" / "data").open()


async def test_an_unreadable_file_is_not_taken_for_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").mkdir()
    for _ in range(2):  # the lock was let go
        with pytest.raises(StoreUnavailable, match="directory"):
            await JsonFileStore(tmp_path).open()
    assert (tmp_path / "jobs.json").is_dir()


# Everything that was acknowledged is on the disk already.
async def test_a_full_disk_does_not_stop_the_end(tmp_path: Path, seam: Disk) -> None:
    store = JsonFileStore(tmp_path, clock=SettableClock())
    await store.open()
    await store.join(a_node(), LEASE)
    schedule = await store.add_schedule(a_schedule())
    seam.fail = lambda name, number: name == "write"
    await store.close()
    seam.fail = failing_at(0)
    async with opened(tmp_path) as again:
        assert await dumped(again) == [schedule]


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from chimes.errors import StoreUnavailable
from chimes.store.jsonfile import JsonFileStore
from tests.builders import a_schedule, TARGET
from dataclasses import replace

async def main(directory):
    store = JsonFileStore(directory)
    await store.open()
    small = await store.add_schedule(a_schedule())
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
    try:
        await store.add_schedule(a_schedule(target=replace(TARGET, body="x" * 200_000)))
    except StoreUnavailable as error:
        print("refused:", error)
    await store.add_schedule(a_schedule())
    await store.close()

asyncio.run(main(Path(sys.argv[1])))
"""


# 65,536 bytes are written without an error, then the limit speaks
def test_a_file_size_limit_is_an_error_and_no_short_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: the file cannot be written" in done.stdout
    assert "File too large" in done.stdout
    assert len(document(tmp_path)["jobs"]) == 2
