"""Archives of the JSON file store: old runs and audit entries leave the file but stay readable."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.audit import AuditEntry, verify_chain
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.services.audit import prune_audit
from chimes.services.audit import verify_chain as verify_store
from chimes.store.jsonfile import JsonFileStore
from chimes.store.jsonfile import files as disk
from chimes.store.jsonfile.store import AUDIT_ENTRIES, ENDED_RUNS, SLACK
from chimes.store.port import Item, RunLog
from chimes.testing import SettableClock
from tests.builders import NOW, SECOND, a_run, a_schedule, an_entry
from tests.store.jsonfiles import crash, document, dumped, opened

KEY = "a key of thirty-two characters.."
ENOUGH_TO_ARCHIVE = ENDED_RUNS + SLACK + 1


def ended(number: int, **given: Any) -> Run:
    return a_run(
        id=RunId(f"ended-{number:05d}"),
        status=RunStatus.SUCCEEDED,
        finished_at=NOW + number * SECOND,
        **given,
    )


def log_of(run: Run) -> RunLog:
    line = LogEntry(at=NOW, message=f"done {run.id}", number=1)
    return RunLog(run_id=run.id, entries=(line,))


async def fill(store: JsonFileStore, runs: Sequence[Run]) -> None:
    """The second change archives what the first made durable."""
    await store.load([*runs, *map(log_of, runs)])
    await store.load([])


def lines(directory: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / name).read_bytes().splitlines()]


def in_repr_order(items: list[Item]) -> list[Item]:
    return sorted(items, key=repr)


async def test_oldest_ended_runs_are_archived_and_still_readable(tmp_path: Path) -> None:
    waiting = [a_run(id=RunId(f"waiting-{number}")) for number in range(5)]
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await store.load(waiting)
        await fill(store, runs)
        in_file = document(tmp_path)["chimes"]
        kept = {run["id"] for run in in_file["runs"]}
        assert kept == {run.id for run in (*waiting, *runs[-ENDED_RUNS:])}
        assert set(in_file["logs"]) == {run.id for run in runs[-ENDED_RUNS:]}
        archived = lines(tmp_path, "runs-203001.jsonl")
        assert [line["run"]["id"] for line in archived] == [r.id for r in runs[:-ENDED_RUNS]]
        before = in_repr_order(await dumped(store))
    async with opened(tmp_path) as store:
        assert in_repr_order(await dumped(store)) == before
        assert await store.get_run(runs[0].id) == runs[0]
        assert await store.read_logs(runs[0].id) == log_of(runs[0]).entries
        page = await store.list_runs(RunQuery(statuses=(RunStatus.SUCCEEDED,), limit=None))
        assert len(page.items) == ENOUGH_TO_ARCHIVE


async def test_an_archived_slot_stays_taken(tmp_path: Path) -> None:
    schedule = a_schedule()
    runs = [
        ended(n, schedule_id=schedule.id, slot=NOW + n * SECOND) for n in range(ENOUGH_TO_ARCHIVE)
    ]
    async with opened(tmp_path) as store:
        await store.add_schedule(schedule)
        await fill(store, runs)
    async with opened(tmp_path) as store:
        twin = a_run(schedule, slot=NOW)
        assert await store.add_runs([twin]) == (runs[0],)


async def test_archive_has_one_file_per_month(tmp_path: Path) -> None:
    runs = [
        replace(ended(n), finished_at=NOW + n * timedelta(days=31))
        for n in range(ENOUGH_TO_ARCHIVE)
    ]
    async with opened(tmp_path) as store:
        await fill(store, runs)
    archives = sorted(name for name in os.listdir(tmp_path) if name.endswith(".jsonl"))
    assert archives[:3] == ["runs-203001.jsonl", "runs-203002.jsonl", "runs-203003.jsonl"]
    modes = {(tmp_path / name).stat().st_mode & 0o777 for name in archives}
    assert modes == {0o600}


# Above 5,000 rows in total, fewer ended runs stay in the file.
async def test_ended_runs_are_archived_to_respect_the_total_row_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.store.jsonfile.store.MOST_ROWS", 120)
    async with opened(tmp_path) as store:
        await store.load([a_run() for _ in range(100)])
        await fill(store, [ended(number) for number in range(20 + SLACK + 1)])
        assert len(document(tmp_path)["chimes"]["runs"]) == 120


async def test_pruned_archived_runs_stay_deleted(tmp_path: Path) -> None:
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    archived = ENOUGH_TO_ARCHIVE - ENDED_RUNS
    async with opened(tmp_path) as store:
        await fill(store, runs)
        before = NOW + 10 * SECOND
        assert await store.prune_runs(before=before, limit=4) == 4
    async with opened(tmp_path) as store:
        assert await store.get_run(runs[3].id) is None
        assert await store.get_run(runs[4].id) == runs[4]
        assert await store.read_logs(runs[3].id) == ()
        assert await store.prune_runs(before=before, limit=100) == 6
        # The archive is not rewritten for a few pruned rows.
        assert len(lines(tmp_path, "runs-203001.jsonl")) == archived
        assert await store.prune_runs(before=NOW + archived * SECOND, limit=1000) == archived - 10
        assert not (tmp_path / "runs-203001.jsonl").exists()
    async with opened(tmp_path) as store:
        page = await store.list_runs(RunQuery(limit=None))
        assert {run.id for run in page.items} == {run.id for run in runs[archived:]}


async def test_mostly_pruned_archive_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.store.jsonfile.archive.REWRITE_FROM", 60)
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await fill(store, runs)
        await store.prune_runs(before=NOW + 60 * SECOND, limit=1000)
        left = [line["run"]["id"] for line in lines(tmp_path, "runs-203001.jsonl")]
        assert left == [run.id for run in runs[60 : ENOUGH_TO_ARCHIVE - ENDED_RUNS]]


# A crash between the writes of archive and jobs.json leaves runs in both.
async def test_run_in_archive_and_file_is_loaded_once(tmp_path: Path) -> None:
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await store.load([*runs, *map(log_of, runs)])
        before = in_repr_order(await dumped(store))
        both = (tmp_path / "jobs.json").read_bytes()
        await store.load([])
        crash(store)
        (tmp_path / "jobs.json").write_bytes(both)
        async with opened(tmp_path) as again:
            assert in_repr_order(await dumped(again)) == before
            await again.load([])
        async with opened(tmp_path) as again:
            assert in_repr_order(await dumped(again)) == before


# A process was killed during an append.
async def test_torn_last_archive_line_is_cut_off(tmp_path: Path) -> None:
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await fill(store, runs)
        before = in_repr_order(await dumped(store))
    path = tmp_path / "runs-203001.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    async with opened(tmp_path) as store:
        assert in_repr_order(await dumped(store)) == before
        assert (await store.status()).degraded == ""
    assert path.read_bytes() == whole


async def test_corrupt_archive_line_is_kept_and_reported(tmp_path: Path) -> None:
    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await fill(store, runs)
    path = tmp_path / "runs-203001.jsonl"
    content = path.read_bytes().splitlines(keepends=True)
    content[1] = b'{"run": 5}\n'
    path.write_bytes(b"".join(content))
    async with opened(tmp_path) as store:
        assert "1 archived line cannot be read" in (await store.status()).degraded
        assert await store.get_run(runs[1].id) is None
        assert await store.get_run(runs[2].id) == runs[2]
        await store.prune_runs(before=NOW + 9999 * SECOND, limit=9999)
    assert path.read_bytes() == content[1]


# The archive does not fit on the disk; the change itself succeeds.
async def test_failed_archive_write_keeps_the_runs_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingOs:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, descriptor: int) -> None:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".jsonl"):
                raise OSError(errno.ENOSPC, "No space left on device")

    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        monkeypatch.setattr(disk, "os", FailingOs())
        await fill(store, runs)
        assert len(document(tmp_path)["chimes"]["runs"]) == ENOUGH_TO_ARCHIVE
        assert (tmp_path / "runs-203001.jsonl").read_bytes() == b""
        monkeypatch.setattr(disk, "os", os)
        await store.load([])
        assert len(document(tmp_path)["chimes"]["runs"]) == ENDED_RUNS


# An undone change leaves nothing in an archive and removes nothing from memory.
async def test_failed_write_leaves_archived_runs_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingOs:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def replace(self, source: Path, target: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

    runs = [ended(number) for number in range(ENOUGH_TO_ARCHIVE)]
    async with opened(tmp_path) as store:
        await store.load([*runs, *map(log_of, runs)])
        before = in_repr_order(await dumped(store))
        monkeypatch.setattr(disk, "os", FailingOs())
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.load(
                    [ended(number) for number in range(ENOUGH_TO_ARCHIVE, ENOUGH_TO_ARCHIVE + 50)]
                )
            with pytest.raises(StoreUnavailable):
                await store.prune_runs(before=NOW + 200 * SECOND, limit=1000)
            assert in_repr_order(await dumped(store)) == before
        monkeypatch.setattr(disk, "os", os)
        await store.load([])
        crash(store)
        async with opened(tmp_path) as again:
            assert in_repr_order(await dumped(again)) == before
            assert len(lines(tmp_path, "runs-203001.jsonl")) == ENOUGH_TO_ARCHIVE - ENDED_RUNS


# --- audit ----------------------------------------------------------------------------------------
async def test_old_audit_entries_are_archived_in_an_unbroken_chain(tmp_path: Path) -> None:
    clock = SettableClock()
    count = AUDIT_ENTRIES + SLACK + 1
    async with opened(tmp_path, clock) as source:
        entries = [
            source._state.append_audit(an_entry(object_id=f"o{number}")) for number in range(count)
        ]
        await source.load([])
        await source.load([])
        in_file = document(tmp_path)["chimes"]["audit"]
        assert [entry["number"] for entry in in_file] == list(range(102, count + 1))
        assert len(lines(tmp_path, "audit-203001.jsonl")) == 101
    async with opened(tmp_path, clock) as store:
        (newest,) = await store.list_audit(AuditQuery(limit=1))
        assert newest == entries[-1]
        (oldest,) = await store.list_audit(AuditQuery(object_id="o0"))
        assert oldest == entries[0]
        added = await store.append_audit(an_entry())
        assert added.number == count + 1
        every = [item for item in await dumped(store) if isinstance(item, AuditEntry)]
        assert every == [*entries, added]
        assert verify_chain(every) is None


async def test_pruned_archived_audit_entries_stay_deleted(tmp_path: Path) -> None:
    clock = SettableClock()
    count = AUDIT_ENTRIES + SLACK + 1
    async with opened(tmp_path, clock) as store:
        for number in range(count):
            at = NOW if number < 60 else NOW + SECOND
            store._state.append_audit(an_entry(at=at, object_id=f"o{number}"))
        await store.load([])
        await store.load([])
        assert len(lines(tmp_path, "audit-203001.jsonl")) == 101
        archive = (tmp_path / "audit-203001.jsonl").read_bytes()
        clock.advance(timedelta(hours=1))
        assert await prune_audit(store, KEY, before=NOW) == 60
        assert len(lines(tmp_path, "audit-203001.jsonl")) == 41
        assert (await verify_store(store, KEY)).checked == count - 60 + 1
    # As after a crash between the write of jobs.json and that of the archive.
    (tmp_path / "audit-203001.jsonl").write_bytes(archive)
    async with opened(tmp_path, clock) as store:
        found = await verify_store(store, KEY)
        assert (found.ok, found.checked) == (True, count - 60 + 1)
        assert await prune_audit(store, KEY, before=NOW + SECOND) == count - 60
        assert (await verify_store(store, KEY)).ok
        assert not (tmp_path / "audit-203001.jsonl").exists()
    async with opened(tmp_path, clock) as store:
        found = await verify_store(store, KEY)
        assert (found.ok, found.checked) == (True, 2)


async def test_failed_write_restores_pruned_audit_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingOs:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def replace(self, source: Path, target: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

    count = AUDIT_ENTRIES + SLACK + 1
    async with opened(tmp_path) as store:
        for number in range(count):
            store._state.append_audit(an_entry(at=NOW, object_id=f"o{number}"))
        await store.load([])
        await store.load([])
        before = in_repr_order(await dumped(store))
        monkeypatch.setattr(disk, "os", FailingOs())
        for most in (50, 150):
            with pytest.raises(StoreUnavailable):
                await prune_audit(store, KEY, before=NOW, limit=most)
            assert in_repr_order(await dumped(store)) == before
            assert (await verify_store(store, KEY)).ok
        monkeypatch.setattr(disk, "os", os)
        assert await prune_audit(store, KEY, before=NOW, limit=150) == 150
        assert (await verify_store(store, KEY)).ok
    async with opened(tmp_path) as again:
        assert (await verify_store(again, KEY)).ok


async def test_schedules_are_never_archived(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        schedules = [a_schedule(id=ScheduleId(f"s{number}")) for number in range(700)]
        await store.load(schedules)
        await fill(store, [ended(number) for number in range(ENOUGH_TO_ARCHIVE)])
        assert len(document(tmp_path)["jobs"]) == 700
