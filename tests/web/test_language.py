"""Responses in the requested language."""

from __future__ import annotations

import pytest

from tests.web.rig import CRON, Rig

ENGLISH = "Every day at 09:00, Asia/Bangkok time"
THAI = "ทุกวัน เวลา 09:00 น. ตามเวลา Asia/Bangkok"
CHINESE = "每天 09:00，Asia/Bangkok 时间"
CLOCK_CHANGE_NOTE = {"kind": "cron", "expression": "30 2 * * *", "timezone": "America/New_York"}


@pytest.mark.parametrize("path", ["/api/v1/preview", "/api/v1/explain"])
@pytest.mark.parametrize(
    ("header", "language", "words"),
    [
        (None, "en", ENGLISH),
        ("th-TH,th;q=0.9,en;q=0.8", "th", THAI),
        ("en;q=0.1, zh-Hans;q=0.7", "zh", CHINESE),
        ("fr-FR, tlh;q=0.9", "en", ENGLISH),
        ("th;q=banana", "en", ENGLISH),
    ],
)
async def test_accept_language_selects_the_language(
    rig: Rig, path: str, header: str | None, language: str, words: str
) -> None:
    headers = {} if header is None else {"Accept-Language": header}
    answer = await rig.client.post(path, json={"trigger": CRON}, headers=headers)
    assert answer.json()["words"] == words
    assert answer.headers["Content-Language"] == language
    assert "Accept-Language" in answer.headers["Vary"]


@pytest.mark.parametrize("path", ["/api/v1/preview", "/api/v1/explain"])
async def test_lang_parameter_overrides_the_header(rig: Rig, path: str) -> None:
    body = {"trigger": CRON, "lang": "th"}
    answer = await rig.client.post(path, json=body, headers={"Accept-Language": "zh"})
    assert answer.json()["words"] == THAI
    assert answer.headers["Content-Language"] == "th"
    wrong = await rig.client.post(path, json={"trigger": CRON, "lang": "tlh"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/lang")


async def test_notes_and_warnings_are_translated(rig: Rig) -> None:
    body = {"trigger": CLOCK_CHANGE_NOTE, "from": "2030-03-10T00:00:00", "count": 1, "lang": "zh"}
    [fire] = (await rig.client.post("/api/v1/preview", json=body)).json()["fires"]
    assert fire["words"] == "时钟拨快时会跳过这个时间，改为在拨快的时刻运行"
    uneven = {"expression": "*/7 * * * *", "lang": "th"}
    [warning] = (await rig.client.post("/api/v1/explain", json=uneven)).json()["warnings"]
    assert warning.startswith("รอบทุก 7 นาที")


async def test_schedule_descriptions_are_translated(rig: Rig) -> None:
    thai, chinese = {"Accept-Language": "th"}, {"Accept-Language": "zh-CN"}
    body = {"name": "a", "trigger": CRON, "target": {"url": "http://example.com/"}}
    made = await rig.client.post("/api/v1/schedules", json=body, headers=thai)
    assert (made.status_code, made.json()["words"]) == (201, THAI)
    assert made.headers["Content-Language"] == "th"
    path = f"/api/v1/schedules/{made.json()['id']}"

    one = await rig.client.get(path, headers=chinese)
    assert (one.json()["words"], one.headers["Content-Language"]) == (CHINESE, "zh")
    assert (await rig.client.get(path)).json()["words"] == ENGLISH
    many = await rig.client.get("/api/v1/schedules", headers=chinese)
    assert [each["words"] for each in many.json()["items"]] == [CHINESE]
    assert many.headers["Content-Language"] == "zh"

    changed = await rig.client.patch(path, json={"name": "b"}, headers=thai)
    paused = await rig.client.post(f"{path}/pause", headers=thai)
    resumed = await rig.client.post(f"{path}/resume", headers=thai)
    skipped = await rig.client.post(f"{path}/skip", headers=thai)
    moved = await rig.client.post(f"{path}/move", json={"to": "2030-01-20T00:00:00Z"}, headers=thai)
    other = await rig.client.post(
        f"{path}/reschedule", json={"to": "2030-01-21T00:00:00Z"}, headers=thai
    )
    for answer in (changed, paused, resumed, skipped, moved, other):
        assert answer.json()["words"] == THAI
        assert answer.headers["Content-Language"] == "th"


async def test_etag_depends_on_the_language(rig: Rig) -> None:
    body = {"name": "a", "trigger": CRON, "target": {"url": "http://example.com/"}}
    made = await rig.client.post("/api/v1/schedules", json=body)
    path = f"/api/v1/schedules/{made.json()['id']}"
    thai = {"Accept-Language": "th"}
    tag = (await rig.client.get(path, headers=thai)).headers["ETag"]
    known = await rig.client.get(path, headers={**thai, "If-None-Match": tag})
    assert (known.status_code, known.headers["Content-Language"]) == (304, "th")
    assert "Accept-Language" in known.headers["Vary"]
    other = await rig.client.get(path, headers={"Accept-Language": "zh", "If-None-Match": tag})
    assert other.status_code == 200
    # If-Match accepts the ETag of any language.
    changed = await rig.client.patch(path, json={"name": "b"}, headers={"If-Match": tag})
    assert changed.status_code == 200


async def test_replayed_response_keeps_the_language_of_the_first(rig: Rig) -> None:
    body = {"name": "a", "trigger": CRON, "target": {"url": "http://example.com/"}}
    for header in ("th", "zh"):
        answer = await rig.client.post(
            "/api/v1/schedules",
            json=body,
            headers={"Accept-Language": header, "Idempotency-Key": "k"},
        )
        assert (answer.json()["words"], answer.headers["Content-Language"]) == (THAI, "th")
