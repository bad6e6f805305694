"""Recovery of the JSON file store: corrupt files are kept, and the previous one is loaded."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from chimes.errors import SchemaMismatch
from chimes.model.ids import ScheduleId
from chimes.store.jsonfile import JsonFileStore
from tests.builders import a_run, a_schedule, an_entry
from tests.store.jsonfiles import crash, document, dumped, opened
from tests.tables import each_row


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def populated(directory: Path) -> bytes:
    """Writes several generations and closes the store; returns the bytes of the last."""
    async with opened(directory) as store:
        for number in range(3):
            schedule = await store.add_schedule(a_schedule(id=ScheduleId(f"s{number}")), an_entry())
            await store.add_runs([a_run(schedule)])
    return (directory / "jobs.json").read_bytes()


def without_time(directory: Path) -> dict[str, object]:
    return {k: v for k, v in document(directory).items() if k != "updated_at"}


#: Positions in a file of about 6 kB; the last cut removes the final newline, which is still JSON.
CUTS = (0, 1, 2, 17, 100, 333, 1000, 2048, 4096, -1000, -333, -100, -17, -3, -2)


@each_row("cut", CUTS)
async def test_truncated_file_is_kept_and_the_previous_one_loaded(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("store")
    whole = await populated(tmp_path)
    before = without_time(tmp_path)
    bad = whole[:cut]
    (tmp_path / "jobs.json").write_bytes(bad)
    async with opened(tmp_path) as store:
        assert (tmp_path / "jobs.bad.json").read_bytes() == bad
        status = await store.status()
        assert "jobs.bad.json" in status.degraded
        assert "previous generation" in status.degraded
        assert without_time(tmp_path) == before
        await store.add_runs([a_run()])
        # The status stays degraded until the process ends.
        assert (await store.status()).degraded == status.degraded
    async with opened(tmp_path) as store:
        assert (await store.status()).degraded == ""
        assert (tmp_path / "jobs.bad.json").read_bytes() == bad


# A flipped bit makes the file corrupt or looks like a manual edit; no byte is lost in either case.
async def test_flipped_bit_never_prevents_the_start(tmp_path: Path) -> None:
    whole = await populated(tmp_path)
    previous = (tmp_path / "jobs.prev.json").read_bytes()
    kept = 0
    for position in range(0, len(whole), len(whole) // 60):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 7)
        (tmp_path / "jobs.json").write_bytes(flipped)
        (tmp_path / "jobs.prev.json").write_bytes(previous)
        async with opened(tmp_path) as store:
            degraded = (await store.status()).degraded
            assert len(document(tmp_path)["jobs"]) == 3
        name = f"jobs.bad.{kept}.json" if kept else "jobs.bad.json"
        if "was kept as" in degraded:
            assert (tmp_path / name).read_bytes() == flipped
            kept += 1
        else:
            assert not (tmp_path / name).exists()
    assert kept > 10


INVALID_CONTENTS = {
    "empty": b"",
    "blank": b" \n",
    "null": b"null",
    "a list": b"[]",
    "text": b'"jobs"',
    "no version": b'{"jobs": []}',
    "version 0": b'{"version": 0, "jobs": []}',
    "version as text": b'{"version": "1", "jobs": []}',
    "version as truth": b'{"version": true, "jobs": []}',
    "no jobs": b'{"version": 1}',
    "jobs by id": b'{"version": 1, "jobs": {}}',
    "a job that is none": b'{"version": 1, "jobs": [5]}',
    "chimes as a list": b'{"version": 1, "jobs": [], "chimes": [1]}',
    "runs as text": b'{"version": 1, "jobs": [], "chimes": {"runs": "x"}}',
    "a run that is none": b'{"version": 1, "jobs": [], "chimes": {"runs": [{}]}}',
    "unknown part": b'{"version": 1, "jobs": [], "chimes": {"wings": []}}',
    "not utf-8": b'{"version": 1, "jobs": [], "x": "\xff"}',
    "a binary": bytes(range(256)),
    "deep": b"[" * 100_000,
    "huge number": b'{"version": 1, "jobs": [], "x": 1' + b"0" * 5000 + b"}",
}


@each_row("content", INVALID_CONTENTS.values(), ids=INVALID_CONTENTS.keys())
async def test_file_of_another_format_is_set_aside(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    tmp_path = tmp_path_factory.mktemp("store")
    (tmp_path / "jobs.json").write_bytes(content)
    async with opened(tmp_path) as store:
        assert (tmp_path / "jobs.bad.json").read_bytes() == content
        assert "started empty" in (await store.status()).degraded
        assert document(tmp_path)["jobs"] == []
        await store.add_schedule(a_schedule())
    async with opened(tmp_path) as store:
        assert (await store.status()).degraded == ""
        assert len(document(tmp_path)["jobs"]) == 1


async def test_file_of_a_newer_version_is_refused_unchanged(tmp_path: Path) -> None:
    """It is not damaged: an older program must not move it away and start empty."""
    for name in ("jobs.json", "jobs.prev.json"):
        content = b'{"version": 2, "jobs": [{"of": "the future"}]}'
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SchemaMismatch, match=r"version 2.*update Chimes"):
            await JsonFileStore(tmp_path).open()
        assert (tmp_path / name).read_bytes() == content
        assert not (tmp_path / "jobs.bad.json").exists()
        (tmp_path / name).unlink()


# An earlier corrupt file is never overwritten.
async def test_each_corrupt_file_is_kept_under_its_own_name(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "jobs.json").write_text(f"bad {number}")
        (tmp_path / "jobs.json").chmod(0o644)
        async with opened(tmp_path):
            pass
    kept = ["jobs.bad.json", "jobs.bad.1.json", "jobs.bad.2.json"]
    assert [(tmp_path / name).read_text() for name in kept] == ["bad 0", "bad 1", "bad 2"]
    assert [mode(tmp_path / name) for name in kept] == [0o600] * 3


async def test_both_generations_are_kept_if_both_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text("bad")
    (tmp_path / "jobs.prev.json").write_text("worse")
    async with opened(tmp_path) as store:
        assert "started empty" in (await store.status()).degraded
    assert (tmp_path / "jobs.bad.json").read_text() == "bad"
    assert (tmp_path / "jobs.bad.1.json").read_text() == "worse"


# A kill during the replacement may leave no jobs.json.
async def test_missing_file_is_recovered_from_the_previous_one(tmp_path: Path) -> None:
    await populated(tmp_path)
    before = without_time(tmp_path)
    (tmp_path / "jobs.json").unlink()
    async with opened(tmp_path) as store:
        assert "missing" in (await store.status()).degraded
        assert without_time(tmp_path) == before


# While running it is the generation before the last; after a clean stop, a copy of the last.
async def test_contents_of_the_previous_generation(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path)
    await store.open()
    before = (tmp_path / "jobs.json").read_bytes()
    await store.add_schedule(a_schedule())
    assert (tmp_path / "jobs.prev.json").read_bytes() == before
    await store.close()
    current, previous = tmp_path / "jobs.json", tmp_path / "jobs.prev.json"
    assert previous.read_bytes() == current.read_bytes()
    # It is not a hard link: editing one in place does not change the other.
    assert not previous.samefile(current)


async def test_crash_loses_at_most_the_corrupt_generation(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path)
    await store.open()
    first = await store.add_schedule(a_schedule())
    await store.add_runs([a_run()])
    crash(store)
    (tmp_path / "jobs.json").write_bytes(b"")
    async with opened(tmp_path) as again:
        assert await dumped(again) == [first]
    await store.close()


async def test_stray_temporary_files_are_removed(tmp_path: Path) -> None:
    strays = ["jobs.json.tmp", "jobs.prev.json.tmp", "runs-203001.jsonl.tmp"]
    for name in strays:
        (tmp_path / name).write_text("half")
    (tmp_path / "mine.tmp").write_text("not ours")
    async with opened(tmp_path):
        assert [name for name in strays if (tmp_path / name).exists()] == []
        assert (tmp_path / "mine.tmp").exists()


# A manual edit is logged and loaded.
async def test_only_a_manual_edit_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "chimes.store")
    await populated(tmp_path)
    async with opened(tmp_path):
        pass
    assert "edited" not in caplog.text
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    async with opened(tmp_path) as store:
        assert (await store.status()).degraded == ""
    assert "jobs.json was edited" in caplog.text


async def test_edit_while_the_process_runs_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as store:
        (tmp_path / "jobs.json").write_text("an edit")
        await store.add_schedule(a_schedule())
        await store.add_schedule(a_schedule())
        assert (tmp_path / "jobs.edited.json").read_text() == "an edit"
        assert "jobs.edited.json" in caplog.text
        assert not (tmp_path / "jobs.edited.1.json").exists()
    assert len(document(tmp_path)["jobs"]) == 2


async def test_all_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "jobs.json").write_text('{"version": 1, "jobs": []}')
    (directory / "jobs.json").chmod(0o644)
    names = {"jobs.json", "jobs.prev.json", "jobs.json.sum", ".lock", ".snapshot"}
    async with opened(directory) as store:
        # jobs.prev.json is the original file.
        assert {name: mode(directory / name) for name in os.listdir(directory)} == dict.fromkeys(
            names, 0o600
        )
        await store.add_schedule(a_schedule())
    assert {name: mode(directory / name) for name in os.listdir(directory)} == dict.fromkeys(
        names, 0o600
    )
    async with opened(tmp_path / "new"):
        assert mode(tmp_path / "new") == 0o700
