"""Templates: translated, and each can be sent as a schedule."""

from __future__ import annotations

import pytest

from chimes.language import LANGUAGES
from chimes.services.schedules.templates import PRESETS
from tests.builders import NOW
from tests.web.rig import Rig


async def get_templates(rig: Rig, lang: str) -> dict[str, dict[str, object]]:
    answer = await rig.client.get(
        "/api/v1/templates", params={"lang": lang, "timezone": "Asia/Bangkok"}
    )
    assert answer.headers["Content-Language"] == lang
    return {each["id"]: each for each in answer.json()["items"]}


async def test_templates_are_translated(rig: Rig) -> None:
    header = {"Accept-Language": "th-TH, en;q=0.5"}
    answer = await rig.client.get("/api/v1/templates", headers=header)
    assert answer.headers["Content-Language"] == "th"
    assert "Accept-Language" in answer.headers["Vary"]
    assert answer.json()["items"][4]["name"] == "สรุปประจำวัน"
    by_name = await rig.client.get("/api/v1/templates", params={"lang": "zh-Hans"}, headers=header)
    assert by_name.json()["items"][4] == {
        "id": "daily_summary",
        "name": "每日总结",
        "description": "每天傍晚总结当天发生的事",
        "cron_spec": "0 18 * * *",
        "trigger": {"kind": "cron", "expression": "0 18 * * *", "timezone": "UTC"},
        "timezone": "UTC",
        "words": "每天 18:00，UTC 时间",
        "example": "每天 18:00 用不超过十条要点总结今天发生的事，最重要的放在最前面。",
        "target": {
            "kind": "agent",
            "prompt": "用不超过十条要点总结今天发生的事，最重要的放在最前面。",
        },
        "delivery": [{"channel": "inbox"}],
        "next_fires": [f"2030-01-{day}T18:00:00Z" for day in (15, 16, 17)],
    }
    assert NOW.isoformat().startswith("2030-01-15T09:00:00")
    wrong = await rig.client.get("/api/v1/templates", params={"lang": "tlh"})
    assert (wrong.status_code, wrong.json()["errors"][0]["parameter"]) == (422, "lang")


@pytest.mark.parametrize("lang", LANGUAGES)
async def test_every_template_is_a_valid_schedule(rig: Rig, lang: str) -> None:
    offers = await get_templates(rig, lang)
    for preset in PRESETS:
        offer = offers[preset.id]
        body = {name: offer[name] for name in ("name", "trigger", "target", "delivery")}
        made = await rig.client.post("/api/v1/schedules", json=body)
        assert made.status_code == 201, made.text
        shown = made.json()
        assert shown["timezone"] == ("Asia/Bangkok" if offer["cron_spec"] else "UTC")
        assert shown["target"]["kind"] == preset.target["kind"]
        assert shown["delivery"]
        assert shown["next_run_at"] == offer["next_fires"][0]  # type: ignore[index]
