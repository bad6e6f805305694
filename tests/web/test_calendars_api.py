"""Shared calendars and the kinds of triggers over the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.model.access import Actor, Role
from chimes.model.ids import ScheduleId
from chimes.services.schedules.history import Decision, fire_log
from chimes.services.time_data import TimeDataService
from chimes.triggers import BusinessDay, Sun
from chimes.web.dashboard.schedule.fire_log import log_lines
from tests.builders import a_schedule
from tests.web.rig import serving

CALENDARS = "/api/v1/calendars"
SCHEDULES = "/api/v1/schedules"


def cron(expression: str, **given: Any) -> dict[str, Any]:
    return {"kind": "cron", "expression": expression, "timezone": "UTC", **given}


async def test_a_calendar_is_used_changed_and_kept_while_in_use() -> None:
    async with serving() as rig:
        now = await rig.store.now()
        day = (now + timedelta(days=1)).date()
        unknown = cron("0 9 * * *", exclude={"calendar": "bank"})
        refused = await rig.client.post("/api/v1/preview", json={"trigger": unknown})
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_calendar")
        put = await rig.client.put(f"{CALENDARS}/bank", json={"dates": [str(day)]})
        assert (put.status_code, put.json()["version"]) == (200, 1), put.text
        exclude = {"calendar": "bank"}
        made = [
            await rig.create(trigger=cron("0 9 * * *", exclude=exclude)),
            await rig.create(trigger={"kind": "any", "of": [unknown]}),
        ]
        for each in made:
            assert each["next_slot"] > f"{day}T23", each
        assert made[0]["trigger"]["exclude"] == [exclude]
        in_use = await rig.client.delete(f"{CALENDARS}/bank")
        assert (in_use.status_code, in_use.json()["code"]) == (409, "calendar_in_use")
        # A change plans the schedules again; an equal one is no version.
        other = str(day + timedelta(days=1))
        for _twice in range(2):
            put = await rig.client.put(f"{CALENDARS}/bank", json={"dates": [other]})
        body = put.json()
        assert (body["version"], body["schedule_count"], body["failed"]) == (2, 2, [])
        assert [each["version"] for each in body["versions"]] == [2, 1]
        for each in made:
            found = (await rig.client.get(f"{SCHEDULES}/{each['id']}")).json()
            assert found["next_slot"].startswith(f"{day}T09:00"), found
            assert found["version"] == each["version"] + 1
        # An edit without the calendar frees it.
        for each in made:
            path = f"{SCHEDULES}/{each['id']}"
            await rig.client.patch(path, json={"trigger": cron("0 9 * * *")})
        assert (await rig.client.delete(f"{CALENDARS}/bank")).status_code == 204
        assert (await rig.client.get(f"{CALENDARS}/bank")).status_code == 404
        assert (await rig.client.get(CALENDARS)).json() == {"items": []}
        bad = await rig.client.put(f"{CALENDARS}/bank", json={"ranges": [["x", "y"]]})
        assert bad.status_code == 422


async def test_only_a_key_of_an_admin_without_scopes_changes_calendars() -> None:
    async with serving() as rig:
        admin = await rig.key(Role.ADMIN)
        for role, scopes in (
            (Role.OPERATOR, ()),
            (Role.ADMIN, ("read",)),
            (Role.ADMIN, ("write",)),
        ):
            body = {"name": "k", "role": role.value, "scopes": [*scopes]}
            made = await rig.client.post("/api/v1/keys", json=body, headers=admin)
            headers = {"Authorization": f"Bearer {made.json()['key']}"}
            for method, given in (("PUT", {"dates": ["2030-12-31"]}), ("DELETE", None)):
                answer = await rig.client.request(
                    method, f"{CALENDARS}/bank", json=given, headers=headers
                )
                assert answer.status_code == 403, (role, scopes, method)
        assert (await rig.client.get(CALENDARS, headers=admin)).json() == {"items": []}


async def test_shared_calendars_and_hashed_fields_have_suggestions() -> None:
    async with serving() as rig:
        await rig.client.put(f"{CALENDARS}/DE-BANK", json={"dates": ["2030-12-31"]})
        trigger = cron("H 9 * * *", exclude={"calendar": "DE-BANK"})
        await rig.create(trigger=trigger)
        answer = await rig.client.post("/api/v1/suggest", json={"trigger": trigger})
        assert answer.status_code == 200, answer.text
        # Its name looks like that of a region; its data are not those of a country.
        await TimeDataService(rig.store, lambda: ("2026.1", "0.1")).check()
        assert await TimeDataService(rig.store, lambda: ("2026.2", "0.2")).check() == ()


async def test_a_due_slot_fires_before_a_calendar_excludes_its_day() -> None:
    async with serving() as rig:
        await rig.client.put(f"{CALENDARS}/own", json={"dates": ["2030-01-01"]})
        exclude = {"calendar": "own"}
        made = await rig.create(trigger={"kind": "every", "every": "1h", "exclude": exclude})
        rig.clock.advance(timedelta(hours=2).total_seconds())
        today = (await rig.store.now()).date()
        await rig.client.put(f"{CALENDARS}/own", json={"dates": [str(today)]})
        runs = (await rig.client.get(f"/api/v1/runs?schedule_id={made['id']}")).json()["items"]
        assert made["next_slot"] in {each["slot"] for each in runs}
        found = (await rig.client.get(f"{SCHEDULES}/{made['id']}")).json()
        assert found["next_slot"] > str(today + timedelta(days=1))


async def test_hashed_fields_belong_to_the_schedule() -> None:
    async with serving() as rig:
        hashed = {"kind": "cron", "expression": "H H * * *", "timezone": "UTC"}
        one, other = [await rig.create(trigger=hashed) for _each in range(2)]
        assert one["trigger"] == other["trigger"] == hashed
        assert one["next_slot"] != other["next_slot"]
        for body, example in (({"id": one["id"]}, False), ({"name": "x"}, True), ({}, True)):
            found = await rig.client.post("/api/v1/preview", json={"trigger": hashed, **body})
            assert found.json().get("example", False) is example
            assert ("an example" in found.json()["words"]) is example
            assert found.json()["fires"][0]["at"][11:16] in found.json()["words"]
            if not example:
                assert found.json()["fires"][0]["at"] == one["next_slot"]
        path = f"{SCHEDULES}/{one['id']}"
        same = await rig.client.patch(path, json={"trigger": hashed})
        assert same.json()["version"] == one["version"]


async def test_the_fire_log_tells_what_does_not_happen() -> None:
    async with serving() as rig:
        now = await rig.store.now()
        begins = now - timedelta(days=400)
        actor = Actor()
        for number, trigger in enumerate(
            (
                BusinessDay(23, at="09:00", timezone="UTC"),
                Sun("sunset", latitude=69.65, longitude=18.96, timezone="Europe/Oslo"),
            )
        ):
            schedule_id = ScheduleId(f"s{number}")
            await rig.store.add_schedule(
                a_schedule(id=schedule_id, trigger=trigger, created_at=begins, updated_at=begins)
            )
            page = await fire_log(rig.store, actor, schedule_id, after=None, limit=50)
            absent = [each.at for each in page.entries if each.decision is Decision.ABSENT]
            assert absent == [*reversed([each.at for each in trigger.absences(begins, now)])]
            assert absent
            assert {each.label for each in log_lines(page.entries)} == {"does not happen"}
