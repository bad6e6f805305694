"""A PostgreSQL that is replaced by its standby, goes on beside it, or has no room left, while real
nodes use it (RELIABILITY F28–F30, F32)."""

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
from tests.system.standby import FOLLOWED, SmallDisk, Standby, promoted
from tests.system.test_faults_operation import regressed
from tests.system.test_faults_ownership import TIMES
from tests.system.test_faults_server import DRAFT, every_slot_once, goes_on, retry_after, ticking

# Far longer than it takes: real processes share two cores with other tests.
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

Connect = Callable[[str], Link]


@pytest.fixture
def primary() -> Iterator[PrivateServer]:
    with start_server(POSTGRES, durable=True, settings=FOLLOWED) as server:
        yield server


def same_database(server: PrivateServer, url: str) -> str:
    return server.kind.url(server.port, url.rsplit("/", 1)[1])


def followed(server: PrivateServer) -> bool:
    rows = server.admin("SELECT state FROM pg_stat_replication")
    return [state for (state,) in rows] == ["streaming"]


def epoch(url: str) -> int:
    ((value,),) = sql(url, "SELECT value FROM store_facts WHERE name = 'epoch'")
    return int(value)


def test_a_standby_that_lacks_the_last_commits(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    # F28: slots that come back un-run are run again under the same ids, and everybody is told
    url = primary.new_database()
    way, stream = link(url), link(url)
    with start_server(Standby(stream.port), durable=True, settings=FOLLOWED) as standby:
        wait_until(lambda: followed(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        ticks = ticking(nodes[0], receiver, 4)
        goes_on(receiver)
        stream.set("cut")
        before = epoch(url)
        wait_until(lambda: epoch(url) >= before + 4, "both to have seen what will be lost")
        primary.kill9()
        promoted(standby)
        way.lead_to(standby.url)
        for node in nodes:
            wait_until(lambda node=node: regressed(node), "it to be noticed", within=60)
        goes_on(receiver)
        assert nodes[0].get("/api/v1/audit?verb=regress")["items"]
        every_slot_once(nodes[0], ticks)
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


def test_a_standby_that_has_everything(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    # F29, I1, I2: what was acknowledged is there, and nobody lets anything go
    url = primary.new_database()
    way = link(url)
    with start_server(Standby(primary.port), durable=True, settings=FOLLOWED) as standby:
        primary.admin("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait_until(lambda: followed(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        ticks = ticking(nodes[0], receiver, 4)
        goes_on(receiver)
        acknowledged: list[str] = []
        stop = threading.Event()
        writer = threading.Thread(target=keep_creating, args=(nodes[1], acknowledged, stop))
        writer.start()
        wait_until(lambda: len(acknowledged) >= 20, "some to be acknowledged")
        primary.kill9()
        stop.set()
        writer.join(60)
        # As it would be with a third server: a leader without a standby waits for one.
        standby.admin("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
        promoted(standby)
        way.lead_to(standby.url)
        goes_on(receiver)
        there = sql(same_database(standby, url), "SELECT id FROM schedules")
        assert {each for (each,) in there} >= set(acknowledged)
        every_slot_once(nodes[0], ticks)
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


def test_a_node_that_stays_with_the_old_server(
    primary: PrivateServer, start: Start, receiver: Receiver, link: Connect
) -> None:
    # F30: two nodes went over and one did not; when it comes, it drops what it holds. The two have
    # raised the epoch further than the one, so its number alone would say that all is well.
    url = primary.new_database()
    way, old_way = link(url), link(url)
    with start_server(Standby(primary.port), durable=True, settings=FOLLOWED) as standby:
        wait_until(lambda: followed(primary), "the standby to follow")
        nodes = [start(way.url, **TIMES) for _ in range(2)]
        alone = start(old_way.url, **TIMES)
        ticks = ticking(nodes[0], receiver, 3)
        goes_on(receiver)
        promoted(standby)
        new_url = same_database(standby, url)
        way.lead_to(standby.url)
        begun = epoch(new_url)
        wait_until(lambda: epoch(new_url) >= begun + 2, "the two to be there")
        behind = epoch(url)
        # The second look comes later than the clocks of two servers may be apart.
        wait_until(lambda: epoch(url) >= behind + 2, "the one to look at the old server")
        wait_until(lambda: epoch(new_url) > epoch(url) + 1, "the new one to be ahead", within=90)
        assert not regressed(alone)
        old_way.lead_to(standby.url)
        wait_until(lambda: regressed(alone), "it to be noticed", within=60)
        assert "went on without this node" in alone.output
        primary.kill9()
        goes_on(receiver)
        every_slot_once(nodes[0], ticks)
        for node in (*nodes, alone):
            node.close()


def may_mount() -> bool:
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
    )
    return tried.returncode == 0


@pytest.fixture
def small() -> Iterator[tuple[SmallDisk, PrivateServer]]:
    if not may_mount():
        pytest.skip("a disk of one's own needs the right to mount")
    kind = SmallDisk(160)
    try:
        with start_server(kind, durable=True) as server:
            yield kind, server
    finally:
        kind.remove()


def test_a_disk_that_is_full(
    small: tuple[SmallDisk, PrivateServer], start: Start, receiver: Receiver
) -> None:
    # F32, I1, I3: writes are refused and not lost, and with the room everything comes back
    disk, server = small
    url = server.new_database()
    nodes = [start(url, **TIMES) for _ in range(2)]
    ticks = ticking(nodes[0], receiver, 3)
    goes_on(receiver)
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
    goes_on(receiver)
    there = {each for (each,) in sql(url, "SELECT id FROM schedules")}
    assert there >= set(acknowledged)
    every_slot_once(nodes[0], ticks)
    for node in nodes:
        node.close()
