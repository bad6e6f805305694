"""What operators and machines do to nodes on a shared server: wrong clocks, rolling restarts, other
versions, damaged rows (R2.10, RELIABILITY F50, F69, F70)."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chimes.store.sql.migrations import HEAD, SERVER_VERSIONS
from tests.forking import ran
from tests.servers.kinds import _binary, _postgres_binary
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.servers import quoted, sql
from tests.system.test_callbacks import http, instant
from tests.system.test_faults_ownership import (
    TIMES,
    all_ended,
    ends,
    failing_at,
    standing_by,
)
from tests.system.test_faults_server import every_slot_once, goes_on, ticking

# Far longer than it takes: real processes share two cores with other tests.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("offset", [3600, -3600])
def test_a_node_whose_clock_is_an_hour_off(
    server_url: str, start: Start, receiver: Receiver, offset: int
) -> None:
    # F50, I9, S42: nothing changes in firing, and the node's offset is there for all to see
    right = start(server_url, **TIMES)
    wrong = start(server_url, **TIMES, CHIMES_TEST_CLOCK=str(offset))
    ticks = ticking(wrong, receiver, 4)
    for number in range(4):
        receiver.wait_for(f"/tick{number}", 4)
    for call in receiver.calls():
        late = call.at - instant(call.headers["x-chimes-slot"]).timestamp()
        assert -0.05 <= late < 30, "by the store's clock"
        assert abs(int(call.headers["webhook-timestamp"]) - call.at) < 5

    def offsets() -> dict[str, float] | None:
        nodes = right.get("/api/v1/nodes")["items"]
        found = {node["id"].split("-")[-2]: node["clock_offset_seconds"] for node in nodes}
        return found if abs(found.get(str(wrong.pid), 0)) > 1 else None

    found = wait_until(offsets, "the offset to be shown")
    assert abs(found[str(wrong.pid)] - offset) < 10
    assert abs(found[str(right.pid)]) < 10
    wait_until(lambda: "clock differs" in wrong.output, "the warning")
    assert "lease lost" not in wrong.output + right.output
    every_slot_once(right, ticks)


def test_a_broken_row_stops_nobody_else(server_url: str, start: Start, receiver: Receiver) -> None:
    # R2.10: damaged behind the product's back, among good ones, and due
    node = start(server_url, **TIMES)
    good = ticking(node, receiver, 3)
    bad = [
        node.create(
            name=f"bad {number}",
            trigger={"kind": "cron", "expression": "0 0 1 1 *"},
            target=http(receiver.url("/bad")),
        )["id"]
        for number in range(3)
    ]
    receiver.wait_for("/tick0", 1)
    damages = {"trigger": '{"kind":"sundial"}', "target": "no JSON", "policy": '{"timeout":"soon"}'}
    now = int(time.time() * 1_000_000)
    sql(
        server_url,
        *(
            f"UPDATE schedules SET {quoted(server_url, name)} = '{value}', next_slot = {now},"
            f" next_run_at = {now} WHERE id = '{each}'"
            for each, (name, value) in zip(bad, damages.items(), strict=True)
        ),
    )

    def set_aside() -> bool:
        rows = sql(
            server_url,
            "SELECT id, last_error FROM schedules WHERE next_run_at IS NULL"
            f" AND id IN ('{bad[0]}', '{bad[1]}', '{bad[2]}')",
        )
        return len(rows) == 3 and all(error for _, error in rows)

    wait_until(set_aside, "all three to be set aside with their errors", within=60)
    goes_on(receiver)
    assert receiver.calls("/bad") == []
    assert node.call("GET", "/health").status == 200
    every_slot_once(node, good)


def test_a_rolling_restart_repeats_nothing(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # F69: no run that is shorter than the grace has a second attempt
    # Long enough that no busy machine costs a lease: that would be a second attempt, too.
    patient = TIMES | {"CHIMES_LEASE": "12s"}
    nodes = [start(server_url, **patient) for _ in range(3)]
    made = [
        nodes[0].create(
            name=f"roll {number}",
            trigger={"kind": "every", "every": "1s"},
            target=http(receiver.slow(f"/roll{number}", 0.4)),
            policy={"overlap": "allow", "misfire": "all", "max_retries": 0},
        )["id"]
        for number in range(10)
    ]
    receiver.wait_for("/roll0", 2)
    for place, old in enumerate(nodes):
        assert old.stop() == 0
        nodes[place] = start(server_url, **patient)
    goes_on(receiver, "/roll0")
    every_slot_once(nodes[0], made)
    rows = [run for each in made for run in nodes[0].runs(each)]
    assert {tuple(ends(run)) for run in rows} == {("succeeded",)}
    assert len(receiver.calls()) == len(rows)


def test_a_grace_that_is_too_short_ends_the_lease_at_once(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # F69: others need not wait for the lease of production to run out
    staying = start(server_url)
    staying.send(signal.SIGSTOP)
    leaving = start(server_url, CHIMES_SHUTDOWN_GRACE="1s")
    made = leaving.create(
        name="long",
        trigger={"kind": "cron", "expression": "0 0 1 1 *"},
        target=http(receiver.slow("/long", 19, first=1)),
        policy={"timeout": "20s"},
    )
    leaving.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/long", 1)
    staying.send(signal.SIGCONT)
    began = time.monotonic()
    assert leaving.stop() == 0
    receiver.wait_for("/long", 2)
    assert time.monotonic() - began < 25, "the lease is 30 s"
    (run,) = staying.ended(made["id"])
    assert ends(run) == ["lost", "succeeded"]


# --- F70: other versions ----------------------------------------------------------------------
def refused(url: str, home: Path) -> subprocess.CompletedProcess[str]:
    return ran(["serve", "--port", "0", "--store", url], cwd=home)


def test_a_schema_that_is_newer_and_still_fits(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # F70: the next version has migrated already; this one goes on and says so
    old = start(server_url, **TIMES)
    ticks = ticking(old, receiver, 2)
    sql(
        server_url,
        f"UPDATE {SERVER_VERSIONS} SET version_num = '9999'",
        f"UPDATE store_facts SET value = {int(HEAD)} WHERE name = 'min_revision'",
    )
    late = start(server_url, **TIMES)
    assert "newer" in late.output
    assert old.stop() == 0
    goes_on(receiver)
    every_slot_once(late, ticks)


def test_a_schema_that_does_not_fit_is_refused(
    server_url: str, start: Start, tmp_path: Path
) -> None:
    # F70: exit 9, and nothing is touched
    assert start(server_url, **TIMES).stop() == 0
    sql(
        server_url,
        f"UPDATE {SERVER_VERSIONS} SET version_num = '9999'",
        "UPDATE store_facts SET value = 9999 WHERE name = 'min_revision'",
    )
    done = refused(server_url, tmp_path)
    assert done.returncode == 9, done.stderr
    assert "update Chimes" in done.stderr
    sql(server_url, f"UPDATE {SERVER_VERSIONS} SET version_num = '0000'")
    assert refused(server_url, tmp_path).returncode == 9


def test_a_node_that_is_killed_while_it_drains(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # F11: what was not given back is taken when the lease has ended
    staying = standing_by(start, server_url)
    leaving = start(server_url, **failing_at("drain.mid:kill"))
    made = leaving.create(
        name="cut short",
        trigger={"kind": "cron", "expression": "0 0 1 1 *"},
        target=http(receiver.slow("/cut", 19, first=1)),
        policy={"timeout": "20s"},
    )
    leaving.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/cut", 1)
    leaving.send(signal.SIGTERM)
    assert leaving.wait() == -signal.SIGKILL
    staying.send(signal.SIGCONT)
    (run,) = staying.ended(made["id"])
    assert (run["status"], ends(run)) == ("succeeded", ["lost", "succeeded"])


def test_many_processes_set_an_empty_database_up_at_once(
    empty_server_url: str, start: Start, receiver: Receiver
) -> None:
    # F71: one of them does it, the others find it done
    nodes = []
    lock = threading.Lock()

    def begin() -> None:
        node = start(empty_server_url, **TIMES)
        with lock:
            nodes.append(node)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(nodes) == 4
    ticks = ticking(nodes[0], receiver, 2)
    goes_on(receiver)
    every_slot_once(nodes[3], ticks)
    assert all_ended(nodes[1], ticks[0])


# --- F28, F72: a store that goes back ---------------------------------------------------------
def dumped(url: str, file: Path) -> None:
    server = urlsplit(url)
    where = [f"--port={server.port}", "--host=127.0.0.1"]
    if server.scheme == "postgresql":
        command = [_postgres_binary("pg_dump"), *where, "-U", "chimes", "-Fc", "-f", str(file)]
    else:
        command = [_binary("mariadb-dump"), *where, "-u", "chimes", f"--result-file={file}"]
        command += ["--single-transaction", "--skip-lock-tables", "--no-tablespaces"]
    subprocess.run([*command, server.path[1:]], check=True, timeout=60)


def restored(url: str, file: Path) -> None:
    server = urlsplit(url)
    where = [f"--port={server.port}", "--host=127.0.0.1"]
    if server.scheme == "postgresql":
        command = [_postgres_binary("pg_restore"), *where, "-U", "chimes", "--clean"]
        command += ["--single-transaction", f"--dbname={server.path[1:]}", str(file)]
        subprocess.run(command, check=True, timeout=60)
        return
    with file.open() as stream:
        command = [_binary("mariadb"), *where, "-u", "chimes", server.path[1:]]
        subprocess.run(command, check=True, timeout=60, stdin=stream)


def test_a_restore_of_an_old_backup_is_noticed(
    server_url: str, start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    # F28, F72: slots that come back un-run are run again, under the same ids
    nodes = [start(server_url, **TIMES) for _ in range(2)]
    ticks = ticking(nodes[0], receiver, 4)
    goes_on(receiver)
    dumped(server_url, tmp_path / "backup")
    goes_on(receiver, calls=5)
    restored(server_url, tmp_path / "backup")
    for node in nodes:
        wait_until(lambda node=node: regressed(node), "it to be noticed", within=60)
    goes_on(receiver)
    audit = nodes[0].get("/api/v1/audit?verb=regress")["items"]
    assert audit
    every_slot_once(nodes[0], ticks)
    ids: dict[tuple[str, str], set[str]] = {}
    for call in receiver.calls():
        slot = call.headers["x-chimes-schedule-id"], call.headers["x-chimes-slot"]
        ids.setdefault(slot, set()).add(call.run_id)
    assert all(len(found) == 1 for found in ids.values())


def regressed(node: Node) -> bool:
    answer = node.try_get("/metrics")
    counted = "chimes_store_regressed_total "
    return answer is not None and any(
        line.startswith(counted) and float(line.removeprefix(counted)) >= 1
        for line in answer.text.splitlines()
    )
