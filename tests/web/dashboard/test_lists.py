"""Lists over ASGI: saved filters, columns, views, completion and row refresh."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from chimes.errors import InvalidInput
from chimes.i18n import in_language
from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.run import Origin, RunStatus
from chimes.services.filters import Chip
from chimes.services.preferences import ListName
from chimes.web.dashboard.core.lists import (
    ChipTexts,
    CompletionSource,
    completions,
    describe_chip,
)
from chimes.web.dashboard.core.preferences import (
    COLUMNS,
    DisplayPreferences,
    ListChoices,
    parse_list_choices,
    with_columns,
    with_view,
)
from chimes.web.dashboard.runs.views import rows_of, silent_columns
from tests.builders import NOW, a_schedule
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.test_runs import ended, with_runs

SCHEDULES, RUNS = "/ui/schedules", "/ui/runs"
HOSTILE = '<img src=x onerror=alert(1)>"'


async def saved(browser: Browser, on: str, name: str) -> None:
    done = await browser.send("/ui/filters/save", on=on, name=name)
    assert done.status_code == 303, done.text
    await browser.follow(done)


@pytest.mark.parametrize("address", [SCHEDULES, RUNS])
async def test_a_filter_is_saved_opened_renamed_and_removed(address: str) -> None:
    async with browsing() as browser:
        on = f"{address}?q=status:failed" if address == RUNS else f"{address}?q=status:paused"
        assert "Save filter" not in (await browser.get(address)).text
        await saved(browser, on, HOSTILE)
        page = browser.page
        assert HOSTILE not in page
        assert "saved." in page
        text = on.partition("q=")[2]
        link = f"{address}?{urlencode({'q': text})}"
        assert f'href="{link}" title="{text}" aria-current="true"' in page
        assert link in (await browser.get(address)).text, "also while another filter is active"
        other = SCHEDULES if address == RUNS else RUNS
        assert "&lt;img" not in (await browser.get(other)).text
        renamed = await browser.send("/ui/filters/rename", on=address, to="Mine")
        assert "Filter renamed to Mine." in (await browser.follow(renamed)).text
        palette = (await browser.get("/ui/palette?q=min")).json()["items"]
        assert [each["address"] for each in palette] == [link]
        gone = await browser.send("/ui/filters/remove", on=address)
        after = (await browser.follow(gone)).text
        assert "Filter Mine removed." in after
        assert "★" not in after
        browser.page = after[after.index('class="toast ') :]
        back = await browser.send("/ui/filters/save")
        assert link in (await browser.follow(back)).text


async def test_an_invalid_filter_name_is_reported_and_kept_in_the_form() -> None:
    async with browsing() as browser:
        await saved(browser, f"{RUNS}?q=status:failed", "one")
        await saved(browser, f"{RUNS}?q=status:queued", "two")
        wrong = await browser.send("/ui/filters/rename", on=RUNS, name="one", to="two")
        assert wrong.status_code == 409
        assert "already exists" in wrong.text
        assert 'name="to" value="two"' in wrong.text
        other = await browser.send("/ui/filters/rename", to="three")
        assert "Filter renamed to three." in (await browser.follow(other)).text
        long = "x" * 61
        refused = await browser.send("/ui/filters/save", on=f"{RUNS}?q=a", name=long)
        assert refused.status_code == 422
        assert f'name="name" value="{long}"' in refused.text
        await browser.follow(await browser.send("/ui/filters/save", name="shorter"))
        assert (
            'title="a" aria-current="true">★ <bdi>shorter</bdi>'
            in (await browser.get(f"{RUNS}?q=a")).text
        )
        missing = await browser.send("/ui/filters/remove", on=RUNS, name="four")
        assert missing.status_code == 404
        unknown = await browser.send("/ui/filters/remove", on=RUNS, list="nodes")
        assert unknown.status_code == 422


async def test_saved_filters_are_private() -> None:
    async with browsing() as browser:
        await saved(browser, f"{RUNS}?q=status:failed", "the admin's")
        password = "correct horse battery"
        fields = {"name": "anna", "password": password, "role": "viewer"}
        await browser.send("/ui/system/access/users", on="/ui/system/access", **fields)
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/logout", on=RUNS)
        await browser.send("/ui/login", on="/ui/login", user="anna", password=password)
        assert "admin" not in (await browser.get(RUNS)).text
        assert (await browser.get("/ui/palette?q=admin")).json()["items"] == []
        await saved(browser, f"{RUNS}?q=origin:manual", "hers")
        assert "hers" in browser.page


# --- views and columns ------------------------------------------------------------------------
async def test_the_view_is_in_the_url_and_remembered() -> None:
    async with browsing() as browser:
        for number in range(30):
            await browser.rig.create(name=f"s{number:02}", labels={"x": None})
        assert "<tr data-row" in (await browser.get(SCHEDULES)).text
        cards = (await browser.get(f"{SCHEDULES}?view=cards")).text
        assert cards.count('<li class="card" data-row') == 25
        again = (await browser.get(f"{SCHEDULES}?sort=name")).text
        assert again.count('<li class="card" data-row') == 25, "the view is remembered"
        (more,) = re.findall(r'rel="next" href="([^"]+)"', again)
        part = await browser.get(more.replace("&amp;", "&"), **{"HX-Request": "true"})
        assert part.text.lstrip().startswith('<li class="card"')
        assert part.text.count("data-row-id") == 5
        nonsense = (await browser.get(f"{SCHEDULES}?view=nonsense")).text
        assert '<li class="card"' in nonsense
        assert "<tr data-row" in (await browser.get(f"{SCHEDULES}?view=table")).text


async def test_visible_columns_are_remembered() -> None:
    async with browsing() as browser:
        await browser.rig.create(name="report", labels={"billing": None})
        page = (await browser.get(SCHEDULES)).text
        assert "Asia/Bangkok" in main_of(page)
        fields = {"column": ["status", "when", "next"], "list": "schedules"}
        await chosen(browser, SCHEDULES, fields)
        page = main_of((await browser.get(SCHEDULES)).text)
        rows = page.partition("<tbody")[2].partition("</tbody>")[0]
        assert "Every day at 09:00" in rows
        for gone in ("billing", "no runs yet", "system:default", "HTTP"):
            assert gone not in rows, gone
        assert page.count(" checked>") == 3
        cards = main_of((await browser.get(f"{SCHEDULES}?view=cards")).text)
        assert "system:default" not in cards
        unknown = await chosen(browser, SCHEDULES, {"column": "secrets", "list": "schedules"})
        assert unknown == 422


async def test_columns_of_runs() -> None:
    async with with_runs(ended(NOW)) as browser:
        assert "node-7" in (await browser.get(RUNS)).text
        await chosen(browser, RUNS, {"column": ["error", "lag"], "list": "runs"})
        page = main_of((await browser.get(RUNS)).text)
        assert "node-7" not in page
        heads = re.findall(r"<th[^>]*>([A-Z][a-z ]+)</th>", page.partition("<table")[2])
        assert {"Result", "Schedule", "Lag", "Error"} <= set(heads)
        assert not {"Node", "Origin", "Started"} & set(heads)


async def test_row_height_is_remembered_and_compact_rows_omit_columns_that_say_nothing() -> None:
    async with with_runs(ended(NOW), ended(NOW - timedelta(hours=1))) as browser:
        page = (await browser.get(RUNS)).text
        assert '<div class="list runs compact no-origin no-attempt no-node no-error">' in page
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        fields = {"csrf": token, "back": RUNS, "list": "runs", "density": "comfortable"}
        answer = await browser.post("/ui/lists/density", fields)
        assert '<div class="list runs comfortable' in (await browser.follow(answer)).text
        await chosen(browser, RUNS, {"column": ["error"], "list": "runs"})
        assert '<div class="list runs comfortable' in (await browser.get(RUNS)).text
        answer = await browser.post("/ui/lists/density", fields | {"density": "huge"})
        assert answer.status_code == 422


def test_columns_with_something_to_say_are_not_silent() -> None:
    def silent(**changes: Any) -> set[str]:
        runs = [ended(NOW), replace(ended(NOW), **changes)]
        return set(silent_columns(rows_of(runs, {}, {}, {}, NOW)))

    every = {"origin", "attempt", "node", "error"}
    assert silent() == every
    assert silent(attempt=2) == every - {"attempt"}
    assert silent(error="boom") == every - {"error"}
    assert silent(origin=Origin.MANUAL) == every - {"origin"}
    assert silent(attempts=()) == every, "a run without a node says nothing about nodes"
    other = [replace(each, node=NodeId("other")) for each in ended(NOW).attempts]
    assert silent(attempts=tuple(other)) == every - {"node"}


def main_of(page: str) -> str:
    return page.partition("<main")[2].partition("</main>")[0]


async def chosen(browser: Browser, on: str, fields: dict[str, Any]) -> int:
    page = (await browser.get(on)).text
    token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    answer = await browser.post("/ui/lists/columns", {"csrf": token, "back": on} | fields)
    return answer.status_code


def test_invalid_parts_of_the_list_cookie_are_ignored() -> None:
    schedules = ListName.SCHEDULES
    assert parse_list_choices("") == parse_list_choices("x" * 2000) == ListChoices()
    found = parse_list_choices("view=cards&schedules=zone.nonsense&runs=&more=1")
    assert found == ListChoices(view="cards", hidden={schedules: frozenset({"zone"})})
    assert "zone" not in found.shows(schedules)
    assert parse_list_choices(found.text) == found
    assert with_view(found, "month").view == "month"
    assert with_view(found, "../x") == found
    assert with_columns(found, schedules, COLUMNS[schedules]).shows(schedules) == tuple(
        COLUMNS[schedules]
    )
    assert parse_list_choices(with_columns(found, schedules, []).text).shows(schedules) == ()
    with pytest.raises(InvalidInput, match="unknown column"):
        with_columns(found, ListName.RUNS, ["zone"])


# --- conditions in words ------------------------------------------------------------------------
def test_conditions_are_described() -> None:
    texts = ChipTexts(
        display=DisplayPreferences(zone="Asia/Bangkok"),
        now=datetime(2030, 1, 15, 9, tzinfo=UTC),
        schedules={"s1": "Nightly"},
        error="RuntimeError: no connection",
    )
    table = {
        "status:failed": "Status: failed",
        "status:enabled": "Status: enabled",
        "kind:task": "Kind: Python",
        "origin:child": "Origin: step of a flow",
        "owner:me": "Owner: me",
        "next:<1h": "Next run within 1 h",
        "since:7d": "last 7 d",
        "until:1h": "older than 1 h",
        "since:2030-01-15T04:15:00Z": "since 11:15 +07 today",
        "since:2030-01-14T04:15:00Z": "since yesterday 11:15 +07",
        "until:2030-01-13T04:15:00Z": "until Sun 13 Jan 11:15 +07",
        "since:nonsense": "since:nonsense",
        "schedule:s1": "Schedule: Nightly",
        "same:r1": "same error: RuntimeError: no connection",
        "label:team=ops": "Label: team=ops",
    }
    found = {}
    for text in table:
        name, _colon, value = text.partition(":")
        found[text] = in_language(describe_chip(Chip(name, value), texts), "en")
    assert found == table


async def test_chips_and_suggestions_are_in_words() -> None:
    async with with_runs(ended(NOW, RunStatus.FAILED, error="RuntimeError: x")) as browser:
        page = main_of((await browser.get(f"{RUNS}?q=status:failed+since:7d")).text)
        assert "<bdi>Status: failed</bdi>" in page
        assert "<bdi>last 7 d</bdi>" in page
        headings = re.findall(r'<div><p class="menu-title">([^<]+)</p>', page)
        assert headings == ["Status", "Origin", "Owner", "Time"]
        assert 'title="status:timeout">Status: timed out</a>' in page
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        fields = {"csrf": token, "verb": "retry", "everything": "yes", "q": "status:failed"}
        dialog = main_of((await browser.post(f"{RUNS}/bulk", fields)).text)
        assert re.search(r"<li>[^<]+ · [A-Z][a-z]{2} \d+ [A-Z][a-z]{2} [^<]*UTC</li>", dialog)


# --- row refresh ------------------------------------------------------------------------------
async def test_schedule_rows_are_refreshed_by_id() -> None:
    async with browsing() as browser:
        ids = [(await browser.rig.create(name=f"s{number}"))["id"] for number in range(3)]
        await browser.rig.client.delete(f"/api/v1/schedules/{ids[0]}")
        await browser.rig.client.post(f"/api/v1/schedules/{ids[1]}/pause")
        query = urlencode([("id", each) for each in (*ids, "nobody")])
        part = (await browser.get(f"{SCHEDULES}/rows?view=table&{query}")).text
        assert sorted(re.findall(r'data-row-id="([^"]+)"', part)) == sorted(ids[1:])
        assert "paused" in part
        assert "<html" not in part
        cards = (await browser.get(f"{SCHEDULES}/rows?view=cards&{query}")).text
        assert cards.count('<li class="card"') == 2
        many = urlencode([("id", str(number)) for number in range(101)])
        assert (await browser.get(f"{SCHEDULES}/rows?{many}")).status_code == 422


async def test_run_rows_are_refreshed_by_id() -> None:
    one, two = ended(NOW), ended(NOW - timedelta(days=9))
    async with with_runs(one, two) as browser:
        query = urlencode([("id", each) for each in (one.id, two.id, "nobody")])
        part = (await browser.get(f"{RUNS}/rows?{query}")).text
        assert sorted(re.findall(r'data-row-id="([^"]+)"', part)) == sorted([one.id, two.id])
        many = urlencode([("id", str(number)) for number in range(101)])
        assert (await browser.get(f"{RUNS}/rows?{many}")).status_code == 422


# --- completion -------------------------------------------------------------------------------
async def test_filters_are_completed_from_existing_objects() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="Nightly backup", labels={"team": "a b", "x": None})

        async def words(word: str, list_: str = "schedules") -> list[str]:
            query = urlencode({"list": list_, "word": word})
            items = (await browser.get(f"/ui/filters/complete?{query}")).json()["items"]
            return [each["text"] for each in items]

        assert await words("st") == ["status:"]
        assert await words("status:p") == ["status:paused"]
        assert await words("status:f", "runs") == ["status:failed"]
        assert await words("label:") == ["label:team", 'label:"team=a b"', "label:x"]
        assert await words('label:"team=') == ['label:"team=a b"']
        assert await words("owner:") == ["owner:me", 'owner:"system:default"']
        assert await words("schedule:Night", "runs") == [f"schedule:{made['id']}"]
        assert await words("nonsense:") == []
        assert (await browser.get("/ui/filters/complete?list=x&word=")).status_code == 422


def test_completion_of_names_and_values() -> None:
    known = CompletionSource(
        schedules=[a_schedule(labels={"a": "1", "b": None})], nodes=["n1", "n2"]
    )

    def texts(word: str, list_: ListName = ListName.RUNS) -> list[str]:
        return [each["text"] for each in completions(word, list_, known)]

    assert texts("s") == ["status:", "schedule:", "since:", "same:"]
    assert texts("node:") == ["node:n1", "node:n2"]
    assert texts("since:2") == ["since:24h"]
    assert texts("origin:b") == ["origin:backfill"]
    assert texts("next:", ListName.SCHEDULES)[:2] == ["next:<1h", "next:<24h"]
    assert texts("kind:f", ListName.SCHEDULES) == ["kind:flow"]
    assert texts("same:x") == []
