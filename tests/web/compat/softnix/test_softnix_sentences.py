"""Sentences in the Softnix API."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.model.access import Actor
from chimes.services.preferences import PreferenceService
from tests.web.rig import Rig

#: The clock is at Tuesday 15 January 2030, 09:00 UTC, 16:00 in Bangkok.
PATTERNS: list[tuple[str, dict[str, Any]]] = [
    ("วันนี้ 17:30 สรุปข่าว", {
        "schedule_type": "one_time", "run_at": "2030-01-15T10:30:00+00:00", "cron_expr": None,
        "source_pattern": "thai_today_time"}),
    ("พรุ่งนี้ 09:00 สรุปข่าว", {
        "schedule_type": "one_time", "run_at": "2030-01-16T02:00:00+00:00", "cron_expr": None,
        "source_pattern": "thai_tomorrow_time"}),
    ("ทุกวัน 09:00 สรุปข่าว", {
        "schedule_type": "cron", "run_at": None, "cron_expr": "0 9 * * *",
        "source_pattern": "thai_daily_time"}),
    ("ทุกวันจันทร์ 08:30 สรุปข่าว", {
        "schedule_type": "cron", "run_at": None, "cron_expr": "30 8 * * 1",
        "source_pattern": "thai_weekday_time"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PATTERNS)
async def test_softnix_sentence_patterns(softnix: Rig, text: str, expected: dict[str, Any]) -> None:
    whole = {"timezone": "Asia/Bangkok", "task": "สรุปข่าว"} | expected
    answer = await softnix.client.post("/schedules/parse", json={"text": text})
    assert (answer.status_code, answer.json()) == (200, {"item": whole})
    assert await softnix.snapshot() == []
    made = await softnix.client.post("/schedules/from-text", json={"text": text})
    assert made.status_code == 200, made.text
    assert made.json()["parsed"] == whole
    item = made.json()["item"]
    assert {name: item[name] for name in whole if name != "source_pattern"} == {
        name: value for name, value in whole.items() if name != "source_pattern"
    }
    assert item["next_run_at"] is not None
    assert (item["enabled"], item["delivery_channel"]) == (True, "web_ui")


async def test_options_given_with_a_sentence(softnix: Rig) -> None:
    body = {
        "text": "every day at 9am sum up the news",
        "timezone": "Europe/Berlin",
        "enabled": False,
        "owner_type": "chat",
        "owner_id": "1001",
        "delivery_channel": "telegram",
    }
    item = (await softnix.client.post("/schedules/from-text", json=body)).json()["item"]
    assert (item["owner_type"], item["owner_id"]) == ("chat", "1001")
    assert (item["delivery_channel"], item["delivery_target"]) == ("telegram", "1001")
    assert (item["enabled"], item["next_run_at"]) == (False, None)
    assert item["timezone"] == "Europe/Berlin"


async def test_intervals_become_every_expressions(softnix: Rig) -> None:
    answer = await softnix.client.post(
        "/schedules/from-text", json={"text": "every 15 minutes check the site"}
    )
    item = answer.json()["item"]
    assert item["schedule_type"] == "cron"
    assert item["cron_expr"] == "@every 15m0s"
    again = await softnix.client.post(
        "/schedules",
        json={"task": "x", "schedule_type": "cron", "cron_expr": item["cron_expr"]},
    )
    assert again.json()["item"]["cron_expr"] == item["cron_expr"]


@pytest.mark.parametrize("path", ["/schedules/parse", "/schedules/from-text"])
@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("วันนี้ 09:00 สรุปข่าว", "past"),
        ("ทุกวัน สรุปข่าว", "time"),
        ("พรุ่งนี้ 3 โมงเช้า สรุปข่าว", "ambiguous"),
    ],
)
async def test_incomplete_softnix_sentence_gets_a_clarification(
    softnix: Rig, path: str, text: str, missing: str
) -> None:
    answer = await softnix.client.post(path, json={"text": text})
    assert answer.status_code == 400
    response = answer.json()
    assert set(response) == {"detail", "clarification"}
    assert missing in response["clarification"]["missing"]
    assert response["detail"] == response["clarification"]["message"]
    assert response["clarification"]["examples"]
    assert await softnix.snapshot() == []


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "text is required"),
        ({"text": "  "}, "text is required"),
        ({"text": 5}, "text must be text"),
        ({"text": "ทุกวัน 09:00 สรุปข่าว", "timezone": "Mars"}, "invalid timezone"),
        ({"text": "ทุกวัน 09:00 สรุปข่าว", "when": "now"}, "unknown field: when"),
    ],
)  # fmt: skip
async def test_invalid_sentence_requests(softnix: Rig, body: dict[str, Any], detail: str) -> None:
    for path in ("/schedules/parse", "/schedules/from-text"):
        answer = await softnix.client.post(path, json=body)
        assert (answer.status_code, answer.json()) == (400, {"detail": detail})


async def test_sentence_without_a_task_creates_nothing(softnix: Rig) -> None:
    answer = await softnix.client.post("/schedules/from-text", json={"text": "ทุกวัน 09:00"})
    assert (answer.status_code, answer.json()) == (400, {"detail": "task is required"})
    assert await softnix.snapshot() == []


async def test_zone_is_the_owner_preference_unless_named(softnix: Rig) -> None:
    chosen = {"timezone": "Asia/Tokyo"}
    await PreferenceService(softnix.store).change(Actor(), chosen)
    text = {"text": "ทุกวัน 09:00 สรุปข่าว"}
    parsed = (await softnix.client.post("/schedules/parse", json=text)).json()["item"]
    assert parsed["timezone"] == "Asia/Tokyo"
    other = text | {"owner_type": "user", "owner_id": "anna"}
    made = (await softnix.client.post("/schedules/from-text", json=other)).json()["item"]
    assert made["timezone"] == "Asia/Bangkok"
    plain = {"task": "x", "run_at": "2030-02-10T09:00:00"}
    item = (await softnix.client.post("/schedules", json=plain)).json()["item"]
    assert (item["timezone"], item["run_at"]) == ("Asia/Tokyo", "2030-02-10T00:00:00+00:00")
