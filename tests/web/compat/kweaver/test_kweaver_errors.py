"""Rejected requests: order of the checks, error codes and languages."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import StoreUnavailable
from chimes.i18n import LANGUAGES, Message, in_language
from chimes.web.compat.kweaver.errors import ERROR_TEXTS
from tests.tables import each_row
from tests.web.compat.kweaver.requests import KN1, body, create
from tests.web.rig import Rig

CODE = "BknBackend.ActionSchedule."
INVALID = f"{CODE}InvalidParameter"
JSON = {"Content-Type": "application/json"}
#: In the order of the checks; each tested body also has the later faults.
FAULTS_IN_ORDER = (
    ({"name": ""}, INVALID, "name is required"),
    ({"name": "x" * 101}, INVALID, "name must be less than 100 characters"),
    ({"action_type_id": ""}, INVALID, "action_type_id is required"),
    ({"cron_expression": ""}, INVALID, "cron_expression is required"),
    (
        {"_instance_identities": []},
        INVALID,
        "_instance_identities is required and cannot be empty",
    ),
    ({"status": "on"}, f"{CODE}InvalidStatus", "status must be 'active' or 'inactive'"),
    ({"cron_expression": "@hourly"}, f"{CODE}InvalidCronExpression", "5 fields"),
)


async def rejection(rig: Rig, sent: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    before = await rig.snapshot()
    answer = await rig.client.post(KN1, json=sent, headers=headers)
    assert await rig.snapshot() == before
    found: dict[str, Any] = answer.json()
    assert set(found) == {
        "error_code",
        "description",
        "solution",
        "error_link",
        "error_details",
    }
    return answer.status_code, found


@pytest.mark.parametrize("number", range(len(FAULTS_IN_ORDER)))
async def test_first_fault_is_reported(kweaver: Rig, number: int) -> None:
    sent = body()
    for fault, _, _ in reversed(FAULTS_IN_ORDER[number:]):
        sent |= fault
    _, code, details = FAULTS_IN_ORDER[number]
    status, error = await rejection(kweaver, sent)
    assert (status, error["error_code"]) == (400, code)
    assert details in error["error_details"]


@pytest.mark.parametrize("name", ["name", "action_type_id", "cron_expression"])
async def test_missing_field_is_reported_like_an_empty_one(kweaver: Rig, name: str) -> None:
    without = body()
    del without[name]
    for sent in (without, body(**{name: None})):
        status, error = await rejection(kweaver, sent)
        assert (status, error["error_details"]) == (400, f"{name} is required")
    status, error = await rejection(kweaver, body(_instance_identities=None))
    assert error["error_details"] == "_instance_identities is required and cannot be empty"


@each_row(
    "wrong",
    [
        {"name": 5},
        {"name": "\u202e"},
        {"name": "a\nb"},
        {"name": " "},
        {"action_type_id": "x" * 41},
        {"action_type_id": "a\x00"},
        {"cron_expression": ["* * * * *"]},
        {"status": True},
        {"_instance_identities": {"id": 1}},
        {"_instance_identities": [1]},
        {"unique_identities": [{"id": "other"}]},
        {"dynamic_params": []},
        {"dynamic_params": {"a": "x" * 40_000, "b": "y" * 40_000}},
        {"_instance_identities": [{str(n): "x" * 50_000} for n in range(3)]},
    ],
)
async def test_invalid_values_are_rejected(kweaver: Rig, wrong: dict[str, Any]) -> None:
    status, error = await rejection(kweaver, body(**wrong))
    assert (status, error["error_code"]) == (400, INVALID)
    assert error["error_details"]


async def test_maximum_lengths_are_accepted(kweaver: Rig) -> None:
    await create(kweaver, name="ช" * 100, action_type_id="a" * 40)
    path = f"/knowledge-networks/{'k' * 40}/action-schedules?branch={'b' * 40}"
    await create(kweaver, path)
    for wrong in (
        f"/knowledge-networks/{'k' * 41}/action-schedules",
        f"/knowledge-networks/k/action-schedules?branch={'b' * 41}",
        "/knowledge-networks/a%00b/action-schedules",
        "/knowledge-networks/%20/action-schedules",
    ):
        for answer in (
            await kweaver.client.get(wrong),
            await kweaver.client.post(wrong, json=body()),
        ):
            assert (answer.status_code, answer.json()["error_code"]) == (400, INVALID)


@each_row(
    "expression",
    [
        "@hourly",
        "@every 5m",
        "* * * *",
        "0 * * * * *",
        "0 0 * ? * * *",
        "60 * * * *",
        "* * * * MOON",
        "TZ=Mars/Phobos 0 9 * * *",
        "CRON_TZ=UTC",
        "CRON_TZ=UTC @daily",
        "0 0 31 2 *",
        "0 0 30 FEB ?",
        "x",
        "1," * 60 + "1 * * * *",
    ],
)
async def test_invalid_cron_expressions_are_rejected(kweaver: Rig, expression: str) -> None:
    schedule_id = await create(kweaver)
    path = f"{KN1}/{schedule_id}"
    for status in ("active", "inactive"):
        code, error = await rejection(kweaver, body(cron_expression=expression, status=status))
        assert (code, error["error_code"]) == (400, f"{CODE}InvalidCronExpression")
    before = await kweaver.snapshot()
    answer = await kweaver.client.put(path, json={"cron_expression": expression})
    assert answer.status_code == 400
    assert answer.json()["error_code"] == f"{CODE}InvalidCronExpression"
    assert await kweaver.snapshot() == before


@pytest.mark.parametrize(
    "expression",
    [
        "*/5 * * * *",
        "5/15 * * * *",
        "? ? ? ? ?",
        "?/10 * * * *",
        "0 9 * JAN-MAR MON,wed",
        "0 9 * * 7",
        "TZ=Asia/Shanghai 0 9 * * *",
        "CRON_TZ=Europe/Berlin 0 9 1-7 * *",
        "0 0 29 2 *",
    ],
)
async def test_valid_cron_expressions_are_accepted(kweaver: Rig, expression: str) -> None:
    schedule_id = await create(kweaver, cron_expression=expression, status="active")
    found = (await kweaver.client.get(f"{KN1}/{schedule_id}")).json()
    assert found["cron_expression"] == expression
    assert found["next_run_time"] > found["create_time"]


@pytest.mark.parametrize(
    ("sent", "code", "details"),
    [
        ({}, INVALID, "at least one field must be provided for update"),
        ({"name": "", "cron_expression": ""}, INVALID, "at least one field must be provided"),
        ({"status": "active"}, INVALID, "at least one field must be provided for update"),
        ({"name": "x" * 101}, INVALID, "name must be less than 100 characters"),
        ({"_instance_identities": []}, INVALID, "_instance_identities is required"),
        ({"dynamic_params": 5}, INVALID, "dynamic_params must be an object"),
        ([], INVALID, "a JSON object is required"),
        ({"cron_expression": "x"}, f"{CODE}InvalidCronExpression", "5 fields"),
    ],
)
async def test_invalid_put_is_rejected(kweaver: Rig, sent: Any, code: str, details: str) -> None:
    schedule_id = await create(kweaver)
    before = await kweaver.snapshot()
    answer = await kweaver.client.put(f"{KN1}/{schedule_id}", json=sent)
    assert (answer.status_code, answer.json()["error_code"]) == (400, code)
    assert details in answer.json()["error_details"]
    assert await kweaver.snapshot() == before


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"status": "on"}, f"{CODE}InvalidStatus"),
        ({"status": ""}, f"{CODE}InvalidStatus"),
        ({}, f"{CODE}InvalidStatus"),
        ({"status": 1}, INVALID),
        ([], INVALID),
    ],
)
async def test_invalid_status_is_rejected(kweaver: Rig, sent: Any, code: str) -> None:
    schedule_id = await create(kweaver)
    before = await kweaver.snapshot()
    answer = await kweaver.client.put(f"{KN1}/{schedule_id}/status", json=sent)
    assert (answer.status_code, answer.json()["error_code"]) == (400, code)
    assert await kweaver.snapshot() == before


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"],
)
async def test_other_content_type_is_406(kweaver: Rig, content_type: str) -> None:
    schedule_id = await create(kweaver)
    for method, path in (
        ("POST", KN1),
        ("PUT", f"{KN1}/{schedule_id}"),
        ("PUT", f"{KN1}/{schedule_id}/status"),
        ("PUT", f"{KN1}/nobody"),
    ):
        for content in (b'{"status": "active"}', b""):
            answer = await kweaver.client.request(
                method,
                path,
                content=content,
                headers={"Content-Type": content_type} if content_type else {},
            )
            assert answer.status_code == 406
            assert answer.json()["error_code"] == "BknBackend.InvalidRequestHeader.ContentType"


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff", b"[1", b"null", b'{"a": 1, "a": 2}', b"NaN"]
)
async def test_malformed_json_is_400(kweaver: Rig, content: bytes) -> None:
    answer = await kweaver.client.post(KN1, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (400, INVALID)
    charset = {"Content-Type": "application/json; charset=latin-1"}
    odd = await kweaver.client.post(KN1, content=b"{}", headers=charset)
    assert odd.status_code == 406


@pytest.mark.parametrize(
    ("tag", "language"),
    [("en-US", "en"), ("zh-CN", "zh"), ("th-TH", "th"), ("zh", "zh"), ("xx-YY", "en")],
)
async def test_errors_are_translated_with_the_same_code(
    kweaver: Rig, tag: str, language: str
) -> None:
    """The texts come from the message catalogues."""
    schedule_id = await create(kweaver)
    client, headers = kweaver.client, {"X-Language": tag}
    for answer, code in (
        (await client.post(KN1, json=body(name=""), headers=headers), INVALID),
        (
            await client.post(KN1, json=body(cron_expression="x"), headers=headers),
            f"{CODE}InvalidCronExpression",
        ),
        (
            await client.post(KN1, json=body(status="x"), headers=headers),
            f"{CODE}InvalidStatus",
        ),
        (await client.get(f"{KN1}/nobody", headers=headers), f"{CODE}NotFound"),
        (
            await client.get(f"{KN1}?limit=0", headers=headers),
            "BknBackend.InvalidParameter.Limit",
        ),
        (
            await client.put(f"{KN1}/{schedule_id}", content=b"", headers=headers),
            "BknBackend.InvalidRequestHeader.ContentType",
        ),
    ):
        error = answer.json()
        assert error["error_code"] == code
        assert error["description"] == in_language(ERROR_TEXTS[code].description, language)
        assert error["solution"] == in_language(ERROR_TEXTS[code].solution, language)
        assert error["error_link"] == "None"
        assert answer.headers["content-language"] == language


def test_all_error_texts_have_translations() -> None:
    for words in ERROR_TEXTS.values():
        for text in (words.description, words.solution):
            assert isinstance(text, Message)
            assert all(text.in_language(language) for language in LANGUAGES)


async def test_unavailable_store_is_503_per_operation(kweaver: Rig) -> None:
    schedule_id = await create(kweaver)

    async def away(*given: object, **named: object) -> None:
        raise StoreUnavailable("canary: gone fishing")

    for name in ("add_schedule", "change_schedule", "change_schedules", "list_schedules"):
        setattr(kweaver.store, name, away)
    client = kweaver.client
    for answer, code in (
        (await client.post(KN1, json=body()), "CreateFailed"),
        (await client.put(f"{KN1}/{schedule_id}", json={"name": "x"}), "UpdateFailed"),
        (await client.delete(f"{KN1}/{schedule_id}"), "DeleteFailed"),
        (await client.get(KN1), "GetFailed"),
    ):
        assert (answer.status_code, answer.json()["error_code"]) == (503, f"{CODE}{code}")
        assert "retry-after" in answer.headers
        assert "canary" not in answer.text


async def test_internal_error_reveals_nothing(kweaver: Rig) -> None:
    async def broken(*given: object, **named: object) -> None:
        raise RuntimeError("canary")

    kweaver.store.add_schedule = broken  # type: ignore[method-assign, assignment]
    answer = await kweaver.client.post(KN1, json=body(), headers={"X-Language": "zh-CN"})
    assert (answer.status_code, answer.json()["error_code"]) == (500, f"{CODE}InternalError")
    assert "canary" not in answer.text


async def test_compressed_body_is_406(kweaver: Rig) -> None:
    answer = await kweaver.client.post(
        KN1, content=b"x", headers=JSON | {"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 406


async def test_unknown_paths_and_methods(kweaver: Rig) -> None:
    client = kweaver.client
    for answer, status, code in (
        (await client.get("/knowledge-networks/kn1"), 404, "Public.NotFound"),
        (await client.get("/api/bkn-backend/v1/nothing"), 404, "Public.NotFound"),
        (await client.get("/in/v1/nothing"), 404, "Public.NotFound"),
        (await client.patch(KN1, json={}), 405, "Public.MethodNotAllowed"),
        (
            await client.post(KN1, json={}, headers={"Origin": "http://evil.example"}),
            403,
            "Public.Forbidden",
        ),
    ):
        assert (answer.status_code, answer.json()["error_code"]) == (status, code)
        assert answer.json()["description"]
        assert answer.json()["solution"]
