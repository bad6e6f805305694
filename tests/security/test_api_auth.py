"""Authentication and rate limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Actor, Role
from chimes.model.ids import KeyId
from chimes.model.listing import AuditQuery
from tests.builders import ALICE, BOB
from tests.web.rig import HTTP, Rig, definition, serving

PATH = "/api/v1/schedules"
MOMENT = "2030-01-16T00:00:00Z"


@pytest.fixture
async def keyed_rig() -> AsyncIterator[Rig]:
    """A server that requires keys."""
    async with serving(fixed_keys=["admin-token"]) as rig:
        yield rig


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def audited_count(rig: Rig, verb: str) -> int:
    return len(await rig.store.list_audit(AuditQuery(verb=verb, limit=1000)))


async def test_every_invalid_key_gets_the_same_response(keyed_rig: Rig) -> None:
    access = keyed_rig.context.access
    good = await access.create(Actor(), name="good", role=Role.ADMIN)
    revoked = await access.create(Actor(), name="revoked", role=Role.ADMIN)
    await access.revoke(Actor(), revoked.key.id)
    in_a_minute = keyed_rig.clock.now() + timedelta(minutes=1)
    expired = await access.create(Actor(), name="x", role=Role.ADMIN, expires_at=in_a_minute)
    keyed_rig.clock.advance(timedelta(minutes=2))
    tries: list[dict[str, str]] = [
        {},
        bearer("nonsense"),
        bearer(""),
        bearer("chm_000000000000_" + "x" * 43),
        bearer(good.text[:-1] + ("A" if good.text[-1] != "A" else "B")),
        bearer(expired.text),
        bearer(revoked.text),
        {"Authorization": good.text},
        {"Authorization": f"Basic {good.text}"},
        {"X-Admin-Token": good.text},
    ]
    answers = [await keyed_rig.client.get(PATH, headers=headers) for headers in tries]
    assert {answer.status_code for answer in answers} == {401}
    bodies = [answer.json() | {"request_id": ""} for answer in answers]
    assert all(body == bodies[0] for body in bodies)
    assert len({answer.headers["www-authenticate"] for answer in answers}) == 1
    assert await audited_count(keyed_rig, "auth_failed") == len(tries)
    assert good.text not in repr(await keyed_rig.store.list_audit(AuditQuery()))


@pytest.mark.parametrize(
    "header",
    [
        {"Authorization": "Bearer {}"},
        {"Authorization": "bearer {}"},
        {"Authorization": "ApiKey {}"},
        {"X-API-Key": "{}"},
    ],
)
async def test_valid_key_is_accepted_in_every_header(
    keyed_rig: Rig, header: dict[str, str]
) -> None:
    made = await keyed_rig.context.access.create(Actor(), name="x", role=Role.VIEWER)
    for key in (made.text, "admin-token"):
        headers = {name: value.format(key) for name, value in header.items()}
        assert (await keyed_rig.client.get(PATH, headers=headers)).status_code == 200


@pytest.mark.parametrize("name", ["api_key", "token", "key", "access_token"])
async def test_key_in_the_query_string_is_ignored(keyed_rig: Rig, name: str) -> None:
    answer = await keyed_rig.client.get(PATH, params={name: "admin-token"})
    assert answer.status_code == 401


async def test_repeated_invalid_keys_are_throttled(keyed_rig: Rig) -> None:
    codes = []
    for number in range(30):
        keyed_rig.clock.advance(0.3)
        codes.append(await keyed_rig.client.get(PATH, headers=bearer(f"bad-{number}")))
    assert [answer.status_code for answer in codes] == [401] * 10 + [429] * 20
    assert int(codes[10].headers["retry-after"]) >= 1
    assert (await keyed_rig.client.get(PATH, headers=bearer("admin-token"))).status_code == 200
    assert await audited_count(keyed_rig, "auth_failed") <= 15
    keyed_rig.clock.advance(11)
    assert (await keyed_rig.client.get(PATH, headers=bearer("bad"))).status_code == 401


# 20 requests a second, burst of 40
async def test_rate_limit_per_key_and_its_headers(keyed_rig: Rig) -> None:
    answers = [await keyed_rig.client.get(PATH, headers=bearer("admin-token")) for _ in range(41)]
    assert [answer.status_code for answer in answers] == [200] * 40 + [429]
    assert answers[0].headers["ratelimit-limit"] == "40"
    assert answers[0].headers["ratelimit-remaining"] == "39"
    assert answers[40].headers["retry-after"] == "1"
    other = await keyed_rig.key(Role.VIEWER)
    assert (await keyed_rig.client.get(PATH, headers=other)).status_code == 200
    keyed_rig.clock.advance(0.05)
    assert (await keyed_rig.client.get(PATH, headers=bearer("admin-token"))).status_code == 200


async def test_open_mode_has_no_rate_limit() -> None:
    async with serving(settings=Settings(requests_per_second=1)) as rig:
        for _ in range(10):
            answer = await rig.client.get(PATH)
            assert answer.status_code == 200
            assert "ratelimit-limit" not in answer.headers


@pytest.mark.parametrize(
    "name", ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP"]
)
async def test_request_through_a_proxy_needs_a_key(name: str) -> None:
    async with serving() as rig:
        assert (await rig.client.get(PATH, headers={name: "1.2.3.4"})).status_code == 401
        answer = await rig.client.post(PATH, json=definition(), headers={name: "1.2.3.4"})
        assert answer.status_code == 401
        assert await rig.snapshot() == []
        assert (await rig.client.get("/health", headers={name: "x"})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PATH, definition()),
        ("PATCH", f"{PATH}/s", {"priority": 1}),
        ("DELETE", f"{PATH}/s", None),
        ("POST", f"{PATH}/s/run", None),
        ("POST", f"{PATH}/s/pause", None),
        ("POST", f"{PATH}/s/resume", None),
        ("POST", f"{PATH}/s/skip", None),
        ("POST", f"{PATH}/s/move", {"to": MOMENT}),
        ("POST", f"{PATH}/s/reschedule", {"to": MOMENT}),
        ("POST", f"{PATH}/s/backfill", {"from": MOMENT, "to": MOMENT}),
        ("GET", "/api/v1/keys", None),
        ("POST", "/api/v1/keys", {"name": "x", "role": "viewer"}),
        ("DELETE", "/api/v1/keys/x", None),
        ("GET", "/api/v1/audit", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/api/v1/system", None),
    ],
)  # fmt: skip
async def test_viewer_is_forbidden_to_change_anything_and_is_audited(
    keyed_rig: Rig, method: str, path: str, body: dict[str, Any] | None
) -> None:
    member = await keyed_rig.key(Role.MEMBER, ALICE)
    viewer = await keyed_rig.key(Role.VIEWER, ALICE)
    made = await keyed_rig.client.post(PATH, json=definition(id="s"), headers=member)
    assert made.status_code == 201
    before = await keyed_rig.snapshot()
    answer = await keyed_rig.client.request(method, path, json=body, headers=viewer)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert await keyed_rig.snapshot() == before
    [note] = await keyed_rig.store.list_audit(AuditQuery(verb="refused"))
    assert (note.allowed, note.object_id) == (False, f"{method} {path}")


@pytest.mark.parametrize("path", ["/api/v1/keys", "/api/v1/audit", "/api/v1/nodes"])
async def test_member_may_not_read_keys_audit_and_nodes(keyed_rig: Rig, path: str) -> None:
    member = await keyed_rig.key(Role.MEMBER, ALICE)
    assert (await keyed_rig.client.get(path, headers=member)).status_code == 403


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER, Role.OPERATOR])
async def test_only_an_admin_creates_keys(keyed_rig: Rig, role: Role) -> None:
    headers = await keyed_rig.key(role, ALICE)
    for body in (
        {"name": "x", "role": "admin"},
        {"name": "x", "role": "viewer"},
        {"name": "x", "role": "viewer", "owner": {"id": "bob"}},
    ):
        answer = await keyed_rig.client.post("/api/v1/keys", json=body, headers=headers)
        assert answer.status_code == 403


async def test_owner_of_a_schedule_is_that_of_the_key(keyed_rig: Rig) -> None:
    member = await keyed_rig.key(Role.MEMBER, ALICE)
    own = await keyed_rig.client.post(PATH, json=definition(), headers=member)
    assert own.json()["owner"] == {"type": "user", "id": "alice"}
    answer = await keyed_rig.client.post(
        PATH, json=definition(owner={"type": "user", "id": "bob"}), headers=member
    )
    assert answer.status_code == 403


async def test_only_an_admin_disables_certificate_checks(keyed_rig: Rig) -> None:
    member = await keyed_rig.key(Role.MEMBER, ALICE)
    careless = HTTP | {"verify_tls": False}
    answer = await keyed_rig.client.post(PATH, json=definition(target=careless), headers=member)
    assert answer.status_code == 403
    made = await keyed_rig.client.post(PATH, json=definition(), headers=member)
    path = made.headers["location"]
    patch = {"target": {"verify_tls": False}}
    assert (await keyed_rig.client.patch(path, json=patch, headers=member)).status_code == 403
    admin = bearer("admin-token")
    assert (await keyed_rig.client.patch(path, json=patch, headers=admin)).status_code == 200


async def test_revoked_key_is_rejected_and_its_schedules_keep_running(keyed_rig: Rig) -> None:
    admin = bearer("admin-token")
    made = (
        await keyed_rig.client.post(
            "/api/v1/keys",
            json={"name": "x", "role": "member", "owner": {"id": "alice"}, "expires_in": "1h"},
            headers=admin,
        )
    ).json()
    assert made["expires_at"] == "2030-01-15T10:00:00Z"
    member = bearer(made["key"])
    schedule = await keyed_rig.client.post(PATH, json=definition(), headers=member)
    run = await keyed_rig.client.post(f"{schedule.headers['location']}/run", headers=member)
    gone = await keyed_rig.client.delete(f"/api/v1/keys/{made['id']}", headers=admin)
    assert gone.status_code == 204
    assert (await keyed_rig.client.get(PATH, headers=member)).status_code == 401
    kept = await keyed_rig.client.get(run.headers["location"], headers=admin)
    assert kept.json()["status"] == "queued"
    listed = (await keyed_rig.client.get("/api/v1/keys", headers=admin)).json()["items"]
    assert [(key["id"], bool(key["revoked_at"])) for key in listed] == [(made["id"], True)]
    assert "secret" not in str(listed)
    unknown = await keyed_rig.client.delete("/api/v1/keys/nope", headers=admin)
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"role": "admin"},
        {"name": "x", "role": "root"},
        {"name": "x", "role": "admin", "expires_at": "2020-01-01T00:00:00Z"},
        {"name": "x", "role": "admin", "expires_in": 5},
        {"name": "x", "role": "admin", "expires_in": "1h", "expires_at": "2031-01-01T00:00:00Z"},
        {"name": "x", "role": "admin", "scopes": ["*"]},
        {"name": "x", "role": "admin", "owner": "alice"},
    ],
)
async def test_invalid_key_definitions_are_rejected(keyed_rig: Rig, body: dict[str, Any]) -> None:
    answer = await keyed_rig.client.post("/api/v1/keys", json=body, headers=bearer("admin-token"))
    assert answer.status_code == 422
    assert await keyed_rig.store.list_keys() == ()


async def test_first_key_ends_open_mode() -> None:
    async with serving() as rig:
        made = (await rig.client.post("/api/v1/keys", json={"name": "a", "role": "admin"})).json()
        assert (await rig.client.get(PATH)).status_code == 401
        assert (await rig.client.get(PATH, headers=bearer(made["key"]))).status_code == 200
        assert KeyId(made["id"]) in made["key"]


async def test_operator_reads_and_operates_everything_but_does_not_edit(keyed_rig: Rig) -> None:
    member = await keyed_rig.key(Role.MEMBER, ALICE)
    operator = await keyed_rig.key(Role.OPERATOR, BOB)
    path = (await keyed_rig.client.post(PATH, json=definition(), headers=member)).headers[
        "location"
    ]
    assert (await keyed_rig.client.get(path, headers=operator)).status_code == 200
    for action in ("pause", "resume", "run"):
        answer = await keyed_rig.client.post(f"{path}/{action}", headers=operator)
        assert answer.status_code in (200, 202)
    assert (
        await keyed_rig.client.patch(path, json={"name": "x"}, headers=operator)
    ).status_code == 403
    assert (await keyed_rig.client.delete(path, headers=operator)).status_code == 403
    assert (await keyed_rig.client.get("/api/v1/audit", headers=operator)).status_code == 200
