"""Two versions on one store: a rolling upgrade, and a downgrade that is refused."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import redis

from tests.forking import run_chimes
from tests.servers.redis_places import empty_redis_url
from tests.system.conftest import Start
from tests.system.next_version import NEXT
from tests.system.node import Node
from tests.system.receiver import Receiver
from tests.system.servers import sql
from tests.system.test_faults_ownership import TIMES
from tests.system.test_faults_server import (
    assert_every_slot_ran_once,
    create_ticking_schedules,
    wait_for_more_calls,
)

pytestmark = pytest.mark.timeout(300)
NEXT_VERSION = "tests.system.next_version"
COMMANDS = (["serve", "--port", "0"], ["store", "migrate"])


def test_nodes_of_two_versions_work_side_by_side(
    server_url: str, start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    """The order of the guide: migrate, then replace one node after the other."""
    old = start(server_url, **TIMES)
    ticks = create_ticking_schedules(old, receiver, 3)
    wait_for_more_calls(receiver, calls=2)
    migrated = run_chimes(
        ["store", "migrate", "--store", server_url], cwd=tmp_path, module=NEXT_VERSION
    )
    assert migrated.returncode == 0, migrated.stderr
    assert f"to {NEXT}" in migrated.stderr
    sql(server_url, "SELECT novelty FROM cursors")
    wait_for_more_calls(receiver, calls=2)
    new = Node(server_url, tmp_path / "home", **TIMES)
    new.module = NEXT_VERSION
    try:
        new.start()
        wait_for_more_calls(receiver)
        nodes = new.get("/api/v1/nodes")["items"]
        assert {str(each.pid) for each in (old, new)} == {
            node["id"].split("-")[-2] for node in nodes
        }
        # Back to the older version: the change is compatible, so its node may start.
        again = start(server_url, **TIMES)
        assert "still works with it" in again.output
        assert old.stop() == 0
        assert again.stop() == 0
        wait_for_more_calls(receiver)
        assert_every_slot_ran_once(new, ticks)
    finally:
        new.close()


def test_sqlite_file_of_the_next_version_is_refused_unchanged(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/one.db", tmp_path / "one.db"
    for module in ("chimes.cli", NEXT_VERSION):
        done = run_chimes(["store", "migrate", "--store", url], cwd=tmp_path, module=module)
        assert done.returncode == 0, done.stderr

    def contents() -> list[str]:
        connection = sqlite3.connect(path)
        try:
            return list(connection.iterdump())
        finally:
            connection.close()

    before = contents()
    for command in COMMANDS:
        refused = run_chimes([*command, "--store", url], cwd=tmp_path)
        assert refused.returncode == 9, refused.stderr
        assert f"has schema {NEXT}" in refused.stderr
    assert contents() == before


def test_json_file_of_the_next_version_is_refused_unchanged(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = json.dumps({"version": 2, "jobs": [{"of": "the future"}]})
    (tmp_path / "data/jobs.json").write_text(text)
    for command in COMMANDS:
        refused = run_chimes([*command, "--store", "json:///data"], cwd=tmp_path)
        assert refused.returncode == 9, refused.stderr
        assert "update Chimes" in refused.stderr
    assert (tmp_path / "data/jobs.json").read_text() == text
    assert not (tmp_path / "data/jobs.bad.json").exists()


def test_redis_store_of_the_next_version_is_refused_unchanged(tmp_path: Path) -> None:
    url = empty_redis_url()
    made = run_chimes(["store", "init", "--store", url], cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address, decode_responses=True) as client:
        client.hset(f"{prefix}chimes:store", "layout", "3")
        before = {key: client.dump(key) for key in client.keys(f"{prefix}*")}
        for command in COMMANDS:
            refused = run_chimes([*command, "--store", url], cwd=tmp_path)
            assert refused.returncode == 9, refused.stderr
            assert "is 3" in refused.stderr
            assert "update Chimes" in refused.stderr
        assert {key: client.dump(key) for key in client.keys(f"{prefix}*")} == before
