"""Accounts, keys, owners, the internal token and quotas in the KWeaver API."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Quota, Role
from chimes.model.listing import AuditQuery
from chimes.model.target import ActionTarget
from chimes.services.schedules.rules import Limits
from chimes.web.compat.kweaver.routes import kweaver_router
from tests.builders import ALICE, BOB
from tests.web.compat.kweaver.requests import KN1, body, create, fetch, stored
from tests.web.rig import Rig, serving

INTERNAL_HEADERS = {"X-Internal-Token": "inside"}
INTERNAL_PATH = f"/in/v1{KN1}"


async def routes(rig: Rig, prefix: str, schedule_id: str, headers: Any) -> list[Any]:
    client, path = rig.client, f"{prefix}{KN1}"
    return [
        await client.get(f"{path}/{schedule_id}", headers=headers),
        await client.put(f"{path}/{schedule_id}", json={"name": "x"}, headers=headers),
        await client.put(
            f"{path}/{schedule_id}/status", json={"status": "active"}, headers=headers
        ),
        await client.delete(f"{path}/{schedule_id}", headers=headers),
    ]


def account(rig_schedule: Any) -> tuple[str, str]:
    target = rig_schedule.target
    assert isinstance(target, ActionTarget)
    return target.account_id, target.account_type


# In open mode the headers name the account.
@pytest.mark.parametrize(
    ("headers", "kept", "expected"),
    [
        ({}, ("", ""), {"id": "default", "type": "system"}),
        ({"X-Account-Id": "u1"}, ("u1", "user"), {"id": "u1", "type": "user"}),
        (
            {"X-Account-Id": " u1 ", "X-Account-Type": "app"},
            ("u1", "app"),
            {"id": "u1", "type": "app"},
        ),
        ({"X-Account-Type": "app"}, ("", ""), {"id": "default", "type": "system"}),
    ],
)
@pytest.mark.parametrize("path", [KN1, INTERNAL_PATH])
async def test_accounts_in_open_mode(
    kweaver: Rig,
    path: str,
    headers: dict[str, str],
    kept: tuple[str, str],
    expected: dict[str, str],
) -> None:
    schedule_id = await create(kweaver, path, headers=headers)
    assert account(await stored(kweaver, schedule_id)) == kept
    found = await fetch(kweaver, schedule_id)
    assert (found["creator"], found["updater"]) == (expected, expected)


# Length limits apply on every route and are reported with the header name.
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Account-Id", b"u" * 41),
        ("X-Account-Type", b"t" * 41),
        ("X-Account-Id", b"a\x07b"),
        ("X-Account-Id", "a\x85b".encode()),
        ("X-Account-Type", b"a\x7f"),
        ("X-Account-Id", b"\xe5\xbc"),
        ("X-Account-Id", b"\xff\xfe"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/in/v1"])
async def test_too_long_account_headers_are_rejected(
    kweaver: Rig, prefix: str, name: str, value: bytes
) -> None:
    schedule_id = await create(kweaver)
    before = await kweaver.snapshot()
    headers: Any = [(b"X-Account-Id", b"u1"), (b"X-Language", b"zh")]
    headers = [each for each in headers if each[0] != name.encode()] + [(name.encode(), value)]
    for answer in [
        *await routes(kweaver, prefix, schedule_id, headers),
        await kweaver.client.post(f"{prefix}{KN1}", json=body(), headers=headers),
        await kweaver.client.get(f"{prefix}{KN1}", headers=headers),
    ]:
        assert answer.status_code == 400
        error = answer.json()
        assert error["error_code"] == "BknBackend.ActionSchedule.InvalidParameter"
        assert error["description"] != "A parameter is not valid"
        assert name in error["error_details"]
    assert await kweaver.snapshot() == before


async def test_non_ascii_account_round_trips(kweaver: Rig) -> None:
    headers: Any = {"X-Account-Id": "张三".encode(), "X-Account-Type": "ผู้ใช้".encode()}
    schedule_id = await create(kweaver, headers=headers)
    assert account(await stored(kweaver, schedule_id)) == ("张三", "ผู้ใช้")
    found = await fetch(kweaver, schedule_id)
    assert found["creator"] == found["updater"] == {"id": "张三", "type": "ผู้ใช้"}


# The last writer is the updater, even if the status did not change.
@pytest.mark.parametrize("status", ["active", "inactive"])
async def test_unchanged_status_records_the_updater(kweaver: Rig, status: str) -> None:
    schedule_id = await create(kweaver, status=status)
    before = await stored(kweaver, schedule_id)
    for name in ("bob", "carol"):
        kweaver.clock.advance(1)
        answer = await kweaver.client.put(
            f"{KN1}/{schedule_id}/status", json={"status": status}, headers={"X-Account-Id": name}
        )
        assert answer.status_code == 200
    after = await stored(kweaver, schedule_id)
    found = await fetch(kweaver, schedule_id)
    assert found["updater"] == {"id": "carol", "type": "user"}
    assert (after.next_slot, after.enabled) == (before.next_slot, before.enabled)
    assert after.updated_at > before.updated_at


# With keys, the account is that of the key; headers are ignored.
async def test_accounts_with_keys(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    bob = {"X-Account-Id": "bob", "X-Account-Type": "user"}
    schedule_id = await create(with_keys, headers=alice | bob)
    schedule = await stored(with_keys, schedule_id)
    assert account(schedule) == ("alice", "user")
    assert schedule.owner == ALICE
    root = {"Authorization": "Bearer root"}
    answer = await with_keys.client.put(
        f"{KN1}/{schedule_id}", json={"name": "x"}, headers=root | bob
    )
    assert answer.status_code == 200
    found = await fetch(with_keys, schedule_id, headers=alice)
    assert found["creator"] == {"id": "alice", "type": "user"}
    assert found["updater"] == {"id": "default", "type": "system"}
    assert account(await stored(with_keys, schedule_id)) == ("alice", "user")


async def test_key_is_required(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    schedule_id = await create(with_keys, headers=alice)
    before = await with_keys.snapshot()
    for wrong in (
        {},
        {"Authorization": "Bearer wrong"},
        INTERNAL_HEADERS,
        {"X-Account-Id": "alice"},
    ):
        for answer in [
            *await routes(with_keys, "", schedule_id, wrong),
            await with_keys.client.post(KN1, json=body(), headers=wrong),
            await with_keys.client.get(KN1, headers=wrong),
        ]:
            assert answer.status_code in (401, 429)
            assert answer.json()["error_code"] in ("Public.Unauthorized", "Public.TooManyRequests")
    assert await with_keys.snapshot() == before
    for headers in (alice, {"X-API-Key": "root"}, {"Authorization": "ApiKey root"}):
        assert (await with_keys.client.get(KN1, headers=headers)).json()["total_count"] == 1


async def test_schedules_of_other_owners_are_not_found(with_keys: Rig) -> None:
    alice, bob = await with_keys.key(Role.MEMBER, ALICE), await with_keys.key(Role.MEMBER, BOB)
    theirs = await create(with_keys, headers=alice)
    own = await create(with_keys, headers=bob)
    before = await with_keys.snapshot()
    for mine, none in zip(
        await routes(with_keys, "", theirs, bob),
        await routes(with_keys, "", "nobody", bob),
        strict=True,
    ):
        assert mine.status_code == none.status_code == 404
        assert mine.text.replace(theirs, "nobody") == none.text
    answer = await with_keys.client.delete(f"{KN1}/{own},{theirs}", headers=bob)
    assert answer.status_code == 404
    entries = (await with_keys.client.get(KN1, headers=bob)).json()
    assert ([each["id"] for each in entries["entries"]], entries["total_count"]) == ([own], 1)
    assert await with_keys.snapshot() == before


async def test_permissions_by_role(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    viewer = await with_keys.key(Role.VIEWER, ALICE)
    operator = await with_keys.key(Role.OPERATOR)
    schedule_id = await create(with_keys, headers=alice)
    read, update, switch, delete = await routes(with_keys, "", schedule_id, viewer)
    assert read.status_code == 200
    assert {each.status_code for each in (update, switch, delete)} == {403}
    assert update.json()["error_code"] == "Public.Forbidden"
    read, update, switch, delete = await routes(with_keys, "", schedule_id, operator)
    assert [each.status_code for each in (read, update, switch, delete)] == [200, 403, 200, 403]
    assert (await fetch(with_keys, schedule_id, headers=alice))["status"] == "active"
    for headers in (viewer, operator):
        answer = await with_keys.client.post(KN1, json=body(), headers=headers)
        assert answer.status_code == 403
    notes = await with_keys.store.list_audit(AuditQuery(verb="refused"))
    assert {note.interface for note in notes} == {"kweaver"}


# Keys are not accepted on /in/v1.
async def test_internal_routes_need_the_internal_token(with_keys: Rig) -> None:
    alice = await with_keys.key(Role.MEMBER, ALICE)
    theirs = await create(with_keys, headers=alice, status="active")
    root = {"Authorization": "Bearer root"}
    before = await with_keys.snapshot()
    for wrong in ({}, alice, root, {"X-Internal-Token": "insid"}, {"X-Internal-Token": ""}):
        for answer in [
            *await routes(with_keys, "/in/v1", theirs, wrong),
            await with_keys.client.get(f"{INTERNAL_PATH}/due", headers=wrong),
        ]:
            assert answer.status_code in (401, 429)
    assert await with_keys.snapshot() == before
    notes = await with_keys.store.list_audit(AuditQuery(verb="auth_failed"))
    assert {note.interface for note in notes} == {"kweaver"}
    # The token sees the schedules of all owners.
    assert (await with_keys.client.get(INTERNAL_PATH, headers=INTERNAL_HEADERS)).json()[
        "total_count"
    ] == 1
    with_keys.clock.advance(300)
    (due,) = (await with_keys.client.get(f"{INTERNAL_PATH}/due", headers=INTERNAL_HEADERS)).json()[
        "entries"
    ]
    assert due["id"] == theirs
    # Schedules created for a user belong to the user, others to the system.
    bob = await with_keys.key(Role.MEMBER, BOB)
    bobs = await create(
        with_keys, INTERNAL_PATH, headers=INTERNAL_HEADERS | {"X-Account-Id": "bob"}
    )
    assert (await fetch(with_keys, bobs, headers=bob))["creator"] == {"id": "bob", "type": "user"}
    apps = await create(
        with_keys,
        INTERNAL_PATH,
        headers=INTERNAL_HEADERS | {"X-Account-Id": "a1", "X-Account-Type": "app"},
    )
    schedule = await stored(with_keys, apps)
    assert (str(schedule.owner), account(schedule)) == ("system:default", ("a1", "app"))
    assert (await with_keys.client.get(f"{KN1}/{apps}", headers=bob)).status_code == 404
    for answer in await routes(with_keys, "/in/v1", bobs, INTERNAL_HEADERS):
        assert answer.status_code in (200, 204)
    (note, *_) = await with_keys.store.list_audit(AuditQuery(object_id=bobs))
    assert (note.verb, note.actor, note.interface) == ("delete", "key:internal", "kweaver")


async def test_internal_routes_are_closed_without_a_configured_token() -> None:
    async with serving(routers=[kweaver_router], fixed_keys=["root"]) as rig:
        for headers in (
            {},
            INTERNAL_HEADERS,
            {"X-Internal-Token": ""},
            {"Authorization": "Bearer root"},
        ):
            answer = await rig.client.get(f"{INTERNAL_PATH}/due", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error_code"] == "Public.Unauthorized"


async def test_configured_internal_token_is_required_in_open_mode() -> None:
    settings = Settings(internal_token="inside")
    async with serving(routers=[kweaver_router], settings=settings) as rig:
        assert (await rig.client.get(f"{INTERNAL_PATH}/due")).status_code == 401
        assert (
            await rig.client.get(f"{INTERNAL_PATH}/due", headers=INTERNAL_HEADERS)
        ).status_code == 200
        # Other routes do not need it.
        assert (await rig.client.get(KN1)).status_code == 200


async def test_request_through_a_proxy_is_not_local(kweaver: Rig) -> None:
    for path in (KN1, INTERNAL_PATH, f"{INTERNAL_PATH}/due"):
        answer = await kweaver.client.get(path, headers={"X-Forwarded-For": "10.0.0.1"})
        assert answer.status_code == 401


async def test_wrong_internal_tokens_are_throttled(with_keys: Rig) -> None:
    codes = [
        (
            await with_keys.client.get(
                f"{INTERNAL_PATH}/due", headers={"X-Internal-Token": f"no{number}"}
            )
        ).status_code
        for number in range(12)
    ]
    assert codes == [401] * 10 + [429] * 2


async def test_quota_errors() -> None:
    limits = Limits(quotas=lambda owner: (Quota(limit=2),))
    async with serving(routers=[kweaver_router], limits=lambda: limits) as rig:
        ids = [await create(rig) for _ in range(2)]
        answer = await rig.client.post(KN1, json=body())
        assert (answer.status_code, answer.json()["error_code"]) == (409, "Public.Conflict")
        assert (await rig.client.delete(f"{KN1}/{','.join(ids)}")).status_code == 204
        await create(rig)


async def test_every_change_is_audited(kweaver: Rig) -> None:
    schedule_id = await create(kweaver)
    path = f"{KN1}/{schedule_id}"
    await kweaver.client.put(path, json={"name": "x"})
    await kweaver.client.put(f"{path}/status", json={"status": "active"})
    await kweaver.client.put(f"{path}/status", json={"status": "inactive"})
    await kweaver.client.delete(path)
    notes = await kweaver.store.list_audit(AuditQuery(object_id=schedule_id))
    verbs = [note.verb for note in notes][::-1]
    assert verbs == ["create", "update", "resume", "pause", "delete"]
    assert {note.interface for note in notes} == {"kweaver"}
