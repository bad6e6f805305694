"""A database server that restarts, loses answers, is slow, unreachable or read-only while real
nodes use it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from chimes.store.sql.database.server import OVERFLOW, RETRY_SECONDS, SIZE
from chimes.web.middleware import REQUEST_SECONDS
from tests.servers import KINDS
from tests.servers import start as start_server
from tests.servers.server import PrivateServer
from tests.system.conftest import Start
from tests.system.link import Link
from tests.system.node import Answer, Node, wait_until
from tests.system.receiver import Receiver
from tests.system.servers import cut_connections, hold_row_lock
from tests.system.test_callbacks import http, instant
from tests.system.test_faults_ownership import (
    LEASE,
    TIMES,
    all_ended,
    start_manual_run,
    with_failpoints,
)

# Generous: real processes share two cores with other tests.
pytestmark = pytest.mark.timeout(300)

Connect = Callable[[str], Link]


@pytest.fixture(params=["postgres", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[PrivateServer]:
    """A private server with durable settings."""
    with start_server(KINDS[request.param], durable=True) as server:
        yield server


def create_ticking_schedules(
    node: Node, receiver: Receiver, how_many: int, every: str = "1s"
) -> list[str]:
    return [
        node.create(
            name=f"tick {number}",
            trigger={"kind": "every", "every": every},
            target=http(receiver.url(f"/tick{number}")),
            policy={"overlap": "allow", "misfire": "all", "max_retries": 0},
        )["id"]
        for number in range(how_many)
    ]


def wait_for_more_calls(receiver: Receiver, path: str = "/tick0", calls: int = 3) -> None:
    receiver.wait_for(path, len(receiver.calls(path)) + calls)


def assert_every_slot_ran_once(node: Node, schedules: list[str], step: float = 1.0) -> None:
    """Pauses the schedules and asserts one succeeded run for every slot since the first."""
    for schedule_id in schedules:
        done = node.call("POST", f"/api/v1/schedules/{schedule_id}/pause")
        assert done.status == 200, done
    for schedule_id in schedules:
        rows = wait_until(
            lambda each=schedule_id: all_ended(node, each), "every run to end", within=60
        )
        slots = sorted(instant(row["slot"]) for row in rows)
        assert {(b - a).total_seconds() for a, b in pairwise(slots)} == {step}
        assert {row["status"] for row in rows} == {"succeeded"}


def timed_call(node: Node, method: str, path: str, body: object = None) -> tuple[float, Answer]:
    began = time.monotonic()
    answer = node.call(method, path, body)
    return time.monotonic() - began, answer


def retry_after(answer: Answer) -> int:
    return int({name.lower(): value for name, value in answer.headers.items()}["retry-after"])


DRAFT = {
    "name": "more",
    "trigger": {"kind": "cron", "expression": "0 0 1 1 *"},
    "target": {"kind": "http", "url": "http://127.0.0.1:9/"},
}


@pytest.mark.parametrize("how", [pytest.param("fast", marks=pytest.mark.long), "crash"])
def test_nodes_survive_a_server_restart(
    own_server: PrivateServer, start: Start, receiver: Receiver, how: str
) -> None:
    url = own_server.new_database()
    nodes = [start(url, **TIMES) for _ in range(2)]
    ticks = create_ticking_schedules(nodes[0], receiver, 5)
    made = {nodes[n % 2].create(**DRAFT | {"name": f"kept {n}"})["id"] for n in range(20)}
    wait_for_more_calls(receiver)
    if how == "fast":
        own_server.shut_down()
    else:
        own_server.kill9()
    refused = [timed_call(node, "POST", "/api/v1/schedules", DRAFT) for node in nodes for _ in "ab"]
    for _, answer in refused:
        assert answer.status == 503
        assert retry_after(answer) >= 1
    assert min(took for took, _ in refused) < RETRY_SECONDS, "does not wait for the server"
    assert max(took for took, _ in refused) < REQUEST_SECONDS, refused
    for node in nodes:
        assert node.call("GET", "/health").status == 200
        assert node.call("GET", "/ready").status == 503
    own_server.restart()
    wait_for_more_calls(receiver)
    for node in nodes:
        wait_until(lambda node=node: node.try_get("/ready"), "the node to be ready again")
        listed = node.get("/api/v1/schedules?limit=200")["items"]
        assert made <= {each["id"] for each in listed}, "acknowledged rows are back"
    assert_every_slot_ran_once(nodes[0], ticks)


def test_node_started_without_the_server_waits_for_it(
    own_server: PrivateServer, tmp_path: Path
) -> None:
    node = Node(own_server.new_database(), tmp_path / "home", **TIMES)
    own_server.shut_down()
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(node.start)
        try:
            wait_until(
                lambda: "the store is unavailable; retrying" in node.output or starting.done(),
                "its log line",
            )
            own_server.restart()
            starting.result(60)
            assert node.get("/api/v1/nodes")["items"]
            assert node.stop() == 0
        finally:
            node.close()


@pytest.mark.long
def test_terminated_connections_lose_no_slot(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    nodes = [start(server_url, **TIMES) for _ in range(2)]
    ticks = create_ticking_schedules(nodes[0], receiver, 10)
    wait_for_more_calls(receiver)
    cut = 0
    for _ in range(6):
        cut += cut_connections(server_url)
        wait_for_more_calls(receiver, calls=1)
    assert cut >= 6
    assert_every_slot_ran_once(nodes[1], ticks)


def test_lost_answers_to_commits_duplicate_nothing(
    server_url: str, start: Start, receiver: Receiver, link: Connect
) -> None:
    # Claims, completions and creations happen once.
    way = link(server_url)
    node = start(way.url, **TIMES)
    ticks = create_ticking_schedules(node, receiver, 5)
    wait_for_more_calls(receiver, calls=1)
    made: list[str] = []
    numbers = count()
    while way.ambiguous < 12:
        way.set("ambiguous")
        number = next(numbers)
        body = DRAFT | {"id": f"made-{number}", "name": f"made {number}"}
        made.append(body["id"])
        wait_until(lambda body=body: create_repeatedly(node, body), "the create to be resolved")
    wait_for_more_calls(receiver)
    way.set("pass")
    listed = node.get("/api/v1/schedules?limit=200")["items"]
    assert sorted(each["id"] for each in listed if each["name"].startswith("made")) == sorted(made)
    assert_every_slot_ran_once(node, ticks)


def create_repeatedly(node: Node, body: dict[str, Any]) -> bool:
    """Creates with an idempotency key, then again by the client's id: at most one schedule."""
    first = node.call("POST", "/api/v1/schedules", body, {"Idempotency-Key": body["id"]})
    assert first.status in (201, 409, 503), first
    again = first if first.status == 201 else node.call("POST", "/api/v1/schedules", body)
    assert again.status in (201, 409, 503), again
    return again.status in (201, 409)


