"""Two real nodes on PostgreSQL, drained in turn: no slot is lost or repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.conftest import Cli, Result, cli
from tests.servers import POSTGRES, shared
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import http, instant
from tests.system.test_faults_ownership import TIMES, all_ended

pytestmark = pytest.mark.timeout(300)
__all__ = ["cli"]


@pytest.fixture
def postgres() -> Iterator[str]:
    server = shared(POSTGRES)
    url = server.new_database()
    yield url
    server.drop_database(url)


def nodes(node: Node) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in node.call("GET", "/api/v1/nodes").json["items"]}


def node_states(answer: Result) -> dict[str, str]:
    return {each["id"]: each["state"] for each in json.loads(answer.out)}


def id_of(node: Node) -> str:
    (found,) = [name for name in nodes(node) if f"-{node.pid}-" in name]
    return found


def wait_for_state(node: Node, name: str, state: str) -> None:
    wait_until(lambda: nodes(node)[name]["state"] == state, f"{name} to be {state}")


@pytest.mark.long
def test_drained_node_leaves_all_slots_to_the_other(
    postgres: str, start: Start, receiver: Receiver, cli: Cli
) -> None:
    first, second = start(postgres, **TIMES), start(postgres, **TIMES)
    names = id_of(first), id_of(second)
    made = first.create(
        name="often",
        trigger={"kind": "every", "every": "1s"},
        target=http(receiver.url("/slot")),
        policy={"overlap": "allow"},
    )
    receiver.wait_for("/slot", 3)
    # The request goes to the other node: the store passes it on.
    at = {"CHIMES_URL": f"http://127.0.0.1:{second.port}"}
    asked = cli("drain", names[0], "--reason", "kernel", "--wait", "--timeout", "60s", **at)
    assert (asked.code, asked.rows[0][1]) == (0, "drained"), asked
    before = len(receiver.calls("/slot"))
    receiver.wait_for("/slot", before + 4)
    # The drained node still answers and keeps its lease.
    assert first.try_get("/ready") is not None
    runs = second.runs(made["id"])
    late = sorted(runs, key=lambda run: instant(run["planned_at"]))[-3:]
    assert {each["node"] for run in late for each in run["attempts"]} == {names[1]}
    refused = cli("node", "forget", names[0], **at)
    assert refused.code == 5

    assert cli("node", "resume", names[0], **at).rows[0][1] == "alive"
    wait_for_state(second, names[0], "alive")
    # Drain the other node, so that the first one takes over again.
    assert cli("drain", names[1], "--wait", "--timeout", "60s", **at).rows[0][1] == "drained"
    before = len(receiver.calls("/slot"))
    receiver.wait_for("/slot", before + 3)
    first.call("POST", f"/api/v1/schedules/{made['id']}/pause")
    rows = wait_until(lambda: all_ended(first, made["id"]), "every run to end")
    slots = sorted(instant(row["slot"]) for row in rows)
    assert {(b - a).total_seconds() for a, b in pairwise(slots)} == {1.0}
    assert {(row["status"], row["attempt"]) for row in rows} == {("succeeded", 1)}
    assert set(Counter(call.run_id for call in receiver.calls("/slot")).values()) == {1}

    # Killed nodes stay listed as gone until an operator removes them.
    first.kill()
    second.kill()
    there = {"CHIMES_STORE": postgres}
    states = {names[0]: "gone", names[1]: "gone"}
    wait_until(lambda: node_states(cli("nodes", "--json=id,state", **there)) == states, "their end")
    assert cli("node", "forget", names[1], "--yes", **there).code == 0
    assert cli("node", "forget", names[1], "--yes", **there).code == 3
    assert set(node_states(cli("nodes", "--json=id,state", **there))) == {names[0]}
    trail = json.loads(cli("audit", "--json=verb,object_kind", **there).out)
    verbs = [each["verb"] for each in trail if each["object_kind"] == "node"]
    assert verbs == ["forget", "drain", "resume", "drain"]
