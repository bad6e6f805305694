"""Proposals over the API: the plan, the decision, limits and rights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.model.access import SYSTEM_OWNER, Actor, Owner, Quota, Role, Scope
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, DeliveryQuery, RunQuery
from chimes.model.proposal import APPROVAL_LEASE, PROPOSALS_CHECKPOINT
from chimes.services.proposals import BURST, MAX_OPEN, prune_proposals
from chimes.services.schedules.rules import Limits
from tests.builders import ALICE, BOB
from tests.web.rig import CRON, HTTP, Rig, serving

PROPOSALS = "/api/v1/proposals"
NINE = {"trigger": CRON, "target": HTTP}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}
MONDAY = datetime(2030, 1, 7, 1, 30, tzinfo=UTC)
SECRET = "open-5esame"


class Failures:
    """Collects the failing rows of a table."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextmanager
    def row(self, row: object) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            self._found.append(f"{row}: {error}"[:600])

    def check(self) -> None:
        assert not self._found, "\n".join(self._found)


async def propose(rig: Rig, *, status: int = 201, headers: Any = None, **body: Any) -> Any:
    body = {"reason": "because", **body}
    answer = await rig.client.post(PROPOSALS, json=body, headers=headers or {})
    assert answer.status_code == status, answer.text
    return answer.json()


async def decide(
    rig: Rig,
    proposal: dict[str, Any],
    verb: str,
    *,
    status: int = 200,
    headers: Any = None,
    **body: Any,
) -> Any:
    path = f"{PROPOSALS}/{proposal['id']}/{verb}"
    answer = await rig.client.post(path, json=body, headers=headers or {})
    assert answer.status_code == status, answer.text
    return answer.json()


async def schedule(rig: Rig, schedule_id: str) -> Any:
    return (await rig.client.get(f"/api/v1/schedules/{schedule_id}")).json()


