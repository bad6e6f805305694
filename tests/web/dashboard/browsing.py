"""A browser without scripts over ASGI: follows links and submits forms with their fields."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import httpx2

from chimes.web.server import dashboard_router
from tests.web.rig import HOST, Rig, serving

HTML = {"Accept": "text/html,application/xhtml+xml", "Accept-Language": "en"}


class FormOnPage:
    def __init__(self, action: str, method: str) -> None:
        self.action = action
        self.method = method
        self.fields: list[tuple[str, str]] = []


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[FormOnPage] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(FormOnPage(found.get("action", ""), found.get("method", "get")))
        elif tag == "input" and self.forms and found.get("type") == "hidden":
            self.forms[-1].fields.append((found["name"], found.get("value", "")))


class Browser:
    """Keeps cookies, sends `Origin` with forms, and does not follow redirects by itself."""

    def __init__(self, rig: Rig, **headers: str) -> None:
        self.rig = rig
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=rig.app), base_url=HOST, headers=HTML | headers
        )
        self.page = ""

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        answer = await self.client.get(path, headers=headers)
        self.page = answer.text
        return answer

    async def send(self, action: str, *, on: str = "", **fields: str) -> httpx2.Response:
        """Submits the form with this action of the page at `on`, or of the last page."""
        if on:
            await self.get(on)
        forms = _Forms()
        forms.feed(self.page)
        form = next((each for each in forms.forms if each.action == action), None)
        assert form is not None, f"no form for {action} in {[f.action for f in forms.forms]}"
        return await self.post(action, dict(form.fields) | fields)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        answer = await self.client.post(
            path, data=fields, headers={"Origin": HOST, "Sec-Fetch-Site": "same-origin"} | headers
        )
        self.page = answer.text
        return answer

    async def follow(self, answer: httpx2.Response) -> httpx2.Response:
        assert answer.status_code == 303, answer.text
        return await self.get(answer.headers["location"])


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[Browser]:
    async with serving(routers=[dashboard_router], documented=False, **options) as rig:
        browser = Browser(rig)
        try:
            yield browser
        finally:
            await browser.client.aclose()
