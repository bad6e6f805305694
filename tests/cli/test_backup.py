"""`store backup` and `store restore`: files that are damaged, stores with data, secrets."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.cli.command import USAGE
from chimes.cli.store.commands import export_lines, last_line
from chimes.model.ids import RunId
from chimes.model.policy import OnLost, Policy
from chimes.model.run import RunStatus
from chimes.store.port import Item
from tests.builders import NOW, a_run
from tests.cli.conftest import Cli, spawn
from tests.cli.test_store import STORES, add_schedule

SECRET = ("0 9 1 1 *", "--http", "http://x.example/", "--header", "Authorization: Bearer hush-hush")


def save(cli: Cli, store: str, file: str = "all.jsonl.gz") -> None:
    done = cli("store", "backup", file, "--store", store)
    assert done.code == 0, done.err
    assert f"in {file}" in done.err


@pytest.mark.parametrize(("first", "second"), [STORES, STORES[::-1]])
def test_backup_is_restored_into_an_empty_store(
    cli: Cli, tmp_path: Path, first: str, second: str
) -> None:
    made = add_schedule(cli, first)
    assert cli("run", made, CHIMES_STORE=first).code == 0
    save(cli, first)
    file = tmp_path / "all.jsonl.gz"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".all*"))
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    assert json.loads(lines[-1])["value"]["items"] == len(lines) - 2
    other = second.replace("one", "two")
    done = cli("store", "restore", "all.jsonl.gz", "--store", other)
    assert done.code == 0, done.err
    assert f"Restored {len(lines) - 2} items" in done.err
    assert cli("store", "export", "--store", other).out.splitlines()[1:] == lines[1:-1]


def test_a_directory_gets_a_file_with_the_time_in_its_name(cli: Cli, tmp_path: Path) -> None:
    add_schedule(cli, STORES[0])
    (tmp_path / "there").mkdir()
    # A file of this name would be replaced by the backup of the next day.
    missing = cli("store", "backup", "missing/", "--store", STORES[0])
    assert missing.code == USAGE
    assert "no directory missing/" in missing.err
    assert not (tmp_path / "missing").exists()
    assert cli("store", "backup", "there/", "--store", STORES[0]).code == 0
    (file,) = (tmp_path / "there").iterdir()
    assert file.name.startswith("chimes-")
    assert file.name.endswith("Z.jsonl.gz")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_end(content: bytes) -> bytes:
    return content[: content[:-1].rindex(b"\n") + 1]


def without_item(content: bytes) -> bytes:
    first, _item, rest = content.split(b"\n", 2)
    return first + b"\n" + rest


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("a.jsonl", cut, "its last line is missing"),
        ("a.jsonl", without_end, "its last line is missing"),
        ("a.jsonl", lambda content: b"", "its last line is missing"),
        ("a.jsonl", without_item, "its checksum is wrong"),
        ("a.jsonl", lambda content: content.replace(b"Far", b"Fur"), "its checksum is wrong"),
        ("a.jsonl", lambda content: content.replace(b"Far", b"\xff\xff\xff"), "is damaged"),
        ("a.jsonl.gz", cut, "is damaged or not complete"),
    ],
)
def test_damaged_file_changes_nothing(
    cli: Cli, tmp_path: Path, name: str, damage: object, says: str
) -> None:
    made = add_schedule(cli, STORES[0])
    save(cli, STORES[0], name)
    assert callable(damage)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    for store in (STORES[0], STORES[1]):
        found = cli("store", "restore", name, "--force", "--store", store)
        assert (found.code, says in found.err) == (6, True), found.err
    assert cli("ls", "-q", CHIMES_STORE=STORES[0]).out.strip() == made
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("store", STORES)
def test_store_with_data_is_replaced_only_by_force(cli: Cli, store: str) -> None:
    saved = add_schedule(cli, store, "Saved")
    save(cli, store)
    later = add_schedule(cli, store, "Later")
    refused = cli("store", "restore", "all.jsonl.gz", "--store", store)
    assert (refused.code, "is not empty" in refused.err) == (5, True)
    assert set(cli("ls", "-q", CHIMES_STORE=store).out.split()) == {saved, later}
    assert cli("store", "restore", "all.jsonl.gz", "--force", "--store", store).code == 0
    assert cli("ls", "-q", CHIMES_STORE=store).out.split() == [saved]


def test_interrupted_restore_keeps_nodes_from_starting(cli: Cli, tmp_path: Path) -> None:
    made = add_schedule(cli, STORES[0])
    save(cli, STORES[0])
    with sqlite3.connect(tmp_path / "one.db") as database:
        database.execute("INSERT INTO kept_states VALUES ('store:restore', 'all.jsonl.gz', 0, '')")
    database.close()
    for command in (
        ("serve", "--port", "0", "--store", STORES[0]),
        ("store", "backup", "again.jsonl", "--store", STORES[0]),
    ):
        found = cli(*command)
        assert (found.code, "chimes store restore --force" in found.err) == (9, True), found.err
    assert cli("store", "restore", "all.jsonl.gz", "--force", "--store", STORES[0]).code == 0
    assert cli("ls", "-q", CHIMES_STORE=STORES[0]).out.strip() == made


@pytest.mark.parametrize("store", STORES)
def test_secrets_are_encrypted_in_a_backup(cli: Cli, tmp_path: Path, store: str) -> None:
    assert cli("add", *SECRET, "--name", "s", CHIMES_STORE=store).code == 0
    save(cli, store, "all.jsonl")
    assert b"hush-hush" not in (tmp_path / "all.jsonl").read_bytes()
    # In a process that has not seen the key.
    arguments = ("store", "restore", "all.jsonl", "--store", "sqlite:///there/new.db")
    lost = spawn(*arguments, cwd=tmp_path)
    assert (lost.code, "does not have" in lost.err) == (6, True), lost.err
    assert not (tmp_path / "there").exists()
    key = tmp_path / ("secret.key" if store.startswith("sqlite") else "one/secret.key")
    args = ("--key-file", str(key), "--store", "sqlite:///there/new.db")
    assert cli("store", "restore", "all.jsonl", *args).code == 0


def test_run_that_must_not_be_repeated_is_canceled(cli: Cli, tmp_path: Path) -> None:
    """It had started when the backup was made; another one with the default policy starts again."""
    policies = {"stops": Policy(on_lost=OnLost.STOP), "repeats": Policy()}
    runs = [
        a_run(
            id=RunId(name),
            policy=policy,
            status=RunStatus.RUNNING,
            attempt=1,
            fence=1,
            holder="gone",
            started=True,
            claimed_at=NOW,
        )
        for name, policy in policies.items()
    ]

    async def items() -> AsyncIterator[Item]:
        for run in runs:
            yield run

    async def lines() -> str:
        return "".join([f"{line}\n" async for line in export_lines(items())])

    text = asyncio.run(lines())
    end = last_line(len(runs), hashlib.sha256(text.encode()).hexdigest())
    (tmp_path / "all.jsonl").write_text(f"{text}{end}\n")
    done = cli("store", "restore", "all.jsonl", "--store", STORES[0])
    assert done.code == 0, done.err
    out = cli("store", "export", "--store", STORES[0]).out
    found = [json.loads(line)["value"] for line in out.splitlines()[1:]]
    states = {each["id"]: (each["status"], each.get("reason", "")) for each in found}
    assert states == {"stops": ("canceled", "lost_after_start"), "repeats": ("queued", "")}
