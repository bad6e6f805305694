"""Empty states and errors of every page name the state and the next step."""

from __future__ import annotations

import re

import pytest

from chimes.errors import StoreUnavailable
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.web.dashboard.browsing import browsing

#: Page, text of its empty state, and its link or example.
EMPTY = (
    ("/ui/", "Pick a template", "/ui/schedules/new"),
    ("/ui/schedules", "No schedules yet", "chimes add"),
    ("/ui/schedules?q=enabled:no", "enabled:no", "Clear"),
    ("/ui/schedules?view=month", "No schedules yet", "chimes add"),
    ("/ui/schedules?view=month&q=label:nobody", "No schedule matches", "Clear"),
    ("/ui/schedules/new", "Or start from a template", "preset"),
    ("/ui/runs", "No runs", "7"),
    ("/ui/inbox", "Nothing yet", "/ui/telegram"),
    ("/ui/inbox?item=nobody", "Nothing yet", "/ui/telegram"),
    ("/ui/system", "No active nodes", "chimes serve"),
    ("/ui/system/audit", "No entries yet", "/ui/schedules/new"),
    ("/ui/system/audit?verb=x", "No entry matches", "/ui/system/audit"),
    ("/ui/system/settings?q=nothing-of-the-kind", "No setting matches", "chimes config show"),
)
#: Unknown objects and an unknown path.
MISSING = ("/ui/schedules/nobody", "/ui/runs/nobody", "/ui/nothing")
PAGES = ("/ui/", "/ui/schedules", "/ui/schedules/x", "/ui/schedules/new", "/ui/runs", "/ui/runs/x",
         "/ui/inbox", "/ui/system")  # fmt: skip


@pytest.mark.parametrize(("path", "title", "step"), EMPTY, ids=[each[0] for each in EMPTY])
async def test_empty_page_shows_its_purpose_and_the_next_step(
    path: str, title: str, step: str
) -> None:
    async with browsing() as browser:
        answer = await browser.get(path)
        assert answer.status_code == 200
        main = answer.text.partition("<main")[2]
        assert title in main
        assert step in main


async def test_schedule_without_runs_shows_the_first_fire() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="new")
        page = (await browser.get(f"/ui/schedules/{made['id']}")).text
        assert "First run" in page
        assert f"/ui/schedules/{made['id']}/run" in page


@pytest.mark.parametrize("path", MISSING)
async def test_not_found_page_links_back_and_shows_the_request_id(path: str) -> None:
    async with browsing() as browser:
        answer = await browser.get(path)
        assert answer.status_code == 404
        assert 'href="/ui/"' in answer.text
        request = answer.headers["x-request-id"]
        assert re.search(rf"data-copy=\"Chimes 1\.2\.3 404 [a-z_]+ {request}\"", answer.text)


class UnavailableStore(MemoryStore):
    """A store that becomes unavailable."""

    away = False

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in ("away", "changes", "wake") or not self.away:
            return found
        raise StoreUnavailable("the disk is gone")


@pytest.mark.parametrize("path", PAGES)
async def test_store_outage_page_shows_the_next_step(path: str) -> None:
    clock = SettableClock()
    store = UnavailableStore(clock)
    async with browsing(store=store, clock=clock) as browser:
        store.away = True
        answer = await browser.get(path)
        assert answer.status_code == 503
        assert "<main" in answer.text
        assert 'href="/ui/"' in answer.text
        assert answer.headers["x-request-id"] in answer.text
        part = await browser.get(path, **{"HX-Request": "true"})
        assert part.status_code == 503
        assert part.headers["hx-retarget"] == "#toasts"
        assert "<html" not in part.text
