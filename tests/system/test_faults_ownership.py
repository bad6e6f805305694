"""Ownership of runs when nodes are killed, suspended or lose answers at a failpoint: two real nodes
on a real server."""

from __future__ import annotations

import json
import signal
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Received, Receiver
from tests.system.test_callbacks import ONCE_IN_A_YEAR, http, instant

# Generous: real processes share two cores with other tests.
pytestmark = pytest.mark.timeout(300)

#: The same times as in `chimes.torture`.
LEASE = 3.0
TIMES = {"CHIMES_LEASE": "3s", "CHIMES_HEARTBEAT": "1s", "CHIMES_POLL_INTERVAL": "200ms"}
#: For nodes that must not lose their lease on a busy machine.
STEADY = TIMES | {"CHIMES_LEASE": "60s"}


def with_failpoints(points: str, times: dict[str, str] = TIMES) -> dict[str, str]:
    return times | {"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": points}


def start_manual_run(node: Node, url: str, **policy: Any) -> tuple[str, str]:
    """Starts a manual run of a new schedule that is not due; returns (schedule id, run id)."""
    made = node.create(
        name="by hand",
        trigger=ONCE_IN_A_YEAR,
        target=http(url),
        policy={"timeout": "20s", "max_retries": 0} | policy,
    )
    answer = node.call("POST", f"/api/v1/schedules/{made['id']}/run")
    assert answer.status == 202, answer
    return made["id"], answer.json["id"]


def fences(calls: list[Received]) -> list[int]:
    return [int(call.headers["x-chimes-fence"]) for call in calls]


def ends(run: dict[str, Any]) -> list[str]:
    return [attempt["end"] for attempt in run["attempts"]]


def wait_for_kill(node: Node) -> None:
    """Waits until a failpoint has killed the node."""
    assert node.wait() == -signal.SIGKILL


# --- firing -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "step", ["fire.before_commit", pytest.param("fire.after", marks=pytest.mark.long)]
)
def test_crash_while_firing_neither_loses_nor_doubles_a_slot(
    server_url: str, start: Start, receiver: Receiver, step: str
) -> None:
    steady = start(server_url, **STEADY)
    made = [
        steady.create(
            name=f"s{number}",
            trigger={"kind": "every", "every": "1s"},
            target=http(receiver.url(f"/s{number}")),
            policy={"overlap": "allow"},
        )
        for number in range(5)
    ]
    for _ in range(2):
        victim = start(server_url, **with_failpoints(f"{step}@3:kill"))
        wait_for_kill(victim)
    receiver.wait_for("/s0", len(receiver.calls("/s0")) + 3)
    for each in made:
        steady.call("POST", f"/api/v1/schedules/{each['id']}/pause")
        rows = wait_until(lambda each=each: all_ended(steady, each["id"]), "every run to end")
        slots = sorted(instant(row["slot"]) for row in rows)
        assert {(b - a).total_seconds() for a, b in pairwise(slots)} == {1.0}
        assert {row["status"] for row in rows} == {"succeeded"}


def all_ended(node: Node, schedule_id: str) -> list[dict[str, Any]]:
    rows = node.runs(schedule_id)
    return [] if any(row["status"] in ("queued", "running") for row in rows) else rows


