"""Chimes inside a FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI

from chimes import Chimes
from chimes.integrations.fastapi import chimes_lifespan, mount_chimes
from tests.integrations.conftest import Project, free_port


def test_the_example_project(project: Callable[[str], Project]) -> None:
    shop, port = project("fastapi_shop"), free_port()
    process = shop.start("-m", "uvicorn", "main:api", "--port", str(port))
    base = f"http://127.0.0.1:{port}"
    assert shop.wait_for(f"{base}/openapi.json").json()["info"]["title"] == "Shop"
    made = httpx2.post(f"{base}/orders/7", timeout=60).json()
    again = httpx2.post(f"{base}/orders/7", timeout=60).json()
    assert made == again
    found = httpx2.get(f"{base}/runs/{made['run']}", timeout=60)
    assert found.json() == {"result": "order 7 is confirmed"}
    listed = httpx2.get(f"{base}/api/v1/schedules", timeout=60).json()
    assert [each["name"] for each in listed["items"]] == ["daily check"]
    page = httpx2.get(f"{base}/ui/schedules", follow_redirects=True, timeout=60)
    assert page.status_code == 200, page.text + shop.output
    assert "daily check" in page.text
    assert httpx2.get(f"{base}/uix", timeout=60).status_code == 404
    process.terminate()
    process.wait(60)
    assert "Application shutdown complete" in shop.output


async def test_lifespan_and_open_mode() -> None:
    app = Chimes("memory://")
    states: list[bool] = []

    @asynccontextmanager
    async def inner(application: FastAPI) -> AsyncIterator[None]:
        states.append(app.is_open and app.node is None)
        yield
        states.append(app.is_open)

    application = FastAPI(lifespan=chimes_lifespan(app, node=False, inner=inner))
    mount_chimes(application, app, ui=False)
    async with application.router.lifespan_context(application):
        for address, expected in (("203.0.113.5", 403), ("127.0.0.1", 200)):
            transport = httpx2.ASGITransport(application, client=(address, 4711))
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://localhost:7100"
            ) as client:
                answer = await client.get("/api/v1/schedules")
                assert answer.status_code == expected, answer.text
                assert (await client.get("/ui/")).status_code == 404
    assert states == [True, True]
    assert not app.is_open