@pytest.mark.long
def test_node_cut_off_from_the_store_makes_no_call_after_its_lease(
    server_url: str, start: Start, receiver: Receiver, link: Connect
) -> None:
    way = link(server_url)
    alone = start(way.url, **TIMES)
    ticks = create_ticking_schedules(alone, receiver, 10)
    wait_for_more_calls(receiver)
    other = start(server_url, **TIMES)
    way.set("blackhole")
    dark = time.time()
    wait_until(lambda: "lease lost" in alone.output, "the lease to be lost")
    wait_for_more_calls(receiver, calls=int(3 * LEASE))
    way.set("pass")
    wait_until(lambda: alone.output.count("node joined") >= 2, "the node to rejoin")
    wait_for_more_calls(receiver)
    assert_every_slot_ran_once(other, ticks)
    mine = {
        (run["id"], attempt["fence"])
        for each in ticks
        for run in other.runs(each)
        for attempt in run["attempts"]
        if attempt["node"] == first_node_id(alone)
    }
    assert mine, "it ran some before"
    for call in receiver.calls():
        if (call.run_id, int(call.headers["x-chimes-fence"])) in mine:
            # A busy machine may take a while from the check of the lease to the call.
            assert call.at <= dark + 2 * LEASE, "a call after the lease"


def first_node_id(node: Node) -> str:
    joined = next(line for line in node.output.splitlines() if '"node joined"' in line)
    name: str = json.loads(joined)["node"]
    return name


@pytest.mark.long
def test_slow_store_loses_no_lease(
    server_url: str, start: Start, receiver: Receiver, link: Connect
) -> None:
    # Every answer is 0.28 s late, with the default lease.
    way = link(server_url)
    node = start(way.url)
    way.set("delay", 0.14)
    schedule_id, _ = start_manual_run(node, receiver.url("/late"))
    (call,) = receiver.wait_for("/late", 1)
    (run,) = node.ended(schedule_id)
    way.set("pass")
    assert (run["status"], run["id"]) == ("succeeded", call.run_id)
    assert "lease lost" not in node.output


@pytest.mark.long
def test_store_slower_than_the_lease_margin_prevents_new_calls(
    server_url: str, start: Start, receiver: Receiver, link: Connect
) -> None:
    # A node without a provable lease starts nothing, and recovers by itself.
    way = link(server_url)
    node = start(way.url, **TIMES)
    ticks = create_ticking_schedules(node, receiver, 2)
    wait_for_more_calls(receiver)
    way.set("delay", 1.0)
    wait_until(lambda: "lease lost" in node.output, "the lease to be lost")
    lost = time.time()
    time.sleep(3 * LEASE)  # the slow period
    healed = time.time()
    way.set("pass")
    wait_for_more_calls(receiver)
    assert not [call for call in receiver.calls() if lost + LEASE < call.at < healed]
    assert_every_slot_ran_once(node, ticks)


