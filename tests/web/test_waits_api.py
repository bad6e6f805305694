"""Waiting flows over the API: approvals, events, graphs, retries from a step."""

from __future__ import annotations

from datetime import timedelta

from chimes.model.access import Role
from chimes.model.flow_graph import FlowGraph, GraphStep
from chimes.model.listing import AuditQuery
from chimes.model.run import RunStatus
from chimes.model.wait import WaitKind
from chimes.services.waits import publish_graph
from tests.builders import ALICE, BOB
from tests.waiting_flows import add_waiting_flow
from tests.web.rig import Rig

APPROVALS = "/api/v1/approvals"


async def test_a_decision_counts_once_and_lets_the_flow_go_on(any_rig: Rig) -> None:
    rig = any_rig
    flow, wait = await add_waiting_flow(rig.store, await rig.store.now())
    (listed,) = (await rig.client.get(f"{APPROVALS}?status=open")).json()["items"]
    assert (listed["id"], listed["run_id"], listed["step"]) == (wait.id, flow.id, "approve")
    assert (listed["prompt"], listed["status"], listed["may_decide"]) == (
        "Publish it?",
        "open",
        True,
    )
    decided = await rig.client.post(f"{APPROVALS}/{wait.id}/approve", json={"reason": "fine"})
    assert decided.status_code == 200, decided.text
    body = decided.json()
    assert (body["status"], body["decision"], body["reason"]) == ("approved", "approved", "fine")
    assert body["decided_by"] == "system:default"
    for verb in ("approve", "reject"):
        again = await rig.client.post(f"{APPROVALS}/{wait.id}/{verb}")
        assert (again.status_code, again.json()["code"]) == (409, "decided")
    after = await rig.store.get_run(flow.id)
    assert after is not None
    assert after.available_at <= await rig.store.now()
    assert (await rig.client.get(f"{APPROVALS}?status=open")).json() == {"items": []}
    assert (await rig.client.get(f"{APPROVALS}/{wait.id}")).json()["status"] == "approved"
    (entry,) = await rig.store.list_audit(AuditQuery(object_id=wait.id))
    assert (entry.verb, entry.object_kind, entry.reason) == ("approve_step", "approval", "fine")


async def test_an_expired_approval_cannot_be_decided(rig: Rig) -> None:
    now = await rig.store.now()
    _flow, wait = await add_waiting_flow(rig.store, now - timedelta(hours=2))
    answer = await rig.client.post(f"{APPROVALS}/{wait.id}/approve")
    assert (answer.status_code, answer.json()["code"]) == (409, "expired")
    assert (await rig.client.get(f"{APPROVALS}/{wait.id}")).json()["status"] == "expired"


async def test_who_sees_and_decides(rig: Rig) -> None:
    now = await rig.store.now()
    _flow, hers = await add_waiting_flow(rig.store, now, owner=ALICE)
    _flow, admins = await add_waiting_flow(rig.store, now, owner=ALICE, role=Role.ADMIN)
    alice, bob = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.MEMBER, BOB)
    viewer, admin = await rig.key(Role.VIEWER, ALICE), await rig.key(Role.ADMIN)
    for approval, headers, status in (
        (hers.id, bob, 404),
        (hers.id, viewer, 403),
        (admins.id, alice, 403),
        (hers.id, alice, 200),
        (admins.id, admin, 200),
    ):
        answer = await rig.client.post(f"{APPROVALS}/{approval}/approve", headers=headers)
        assert answer.status_code == status, answer.text
    assert (await rig.client.get(APPROVALS, headers=bob)).json() == {"items": []}
    assert len((await rig.client.get(APPROVALS, headers=viewer)).json()["items"]) == 2


async def test_events_reach_waits_of_their_name_key_and_owner(rig: Rig) -> None:
    now = await rig.store.now()
    given = {"step": "paid", "kind": WaitKind.EVENT, "event": "paid"}
    _flow, first = await add_waiting_flow(rig.store, now, owner=ALICE, key="A1", **given)
    flow, second = await add_waiting_flow(rig.store, now, owner=BOB, **given)
    alice = await rig.key(Role.MEMBER, ALICE)
    path = "/api/v1/events/paid"
    nothing = await rig.client.post(path, json={"key": "A2", "data": 1}, headers=alice)
    assert (nothing.status_code, nothing.json()["run_ids"]) == (202, [])
    body = {"key": "A1", "data": {"amount": 5}}
    headers = alice | {"Idempotency-Key": "one"}
    sent = await rig.client.post(path, json=body, headers=headers)
    assert (sent.status_code, sent.json()["run_ids"]) == (202, [first.id])
    assert (await rig.client.post(path, json=body, headers=headers)).json() == sent.json()
    ended = await rig.store.get_run(first.id)
    assert ended is not None
    assert (ended.status, (ended.result or {})["value"]) == (RunStatus.SUCCEEDED, {"amount": 5})
    admin = await rig.key(Role.ADMIN)
    everywhere = await rig.client.post(path, headers=admin)
    assert everywhere.json()["run_ids"] == [second.id], "an admin's event reaches all owners"
    for name, status in (("bad name", 422), ("x" * 101, 422)):
        answer = await rig.client.post(f"/api/v1/events/{name}", json={}, headers=admin)
        assert answer.status_code == status, answer.text
    large = await rig.client.post(path, json={"data": "x" * 64_001}, headers=admin)
    assert (large.status_code, large.json()["code"]) == (422, "too_large")
    viewer = await rig.key(Role.VIEWER, ALICE)
    assert (await rig.client.post(path, headers=viewer)).status_code == 403
    assert flow.id != second.id


async def test_the_graph_of_a_run(rig: Rig) -> None:
    now = await rig.store.now()
    graph = FlowGraph(
        name="report",
        steps=(
            GraphStep(name="build"),
            GraphStep(name="approve", after=("build",), wait="approval"),
        ),
    )
    await publish_graph(rig.store, graph, now)
    flow, wait = await add_waiting_flow(rig.store, now)
    answer = await rig.client.get(f"/api/v1/runs/{flow.id}/graph")
    assert answer.status_code == 200, answer.text
    build, approve = answer.json()["steps"]
    assert (build["status"], build["runs"], build["after"]) == (None, 0, [])
    assert (approve["status"], approve["run_id"], approve["wait"]) == (
        "queued",
        wait.id,
        "approval",
    )
    assert approve["after"] == ["build"]
    assert (await rig.client.get(f"/api/v1/runs/{wait.id}/graph")).status_code == 404


async def test_a_retry_from_a_step_names_one_that_exists(rig: Rig) -> None:
    flow, wait = await add_waiting_flow(rig.store, await rig.store.now())
    await rig.client.post(f"{APPROVALS}/{wait.id}/approve")
    path = f"/api/v1/runs/{flow.id}/retry"
    early = await rig.client.post(path, json={"from_step": "approve"})
    assert (early.status_code, early.json()["code"]) == (409, "not_ended")
    await rig.client.post(f"/api/v1/runs/{flow.id}/cancel")
    wrong = await rig.client.post(path, json={"from_step": "aprove"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "unknown_step")
    assert "approve" in wrong.json()["detail"]
    again = await rig.client.post(path, json={"from_step": "approve"})
    assert again.status_code == 202, again.text
    assert (again.json()["step"], again.json()["retry_of"]) == ("approve", flow.id)
    no_flow = await rig.client.post(f"/api/v1/runs/{wait.id}/retry", json={"from_step": "x"})
    assert (no_flow.status_code, no_flow.json()["code"]) == (422, "not_a_flow")
