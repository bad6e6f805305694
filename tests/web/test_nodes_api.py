"""Nodes in the native API: drain, resume, forget; rights and audit."""

from __future__ import annotations

import pytest

from chimes.model.access import Actor, Owner, OwnerType, Role, Scope
from chimes.model.listing import AuditQuery
from chimes.model.node import NodeReport
from tests.builders import LEASE, a_node
from tests.web.rig import Rig, serving

ALICE = Owner(type=OwnerType.USER, id="alice")
NODE = "/api/v1/nodes/node-1"
REPORT = NodeReport(
    running=0, claims_per_minute=1.5, memory=5_000_000, queues=("x",), draining=True
)


async def test_drain_resume_and_forget() -> None:
    async with serving() as rig:
        await rig.store.join(a_node(), LEASE)
        shown = (await rig.client.get(NODE)).json()
        assert (shown["state"], shown["running"], shown["queues"]) == ("alive", None, None)
        asked = await rig.client.post(f"{NODE}/drain", json={"reason": "new kernel"})
        assert (asked.status_code, asked.json()["state"], asked.json()["drain"]) == (
            200,
            "draining",
            True,
        )
        await rig.store.heartbeat(a_node().id, LEASE, clock=rig.clock.now(), report=REPORT)
        [listed] = (await rig.client.get("/api/v1/nodes")).json()["items"]
        assert (listed["state"], listed["memory_bytes"]) == ("drained", 5_000_000)
        assert (listed["claims_per_minute"], listed["queues"]) == (1.5, ["x"])
        refused = await rig.client.delete(NODE)
        assert (refused.status_code, refused.json()["code"]) == (409, "node_alive")
        resumed = (await rig.client.post(f"{NODE}/resume")).json()
        assert (resumed["state"], resumed["drain"]) == ("alive", False)
        rig.clock.advance(LEASE)
        gone = await rig.client.post(f"{NODE}/drain")
        assert (gone.status_code, gone.json()["code"]) == (409, "node_gone")
        assert (await rig.client.delete(NODE)).status_code == 204
        assert (await rig.client.get(NODE)).status_code == 404
        assert (await rig.client.delete(NODE)).status_code == 404
        trail = await rig.store.list_audit(AuditQuery())
        assert [(each.verb, each.object_kind, each.object_id) for each in trail] == [
            (verb, "node", "node-1") for verb in ("forget", "resume", "drain")
        ]
        assert (trail[2].reason, trail[2].changes) == ("new kernel", {"drain": [False, True]})


# Nodes have no owner: only operators see them, and scopes can restrict a key.
@pytest.mark.parametrize(
    ("role", "scopes", "expected"),
    [
        (Role.VIEWER, (), 403),
        (Role.MEMBER, (), 403),
        (Role.OPERATOR, (), 200),
        (Role.OPERATOR, (Scope.READ,), 403),
        (Role.ADMIN, (), 200),
        (Role.ADMIN, (Scope.WRITE,), 403),
        (Role.ADMIN, (Scope.OPERATE,), 200),
    ],
)
async def test_node_permissions_by_role_and_scope(
    role: Role, scopes: tuple[Scope, ...], expected: int
) -> None:
    async with serving() as rig:
        await rig.store.join(a_node(), LEASE)
        made = await rig.context.access.create(
            Actor(), name="k", role=role, owner=ALICE, scopes=scopes
        )
        answer = await _drain(rig, made.text)
        assert answer == expected
        (node,) = await rig.store.nodes()
        assert node.drain == (expected == 200)


async def test_member_of_the_system_owner_may_not_drain() -> None:
    async with serving() as rig:
        await rig.store.join(a_node(), LEASE)
        headers = await rig.key(Role.MEMBER)
        assert (await rig.client.post(f"{NODE}/drain", headers=headers)).status_code == 403
        assert (await rig.client.delete(NODE, headers=headers)).status_code == 403
        assert (await rig.client.get("/api/v1/nodes", headers=headers)).status_code == 403


async def _drain(rig: Rig, key: str) -> int:
    answer = await rig.client.post(f"{NODE}/drain", headers={"Authorization": f"Bearer {key}"})
    return int(answer.status_code)
