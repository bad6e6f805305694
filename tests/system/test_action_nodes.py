"""Scheduled actions on several real nodes: executed by one of them, kept past the lock timeout,
taken over after a crash, unaffected by a late node."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.services import Request, Response, Service, json_response

BASE = "/knowledge-networks/kn-1/action-schedules"
ACCOUNT = {"X-Account-Id": "u-7", "X-Account-Type": "user"}


class ActionService(Service):
    """Records executions. `hold` keeps them running."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self.keys: dict[str, str] = {}
        self.hold = threading.Event()
        #: Responses to execute wait until this is set.
        self.answering = threading.Event()
        self.answering.set()

    def answer(self, request: Request) -> Response:
        if request.method == "POST" and request.path.endswith("/execute"):
            key = request.headers["idempotency-key"]
            execution = self.keys.setdefault(key, f"e-{next(self._numbers)}")
            self.answering.wait(30)
            return json_response({"execution_id": execution, "status": "pending"}, 202)
        execution = request.path.rpartition("/")[2]
        status = "running" if self.hold.is_set() else "completed"
        return json_response({"id": execution, "status": status})

    def executed(self) -> list[Request]:
        return self.requests("/execute")


@pytest.fixture
def actions() -> Iterator[ActionService]:
    with ActionService() as service:
        yield service


def environment(actions: ActionService, lock: str = "2s") -> dict[str, str]:
    return {
        "CHIMES_ACTION_URL": f"{actions.url}/api/{{kn_id}}",
        "CHIMES_SCHEDULE_LOCK_TIMEOUT": lock,
        "CHIMES_SCHEDULE_POLL_INTERVAL": "200ms",
        "CHIMES_SCHEDULE_EXECUTION_TIMEOUT": "1m",
    }


def create_due_action(node: Node, name: str = "nightly") -> str:
    """Creates an active schedule and reschedules it to now, because its cron has no seconds."""
    body = {
        "name": name,
        "action_type_id": "at-1",
        "cron_expression": "0 3 1 1 *",
        "_instance_identities": [{"id": "o-1"}],
        "dynamic_params": {"level": 3},
        "status": "active",
    }
    made = node.call("POST", BASE, body, ACCOUNT)
    assert made.status == 201, made
    found: str = made.json["id"]
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    moved = node.call("POST", f"/api/v1/schedules/{found}/reschedule", {"to": soon.isoformat()})
    assert moved.status == 200, moved
    return found


def ended_run(node: Node, schedule_id: str) -> dict[str, Any]:
    (run,) = node.ended(schedule_id)
    return run


def test_one_of_two_nodes_executes_each_action(
    server_url: str, start: Start, actions: ActionService
) -> None:
    one = start(server_url, **environment(actions))
    two = start(server_url, **environment(actions))
    made = [create_due_action(one, f"s{number}") for number in range(8)]
    runs = [ended_run(two, each) for each in made]
    assert {run["status"] for run in runs} == {"succeeded"}
    executed = actions.executed()
    assert len(executed) == len(made), "an action was executed twice, or not at all"
    first = executed[0]
    assert first.path == "/api/kn-1/action-types/at-1/execute"
    assert first.headers["x-account-id"] == "u-7"
    assert first.headers["x-account-type"] == "user"
    assert first.json["trigger_type"] == "scheduled"
    assert first.json["_instance_identities"] == [{"id": "o-1"}]
    assert first.json["unique_identities"] == [{"id": "o-1"}]
    assert first.json["dynamic_params"] == {"level": 3}
    shown = two.get(f"{BASE}/{made[0]}")
    assert shown["last_run_time"] > 0
    assert not shown.get("lock_holder")


@pytest.mark.long
def test_action_longer_than_the_lock_timeout_is_not_stolen(
    server_url: str, start: Start, actions: ActionService
) -> None:
    actions.hold.set()
    # The shortest lease with reliable heartbeats on a busy machine.
    one = start(server_url, **environment(actions, lock="4s"))
    two = start(server_url, **environment(actions, lock="4s"))
    schedule_id = create_due_action(one)
    wait_until(actions.executed, "the execution")
    locked = wait_until(
        lambda: two.get(f"{BASE}/{schedule_id}").get("lock_holder"), "the lock to show"
    )
    # Wait for twice the lock timeout, after which the original system would steal the lock.
    time.sleep(8)
    assert two.get(f"{BASE}/{schedule_id}")["lock_holder"] == locked
    actions.hold.clear()
    run = ended_run(two, schedule_id)
    assert (run["status"], run["attempt"], len(actions.executed())) == ("succeeded", 1, 1)
    assert not two.get(f"{BASE}/{schedule_id}").get("lock_holder")


def test_execution_of_a_killed_node_is_resumed_by_another_node(
    server_url: str, start: Start, actions: ActionService
) -> None:
    actions.hold.set()
    victim = start(server_url, **environment(actions))
    schedule_id = create_due_action(victim)
    wait_until(lambda: actions.requests("/e-1"), "a poll of the execution")
    victim.kill()
    heir = start(server_url, **environment(actions, lock="1m"))
    wait_until(lambda: any(run["attempt"] == 2 for run in heir.runs(schedule_id)), "the takeover")
    actions.hold.clear()
    run = ended_run(heir, schedule_id)
    assert run["status"] == "succeeded"
    # The execution was accepted before the crash, so it is polled and not executed again.
    assert len(actions.executed()) == 1
    assert run["result"]["execution_id"] == "e-1"


# Killed between the effect and its record.
def test_action_is_executed_again_under_the_same_key_after_a_crash_before_the_response(
    server_url: str, start: Start, actions: ActionService
) -> None:
    actions.answering.clear()
    victim = start(server_url, **environment(actions))
    schedule_id = create_due_action(victim)
    wait_until(actions.executed, "the call")
    victim.kill()
    actions.answering.set()
    heir = start(server_url, **environment(actions))
    run = ended_run(heir, schedule_id)
    assert (run["status"], run["attempt"]) == ("succeeded", 2)
    assert len({each.headers["idempotency-key"] for each in actions.executed()}) == 1


def test_late_release_of_a_suspended_node_changes_nothing(
    server_url: str, start: Start, actions: ActionService
) -> None:
    actions.hold.set()
    sleeper = start(server_url, **environment(actions, lock="3s"))
    heir = start(server_url, **environment(actions, lock="3s"))
    schedule_id = create_due_action(heir)
    wait_until(lambda: actions.requests("/e-1"), "a poll of the execution")
    wait_until(lambda: heir.get(f"{BASE}/{schedule_id}").get("lock_holder"), "a holder")
    if f"-{sleeper.pid}-" not in heir.get(f"{BASE}/{schedule_id}")["lock_holder"]:
        sleeper, heir = heir, sleeper
    sleeper.send(signal.SIGSTOP)
    try:
        wait_until(
            lambda: any(run["attempt"] == 2 for run in heir.runs(schedule_id)), "the takeover", 30
        )
        actions.hold.clear()
        before = ended_run(heir, schedule_id)
    finally:
        sleeper.send(signal.SIGCONT)
    wait_until(lambda: sleeper.try_get("/ready"), "the suspended node to continue")
    after = ended_run(heir, schedule_id)
    assert before == after
    assert (after["status"], len(actions.executed())) == ("succeeded", 1)
