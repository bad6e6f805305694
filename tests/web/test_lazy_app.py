"""Monitoring of a node does not load its APIs; the first other request does."""

from __future__ import annotations

import asyncio
import threading

import httpx2
from fastapi import FastAPI
from starlette.types import ASGIApp

from chimes.model.access import Role
from chimes.web.frame import MonitoredApp
from tests.web.rig import HOST, Rig, serving

#: Method, path and headers.
MONITORING: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("GET", "/health", {}),
    ("HEAD", "/health", {}),
    ("GET", "/health", {"Host": "elsewhere.example.org"}),
    ("POST", "/health", {}),
    ("OPTIONS", "/ready", {}),
    ("GET", "/ready", {"Accept-Language": "th"}),
    ("GET", "/metrics", {}),
    ("GET", "/metrics", {"Authorization": "Bearer wrong"}),
)


def _client(app: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HOST)


def _not_loadable() -> FastAPI:
    raise AssertionError("monitoring loaded the APIs")


async def test_monitoring_is_answered_without_the_apis_as_with_them() -> None:
    async with serving(not_ready=lambda: "draining") as rig:
        await _compare(rig)
        await rig.key(Role.ADMIN)
        await _compare(rig)


async def _compare(rig: Rig) -> None:
    async with _client(MonitoredApp(rig.context, _not_loadable)) as client:
        for method, path, headers in MONITORING:
            headers = {**headers, "X-Request-Id": "1"}
            found = await client.request(method, path, headers=headers)
            wanted = await rig.client.request(method, path, headers=headers)
            assert found.status_code == wanted.status_code, (method, path)
            assert found.headers == wanted.headers, (method, path)
            assert found.text == wanted.text, (method, path)


async def test_concurrent_first_requests_load_once_in_a_thread() -> None:
    threads: list[threading.Thread] = []
    async with serving() as rig:

        def load() -> FastAPI:
            threads.append(threading.current_thread())
            return rig.app

        async with _client(MonitoredApp(rig.context, load)) as client:
            answers = await asyncio.gather(*(client.get("/api/v1/schedules") for _ in range(3)))
            assert [each.status_code for each in answers] == [200] * 3
            assert (await client.get("/health")).json() == {"status": "ok"}
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_failed_load_is_repeated_with_the_next_request() -> None:
    loads = 0
    async with serving() as rig:

        def load() -> FastAPI:
            nonlocal loads
            loads += 1
            if loads == 1:
                raise OSError("too many open files")
            return rig.app

        app = MonitoredApp(rig.context, load)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False), base_url=HOST
        ) as client:
            assert (await client.get("/api/v1/schedules")).status_code == 500
            assert (await client.get("/api/v1/schedules")).status_code == 200
