"""Every change through any API appends an audit entry; the hash chain reveals tampering."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import ScheduleId, manual_run_id
from chimes.model.listing import AuditQuery
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.model.sync import Collection, Source, Sources, task_id
from chimes.model.target import AgentTarget, SyncTarget
from chimes.services.system import ReloadResult
from chimes.services.users import UserService
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.eventnative.routes import eventnative_router
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.softnix.routes import softnix_router
from chimes.web.openapi import describe_apis, merged
from tests.builders import ALICE, HOUR, LEASE, NOW, a_delivery, a_node, a_run, a_sync_run
from tests.web.rig import CRON, HTTP, Rig, definition, serving

ROUTERS = (ksana_router, catbird_router, eventnative_router, softnix_router, kweaver_router)
FILE = Sources(
    by_id={
        "shop": Source(
            id="shop",
            driver="command",
            collections=(Collection(name="orders"), Collection(name="clients")),
        )
    }
)
MOMENT = "2030-01-16T01:00:00Z"
BACKFILL_RANGE = {"from": "2030-01-14T00:00:00Z", "to": "2030-01-15T08:00:00Z"}
PROMPT = {"kind": "agent", "prompt": "x"}
ONE = "/api/v1/schedules/{schedule_id}"
FILTERS = "/api/v1/me/filters"
JOB = {
    "name": "j",
    "type": "http",
    "http": {"method": "POST", "url": "http://127.0.0.1:9/"},
    "schedule": {"kind": "every", "every": "1h"},
}
ACTIONS = "/knowledge-networks/{kn_id}/action-schedules"
ACTION = {"kind": "action", "action_type_id": "x", "kn_id": "kn1", "identities": [{"id": 1}]}
ACTION_BODY = {
    "name": "x",
    "action_type_id": "x",
    "cron_expression": "0 9 * * *",
    "_instance_identities": [{"id": "pod-1"}],
}
PROMPT_BODY = {"task": "x", "schedule_type": "cron", "cron_expr": "0 9 * * *"}


@dataclass(frozen=True, kw_only=True)
class Case:
    verb: str
    body: dict[str, Any] | None = None
    query: str = ""


#: Every writing route must be listed here or in EXCLUDED_ROUTES.
CASES: dict[tuple[str, str], Case] = {
    ("post", "/api/v1/schedules"): Case(verb="create", body=definition()),
    ("patch", ONE): Case(verb="update", body={"priority": 1}),
    ("delete", ONE): Case(verb="delete"),
    ("post", f"{ONE}/pause"): Case(verb="pause"),
    ("post", f"{ONE}/resume"): Case(verb="resume"),
    ("post", f"{ONE}/run"): Case(verb="run"),
    ("post", f"{ONE}/skip"): Case(verb="skip"),
    ("post", f"{ONE}/move"): Case(verb="move", body={"to": MOMENT}),
    ("post", f"{ONE}/reschedule"): Case(verb="reschedule", body={"to": MOMENT}),
    ("post", f"{ONE}/backfill"): Case(verb="backfill", body=BACKFILL_RANGE),
    ("post", f"{ONE}/duplicate"): Case(verb="create", body={"name": "copy"}),
    ("post", "/api/v1/apply"): Case(
        verb="create", body={"schedules": {"from a file": {"trigger": CRON, "target": HTTP}}}
    ),
    ("post", "/api/v1/maintenance"): Case(verb="begin_maintenance", body={"reason": "new disk"}),
    ("delete", "/api/v1/maintenance"): Case(verb="end_maintenance"),
    ("post", "/api/v1/runs"): Case(verb="start", body={"target": HTTP}),
    ("post", "/api/v1/runs/{run_id}/cancel"): Case(verb="cancel"),
    ("post", "/api/v1/runs/{ended_id}/retry"): Case(verb="retry"),
    ("post", "/api/v1/runs/{failed_id}/known"): Case(verb="mark_known"),
    ("post", "/api/v1/runs/{failed_id}/acknowledge"): Case(verb="mark_known"),
    ("put", "/api/v1/routing"): Case(verb="set_routing", body={"rules": []}),
    ("post", "/api/v1/silences"): Case(verb="add_silence", body={"all": True, "until": MOMENT}),
    ("delete", "/api/v1/silences/{silence_id}"): Case(verb="delete_silence"),
    ("post", "/api/v1/feeds"): Case(verb="create_feed", body={"label": "team"}),
    ("delete", "/api/v1/feeds/{feed_id}"): Case(verb="revoke_feed"),
    ("put", "/api/v1/message-templates"): Case(verb="set_templates", body={"templates": []}),
    ("delete", "/api/v1/runs/{failed_id}/known"): Case(verb="unmark_known"),
    ("post", "/api/v1/runs/{answered_id}/reply"): Case(verb="start", body={"text": "And?"}),
    ("post", FILTERS): Case(
        verb="save_filter", body={"list": "runs", "name": "x", "filter": "status:failed"}
    ),
    ("patch", FILTERS): Case(
        verb="rename_filter", body={"list": "runs", "name": "kept", "to": "x"}
    ),
    ("delete", FILTERS): Case(verb="remove_filter", query="?list=runs&name=kept"),
    ("post", "/api/v1/deliveries/{delivery_id}/retry"): Case(verb="retry"),
    ("post", "/api/v1/nodes/{node_id}/drain"): Case(verb="drain"),
    ("post", "/api/v1/nodes/{node_id}/resume"): Case(verb="resume"),
    ("delete", "/api/v1/nodes/{node_id}"): Case(verb="forget"),
    ("post", "/api/v1/deliveries/test"): Case(verb="test", body={"channel": "inbox"}),
    ("post", "/api/v1/keys"): Case(verb="create_key", body={"name": "x", "role": "viewer"}),
    ("delete", "/api/v1/keys/{key_id}"): Case(verb="revoke_key"),
    ("put", "/api/v1/calendars/{name}"): Case(verb="set_calendar", body={"dates": ["2030-01-01"]}),
    ("delete", "/api/v1/calendars/{name}"): Case(verb="delete_calendar"),
    ("put", "/api/v1/limits/{name}"): Case(verb="set_limit", body={"concurrency": 2}),
    ("delete", "/api/v1/limits/{name}"): Case(verb="delete_limit"),
    ("put", "/api/v1/secrets/{name}"): Case(verb="set_secret", body={"value": "5ecret"}),
    ("delete", "/api/v1/secrets/{name}"): Case(verb="delete_secret"),
    ("post", "/api/v1/users"): Case(
        verb="create_user",
        body={"name": "new", "password": "correct horse battery", "role": "viewer"},
    ),
    ("patch", "/api/v1/users/{name}"): Case(verb="change_role", body={"role": "operator"}),
    ("delete", "/api/v1/users/{name}"): Case(verb="remove_user"),
    ("patch", "/api/v1/me"): Case(verb="update_preferences", body={"language": "th"}),
    ("post", "/api/v1/sources/reload"): Case(verb="reload_sources"),
    ("post", "/jobs"): Case(verb="create", body=JOB),
    ("patch", "/jobs/{schedule_id}"): Case(verb="update", body={"name": "x"}),
    ("delete", "/jobs/{schedule_id}"): Case(verb="delete"),
    ("post", "/jobs/{schedule_id}/run-now"): Case(verb="run"),
    ("post", "/jobs/{schedule_id}/pause"): Case(verb="pause"),
    ("post", "/jobs/{schedule_id}/resume"): Case(verb="resume"),
    ("post", "/tasks"): Case(verb="start", query="?source=shop&collection=clients"),
    ("post", "/tasks/{task_id}/cancel"): Case(verb="cancel"),
    ("post", "/schedules"): Case(verb="create", body=PROMPT_BODY),
    ("post", "/schedules/from-text"): Case(verb="create", body={"text": "every day at 9am sum up"}),
    ("patch", "/schedules/{prompt_id}"): Case(verb="update", body={"task": "y"}),
    ("delete", "/schedules/{prompt_id}"): Case(verb="delete"),
    ("post", "/schedules/{prompt_id}/run-now"): Case(verb="run"),
    ("post", ACTIONS): Case(verb="create", body=ACTION_BODY),
    ("put", f"{ACTIONS}/{{action_id}}"): Case(verb="update", body={"name": "y"}),
    ("put", f"{ACTIONS}/{{action_id}}/status"): Case(verb="pause", body={"status": "inactive"}),
    ("delete", f"{ACTIONS}/{{action_id}}"): Case(verb="delete"),
}
#: Routes that save nothing, are not audited, or have their own test.
EXCLUDED_ROUTES = {
    ("post", f"/in/v1{ACTIONS}"): "tests/web/compat/kweaver",
    ("put", f"/in/v1{ACTIONS}/{{schedule_id}}"): "tests/web/compat/kweaver",
    ("put", f"/in/v1{ACTIONS}/{{schedule_id}}/status"): "tests/web/compat/kweaver",
    ("delete", f"/in/v1{ACTIONS}/{{schedule_ids}}"): "tests/web/compat/kweaver",
    ("delete", "/api/v1/demo"): "tests/cli/test_demo.py",
    ("post", "/api/v1/preview"): "saves nothing",
    ("post", "/api/v1/plan"): "saves nothing",
    ("post", "/api/v1/suggest"): "saves nothing",
    ("post", "/api/v1/message-templates/preview"): "saves nothing",
    ("post", "/api/v1/explain"): "saves nothing",
    ("post", "/api/v1/parse"): "saves nothing",
    ("post", "/schedules/parse"): "saves nothing",
    ("patch", "/api/v1/inbox/{item_id}"): "marks what its reader has read",
    ("post", "/api/v1/inbox/read-all"): "marks what its reader has read",
    ("post", "/api/v1/agent/callbacks/{run_id}"): "a pipeline reports the end of a run",
    ("post", "/hooks/{token}"): "an event; its run shows the cause",
    ("post", f"{ONE}/rotate_hook"): "tests/web/test_hooks_api.py",
    ("post", "/api/v1/monitors"): "tests/web/test_monitors_api.py",
    ("post", "/api/v1/monitors/import"): "tests/web/test_monitors_api.py",
    ("patch", "/api/v1/monitors/{monitor_id}"): "tests/web/test_monitors_api.py",
    ("delete", "/api/v1/monitors/{monitor_id}"): "tests/web/test_monitors_api.py",
    ("post", "/api/v1/monitors/{monitor_id}/pause"): "tests/web/test_monitors_api.py",
    ("post", "/api/v1/monitors/{monitor_id}/resume"): "tests/web/test_monitors_api.py",
    ("post", "/api/v1/monitors/{monitor_id}/rotate"): "tests/web/test_monitors_api.py",
    ("post", "/api/v1/proposals"): "tests/web/test_proposals_api.py",
    ("post", "/api/v1/proposals/plan"): "saves nothing",
    ("post", "/api/v1/schedules/bulk"): "tests/web/test_bulk_api.py",
    ("post", "/api/v1/proposals/{proposal_id}/approve"): "tests/web/test_proposals_api.py",
    ("post", "/api/v1/proposals/{proposal_id}/reject"): "tests/web/test_proposals_api.py",
    ("post", "/api/v1/approvals/{approval_id}/approve"): "tests/web/test_waits_api.py",
    ("post", "/api/v1/approvals/{approval_id}/reject"): "tests/web/test_waits_api.py",
    ("post", "/api/v1/events/{event_name}"): "tests/web/test_waits_api.py",
    ("post", "/api/v1/telegram/links"): "tests/telegram",
    ("post", "/api/v1/telegram/links/{chat_id}/confirm"): "tests/telegram",
    ("delete", "/api/v1/telegram/links/{chat_id}"): "tests/telegram",
    ("post", "/api/v1/telegram/test"): "tests/telegram",
}
#: Id names of the OpenAPI document, by path, and their names in `Scene.ids`.
ID_NAMES = {
    ("/jobs/", "job_id"): "schedule_id",
    ("/schedules/", "schedule_id"): "prompt_id",
    ("/knowledge-networks/", "schedule_id"): "action_id",
    ("/knowledge-networks/", "schedule_ids"): "action_id",
    ("/api/v1/runs/{run_id}/retry", "run_id"): "ended_id",
    ("/api/v1/runs/{run_id}/known", "run_id"): "failed_id",
    ("/api/v1/runs/{run_id}/acknowledge", "run_id"): "failed_id",
    ("/api/v1/runs/{run_id}/reply", "run_id"): "answered_id",
}


@dataclass(kw_only=True)
class Scene:
    rig: Rig
    ids: dict[str, str]
    headers: dict[str, str]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A rig with keys and one object of every kind."""
    async with serving(routers=ROUTERS, sources=FILE, fixed_keys=["root"], documented=False) as rig:
        headers = {"X-API-Key": "root", "X-Admin-Token": "root"}

        async def reload(dry_run: bool) -> ReloadResult:
            return ReloadResult(file="chimes.yaml", changes=())

        rig.context.sources.file = "chimes.yaml"
        rig.context.sources.reloaded_by(reload)
        for schedule_id, target in (("s", HTTP), ("p", PROMPT), ("a", ACTION)):
            body = definition(id=schedule_id, trigger=CRON, target=target)
            made = await rig.client.post("/api/v1/schedules", json=body, headers=headers)
            assert made.status_code == 201, made.text
        ended = replace(a_run(), status=RunStatus.FAILED)
        dead = replace(a_delivery(), state=DeliveryState.DEAD)
        orders = SyncTarget(source="shop", collection="orders")
        waiting, task = a_run(), a_sync_run(orders, id=manual_run_id(NOW))
        failed = a_run(schedule_id=ScheduleId("s"), status=RunStatus.FAILED)
        answered = a_run(target=AgentTarget(prompt="x"), status=RunStatus.SUCCEEDED)
        await rig.store.load([waiting, ended, failed, answered, task, dead])
        kept = {"list": "runs", "name": "kept", "filter": "a"}
        await rig.client.post(FILTERS, json=kept, headers=headers)
        key = await rig.context.access.create(Actor(), name="x", role=Role.VIEWER, owner=ALICE)
        users = UserService(rig.store)
        password = "correct horse battery"
        await users.create(Actor(), name="ann", password=password, role=Role.VIEWER)
        await rig.context.secrets.put(Actor(), "ann", "5ecret")
        limit = {"concurrency": 1}
        await rig.client.put("/api/v1/limits/ann", json=limit, headers=headers)
        await rig.client.put("/api/v1/calendars/ann", json={"dates": []}, headers=headers)
        silence = await rig.context.silences.add(Actor(), labels={}, until=NOW + HOUR)
        feed = await rig.context.feeds.create(Actor(), label="team")
        ids = {
            "silence_id": silence.id,
            "feed_id": feed.feed.id,
            "name": "ann",
            "schedule_id": "s",
            "prompt_id": "p",
            "action_id": "a",
            "kn_id": "kn1",
            "run_id": waiting.id,
            "ended_id": ended.id,
            "failed_id": failed.id,
            "answered_id": answered.id,
            "delivery_id": dead.id,
            "key_id": key.key.id,
            "task_id": task_id(task),
        }
        ids["node_id"] = (await rig.store.join(a_node(), LEASE)).id
        yield Scene(rig=rig, ids=ids, headers=headers)


