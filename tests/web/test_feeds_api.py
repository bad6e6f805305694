"""Feeds of coming fires, read by a calendar library."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import icalendar

from chimes.model.access import Owner, OwnerType, Role
from chimes.testing import DEFAULT_NOW
from tests.web.rig import HOST, Rig, serving

ANN, BEN = (Owner(type=OwnerType.USER, id=name) for name in ("ann", "ben"))
DAILY = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"}


async def feed(rig: Rig, body: dict[str, object], headers: Any = None) -> tuple[str, str]:
    """Its id, and the path of its address."""
    answer = await rig.client.post("/api/v1/feeds", json=body, headers=headers or {})
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["url"].startswith(f"{HOST}/feeds/")
    return found["id"], found["url"].removeprefix(HOST)


async def events(rig: Rig, path: str) -> list[icalendar.Event]:
    answer = await rig.client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    lines = answer.content.split(b"\r\n")
    assert all(len(line) <= 75 for line in lines)
    assert b"\n" not in b"".join(lines)
    calendar = icalendar.Calendar.from_ical(answer.content)
    assert calendar["VERSION"] == "2.0"
    assert calendar.errors == []
    return list(calendar.walk("VEVENT"))


async def test_a_calendar_library_reads_the_coming_fires(rig: Rig) -> None:
    name = "Bericht; täglich, \\ รายงานประจำวันของฝ่ายบัญชีและการเงินทั้งหมด 每日报告"
    made = await rig.create(name=name, trigger=DAILY, labels={"team": "ops"})
    _id, path = await feed(rig, {"schedule": made["id"]})
    found = await events(rig, path)
    # 90 days, at nine in Berlin, also after the clock change of 31 March.
    assert len(found) == 90
    first, last = found[0], found[-1]
    assert first["SUMMARY"] == name
    assert first.start == datetime.fromisoformat("2030-01-16T08:00:00+00:00")
    assert last.start == datetime.fromisoformat("2030-04-15T07:00:00+00:00")
    assert last.end - last.start == timedelta(minutes=1)
    assert {each.start.astimezone().minute for each in found} == {0}
    assert len({each["UID"] for each in found}) == 90
    assert len(await events(rig, f"{path}?days=7")) == 7
    for days in ("0", "367", "x", "-1", "99999999"):
        assert (await rig.client.get(f"{path}?days={days}")).status_code == 422
    # The same event is known again by its identity.
    again = await events(rig, path)
    assert [each["UID"] for each in again] == [each["UID"] for each in found]


async def test_feeds_select_by_label_and_owner() -> None:
    async with serving() as rig:
        admin = await rig.key(Role.ADMIN)
        ann, ben = await rig.key(Role.MEMBER, ANN), await rig.key(Role.MEMBER, BEN)
        for name, labels, headers in (
            ("a", {"team": "ops"}, ann),
            ("b", {"team": "dev"}, ann),
            ("c", {"team": "ops"}, ben),
            ("d", {}, ben),
        ):
            body = {
                "name": name,
                "labels": labels,
                "trigger": DAILY,
                "target": {"url": "http://127.0.0.1:9/"},
            }
            await rig.client.post("/api/v1/schedules", json=body, headers=headers)

        async def names(body: dict[str, object], headers: dict[str, str]) -> set[str]:
            _id, path = await feed(rig, body, headers)
            return {str(each["SUMMARY"]) for each in await events(rig, path)}

        assert await names({"label": "team"}, admin) == {"a", "b", "c"}
        assert await names({"label": "team=ops"}, admin) == {"a", "c"}
        # A feed never has the schedules of others, whatever its label.
        assert await names({"label": "team=ops"}, ann) == {"a"}
        assert await names({"owner": "user:ben"}, admin) == {"c", "d"}
        assert await names({"owner": {"type": "user", "id": "ann"}}, ann) == {"a", "b"}
        for body, status in (
            ({"owner": "user:ben"}, 403),
            ({"owner": "ben"}, 422),
            ({}, 422),
            ({"label": "x", "owner": "user:ann"}, 422),
            ({"schedule": "no-such"}, 404),
        ):
            answer = await rig.client.post("/api/v1/feeds", json=body, headers=ann)
            assert answer.status_code == status, answer.text


async def test_a_revoked_feed_is_not_found() -> None:
    async with serving() as rig:
        ann, ben = await rig.key(Role.MEMBER, ANN), await rig.key(Role.MEMBER, BEN)
        feed_id, path = await feed(rig, {"owner": "user:ann"}, ann)
        assert await events(rig, path) == []
        listed = (await rig.client.get("/api/v1/feeds", headers=ann)).json()["items"]
        assert [each["id"] for each in listed] == [feed_id]
        token = path.removeprefix("/feeds/").removesuffix(".ics")
        stored = str(await rig.snapshot())
        assert token not in stored
        assert (await rig.client.get("/api/v1/feeds", headers=ben)).json()["items"] == []
        answer = await rig.client.delete(f"/api/v1/feeds/{feed_id}", headers=ben)
        assert answer.status_code == 404
        viewer = await rig.key(Role.VIEWER, ANN)
        answer = await rig.client.delete(f"/api/v1/feeds/{feed_id}", headers=viewer)
        assert answer.status_code == 403
        for days in ("0", "367", "0001000000000000", "9" * 5000, "x"):
            assert (await rig.client.get(path, params={"days": days})).status_code == 422, days
        answer = await rig.client.delete(f"/api/v1/feeds/{feed_id}", headers=ann)
        assert answer.status_code == 204
        assert (await rig.client.get(path)).status_code == 404
        rig.clock.set(DEFAULT_NOW + timedelta(days=1))
        answer = await rig.client.delete(f"/api/v1/feeds/{feed_id}", headers=ann)
        assert answer.status_code == 404


async def test_tokens_cannot_be_guessed(rig: Rig) -> None:
    statuses = [(await rig.client.get(f"/feeds/guess{n}.ics")).status_code for n in range(30)]
    assert statuses[0] == 404
    assert statuses[-1] == 429
