"""Runs page over ASGI: filters, chart, error groups, bulk actions, exports."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Owner, Role
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import StatusCounts
from chimes.model.listing import RunSort
from chimes.model.run import Attempt, AttemptEnd, Origin, Run, RunStatus
from chimes.services.runs import RunOrigin, match_run_origins
from chimes.web.dashboard.core.lists import csv_cell
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.runs.views import (
    bucket_size,
    build_bars,
    build_histogram,
    duration_bar,
    parse_search,
    wider_window,
)
from tests.builders import NOW, a_run, a_schedule, an_entry
from tests.web.dashboard.browsing import Browser, browsing

HOSTILE = '<script>alert(1)</script>"\u202egnp.exe'
ADMIN = Actor(role=Role.ADMIN)


def ended(
    at: datetime, status: RunStatus = RunStatus.SUCCEEDED, took: float = 2.0, **given: Any
) -> Run:
    finished = at + timedelta(seconds=took)
    values = {
        "origin": Origin.SCHEDULE,
        "status": status,
        "attempt": 1,
        "created_at": at,
        "planned_at": at,
        "available_at": at,
        "started_at": at,
        "finished_at": finished,
        "attempts": (
            Attempt(
                number=1,
                fence=1,
                node=NodeId("node-7"),
                started_at=at,
                finished_at=finished,
                end=AttemptEnd.SUCCEEDED if status is RunStatus.SUCCEEDED else AttemptEnd.FAILED,
            ),
        ),
    }
    schedule = given.pop("schedule", None)
    return a_run(schedule, **(values | given))


@asynccontextmanager
async def with_runs(*runs: Run, **options: Any) -> AsyncIterator[Browser]:
    async with browsing(**options) as browser:
        await browser.rig.store.load(runs)
        yield browser


def now_of(browser: Browser) -> datetime:
    return browser.rig.clock.now()


def query(text: str, **more: str) -> str:
    return f"/ui/runs?{urlencode({'q': text} | more)}"


def shown(page: str) -> list[str]:
    return re.findall(r'name="id" value="([^"]+)"', page)


async def test_a_row_shows_all_facts_of_a_run() -> None:
    schedule = a_schedule(name=HOSTILE)
    first = ended(NOW - timedelta(hours=2), schedule=schedule)
    second = ended(
        NOW - timedelta(hours=1),
        RunStatus.FAILED,
        took=5,
        schedule=schedule,
        error=f"HTTP 500 {HOSTILE}",
        planned_at=NOW - timedelta(hours=1, seconds=3),
    )
    again = a_run(schedule, retry_of=second.id, created_at=NOW, planned_at=NOW)
    async with with_runs(first, second, again) as browser:
        page = (await browser.get("/ui/runs")).text
        assert shown(page) == [again.id, second.id, first.id]
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "node-7" in page
        assert "usually 2 s" in page
        assert 'class="chart against"' in page
        assert f'href="/ui/runs/{second.id}">{second.id[:13]}</a>' in page
        assert "3 runs in this window" in page


# Times also in the zone of the schedule; a step of a flow has its own name.
async def test_times_are_in_both_zones_and_steps_are_named() -> None:
    async with browsing() as browser:
        trigger = {"kind": "cron", "expression": "0 9 * * *", "timezone": "America/New_York"}
        made = await browser.rig.create(name="flow", trigger=trigger)
        given = {"schedule_id": ScheduleId(made["id"]), "schedule_name": "flow"}
        at = now_of(browser) - timedelta(hours=1)
        step = ended(at, origin=Origin.CHILD, parent_id=RunId("p"), step="two[0]", **given)
        gone = ended(at, schedule_id=ScheduleId("gone"), schedule_name="gone")
        await browser.rig.store.load([ended(at, **given), step, gone])
        page = (await browser.get("/ui/runs")).text
        assert page.count('<bdi class="mono small muted">two[0]</bdi>') == 1
        rows = {row.partition('"')[0]: row for row in page.split('data-row-id="')[1:]}
        assert rows[step.id].count('class="also"') == 2, "planned and started"
        assert " EST" in rows[step.id]
        assert " EST" not in rows[gone.id]
        run_page = (await browser.get(f"/ui/runs/{step.id}")).text
        assert "two[0]" in run_page.partition("<h1>")[2].partition("</h1>")[0]


async def test_filters_are_in_the_address() -> None:
    good, bad = ended(NOW - timedelta(hours=1)), ended(NOW, RunStatus.FAILED, error="no")
    old = ended(NOW - timedelta(days=3))
    async with with_runs(good, bad, old) as browser:
        assert shown((await browser.get("/ui/runs")).text) == [bad.id, good.id]
        assert shown((await browser.get(query("status:failed"))).text) == [bad.id]
        week = (await browser.get(query("since:7d"))).text
        assert shown(week) == [bad.id, good.id, old.id]
        between = 'since:"2020-01-01T00:00:00Z" until:"2020-01-02T00:00:00Z"'
        assert shown((await browser.get(query(between))).text) == []
        wrong = (await browser.get(query("since:soon until:1h since:1h"))).text
        assert "is not a duration" in wrong
        assert "the time range ends before it starts" in wrong


async def test_active_runs_are_shown_whatever_their_age() -> None:
    waits = a_run(created_at=NOW - timedelta(days=9), planned_at=NOW - timedelta(days=9))
    async with with_runs(waits) as browser:
        assert shown((await browser.get("/ui/runs")).text) == []
        assert shown((await browser.get(query("status:queued"))).text) == [waits.id]


async def test_a_custom_range_becomes_a_filter() -> None:
    async with browsing() as browser:
        answer = await browser.get(
            "/ui/runs?q=status:failed&from=2026-11-16T09:00&to=2026-11-16T10:00"
        )
        assert answer.status_code == 303
        place = answer.headers["location"]
        assert "since" in place
        page = await browser.get(place)
        assert "until:&#34;2026-11-16T10:00:00Z&#34;" in page.text
        bad = await browser.get("/ui/runs?from=yesterday")
        assert bad.status_code == 422


async def test_equal_errors_are_grouped() -> None:
    same = [
        ended(NOW - timedelta(minutes=n), RunStatus.FAILED, error="disk full") for n in range(1, 4)
    ]
    other = ended(NOW - timedelta(minutes=9), RunStatus.FAILED, error="no such host")
    async with with_runs(*same, other) as browser:
        page = (await browser.get("/ui/runs")).text
        (link,) = re.findall(r'<a href="([^"]+)">same error ×3</a>', page)
        listed = (await browser.get(link.replace("&amp;", "&"))).text
        assert shown(listed) == [run.id for run in same]
        assert "Runs with this error:" in listed
        gone = (await browser.get(query("same:nothing"))).text
        assert "run nothing not found" in gone


async def test_text_search_in_names_and_errors_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [ended(NOW - timedelta(seconds=n), schedule_name=f"n{n}") for n in range(30)]
    monkeypatch.setattr("chimes.services.runs.MAX_SCANNED", 10)
    monkeypatch.setattr("chimes.services.runs._SCAN_BATCH", 5)
    async with with_runs(*runs) as browser:
        page = (await browser.get(query("n27"))).text
        assert "Search older runs" in page
        for _ in range(2):
            (link,) = re.findall(r'href="(/ui/runs\?[^"]*cursor=[^"]+)"', page)[:1]
            page = (await browser.get(link.replace("&amp;", "&"))).text
        assert shown(page) == [runs[27].id]


async def test_pages_continue_by_cursor() -> None:
    runs = [ended(NOW - timedelta(seconds=n)) for n in range(30)]
    async with with_runs(*runs) as browser:
        page = (await browser.get("/ui/runs")).text
        assert len(shown(page)) == 25
        (link,) = set(re.findall(r'rel="next" href="([^"]+)"', page))
        rows = await browser.get(link.replace("&amp;", "&"), **{"HX-Request": "true"})
        assert shown(rows.text) == [run.id for run in runs[25:]]
        assert "<html" not in rows.text


async def test_new_runs_are_counted_until_shown() -> None:
    async with with_runs(ended(NOW)) as browser:
        page = (await browser.get("/ui/runs")).text
        (ask,) = re.findall(r'data-ask="([^"]+)"', page)
        ask = ask.replace("&amp;", "&")
        assert (await browser.get(ask)).json() == {"count": 0, "text": "0 new runs – show"}
        browser.rig.clock.advance(timedelta(minutes=1))
        later = now_of(browser)
        await browser.rig.store.load(
            [a_run(created_at=later, planned_at=later, available_at=later) for _ in range(3)]
        )
        assert (await browser.get(ask)).json() == {"count": 3, "text": "3 new runs – show"}


async def test_an_empty_window_suggests_the_next_step() -> None:
    async with with_runs(ended(NOW - timedelta(days=3))) as browser:
        page = (await browser.get("/ui/runs")).text
        assert "No runs in this window – widen to 7 days" in page
        (link,) = re.findall(r'class="button primary" href="(/ui/runs[^"]+)"', page)
        assert len(shown((await browser.get(link.replace("&amp;", "&"))).text)) == 1
        hidden = (await browser.get(query("since:7d origin:child"))).text
        assert "The filter Origin: step of a flow hides everything." in hidden
        assert 'href="/ui/runs?q=since%3A7d">Clear Origin: step of a flow</a>' in hidden
        assert "Widen to 30 days" in hidden
        none = (await browser.get(query("since:7d origin:child status:failed"))).text
        assert "widen to 30 days" in none, "no single part hides everything"
        assert "No run matches" in (await browser.get(query("since:30d origin:child"))).text


async def test_selected_runs_are_retried_after_confirmation() -> None:
    bad = ended(NOW, RunStatus.FAILED, error="no", schedule_name=HOSTILE)
    waits = a_run()
    async with with_runs(bad, waits) as browser:
        search = await browser.send("/ui/runs/bulk", on="/ui/runs", verb="retry", id=bad.id)
        assert "Retry 1 run?" in search.text
        assert "<script>alert" not in search.text
        result = await browser.send("/ui/runs/bulk")
        assert "1 of 1 run processed." in result.text
        assert "Retry queued." in result.text
        (again,) = re.findall(r'<a href="/ui/runs/([^"]+)" data-open-row>', result.text)
        found = await browser.rig.store.get_run(RunId(again))
        assert found is not None
        assert found.retry_of == bad.id
        nothing = await browser.send("/ui/runs/bulk", on="/ui/runs", verb="retry", id=waits.id)
        assert nothing.status_code == 303
        assert "no selected run is in a suitable status" in (await browser.follow(nothing)).text
        wrong = await browser.send("/ui/runs/bulk", on="/ui/runs", verb="eat", id=waits.id)
        assert wrong.status_code == 422


async def test_all_matching_runs_are_canceled_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chimes.web.dashboard.runs.routes.MAX_BULK", 3)
    runs = [a_run(schedule_name=f"n{n}") for n in range(5)]
    done = ended(NOW)
    async with with_runs(*runs, done) as browser:
        search = await browser.send("/ui/runs/bulk", on="/ui/runs", verb="cancel", everything="yes")
        assert "Cancel 3 runs?" in search.text
        assert "More runs match; they are processed 3 at a time." in search.text
        result = await browser.send("/ui/runs/bulk")
        assert "3 of 3 runs processed." in result.text
        assert result.text.count("Canceled.") == 3
        rest = await browser.send("/ui/runs/bulk")
        assert "2 of 2 runs processed." in rest.text
        assert 'id="bulk-on"' not in rest.text
        # The next batch starts after the last one.
        search = await browser.send("/ui/runs/bulk", on="/ui/runs", verb="retry", everything="yes")
        again = [(await browser.send("/ui/runs/bulk")).text for _ in range(2)]
        retried = re.findall(r'class="mono small muted">([^<]+)<', "".join(again))
        assert sorted(retried) == sorted(run.id for run in (*runs, done))
        refused = await browser.send(
            "/ui/runs/bulk", on="/ui/runs", verb="cancel", everything="yes", q="status:fialed"
        )
        assert refused.status_code == 422, "an invalid filter must not widen the action"


async def test_an_error_for_one_run_does_not_stop_the_others() -> None:
    one, two = a_run(), a_run()
    async with with_runs(one, two) as browser:
        search = await browser.get("/ui/runs")
        assert search.status_code == 200
        service = browser.rig.context.runs
        cancel = service.cancel

        async def other_was_faster(actor: Actor, run_id: RunId) -> Run:
            if run_id == one.id:
                await cancel(actor, run_id)
            return await cancel(actor, run_id)

        service.cancel = other_was_faster  # type: ignore[method-assign]
        result = await browser.send("/ui/runs/bulk", verb="cancel", everything="yes", sure="yes")
        assert "1 of 2 runs processed." in result.text
        assert "the run has ended already: canceled" in result.text


async def test_exports_contain_matching_runs_and_no_formulas() -> None:
    runs = [
        ended(NOW, RunStatus.FAILED, error="=cmd|' /C calc'!A0", schedule_name="@SUM(A1)"),
        ended(NOW - timedelta(minutes=1), schedule_name='a "b", c\nd'),
    ]
    async with with_runs(*runs) as browser:
        answer = await browser.get("/ui/runs/export.csv")
        assert answer.headers["content-type"].startswith("text/csv")
        assert "attachment" in answer.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert [row["id"] for row in rows] == [run.id for run in runs]
        assert rows[0]["schedule_name"] == "'@SUM(A1)"
        assert rows[0]["error"].startswith("'=cmd")
        assert rows[1]["schedule_name"] == 'a "b", c\nd'
        lines = (await browser.get("/ui/runs/export.ndjson?q=status:failed")).text.splitlines()
        assert [json.loads(line)["id"] for line in lines] == [runs[0].id]
        assert (await browser.get("/ui/runs/export.csv?q=status:fialed")).status_code == 422


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", " =1", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert (csv_cell(-5), csv_cell(None), csv_cell("a=b")) == ("-5", "", "a=b")


async def test_runs_of_another_owner_are_not_shown() -> None:
    anna, bert = Owner(id="anna"), Owner(id="bert")
    mine = ended(NOW, RunStatus.FAILED, error="mine", owner=anna, schedule_name="annas")
    theirs = [
        ended(NOW, RunStatus.FAILED, error="secret", owner=bert, schedule_name="berts")
        for _ in range(3)
    ]
    async with with_runs(mine, *theirs) as browser:
        made = await browser.rig.context.access.create(
            ADMIN, name="a", role=Role.MEMBER, owner=anna
        )
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", key=made.text)
        for path in ("/ui/runs", query("since:30d"), "/ui/runs/export.csv", query("berts")):
            page = (await browser.get(path)).text
            assert "secret" not in page
            assert theirs[0].id not in page
        assert "1 run in this window" in (await browser.get("/ui/runs")).text
        assert "not found" in (await browser.get(query(f"same:{theirs[0].id}"))).text
        result = await browser.send(
            "/ui/runs/bulk", on="/ui/runs", verb="retry", id=theirs[0].id, sure="yes"
        )
        assert result.status_code == 303
        assert len(shown((await browser.get("/ui/runs")).text)) == 1


def test_a_window_is_a_range_of_an_index() -> None:
    usual = parse_search("", ADMIN, NOW)
    assert usual.span == "24h"
    assert usual.query.created_since == NOW - timedelta(days=2)
    past = parse_search("since:3h until:1h", ADMIN, NOW)
    assert (past.query.sort, past.query.created_since, past.span) == (RunSort.PLANNED_AT, None, "")
    assert parse_search("schedule:x", ADMIN, NOW).span == "30d"
    found = wider_window(parse_search("since:1h", ADMIN, NOW))
    assert found is not None
    assert found[0] == "7d"
    assert wider_window(parse_search("since:30d", ADMIN, NOW)) is None


@pytest.mark.parametrize("span", ["1h", "24h", "7d", "30d", "400d", "30000d"])
def test_the_number_of_bars_is_limited(span: str) -> None:
    search = parse_search(f"since:{span}", ADMIN, NOW)
    starts = search.window.starts(bucket_size(search.window))
    assert 4 <= len(starts) <= 72


def test_bars_apply_the_filter_and_link_to_it() -> None:
    search = parse_search("status:failed", ADMIN, NOW)
    tally = StatusCounts(
        at=search.window.since, statuses={RunStatus.FAILED: 2, RunStatus.SUCCEEDED: 9}
    )
    bars = build_bars([tally], bucket_size(search.window), search)
    assert bars[0].counts == {RunStatus.FAILED: 2}
    assert "status%3Afailed" in (bars[0].address or "")
    chart = build_histogram(bars, DisplayPreferences(language="en", zone="Asia/Bangkok"), NOW)
    assert "+07" in chart.table
    assert "failed 2" in chart.svg


def test_a_duration_is_compared_with_the_median() -> None:
    second = timedelta(seconds=1)
    assert 'class="usual"' in duration_bar(second, second)
    assert 'class="over"' in duration_bar(second * 9, second)
    assert duration_bar(None, second) == duration_bar(second, None) == ""


async def test_the_origin_of_a_manual_run_is_found() -> None:
    # Even if many audit entries follow.
    async with browsing() as browser:
        made = await browser.rig.create(name="report")
        page = f"/ui/schedules/{made['id']}"
        fields = {"csrf": token_on((await browser.get("/ui/runs")).text), "sure": "yes"}
        await browser.post(f"{page}/run", fields)
        store = browser.rig.store
        for number in range(400):
            await store.append_audit(an_entry(object_id=str(number)))
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.rig.client.post(f"/api/v1/schedules/{made['id']}/run")
        browser.rig.clock.advance(timedelta(days=2))
        start, end = now_of(browser) - timedelta(days=2), now_of(browser)
        body = {"from": start.isoformat(), "to": end.isoformat()}
        filled = await browser.rig.client.post(
            f"/api/v1/schedules/{made['id']}/backfill", json=body
        )
        assert filled.json()["runs"]
        shown = (await browser.get(query("since:7d"))).text
        assert shown.count("via dashboard") == 1
        assert shown.count("via API") == 1 + len(filled.json()["runs"])


def token_on(page: str) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', page)[0]


def test_an_entry_names_its_run_and_a_backfill_its_moment() -> None:
    schedule = a_schedule()
    runs = [a_run(schedule, id=RunId(name), origin=Origin.MANUAL) for name in "abcz"]
    filled = a_run(schedule, id=RunId("d"), origin=Origin.BACKFILL, created_at=NOW)
    other = replace(filled, id=RunId("e"), created_at=NOW - timedelta(hours=1))
    entries = [
        an_entry(verb="start", object_kind="run", object_id="a", actor="ann", interface="native"),
        an_entry(verb="run", object_id=schedule.id, actor="bo", changes={"run_id": "b"}),
        an_entry(verb="retry", object_kind="run", object_id="x", changes={"run_id": "c"}),
        an_entry(verb="backfill", object_id=schedule.id, actor="di", at=NOW),
    ]
    found = match_run_origins(entries, [*runs, filled, other])
    assert found["a"] == RunOrigin(name="ann", interface="native")
    assert {name: each.name for name, each in found.items() if name in "bd"} == {
        "b": "bo",
        "d": "di",
    }
    assert sorted(found) == ["a", "b", "c", "d"]


async def test_the_chart_can_be_refreshed_alone() -> None:
    now = NOW - timedelta(hours=1)
    async with with_runs(ended(now), ended(now, RunStatus.FAILED, error="x")) as browser:
        page = (await browser.get(query("status:failed"))).text
        again = html.unescape(re.findall(r'data-again="([^"]+)"', page)[0])
        part = await browser.get(again, **{"HX-Request": "true"})
        assert "HX-Request" in part.headers["vary"]
        assert "<html" not in part.text
        assert 'class="s-failed"' in part.text
        assert 's-succeeded"' not in part.text
        assert "<span data-total hidden>1 run in this window</span>" in part.text
        assert "data-row" not in part.text
        assert "<html" in (await browser.get(again)).text, "GET of the address works"