async def test_cases_list_every_writing_route() -> None:
    async with serving(routers=ROUTERS, documented=False) as rig:
        document = merged(describe_apis(rig.app))
    found = {
        (method, _with_own_id_names(path))
        for path, operations in document["paths"].items()
        for method in operations
        if method != "get"
    }
    assert found == {*CASES, *EXCLUDED_ROUTES}


def _with_own_id_names(path: str) -> str:
    for (prefix, name), ours in ID_NAMES.items():
        if path.startswith(prefix):
            path = path.replace(f"{{{name}}}", f"{{{ours}}}")
    return path


@pytest.mark.parametrize("route", CASES, ids=lambda route: " ".join(route))
async def test_every_writing_route_appends_an_audit_entry(
    scene: Scene, route: tuple[str, str]
) -> None:
    case = CASES[route]
    if case.verb == "resume":
        await scene.rig.client.post("/api/v1/schedules/s/pause", headers=scene.headers)
    if case.verb == "end_maintenance":
        await scene.rig.client.post("/api/v1/maintenance", headers=scene.headers)
    if case.verb == "forget":
        scene.rig.clock.advance(LEASE + LEASE)
    before = await scene.rig.store.list_audit(AuditQuery(limit=1))
    path = route[1].format(**scene.ids) + case.query
    answer = await scene.rig.client.request(route[0], path, json=case.body, headers=scene.headers)
    assert answer.status_code < 300, answer.text
    newest, *_ = await scene.rig.store.list_audit(AuditQuery(limit=1))
    assert newest.number == before[0].number + 1
    assert (newest.verb, newest.actor, newest.allowed) == (case.verb, "key:configured", True)
    assert newest.interface == _interface(route[1])
    assert newest.object_id


