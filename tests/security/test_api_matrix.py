"""Status of every route for every role; the routes come from the OpenAPI document."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Actor, Role
from chimes.model.notification import DeliveryState
from chimes.services.access import USERS
from chimes.web.compat.eventnative.routes import eventnative_router
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.softnix.routes import softnix_router
from chimes.web.openapi import describe_apis, merged
from chimes.web.requests import _MAX_FAILURES as MAX_FAILED_LOGINS
from tests.builders import ALICE, BOB, LEASE, a_delivery, a_node, an_item
from tests.tables import each_row
from tests.web.rig import CRON, HTTP, Rig, definition, serving

SOFTNIX = "/schedules/"
KWEAVER = "/knowledge-networks/{kn_id}/action-schedules"
INTERNAL = f"/in/v1{KWEAVER}"
ROUTERS = (eventnative_router, softnix_router, kweaver_router)
#: Schedule ids for compatibility APIs that show one kind of target only.
SCHEDULE_ID_BY_API = {SOFTNIX: "canary-prompt", KWEAVER: "canary-action"}
ACTION = {"kind": "action", "action_type_id": "canary", "kn_id": "kn1", "identities": [{"id": 1}]}
ROLES = ("none", "viewer", "member", "operator", "admin", "stranger")
#: Status codes in the order of ROLES. Every route must be listed.
READ_OWN = (401, 200, 200, 200, 200, 404)
READ_LIST = (401, 200, 200, 200, 200, 200)
WRITE_OWN = (401, 403, 200, 403, 200, 404)
OPERATE = (401, 403, 200, 200, 200, 404)
OPERATE_QUEUED = (401, 403, 202, 202, 202, 404)
OPERATORS = (401, 403, 403, 200, 200, 403)
SENDS_TEST = (401, 403, 200, 403, 200, 200)
NO_BOT = (401, 404, 404, 404, 404, 404)
NEVER_AUTHORISED = (401,) * 6
ADMINS_BAD = (401, 403, 403, 403, 400, 403)
ADMINS_MISSING = (401, 403, 403, 403, 404, 403)
TABLE: dict[tuple[str, str], tuple[int, ...]] = {
    ("post", "/api/v1/schedules"): (401, 403, 201, 403, 201, 201),
    ("get", "/api/v1/schedules"): READ_LIST,
    ("get", "/api/v1/schedules/{schedule_id}"): READ_OWN,
    ("patch", "/api/v1/schedules/{schedule_id}"): WRITE_OWN,
    ("delete", "/api/v1/schedules/{schedule_id}"): (401, 403, 204, 403, 204, 404),
    ("get", "/api/v1/schedules/{schedule_id}/runs"): READ_OWN,
    ("get", "/api/v1/schedules/{schedule_id}/why"): READ_OWN,
    ("post", "/api/v1/schedules/{schedule_id}/duplicate"): (401, 403, 201, 403, 201, 404),
    ("post", "/api/v1/schedules/{schedule_id}/rotate_hook"): (401, 403, 409, 403, 409, 404),
    ("post", "/api/v1/apply"): (401, 403, 200, 403, 200, 200),
    # Two of Alice's schedules have the same name.
    ("get", "/api/v1/export"): (401, 409, 409, 409, 409, 200),
    # Whose result is per schedule.
    ("post", "/api/v1/schedules/bulk"): (401, 403, 200, 200, 200, 200),
    ("get", "/api/v1/events"): READ_LIST,
    ("post", "/api/v1/schedules/{schedule_id}/pause"): OPERATE,
    ("post", "/api/v1/schedules/{schedule_id}/resume"): OPERATE,
    ("post", "/api/v1/schedules/{schedule_id}/run"): OPERATE_QUEUED,
    ("post", "/api/v1/schedules/{schedule_id}/skip"): OPERATE,
    ("post", "/api/v1/schedules/{schedule_id}/move"): OPERATE,
    ("post", "/api/v1/schedules/{schedule_id}/reschedule"): OPERATE,
    ("post", "/api/v1/schedules/{schedule_id}/backfill"): WRITE_OWN,
    ("post", "/api/v1/runs"): (401, 403, 202, 403, 202, 202),
    ("get", "/api/v1/runs"): READ_LIST,
    ("get", "/api/v1/runs/{run_id}"): READ_OWN,
    ("get", "/api/v1/runs/{run_id}/logs"): READ_OWN,
    ("post", "/api/v1/runs/{run_id}/cancel"): OPERATE,
    ("post", "/api/v1/runs/{run_id}/retry"): (401, 403, 409, 409, 409, 404),
    # The run is queued: no known failure, no failure to retry, no agent response.
    ("get", "/api/v1/runs/{run_id}/known"): (401, 404, 404, 404, 404, 404),
    ("post", "/api/v1/runs/{run_id}/known"): (401, 403, 409, 409, 409, 404),
    ("delete", "/api/v1/runs/{run_id}/known"): (401, 403, 204, 204, 204, 404),
    ("post", "/api/v1/runs/{run_id}/acknowledge"): (401, 403, 409, 409, 409, 404),
    ("post", "/api/v1/runs/{run_id}/reply"): (401, 403, 409, 403, 409, 404),
    ("get", "/api/v1/deliveries"): READ_LIST,
    ("get", "/api/v1/deliveries/{delivery_id}"): READ_OWN,
    ("post", "/api/v1/deliveries/{delivery_id}/retry"): OPERATE,
    ("post", "/api/v1/deliveries/test"): SENDS_TEST,
    ("get", "/api/v1/routing"): OPERATORS,
    ("put", "/api/v1/routing"): (401, 403, 403, 403, 200, 403),
    ("get", "/api/v1/routing/test/{schedule_id}"): (401, 403, 403, 200, 200, 404),
    ("post", "/api/v1/plan"): READ_LIST,
    ("get", "/api/v1/forecast"): READ_LIST,
    ("post", "/api/v1/suggest"): READ_LIST,
    ("get", "/api/v1/time-data"): READ_LIST,
    ("get", "/api/v1/feeds"): READ_LIST,
    ("post", "/api/v1/feeds"): (401, 403, 201, 201, 201, 201),
    ("delete", "/api/v1/feeds/{feed_id}"): (401, 404, 404, 404, 404, 404),
    ("get", "/api/v1/silences"): READ_LIST,
    ("post", "/api/v1/silences"): (401, 403, 201, 201, 201, 201),
    # There is none.
    ("delete", "/api/v1/silences/{silence_id}"): (401, 404, 404, 404, 404, 404),
    ("get", "/api/v1/message-templates"): READ_LIST,
    ("put", "/api/v1/message-templates"): (401, 403, 200, 403, 200, 200),
    ("post", "/api/v1/message-templates/preview"): READ_LIST,
    ("get", "/api/v1/inbox"): READ_LIST,
    ("get", "/api/v1/inbox/{item_id}"): READ_OWN,
    ("patch", "/api/v1/inbox/{item_id}"): WRITE_OWN,
    ("post", "/api/v1/inbox/read-all"): (401, 403, 200, 200, 200, 200),
    ("post", "/api/v1/preview"): READ_LIST,
    ("post", "/api/v1/explain"): READ_LIST,
    ("get", "/api/v1/upcoming"): READ_LIST,
    ("get", "/api/v1/templates"): READ_LIST,
    ("get", "/api/v1/system"): OPERATORS,
    ("get", "/api/v1/nodes"): OPERATORS,
    ("get", "/api/v1/nodes/{node_id}"): OPERATORS,
    ("post", "/api/v1/nodes/{node_id}/drain"): OPERATORS,
    ("post", "/api/v1/nodes/{node_id}/resume"): OPERATORS,
    # The node is alive.
    ("delete", "/api/v1/nodes/{node_id}"): (401, 403, 403, 409, 409, 403),
    ("get", "/api/v1/maintenance"): READ_LIST,
    ("post", "/api/v1/maintenance"): OPERATORS,
    # It is not on.
    ("delete", "/api/v1/maintenance"): (401, 403, 403, 409, 409, 403),
    ("delete", "/api/v1/demo"): (401, 403, 403, 403, 200, 403),
    ("get", "/api/v1/audit"): OPERATORS,
    ("get", "/api/v1/audit/verify"): OPERATORS,
    ("post", "/api/v1/parse"): READ_LIST,
    ("get", "/api/v1/me"): READ_LIST,
    ("patch", "/api/v1/me"): READ_LIST,
    ("get", "/api/v1/me/filters"): READ_LIST,
    ("post", "/api/v1/me/filters"): READ_LIST,
    # The filter name is missing.
    ("patch", "/api/v1/me/filters"): (401, 422, 422, 422, 422, 422),
    ("delete", "/api/v1/me/filters"): (401, 422, 422, 422, 422, 422),
    ("get", "/api/v1/keys"): (401, 403, 403, 403, 200, 403),
    ("post", "/api/v1/keys"): (401, 403, 403, 403, 201, 403),
    ("delete", "/api/v1/keys/{key_id}"): (401, 403, 403, 403, 204, 403),
    ("get", "/api/v1/users"): (401, 403, 403, 403, 200, 403),
    ("post", "/api/v1/users"): (401, 403, 403, 403, 201, 403),
    ("patch", "/api/v1/users/{name}"): (401, 403, 403, 403, 200, 403),
    ("delete", "/api/v1/users/{name}"): (401, 403, 403, 403, 204, 403),
    # Those of the caller, who has none.
    ("get", "/api/v1/limits"): READ_LIST,
    ("get", "/api/v1/limits/{name}"): (401, 404, 404, 404, 404, 404),
    ("put", "/api/v1/limits/{name}"): (401, 403, 200, 403, 200, 200),
    ("delete", "/api/v1/limits/{name}"): (401, 403, 404, 403, 404, 404),
    # Those of the caller, who has none.
    ("post", "/api/v1/monitors"): (401, 403, 201, 403, 201, 201),
    ("get", "/api/v1/monitors"): READ_LIST,
    # Nothing can be created for a caller who may not write: each check is refused.
    ("post", "/api/v1/monitors/import"): (401, 403, 200, 403, 200, 200),
    ("get", "/api/v1/monitors/{monitor_id}"): READ_OWN,
    ("patch", "/api/v1/monitors/{monitor_id}"): WRITE_OWN,
    ("delete", "/api/v1/monitors/{monitor_id}"): (401, 403, 204, 403, 204, 404),
    ("post", "/api/v1/monitors/{monitor_id}/pause"): OPERATE,
    ("post", "/api/v1/monitors/{monitor_id}/resume"): OPERATE,
    ("post", "/api/v1/monitors/{monitor_id}/rotate"): WRITE_OWN,
    ("get", "/api/v1/monitors/{monitor_id}/pings"): READ_OWN,
    ("get", "/api/v1/secrets"): READ_LIST,
    ("put", "/api/v1/secrets/{name}"): (401, 403, 200, 403, 200, 200),
    ("delete", "/api/v1/secrets/{name}"): (401, 403, 404, 403, 404, 404),
    ("get", "/api/v1/proposals"): READ_LIST,
    ("get", "/api/v1/proposals/{proposal_id}"): READ_OWN,
    # Any key may propose and plan, for its owner.
    ("post", "/api/v1/proposals"): (401, 201, 201, 201, 201, 201),
    ("post", "/api/v1/proposals/plan"): READ_LIST,
    ("post", "/api/v1/proposals/{proposal_id}/approve"): WRITE_OWN,
    ("post", "/api/v1/proposals/{proposal_id}/reject"): OPERATE,
    # No flow waits.
    ("get", "/api/v1/approvals"): READ_LIST,
    ("get", "/api/v1/approvals/{approval_id}"): (401, 404, 404, 404, 404, 404),
    ("post", "/api/v1/approvals/{approval_id}/approve"): (401, 404, 404, 404, 404, 404),
    ("post", "/api/v1/approvals/{approval_id}/reject"): (401, 404, 404, 404, 404, 404),
    ("post", "/api/v1/events/{event_name}"): (401, 403, 202, 202, 202, 202),
    ("get", "/api/v1/runs/{run_id}/graph"): (401, 404, 404, 404, 404, 404),
    # Only an admin changes calendars, which all owners share.
    ("get", "/api/v1/calendars"): READ_LIST,
    ("get", "/api/v1/calendars/{name}"): (401, 404, 404, 404, 404, 404),
    ("put", "/api/v1/calendars/{name}"): (401, 403, 403, 403, 200, 403),
    ("delete", "/api/v1/calendars/{name}"): (401, 403, 403, 403, 404, 403),
    ("get", "/api/v1/connections"): READ_LIST,
    ("get", "/api/v1/sources"): OPERATORS,
    # The rig has no source file.
    ("post", "/api/v1/sources/reload"): (401, 403, 403, 403, 409, 403),
    # The token of the run is missing.
    ("post", "/api/v1/agent/callbacks/{run_id}"): (404,) * 6,
    ("post", "/hooks/{token}"): (404,) * 6,
    # Without a bot; tests/telegram covers the rest.
    ("get", "/api/v1/telegram/links"): NO_BOT,
    ("post", "/api/v1/telegram/links"): NO_BOT,
    ("delete", "/api/v1/telegram/links/{chat_id}"): NO_BOT,
    ("post", "/api/v1/telegram/links/{chat_id}/confirm"): NO_BOT,
    ("post", "/api/v1/telegram/test"): NO_BOT,
    # Admins only.
    ("post", "/tasks"): ADMINS_BAD,
    ("get", "/tasks"): ADMINS_BAD,
    ("get", "/tasks/{task_id}"): ADMINS_MISSING,
    ("get", "/tasks/{task_id}/logs"): ADMINS_MISSING,
    ("post", "/tasks/{task_id}/cancel"): ADMINS_MISSING,
    # As the native API, except that invalid input is 400.
    ("post", "/schedules"): (401, 403, 200, 403, 200, 200),
    ("get", "/schedules"): READ_LIST,
    ("post", "/schedules/parse"): READ_LIST,
    ("post", "/schedules/from-text"): (401, 403, 200, 403, 200, 200),
    ("get", "/schedules/{schedule_id}"): READ_OWN,
    ("patch", "/schedules/{schedule_id}"): WRITE_OWN,
    ("delete", "/schedules/{schedule_id}"): WRITE_OWN,
    ("post", "/schedules/{schedule_id}/run-now"): OPERATE,
    ("get", "/schedules/{schedule_id}/runs"): READ_OWN,
    # As the native API, except that invalid input is 400.
    ("post", KWEAVER): (401, 403, 201, 403, 201, 201),
    ("get", KWEAVER): READ_LIST,
    ("get", f"{KWEAVER}/{{schedule_id}}"): READ_OWN,
    ("put", f"{KWEAVER}/{{schedule_id}}"): WRITE_OWN,
    ("delete", f"{KWEAVER}/{{schedule_ids}}"): (401, 403, 204, 403, 204, 404),
    ("put", f"{KWEAVER}/{{schedule_id}}/status"): OPERATE,
    # Keys are not accepted, and no internal token is configured; see tests/web/compat/kweaver.
    ("post", INTERNAL): NEVER_AUTHORISED,
    ("get", INTERNAL): NEVER_AUTHORISED,
    ("get", f"{INTERNAL}/due"): NEVER_AUTHORISED,
    ("get", f"{INTERNAL}/{{schedule_id}}"): NEVER_AUTHORISED,
    ("put", f"{INTERNAL}/{{schedule_id}}"): NEVER_AUTHORISED,
    ("delete", f"{INTERNAL}/{{schedule_ids}}"): NEVER_AUTHORISED,
    ("put", f"{INTERNAL}/{{schedule_id}}/status"): NEVER_AUTHORISED,
    ("get", "/metrics"): (401, 200, 200, 200, 200, 200),
    ("get", "/health"): (200,) * 6,
    ("get", "/ready"): (200,) * 6,
}
USER = {"password": "x", "role": "viewer", "created_at": "2030-01-01T00:00:00Z", "created_by": "x"}
MOMENT = "2030-01-16T01:00:00Z"
BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/schedules": definition(),
    "/api/v1/apply": {"schedules": {"x": {"trigger": CRON, "target": HTTP}}, "prune": True},
    "/api/v1/schedules/bulk": {"action": "pause", "ids": ["canary-id"]},
    "/api/v1/runs": {"target": HTTP},
    "/api/v1/schedules/{schedule_id}": {"priority": 1},
    "/api/v1/schedules/{schedule_id}/move": {"to": MOMENT},
    "/api/v1/schedules/{schedule_id}/reschedule": {"to": MOMENT},
    "/api/v1/schedules/{schedule_id}/backfill": {"from": MOMENT, "to": MOMENT, "dry_run": True},
    "/api/v1/inbox/{item_id}": {"starred": True},
    "/api/v1/preview": {"trigger": CRON},
    "/api/v1/explain": {"expression": "* * * * *"},
    "/api/v1/keys": {"name": "x", "role": "viewer"},
    "/api/v1/users": {"name": "x", "role": "viewer", "password": "long enough"},
    "/api/v1/users/{name}": {"role": "viewer"},
    "/api/v1/limits/{name}": {"concurrency": 2},
    "/api/v1/secrets/{name}": {"value": "5ecret"},
    "/api/v1/monitors": {"name": "x", "trigger": CRON},
    "/api/v1/monitors/import": {"data": [{"name": "x", "timeout": 60}]},
    "/api/v1/monitors/{monitor_id}": {"grace": "9m"},
    "/api/v1/proposals": {"schedules": {"x": {"trigger": CRON, "target": HTTP}}, "reason": "y"},
    "/api/v1/proposals/plan": {"schedules": {"x": {"trigger": CRON, "target": HTTP}}},
    "/api/v1/telegram/test": {"chat_id": "1"},
    "/api/v1/routing": {"rules": []},
    "/api/v1/plan": {"changes": [{"create": definition()}]},
    "/api/v1/suggest": {"trigger": CRON},
    "/api/v1/feeds": {"label": "team"},
    "/api/v1/events/{event_name}": {"data": 1},
    "/api/v1/calendars/{name}": {"dates": ["2030-12-31"]},
    "/api/v1/silences": {"all": True, "until": MOMENT},
    "/api/v1/message-templates": {"templates": []},
    "/api/v1/message-templates/preview": {"text": "{{status}}"},
    "/api/v1/deliveries/test": {"channel": "inbox"},
    "/api/v1/parse": {"text": "every day at 9am sum up"},
    "/api/v1/me": {"timezone": "Asia/Bangkok"},
    "/api/v1/me/filters": {"list": "runs", "name": "x", "filter": "a"},
    "/api/v1/runs/{run_id}/reply": {"text": "x"},
    "/schedules": {"task": "x", "schedule_type": "cron", "cron_expr": "0 9 * * *"},
    "/schedules/parse": {"text": "every day at 9am sum up"},
    "/schedules/from-text": {"text": "every day at 9am sum up"},
    "/schedules/{schedule_id}": {"task": "y"},
    KWEAVER: {
        "name": "x",
        "action_type_id": "restart",
        "cron_expression": "0 9 * * *",
        "_instance_identities": [{"id": "pod-1"}],
    },
    f"{KWEAVER}/{{schedule_id}}": {"name": "y"},
    f"{KWEAVER}/{{schedule_id}}/status": {"status": "inactive"},
}


def schedule_id_of_api(template: str) -> str | None:
    """Schedule id for a route of an API in SCHEDULE_ID_BY_API."""
    return next(
        (SCHEDULE_ID_BY_API[each] for each in SCHEDULE_ID_BY_API if template.startswith(each)), None
    )


@dataclass(kw_only=True)
class Scene:
    rig: Rig
    headers: dict[str, dict[str, str]]
    ids: dict[str, str]

    async def request(self, method: str, template: str, role: str, **ids: str) -> Any:
        found = schedule_id_of_api(template)
        own = self.ids | (dict.fromkeys(("schedule_id", "schedule_ids"), found) if found else {})
        path = template.format(**(own | ids))
        if template == "/api/v1/events":
            method = "head"  # The stream of a GET does not end.
        body = BODIES.get(template) if method in ("post", "patch", "put") else None
        return await self.rig.client.request(method, path, json=body, headers=self.headers[role])


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    """A rig with Alice's schedules, a queued run and a key for each role."""
    # The tables exceed the default rate limit.
    settings = Settings(requests_per_second=math.inf)
    async with serving(routers=ROUTERS, settings=settings) as rig:
        headers = {
            "none": {},
            "viewer": await rig.key(Role.VIEWER, ALICE),
            "member": await rig.key(Role.MEMBER, ALICE),
            "operator": await rig.key(Role.OPERATOR),
            "admin": await rig.key(Role.ADMIN),
            "stranger": await rig.key(Role.MEMBER, BOB),
        }
        made = await rig.client.post(
            "/api/v1/schedules",
            json=definition(id="canary-id", name="canary-name", labels=["canary-label"]),
            headers=headers["member"],
        )
        await rig.client.post(
            "/api/v1/schedules",
            json=definition(id="canary-prompt", target={"kind": "agent", "prompt": "canary"}),
            headers=headers["member"],
        )
        await rig.client.post(
            "/api/v1/schedules",
            json=definition(id="canary-action", target=ACTION),
            headers=headers["member"],
        )
        run = await rig.client.post(f"{made.headers['location']}/run", headers=headers["member"])
        monitor = await rig.client.post(
            "/api/v1/monitors",
            json={"name": "canary-monitor", "trigger": CRON},
            headers=headers["member"],
        )
        keys = await rig.store.list_keys()
        dead = a_delivery(owner=ALICE, state=DeliveryState.DEAD, error="canary-error")
        await rig.store.load([dead])
        item = await rig.store.add_inbox(an_item(owner=ALICE, title="canary-title"))
        await rig.store.set_checkpoint(USERS, json.dumps({"zoe": USER}))
        proposal = await rig.context.proposals.propose(
            Actor(owner=ALICE, role=Role.VIEWER),
            {"schedules": {"canary-name": {"trigger": CRON, "target": HTTP, "priority": 2}}},
            reason="canary-reason",
        )
        ids = {
            "schedule_id": "canary-id",
            "schedule_ids": "canary-id",
            "token": "no-such-hook",
            "kn_id": "kn1",
            "run_id": run.json()["id"],
            "delivery_id": dead.id,
            "item_id": item.id,
            "key_id": keys[0].id,
            "name": "zoe",
            "task_id": "x",
            "silence_id": "x",
            "feed_id": "no-such",
            "approval_id": "no-such",
            "event_name": "canary",
            "chat_id": "1",
            "monitor_id": monitor.json()["id"],
            "proposal_id": proposal.id,
            "node_id": (await rig.store.join(a_node(), LEASE)).id,
        }
        yield Scene(rig=rig, headers=headers, ids=ids)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with open_scene() as found:
        yield found


