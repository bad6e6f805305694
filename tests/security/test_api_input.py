"""Invalid input is answered with a 4xx that names the field, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chimes.model.access import Quota, Role
from chimes.services.schedules.rules import Limits
from tests.builders import ALICE, SECOND
from tests.tables import each_row
from tests.web.rig import CRON, HTTP, Rig, definition, serving

PATH = "/api/v1/schedules"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as rig:
        yield rig


@pytest.fixture
async def rig_with_schedule(rig: Rig) -> Rig:
    await rig.create(id="s")
    return rig


def cron(expression: Any, **more: Any) -> dict[str, Any]:
    return {"trigger": {"kind": "cron", "expression": expression, **more}}


def every(every: Any, **more: Any) -> dict[str, Any]:
    return {"trigger": {"kind": "every", "every": every, **more}}


def once(at: Any, **more: Any) -> dict[str, Any]:
    return {"trigger": {"kind": "once", "at": at, **more}}


def target(**more: Any) -> dict[str, Any]:
    return {"target": HTTP | more}


#: (field that replaces the valid one, JSON pointer in the error)
BAD: list[tuple[dict[str, Any], str]] = [
    # exact types
    ({"name": 5}, "/name"),
    ({"name": None}, "/name"),
    ({"name": ["x"]}, "/name"),
    ({"name": ""}, "/name"),
    ({"name": "   "}, "/name"),
    ({"priority": "5"}, "/priority"),
    ({"priority": True}, "/priority"),
    ({"priority": 1.5}, "/priority"),
    ({"priority": 1001}, "/priority"),
    ({"priority": 10**30}, "/priority"),
    ({"enabled": 1}, "/enabled"),
    ({"enabled": "true"}, "/enabled"),
    ({"enabled": None}, "/enabled"),
    ({"labels": "x"}, "/labels"),
    ({"labels": {"a": 1}}, "/labels"),
    ({"labels": [1]}, "/labels"),
    ({"labels": [""]}, "/labels"),
    ({"labels": [str(n) for n in range(51)]}, "/labels"),
    ({"id": ""}, "/id"),
    ({"id": "a b"}, "/id"),
    ({"id": "a/b"}, "/id"),
    ({"id": "x" * 201}, "/id"),
    ({"id": 5}, "/id"),
    ({"namespace": "No Such"}, "/namespace"),
    ({"owner": "alice"}, "/owner"),
    ({"owner": {"type": "robot", "id": "x"}}, "/owner/type"),
    ({"owner": {"type": "user", "id": ""}}, "/owner/id"),
    ({"owner": {"type": "user", "id": "a\nb"}}, "/owner/id"),
    ({"depends_on": "x"}, "/depends_on"),
    ({"depends_on": {"schedule_id": "nope"}}, "/depends_on/schedule_id"),
    ({"depends_on": {"schedule_id": "nope", "within": 5}}, "/depends_on/within"),
    ({"name": "a\u0000b"}, "/name"),
    ({"name": "\ud800"}, "/name"),
    ({"name": "\u202etxt"}, "/name"),
    ({"name": "a\u2028b"}, "/name"),
    ({"name": "a\nb"}, "/name"),
    ({"name": "e" + "\u0301" * 10_000}, "/name"),
    ({"name": "x" * 201}, "/name"),
    # unknown and read-only fields
    ({"nam": "x"}, "/nam"),
    ({"next_run_at": "2030-01-01T00:00:00Z"}, "/next_run_at"),
    ({"owner_id": "x"}, "/owner_id"),
    ({"version": 7}, "/version"),
    ({"trigger": CRON | {"tz": "UTC"}}, "/trigger/tz"),
    (target(uri="x"), "/target/uri"),
    ({"policy": {"max_retry": 3}}, "/policy/max_retry"),
    # triggers
    ({"trigger": None}, "/trigger"),
    ({"trigger": "0 9 * * *"}, "/trigger"),
    ({"trigger": {}}, "/trigger/kind"),
    ({"trigger": {"kind": "daily"}}, "/trigger/kind"),
    ({"trigger": {"kind": "cron"}}, "/trigger/expression"),
    (cron(5), "/trigger/expression"),
    (cron(None), "/trigger/expression"),
    (cron("* * * *"), "/trigger/expression"),
    (cron("61 * * * *"), "/trigger/expression"),
    (cron("*/0 * * * *"), "/trigger/expression"),
    (cron("1-99999999 * * * *"), "/trigger/expression"),
    (cron("0-59/1," * 2000 + " * * * *"), "/trigger/expression"),
    (cron("1," * 2000 + "1 * * * *"), "/trigger/expression"),
    (cron("* " * 5000), "/trigger/expression"),
    (cron("@reboot"), "/trigger/expression"),
    (cron("\U0001f600"), "/trigger/expression"),
    (cron("* * * * *", timezone="../../etc/passwd"), "/trigger/timezone"),
    (cron("* * * * *", timezone="/etc/passwd"), "/trigger/timezone"),
    (cron("* * * * *", timezone="posixrules"), "/trigger/timezone"),
    (cron("* * * * *", timezone="localtime"), "/trigger/timezone"),
    (cron("* * * * *", timezone="x" * 5000), "/trigger/timezone"),
    (cron("* * * * *", timezone="+07:00"), "/trigger/timezone"),
    (cron("* * * * *", timezone=None), "/trigger/timezone"),
    (cron("* * * * *", dialect="vixie"), "/trigger/dialect"),
    (every("0s"), "/trigger/every"),
    (every("-5s"), "/trigger/every"),
    (every("0.001ms"), "/trigger/every"),
    (every("10ms"), "/trigger/every"),
    (every("1000000000000s"), "/trigger/every"),
    (every(5), "/trigger/every"),
    (every("5"), "/trigger/every"),
    (every("P1M"), "/trigger/every"),
    (every("1h", anchor="9999-01-01T00:00:00Z"), "/trigger/anchor"),
    (every("1h", jitter="2h"), "/trigger/jitter"),
    (every("1h", max_runs=0), "/trigger/max_runs"),
    (every("1h", max_runs="3"), "/trigger/max_runs"),
    (
        every("1h", start_at="2031-01-01T00:00:00Z", end_at="2030-06-01T00:00:00Z"),
        "/trigger/end_at",
    ),
    (once("2020-01-01T00:00:00Z"), "/trigger"),
    (once("tomorrow"), "/trigger/at"),
    (once("2030-02-30T00:00:00Z"), "/trigger/at"),
    (once("2030-12-31T23:59:60Z"), "/trigger/at"),
    (once(1893456000), "/trigger/at"),
    # targets; more of them in test_callbacks.py
    ({"target": None}, "/target"),
    ({"target": "http://a.b"}, "/target"),
    ({"target": {"kind": "http"}}, "/target/url"),
    (target(kind="shell"), "/target/kind"),
    (target(url=5), "/target/url"),
    (target(url=""), "/target/url"),
    (target(url="ftp://a.b/"), "/target/url"),
    (target(url="http://user:pw@a.b/"), "/target/url"),
    (target(method="GE T"), "/target/method"),
    (target(method=None), "/target/method"),
    (target(headers=["x"]), "/target/headers"),
    (target(headers={"X-A": 1}), "/target/headers/X-A"),
    (target(headers={"Host": "x"}), "/target/headers/Host"),
    (target(body=5), "/target/body"),
    (target(expected_status=[99]), "/target/expected_status/0"),
    (target(expected_status=[True]), "/target/expected_status/0"),
    (target(signing_secrets=["short"]), "/target/signing_secrets"),
    (target(verify_tls="no"), "/target/verify_tls"),
    # policies
    ({"policy": None}, "/policy"),
    ({"policy": []}, "/policy"),
    ({"policy": {"misfire": "two"}}, "/policy/misfire"),
    ({"policy": {"misfire": 1}}, "/policy/misfire"),
    ({"policy": {"misfire_grace": 60}}, "/policy/misfire_grace"),
    ({"policy": {"misfire_grace": "-1s"}}, "/policy/misfire_grace"),
    ({"policy": {"catch_up_limit": 0}}, "/policy/catch_up_limit"),
    ({"policy": {"overlap": None}}, "/policy/overlap"),
    ({"policy": {"max_concurrent_runs": 0}}, "/policy/max_concurrent_runs"),
    ({"policy": {"max_concurrent_runs": -1}}, "/policy/max_concurrent_runs"),
    ({"policy": {"max_concurrent_runs": "2"}}, "/policy/max_concurrent_runs"),
    ({"policy": {"max_retries": -1}}, "/policy/max_retries"),
    ({"policy": {"max_retries": 101}}, "/policy/max_retries"),
    ({"policy": {"max_retries": True}}, "/policy/max_retries"),
    ({"policy": {"retry_backoff": "soon"}}, "/policy/retry_backoff"),
    ({"policy": {"backoff": "linear"}}, "/policy/backoff"),
    ({"policy": {"timeout": "0s"}}, "/policy/timeout"),
    ({"policy": {"timeout": "1h"}}, "/policy/timeout"),
    ({"policy": {"timeout": None}}, "/policy/timeout"),
    ({"policy": {"on_lost": "ignore"}}, "/policy/on_lost"),
]


async def send(rig: Rig, method: str, path: str, body: object) -> Any:
    """Sends ASCII JSON: the client itself rejects lone surrogates."""
    return await rig.client.request(
        method, path, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )


def case_id(case: object) -> str:
    return json.dumps(case)[:60]


def points_at(answer: Any, pointer: str) -> bool:
    return any(str(error["pointer"]).startswith(pointer) for error in answer.json()["errors"])


@each_row(("bad", "pointer"), BAD, ids=case_id)
async def test_invalid_definition_is_rejected_with_its_pointer(
    rig: Rig, bad: dict[str, Any], pointer: str
) -> None:
    before = await rig.snapshot()
    answer = await send(rig, "POST", PATH, definition(**bad))
    assert answer.status_code == 422, answer.text
    assert points_at(answer, pointer), answer.text
    assert await rig.snapshot() == before


@each_row(
    ("bad", "pointer"),
    [
        # A change may contain a partial target; an owner cannot be changed.
        *((b, p) for b, p in BAD if b != {"target": {"kind": "http"}} and "owner" not in b),
        ({"id": "other"}, "/id"),
        ({"namespace": "other"}, "/namespace"),
        ({"owner": {"id": "bob"}}, "/owner"),
        ({"fence": 1}, "/fence"),
        ({"status": "x"}, "/status"),
        ({"role": "admin"}, "/role"),
    ],
    ids=case_id,
)
async def test_invalid_change_is_rejected_with_its_pointer(
    rig_with_schedule: Rig, bad: dict[str, Any], pointer: str
) -> None:
    before = await rig_with_schedule.snapshot()
    answer = await send(rig_with_schedule, "PATCH", f"{PATH}/s", bad)
    assert answer.status_code == 422, answer.text
    assert points_at(answer, pointer), answer.text
    assert await rig_with_schedule.snapshot() == before


@pytest.mark.parametrize("body", [[], "x", 5, None, True, [definition()]], ids=case_id)
async def test_body_that_is_not_an_object_is_rejected(rig: Rig, body: object) -> None:
    answer = await rig.client.post(PATH, json=body)
    assert answer.status_code == 422
    assert await rig.snapshot() == []


@pytest.mark.parametrize("missing", ["name", "trigger", "target"])
async def test_missing_required_field_is_named(rig: Rig, missing: str) -> None:
    body = definition()
    del body[missing]
    answer = await rig.client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "missing")
    assert points_at(answer, f"/{missing}")


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        ({"prioritee": 1}, "priority"),
        ({"policy": {"max_retry": 1}}, "max_retries"),
        ({"policy": {"timeout": 5}}, "5s"),
        (cron("* * * * *", timezone="Asia/Bankok"), "Asia/Bangkok"),
        (every("5"), "5s"),
    ],
    ids=case_id,
)
async def test_hint_suggests_the_likely_intended_value(
    rig: Rig, bad: dict[str, Any], hint: str
) -> None:
    answer = await rig.client.post(PATH, json=definition(**bad))
    assert hint in answer.json()["errors"][0]["hint"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"[" * 33 + b"]" * 33, 422, "json_too_deep"),
        (b"[" * 100_000, 422, "json_too_deep"),
        (b'{"name":NaN}', 422, "bad_number"),
        (b'{"name":1e999}', 422, "bad_number"),
        (b'{"name":' + b"9" * 5000 + b"}", 422, "bad_number"),
        (b'{"name":"a","name":"b"}', 422, "duplicate_key"),
        (b'{"name":"\\u0000"}', 422, "bad_character"),
        (b"{", 400, "bad_json"),
        (b"\xff\xfe", 400, "bad_json"),
    ],
    ids=lambda case: str(case)[:30],
)
async def test_malformed_and_hostile_json_is_rejected(
    rig: Rig, content: bytes, status: int, code: str
) -> None:
    answer = await rig.client.post(
        PATH, content=content, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await rig.snapshot() == []


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 29 2 */7"])
async def test_rarely_firing_cron_expressions_are_accepted(rig: Rig, expression: str) -> None:
    assert (await rig.create(**cron(expression)))["next_run_at"] is not None


async def test_quota_and_shortest_interval_errors() -> None:
    limits = Limits(quotas=lambda owner: (Quota(limit=2),), shortest_interval_member=10 * SECOND)
    async with serving(limits=lambda: limits) as rig:
        member = await rig.key(Role.MEMBER, ALICE)
        for _ in range(2):
            made = await rig.client.post(PATH, json=definition(), headers=member)
            assert made.status_code == 201
        before = await rig.snapshot()
        answer = await rig.client.post(PATH, json=definition(), headers=member)
        assert (answer.status_code, answer.json()["code"]) == (409, "quota_exceeded")
        fast = await rig.client.post(PATH, json=definition(**every("1s")), headers=member)
        assert (fast.status_code, fast.json()["code"]) == (422, "interval_too_short")
        assert await rig.snapshot() == before
