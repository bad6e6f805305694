"""POST /api/v1/parse: a trigger, or a clarification."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.language import describe
from chimes.triggers import trigger_from_dict
from tests.web.rig import Rig

PATH = "/api/v1/parse"
#: An example of Softnix; the clock is at 15 January 2030, 09:00 UTC.
DAILY = "ทุกวัน 09:00 ช่วยสรุปข่าว AI"


async def parse(rig: Rig, text: str, headers: dict[str, str] | None = None, **given: Any) -> Any:
    answer = await rig.client.post(PATH, json={"text": text, **given}, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_complete_parse_response(any_rig: Rig) -> None:
    found = await parse(any_rig, DAILY, timezone="Asia/Bangkok")
    trigger = found.pop("trigger")
    assert (trigger["kind"], trigger["timezone"]) == ("cron", "Asia/Bangkok")
    words = describe(trigger_from_dict(trigger), "th")
    assert found == {
        "task": "ช่วยสรุปข่าว AI",
        "timezone": "Asia/Bangkok",
        "words": words,
        "fires": ["2030-01-16T02:00:00Z", "2030-01-17T02:00:00Z", "2030-01-18T02:00:00Z"],
    }
    assert await any_rig.snapshot() == []


async def test_parsed_trigger_can_be_saved(rig: Rig) -> None:
    found = await parse(rig, "every 15 minutes check the site")
    made = await rig.create(trigger=found["trigger"])
    assert made["trigger"] == found["trigger"]
    assert made["next_run_at"] == found["fires"][0]


@pytest.mark.parametrize(
    ("given", "fire"),
    [
        ({"now": "2026-02-10T01:00:00Z", "timezone": "Asia/Bangkok"}, "2026-02-10T02:00:00Z"),
        ({"now": "2026-02-10T08:00:00", "timezone": "Asia/Bangkok"}, "2026-02-10T02:00:00Z"),
        ({"now": "2026-02-10T08:00:00+07:00"}, "2026-02-10T09:00:00Z"),
    ],
)
async def test_now_and_zone_can_be_given(rig: Rig, given: dict[str, str], fire: str) -> None:
    assert (await parse(rig, "วันนี้ 09:00 สรุปข่าว", **given))["fires"] == [fire]


async def test_zone_defaults_to_the_callers_preference(rig: Rig) -> None:
    assert (await parse(rig, DAILY))["timezone"] == "UTC"
    await rig.client.patch("/api/v1/me", json={"timezone": "Asia/Tokyo"})
    found = await parse(rig, DAILY)
    assert (found["timezone"], found["fires"][0]) == ("Asia/Tokyo", "2030-01-16T00:00:00Z")


async def test_description_is_in_the_requested_language_else_that_of_the_text(rig: Rig) -> None:
    trigger = trigger_from_dict((await parse(rig, DAILY))["trigger"])
    words = {lang: describe(trigger, lang) for lang in ("en", "th", "zh")}
    assert len(set(words.values())) == 3
    assert (await parse(rig, DAILY))["words"] == words["th"]
    assert (await parse(rig, DAILY, {"Accept-Language": "de"}))["words"] == words["th"]
    assert (await parse(rig, DAILY, {"Accept-Language": "zh-CN, en;q=0.5"}))["words"] == words["zh"]
    assert (await parse(rig, DAILY, lang="en"))["words"] == words["en"]
    await rig.client.patch("/api/v1/me", json={"language": "zh"})
    assert (await parse(rig, DAILY))["words"] == words["zh"]
    assert (await parse(rig, DAILY, {"Accept-Language": "en"}))["words"] == words["en"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("วันนี้ 08:00 สรุปข่าว", "past"),
        ("ทุกวัน สรุปข่าว", "time"),
        ("tomorrow call the supplier", "time"),
        ("明天12点开会", "ambiguous"),
        ("", "time"),
    ],
)
async def test_incomplete_sentence_gets_a_clarification(rig: Rig, text: str, missing: str) -> None:
    answer = await rig.client.post(PATH, json={"text": text})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "needs_clarification"
    question = problem["clarification"]
    assert set(question) == {"missing", "message", "examples"}
    assert missing in question["missing"]
    assert problem["detail"] == question["message"]
    assert question["examples"]
    assert problem["errors"][0]["pointer"] == "/text"
    english = await rig.client.post(PATH, json={"text": text}, headers={"Accept-Language": "en"})
    assert english.headers["content-language"] == "en"
    assert english.json()["clarification"]["message"].isascii()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/text"),
        ({"text": 5}, "/text"),
        ({"text": "x" * 60_000}, "/text"),
        ({"text": DAILY, "timezone": "Mars/Base"}, "/timezone"),
        ({"text": DAILY, "now": "today"}, "/now"),
        ({"text": DAILY, "lang": "de"}, "/lang"),
        ({"text": DAILY, "tz": "UTC"}, "/tz"),
    ],
)
async def test_bad_requests_name_the_field(rig: Rig, body: dict[str, Any], pointer: str) -> None:
    answer = await rig.client.post(PATH, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "clarification" not in answer.json()
