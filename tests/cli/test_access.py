"""`key` and `audit`, with and without a server."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from chimes.services.audit import prune_audit
from chimes.store.sql import open_sqlite
from tests.cli.conftest import Cli, Server
from tests.system.node import wait_until

FAR = ("0 9 * * *", "--http", "http://127.0.0.1:9/", "--name", "report")


@pytest.mark.parametrize("role", ["admin", "operator", "member", "viewer"])
def test_a_key_needs_no_name_and_no_node(cli: Cli, role: str) -> None:
    made = cli("key", "create", "--role", role, "--owner", "user:anna")
    assert made.code == 0
    assert made.out.strip().startswith("chm_")
    assert len(made.out.split()) == 1
    [row] = json.loads(cli("key", "list", "--json").out)
    assert (row["name"], row["role"]) == (f"{role} for user:anna", role)
    assert row["owner"] == {"type": "user", "id": "anna"}


def test_invalid_owner_is_rejected(cli: Cli) -> None:
    found = cli("key", "create", "--owner", "robot:x")
    assert found.code != 0
    assert "'user', 'chat' or 'system'" in found.err


def test_scopes_restrict_a_key(cli: Cli) -> None:
    made = cli("key", "create", "--scope", "agent", "--scope", "agent_schedules", "--json")
    assert json.loads(made.out)["scopes"] == ["agent", "agent_schedules"]
    wider = cli("key", "create", "--role", "viewer", "--scope", "write")
    assert wider.code == 6
    assert "the role viewer does not include write" in wider.err
    assert cli("key", "create", "--scope", "everything").code == 2


def test_the_audit_is_listed_and_verified(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chimes.db'}"
    made = cli("add", *FAR, CHIMES_STORE=url)
    assert made.code == 0, made.err
    assert cli("key", "create", "--role", "admin", CHIMES_STORE=url).code == 0
    listed = cli("audit", CHIMES_STORE=url)
    assert [row[2] for row in listed.rows] == ["create_key", "create"]
    assert [row[2] for row in cli("audit", "--verb", "create", CHIMES_STORE=url).rows] == ["create"]
    assert cli("audit", "--interface", "telegram", CHIMES_STORE=url).rows == []
    whole = json.loads(cli("audit", "--json", CHIMES_STORE=url).out)
    assert {"verb", "actor", "interface", "at", "hash", "prev_hash"} <= set(whole[0])
    assert whole[0]["prev_hash"] == whole[1]["hash"]
    good = cli("audit", "--verify", CHIMES_STORE=url)
    assert (good.code, good.out.strip()) == (0, "ok: 2 entries")
    with sqlite3.connect(tmp_path / "chimes.db") as database:
        changed = database.execute("UPDATE audit SET verb = 'invent' WHERE number = 1")
        assert changed.rowcount == 1
    database.close()
    bad = cli("audit", "--verify", CHIMES_STORE=url)
    assert bad.code == 1
    assert "entry 1 does not match" in bad.err
    report = json.loads(cli("audit", "--verify", "--json", CHIMES_STORE=url).out)
    assert report == {
        "ok": False,
        "checked": 2,
        "first_bad": 1,
        "checkpoint": "none",
        "pruned_until": None,
        "pruned_at": None,
        "pruned": 0,
    }


def test_pruned_audit_is_verified_from_its_checkpoint(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chimes.db'}"
    key = "a key of thirty-two characters.."
    assert cli("key", "create", "--role", "admin", CHIMES_STORE=url).code == 0
    assert cli("key", "create", "--role", "admin", CHIMES_STORE=url).code == 0

    async def prune() -> int:
        store = open_sqlite(tmp_path / "chimes.db")
        await store.open()
        try:
            return await prune_audit(store, key, before=await store.now(), limit=1)
        finally:
            await store.close()

    assert asyncio.run(prune()) == 1
    good = cli("audit", "--verify", CHIMES_STORE=url, CHIMES_AUDIT_KEY=key)
    assert (good.code, good.out.splitlines()) == (
        0,
        [
            "ok: 2 entries",
            "Older entries, up to number 1, were pruned; their signed checkpoint is valid.",
        ],
    )
    listed = cli("audit", CHIMES_STORE=url)
    assert [row[2] for row in listed.rows] == ["prune_audit", "create_key"]
    unchecked = cli("audit", "--verify", CHIMES_STORE=url)
    assert unchecked.code == 1
    assert "CHIMES_AUDIT_KEY" in unchecked.err
    wrong = cli("audit", "--verify", CHIMES_STORE=url, CHIMES_AUDIT_KEY=key.upper())
    assert wrong.code == 1
    assert "signature of their checkpoint is wrong" in wrong.err
    given = {"CHIMES_STORE": url, "CHIMES_AUDIT_KEY": key}
    report = json.loads(cli("audit", "--verify", "--json", **given).out)
    assert (report["ok"], report["checkpoint"]) == (True, "valid")
    assert (report["pruned_until"], report["pruned"]) == (1, 1)


def test_first_key_ends_open_mode_of_a_running_node(cli: Cli, tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        assert status(server) == 200
        # Directly on the store of the server.
        elsewhere = {"CHIMES_DATA_DIR": "data", "CHIMES_PORT": "1"}
        made = cli("key", "create", "--role", "admin", **elsewhere)
        assert made.code == 0, made.err
        assert "directly" in made.err
        # A node caches for 0.2 s that there are no keys.
        wait_until(lambda: status(server) == 401, "the node to require a key")
        assert status(server, made.out.strip()) == 200
    finally:
        assert server.stop() == 0


def status(server: Server, key: str = "") -> int:
    headers = {"X-API-Key": key} if key else {}
    request = urllib.request.Request(f"{server.url}/api/v1/schedules", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: int = answer.status
            return found
    except HTTPError as error:
        error.close()
        return error.code