class ScenePool:
    """Reuses a scene until a request has changed its store.

    Also replaces it before failed logins are throttled.
    """

    def __init__(self, opened: AsyncExitStack) -> None:
        self._opened = opened
        self._scene: Scene | None = None
        self._before: list[object] = []
        self._changed = False
        self.failed_logins = 0

    async def has_changed(self) -> bool:
        assert self._scene is not None
        self._changed = await self._scene.rig.snapshot() != self._before
        return self._changed

    async def unchanged(self) -> Scene:
        if self._scene is None or self.failed_logins >= MAX_FAILED_LOGINS - 1 or self._changed:
            await self._opened.aclose()
            self._scene = await self._opened.enter_async_context(open_scene())
            self._before = await self._scene.rig.snapshot()
            self._changed = False
            self.failed_logins = 0
        return self._scene


@pytest.fixture
async def scene_pool() -> AsyncIterator[ScenePool]:
    async with AsyncExitStack() as opened:
        yield ScenePool(opened)


async def test_table_lists_every_route() -> None:
    async with serving(routers=ROUTERS) as rig:
        document = merged(describe_apis(rig.app))
    routes = {(method, path) for path, ops in document["paths"].items() for method in ops}
    assert routes == set(TABLE)


# Hundreds of applications are built, one for each row that changes something.
@pytest.mark.timeout(600)
@each_row("route", TABLE, ids=" ".join)
async def test_status_of_every_route_by_role(scene_pool: ScenePool, route: tuple[str, str]) -> None:
    answers: dict[str, int] = {}
    for role in ROLES:
        scene = await scene_pool.unchanged()
        answer = await scene.request(*route, role)
        answers[role] = answer.status_code
        scene_pool.failed_logins += answer.status_code == 401
        changed = await scene_pool.has_changed()
        assert not (changed and answer.status_code >= 400), f"{role}: {answer.text}"
    assert answers == dict(zip(ROLES, TABLE[route], strict=True))


