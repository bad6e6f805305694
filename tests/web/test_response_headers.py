"""Headers of every response, and the request log."""

from __future__ import annotations

import asyncio
import logging
from email.utils import parsedate_to_datetime

import pytest
from fastapi import APIRouter

from chimes.model.access import Role
from chimes.web import middleware as envelope
from tests.web.rig import Rig, definition, serving

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def failing_router() -> APIRouter:
    router = APIRouter()

    @router.get("/boom")
    async def boom() -> None:
        raise RuntimeError("SELECT * FROM /var/lib/secret")

    @router.get("/hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    return router


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/boom"])
async def test_every_response_has_a_date(path: str) -> None:
    """Chimes sets the date: uvicorn's needs a timer that wakes the process every second."""
    async with serving(compat=[failing_router()]) as rig:
        answer = await rig.client.get(path)
        now = rig.clock.now()
    (date,) = answer.headers.get_list("date")
    assert parsedate_to_datetime(date) == now.replace(microsecond=0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/docs"),
        ("GET", "/docs/style.css"),
        ("GET", "/openapi.json"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/schedules"),
        ("POST", "/api/v1/schedules"),
        ("GET", "/api/v1/schedules/nope"),
        ("PUT", "/api/v1/schedules"),
        ("OPTIONS", "/api/v1/schedules"),
        ("HEAD", "/api/v1/schedules"),
        ("GET", "/nowhere"),
        ("GET", "/boom"),
    ],
)
async def test_every_response_has_security_headers(method: str, path: str) -> None:
    async with serving(compat=[failing_router()]) as rig:
        answer = await rig.client.request(method, path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers
    if path.startswith("/api"):
        assert answer.headers["cache-control"] == "no-store"
        assert "html" not in answer.headers.get("content-type", "")


async def test_request_id_is_accepted_or_generated(rig: Rig) -> None:
    given = await rig.client.get("/health", headers={"X-Request-Id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 129, "<script>", ""):
        made = await rig.client.get("/nowhere", headers={"X-Request-Id": odd})
        assert made.headers["x-request-id"] != odd
        assert made.json()["request_id"] == made.headers["x-request-id"]


async def test_head_is_get_without_a_body(rig: Rig) -> None:
    made = await rig.create()
    path = f"/api/v1/schedules/{made['id']}"
    full = await rig.client.get(path)
    head = await rig.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "content-type"):
        assert head.headers[name] == full.headers[name]


async def test_405_and_options_list_the_allowed_methods(rig: Rig) -> None:
    answer = await rig.client.put("/api/v1/schedules/x", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, PATCH, DELETE, HEAD, OPTIONS"
    options = await rig.client.options("/api/v1/schedules")
    assert (options.status_code, options.content) == (204, b"")
    assert options.headers["allow"] == "GET, POST, HEAD, OPTIONS"


async def test_internal_error_reveals_only_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(compat=[failing_router()]) as rig:
        answer = await rig.client.get("/boom")
    assert answer.status_code == 500
    assert "SELECT" not in answer.text
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    [failure] = [r for r in caplog.records if r.name == "chimes.http" and r.levelname == "ERROR"]
    assert failure.exc_info is not None
    assert vars(failure)["request_id"] == answer.headers["x-request-id"]


async def test_hanging_handler_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "REQUEST_SECONDS", 0.05)
    async with serving(compat=[failing_router()]) as rig:
        answer = await rig.client.get("/hang")
    assert (answer.status_code, answer.json()["code"]) == (503, "answer_timeout")


async def test_access_log_contains_no_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(documented=False) as rig:
        headers = await rig.key(Role.ADMIN)
        secret = headers["Authorization"].split("_", 2)[2]
        query = {"api_key": headers["Authorization"].split()[1], "token": secret}
        await rig.client.get("/api/v1/schedules", params=query)
        await rig.client.get("/api/v1/schedules", headers=headers | {"traceparent": TRACE})
        await rig.client.post("/api/v1/schedules", json=definition(), headers={"X-API-Key": secret})
    lines = [r for r in caplog.records if r.name == "chimes.http"]
    assert [(vars(r)["method"], vars(r)["status"]) for r in lines] == [
        ("GET", 401),
        ("GET", 200),
        ("POST", 401),
    ]
    assert vars(lines[1])["path"] == "/api/v1/schedules"
    assert vars(lines[1])["actor"].startswith("key:")
    assert vars(lines[1])["traceparent"] == TRACE
    assert "duration_ms" in vars(lines[1])
    ours = [vars(record) for record in caplog.records if record.name.startswith("chimes")]
    assert secret not in repr(ours)
