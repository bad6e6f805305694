"""Owners, quotas, limits and the audit in the Softnix API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from chimes.web.compat.softnix.routes import softnix_router
from tests.builders import ALICE, BOB
from tests.web.rig import Rig, serving

DAILY = {"task": "news", "schedule_type": "cron", "cron_expr": "0 9 * * *"}


async def post(rig: Rig, headers: dict[str, str], **given: Any) -> Any:
    return await rig.client.post("/schedules", json=DAILY | given, headers=headers)


async def test_key_in_header_or_query(with_keys: Rig) -> None:
    client = with_keys.client
    for answer in (
        await client.get("/schedules"),
        await client.get("/schedules", headers={"X-API-Key": "wrong"}),
        await client.get("/schedules?api_key=wrong"),
        await client.get("/schedules?token=root"),
    ):
        assert (answer.status_code, answer.json()) == (401, {"detail": "unauthorized"})
    for answer in (
        await client.get("/schedules", headers={"x-api-key": "root"}),
        await client.get("/schedules?api_key=root"),
        await client.get("/schedules", headers={"Authorization": "Bearer root"}),
    ):
        assert answer.status_code == 200


async def test_trailing_slash_is_accepted(softnix: Rig) -> None:
    made = await softnix.client.post("/schedules/", json=DAILY)
    assert made.status_code == 200
    assert len((await softnix.client.get("/schedules/")).json()["items"]) == 1


async def test_security_headers_of_responses(softnix: Rig) -> None:
    for path in ("/schedules", "/schedules/nope"):
        headers = (await softnix.client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


async def test_member_sees_only_its_own_schedules(with_keys: Rig) -> None:
    alice, bob = await with_keys.key(Role.MEMBER, ALICE), await with_keys.key(Role.MEMBER, BOB)
    made = (await post(with_keys, alice)).json()["item"]
    assert (made["owner_type"], made["owner_id"]) == ("user", "alice")
    same = await post(with_keys, alice, owner_type="user", owner_id="alice")
    assert same.status_code == 200
    before = await with_keys.snapshot()
    for owner in (
        {"owner_type": "user", "owner_id": "bob"},
        {"owner_type": "system", "owner_id": "default"},
        {"owner_id": "alice", "owner_type": "chat"},
    ):
        refused = await post(with_keys, alice, **owner)
        assert refused.status_code == 403
        assert set(refused.json()) == {"detail"}
    path = f"/schedules/{made['id']}"
    random = await with_keys.client.get("/schedules/ffffffffffff", headers=bob)
    for answer in (
        await with_keys.client.get(path, headers=bob),
        await with_keys.client.patch(path, json={"task": "x"}, headers=bob),
        await with_keys.client.delete(path, headers=bob),
        await with_keys.client.post(f"{path}/run-now", headers=bob),
        await with_keys.client.get(f"{path}/runs", headers=bob),
    ):
        assert (answer.status_code, answer.json()) == (404, {"detail": "schedule not found"})
        assert answer.json() == random.json()
    for query in ("", "?owner_type=user&owner_id=alice", "?owner_id=alice"):
        seen = await with_keys.client.get(f"/schedules{query}", headers=bob)
        assert seen.json() == {"items": []}
    assert await with_keys.snapshot() == before
    admin = {"X-API-Key": "root"}
    everything = (await with_keys.client.get("/schedules", headers=admin)).json()["items"]
    assert len(everything) == 2


async def test_viewer_may_not_change_anything(with_keys: Rig) -> None:
    alice, viewer = await with_keys.key(Role.MEMBER, ALICE), await with_keys.key(Role.VIEWER, ALICE)
    made = (await post(with_keys, alice)).json()["item"]
    path = f"/schedules/{made['id']}"
    assert (await with_keys.client.get(path, headers=viewer)).status_code == 200
    for answer in (
        await post(with_keys, viewer),
        await with_keys.client.patch(path, json={"task": "x"}, headers=viewer),
        await with_keys.client.delete(path, headers=viewer),
        await with_keys.client.post(f"{path}/run-now", headers=viewer),
    ):
        assert answer.status_code == 403
    notes = await with_keys.store.list_audit(AuditQuery(verb="refused"))
    assert {note.interface for note in notes} == {"softnix"}


async def test_21st_active_schedule_is_rejected(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    made = [(await post(with_keys, alice)).json()["item"] for _ in range(20)]
    before = await with_keys.snapshot()
    answer = await post(with_keys, alice)
    assert answer.status_code == 409
    assert answer.json() == {
        "detail": "user:alice already has 20 active schedules, as many as are allowed",
        "quota": "active_schedules",
        "limit": 20,
    }
    text = {"text": "ทุกวัน 09:00 สรุปข่าว"}
    words = await with_keys.client.post("/schedules/from-text", json=text, headers=alice)
    assert words.status_code == 409
    notes = await with_keys.store.list_audit(AuditQuery(verb="refused", owner="user:alice"))
    assert [(note.object_id, note.allowed) for note in notes] == [
        ("POST /schedules/from-text", False),
        ("POST /schedules", False),
    ]
    assert "20 active schedules" in notes[0].reason
    assert await with_keys.snapshot() == before
    paused = await post(with_keys, alice, enabled=False)
    assert paused.status_code == 200
    path = f"/schedules/{paused.json()['item']['id']}"
    for switched in (
        await with_keys.client.patch(path, json={"enabled": True}, headers=alice),
        await with_keys.client.post(f"/api/v1{path}/resume", headers=alice),
    ):
        assert switched.status_code == 409
    other = await with_keys.key(Role.MEMBER, BOB)
    assert (await post(with_keys, other)).status_code == 200
    first = f"/schedules/{made[0]['id']}"
    await with_keys.client.patch(first, json={"enabled": False}, headers=alice)
    on = await with_keys.client.patch(path, json={"enabled": True}, headers=alice)
    assert (on.status_code, on.json()["item"]["enabled"]) == (200, True)
    native = await with_keys.client.post(
        "/api/v1/schedules",
        json={
            "name": "n",
            "trigger": {"kind": "cron", "expression": "0 9 * * *"},
            "target": {"kind": "agent", "prompt": "x"},
        },
        headers=alice,
    )
    assert native.status_code == 201


async def test_active_limit_holds_under_concurrent_creation(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    answers = await asyncio.gather(*(post(with_keys, alice) for _ in range(60)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200] * 20 + [409] * 40


@pytest.mark.parametrize(
    ("active", "owner", "allowed"),
    [
        (None, {}, 25),
        (None, {"owner_type": "chat", "owner_id": "7"}, 20),
        (3, {}, 3),
        (3, {"owner_type": "chat", "owner_id": "7"}, 3),
        (0, {"owner_type": "chat", "owner_id": "7"}, 25),
    ],
)
async def test_active_limit_without_keys(
    without_keys: Callable[[int | None], Any],
    active: int | None,
    owner: dict[str, str],
    allowed: int,
) -> None:
    async with without_keys(active) as rig:
        codes = [(await post(rig, {}, **owner)).status_code for _ in range(25)]
    assert codes == [200] * allowed + [409] * (25 - allowed)


async def test_rate_limit_of_a_hundred_requests_in_a_second() -> None:
    async with serving(routers=[softnix_router], settings=Settings(requests_per_second=20)) as rig:
        first, second = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.MEMBER, ALICE)
        requests = (
            rig.client.get("/schedules", headers=(first, second)[n % 2]) for n in range(100)
        )
        answers = await asyncio.gather(*requests)
        codes = sorted(answer.status_code for answer in answers)
        assert codes == [200] * 40 + [429] * 60
        late = next(answer for answer in answers if answer.status_code == 429)
        assert set(late.json()) == {"detail"}
        assert late.headers["retry-after"] == "1"
        assert (late.headers["ratelimit-limit"], late.headers["ratelimit-remaining"]) == ("40", "0")
        bob = await rig.key(Role.MEMBER, BOB)
        assert (await rig.client.get("/schedules", headers=bob)).status_code == 200


async def test_every_operation_is_audited(softnix: Rig) -> None:
    made = (await post(softnix, {})).json()["item"]
    path = f"/schedules/{made['id']}"
    await softnix.client.patch(path, json={"task": "weather"})
    await softnix.client.patch(path, json={"enabled": False})
    await softnix.client.patch(path, json={"enabled": True})
    await softnix.client.post(f"{path}/run-now")
    await softnix.client.delete(path)
    notes = await softnix.store.list_audit(AuditQuery(object_id=made["id"]))
    verbs = [note.verb for note in notes][::-1]
    assert verbs == ["create", "update", "pause", "resume", "run", "delete"]
    assert {note.interface for note in notes} == {"softnix"}