@each_row(
    "route",
    [r for r in TABLE if TABLE[r][-1] == 404 != TABLE[r][1]],
    ids=lambda route: " ".join(route),
)
async def test_ids_of_other_owners_are_answered_like_unknown_ids(
    scene: Scene, route: tuple[str, str]
) -> None:
    theirs = await scene.request(*route, "stranger")
    random = await scene.request(*route, "stranger", **dict.fromkeys(scene.ids, "no-such-id"))

    def anonymous(answer: Any, own_id: str) -> str:
        request_id = answer.json().get("request_id", "")
        text: str = answer.text.replace(request_id, "") if request_id else answer.text
        return text.replace(own_id, "ID")

    theirs_id = next(scene.ids[each] for each in scene.ids if f"{{{each}}}" in route[1])
    theirs_id = schedule_id_of_api(route[1]) or theirs_id
    assert anonymous(theirs, theirs_id) == anonymous(random, "no-such-id")
    assert theirs.status_code == random.status_code == 404


async def test_dependency_on_a_schedule_of_another_owner_is_rejected(
    scene: Scene,
) -> None:
    answers = [
        await scene.rig.client.post(
            "/api/v1/schedules",
            json=definition(depends_on={"schedule_id": schedule_id}),
            headers=scene.headers["stranger"],
        )
        for schedule_id in ("canary-id", "no-such-id")
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["errors"][0]["pointer"] == "/depends_on/schedule_id"


@each_row(
    "path",
    [
        "/api/v1/schedules",
        "/api/v1/schedules?q=canary",
        "/api/v1/schedules?owner=user:alice",
        "/api/v1/schedules?label=canary-label",
        "/api/v1/schedules?q=owner:user:alice+label:canary-label",
        "/api/v1/runs",
        "/api/v1/runs?schedule_id=canary-id",
        "/api/v1/runs?q=owner:user:alice+schedule:canary-id",
        "/api/v1/deliveries",
        "/api/v1/deliveries?owner=user:alice",
        "/api/v1/inbox",
        "/api/v1/inbox?owner=user:alice&snoozed=true",
        "/api/v1/upcoming?hours=168",
        "/api/v1/proposals",
        "/api/v1/proposals?status=open&limit=200",
        "/schedules",
        "/schedules?owner_type=user&owner_id=alice",
        "/knowledge-networks/kn1/action-schedules",
        "/api/bkn-backend/v1/knowledge-networks/kn1/action-schedules?name_pattern=canary",
        "/metrics",
    ],
)
async def test_lists_and_metrics_contain_nothing_of_other_owners(scene: Scene, path: str) -> None:
    answer = await scene.rig.client.get(path, headers=scene.headers["stranger"])
    assert answer.status_code == 200
    assert "canary" not in answer.text.replace(path, "")
    assert "alice" not in answer.text