# --- the steps of one run ---------------------------------------------------------------------
def test_run_of_a_node_killed_after_the_claim_is_rescued(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # The claim was committed, but the call cannot have happened.
    victim = start(server_url, **with_failpoints("claim.after:kill"))
    schedule_id, run_id = start_manual_run(victim, receiver.url("/f03"))
    wait_for_kill(victim)
    second = start(server_url, **STEADY)
    (run,) = second.ended(schedule_id)
    assert (run["id"], run["status"], ends(run)) == (run_id, "succeeded", ["lost", "succeeded"])
    assert fences(receiver.calls("/f03")) == [2]


def test_claim_with_a_lost_answer_is_released(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # The node is alive, so its lease would not expire: it releases the run itself.
    node = start(server_url, **with_failpoints("claim.after:drop_answer", STEADY))
    schedule_id, _ = start_manual_run(node, receiver.url("/stray"))
    (run,) = node.ended(schedule_id)
    assert (run["status"], ends(run)) == ("succeeded", ["succeeded"])
    assert fences(receiver.calls("/stray")) == [2]


@pytest.mark.parametrize("on_lost", ["retry", "stop"])
def test_crash_before_the_started_mark_is_retried(
    server_url: str, start: Start, receiver: Receiver, on_lost: str
) -> None:
    # The call cannot have happened yet, so even `on_lost: stop` tries again.
    victim = start(server_url, **with_failpoints("run.claimed:kill"))
    schedule_id, _ = start_manual_run(victim, receiver.url("/f04"), on_lost=on_lost)
    wait_for_kill(victim)
    second = start(server_url, **STEADY)
    (run,) = second.ended(schedule_id)
    assert (run["status"], ends(run)) == ("succeeded", ["lost", "succeeded"])
    assert fences(receiver.calls("/f04")) == [2]


@pytest.mark.parametrize(("on_lost", "status"), [("retry", "succeeded"), ("stop", "unknown")])
def test_crash_after_the_started_mark_follows_on_lost(
    server_url: str, start: Start, receiver: Receiver, on_lost: str, status: str
) -> None:
    victim = start(server_url, **with_failpoints("run.started:kill"))
    schedule_id, _ = start_manual_run(victim, receiver.url("/f05"), on_lost=on_lost)
    wait_for_kill(victim)
    second = start(server_url, **STEADY)
    (run,) = second.ended(schedule_id)
    assert run["status"] == status
    assert fences(receiver.calls("/f05")) == ([2] if on_lost == "retry" else [])


def test_crash_before_the_completion_repeats_the_call(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # Same run id, higher fence, one completion.
    victim = start(server_url, **with_failpoints("run.before_record:kill"))
    schedule_id, run_id = start_manual_run(victim, receiver.url("/f07"))
    wait_for_kill(victim)
    second = start(server_url, **STEADY)
    (run,) = second.ended(schedule_id)
    calls = receiver.calls("/f07")
    assert {call.headers["webhook-id"] for call in calls} == {run_id}
    assert fences(calls) == [1, 2]
    assert (run["status"], run["fence"], ends(run)) == ("succeeded", 2, ["lost", "succeeded"])


def test_crash_after_the_completion_repeats_nothing(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    victim = start(server_url, **with_failpoints("run.after_record:kill"))
    schedule_id, _ = start_manual_run(victim, receiver.url("/f08"))
    wait_for_kill(victim)
    second = start(server_url, **STEADY)
    (run,) = second.ended(schedule_id)
    assert (run["status"], ends(run)) == ("succeeded", ["succeeded"])
    assert len(receiver.calls("/f08")) == 1


# --- takeover ---------------------------------------------------------------------------------
def test_takeover_after_the_lease_of_the_killed_node(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    second = start_suspended(start, server_url)
    victim = start(server_url, **TIMES)
    schedule_id, _ = start_manual_run(victim, receiver.slow("/takeover", 600, first=1))
    receiver.wait_for("/takeover", 1)
    victim.kill()
    second.send(signal.SIGCONT)
    began = time.monotonic()
    (run,) = second.ended(schedule_id)
    assert time.monotonic() - began < 10 * LEASE, "its own lease is longer"
    assert (run["status"], ends(run)) == ("succeeded", ["lost", "succeeded"])


def test_every_slot_runs_after_all_nodes_were_killed(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    nodes = [start(server_url, **TIMES) for _ in range(2)]
    made = nodes[0].create(
        name="all",
        trigger={"kind": "every", "every": "1s"},
        target=http(receiver.slow("/all", 0.3)),
        policy={"overlap": "allow", "misfire": "all"},
    )
    receiver.wait_for("/all", 2)
    for node in nodes:
        node.kill()
    seen = len(receiver.calls("/all"))
    time.sleep(LEASE + 1)  # the outage
    again = start(server_url, **STEADY)
    receiver.wait_for("/all", seen + 6)
    again.call("POST", f"/api/v1/schedules/{made['id']}/pause")
    rows = wait_until(lambda: all_ended(again, made["id"]), "every run to end")
    slots = sorted(instant(row["slot"]) for row in rows)
    assert {(b - a).total_seconds() for a, b in pairwise(slots)} == {1.0}
    assert {row["status"] for row in rows} == {"succeeded"}


# --- a node suspended past its lease ----------------------------------------------------------
#: Seconds until a suspended node continues by itself; the tests resume it earlier, after the
#: takeover, however long that takes.
LONG_ENOUGH = 100


def test_node_suspended_before_the_call_does_not_make_it(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # It checks its lease before the call.
    second = start_suspended(start, server_url)
    sleeper = start(server_url, **with_failpoints(f"run.before_effect:stop:{LONG_ENOUGH}"))
    schedule_id, _ = start_manual_run(sleeper, receiver.url("/f14"))
    wait_until(lambda: sleeper.suspended, "the node to be suspended")
    second.send(signal.SIGCONT)
    (run,) = second.ended(schedule_id)
    assert (run["status"], ends(run)) == ("succeeded", ["lost", "succeeded"])
    sleeper.send(signal.SIGCONT)
    wait_until(lambda: "lease lost" in sleeper.output, "the suspended node to notice")
    wait_until(lambda: sleeper.output.count("node joined") == 2, "the node to rejoin")
    assert fences(receiver.calls("/f14")) == [2]


def test_late_completion_is_fenced_and_counted(
    server_url: str, start: Start, receiver: Receiver
) -> None:
    # Both the late completion and the late heartbeat are rejected.
    second = start_suspended(start, server_url)
    sleeper = start(server_url, **with_failpoints(f"run.before_record:stop:{LONG_ENOUGH}"))
    schedule_id, _ = start_manual_run(sleeper, receiver.url("/f15"))
    (before,) = joined_node_ids(sleeper)
    wait_until(lambda: sleeper.suspended, "the node to be suspended")
    second.send(signal.SIGCONT)
    (run,) = second.ended(schedule_id)
    sleeper.send(signal.SIGCONT)
    wait_until(lambda: '"fenced"' in sleeper.output, "the refusal")
    (after,) = second.ended(schedule_id)
    assert after == run, "the completion of the newer attempt stands"
    assert (run["fence"], ends(run)) == (2, ["lost", "succeeded"])
    assert fences(receiver.calls("/f15")) == [1, 2]
    wait_until(lambda: sleeper.output.count("node joined") == 2, "the node to rejoin")
    metrics = sleeper.call("GET", "/metrics").text
    assert "chimes_fenced_total 1.0" in metrics
    names = {node["id"] for node in second.get("/api/v1/nodes")["items"]}
    assert before not in names, "an expired lease is not renewed"


def start_suspended(start: Start, url: str) -> Node:
    """Starts a node and suspends it, so that it can continue without start-up time."""
    node = start(url, **STEADY)
    node.send(signal.SIGSTOP)
    return node


def joined_node_ids(node: Node) -> list[str]:
    """The node ids under which it joined, from its log."""
    joined = [line for line in node.output.splitlines() if '"node joined"' in line]
    return [json.loads(line)["node"] for line in joined]