@pytest.mark.long
def test_row_locks_of_a_suspended_node_are_released(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # The node is suspended inside a transaction, which the session timeout ends.
    steady = start(server_url, **TIMES)
    ticks = create_ticking_schedules(steady, receiver, 3)
    wait_for_more_calls(receiver)
    sleeper = start(server_url, **with_failpoints("fire.before_commit@2:stop:150"))
    wait_until(lambda: sleeper.suspended, "the node to be suspended")
    wanted = {path: len(receiver.calls(path)) + 14 for path in ("/tick0", "/tick1", "/tick2")}
    for path, calls in wanted.items():
        receiver.wait_for(path, calls)
    assert sleeper.suspended, "suspended the whole time"
    sleeper.kill()
    assert_every_slot_ran_once(steady, ticks)


def test_change_that_waited_for_a_row_lock_is_dated_after_the_wait(
    server_url: str, start: Start
) -> None:
    # Slots fired while it waited belong to the previous version.
    node = start(server_url, **TIMES)
    made = node.create(**DRAFT)
    held = threading.Event()
    other = threading.Thread(target=hold_row_lock, args=(server_url, made["id"], 2.0, held))
    before = time.time()
    other.start()
    assert held.wait(30)
    answer = node.call("POST", f"/api/v1/schedules/{made['id']}/pause")
    other.join()
    assert answer.status == 200, answer
    # The row was locked until then.
    assert instant(answer.json["updated_at"]).timestamp() >= before + 1.9


READ_ONLY = {
    "postgres": (
        ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"),
        ("ALTER SYSTEM SET default_transaction_read_only = off", "SELECT pg_reload_conf()"),
    ),
    "mariadb": (("SET GLOBAL read_only = 1",), ("SET GLOBAL read_only = 0",)),
}


def test_read_only_store_answers_503_and_recovers(
    own_server: PrivateServer, start: Start, receiver: Receiver
) -> None:
    url = own_server.new_database()
    node = start(url, **TIMES)
    ticks = create_ticking_schedules(node, receiver, 2)
    wait_for_more_calls(receiver)
    on, off = READ_ONLY[own_server.kind.name]
    own_server.admin(*on)
    refused = wait_until(lambda: refused_write(node), "a write to be refused")
    assert refused.json["code"] == "store_read_only"
    assert retry_after(refused) >= 1
    assert node.call("GET", "/api/v1/schedules").status == 200
    assert node.call("GET", "/health").status == 200
    wait_until(lambda: node.call("GET", "/ready").status == 503, "it to say that it is not ready")
    own_server.admin(*off)
    wait_for_more_calls(receiver)
    wait_until(lambda: node.try_get("/ready"), "it to be ready again")
    assert_every_slot_ran_once(node, ticks)


def refused_write(node: Node) -> Answer | None:
    answer = node.call("POST", "/api/v1/schedules", DRAFT)
    return answer if answer.status == 503 else None


LIMITED = {"postgres": "18", "mariadb": "15"}
SESSIONS = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE usename = 'chimes'",
    "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE user = 'chimes'",
}
#: Of one node at most, with heartbeat and wake-up channel.
CONNECTIONS = SIZE + OVERFLOW + 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_heartbeats_continue_when_connections_run_out(
    kind: str, start: Start, receiver: Receiver
) -> None:
    settings = {"max_connections": LIMITED[kind]}
    with start_server(KINDS[kind], durable=True, settings=settings) as server:
        url = server.new_database()
        # Long enough that only starvation, not a busy machine, loses the lease.
        lease = {"CHIMES_LEASE": "12s", "CHIMES_HEARTBEAT": "1s", "CHIMES_POLL_INTERVAL": "200ms"}
        nodes = [start(url, **lease) for _ in range(2)]
        ticks = create_ticking_schedules(nodes[0], receiver, 3)
        wait_for_more_calls(receiver)
        with ThreadPoolExecutor(40) as pool:
            asked = [
                pool.submit(node.call, "GET", "/api/v1/runs?limit=200")
                for _ in range(60)
                for node in nodes
            ]
            found = {each.result().status for each in asked}
        assert found <= {200, 503}
        wait_for_more_calls(receiver)
        for node in nodes:
            assert "lease lost" not in node.output
        # Two nodes keep more connections than there are, so that a request may still be refused.
        assert nodes[1].stop() == 0
        wait_until(lambda: server.admin(SESSIONS[kind])[0][0] <= CONNECTIONS, "free connections")
        assert_every_slot_ran_once(nodes[0], ticks)
        nodes[0].stop()
