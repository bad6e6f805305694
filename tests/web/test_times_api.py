"""Preview, explain and upcoming, which save nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.web.rig import CRON, Rig


async def test_preview(rig: Rig) -> None:
    before = await rig.snapshot()
    answer = await rig.client.post("/api/v1/preview", json={"trigger": CRON, "count": 2})
    assert answer.json() == {
        "fires": [
            {"at": "2030-01-16T02:00:00Z", "local": "2030-01-16T09:00:00+07:00"},
            {"at": "2030-01-17T02:00:00Z", "local": "2030-01-17T09:00:00+07:00"},
        ],
        "words": "Every day at 09:00, Asia/Bangkok time",
        "warnings": [],
        "timezone": "Asia/Bangkok",
    }
    assert await rig.snapshot() == before


async def test_preview_explains_clock_changes(rig: Rig) -> None:
    trigger = {"kind": "cron", "expression": "30 2 * * *", "timezone": "America/New_York"}
    answer = await rig.client.post(
        "/api/v1/preview", json={"trigger": trigger, "from": "2030-03-10T00:00:00", "count": 1}
    )
    [fire] = answer.json()["fires"]
    assert fire["at"] == "2030-03-10T07:00:00Z"
    assert fire["note"] == "moved_by_gap"
    assert fire["words"]


async def test_preview_counts_from_now_and_stops_at_max_runs(rig: Rig) -> None:
    trigger = {"kind": "every", "every": "1h", "max_runs": 2}
    answer = await rig.client.post("/api/v1/preview", json={"trigger": trigger})
    assert [fire["at"] for fire in answer.json()["fires"]] == [
        "2030-01-15T10:00:00Z",
        "2030-01-15T11:00:00Z",
    ]


@pytest.mark.parametrize("count", [0, -1, 101, 100_000, "5", True, 5.0, None])
async def test_preview_rejects_invalid_counts(rig: Rig, count: object) -> None:
    answer = await rig.client.post("/api/v1/preview", json={"trigger": CRON, "count": count})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/count"


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
async def test_trigger_that_never_fires_is_rejected(rig: Rig, expression: str) -> None:
    trigger = {"kind": "cron", "expression": expression}
    for path, body in (
        ("/api/v1/preview", {"trigger": trigger}),
        ("/api/v1/schedules", {"trigger": trigger, "name": "x", "target": {"url": "http://a.b"}}),
    ):
        answer = await rig.client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "never_fires")


@pytest.mark.parametrize(
    "body",
    [
        {"expression": "*/7 * * * *", "timezone": "Asia/Bangkok"},
        {"trigger": {"kind": "cron", "expression": "*/7 * * * *", "timezone": "Asia/Bangkok"}},
    ],
)
async def test_explain(rig: Rig, body: dict[str, Any]) -> None:
    answer = (await rig.client.post("/api/v1/explain", json=body)).json()
    assert answer["timezone"] == "Asia/Bangkok"
    assert "7" in answer["words"]
    assert len(answer["warnings"]) == 1
    assert answer["trigger"]["expression"] == "*/7 * * * *"


@pytest.mark.parametrize("body", [{}, {"expression": "* * * * *", "trigger": CRON}])
async def test_explain_needs_exactly_one_of_trigger_and_expression(
    rig: Rig, body: dict[str, Any]
) -> None:
    assert (await rig.client.post("/api/v1/explain", json=body)).status_code == 422


async def test_intervals_follow_one_grid(rig: Rig) -> None:
    """An interval without an anchor counts from 1970, whenever it is created or shown."""
    rig.clock.advance(timedelta(minutes=7, seconds=23, microseconds=456_789))
    trigger = {"kind": "every", "every": "PT10M"}
    slots = [f"2030-01-15T09:{minute}:00Z" for minute in (10, 20, 30)]
    made = await rig.create(trigger=trigger)
    assert (made["next_run_at"], made["trigger"]["anchor"]) == (slots[0], "1970-01-01T00:00:00Z")
    shown = (await rig.client.post("/api/v1/preview", json={"trigger": trigger, "count": 3})).json()
    assert [each["at"] for each in shown["fires"]] == slots
    assert "1970" not in shown["words"]
    read = (await rig.client.post("/api/v1/parse", json={"text": "every 10 minutes ping"})).json()
    assert read["fires"] == slots
    edited = await rig.client.patch(
        f"/api/v1/schedules/{made['id']}", json={"trigger": {"kind": "every", "every": "PT20M"}}
    )
    assert edited.json()["next_run_at"] == slots[1]
    late = trigger | {"start_at": "2030-01-15T10:03:05Z"}
    assert (await rig.create(name="late", trigger=late))["next_run_at"] == "2030-01-15T10:03:05Z"


async def test_upcoming(any_rig: Rig) -> None:
    daily = await any_rig.create()
    hourly = await any_rig.create(
        name="hourly", trigger={"kind": "every", "every": "PT12H"}, labels=["x"]
    )
    await any_rig.create(name="off", enabled=False)
    items = (await any_rig.client.get("/api/v1/upcoming", params={"hours": 24})).json()["items"]
    assert [(item["schedule_id"], item["at"]) for item in items] == [
        (hourly["id"], "2030-01-15T12:00:00Z"),
        (hourly["id"], "2030-01-16T00:00:00Z"),
        (daily["id"], "2030-01-16T02:00:00Z"),
    ]
    assert (items[2]["name"], items[2]["local"]) == ("report", "2030-01-16T09:00:00+07:00")
    few = await any_rig.client.get("/api/v1/upcoming", params={"hours": 0.5})
    assert few.json()["items"] == []


@pytest.mark.parametrize("hours", ["0", "-1", "168.1", "abc", "nan", "inf", ""])
async def test_upcoming_rejects_invalid_hours(rig: Rig, hours: str) -> None:
    answer = await rig.client.get("/api/v1/upcoming", params={"hours": hours})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "hours"


async def test_thousands_of_triggers_are_previewed_at_once(rig: Rig) -> None:
    """Each with the answer that it would get alone; wrong ones do not matter to the others."""
    triggers = [
        {"kind": "cron", "expression": f"{number % 60} {number // 60 % 24} * * *"}
        for number in range(3000)
    ]
    triggers[7] = {"kind": "cron", "expression": "99 * * * *"}
    triggers[8] = {"kind": "cron", "expression": "0 0 31 2 *"}
    triggers[9] = {"kind": "moon"}
    answer = await rig.client.post("/api/v1/preview", json={"triggers": triggers, "count": 3})
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert len(items) == 3000
    assert [place for place, each in enumerate(items) if each["error"]] == [7, 8, 9]
    assert (items[7]["error"]["field"], items[8]["error"]["code"]) == ("expression", "never_fires")
    for place in (0, 1234, 2999):
        body = {"trigger": triggers[place], "count": 3}
        alone = (await rig.client.post("/api/v1/preview", json=body)).json()
        assert items[place] == alone | {"error": None}
    for body, pointer in (
        ({"triggers": []}, "/triggers"),
        ({"triggers": [CRON] * 5001}, "/triggers"),
        ({"triggers": [CRON] * 2000, "count": 100}, "/count"),
        ({"triggers": [CRON], "trigger": CRON}, "/trigger"),
        ({}, "/trigger"),
    ):
        answer = await rig.client.post("/api/v1/preview", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer
