"""Action schedules: create, read, change, switch, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.policy import Misfire, Overlap
from chimes.model.run import RunStatus
from chimes.model.target import ActionTarget
from chimes.triggers import Cron
from chimes.web.openapi import describe_apis
from tests.builders import HOUR, LEASE, a_completion, a_node, a_schedule, claim_request
from tests.web.compat.kweaver.requests import (
    KN1,
    KN2,
    OBJECTS,
    body,
    create,
    fetch,
    milliseconds,
    stored,
)
from tests.web.rig import Rig, definition

MINUTE = 60_000
U1 = {"X-Account-Id": "u1", "X-Account-Type": "app"}
ACTION = {
    "kind": "action",
    "action_type_id": "restart",
    "kn_id": "kn1",
    "identities": OBJECTS,
    "params": {"force": True},
}


async def test_create_and_fetch_return_the_documented_fields(on_any_store: Rig) -> None:
    rig = on_any_store
    answer = await rig.client.post(KN1, json=body(), headers=U1)
    assert answer.status_code == 201
    assert set(answer.json()) == {"id"}
    schedule_id = answer.json()["id"]
    assert len(schedule_id) == 20
    now = milliseconds(rig)
    assert await fetch(rig, schedule_id) == {
        "id": schedule_id,
        "name": "restart pods",
        "kn_id": "kn1",
        "branch": "main",
        "action_type_id": "restart",
        "cron_expression": "*/5 * * * *",
        "unique_identities": OBJECTS,
        "_instance_identities": OBJECTS,
        "dynamic_params": {"force": True},
        "status": "inactive",
        "creator": {"id": "u1", "type": "app"},
        "create_time": now,
        "updater": {"id": "u1", "type": "app"},
        "update_time": now,
    }
    schedule = await stored(rig, schedule_id)
    assert schedule.target == ActionTarget(
        action_type_id="restart",
        kn_id="kn1",
        identities=tuple(OBJECTS),
        params={"force": True},
        account_id="u1",
        account_type="app",
    )
    assert (schedule.namespace, schedule.enabled) == ("kweaver", False)


async def test_policy_of_created_schedules(kweaver: Rig) -> None:
    policy = (await stored(kweaver, await create(kweaver))).policy
    assert (policy.misfire, policy.overlap) == (Misfire.ONE, Overlap.SKIP)
    assert policy.timeout == timedelta(minutes=10)
    assert policy.misfire_grace == kweaver.context.settings.misfire_grace


async def test_only_active_schedules_have_a_next_run_time(kweaver: Rig) -> None:
    schedule_id = await create(kweaver, status="active")
    found = await fetch(kweaver, schedule_id)
    assert found["status"] == "active"
    assert found["next_run_time"] == milliseconds(kweaver) + 5 * MINUTE
    assert "last_run_time" not in found
    assert "lock_holder" not in found


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "/api/ontology-manager/v1",
        "/api/bkn-backend/v1",
        "/in/v1",
        "/api/ontology-manager/in/v1",
        "/api/bkn-backend/in/v1",
    ],
)
async def test_all_routes_under_every_prefix(kweaver: Rig, prefix: str) -> None:
    path = f"{prefix}{KN1}"
    schedule_id = await create(kweaver, path)
    client = kweaver.client
    assert (await client.get(path)).json()["total_count"] == 1
    assert (await client.get(f"{path}/")).json()["total_count"] == 1
    answer = await client.put(f"{path}/{schedule_id}", json={"name": "other"})
    assert (answer.status_code, answer.text) == (200, "null")
    answer = await client.put(f"{path}/{schedule_id}/status", json={"status": "active"})
    assert (answer.status_code, answer.text) == (200, "null")
    found = await fetch(kweaver, schedule_id, path)
    assert (found["name"], found["status"]) == ("other", "active")
    assert (await client.delete(f"{path}/{schedule_id}")).status_code == 204
    wrong = await client.get(f"{path}/{schedule_id}")
    assert wrong.status_code == 404
    assert wrong.json()["error_code"] == "BknBackend.ActionSchedule.NotFound"


@pytest.mark.parametrize("name", ["unique_identities", "_instance_identities"])
async def test_both_names_of_identities_are_accepted(kweaver: Rig, name: str) -> None:
    sent = body()
    sent[name] = sent.pop("_instance_identities")
    answer = await kweaver.client.post(KN1, json=sent)
    found = await fetch(kweaver, answer.json()["id"])
    assert found["unique_identities"] == found["_instance_identities"] == OBJECTS


async def test_fetched_schedule_can_be_sent_back(kweaver: Rig) -> None:
    schedule_id = await create(kweaver, status="active", cron_expression="? 9 * * MON-FRI")
    before = await fetch(kweaver, schedule_id)
    assert before["cron_expression"] == "? 9 * * MON-FRI"
    kweaver.clock.advance(60)
    answer = await kweaver.client.put(f"{KN1}/{schedule_id}", json=before)
    assert answer.status_code == 200
    assert await fetch(kweaver, schedule_id) == before


async def test_put_changes_only_the_given_fields(on_any_store: Rig) -> None:
    rig = on_any_store
    schedule_id = await create(rig, headers=U1, status="active")
    before = await fetch(rig, schedule_id)
    path = f"{KN1}/{schedule_id}"
    rig.clock.advance(90)
    for change in (
        {"name": "ชื่อใหม่"},
        {"unique_identities": [{"id": "x"}]},
        {"dynamic_params": {}},
        {"cron_expression": "CRON_TZ=Asia/Bangkok 0 9 * * *"},
    ):
        answer = await rig.client.put(path, json=change, headers={"X-Account-Id": "u2"})
        assert (answer.status_code, answer.text) == (200, "null")
    after = await fetch(rig, schedule_id)
    now = milliseconds(rig)
    del before["dynamic_params"]
    assert after == before | {
        "name": "ชื่อใหม่",
        "cron_expression": "CRON_TZ=Asia/Bangkok 0 9 * * *",
        "unique_identities": [{"id": "x"}],
        "_instance_identities": [{"id": "x"}],
        # 09:00 in Bangkok is 02:00 UTC, on the next day.
        "next_run_time": now - 90_000 + 17 * 60 * MINUTE,
        "updater": {"id": "u2", "type": "user"},
        "update_time": now,
    }
    # It is executed for the account that created it.
    target = (await stored(rig, schedule_id)).target
    assert isinstance(target, ActionTarget)
    assert (target.account_id, target.account_type) == ("u1", "app")


async def test_action_type_cannot_be_changed(kweaver: Rig) -> None:
    schedule_id = await create(kweaver)
    path = f"{KN1}/{schedule_id}"
    alone = await kweaver.client.put(path, json={"action_type_id": "other"})
    assert alone.status_code == 400
    beside = await kweaver.client.put(path, json={"action_type_id": "other", "name": "n"})
    assert beside.status_code == 200
    found = await fetch(kweaver, schedule_id)
    assert (found["action_type_id"], found["name"]) == ("restart", "n")


async def test_new_cron_of_an_inactive_schedule_plans_nothing(kweaver: Rig) -> None:
    schedule_id = await create(kweaver)
    await kweaver.client.put(f"{KN1}/{schedule_id}", json={"cron_expression": "0 1 * * *"})
    found = await fetch(kweaver, schedule_id)
    assert found["cron_expression"] == "0 1 * * *"
    assert "next_run_time" not in found


async def test_activation_plans_from_now_and_deactivation_clears_the_plan(kweaver: Rig) -> None:
    rig = kweaver
    schedule_id = await create(rig, status="active")
    path = f"{KN1}/{schedule_id}/status"

    async def switched(status: str) -> dict[str, Any]:
        answer = await rig.client.put(path, json={"status": status}, headers=U1)
        assert (answer.status_code, answer.text) == (200, "null")
        return await fetch(rig, schedule_id)

    off = await switched("inactive")
    assert off["status"] == "inactive"
    assert "next_run_time" not in off
    assert off["updater"] == {"id": "u1", "type": "app"}
    rig.clock.advance(3600)
    on = await switched("active")
    assert on["status"] == "active"
    assert on["next_run_time"] == milliseconds(rig) + 5 * MINUTE
    assert await switched("active") == on
    # Missed slots are not caught up.
    assert (await rig.client.get(f"/api/v1/runs?schedule_id={schedule_id}")).json()["items"] == []
    notes = await rig.store.list_audit(AuditQuery(object_id=schedule_id))
    assert {note.interface for note in notes} == {"kweaver"}
    assert [note.verb for note in notes][::-1] == ["create", "pause", "resume", "resume"]


async def test_several_schedules_are_deleted_in_one_request(kweaver: Rig) -> None:
    rig = kweaver
    ids = [await create(rig, status="active") for _ in range(3)]
    kept = await create(rig)
    answer = await rig.client.delete(f"{KN1}/{ids[0]},{ids[1]}, {ids[2]},{ids[0]}")
    assert (answer.status_code, answer.text) == (204, "")
    for schedule_id in ids:
        assert (await rig.client.get(f"{KN1}/{schedule_id}")).status_code == 404
        assert (await stored(rig, schedule_id)).deleted_at == rig.clock.now()
    assert (await rig.client.get(KN1)).json()["entries"] == [await fetch(rig, kept)]
    notes = await rig.store.list_audit(AuditQuery(verb="delete"))
    assert [note.object_id for note in notes] == ids[::-1]


async def test_nothing_is_deleted_if_one_id_is_unknown(kweaver: Rig) -> None:
    ids = [await create(kweaver, status="active") for _ in range(2)]
    before = await kweaver.snapshot()
    for place in range(3):
        given = [*ids[:place], "nobody", *ids[place:]]
        answer = await kweaver.client.delete(f"{KN1}/{','.join(given)}")
        assert answer.status_code == 404
        assert answer.json()["error_code"] == "BknBackend.ActionSchedule.NotFound"
        assert "nobody" in answer.json()["error_details"]
    assert await kweaver.snapshot() == before


async def test_nothing_is_deleted_if_one_id_is_of_another_network(kweaver: Rig) -> None:
    here, there = await create(kweaver), await create(kweaver, KN2)
    branch = await create(kweaver, f"{KN1}?branch=dev")
    native = (await kweaver.create())["id"]
    before = await kweaver.snapshot()
    for other in (there, branch):
        answer = await kweaver.client.delete(f"{KN1}/{here},{other}")
        assert answer.status_code == 400
        assert answer.json()["error_code"] == "BknBackend.ActionSchedule.InvalidParameter"
        assert other in answer.json()["error_details"]
    # Schedules with other targets are not found.
    assert (await kweaver.client.delete(f"{KN1}/{here},{native}")).status_code == 404
    assert (await kweaver.client.delete(f"{KN1}/,%20,")).status_code == 400
    assert await kweaver.snapshot() == before
    assert (await kweaver.client.delete(f"{KN1}/{branch}?branch=dev")).status_code == 204


async def test_networks_and_branches_are_isolated(kweaver: Rig) -> None:
    schedule_id = await create(kweaver, f"{KN1}?branch=dev")
    assert (await fetch(kweaver, schedule_id, params={"branch": "dev"}))["branch"] == "dev"
    client = kweaver.client
    before = await kweaver.snapshot()
    for path in (f"{KN1}/{schedule_id}", f"{KN2}/{schedule_id}?branch=dev"):
        bare, _, query = path.partition("?")
        for answer in (
            await client.get(path),
            await client.put(path, json={"name": "x"}),
            await client.put(f"{bare}/status?{query}", json={"status": "active"}),
        ):
            assert answer.status_code == 404
            assert answer.json()["error_code"] == "BknBackend.ActionSchedule.NotFound"
    assert (await client.get(KN1)).json() == {"entries": [], "total_count": 0}
    assert (await client.get(f"{KN1}?branch=dev")).json()["total_count"] == 1
    assert await kweaver.snapshot() == before


async def test_due_schedules_are_listed(on_any_store: Rig) -> None:
    rig = on_any_store
    late = await create(rig, status="active", cron_expression="1 * * * *")
    later = await create(rig, status="active", cron_expression="2 * * * *")
    await create(rig, status="active", cron_expression="3 * * * *")
    await create(rig, cron_expression="1 * * * *")
    elsewhere = await create(rig, KN2, status="active", cron_expression="1 * * * *")
    branch = await create(rig, f"{KN1}?branch=dev", status="active", cron_expression="1 * * * *")
    due = f"/in/v1{KN1}/due"
    assert (await rig.client.get(due)).json() == {"entries": []}
    rig.clock.advance(120)
    found = (await rig.client.get(due)).json()
    assert set(found) == {"entries"}
    assert [each["id"] for each in found["entries"]] == [late, later]
    assert found["entries"][0] == await fetch(rig, late)
    assert found["entries"][1]["next_run_time"] == milliseconds(rig)
    others = await rig.client.get(f"/api/bkn-backend/in/v1{KN2}/due")
    assert [each["id"] for each in others.json()["entries"]] == [elsewhere]
    others = await rig.client.get(f"/api/ontology-manager/in/v1{KN1}/due?branch=dev")
    assert [each["id"] for each in others.json()["entries"]] == [branch]
    # On the public route `due` is an unknown schedule id.
    assert (await rig.client.get(f"{KN1}/due")).status_code == 404
    await rig.store.fire_due(plan, limit=10)
    assert (await rig.client.get(due)).json() == {"entries": []}


async def test_due_list_covers_many_and_unplanned_schedules(kweaver: Rig) -> None:
    for number in range(205):
        schedule = a_schedule(
            id=ScheduleId(f"s{number:03}"),
            trigger=Cron("* * * * *", timezone="UTC"),
            target=ActionTarget(action_type_id="a", kn_id="kn1", identities=({"id": "x"},)),
        )
        await kweaver.store.add_schedule(schedule)
    # Enabled by SQL and not planned yet.
    unplanned = replace(schedule, id=ScheduleId("new"), next_slot=None)
    await kweaver.store.add_schedule(unplanned)
    kweaver.clock.advance(60)
    entries = (await kweaver.client.get(f"/in/v1{KN1}/due")).json()["entries"]
    assert [each["id"] for each in entries] == [f"s{number:03}" for number in range(205)]


# The lock is the lease of the run.
async def test_lock_is_shown_while_a_run_is_running(on_any_store: Rig) -> None:
    rig = on_any_store
    schedule_id = await create(rig, status="active", cron_expression="* * * * *")
    idle = await create(rig, status="active", cron_expression="0 0 1 1 *")
    await rig.store.join(a_node("node-7"), LEASE)
    rig.clock.advance(61)
    await rig.store.join(a_node("node-7"), LEASE)
    fired = await rig.store.fire_due(
        plan, limit=10, request=replace(claim_request("node-7"), capabilities=frozenset({"action"}))
    )
    (run,) = fired.claimed
    rig.clock.advance(2)
    locked = await fetch(rig, schedule_id)
    assert (locked["lock_holder"], locked["lock_time"]) == ("node-7", milliseconds(rig) - 2000)
    entries = (await rig.client.get(f"{KN1}?sort=next_run_time&direction=asc")).json()["entries"]
    assert [each.get("lock_holder") for each in entries] == ["node-7", None]
    assert entries[1]["id"] == idle
    await rig.store.finish([a_completion(run, rig.clock.now())])
    free = await fetch(rig, schedule_id)
    assert "lock_holder" not in free
    assert "lock_time" not in free
    assert free["last_run_time"] == milliseconds(rig) - 2000
    runs = (await rig.client.get(f"/api/v1/runs?schedule_id={schedule_id}")).json()["items"]
    assert [each["status"] for each in runs] == [RunStatus.SUCCEEDED.value]


async def test_lock_time_is_the_last_renewal_of_the_lease(on_any_store: Rig) -> None:
    """KWeaver takes a lock for stale whose time is older than its lock timeout."""
    rig = on_any_store
    schedule_id = await create(rig, status="active", cron_expression="* * * * *")
    rig.clock.advance(61)
    for name in ("node-7", "node-8"):
        await rig.store.join(a_node(name), HOUR)
    (run,) = (
        await rig.store.fire_due(
            plan,
            limit=10,
            request=replace(claim_request("node-7"), capabilities=frozenset({"action"})),
        )
    ).claimed
    claimed = milliseconds(rig)
    assert (await fetch(rig, schedule_id))["lock_time"] == claimed
    for renewals in (1, 2):
        now = rig.clock.advance(10)
        await rig.store.heartbeat(NodeId("node-7"), HOUR, clock=now)
        rig.clock.advance(10)
        # Other nodes do not renew this lock.
        await rig.store.heartbeat(NodeId("node-8"), HOUR, clock=rig.clock.now())
        locked = await fetch(rig, schedule_id)
        assert (locked["lock_holder"], locked["lock_time"]) == (
            "node-7",
            milliseconds(rig) - 10_000,
        )
        assert locked["lock_time"] == claimed + renewals * 20_000 - 10_000
        (entry,) = (await rig.client.get(KN1)).json()["entries"]
        assert entry["lock_time"] == locked["lock_time"]
    assert await rig.store.get_run(run.id) == run


async def test_schedule_is_a_native_schedule(kweaver: Rig) -> None:
    schedule_id = await create(kweaver, headers=U1, status="active")
    native = (await kweaver.client.get(f"/api/v1/schedules/{schedule_id}")).json()
    assert (native["id"], native["target"]["kind"]) == (schedule_id, "action")
    assert native["trigger"]["expression"] == "*/5 * * * *"
    await kweaver.client.post(f"/api/v1/schedules/{schedule_id}/pause")
    found = await fetch(kweaver, schedule_id)
    assert found["status"] == "inactive"
    assert found["updater"] == {"id": "default", "type": "system"}
    # A manual run works while the schedule is inactive and keeps the plan.
    answer = await kweaver.client.post(f"/api/v1/schedules/{schedule_id}/run")
    assert answer.status_code == 202
    assert await fetch(kweaver, schedule_id) == found


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ({"kind": "cron", "expression": "0 9 * * *"}, "0 9 * * *"),
        (
            {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"},
            "CRON_TZ=Asia/Bangkok 0 9 * * *",
        ),
        ({"kind": "cron", "expression": "TZ=Asia/Tokyo 0 9 * * *"}, "TZ=Asia/Tokyo 0 9 * * *"),
        ({"kind": "every", "every": "90s"}, "@every 1m30s"),
        ({"kind": "once", "at": "2031-01-01T00:00:00Z"}, ""),
    ],
)
async def test_native_actions_are_listed(
    kweaver: Rig, trigger: dict[str, str], expected: str
) -> None:
    answer = await kweaver.client.post(
        "/api/v1/schedules", json=definition(trigger=trigger, target=ACTION)
    )
    assert answer.status_code == 201, answer.text
    await kweaver.create()
    (found,) = (await kweaver.client.get(KN1)).json()["entries"]
    assert (found["id"], found["cron_expression"]) == (answer.json()["id"], expected)
    assert found["creator"] == {"id": "default", "type": "system"}
    assert found["unique_identities"] == OBJECTS
    path = f"{KN1}/{found['id']}"
    assert (await kweaver.client.put(path, json=found)).status_code == 200
    assert (await kweaver.client.get(path)).json()["cron_expression"] == expected
    changed = await kweaver.client.put(path, json={"cron_expression": "1 1 * * *"})
    assert changed.status_code == 200
    assert (await kweaver.client.get(path)).json()["cron_expression"] == "1 1 * * *"


# Fields that KWeaver cannot express are kept.
async def test_bounds_of_a_native_trigger_are_kept(kweaver: Rig) -> None:
    trigger = {
        "kind": "cron",
        "expression": "0 0 9 * * *",
        "timezone": "Asia/Bangkok",
        "end_at": "2031-01-01T00:00:00Z",
    }
    native = await kweaver.create(trigger=trigger, target=ACTION)
    path = f"{KN1}/{native['id']}"
    await kweaver.client.put(path, json={"cron_expression": "30 9 * * *"})
    after = (await stored(kweaver, native["id"])).trigger
    assert isinstance(after, Cron)
    assert (after.expression, after.zone) == ("30 9 * * *", "UTC")
    assert after.end_at is not None


async def test_cron_changed_through_another_api_is_shown(kweaver: Rig) -> None:
    schedule_id = await create(kweaver, cron_expression="?  9 * * *")
    assert (await fetch(kweaver, schedule_id))["cron_expression"] == "?  9 * * *"
    zone = {"kind": "cron", "expression": "* 9 * * *", "timezone": "Asia/Bangkok"}
    await kweaver.client.patch(f"/api/v1/schedules/{schedule_id}", json={"trigger": zone})
    expression = (await fetch(kweaver, schedule_id))["cron_expression"]
    assert expression == "CRON_TZ=Asia/Bangkok * 9 * * *"


async def test_openapi_documents_the_parameters(kweaver: Rig) -> None:
    paths = describe_apis(kweaver.app)["kweaver"]["paths"]
    path_template = "/knowledge-networks/{kn_id}/action-schedules"
    ours = {path for path in paths if "action-schedules" in path}
    assert {path for path in ours if not path.startswith(("/in/v1", path_template))} == set()
    parameters = {each["name"] for each in paths[path_template]["get"]["parameters"]}
    assert {"kn_id", "branch", "name_pattern", "limit", "sort", "direction"} <= parameters
    schema = paths[path_template]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "cron_expression" in schema["required"]
    assert "/in/v1/knowledge-networks/{kn_id}/action-schedules/due" in ours


async def test_zone_is_the_preference_of_the_owner(kweaver: Rig) -> None:
    await kweaver.client.patch("/api/v1/me", json={"timezone": "Asia/Bangkok"})
    assert (await kweaver.context.preferences.get(Owner())).timezone == "Asia/Bangkok"
    schedule_id = await create(kweaver, cron_expression="0 9 * * *", status="active")
    assert (await stored(kweaver, schedule_id)).trigger.zone == "Asia/Bangkok"
    assert (await fetch(kweaver, schedule_id))["cron_expression"] == "0 9 * * *"
