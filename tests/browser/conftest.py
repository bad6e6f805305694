"""Fixtures: a real browser and real nodes. One browser per test worker, one context per test.

Playwright's event loop stays "running" between calls, so it is detached after each test:
otherwise later tests of the same worker could not run a loop of their own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.page_checks import Watch
from tests.system.node import Node

#: The headless shell needs a sixth of the CPU time of the full browser.
CHROMIUM = (
    os.environ.get("CHIMES_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or "/usr/bin/chromium"
)
PHONE, DESK = 375, 1280
LANGUAGES = ("en", "th", "zh")
THEMES = ("light", "dark")
#: A look is language, theme and width. `make test` opens each page in this one; the other browser
#: tests use English, the light theme and a desktop width.
SHORT_LOOK = ("th", "dark", PHONE)
ALL_LOOKS = tuple(product(LANGUAGES, THEMES, (DESK, PHONE)))
#: `make test-all` opens each page in every look.
EACH_LOOK = pytest.mark.parametrize(
    ("language", "theme", "width"),
    [
        pytest.param(*look, marks=() if look == SHORT_LOOK else pytest.mark.long)
        for look in ALL_LOOKS
    ],
)
#: `make test` opens few pages without scripts in a browser, because `tests/web/dashboard` submits
#: their forms without scripts over ASGI.
WITH_AND_WITHOUT_SCRIPTS = pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(True, id="scripts"),
        pytest.param(False, id="no scripts", marks=pytest.mark.long),
    ],
)
ZONE = "Asia/Bangkok"
#: Four browsers may share two cores.
_ACTION_TIMEOUT_MS = 30_000
expect.set_options(timeout=_ACTION_TIMEOUT_MS)

_HERE = Path(__file__).parent
_TEST_TIMEOUT_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longer timeout: the first test of a worker also starts a browser and the fork server."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT_SECONDS))


class _Running:
    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self.browser: Browser = self._playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        self._loop = asyncio._get_running_loop()
        self.rest()

    def wake(self) -> None:
        asyncio._set_running_loop(self._loop)

    def rest(self) -> None:
        asyncio._set_running_loop(None)

    def close(self) -> None:
        self.wake()
        self.browser.close()
        self._playwright.stop()
        self.rest()


@pytest.fixture(scope="session")
def running_browser() -> Iterator[_Running]:
    running = _Running()
    yield running
    running.close()


@pytest.fixture
def browser(running_browser: _Running) -> Iterator[Browser]:
    running_browser.wake()
    yield running_browser.browser
    running_browser.rest()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running node and its API, which tests use to create data."""

    node: Node

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.node.port}"

    def post(self, path: str, body: object = None, **headers: str) -> Any:
        answer = self.node.call("POST", f"/api/v1{path}", body, headers or None)
        assert answer.status < 300, answer.text
        return answer.json

    def get(self, path: str, **headers: str) -> Any:
        answer = self.node.call("GET", f"/api/v1{path}", headers=headers or None)
        assert answer.status < 300, answer.text
        return answer.json


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Starts nodes with their own settings: `serve(CHIMES_ADMIN_TOKEN="…")`."""
    nodes: list[Node] = []

    def start(store: str = "sqlite:///chimes.db", **environment: str) -> Site:
        node = Node(store, tmp_path / f"node{len(nodes)}", **environment)
        nodes.append(node)
        node.start()
        return Site(node=node)

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def looks(pytestconfig: pytest.Config) -> tuple[tuple[str, str, int], ...]:
    """Looks for tests that loop over them."""
    return ALL_LOOKS if pytestconfig.getoption("--long") else (SHORT_LOOK,)


@pytest.fixture
def site(serve: Callable[..., Site]) -> Site:
    """An empty node in open mode on SQLite."""
    return serve()


@pytest.fixture(scope="session")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One node per worker, for tests that do not change its data."""
    node = Node("sqlite:///chimes.db", tmp_path_factory.mktemp("shared"))
    node.start()
    yield Site(node=node)
    node.close()


class Visitor:
    """A browser context and page of one user."""

    def __init__(self, browser: Browser, site: Site, **options: Any) -> None:
        look = {
            "language": options.pop("language", "en"),
            "theme": options.pop("theme", "light"),
            "seen_zone": options.get("timezone_id", ZONE),
        } | options.pop("look", {})
        width = options.pop("width", DESK)
        self.site = site
        self.context: BrowserContext = browser.new_context(
            base_url=site.url,
            viewport={"width": width, "height": 800},
            has_touch=width == PHONE,
            timezone_id=options.pop("timezone_id", ZONE),
            java_script_enabled=options.pop("scripts", True),
            **options,
        )
        self.context.set_default_timeout(_ACTION_TIMEOUT_MS)
        self.context.add_cookies(
            [{"name": "chimes_look", "value": urlencode(look), "url": site.url}]
        )
        self.watch = Watch(self.context, site.url)
        self.page: Page = self.context.new_page()

    def open(self, path: str) -> Page:
        answer = self.page.goto(path, wait_until="domcontentloaded")
        assert answer is not None
        return self.page


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Opens contexts: `visitor(site, language="th", theme="dark", width=PHONE, scripts=False)`.

    Complaints of their `Watch` fail the test at its end.
    """
    found: list[Visitor] = []

    def enter(site: Site, **options: Any) -> Visitor:
        found.append(Visitor(browser, site, **options))
        return found[-1]

    yield enter
    for each in found:
        each.context.close()
    for each in found:
        each.watch.check()
