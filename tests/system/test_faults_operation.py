"""Operational faults of nodes on a shared server: wrong clocks, rolling restarts, other versions,
damaged rows, restored backups."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chimes.store.sql.migrations import HEAD, SERVER_VERSIONS
from chimes.store.sql.rows.values import schedule_number
from tests.forking import run_chimes
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
    start_suspended,
    with_failpoints,
)
from tests.system.test_faults_server import (
    assert_every_slot_ran_once,
    create_ticking_schedules,
    wait_for_more_calls,
)

# Generous: real processes share two cores with other tests.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("offset", [3600, pytest.param(-3600, marks=pytest.mark.long)])
def test_node_with_a_wrong_clock_fires_on_time(
    server_url: str, start: Start, receiver: Receiver, offset: int
) -> None:
    # Firing follows the store's clock, and the offset of the node is reported.
    right = start(server_url, **TIMES)
    wrong = start(server_url, **TIMES, CHIMES_TEST_CLOCK=str(offset))
    ticks = create_ticking_schedules(wrong, receiver, 4)
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
    assert_every_slot_ran_once(right, ticks)


def test_corrupt_schedule_does_not_stop_others(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    node = start(server_url, **TIMES)
    good = create_ticking_schedules(node, receiver, 3)
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
            statement
            for each, (name, value) in zip(bad, damages.items(), strict=True)
            for statement in (
                f"UPDATE schedules SET {quoted(server_url, name)} = '{value}' WHERE id = '{each}'",
                f"UPDATE cursors SET next_slot = {now}, next_run_at = {now}, revision = 1"
                f" WHERE schedule = {schedule_number(each)}",
            )
        ),
    )

    def all_disabled_with_error() -> bool:
        rows = sql(
            server_url,
            "SELECT last_error FROM schedule_stats"
            " JOIN cursors ON cursors.schedule = schedule_stats.schedule"
            " WHERE next_run_at IS NULL AND cursors.schedule IN"
            f" ({', '.join(str(schedule_number(each)) for each in bad)})",
        )
        return len(rows) == 3 and all(error for (error,) in rows)

    wait_until(all_disabled_with_error, "all three to be set aside with their errors", within=60)
    wait_for_more_calls(receiver)
    assert receiver.calls("/bad") == []
    assert node.call("GET", "/health").status == 200
    assert_every_slot_ran_once(node, good)


def test_rolling_restart_repeats_no_attempt(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # Runs are shorter than the grace period. The lease is long enough for a busy machine: a lost
    # lease would also cause a second attempt.
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
    wait_for_more_calls(receiver, "/roll0")
    assert_every_slot_ran_once(nodes[0], made)
    rows = [run for each in made for run in nodes[0].runs(each)]
    assert {tuple(ends(run)) for run in rows} == {("succeeded",)}
    assert len(receiver.calls()) == len(rows)


def test_exit_after_the_grace_period_ends_the_lease(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # Other nodes need not wait for the lease to expire.
    staying = start(server_url)
    staying.send(signal.SIGSTOP)
    leaving = start(server_url, CHIMES_SHUTDOWN_GRACE="1s", CHIMES_LEASE="10m")
    made = leaving.create(
        name="long",
        trigger={"kind": "cron", "expression": "0 0 1 1 *"},
        target=http(receiver.slow("/long", 600, first=1)),
        policy={"timeout": "10m"},
    )
    leaving.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/long", 1)
    staying.send(signal.SIGCONT)
    assert leaving.stop() == 0
    receiver.wait_for("/long", 2)
    (run,) = staying.ended(made["id"])
    assert ends(run) == ["lost", "succeeded"]


# --- other versions ---------------------------------------------------------------------------
def run_serve(url: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_chimes(["serve", "--port", "0", "--store", url], cwd=home)


def test_newer_compatible_schema_is_accepted_with_a_warning(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # The next version has migrated already; this one continues with a warning.
    old = start(server_url, **TIMES)
    ticks = create_ticking_schedules(old, receiver, 2)
    sql(
        server_url,
        f"UPDATE {SERVER_VERSIONS} SET version_num = '9999'",
        f"UPDATE store_facts SET value = {int(HEAD)} WHERE name = 'min_revision'",
    )
    late = start(server_url, **TIMES)
    assert "newer" in late.output
    assert old.stop() == 0
    wait_for_more_calls(receiver)
    assert_every_slot_ran_once(late, ticks)


def test_incompatible_schema_is_refused(server_url: str, start: Start, tmp_path: Path) -> None:
    assert start(server_url, **TIMES).stop() == 0
    sql(
        server_url,
        f"UPDATE {SERVER_VERSIONS} SET version_num = '9999'",
        "UPDATE store_facts SET value = 9999 WHERE name = 'min_revision'",
    )
    done = run_serve(server_url, tmp_path)
    assert done.returncode == 9, done.stderr
    assert "update Chimes" in done.stderr
    sql(server_url, f"UPDATE {SERVER_VERSIONS} SET version_num = '0000'")
    assert run_serve(server_url, tmp_path).returncode == 9


def test_runs_of_a_node_killed_while_draining_are_rescued(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # Unreleased runs are rescued after the lease has expired.
    staying = start_suspended(start, server_url)
    leaving = start(server_url, **with_failpoints("drain.mid:kill"))
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


def test_concurrent_starts_migrate_an_empty_database_once(
    empty_server_url: str, start: Start, receiver: Receiver
) -> None:
    # One process migrates, the others wait for it.
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
    ticks = create_ticking_schedules(nodes[0], receiver, 2)
    wait_for_more_calls(receiver)
    assert_every_slot_ran_once(nodes[3], ticks)
    assert all_ended(nodes[1], ticks[0])


# --- restored backups -------------------------------------------------------------------------
def dump_database(url: str, file: Path) -> None:
    server = urlsplit(url)
    where = [f"--port={server.port}", "--host=127.0.0.1"]
    if server.scheme == "postgresql":
        command = [_postgres_binary("pg_dump"), *where, "-U", "chimes", "-Fc", "-f", str(file)]
    else:
        command = [_binary("mariadb-dump"), *where, "-u", "chimes", f"--result-file={file}"]
        command += ["--single-transaction", "--skip-lock-tables", "--no-tablespaces"]
    subprocess.run([*command, server.path[1:]], check=True, timeout=60)


def restore_database(url: str, file: Path, nodes: list[Node]) -> None:
    """The nodes are suspended meanwhile, so that they see the backup as a whole: on MariaDB each
    statement of the file commits by itself, and a node would fire with cursors of the backup while
    the table of runs is still to be replaced. On PostgreSQL the locks of both sides may be a
    deadlock. The server ends transactions of suspended nodes after IDLE_SECONDS."""
    server = urlsplit(url)
    where = [f"--port={server.port}", "--host=127.0.0.1"]
    if server.scheme == "postgresql":
        command = [_postgres_binary("pg_restore"), *where, "-U", "chimes", "--clean"]
        command += ["--single-transaction", f"--dbname={server.path[1:]}", str(file)]
    else:
        command = [_binary("mariadb"), *where, "-u", "chimes", server.path[1:]]
    for node in nodes:
        node.send(signal.SIGSTOP)
        wait_until(lambda node=node: node.suspended, "the node to be suspended")
    with file.open() as stream:
        subprocess.run(command, check=True, timeout=60, stdin=stream)
    for node in nodes:
        node.send(signal.SIGCONT)


@pytest.mark.long
def test_restored_backup_is_detected_and_lost_slots_run_again(
    server_url: str, start: Start, receiver: Receiver, tmp_path: Path
) -> None:
    # Slots that the backup does not contain run again under the same ids.
    nodes = [start(server_url, **TIMES) for _ in range(2)]
    ticks = create_ticking_schedules(nodes[0], receiver, 4)
    wait_for_more_calls(receiver)
    dump_database(server_url, tmp_path / "backup")
    wait_for_more_calls(receiver, calls=5)
    restore_database(server_url, tmp_path / "backup", nodes)
    for node in nodes:
        wait_until(lambda node=node: regressed(node), "the regression to be detected", within=60)
    wait_for_more_calls(receiver)
    audit = nodes[0].get("/api/v1/audit?verb=regress")["items"]
    assert audit
    assert_every_slot_ran_once(nodes[0], ticks)
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
