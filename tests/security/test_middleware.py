"""Checks before routing: Host, Origin, size and duration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Role
from chimes.web import middleware as limits
from tests.web.rig import Rig, definition, serving

PATH = "/api/v1/schedules"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as rig:
        yield rig


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7100",
        "localhost:7101",
        "localhost",
        "127.0.0.1",
        "127.0.0.2:7100",
        "localhost.evil.example:7100",
        "localhost:7100@evil.example",
        "[::2]:7100",
        "::1:7100",
        "localhost:port",
    ],
)
async def test_unknown_host_is_misdirected(rig: Rig, host: str) -> None:
    for path in ("/health", PATH, "/x/../api/v1/schedules", "/docs"):
        answer = await rig.client.get(path, headers={"Host": host, "Origin": f"http://{host}"})
        assert (answer.status_code, answer.json()["code"]) == (421, "host_not_allowed")
    posted = await rig.client.post(PATH, json=definition(), headers={"Host": host})
    assert posted.status_code == 421
    assert await rig.snapshot() == []


@pytest.mark.parametrize(
    "host", ["localhost:7100", "127.0.0.1:7100", "[::1]:7100", "LOCALHOST:7100"]
)
async def test_own_host_names_are_accepted(rig: Rig, host: str) -> None:
    assert (await rig.client.get(PATH, headers={"Host": host})).status_code == 200


async def test_missing_or_repeated_host_is_a_bad_request(rig: Rig) -> None:
    assert (await rig.client.get(PATH, headers={"Host": ""})).status_code == 400
    two = [("Host", "localhost:7100"), ("Host", "evil.example")]
    assert (await rig.client.get(PATH, headers=two)).status_code == 400


async def test_only_configured_hosts_are_accepted() -> None:
    settings = Settings(allowed_hosts=("chimes.corp", "other.corp:8443"))
    async with serving(settings=settings) as rig:
        for host, code in (
            ("chimes.corp", 200),
            ("Chimes.corp:8080", 200),
            ("other.corp:8443", 200),
            ("other.corp", 421),
            ("localhost:7100", 200),
        ):
            assert (await rig.client.get(PATH, headers={"Host": host})).status_code == code
        headers = await rig.key(Role.ADMIN)
        answer = await rig.client.get(PATH, headers=headers | {"Host": "evil.example"})
        assert answer.status_code == 421


async def test_any_host_is_accepted_once_there_are_keys() -> None:
    async with serving() as rig:
        headers = await rig.key(Role.ADMIN)
        answer = await rig.client.get(PATH, headers=headers | {"Host": "box.lan:7100"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "http://localhost:7101",
        "http://localhost",
        "",
        "file://",
        "http://[",
    ],
)
async def test_write_from_another_origin_is_rejected(rig: Rig, origin: str) -> None:
    made = await rig.create()
    before = await rig.snapshot()
    path = f"{PATH}/{made['id']}"
    for method, where in (
        ("POST", PATH),
        ("POST", f"{path}/run"),
        ("PATCH", path),
        ("DELETE", path),
    ):
        answer = await rig.client.request(
            method, where, json=definition(), headers={"Origin": origin}
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
    assert await rig.snapshot() == before


async def test_write_from_own_origin_is_accepted(rig: Rig) -> None:
    headers = {"Origin": "http://localhost:7100"}
    assert (await rig.client.post(PATH, json=definition(), headers=headers)).status_code == 201


async def test_cors_allows_configured_origins_only() -> None:
    ask = {"Origin": "https://app.corp", "Access-Control-Request-Method": "POST"}
    async with serving(settings=Settings(cors_origins=("https://app.corp",))) as rig:
        preflight = await rig.client.options(PATH, headers=ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://app.corp"
        made = await rig.client.post(PATH, json=definition(), headers={"Origin": ask["Origin"]})
        assert made.status_code == 201
        assert made.headers["access-control-allow-origin"] == "https://app.corp"
        other = await rig.client.options(PATH, headers=ask | {"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        assert "access-control-allow-credentials" not in made.headers
    async with serving() as rig:
        answer = await rig.client.options(PATH, headers=ask)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "header",
    [
        {"X-HTTP-Method-Override": "DELETE"},
        {"X-HTTP-Method": "DELETE"},
        {"X-Original-URL": "/api/v1/keys"},
        {"X-Rewrite-URL": "/api/v1/keys"},
    ],
)
async def test_override_headers_are_ignored(rig: Rig, header: dict[str, str]) -> None:
    made = await rig.create()
    answer = await rig.client.get(f"{PATH}/{made['id']}", headers=header)
    assert answer.json() == made


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/schedules",
        "/api/..;/api/v1/schedules",
        "/x/%2e%2e/api/v1/schedules",
        "/api/v1/schedules/%2e%2e",
        "/api/v1/schedules/%00",
        "/api/v1/schedules/a%2Fruns",
        "/API/V1/schedules",
        "/api/v1/runs/%ff",
    ],
)
async def test_path_tricks_are_not_found(rig: Rig, path: str) -> None:
    assert (await rig.client.get(path)).status_code == 404


async def test_body_above_the_limit_is_rejected(rig: Rig) -> None:
    for size, code in ((limits.BODY_LIMIT, 422), (limits.BODY_LIMIT + 1, 413)):
        content = b'{"name":"' + b"x" * (size - 11) + b'"}'
        assert len(content) == size
        answer = await rig.client.post(PATH, content=content, headers=JSON)
        assert answer.status_code == code


async def test_large_chunked_body_is_cut_off_at_the_limit(rig: Rig) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100 * limits.BODY_LIMIT:
            sent += 65536
            yield b" " * 65536

    answer = await rig.client.post(PATH, content=endless(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert sent <= limits.BODY_LIMIT + 2 * 65536


async def test_chunked_body_is_rejected(rig: Rig) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"expression":'
        yield b'"* * * * *"}'

    answer = await rig.client.post("/api/v1/explain", content=parts(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "no_length")


@pytest.mark.parametrize("length", ["3", "100", "-1", "abc", "1e3", "9" * 30, "٣"])
async def test_wrong_content_length_is_rejected(rig: Rig, length: str) -> None:
    answer = await rig.client.post(
        PATH, content=b"{}    ", headers=JSON | {"Content-Length": length.encode()}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "wrong_length")


async def test_headers_above_the_limit_are_rejected(rig: Rig) -> None:
    fine = await rig.client.get(PATH, headers={"X-Padding": "x" * 7000})
    assert fine.status_code == 200
    answer = await rig.client.get(PATH, headers={"X-Padding": "x" * 8192})
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity"])
async def test_compressed_body_is_rejected(rig: Rig, encoding: str) -> None:
    answer = await rig.client.post(
        PATH, content=b"{}", headers=JSON | {"Content-Encoding": encoding}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "encoded_body")


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "application/json; charset=utf-16",
        "application/jsonx",
    ],
)
async def test_other_content_types_are_rejected(rig: Rig, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    for method, path in (("POST", PATH), ("PATCH", f"{PATH}/x"), ("POST", f"{PATH}/x/pause")):
        answer = await rig.client.request(method, path, content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "not_json")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json; charset=UTF-8",
     'application/json;charset="utf-8"'],
)  # fmt: skip
async def test_json_content_types_are_accepted(rig: Rig, content_type: str) -> None:
    answer = await rig.client.post(
        "/api/v1/explain",
        content=b'{"expression":"* * * * *"}',
        headers={"Content-Type": content_type},
    )
    assert answer.status_code == 200


async def test_request_without_a_body_needs_no_content_type(rig: Rig) -> None:
    made = await rig.create()
    for action in ("run", "pause", "resume", "skip"):
        answer = await rig.client.post(f"{PATH}/{made['id']}/{action}")
        assert answer.status_code < 300


async def test_body_that_does_not_arrive_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    async with serving() as rig:
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "query_string": b"",
            "headers": [(b"host", b"localhost:7100"), (b"content-length", b"10")],
        }
        await rig.app(scope, receive, send)
    assert sent[0]["status"] == 408
