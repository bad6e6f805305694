"""Cost of pages: at most 120 KB with all assets, and a constant number of store calls.

`bench/dashboard_pages.py` measures their duration with a million runs.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, cast

import pytest

from chimes.model.access import SYSTEM_OWNER
from chimes.model.ids import InboxId, RunId, ScheduleId
from chimes.model.insights import HEALTH_RESULTS
from chimes.model.notification import InboxItem
from chimes.model.run import Origin, Run, RunStatus
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import a_run
from tests.web.dashboard.browsing import Browser, browsing

MAX_BYTES = 120 * 1024
_ASSET = re.compile(r'(?:src|href)="(/ui/static/[^"]+\.(?:js|css))"')
#: Maximum number of store calls by page (with placeholders for ids).
PAGES = {
    # Five of them read the names of the five newest changes, two read maintenance windows, one the
    # index of proposals.
    "/ui/": 25,
    # One reads the fires that new time data move.
    "/ui/attention": 9,
    "/ui/schedules": 6,
    "/ui/schedules?q=kind:http": 6,
    "/ui/schedules?view=cards": 6,
    "/ui/schedules?view=month": 6,
    "/ui/schedules?view=table": 6,
    "/ui/schedules/new": 4,
    "/ui/schedules/{schedule}": 9,
    "/ui/schedules/{schedule}/runs": 5,
    "/ui/schedules/{schedule}/log": 6,
    "/ui/runs": 8,
    "/ui/runs?q=status:queued": 8,
    "/ui/runs/{run}": 10,
    "/ui/inbox": 5,
    "/ui/system": 8,
    "/ui/system/audit": 4,
}


class CountingStore:
    """Wraps a store and records its calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.verbs: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not iscoroutinefunction(found):
            return found
        return self._counted(name, found)

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        async def counted(*given: Any, **more: Any) -> Any:
            self.verbs.append(name)
            return await verb(*given, **more)

        return counted


@asynccontextmanager
async def filled(
    schedules: int, *, runs: int = 0
) -> AsyncIterator[tuple[Browser, CountingStore, dict[str, str]]]:
    """A dashboard with schedules, each with a run and a message, and `runs` ended runs."""
    clock = SettableClock()
    store = MemoryStore(clock)
    counting = CountingStore(store)
    async with browsing(store=cast(Store, counting), clock=clock) as browser:
        ids = {}
        for number in range(schedules):
            made = await browser.rig.create(name=f"schedule number {number}")
            answer = await browser.rig.client.post(f"/api/v1/schedules/{made['id']}/run")
            assert answer.status_code == 202, answer.text
            ids = {"schedule": made["id"], "run": answer.json()["id"]}
            await store.add_inbox(
                InboxItem(
                    id=InboxId(f"message-{number:03d}"),
                    owner=SYSTEM_OWNER,
                    run_id=RunId(ids["run"]),
                    schedule_id=ScheduleId(made["id"]),
                    schedule_name=made["name"],
                    title="It has failed",
                    created_at=clock.now() - timedelta(minutes=number),
                )
            )
            await store.load(_past(ScheduleId(made["id"]), clock.now(), runs))
        yield browser, counting, ids


def _past(schedule: ScheduleId, now: datetime, count: int) -> list[Run]:
    every = [now - timedelta(hours=number, seconds=number) for number in range(1, count + 1)]
    return [
        a_run(
            id=RunId(f"{schedule}-{number}"),
            schedule_id=schedule,
            owner=SYSTEM_OWNER,
            origin=Origin.SCHEDULE,
            status=RunStatus.SUCCEEDED if number % 7 else RunStatus.FAILED,
            created_at=at,
            planned_at=at,
            started_at=at,
            finished_at=at + timedelta(milliseconds=137 * number),
        )
        for number, at in enumerate(every)
    ]


async def _store_calls(schedules: int) -> dict[str, list[str]]:
    found = {}
    async with filled(schedules) as (browser, counting, ids):
        for page in PAGES:
            await browser.get(page.format(**ids))
            counting.verbs.clear()
            answer = await browser.get(page.format(**ids))
            assert answer.status_code == 200, answer.text
            found[page] = sorted(counting.verbs)
    return found


async def test_store_calls_of_a_page_do_not_grow_with_schedules() -> None:
    few, many = await _store_calls(5), await _store_calls(100)
    assert many == few
    over = {page: verbs for page, verbs in many.items() if len(verbs) > PAGES[page]}
    assert not over


@pytest.mark.parametrize("language", ["en", "th"])
async def test_no_page_exceeds_120_kb_with_its_assets(language: str) -> None:
    weights: dict[str, int] = {}
    async with filled(100, runs=HEALTH_RESULTS) as (browser, _, ids):
        known: dict[str, int] = {}
        for page in PAGES:
            answer = await browser.get(page.format(**ids), **{"Accept-Language": language})
            assert answer.headers["content-encoding"] == "gzip"
            addresses = set(_ASSET.findall(answer.text))
            assert addresses
            for address in addresses - known.keys():
                asset = await browser.client.get(address)
                assert asset.headers["content-encoding"] == "gzip"
                known[address] = len(gzip.compress(asset.content, 9))
            # Compressed like the server's response.
            weights[page] = len(gzip.compress(answer.content, 5)) + sum(
                known[address] for address in addresses
            )
    assert not {page: weight for page, weight in weights.items() if weight > MAX_BYTES}
