"""Real nodes under `kill -9`, restarts, SIGTERM and damaged files."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from itertools import count, pairwise
from pathlib import Path

import pytest

from tests.forking import run_chimes
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import ONCE_IN_A_YEAR, http, instant, soon

SHORT_LEASE = {"CHIMES_LEASE": "2s", "CHIMES_POLL_INTERVAL": "200ms"}
#: For nodes that must not lose their lease on a busy machine.
STEADY = SHORT_LEASE | {"CHIMES_LEASE": "60s"}


def test_run_of_a_killed_node_is_taken_over_under_the_same_id(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    first = start(sqlite, **SHORT_LEASE)
    made = first.create(
        name="orphan",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.slow("/orphan", 600, first=1)),
        policy={"timeout": "10m"},
    )
    run = first.call("POST", f"/api/v1/schedules/{made['id']}/run").json
    receiver.wait_for("/orphan", 1)
    first.kill()
    second = start(sqlite, **STEADY)
    calls = receiver.wait_for("/orphan", 2)
    (ended,) = second.ended(made["id"])
    assert {call.run_id for call in calls} == {run["id"]}
    assert [call.attempt for call in calls] == [1, 2]
    assert int(calls[1].headers["x-chimes-fence"]) > int(calls[0].headers["x-chimes-fence"])
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
    assert [attempt["end"] for attempt in ended["attempts"]] == ["lost", "succeeded"]


def test_lost_run_with_on_lost_stop_ends_as_unknown(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    first = start(sqlite, **SHORT_LEASE)
    made = first.create(
        name="once only",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.slow("/stop", 600)),
        policy={"timeout": "10m", "on_lost": "stop"},
    )
    first.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/stop", 1)
    first.kill()
    second = start(sqlite, **STEADY)
    (ended,) = second.ended(made["id"])
    assert ended["status"] == "unknown"
    assert len(receiver.calls("/stop")) == 1


def test_every_slot_runs_once_while_nodes_are_killed(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    # Two nodes on one file; one of them is killed repeatedly.
    steady = start(sqlite, **STEADY)
    made = [
        steady.create(
            name=f"s{number}",
            trigger={"kind": "every", "every": "500ms"},
            target=http(receiver.url(f"/s{number}")),
            policy={"overlap": "allow"},
        )
        for number in range(10)
    ]
    for _ in range(4):
        victim = start(sqlite, **SHORT_LEASE)
        receiver.wait_for("/s0", len(receiver.calls("/s0")) + 2)
        victim.kill()
    for schedule in made:
        steady.call("POST", f"/api/v1/schedules/{schedule['id']}/pause")
    for schedule in made:
        wait_until(
            lambda id=schedule["id"]: (
                not [r for r in steady.runs(id) if r["status"] in ("queued", "running")]
            ),
            "the backlog",
        )
        rows = sorted(steady.runs(schedule["id"]), key=lambda row: instant(row["slot"]))
        slots = [instant(row["slot"]) for row in rows]
        steps = {(b - a).total_seconds() for a, b in pairwise(slots)}
        assert steps == {0.5}, "a slot is missing or doubled"
        ends = {row["reason"] or row["status"] for row in rows}
        assert ends <= {"succeeded", "crash_limit"}
    seen: dict[str, set[str]] = {}
    for call in receiver.calls():
        seen.setdefault(f"{call.path} {call.headers['x-chimes-slot']}", set()).add(call.run_id)
    assert all(len(ids) == 1 for ids in seen.values())


def test_sigterm_waits_for_in_flight_runs(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store)
    made = node.create(
        name="drain", trigger=ONCE_IN_A_YEAR, target=http(receiver.slow("/drain", 1))
    )
    node.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/drain", 1)
    assert node.stop() == 0
    again = start(store)
    (run,) = again.ended(made["id"])
    assert (run["status"], run["attempt"]) == ("succeeded", 1)
    assert len(receiver.calls("/drain")) == 1


def test_second_signal_exits_immediately(store: str, start: Start, receiver: Receiver) -> None:
    node = start(store, CHIMES_SHUTDOWN_GRACE="10m")
    made = node.create(
        name="hurry",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.slow("/hurry", 600)),
        policy={"timeout": "10m"},
    )
    node.call("POST", f"/api/v1/schedules/{made['id']}/run")
    receiver.wait_for("/hurry", 1)
    node.send(signal.SIGTERM)
    wait_until(lambda: "stopping" in node.output, "the drain")
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_interval_continues_after_a_restart_and_records_missed_slots(
    store: str, start: Start, receiver: Receiver
) -> None:
    # The Ksana API skips slots of the outage and records them as missed.
    node = start(store, **SHORT_LEASE)
    job = node.call(
        "POST",
        "/jobs",
        {
            "name": "roll",
            "http": {"method": "GET", "url": receiver.url("/roll")},
            "schedule": {"kind": "every", "every": "1s"},
        },
    ).json
    receiver.wait_for("/roll", 1)
    node.kill()
    before = len(receiver.calls("/roll"))
    quiet = threading.Event()
    quiet.wait(3.5)  # an outage of three slots
    again = start(store, **STEADY)
    receiver.wait_for("/roll", before + 1)
    rows = again.runs(job["id"])
    missed = [row for row in rows if row["status"] == "missed"]
    assert missed
    assert sum(row["missed_count"] for row in missed) >= 1
    slots = [row["slot"] for row in rows]
    assert len(set(slots)) == len(slots)


def test_overdue_once_is_missed_after_a_restart(
    store: str, start: Start, receiver: Receiver
) -> None:
    node = start(store)
    run_at = soon(60)
    job = node.call(
        "POST",
        "/jobs",
        {
            "name": "late",
            "http": {"method": "GET", "url": receiver.url("/late")},
            "schedule": {"kind": "once", "run_at": run_at},
        },
    ).json
    node.kill()
    again = start(store, CHIMES_TEST_CLOCK="+62")
    wait_until(lambda: again.get(f"/jobs/{job['id']}")["last_status"] == "missed", "the row")
    assert receiver.calls("/late") == []


def _write(node: Node, prefix: str, acknowledged: set[str], stop: threading.Event) -> None:
    for number in count():
        job_id = f"{prefix}-{number}"
        job = {
            "id": job_id,
            "name": job_id,
            "http": {"url": "http://127.0.0.1:9/"},
            "schedule": {"kind": "every", "every": "1h"},
        }
        try:
            answer = node.call("POST", "/jobs", job)
        except (OSError, HTTPException):
            return
        if answer.status == 201:
            acknowledged.add(job_id)
        if stop.is_set():
            return


def test_acknowledged_writes_survive_kill_9(store: str, start: Start) -> None:
    acknowledged: set[str] = set()
    for round_number in range(4):
        node = start(store)
        stop = threading.Event()

        with ThreadPoolExecutor(4) as pool:
            writers = [
                pool.submit(_write, node, f"r{round_number}-w{worker}", acknowledged, stop)
                for worker in range(4)
            ]
            goal = len(acknowledged) + 40
            wait_until(lambda goal=goal: len(acknowledged) >= goal, "forty writes")
            node.kill()
            stop.set()
            for writer in writers:
                writer.result(30)
    node = start(store)
    present = {job["id"] for job in node.get("/jobs")}
    assert acknowledged <= present
    assert node.get("/health")["status"] == "ok"


def test_a_second_process_on_the_json_file_exits_5(tmp_path: Path, start: Start) -> None:
    store = f"json:///{tmp_path / 'data'}"
    node = start(store)
    second = run_chimes(["serve", "--port", "0", "--store", store], cwd=tmp_path)
    assert second.returncode == 5
    assert str(node.pid) in second.stderr


def test_corrupt_file_is_kept_and_the_previous_generation_loads(
    tmp_path: Path, start: Start
) -> None:
    data = tmp_path / "data"
    store = f"json:///{data}"
    node = start(store)
    for number in range(3):
        node.call(
            "POST",
            "/jobs",
            {
                "id": f"j{number}",
                "name": "x",
                "http": {"url": "http://127.0.0.1:9/"},
                "schedule": {"kind": "every", "every": "1h"},
            },
        )
    assert node.stop() == 0
    whole = (data / "jobs.json").read_bytes()
    (data / "jobs.json").write_bytes(whole[: len(whole) // 2])
    again = start(store)
    health = again.get("/health")
    assert health["status"] == "degraded"
    assert (data / "jobs.bad.json").read_bytes() == whole[: len(whole) // 2]
    assert {job["id"] for job in again.get("/jobs")} >= {"j0", "j1"}
    assert json.loads((data / "jobs.json").read_text())["version"] == 1


def test_a_hand_edited_file_loads(tmp_path: Path, start: Start, receiver: Receiver) -> None:
    data = tmp_path / "data"
    store = f"json:///{data}"
    data.mkdir()
    (data / "jobs.json").write_text(
        json.dumps(
            {
                "version": 1,
                "updated_at": "2025-09-19T11:00:00Z",
                "jobs": [
                    {
                        "id": "uuid-1",
                        "name": "ping service",
                        "enabled": True,
                        "type": "http",
                        "http": {
                            "method": "GET",
                            "url": receiver.url("/ping"),
                            "headers": {"X-Token": "abc"},
                            "body": "",
                        },
                        "schedule": {"kind": "every", "every": "1s", "start_at": "", "jitter": ""},
                        "timeout": "10s",
                        "max_retries": 3,
                        "retry_backoff": "5s",
                        "last_run_at": "",
                        "next_run_at": "2025-09-19T11:05:00Z",
                        "last_status": "",
                        "last_error": "",
                    }
                ],
            }
        )
    )
    node = start(store)
    (call, *_) = receiver.wait_for("/ping", 1)
    assert call.headers["x-token"] == "abc"
    assert node.stop() == 0
    document = json.loads((data / "jobs.json").read_text())
    document["jobs"][0]["name"] = "renamed by hand"
    document["jobs"][0]["enabled"] = False
    (data / "jobs.json").write_text(json.dumps(document, indent=2))
    again = start(store)
    (job,) = again.get("/jobs")
    assert (job["name"], job["enabled"]) == ("renamed by hand", False)
    assert again.get("/health")["status"] == "ok"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_unsafe_bind_is_refused(tmp_path: Path, host: str) -> None:
    refused = run_chimes(
        ["serve", "--host", host, "--port", "0", "--store", "memory://"], cwd=tmp_path
    )
    assert refused.returncode == 2
    assert "key create" in refused.stderr
