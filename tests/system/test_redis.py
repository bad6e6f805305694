"""`chimes serve` on a real Redis server that is killed, flushed or restarted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.forking import run_chimes
from tests.servers.kinds import REDIS
from tests.servers.server import PrivateServer
from tests.servers.server import start as start_server
from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import ONCE_IN_A_YEAR, http, instant

SHORT_LEASE = {"CHIMES_LEASE": "2s", "CHIMES_POLL_INTERVAL": "200ms"}
OFTEN = {"kind": "every", "every": "500ms"}


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with start_server(REDIS, durable=True) as server:
        yield server


def chimes(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_chimes(words, cwd=home)


def test_every_slot_runs_once_while_nodes_and_server_are_killed(
    server: PrivateServer, start: Start, receiver: Receiver
) -> None:
    """One of two nodes and the server are killed repeatedly."""
    steady = start(server.url, **SHORT_LEASE | {"CHIMES_LEASE": "60s"})
    made = [
        steady.create(
            name=f"s{number}",
            trigger=OFTEN,
            target=http(receiver.url(f"/s{number}")),
            policy={"overlap": "allow"},
        )
        for number in range(5)
    ]
    for _ in range(2):
        victim = start(server.url, **SHORT_LEASE)
        receiver.wait_for("/s0", len(receiver.calls("/s0")) + 1)
        victim.kill()
        server.kill9()
        server.restart()
        receiver.wait_for("/s0", len(receiver.calls("/s0")) + 1)
    wait_until(lambda: steady.try_get("/ready"), "readiness")
    for schedule in made:
        path = f"/api/v1/schedules/{schedule['id']}/pause"
        wait_until(lambda path=path: steady.call("POST", path).status == 200, "the pause")
    for schedule in made:
        rows = wait_until(lambda id=schedule["id"]: _ended(steady.runs(id)), "the backlog")
        slots = sorted(instant(row["slot"]) for row in rows)
        steps = {(b - a).total_seconds() for a, b in pairwise(slots)}
        assert steps == {0.5}, "a slot is missing or doubled"
        assert {row["reason"] or row["status"] for row in rows} <= {"succeeded", "crash_limit"}
    seen: dict[str, set[str]] = {}
    for call in receiver.calls():
        seen.setdefault(f"{call.path} {call.headers['x-chimes-slot']}", set()).add(call.run_id)
    assert all(len(ids) == 1 for ids in seen.values())


def _ended(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [] if any(row["status"] in ("queued", "running") for row in rows) else rows


def test_flushed_server_is_detected_and_not_set_up_automatically(
    server: PrivateServer, start: Start, tmp_path: Path, receiver: Receiver
) -> None:
    node = start(server.url, CHIMES_DATA_DIR=str(tmp_path / "data"), **SHORT_LEASE)
    asked = {"trigger": ONCE_IN_A_YEAR, "target": http(receiver.url("/x"))}
    node.create(name="kept", **asked)
    server.admin("FLUSHALL")
    wait_until(lambda: node.call("GET", "/ready").status == 503, "the alarm")
    refused = node.call("POST", "/api/v1/schedules", {"name": "new", **asked})
    assert (refused.status, refused.json["code"]) == (503, "store_lost")
    assert node.call("GET", "/api/v1/schedules").status == 503, "no false green"
    assert "store_lost" in node.output
    assert server.admin("DBSIZE") == [(":0",)]

    # A restarted node does not take the empty server for a new store.
    options = ("--store", server.url, "--data-dir", str(tmp_path / "data"))
    started = chimes("serve", "--port", "0", *options, home=tmp_path)
    assert started.returncode == 9
    assert "chimes store init --force" in started.stderr
    again = chimes("store", "init", *options, home=tmp_path)
    assert again.returncode == 9

    # A node without local data cannot know and sets up a new store.
    stranger = start(server.url, CHIMES_DATA_DIR=str(tmp_path / "elsewhere"), **SHORT_LEASE)
    stranger.create(name="strange", **asked)
    wait_until(lambda: "holds another store than before" in node.output, "a look at it")
    assert node.call("GET", "/ready").status == 503
    assert node.call("GET", "/api/v1/schedules").status == 503, "no false green"
    started = chimes("serve", "--port", "0", *options, home=tmp_path)
    assert started.returncode == 9
    assert "holds another store than before" in started.stderr

    anew = chimes("store", "init", "--force", "--json", *options, home=tmp_path)
    assert anew.returncode == 0, anew.stderr
    wait_until(lambda: node.try_get("/ready"), "readiness after it was set up")
    wait_until(lambda: stranger.try_get("/ready"), "readiness of the other")
    assert [each["name"] for each in node.get("/api/v1/schedules")["items"]] == ["strange"]
    node.create(name="new", **asked)
    verbs = [entry["verb"] for entry in node.get("/api/v1/audit")["items"]]
    assert "regress" in verbs


def test_volatile_server_is_refused_with_exit_code_9(tmp_path: Path, start: Start) -> None:
    with start_server(REDIS, settings={"appendonly": "no"}) as server:
        refused = chimes("serve", "--port", "0", "--store", server.url, home=tmp_path)
        assert refused.returncode == 9
        assert "appendonly is off" in refused.stderr
        assert "--allow-volatile" in refused.stderr
        node = start(server.url, CHIMES_ALLOW_VOLATILE="true")
        assert "appendonly is off" in node.get("/api/v1/system")["store"]["degraded"]
        status = chimes("store", "status", "--allow-volatile", "--store", server.url, home=tmp_path)
        assert status.returncode == 0
        assert "redis" in status.stdout


def test_doctor_checks_redis_without_writing(server: PrivateServer, tmp_path: Path) -> None:
    found = chimes("doctor", "--store", server.url, home=tmp_path)
    assert "Redis 7" in found.stdout
    assert "acknowledged writes are on disk" in found.stdout
    assert server.admin("DBSIZE") == [(":0",)], "nothing was set up"
