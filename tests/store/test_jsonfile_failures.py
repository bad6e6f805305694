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
from chimes.model.audit import AuditCheckpoint, checkpoint_to_text
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

FAILING_CALLS = (
    "open",
    "write",
    "fsync",
    "replace",
    "rename",
    "link",
    "unlink",
    "close",
    "truncate",
)


class FaultyOs:
    """Stand-in for the `os` module of the store: records calls and fails chosen ones."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: Callable[[str, int], bool] = lambda name, number: False
        self.error = errno.EIO
        self.before: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in FAILING_CALLS:
            return real

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            self.before(name)
            if self.fail(name, len(self.calls)):
                raise OSError(self.error, os.strerror(self.error))
            # No machine crashes in these tests, so fsync is not needed.
            return None if name == "fsync" else real(*given, **named)

        return call


@pytest.fixture
def faulty_os(monkeypatch: pytest.MonkeyPatch) -> FaultyOs:
    faulty_os = FaultyOs()
    monkeypatch.setattr(disk, "os", faulty_os)
    return faulty_os


Step = Callable[[JsonFileStore], Awaitable[object]]


def steps() -> list[Step]:
    """Changes of every kind; each step is one change."""
    schedule, key, run = due_schedule(id=ScheduleId("a")), a_key(), a_run()
    task, old = a_sync_run(), a_key(revoked_at=NOW)
    claimed: list[Run] = []
    pruned = checkpoint_to_text(AuditCheckpoint(number=2, hash="", at=NOW, deleted=2))

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
        lambda store: store.add_key(old),
        lambda store: store.prune_unused(before=NOW.replace(year=2031), limit=5),
        lambda store: store.prune_audit(
            upto=2, checkpoint=pruned, expected=0, audit=an_entry(verb="prune_audit")
        ),
    ]


async def contents(store: JsonFileStore) -> list[Item]:
    return sorted(await dumped(store), key=repr)


# The n-th call fails, for every n, until all steps pass without a failure.
@pytest.mark.long
async def test_every_single_io_error_leaves_memory_and_disk_consistent(
    tmp_path: Path, faulty_os: FaultyOs
) -> None:
    n = failures = 0
    calls = 1
    while calls > n:
        n += 1
        faulty_os.calls.clear()
        faulty_os.fail = failing_at(n)
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
                assert on_disk in (after_restart(before), after_restart(await contents(store)))
        model, calls = await contents(store), len(faulty_os.calls)
        faulty_os.fail = failing_at(0)
        crash(store)
        async with opened(tmp_path / str(n)) as again:
            assert await contents(again) == model
        await store.close()
        assert leftovers(tmp_path / str(n)) == []
    assert failures > 30


def failing_at(n: int) -> Callable[[str, int], bool]:
    return lambda name, number: number == n


async def contents_of_copy(directory: Path, copy: Path) -> list[Item]:
    """Contents that another process would load from the disk."""
    shutil.copytree(directory, copy)
    async with opened(copy) as store:
        return await contents(store)


def after_restart(items: list[Item]) -> list[Item]:
    """Items after a restart: running runs are lost."""
    lost_with_it = [
        mark_lost(item, NOW) if isinstance(item, Run) and item.holder else item for item in items
    ]
    return sorted(lost_with_it, key=repr)


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]


# The old file stays intact, and writes succeed again when there is space.
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "replace"])
async def test_failed_write_is_reported_and_undone(
    tmp_path: Path, faulty_os: FaultyOs, call: str
) -> None:
    async with opened(tmp_path) as store:
        kept = await store.add_schedule(a_schedule(), an_entry())
        before, file = await contents(store), (tmp_path / "jobs.json").read_bytes()
        faulty_os.error = errno.ENOSPC
        faulty_os.fail = lambda name, number: name == call
        refused = a_schedule()
        if call != "link":  # without hard links the file is copied
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="No space left"):
                    await store.add_schedule(refused, an_entry())
            assert await contents(store) == before
            assert (tmp_path / "jobs.json").read_bytes() == file
            assert "No space left" in (await store.status()).degraded
            assert leftovers(tmp_path) == []
            faulty_os.fail = lambda name, number: False
        await store.add_schedule(refused, an_entry())
        assert (await store.status()).degraded == ""
        assert await store.next_due() == kept.next_run_at
        model = await contents(store)
    async with opened(tmp_path) as store:
        assert await contents(store) == model


async def test_old_file_is_removed_first_if_replace_is_denied(
    tmp_path: Path, faulty_os: FaultyOs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "WINDOWS", True)
    faulty_os.error = errno.EACCES
    faulty_os.fail = lambda name, number: name == "replace"
    async with opened(tmp_path) as store:
        schedule = await store.add_schedule(a_schedule())
    assert "rename" in faulty_os.calls
    async with opened(tmp_path) as store:
        assert await dumped(store) == [schedule]


# `os.write` may write only a part.
async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortWriteOs:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, descriptor: int, data: memoryview) -> int:
            return os.write(descriptor, data[:100])

    monkeypatch.setattr(disk, "os", ShortWriteOs())
    async with opened(tmp_path) as store:
        schedule = await store.add_schedule(a_schedule())
    async with opened(tmp_path) as store:
        assert await store.get_schedule(schedule.id) == schedule


# Changes that wait for a failed write, and later ones based on them, are all undone.
async def test_failed_write_fails_all_changes_based_on_it(
    tmp_path: Path, faulty_os: FaultyOs
) -> None:
    async with opened(tmp_path) as store:
        reached, release = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                release.wait(60)

        faulty_os.before = hold
        faulty_os.fail = lambda name, number: name == "fsync"
        first = asyncio.create_task(store.add_schedule(a_schedule()))
        await asyncio.to_thread(reached.wait, 10)
        later = [asyncio.create_task(store.add_schedule(a_schedule())) for _ in range(5)]
        await asyncio.sleep(0)  # each task runs until it waits for its write
        assert len(await dumped(store)) == 6
        release.set()
        answers = await asyncio.gather(first, *later, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 6
        assert await dumped(store) == []


async def test_existing_sync_run_is_returned_only_after_it_is_durable(
    tmp_path: Path, faulty_os: FaultyOs
) -> None:
    async with opened(tmp_path) as store:
        reached, release = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                release.wait(60)

        faulty_os.before = hold
        faulty_os.fail = lambda name, number: name == "fsync"
        first = asyncio.create_task(store.add_unless_active(a_sync_run()))
        await asyncio.to_thread(reached.wait, 10)
        second = asyncio.create_task(store.add_unless_active(a_sync_run()))
        await asyncio.sleep(0)  # it runs until it waits for its write
        release.set()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
        assert await dumped(store) == []
        faulty_os.before, faulty_os.fail = lambda name: None, lambda name, number: False
        kept = await store.add_schedule(a_schedule())
        assert await dumped(store) == [kept]
        assert len(document(tmp_path)["jobs"]) == 1


async def test_canceled_caller_does_not_affect_others(tmp_path: Path, faulty_os: FaultyOs) -> None:
    async with opened(tmp_path) as store:
        reached, release = threading.Event(), threading.Event()

        def hold(name: str) -> None:
            if name == "fsync":
                reached.set()
                release.wait(60)

        faulty_os.before = hold
        tasks = [asyncio.create_task(store.add_schedule(a_schedule())) for _ in range(3)]
        await asyncio.to_thread(reached.wait, 10)
        tasks[1].cancel()
        release.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [type(answer) for answer in answers]
        assert kinds == [Schedule, asyncio.CancelledError, Schedule]
        assert len(await dumped(store)) == 3
    assert len(document(tmp_path)["jobs"]) == 3


# Other changes are still written.
async def test_value_that_json_cannot_encode_is_rejected(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(StoreUnavailable):
            await store.add_schedule(a_schedule(compat_data={"a": object()}))
        schedule = await store.add_schedule(a_schedule())
    async with opened(tmp_path) as store:
        assert await dumped(store) == [schedule]


async def test_closed_store_rejects_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    with pytest.raises(StoreUnavailable):
        await store.add_schedule(a_schedule())
    await store.close()
    assert document(tmp_path)["jobs"] == []


async def test_impossible_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file"):
        await JsonFileStore(tmp_path / "file" / "data").open()


async def test_unreadable_file_is_not_treated_as_corrupt(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").mkdir()
    for _ in range(2):  # the lock is released after the first error
        with pytest.raises(StoreUnavailable, match="directory"):
            await JsonFileStore(tmp_path).open()
    assert (tmp_path / "jobs.json").is_dir()


# Acknowledged changes are already on the disk.
async def test_full_disk_does_not_prevent_close(tmp_path: Path, faulty_os: FaultyOs) -> None:
    store = JsonFileStore(tmp_path, clock=SettableClock())
    await store.open()
    await store.join(a_node(), LEASE)
    schedule = await store.add_schedule(a_schedule())
    faulty_os.fail = lambda name, number: name == "write"
    await store.close()
    faulty_os.fail = failing_at(0)
    async with opened(tmp_path) as again:
        assert await dumped(again) == [schedule]


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from chimes.errors import StoreUnavailable
from chimes.store.jsonfile import JsonFileStore
from tests.builders import a_schedule, TARGET
from chimes.model import replace

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


# 65,536 bytes are written without an error, then the limit is reached.
def test_file_size_limit_is_an_error_without_a_truncated_file(tmp_path: Path) -> None:
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
