"""GET and PATCH /api/v1/me, and the effect of preferences."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.language import describe
from chimes.model.access import Actor, Role, Scope
from chimes.model.listing import AuditQuery
from chimes.services.access import OwnerQuotas
from chimes.services.schedules.rules import Limits
from chimes.triggers import Cron
from tests.builders import ALICE
from tests.web.rig import Rig, definition, serving

ME = "/api/v1/me"
PLAIN = {"kind": "cron", "expression": "0 9 * * *"}


async def test_open_mode_is_the_system_owner(any_rig: Rig) -> None:
    answer = await any_rig.client.get(ME)
    assert answer.json() == {
        "owner": {"type": "system", "id": "default"},
        "role": "admin",
        "key_id": None,
        "scopes": [],
        "timezone": "UTC",
        "language": None,
        "quotas": [],
    }
    patched = await any_rig.client.patch(ME, json={"timezone": "Asia/Bangkok", "language": "th"})
    assert patched.status_code == 200
    assert patched.json() == answer.json() | {"timezone": "Asia/Bangkok", "language": "th"}
    assert (await any_rig.client.get(ME)).json() == patched.json()
    again = await any_rig.client.patch(ME, json={"language": None})
    assert (again.json()["timezone"], again.json()["language"]) == ("Asia/Bangkok", None)
    notes = await any_rig.store.list_audit(AuditQuery(verb="update_preferences"))
    assert [note.object_id for note in notes] == ["system:default"] * 2


async def test_me_shows_owner_key_and_used_quotas() -> None:
    quotas = OwnerQuotas(schedules=5, active=2, auth_enabled=True)
    async with serving(limits=lambda: Limits(quotas=quotas), fixed_keys=["root"]) as rig:
        made = await rig.context.access.create(
            Actor(), name="x", role=Role.MEMBER, owner=ALICE, scopes=[Scope.WRITE]
        )
        headers = {"X-API-Key": made.text}
        for namespace, enabled in (("softnix", True), ("softnix", False), ("native", True)):
            body = definition(namespace=namespace, enabled=enabled)
            answer = await rig.client.post("/api/v1/schedules", json=body, headers=headers)
            assert answer.status_code == 201, answer.text
        me = (await rig.client.get(ME, headers=headers)).json()
        assert (me["owner"], me["role"]) == ({"type": "user", "id": "alice"}, "member")
        assert (me["key_id"], me["scopes"]) == (made.key.id, ["write"])
        assert me["quotas"] == [
            {"quota": "schedules", "namespace": None, "limit": 5, "used": 3},
            {"quota": "active_schedules", "namespace": "softnix", "limit": 2, "used": 1},
        ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"timezone": "Mars/Base"}, "/timezone"),
        ({"timezone": "../../etc/passwd"}, "/timezone"),
        ({"timezone": 7}, "/timezone"),
        ({"language": "de"}, "/language"),
        ({"role": "admin"}, "/role"),
        ({"owner": {"id": "bob"}}, "/owner"),
    ],
)
async def test_invalid_preferences_are_rejected(
    rig: Rig, body: dict[str, Any], pointer: str
) -> None:
    answer = await rig.client.patch(ME, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert await rig.snapshot() == []


# The zone of the trigger takes precedence over the preference.
async def test_preferred_zone_applies_to_schedules_and_previews(rig: Rig) -> None:
    await rig.client.patch(ME, json={"timezone": "Asia/Bangkok"})
    assert (await rig.create(trigger=PLAIN))["timezone"] == "Asia/Bangkok"
    named = await rig.create(trigger=PLAIN | {"timezone": "Europe/Berlin"})
    assert named["timezone"] == "Europe/Berlin"
    preview = await rig.client.post("/api/v1/preview", json={"trigger": PLAIN})
    assert preview.json()["fires"][0]["at"] == "2030-01-16T02:00:00Z"
    explained = await rig.client.post("/api/v1/explain", json={"expression": "0 9 * * *"})
    assert explained.json()["timezone"] == "Asia/Bangkok"
    templates = (await rig.client.get("/api/v1/templates")).json()["items"]
    assert {each["timezone"] for each in templates} == {"Asia/Bangkok"}


async def test_preferred_language_applies_unless_the_request_overrides_it(rig: Rig) -> None:
    await rig.client.patch(ME, json={"language": "th"})
    trigger = Cron("0 9 * * *", timezone="UTC")
    made = await rig.create(trigger=PLAIN)
    assert made["words"] == describe(trigger, "th")
    path = f"/api/v1/schedules/{made['id']}"
    for headers, lang in (
        ({}, "th"),
        ({"Accept-Language": "zh"}, "zh"),
        ({"Accept-Language": "fr"}, "th"),
    ):
        shown = await rig.client.get(path, headers=headers)
        assert shown.json()["words"] == describe(trigger, lang)
        assert shown.headers["content-language"] == lang
    listed = await rig.client.get("/api/v1/schedules")
    assert listed.json()["items"][0]["words"] == describe(trigger, "th")
    preview = await rig.client.post("/api/v1/preview", json={"trigger": PLAIN})
    assert preview.json()["words"] == describe(trigger, "th")
