"""The visible text of buttons and links is part of their accessible name in every language, as
voice control requires."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from chimes.model.access import SYSTEM_OWNER
from chimes.model.run import RunStatus
from chimes.web.dashboard.core.templates import accessible_name
from tests.builders import a_run, an_item
from tests.web.dashboard.browsing import browsing

_PRESSED = ("a", "button", "summary")


class _Names(HTMLParser):
    """Collects accessible name and visible text of buttons and links with an explicit name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open: list[tuple[str, bool]] = []
        self._name: str | None = None
        self._depth = 0
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag in ("input", "br", "meta", "link", "img", "hr", "wbr"):
            return
        unseen = "hidden" in found.get("class", "").split() or found.get("aria-hidden") == "true"
        self._open.append((tag, unseen or tag == "svg"))
        if tag in _PRESSED and "aria-label" in found:
            self._name, self._depth, self._text = found["aria-label"], len(self._open), []

    def handle_data(self, data: str) -> None:
        if self._name is not None and not any(unseen for _, unseen in self._open):
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            if len(self._open) == self._depth and self._name is not None:
                self.found.append((self._name, "".join(self._text).strip()))
                self._name = None
            if self._open.pop()[0] == tag:
                break


@pytest.mark.parametrize("language", ["en", "th", "zh"])
async def test_visible_text_is_part_of_the_accessible_name(language: str) -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="boom")
        changed = f"/api/v1/schedules/{made['id']}"
        answer = await browser.rig.client.patch(changed, json={"name": "boom 2"})
        assert answer.status_code == 200, answer.text
        store = browser.rig.store
        await store.add_inbox(an_item(owner=SYSTEM_OWNER, title="boom: failed"))
        run = a_run(owner=SYSTEM_OWNER, status=RunStatus.RUNNING, schedule_name="boom")
        await store.load([run])
        pages = (
            "/ui/",
            "/ui/schedules",
            f"/ui/schedules/{made['id']}",
            f"/ui/schedules/{made['id']}/definition",
            "/ui/runs",
            f"/ui/runs/{run.id}",
            "/ui/inbox",
            "/ui/system",
            "/ui/system/channels",
            "/ui/system/access",
        )
        worded = 0
        for path in pages:
            page = (await browser.get(path, **{"Accept-Language": language})).text
            assert f'<html lang="{language}' in page
            names = _Names()
            names.feed(page)
            assert names.found, path
            for name, shown in names.found:
                if re.search(r"\w", shown):
                    worded += 1
                    assert shown.casefold() in name.casefold(), (path, shown, name)
        assert worded >= 4


@pytest.mark.parametrize(
    ("shown", "title", "name"),
    [
        ("Archive", "Archive boom", "Archive boom"),
        ("เก็บเข้าคลัง", "เก็บ boom เข้าคลัง", "เก็บเข้าคลัง: เก็บ boom เข้าคลัง"),
        ("★", "Star boom", "Star boom"),
        (
            "Check",
            "Tests the connection from this node",
            "Check: Tests the connection from this node",
        ),
    ],
)
def test_accessible_name_starts_with_the_visible_text_unless_the_title_contains_it(
    shown: str, title: str, name: str
) -> None:
    assert accessible_name(shown, title) == name