def _interface(path: str) -> str:
    routers = {"/jobs": "ksana", "/tasks": "eventnative", "/schedules": "softnix"}
    routers["/knowledge-networks"] = "kweaver"
    return next(
        (interface for prefix, interface in routers.items() if path.startswith(prefix)), "native"
    )


async def test_audit_entries_are_filtered_by_their_fields(scene: Scene) -> None:
    client, headers = scene.rig.client, scene.headers
    await client.post("/jobs/s/pause", headers=headers)

    async def found(query: str) -> list[dict[str, Any]]:
        answer = await client.get(f"/api/v1/audit?{query}", headers=headers)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    [pause] = await found("interface=ksana")
    assert {"verb", "actor", "interface", "at", "hash", "prev_hash"} <= set(pause)
    assert (pause["verb"], pause["object_id"]) == ("pause", "s")
    assert pause["prev_hash"] == pause["previous_hash"]
    assert [each["verb"] for each in await found("object_id=s")] == ["pause", "create"]
    assert await found("actor=key:nobody") == []
    assert await found("actor=key:configured&verb=pause") == [pause]
    assert [each["verb"] for each in await found("owner=user:alice")] == ["create_key"]
    older = await found(f"before={pause['number']}&limit=1")
    assert older[0]["hash"] == pause["prev_hash"]


