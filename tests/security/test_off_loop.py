"""Long computations of requests run in threads, not on the event loop of the server."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holidays
import pytest

from chimes.language import parser
from chimes.triggers import calendars
from tests.security.serving import served
from tests.store_contract.stores import KINDS, StoreKind
from tests.web.rig import HTTP, definition

PATH = "/api/v1/schedules"


class Threads:
    """The calls of slow functions, and the thread of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, bool]] = []
        self._patch = monkeypatch

    def watch(self, place: Any, name: str) -> None:
        original = getattr(place, name)

        def watched(*args: Any, **named: Any) -> Any:
            self.calls.append((name, threading.current_thread() is threading.main_thread()))
            return original(*args, **named)

        self._patch.setattr(place, name, watched)

    def check(self, *expected: str) -> None:
        """All expected functions were called since the last check, none of them on the loop."""
        assert {name for name, _main in self.calls} == set(expected)
        assert [name for name, main in self.calls if main] == []
        self.calls.clear()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """Nothing is cached, as in a new process."""
    found = Threads(monkeypatch)
    found.watch(holidays, "country_holidays")
    found.watch(holidays, "list_supported_countries")
    _forget()
    yield found
    _forget()


def _forget() -> None:
    calendars._countries.cache_clear()
    calendars._load_country_year.cache_clear()


def _trigger(*countries: str, **given: Any) -> dict[str, Any]:
    exclude = [{"holidays": each, "on_excluded": "next"} for each in countries]
    cron = {"kind": "cron", "expression": "0 9 1 1 *", "timezone": "Asia/Bangkok"}
    return cron | {"exclude": exclude} | given


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_holidays_are_computed_in_threads(
    kind: StoreKind, tmp_path: Path, threads: Threads
) -> None:
    async with served(kind, tmp_path) as server, server.client() as client:
        body: dict[str, Any] = {"trigger": _trigger("TH", "US"), "count": 3}
        assert (await client.post("/api/v1/preview", json=body)).status_code == 200
        threads.check("country_holidays", "list_supported_countries")
        _forget()
        made = await client.post(PATH, json=definition(trigger=_trigger("DE", "FR")))
        assert made.status_code == 201, made.text
        threads.check("country_holidays", "list_supported_countries")
        _forget()
        path = made.headers["location"]
        changed = await client.patch(path, json={"trigger": _trigger("JP", "GB")})
        assert changed.status_code == 200, changed.text
        threads.check("country_holidays", "list_supported_countries")
        _forget()
        # A trigger without fires needs the holidays of all years.
        never = _trigger("TH", exclude=[{"holidays": "TH"}])
        refused = await client.post(PATH, json=definition(trigger=never))
        assert refused.json()["code"] == "never_fires"
        threads.check("country_holidays", "list_supported_countries")
        daily = _trigger("TH", expression="0 9 * * *")
        await client.post(PATH, json=definition(trigger=daily, target=HTTP))
        threads.calls.clear()
        calendars._load_country_year.cache_clear()
        answer = await client.get("/api/v1/upcoming?hours=168")
        assert len(answer.json()["items"]) > 3
        # A store that keeps the schedule in memory has its days already.
        assert [name for name, main in threads.calls if main] == []


async def test_holidays_of_an_import_are_computed_in_threads(threads: Threads) -> None:
    async with served() as server, server.client() as client:
        text = json.dumps([definition(trigger=_trigger("TH"))])
        page = await client.get("/ui/schedules/import")
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        fields = {"csrf": token[1], "text": text, "form": "yaml"}
        headers = {"Origin": server.url}
        answer = await client.post("/ui/schedules/import", data=fields, headers=headers)
        assert answer.status_code == 200
        threads.check("country_holidays", "list_supported_countries")


async def test_sentences_are_parsed_in_threads(threads: Threads) -> None:
    threads.watch(parser, "parse")
    async with served() as server, server.client() as client:
        body = {"text": "ทุกวัน 09:00 " * 100}
        assert (await client.post("/api/v1/parse", json=body)).status_code in (200, 422)
        threads.check("parse")


async def test_waiting_computations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are computed and 32 wait; further requests are refused, and the others are answered."""
    release, original = threading.Event(), parser.parse

    def held(*args: Any, **named: Any) -> Any:
        assert release.wait(60)
        return original(*args, **named)

    monkeypatch.setattr(parser, "parse", held)
    most, more = 2 + 32, 4
    async with served() as server, server.client() as client:
        body = {"text": "every day at 9:00 water the plants"}
        requests = [
            asyncio.ensure_future(client.post("/api/v1/parse", json=body))
            for _ in range(most + more)
        ]
        try:
            early = []
            async with asyncio.timeout(60):
                for done in asyncio.as_completed(requests):
                    early.append(await done)
                    if len(early) == more:
                        break
            assert [each.status_code for each in early] == [429] * more
            assert all(int(each.headers["retry-after"]) >= 1 for each in early)
            assert sum(not each.done() for each in requests) == most
            assert (await client.get("/health")).status_code == 200
        finally:
            release.set()
        found = Counter(each.status_code for each in await asyncio.gather(*requests))
        assert found == {200: most, 429: more}
