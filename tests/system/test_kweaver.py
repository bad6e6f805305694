"""The KWeaver API on real servers, with a stub action service."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.services import Request, Response, Service, json_response

PATH = "/api/bkn-backend/v1/knowledge-networks/kn1/action-schedules"
ACCOUNT = {"X-Account-Id": "u-1", "X-Account-Type": "user"}
OBJECTS = [{"id": "pod-1"}]
BODY = {
    "name": "restart pods",
    "action_type_id": "restart",
    # Far in the future: tests reschedule it to now.
    "cron_expression": "0 0 1 1 *",
    "_instance_identities": OBJECTS,
    "dynamic_params": {"force": True},
}


class ActionService(Service):
    """Answers that each execution has completed."""

    def __init__(self) -> None:
        super().__init__()
        #: Executions stay running until this is set.
        self.done = threading.Event()
        self.done.set()

    def answer(self, request: Request) -> Response:
        if request.path.endswith("/execute"):
            started = {"execution_id": "e1", "status": "pending", "message": "started"}
            return json_response(started | {"created_at": 0}, 202)
        return json_response(
            {"id": "e1", "status": "completed" if self.done.is_set() else "running"}
        )

    @property
    def executed(self) -> list[Request]:
        return self.requests("/execute")


def settings(service: ActionService, **more: str) -> dict[str, str]:
    return {
        "CHIMES_ACTION_URL": f"{service.url}/api/ontology-query/in/v1/knowledge-networks/{{kn_id}}",
        "CHIMES_SCHEDULE_LOCK_TIMEOUT": "2s",
        "CHIMES_SCHEDULE_POLL_INTERVAL": "200ms",
    } | more


def create_schedule(node: Node, **given: Any) -> str:
    answer = node.call("POST", PATH, BODY | given, ACCOUNT)
    assert answer.status == 201, answer
    found: str = answer.json["id"]
    return found


def put_change(node: Node, path: str, body: Any) -> None:
    answer = node.call("PUT", f"{PATH}/{path}", body, ACCOUNT)
    assert (answer.status, answer.text) == (200, "null"), answer


def make_due(node: Node, schedule_id: str) -> None:
    """Reschedules to now; a time in the past means now."""
    now = datetime.now(UTC).isoformat()
    answer = node.call("POST", f"/api/v1/schedules/{schedule_id}/reschedule", {"to": now})
    assert answer.status == 200, answer


def test_life_of_an_action_schedule_from_creation_to_history(server_url: str, start: Start) -> None:
    with ActionService() as service:
        service.done.clear()
        node = start(server_url, **settings(service))
        schedule_id = create_schedule(node)
        assert node.get(f"{PATH}/{schedule_id}")["status"] == "inactive"
        put_change(node, schedule_id, {"dynamic_params": {"force": False}})
        put_change(node, f"{schedule_id}/status", {"status": "active"})
        assert node.get(f"{PATH}/{schedule_id}")["next_run_time"] > 0
        make_due(node, schedule_id)
        service.wait(lambda: service.executed, "the execution")
        (execute,) = service.executed
        assert execute.path == (
            "/api/ontology-query/in/v1/knowledge-networks/kn1/action-types/restart/execute"
        )
        sent = execute.json
        assert (sent["trigger_type"], sent["dynamic_params"]) == ("scheduled", {"force": False})
        assert sent["unique_identities"] == sent["_instance_identities"] == OBJECTS
        assert execute.headers["x-account-id"] == "u-1"
        assert execute.headers["x-account-type"] == "user"
        assert execute.headers["idempotency-key"]
        # The lock is visible while the action runs.
        locked = node.get(f"{PATH}/{schedule_id}")
        assert locked["lock_holder"]
        assert locked["create_time"] < locked["lock_time"]
        service.done.set()
        (run,) = node.ended(schedule_id)
        assert (run["status"], run["origin"]) == ("succeeded", "schedule")
        assert run["result"]["execution_id"] == "e1"
        free = node.get(f"{PATH}/{schedule_id}")
        assert "lock_holder" not in free
        assert free["last_run_time"] >= free["create_time"]
        assert free["next_run_time"] > free["last_run_time"]
        answer = node.call("DELETE", f"{PATH}/{schedule_id},nobody")
        assert answer.status == 404
        assert node.call("DELETE", f"{PATH}/{schedule_id}").status == 204
        assert node.call("GET", f"{PATH}/{schedule_id}").status == 404
        # The history of a deleted schedule is kept.
        assert node.get(f"/api/v1/runs/{run['id']}")["status"] == "succeeded"
        assert node.stop() == 0


# The action takes longer than the lock timeout.
@pytest.mark.long
def test_one_of_two_nodes_executes_a_long_action(server_url: str, start: Start) -> None:
    with ActionService() as service:
        service.done.clear()
        nodes = [start(server_url, **settings(service)) for _ in range(2)]
        schedule_id = create_schedule(nodes[0], status="active")
        make_due(nodes[1], schedule_id)
        service.wait(lambda: service.executed, "the execution")
        holder = nodes[1].get(f"{PATH}/{schedule_id}")["lock_holder"]
        before = len(service.requests("/action-executions/e1"))
        begun = service.requests("/execute")[0].at

        def long_enough() -> bool:
            polls = service.requests("/action-executions/e1")
            # Longer than the lock timeout of 2 s, measured by the requests to the service.
            return len(polls) > before and polls[-1].at - begun > 3

        service.wait(long_enough, "an action longer than its lock")
        assert nodes[0].get(f"{PATH}/{schedule_id}")["lock_holder"] == holder
        service.done.set()
        (run,) = nodes[0].ended(schedule_id)
        assert (run["status"], run["attempt"]) == ("succeeded", 1)
        assert len(service.executed) == 1


def test_execution_of_a_killed_node_is_resumed_by_another_node(
    server_url: str, start: Start
) -> None:
    with ActionService() as service:
        service.done.clear()
        first = start(server_url, **settings(service))
        schedule_id = create_schedule(first, status="active")
        make_due(first, schedule_id)
        service.wait(lambda: service.requests("/action-executions/e1"), "the first poll")
        first.kill()
        service.done.set()
        second = start(server_url, **settings(service))
        (run,) = second.ended(schedule_id)
        assert run["status"] == "succeeded"
        # On a busy machine the second node may lose its lease once as well.
        assert run["attempt"] >= 2
        # The execution was resumed, not repeated.
        assert len({each.headers["idempotency-key"] for each in service.executed}) == 1
        assert "lock_holder" not in second.get(f"{PATH}/{schedule_id}")


def test_peers_read_due_schedules_with_the_internal_token(server_url: str, start: Start) -> None:
    with ActionService() as service:
        # No node fires: the peer pulls due schedules.
        node = start(
            server_url, **settings(service, CHIMES_INTERNAL_TOKEN="inside", CHIMES_ROLES="api")
        )
        schedule_id = create_schedule(node, status="active")
        due = "/api/ontology-manager/in/v1/knowledge-networks/kn1/action-schedules/due"
        assert node.call("GET", due).status == 401
        token = {"X-Internal-Token": "inside"}
        assert node.call("GET", due, headers=token).json == {"entries": []}
        make_due(node, schedule_id)
        found = wait_until(lambda: node.call("GET", due, headers=token).json["entries"], "it")
        assert [each["id"] for each in found] == [schedule_id]
        assert service.executed == []