async def test_verify_detects_changed_and_removed_entries(scene: Scene) -> None:
    client, headers = scene.rig.client, scene.headers
    trail = scene.rig.store._state.audit  # type: ignore[attr-defined]
    whole = list(trail)
    assert len(whole) > 3
    verification = (await client.get("/api/v1/audit/verify", headers=headers)).json()
    kept = {"checkpoint": "none", "pruned_until": None, "pruned_at": None, "pruned": 0}
    assert verification == {"ok": True, "checked": len(whole), "first_bad": None} | kept
    for number, forged in (
        (2, [whole[0], replace(whole[1], verb="invent"), whole[2]]),
        (3, [whole[0], whole[2]]),
        (2, whole[1:]),
    ):
        trail[:] = forged
        verification = (await client.get("/api/v1/audit/verify", headers=headers)).json()
        assert (verification["ok"], verification["first_bad"]) == (False, number)


# As described in docs/reference.md.
async def test_clients_can_recompute_the_hash_chain() -> None:
    async with serving() as rig:
        await _check_hashes(rig)


async def _check_hashes(rig: Rig) -> None:
    for number in range(3):
        rig.clock.advance(0.25 * number)
        await rig.create(name=f"รายงาน {number}")
    items = (await rig.client.get("/api/v1/audit")).json()["items"]
    before = ""
    for item in reversed(items):
        assert item["prev_hash"] == before
        fields = (
            "number",
            "prev_hash",
            "at",
            "actor",
            "interface",
            "verb",
            "object_kind",
            "object_id",
        )
        values = [item[name] for name in (*fields, "owner", "changes", "reason", "address")]
        values[2] = values[2].replace("Z", "+00:00")
        text = json.dumps(
            [*values, item["allowed"]], ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )
        assert item["hash"] == hashlib.sha256(text.encode()).hexdigest()
        before = item["hash"]
    assert len(items) == 3
