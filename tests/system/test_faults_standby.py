"""PostgreSQL fail-over to a standby, split brain, and a full disk, while real nodes use it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.servers import start as start_server
from tests.servers.kinds import POSTGRES
from tests.servers.server import PrivateServer
from tests.system.conftest import Start
from tests.system.link import Link
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.servers import sql
from tests.system.standby import FOLLOWED, SmallDisk, Standby, promote
from tests.system.test_faults_operation import regressed
from tests.system.test_faults_ownership import TIMES
from tests.system.test_faults_server import (
    DRAFT,
    assert_every_slot_ran_once,
    create_ticking_schedules,
    retry_after,
    wait_for_more_calls,
)

# Generous: real processes share two cores with other tests.
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

Connect = Callable[[str], Link]


@pytest.fixture
def primary() -> Iterator[PrivateServer]:
    with start_server(POSTGRES, durable=True, settings=FOLLOWED) as server:
        yield server


def same_database(server: PrivateServer, url: str) -> str:
    return server.kind.url(server.port, url.rsplit("/", 1)[1])


def is_replicating(server: PrivateServer) -> bool:
    rows = server.admin("SELECT state FROM pg_stat_replication")
    return [state for (state,) in rows] == ["streaming"]


def epoch(url: str) -> int:
    ((value,),) = sql(url, "SELECT value FROM store_facts WHERE name = 'epoch'")
    return int(value)


def test_failover_that_loses_commits_is_detected_and_slots_run_again(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    # Lost slots run again under the same ids.
    url = primary.new_database()
    way, stream = link(url), link(url)
    with start_server(Standby(stream.port), durable=True, settings=FOLLOWED) as standby:
        wait_until(lambda: is_replicating(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        ticks = create_ticking_schedules(nodes[0], receiver, 4)
        wait_for_more_calls(receiver)
        stream.set("cut")
        before = epoch(url)
        wait_until(lambda: epoch(url) >= before + 4, "both nodes to see commits that will be lost")
        primary.kill9()
        promote(standby)
        way.redirect_to(standby.url)
        for node in nodes:
            wait_until(
                lambda node=node: regressed(node), "the regression to be detected", within=60
            )
        wait_for_more_calls(receiver)
        assert nodes[0].get("/api/v1/audit?verb=regress")["items"]
        assert_every_slot_ran_once(nodes[0], ticks)
        ids: dict[tuple[str, str], set[str]] = {}
        repeats = 0
        for call in receiver.calls():
            slot = call.headers["x-chimes-schedule-id"], call.headers["x-chimes-slot"]
            repeats += slot in ids
            ids.setdefault(slot, set()).add(call.run_id)
        assert repeats, "commits were lost"
        assert all(len(found) == 1 for found in ids.values())
        for node in nodes:
            node.close()


def test_failover_to_a_synchronous_standby_loses_nothing(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    url = primary.new_database()
    way = link(url)
    with start_server(Standby(primary.port), durable=True, settings=FOLLOWED) as standby:
        primary.admin("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait_until(lambda: is_replicating(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        ticks = create_ticking_schedules(nodes[0], receiver, 4)
        wait_for_more_calls(receiver)
        acknowledged: list[str] = []
        stop = threading.Event()
        writer = threading.Thread(target=keep_creating, args=(nodes[1], acknowledged, stop))
        writer.start()
        wait_until(lambda: len(acknowledged) >= 20, "some to be acknowledged")
        primary.kill9()
        stop.set()
        writer.join(60)
        # A synchronous primary without a standby would block.
        standby.admin("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
        promote(standby)
        way.redirect_to(standby.url)
        wait_for_more_calls(receiver)
        there = sql(same_database(standby, url), "SELECT id FROM schedules")
        assert {each for (each,) in there} >= set(acknowledged)
        assert_every_slot_ran_once(nodes[0], ticks)
        assert not any(map(regressed, nodes))
        for node in nodes:
            node.close()


def keep_creating(node: Node, acknowledged: list[str], stop: threading.Event) -> None:
    for number in count():
        if stop.is_set():
            return
        answer = node.call("POST", "/api/v1/schedules", DRAFT | {"name": f"kept {number}"})
        if answer.status == 201:
            acknowledged.append(answer.json["id"])


def test_node_that_stayed_on_the_old_primary_drops_its_runs_when_it_switches(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    # Two nodes switch to the new primary, one stays. When it switches, it drops its runs, although
    # the new primary's epoch is higher than the one it knows.
    url = primary.new_database()
    way, old_way = link(url), link(url)
    with start_server(Standby(primary.port), durable=True, settings=FOLLOWED) as standby:
        wait_until(lambda: is_replicating(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        alone = start(old_way.url, **TIMES)
        ticks = create_ticking_schedules(nodes[0], receiver, 3)
        wait_for_more_calls(receiver)
        promote(standby)
        new_url = same_database(standby, url)
        way.redirect_to(standby.url)
        begun = epoch(new_url)
        wait_until(lambda: epoch(new_url) >= begun + 2, "both nodes to switch")
        behind = epoch(url)
        # The second check is later than any difference between the clocks of the two servers.
        wait_until(lambda: epoch(url) >= behind + 2, "the third node to check the old server")
        wait_until(lambda: epoch(new_url) > epoch(url) + 1, "the new one to be ahead", within=90)
        assert not regressed(alone)
        old_way.redirect_to(standby.url)
        wait_until(lambda: regressed(alone), "the regression to be detected", within=60)
        assert "failed over without this node" in alone.output
        primary.kill9()
        wait_for_more_calls(receiver)
        assert_every_slot_ran_once(nodes[0], ticks)
        for node in (*nodes, alone):
            node.close()


def can_mount() -> bool:
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
    )
    return tried.returncode == 0


@pytest.fixture
def small() -> Iterator[tuple[SmallDisk, PrivateServer]]:
    if not can_mount():
        pytest.skip("mounting a tmpfs is not permitted")
    kind = SmallDisk(160)
    try:
        with start_server(kind, durable=True) as server:
            yield kind, server
    finally:
        kind.remove()


def test_full_disk_answers_503_and_loses_nothing(
    small: tuple[SmallDisk, PrivateServer], start: Start, receiver: Receiver
) -> None:
    disk, server = small
    url = server.new_database()
    nodes = [start(url, **TIMES) for _ in range(2)]
    ticks = create_ticking_schedules(nodes[0], receiver, 3)
    wait_for_more_calls(receiver)
    acknowledged: list[str] = []
    assert shutil.disk_usage(disk.disk).free > 0
    disk.fill()
    heavy = DRAFT | {"target": DRAFT["target"] | {"body": "x" * 60_000}}  # type: ignore[operator]
    for number in range(300):
        answer = nodes[0].call("POST", "/api/v1/schedules", heavy | {"name": f"heavy {number}"})
        if answer.status != 201:
            break
        acknowledged.append(answer.json["id"])
    assert answer.status == 503, answer
    assert retry_after(answer) >= 1
    for node in nodes:
        assert node.call("GET", "/health").status == 200
    disk.empty()
    try:
        server.admin("SELECT 1")
    except OSError:
        server.restart("crash")
    for node in nodes:
        wait_until(lambda node=node: node.try_get("/ready"), "the node to be ready again")
    wait_for_more_calls(receiver)
    there = {each for (each,) in sql(url, "SELECT id FROM schedules")}
    assert there >= set(acknowledged)
    assert_every_slot_ran_once(nodes[0], ticks)
    for node in nodes:
        node.close()