async def read(rig: Rig, proposal: dict[str, Any]) -> Any:
    answer = await rig.client.get(f"{PROPOSALS}/{proposal['id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_proposal_changes_nothing_until_it_is_approved(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(MONDAY)
    edited, gone, stopped, started = [
        await rig.create(name=name) for name in ("edited", "gone", "stopped", "started")
    ]
    await rig.client.post(f"/api/v1/schedules/{started['id']}/pause", json={})
    before = await rig.snapshot()
    made = await propose(
        rig,
        schedules={
            "edited": TEN | {"target": HTTP | {"headers": {"Authorization": SECRET}}},
            "new": NINE,
        },
        delete=[gone["id"]],
        pause=[stopped["id"]],
        resume=[started["id"]],
        run=[edited["id"]],
        reason="Fewer calls\nat night",
        asker="claude via MCP",
        expires_in="2h",
    )
    after = await rig.snapshot()
    # Only the documents and the notification were added.
    assert all(each in after for each in before)
    assert SECRET not in str(made)
    assert (made["status"], made["reason"]) == ("open", "Fewer calls\nat night")
    assert made["asker"] == {"name": str(SYSTEM_OWNER), "title": "claude via MCP", "agent": False}
    assert made["expires_at"] == "2030-01-07T03:30:00Z"
    plan = {(each["action"], each["name"]): each for each in made["plan"]}
    assert set(plan) == {
        ("update", "edited"),
        ("create", "new"),
        ("delete", "gone"),
        ("pause", "stopped"),
        ("resume", "started"),
        ("run", "edited"),
    }
    update = plan["update", "edited"]
    assert update["fields"]["trigger.expression"] == ["0 9 * * *", "0 10 * * *"]
    assert update["fields"]["target.headers.Authorization"] == [None, "***"]
    fires = {key: each["fires"] for key, each in plan.items()}
    assert fires["update", "edited"]["moved"] == 7
    assert fires["update", "edited"]["first"]["moved"][0] == [
        "2030-01-07T02:00:00Z",
        "2030-01-07T03:00:00Z",
    ]
    assert fires["create", "new"]["added"] == 7
    assert fires["delete", "gone"]["dropped"] == fires["pause", "stopped"]["dropped"] == 7
    assert len(fires["delete", "gone"]["first"]["dropped"]) == 5
    assert fires["resume", "started"]["added"] == 7

    listed = (await rig.client.get(PROPOSALS, params={"status": "open"})).json()["items"]
    assert listed == [made] == [await read(rig, made)]
    approved = await decide(rig, made, "approve", digest=made["digest"], reason="fine")
    assert (approved["status"], approved["decision"]) == ("approved", "fine")
    assert approved["decided_at"] == "2030-01-07T01:30:00Z"
    assert (await schedule(rig, edited["id"]))["trigger"]["expression"] == "0 10 * * *"
    stored = await rig.store.get_schedule(ScheduleId(edited["id"]))
    assert stored is not None
    assert SECRET in str(stored.target)
    assert (await rig.client.get(f"/api/v1/schedules/{gone['id']}")).status_code == 404
    assert not (await schedule(rig, stopped["id"]))["enabled"]
    assert (await schedule(rig, started["id"]))["enabled"]
    new = (await rig.client.get("/api/v1/schedules", params={"name": "new"})).json()["items"]
    assert len(new) == 1
    runs = (await rig.store.list_runs(RunQuery(schedule_id=ScheduleId(edited["id"])))).items
    assert [each.id for each in runs] == approved["runs"]
    assert (await read(rig, made)) == approved
    again = await decide(rig, made, "approve", status=409)
    assert again["code"] == "proposal_decided"
    assert (await decide(rig, made, "reject", status=409))["code"] == "proposal_decided"
    verbs = [
        each.verb for each in await rig.store.list_audit(AuditQuery(object_id=made["id"], limit=10))
    ]
    assert verbs == ["approve", "propose"]
    assert (await rig.client.get(PROPOSALS, params={"status": "open"})).json()["items"] == []


async def test_a_plan_that_has_changed_is_shown_again_instead_of_applied(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(MONDAY)
    made = await rig.create(name="edited")
    proposal = await propose(rig, schedules={"edited": TEN})
    path = f"/api/v1/schedules/{made['id']}"
    changed = await rig.client.patch(path, json={"policy": {"timeout": "30s"}})
    assert changed.status_code == 200
    refused = await decide(rig, proposal, "approve", status=409)
    assert refused["code"] == "plan_changed"
    assert (await schedule(rig, made["id"]))["trigger"]["expression"] == "0 9 * * *"
    shown = await read(rig, proposal)
    assert (shown["status"], shown["plan"][0]["version"]) == ("open", 2)
    assert shown["plan"][0]["fields"]["policy.timeout"] == ["PT30S", "PT10S"]
    # The plan that the person looked at is the old one.
    old = await decide(rig, proposal, "approve", status=409, digest=proposal["digest"])
    assert old["code"] == "plan_changed"
    await decide(rig, proposal, "approve", digest=shown["digest"])
    assert (await schedule(rig, made["id"]))["trigger"]["expression"] == "0 10 * * *"


async def test_the_plan_shows_that_the_secret_of_a_webhook_changes(rig: Rig) -> None:
    trigger = {"kind": "webhook", "scheme": "github", "secret": SECRET}
    hook = {"trigger": trigger, "target": HTTP, "policy": {"overlap": "queue"}}
    made = await rig.client.post("/api/v1/schedules", json={"name": "hook"} | hook)
    assert made.status_code == 201, made.text
    changed = hook | {"trigger": trigger | {"secret": "an0ther-one"}}
    answer = await propose(rig, schedules={"hook": changed})
    (update,) = answer["plan"]
    assert (update["action"], update["fields"]) == ("update", {"trigger.secret": ["***", "***"]})
    assert SECRET not in str(answer)
    assert "an0ther-one" not in str(answer)


async def test_of_concurrent_approvals_one_succeeds(any_rig: Rig) -> None:
    rig = any_rig
    made = await rig.create(name="edited")
    async with serving(rig.store, rig.clock) as other:
        for expression in ("0 1 * * *", "0 2 * * *"):
            wanted = NINE | {"trigger": CRON | {"expression": expression}}
            proposal = await propose(rig, schedules={"edited": wanted}, run=[made["id"]])
            path = f"{PROPOSALS}/{proposal['id']}/approve"
            answers = await asyncio.gather(
                *(each.client.post(path, json={}) for each in (rig, other) * 3)
            )
            assert Counter(each.status_code for each in answers) == {200: 1, 409: 5}
            assert {each.json()["code"] for each in answers if each.status_code == 409} <= {
                "under_way",
                "proposal_decided",
            }
            assert (await read(rig, proposal))["status"] == "approved"
    assert (await schedule(rig, made["id"]))["version"] == 3
    assert len((await rig.store.list_runs(RunQuery(schedule_id=ScheduleId(made["id"])))).items) == 2


async def test_proposals_expire_and_are_deleted(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(MONDAY)
    proposal = await propose(rig, schedules={"new": NINE})
    assert proposal["expires_at"] == "2030-01-08T01:30:00Z"
    rig.clock.set(MONDAY + timedelta(hours=24))
    assert (await read(rig, proposal))["status"] == "expired"
    assert (await decide(rig, proposal, "approve", status=409))["code"] == "proposal_expired"
    assert (await decide(rig, proposal, "reject", status=409))["code"] == "proposal_expired"
    for status, count in (("open", 0), ("expired", 1)):
        listed = await rig.client.get(PROPOSALS, params={"status": status})
        assert len(listed.json()["items"]) == count
    assert await prune_proposals(rig.store, before=MONDAY + timedelta(hours=23)) == 0
    assert await prune_proposals(rig.store, before=MONDAY + timedelta(hours=25)) == 1
    assert (await rig.client.get(f"{PROPOSALS}/{proposal['id']}")).status_code == 404
    assert await rig.store.get_checkpoint(PROPOSALS_CHECKPOINT) is None


async def test_an_approval_whose_node_died_can_be_repeated(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(MONDAY)
    made = await rig.create(name="edited")
    proposal = await propose(rig, schedules={"edited": TEN}, run=[made["id"]])
    service = rig.context.proposals
    await service._begin(Actor(), proposal["id"], proposal["digest"])
    assert (await decide(rig, proposal, "approve", status=409))["code"] == "under_way"
    assert (await decide(rig, proposal, "reject", status=409))["code"] == "under_way"
    rig.clock.set(MONDAY + APPROVAL_LEASE)
    assert (await decide(rig, proposal, "approve"))["status"] == "approved"

    # It died after it had changed the schedule: what is left to do is shown.
    second = await propose(rig, schedules={"edited": NINE}, run=[made["id"]])
    await service._begin(Actor(), second["id"], second["digest"])
    await rig.client.post("/api/v1/apply", json={"schedules": {"edited": NINE}, "origin": ""})
    rig.clock.set(MONDAY + 2 * APPROVAL_LEASE)
    assert (await decide(rig, second, "approve", status=409))["code"] == "plan_changed"
    assert [each["action"] for each in (await read(rig, second))["plan"]] == ["run"]
    assert (await decide(rig, second, "approve"))["status"] == "approved"


async def test_an_approval_that_the_store_interrupts_leaves_the_proposal_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await rig.create(name="edited")
    proposal = await propose(rig, schedules={"edited": TEN})

    async def unavailable(edits: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "change_schedules", unavailable)
        await decide(rig, proposal, "approve", status=503)
    assert (await schedule(rig, made["id"]))["version"] == 1
    assert (await decide(rig, proposal, "approve"))["status"] == "approved"
    assert (await schedule(rig, made["id"]))["version"] == 2


async def test_changes_that_cannot_be_made_any_more_fail() -> None:
    limits = Limits(quotas=lambda owner: (Quota(limit=1),))
    async with serving(limits=lambda: limits) as rig:
        alice = await rig.key(Role.MEMBER, ALICE)
        other = await rig.key(Role.MEMBER, ALICE)
        proposal = await propose(rig, schedules={"one": NINE}, headers=alice)
        taken = await rig.client.post(
            "/api/v1/schedules", json=NINE | {"name": "two"}, headers=alice
        )
        assert taken.status_code == 201
        failed = await decide(rig, proposal, "approve", headers=other)
        assert failed["status"] == "failed"
        assert "already has 1 schedules" in failed["error"]
        decided = await decide(rig, proposal, "approve", headers=other, status=409)
        assert decided["code"] == "proposal_decided"


async def test_input_is_checked_and_bounded(rig: Rig) -> None:
    made = await rig.create(name="known")
    failures = Failures()
    before = await rig.snapshot()
    too_many = {f"s{number}": NINE for number in range(101)}
    for body, status, pointer in (
        ({}, 422, "/schedules"),
        ({"schedules": {"known": NINE}}, 422, "/schedules"),  # nothing would change
        ({"schedules": {"x": NINE}, "reason": ""}, 422, "/reason"),
        ({"schedules": {"x": NINE}, "reason": "r" * 2001}, 422, "/reason"),
        ({"schedules": {"x": NINE}, "reason": "a\u202eb"}, 422, "/reason"),
        ({"schedules": {"x": NINE}, "asker": "a" * 101}, 422, "/asker"),
        ({"schedules": {"x": NINE}, "expires_in": "8d"}, 422, "/expires_in"),
        ({"schedules": {"x": NINE}, "expires_in": "1s"}, 422, "/expires_in"),
        ({"schedules": {"x": {"trigger": CRON}}}, 422, "/schedules/x/target"),
        ({"schedules": {"x": NINE | {"trigger": {"kind": "cron", "expression": "x"}}}}, 422,
         "/schedules/x/trigger/expression"),
        ({"schedules": too_many}, 422, "/schedules"),
        ({"delete": ["unknown"]}, 422, "/delete"),
        ({"run": ["unknown"]}, 422, "/run"),
        ({"pause": [made["id"]], "delete": [made["id"]]}, 422, "/pause"),
        ({"schedules": {"known": TEN}, "delete": [made["id"]]}, 422, "/delete"),
        ({"apply": True}, 422, "/apply"),
    ):  # fmt: skip
        with failures.row(body):
            answer = await rig.client.post(PROPOSALS, json={"reason": "r"} | body)
            assert answer.status_code == status, answer.text
            assert answer.json()["errors"][0]["pointer"] == pointer
    failures.check()
    assert await rig.snapshot() == before
    assert (await rig.client.get(f"{PROPOSALS}/none")).status_code == 404
    assert (await rig.client.get(PROPOSALS, params={"status": "x"})).status_code == 422
    large = NINE | {"target": HTTP | {"body": "x" * 40_000}}
    answer = await rig.client.post(
        PROPOSALS, json={"reason": "r", "schedules": {f"s{place}": large for place in range(5)}}
    )
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "too_large")


async def test_open_proposals_of_an_owner_are_limited(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(MONDAY)
    admin = await rig.key(Role.ADMIN)
    alice = await rig.key(Role.MEMBER, ALICE)
    bob = await rig.key(Role.MEMBER, BOB)
    made = [
        await propose(rig, headers=alice, schedules={f"s{number}": NINE})
        for number in range(MAX_OPEN)
    ]
    assert MAX_OPEN == BURST
    refused = await propose(rig, headers=alice, schedules={"more": NINE}, status=429)
    assert refused["code"] == "rate_limited"
    rig.clock.set(MONDAY + timedelta(minutes=2))
    refused = await propose(rig, headers=alice, schedules={"more": NINE}, status=409)
    assert refused["code"] == "too_many_proposals"
    await propose(rig, headers=bob, schedules={"more": NINE})
    # The asker withdraws one.
    await decide(rig, made[0], "reject", headers=alice, reason="no longer needed")
    await propose(rig, headers=alice, schedules={"more": NINE})
    listed = await rig.client.get(PROPOSALS, params={"limit": 200}, headers=admin)
    assert len(listed.json()["items"]) == MAX_OPEN + 2


async def test_a_repeated_request_makes_one_proposal(rig: Rig) -> None:
    headers = {"Idempotency-Key": "one"}
    first = await propose(rig, headers=headers, schedules={"a": NINE})
    assert await propose(rig, headers=headers, schedules={"a": NINE}) == first
    assert len((await rig.client.get(PROPOSALS)).json()["items"]) == 1


# --- rights ---------------------------------------------------------------------------------------
class Keys:
    """Keys of every role, of the owners alice, bob and the system."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def __call__(self, role: Role, owner: Owner, *scopes: Scope) -> dict[str, str]:
        made = await self._rig.context.access.create(
            Actor(), name="k", role=role, owner=owner, scopes=scopes
        )
        return {"Authorization": f"Bearer {made.text}"}


@asynccontextmanager
async def keyed() -> AsyncIterator[tuple[Rig, Keys]]:
    async with serving() as rig:
        keys = Keys(rig)
        await keys(Role.ADMIN, SYSTEM_OWNER)
        yield rig, keys


AGENT = (Scope.AGENT, Scope.AGENT_SCHEDULES)


async def test_who_may_propose_see_and_decide() -> None:
    """Approver, and the status of its approval of: an edit, and a pause; and of its rejection."""
    async with keyed() as (rig, keys):
        admin = await keys(Role.ADMIN, SYSTEM_OWNER)
        asker = await keys(Role.VIEWER, ALICE, Scope.READ)
        owned = (
            await rig.client.post(
                "/api/v1/schedules",
                json=NINE | {"name": "owned", "owner": {"type": "user", "id": "alice"}},
                headers=admin,
            )
        ).json()
        number = 0
        failures = Failures()
        for role, owner, scopes, edit, pause, reject in (
            (Role.VIEWER, ALICE, (), 403, 403, 403),
            (Role.MEMBER, ALICE, (), 200, 200, 200),
            (Role.MEMBER, ALICE, (Scope.READ,), 403, 403, 403),
            (Role.MEMBER, ALICE, (Scope.OPERATE,), 403, 200, 200),
            (Role.MEMBER, ALICE, AGENT, 403, 403, 403),
            (Role.MEMBER, ALICE, (*AGENT, Scope.WRITE, Scope.OPERATE), 403, 403, 403),
            (Role.MEMBER, BOB, (), 404, 404, 404),
            (Role.OPERATOR, BOB, (), 403, 200, 200),
            (Role.ADMIN, BOB, (), 200, 200, 200),
            (Role.ADMIN, BOB, (Scope.AGENT,), 403, 403, 403),
        ):
            approver = await keys(role, owner, *scopes)
            for verb, body, expected in (
                ("approve", "edit", edit),
                ("approve", "pause", pause),
                ("reject", "edit", reject),
            ):
                number += 1
                rig.clock.advance(timedelta(minutes=2))
                wanted: dict[str, Any] = {"pause": [owned["id"]]}
                if body == "edit":
                    wanted = {"schedules": {"owned": NINE | {"policy": {"timeout": f"{number}s"}}}}
                with failures.row((role, owner, scopes, verb, body)):
                    await rig.client.post(
                        f"/api/v1/schedules/{owned['id']}/resume", json={}, headers=admin
                    )
                    proposal = await propose(rig, headers=asker, **wanted)
                    await decide(rig, proposal, verb, headers=approver, status=expected)
                    seen = await rig.client.get(f"{PROPOSALS}/{proposal['id']}", headers=approver)
                    assert (seen.status_code == 404) == (expected == 404)
                    await rig.client.post(
                        f"{PROPOSALS}/{proposal['id']}/reject", json={}, headers=admin
                    )
        failures.check()


async def test_an_asker_cannot_reach_further_than_it_sees() -> None:
    async with keyed() as (rig, keys):
        admin = await keys(Role.ADMIN, SYSTEM_OWNER)
        second = await keys(Role.ADMIN, SYSTEM_OWNER)
        alice = await keys(Role.MEMBER, ALICE)
        agent = await keys(Role.MEMBER, ALICE, *AGENT)
        bobs = (
            await rig.client.post(
                "/api/v1/schedules",
                json=NINE | {"name": "bobs", "owner": {"type": "user", "id": "bob"}},
                headers=admin,
            )
        ).json()
        for body in (
            {"pause": [bobs["id"]]},
            {"run": [bobs["id"]]},
            {"delete": [bobs["id"]]},
        ):
            await propose(rig, headers=alice, status=422, **body)
        of_bob = TEN | {"owner": {"type": "user", "id": "bob"}}
        await propose(rig, headers=alice, status=403, schedules={"bobs": of_bob})
        taken = await propose(
            rig, headers=alice, status=422, schedules={"x": TEN | {"id": bobs["id"]}}
        )
        assert taken["errors"][0]["pointer"].startswith("/schedules/x")
        # A new schedule belongs to the asker's owner, also if an admin approves it.
        proposal = await propose(rig, headers=agent, schedules={"bobs": NINE})
        assert proposal["asker"]["agent"]
        await decide(rig, proposal, "approve", headers=agent, status=403)
        approved = await decide(rig, proposal, "approve", headers=second)
        made = await rig.client.get(f"/api/v1/schedules/{approved['plan'][0]['id']}", headers=admin)
        assert made.json()["owner"] == {"type": "user", "id": "alice"}
        assert approved["decided_by"] != proposal["asker"]["name"]
        # The key that proposed cannot approve, whatever its role is; another key can.
        wide = await propose(rig, headers=admin, schedules={"bobs": of_bob})
        refused = await decide(rig, wide, "approve", headers=admin, status=403)
        assert "another key" in refused["detail"]
        await decide(rig, wide, "approve", headers=alice, status=404)
        await decide(rig, wide, "approve", headers=second)
        # A person who does not see a schedule of the plan cannot replace the plan.
        wide_alice = await keys(Role.ADMIN, ALICE)
        mixed = await propose(rig, headers=wide_alice, pause=[bobs["id"]])
        await decide(rig, mixed, "approve", headers=alice, status=403)
        seen = await rig.client.get(f"{PROPOSALS}/{mixed['id']}", headers=admin)
        assert seen.json()["digest"] == mixed["digest"]


async def test_a_created_schedule_that_became_visible_to_others_is_not_changed() -> None:
    """The id of a new schedule is taken by another owner before the approval."""
    async with keyed() as (rig, keys):
        admin = await keys(Role.ADMIN, SYSTEM_OWNER)
        alice = await keys(Role.MEMBER, ALICE)
        proposal = await propose(rig, headers=alice, schedules={"x": NINE | {"id": "chosen"}})
        taken = await rig.client.post(
            "/api/v1/schedules",
            json=TEN | {"id": "chosen", "name": "x", "owner": {"type": "user", "id": "bob"}},
            headers=admin,
        )
        assert taken.status_code == 201, taken.text
        await decide(rig, proposal, "approve", headers=admin, status=403)
        stored = await rig.client.get("/api/v1/schedules/chosen", headers=admin)
        assert stored.json()["version"] == 1


async def test_people_who_may_decide_are_notified() -> None:
    async with serving() as rig:
        from chimes.services.users import UserService

        users = UserService(rig.store)
        await users.create(Actor(), name="root", password="long enough 1", role=Role.ADMIN)
        await users.create(Actor(), name="reader", password="long enough 1", role=Role.VIEWER)
        admin = await rig.key(Role.ADMIN)
        alice = await rig.key(Role.VIEWER, ALICE)
        first = await propose(rig, headers=alice, schedules={"a": NINE})
        second = await propose(rig, headers=admin, schedules={"a": NINE})
        found = (await rig.store.list_deliveries(DeliveryQuery())).items
        assert {(each.receipt, str(each.owner), each.recipient.channel) for each in found} == {
            (first["id"], "user:alice", "inbox"),
            (second["id"], "system:default", "inbox"),
            (second["id"], "user:root", "inbox"),
        }
