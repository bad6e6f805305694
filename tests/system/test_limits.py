"""Named limits and automatic pauses on two real nodes that share a store, also under `kill -9`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import KINDS, shared
from tests.servers.copies import copied_database
from tests.servers.redis_places import empty_redis_url
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Received, Receiver
from tests.system.test_callbacks import http
from tests.system.test_crashes import SHORT_LEASE

#: On Redis a node starts after half a lease.
STEADY = SHORT_LEASE | {"CHIMES_LEASE": "10s"}


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "redis"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that several processes can open."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'chimes.db'}"
        case "redis":
            yield empty_redis_url()
        case kind:
            server = shared(KINDS[kind])
            url = copied_database() if kind == "postgres" else server.new_database()
            yield url
            server.drop_database(url)


def set_limit(node: Node, **values: object) -> None:
    answer = node.call("PUT", "/api/v1/limits/api", values)
    assert answer.status == 200, answer.text


def start_runs(node: Node, url: str, count: int) -> list[str]:
    """Runs without a schedule under the limit."""
    body = {"target": http(url), "policy": {"limits": ["api"], "timeout": "10m"}}
    answers = [node.call("POST", "/api/v1/runs", body) for _number in range(count)]
    assert {answer.status for answer in answers} <= {201, 202}, answers[0].text
    return [answer.json["id"] for answer in answers]


def ended(node: Node, ids: list[str]) -> list[dict[str, object]]:
    def runs() -> list[dict[str, object]]:
        return [node.call("GET", f"/api/v1/runs/{run_id}").json for run_id in ids]

    final = ("succeeded", "failed", "timeout", "canceled", "unknown")
    wait_until(lambda: all(run["status"] in final for run in runs()), "the runs", 120)
    return runs()


class Active:
    """Counts the calls that the receiver is answering; those of `ignored` runs do not count."""

    def __init__(self, receiver: Receiver, path: str, *, hanging: int) -> None:
        self._lock = threading.Lock()
        self.count = self.most = 0
        self._hanging = hanging
        self._receiver = receiver
        receiver._behaviours[path] = self._behave
        self.url = receiver.url(path)

    def _behave(self, _call: Received, before: int) -> tuple[int, dict[str, str], float]:
        if before < self._hanging:
            return 200, {}, 600.0
        with self._lock:
            self.count += 1
            self.most = max(self.most, self.count)
        threading.Event().wait(0.2)
        with self._lock:
            self.count -= 1
        return 200, {}, 0.0


def test_a_killed_node_leaves_no_permit_behind(
    shared_url: str, start: Start, receiver: Receiver
) -> None:
    victim = start(shared_url, **SHORT_LEASE)
    set_limit(victim, concurrency=3)
    active = Active(receiver, "/limited", hanging=3)
    first = start_runs(victim, active.url, 3)
    receiver.wait_for("/limited", 3)
    survivor = start(shared_url, **STEADY)
    others = start_runs(survivor, active.url, 9)
    wait_until(
        lambda: any(
            survivor.call("GET", f"/api/v1/runs/{each}").json["reason"] == "limit:api"
            or survivor.call("GET", "/api/v1/limits/api").json["use"]["waiting"]
            for each in others
        ),
        "a run that waits",
    )
    assert len(receiver.calls("/limited")) == 3
    assert survivor.call("GET", "/api/v1/limits/api").json["use"]["running"] == 3
    victim.kill()
    runs = ended(survivor, [*first, *others])
    assert {run["status"] for run in runs} == {"succeeded"}
    attempts = {run["id"]: run["attempt"] for run in runs}
    assert {attempts[each] for each in first} == {2}
    # Runs that waited on the victim count as lost, too: nobody knows that they had not started.
    assert {attempts[each] for each in others} <= {1, 2}
    assert len(receiver.calls("/limited")) == 3 + 12
    assert active.most == 3
    wait_until(
        lambda: survivor.call("GET", "/api/v1/limits/api").json["use"]["running"] == 0,
        "the permits",
    )


@pytest.mark.long
def test_two_nodes_keep_a_rate_at_the_receiver(
    shared_url: str, start: Start, receiver: Receiver
) -> None:
    rate, burst, count = 10, 5, 50
    nodes = [start(shared_url, **STEADY), start(shared_url, **STEADY)]
    set_limit(nodes[0], rate=f"{rate}/s", burst=burst)
    url, begun = receiver.url("/rate"), time.time()
    ids = [each for node in nodes for each in start_runs(node, url, count // 2)]
    runs = ended(nodes[0], ids)
    assert {(run["status"], run["attempt"]) for run in runs} == {("succeeded", 1)}
    calls = sorted(call.at for call in receiver.calls("/rate"))
    assert len(calls) == count
    # From the start, not between two calls: on a busy machine calls arrive late, in a burst, but
    # none is made before it has a token. The nodes know the time of the store only about.
    for made, at in enumerate(calls, 1):
        assert made <= burst + rate * (at - begun + 1.0), (made, at - begun)


@pytest.mark.long
def test_failures_on_two_nodes_pause_a_schedule_once(
    shared_url: str, start: Start, receiver: Receiver
) -> None:
    nodes = [start(shared_url, **STEADY), start(shared_url, **STEADY)]
    made = nodes[0].create(
        name="failing",
        trigger={"kind": "every", "every": "200ms"},
        target=http(receiver.answer("/failing", 500)),
        policy={"overlap": "allow", "auto_pause_after": 3, "max_retries": 0},
    )
    path = f"/api/v1/schedules/{made['id']}"
    wait_until(lambda: not nodes[1].call("GET", path).json["enabled"], "the pause")
    shown = nodes[0].call("GET", path).json
    assert shown["pause"]["note"] == "paused after 3 failures in a row"
    wait_until(lambda: nodes[0].call("GET", "/api/v1/inbox").json["items"], "the message")
    audit = nodes[0].call("GET", f"/api/v1/audit?object_id={made['id']}&verb=pause").json
    assert [(each["actor"], each["reason"]) for each in audit["items"]] == [
        ("chimes", "paused after 3 failures in a row")
    ]
    titles = [each["title"] for each in nodes[0].call("GET", "/api/v1/inbox").json["items"]]
    assert titles == ["failing: paused after failures in a row"]
    calls = len(receiver.calls("/failing"))
    # It goes on after it is resumed, and pauses once more.
    assert nodes[1].call("POST", f"{path}/resume").status == 200
    wait_until(lambda: not nodes[1].call("GET", path).json["enabled"], "the second pause")
    assert len(receiver.calls("/failing")) >= calls + 3
