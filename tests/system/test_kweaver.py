"""The KWeaver door over HTTP, on real servers, with a stub of the action service behind it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.services import Asked, Service, Told, told

PATH = "/api/bkn-backend/v1/knowledge-networks/kn1/action-schedules"
ACCOUNT = {"X-Account-Id": "u-1", "X-Account-Type": "user"}
OBJECTS = [{"id": "pod-1"}]
BODY = {
    "name": "restart pods",
    "action_type_id": "restart",
    # Far away: what is due is made due by hand, not by waiting.
    "cron_expression": "0 0 1 1 *",
    "_instance_identities": OBJECTS,
    "dynamic_params": {"force": True},
}


class ActionService(Service):
    """Executes nothing, and says that it has."""

    def __init__(self) -> None:
        super().__init__()
        #: Until it is set, executions are running.
        self.done = threading.Event()
        self.done.set()

    def answer(self, asked: Asked) -> Told:
        if asked.path.endswith("/execute"):
            started = {"execution_id": "e1", "status": "pending", "message": "started"}
            return told(started | {"created_at": 0}, 202)
        return told({"id": "e1", "status": "completed" if self.done.is_set() else "running"})

    @property
    def executed(self) -> list[Asked]:
        return self.asked("/execute")


def settings(service: ActionService, **more: str) -> dict[str, str]:
    return {
        "CHIMES_ACTION_URL": f"{service.url}/api/ontology-query/in/v1/knowledge-networks/{{kn_id}}",
        "CHIMES_SCHEDULE_LOCK_TIMEOUT": "2s",
        "CHIMES_SCHEDULE_POLL_INTERVAL": "200ms",
    } | more


def made(node: Node, **given: Any) -> str:
    answer = node.call("POST", PATH, BODY | given, ACCOUNT)
    assert answer.status == 201, answer
    found: str = answer.json["id"]
    return found


def put(node: Node, path: str, body: Any) -> None:
    answer = node.call("PUT", f"{PATH}/{path}", body, ACCOUNT)
    assert (answer.status, answer.text) == (200, "null"), answer


def made_due(node: Node, schedule_id: str) -> None:
    """The next slot is now; the past means now (R2.22)."""
    now = datetime.now(UTC).isoformat()
    answer = node.call("POST", f"/api/v1/schedules/{schedule_id}/reschedule", {"to": now})
    assert answer.status == 200, answer


# R0.24, R0.25-R0.30, R0.38
def test_from_its_making_to_its_history(server_url: str, start: Start) -> None:
    with ActionService() as service:
        service.done.clear()
        node = start(server_url, **settings(service))
        schedule_id = made(node)
        assert node.get(f"{PATH}/{schedule_id}")["status"] == "inactive"
        put(node, schedule_id, {"dynamic_params": {"force": False}})
        put(node, f"{schedule_id}/status", {"status": "active"})
        assert node.get(f"{PATH}/{schedule_id}")["next_run_time"] > 0
        made_due(node, schedule_id)
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
        # The lock is seen while it lasts (R0.15).
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
        # What was deleted has its history (C16).
        assert node.get(f"/api/v1/runs/{run['id']}")["status"] == "succeeded"
        assert node.stop() == 0


# R0.19-R0.21, C4: an action that takes longer than the lock is held
def test_two_nodes_and_one_due_schedule(server_url: str, start: Start) -> None:
    with ActionService() as service:
        service.done.clear()
        nodes = [start(server_url, **settings(service)) for _ in range(2)]
        schedule_id = made(nodes[0], status="active")
        made_due(nodes[1], schedule_id)
        service.wait(lambda: service.executed, "the execution")
        holder = nodes[1].get(f"{PATH}/{schedule_id}")["lock_holder"]
        before = len(service.asked("/action-executions/e1"))
        begun = service.asked("/execute")[0].at

        def long_enough() -> bool:
            asked = service.asked("/action-executions/e1")
            # Longer than the lock timeout of 2 s, measured by what the service sees.
            return len(asked) > before and asked[-1].at - begun > 3

        service.wait(long_enough, "an action longer than its lock")
        assert nodes[0].get(f"{PATH}/{schedule_id}")["lock_holder"] == holder
        service.done.set()
        (run,) = nodes[0].ended(schedule_id)
        assert (run["status"], run["attempt"]) == ("succeeded", 1)
        assert len(service.executed) == 1


# R0.21, R0.23, C4: the same run on another node
def test_a_node_is_killed_with_the_lock_in_its_hand(server_url: str, start: Start) -> None:
    with ActionService() as service:
        service.done.clear()
        first = start(server_url, **settings(service))
        schedule_id = made(first, status="active")
        made_due(first, schedule_id)
        service.wait(lambda: service.asked("/action-executions/e1"), "the first look at it")
        first.kill()
        service.done.set()
        second = start(server_url, **settings(service))
        (run,) = second.ended(schedule_id)
        assert run["status"] == "succeeded"
        # On a busy machine the second node may lose its lease once, too.
        assert run["attempt"] >= 2
        # It was found again, not executed again.
        assert len({each.headers["idempotency-key"] for each in service.executed}) == 1
        assert "lock_holder" not in second.get(f"{PATH}/{schedule_id}")


# R0.31, R0.32
def test_what_is_due_is_seen_by_peers(server_url: str, start: Start) -> None:
    with ActionService() as service:
        # Nobody fires here: the other side pulls.
        node = start(
            server_url, **settings(service, CHIMES_INTERNAL_TOKEN="inside", CHIMES_ROLES="api")
        )
        schedule_id = made(node, status="active")
        due = "/api/ontology-manager/in/v1/knowledge-networks/kn1/action-schedules/due"
        assert node.call("GET", due).status == 401
        token = {"X-Internal-Token": "inside"}
        assert node.call("GET", due, headers=token).json == {"entries": []}
        made_due(node, schedule_id)
        found = wait_until(lambda: node.call("GET", due, headers=token).json["entries"], "it")
        assert [each["id"] for each in found] == [schedule_id]
        assert service.executed == []
