"""Schedule page over ASGI: contents, actions, and reasons of runs that did not happen."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import result_of
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import move_next_run, pause_schedule, plan_after, skip_next_slot
from chimes.services.schedules.history import Decision, FireLogEntry, FireLogPosition
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every
from chimes.web.dashboard.charts.scatter import Point, ScatterTexts, quantile, scatter_chart
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.schedule.charts import MAX_UPCOMING, marks_of, timeline_chart
from chimes.web.dashboard.schedule.fire_log import encode_position, log_lines, parse_cursor
from chimes.web.dashboard.schedule.routes import next_fires, next_slots
from tests.builders import NOW, a_run, a_schedule, an_entry, with_definition
from tests.web.dashboard.browsing import Browser, browsing

TABS = (
    "",
    "/runs",
    "/log",
    "/definition",
    "/deliveries",
    "/copy",
    "/next",
    "/backfill",
    "/preview",
)
NEW_YORK = "America/New_York"


async def page_of(browser: Browser, **given: object) -> str:
    return f"/ui/schedules/{(await browser.rig.create(**given))['id']}"


@pytest.mark.parametrize("tab", TABS)
async def test_every_tab_renders(tab: str) -> None:
    async with browsing() as browser:
        page = await page_of(browser, name="<b>x</b>", delivery=[{"channel": "inbox"}])
        answer = await browser.get(page + tab)
        assert answer.status_code == 200
        assert "<b>x</b>" not in answer.text
        assert "&lt;b&gt;x&lt;/b&gt;" in answer.text


async def test_tabs_render_as_blocks_for_htmx() -> None:
    async with browsing() as browser:
        page = await page_of(browser)
        facts = (await browser.get(f"{page}/facts", **{"HX-Request": "true"})).text
        assert facts.strip().startswith("<dl")
        assert "<time" in facts
        for tab in ("", "/runs", "/log"):
            part = (await browser.get(page + tab, **{"HX-Request": "true"})).text
            assert "<html" not in part, tab
            assert part.strip(), tab


async def test_the_header_is_refreshed_as_one_block() -> None:
    trigger = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}
    async with browsing() as browser:
        page = await page_of(browser, trigger=trigger)
        label = "Next in your time zone (UTC): "
        assert (await browser.get(page)).text.count(label) == 1
        facts = (await browser.get(f"{page}/facts", **{"HX-Request": "true"})).text
        assert label in facts
        assert "02:00 UTC" in facts.partition(label)[2]


async def test_no_empty_chart_during_the_first_run() -> None:
    async with browsing() as browser:
        page = await page_of(browser)
        first = _ended(NOW)
        running = with_definition(
            replace(first, attempts=(), status=RunStatus.RUNNING, finished_at=None),
            schedule_id=ScheduleId(page.rpartition("/")[2]),
        )
        await browser.rig.store.load([running])
        shown = (await browser.get(page)).text
        assert "last result" in shown
        assert "Lag" not in shown
        assert "Durations" not in shown
        two = [_ended(NOW - timedelta(minutes=each), number=each) for each in (1, 2)]
        await browser.rig.store.load(
            [with_definition(each, schedule_id=running.schedule_id) for each in two]
        )
        shown = (await browser.get(page)).text
        assert "Lag" in shown
        assert "Durations" in shown


def test_the_timeline_shows_that_more_fires_follow() -> None:
    minutely = plan_after(a_schedule(trigger=Cron("* * * * *")), NOW)
    hourly = plan_after(a_schedule(trigger=Cron("0 * * * *")), NOW)
    for schedule, more in ((minutely, True), (hourly, False)):
        marks = marks_of(schedule, [], (), None, NOW)
        chart = timeline_chart(schedule, marks, [], DisplayPreferences(), NOW)
        assert ('class="rest"' in chart.svg) is more
        coming = MAX_UPCOMING if more else 47
        assert chart.table.count("<tr>") == 1 + coming, "header row and drawn fires"


async def test_before_the_first_run_the_page_offers_run_now() -> None:
    async with browsing() as browser:
        page = await page_of(
            browser, trigger={"kind": "every", "every": "200m", "anchor": "2030-01-15T12:20:00Z"}
        )
        shown = (await browser.get(page)).text
        assert "First run in 3 h 20 min." in shown
        answer = await browser.send(f"{page}/run")
        assert answer.headers["location"].startswith("/ui/runs/")


async def test_next_fires_in_two_time_zones() -> None:
    clock = SettableClock(datetime(2027, 3, 12, 12, tzinfo=UTC))
    async with browsing(clock=clock) as browser:
        trigger = {"kind": "cron", "expression": "30 2 * * *", "timezone": NEW_YORK}
        page = await page_of(browser, trigger=trigger)
        shown = (await browser.get(page)).text
        answer = await browser.rig.client.post("/api/v1/preview", json={"trigger": trigger})
        for fire in answer.json()["fires"]:
            assert shown.count(f'datetime="{fire["at"][:19]}') >= 2, fire
        assert "Sun 14 Mar 03:00 EDT" in shown, "02:30 does not exist on that day"
        assert "Sun 14 Mar 07:00 UTC" in shown
        assert "the clocks go forward" in shown


async def test_skip_move_and_reschedule() -> None:
    async with browsing() as browser:
        page = await page_of(browser, trigger={"kind": "every", "every": "6h"})
        api = f"/api/v1/schedules/{page.rpartition('/')[2]}"
        first = (await browser.rig.client.get(api)).json()["next_slot"]
        await browser.send(f"{page}/skip", on=page)
        done = await browser.send(f"{page}/skip", reason="holiday")
        assert "Skipped the next run" in (await browser.follow(done)).text
        second = (await browser.rig.client.get(api)).json()["next_slot"]
        assert second > first
        to = browser.rig.clock.now() + timedelta(hours=1)
        text = f"{to:%Y-%m-%dT%H:%M}"
        assert (await browser.send(f"{page}/move", on=f"{page}/next", to=text)).status_code == 303
        after = (await browser.rig.client.get(api)).json()
        assert (after["next_slot"], after["next_run_at"][:16]) == (second, text)
        assert "moved" in (await browser.get(page)).text
        missing = await browser.send(f"{page}/reschedule", on=f"{page}/next", to="")
        assert (missing.status_code, "enter a time" in missing.text) == (422, True)
        await browser.send(f"{page}/reschedule", on=f"{page}/next", to=text)
        assert (await browser.rig.client.get(api)).json()["next_slot"][:16] == text
        log = (await browser.get(f"{page}/log")).text
        for words in ("skipped by a user", "moved the next run", "rescheduled the next run"):
            assert words in log
        assert "holiday" in log


async def test_backfill_previews_and_then_creates_runs() -> None:
    async with browsing() as browser:
        page = await page_of(browser, trigger={"kind": "cron", "expression": "0 9 * * *"})
        now = browser.rig.clock.now()
        fields = {
            "from": f"{now - timedelta(days=3, minutes=-1):%Y-%m-%dT%H:%M}",
            "to": f"{now:%Y-%m-%dT%H:%M}",
        }
        shown = await browser.send(f"{page}/backfill", on=f"{page}/backfill", **fields)
        assert "3 runs will be created" in shown.text
        assert (await browser.rig.client.get("/api/v1/runs")).json()["items"] == []
        csrf = re.findall(r'name="csrf" value="([^"]+)"', shown.text)[0]
        done = await browser.post(f"{page}/backfill", fields | {"csrf": csrf, "sure": "yes"})
        assert "3 runs queued." in (await browser.follow(done)).text
        again = await browser.send(f"{page}/backfill", on=f"{page}/backfill", **fields)
        assert "Nothing to backfill" in again.text
        turned = {"from": fields["to"], "to": fields["from"]}
        wrong = await browser.send(f"{page}/backfill", on=f"{page}/backfill", **turned)
        assert wrong.status_code == 422


async def test_versions_can_be_restored() -> None:
    async with browsing() as browser:
        page = await page_of(browser, name="one")
        api = f"/api/v1/schedules/{page.rpartition('/')[2]}"
        await browser.rig.client.patch(api, json={"name": "two", "policy": {"timeout": "20s"}})
        shown = (await browser.get(f"{page}/definition")).text
        assert "<del>one</del> <ins>two</ins>" in shown
        assert "<del>PT10S</del> <ins>PT20S</ins>" in shown
        (restore,) = re.findall(r'action="([^"]+/versions/\d+/restore)"', shown)
        dialog = await browser.send(restore)
        assert "policy.timeout: PT20S → PT10S" in dialog.text
        done = await browser.send(restore)
        toast_page = (await browser.follow(done)).text
        assert "Version of one restored." in toast_page
        browser.page = toast_page[toast_page.index('class="toast ') :]
        (undo,) = re.findall(r'action="([^"]+/versions/\d+/restore)"', browser.page)
        assert (await browser.send(undo)).status_code == 303
        assert (await browser.rig.client.get(api)).json()["name"] == "two"
        assert (await browser.get(f"{page}/definition?format=json")).status_code == 200
        unknown = await browser.post(
            f"{page}/versions/999/restore",
            {"csrf": re.findall(r'name="csrf" value="([^"]+)"', toast_page)[0]},
        )
        assert unknown.status_code == 404


async def test_copies_have_no_secrets() -> None:
    async with browsing() as browser:
        target = {
            "kind": "http",
            "url": "http://127.0.0.1:9/x",
            "headers": {"Authorization": "hush"},
            "body": "it's",
        }
        page = await page_of(browser, target=target, labels={"team": "a b"})
        shown = (await browser.get(f"{page}/copy")).text
        assert "hush" not in shown
        assert "chimes add &#39;0 9 * * *&#39; --tz Asia/Bangkok --name report" in shown
        assert "client.schedule(" in shown
        assert "curl -X POST" in shown
        assert "kind: cron" in shown


async def test_runs_and_deliveries_are_listed() -> None:
    async with browsing() as browser:
        page = await page_of(browser, delivery=[{"channel": "inbox", "on": ["failure"]}])
        await browser.send(f"{page}/run", on=page)
        assert "manual" in (await browser.get(f"{page}/runs")).text
        shown = (await browser.get(f"{page}/deliveries")).text
        assert "on failure" in shown
        assert "No deliveries yet." in shown
        assert (await browser.get(f"{page}/log?cursor=!!")).status_code == 422
        assert "Somebody" not in (await browser.get(f"{page}/log")).text, "the requester is known"


# --- views ----------------------------------------------------------------------------------------
def test_next_slots_start_at_the_cursor() -> None:
    schedule = plan_after(a_schedule(trigger=Cron("0 9 * * *", timezone="Asia/Bangkok")), NOW)
    usual = [fire.at for fire in schedule.trigger.fires(NOW, 6)]
    assert [fire.at for fire in next_slots(schedule, NOW)] == usual[:5]
    skipped = skip_next_slot(schedule, NOW, "me")
    assert [fire.at for fire in next_slots(skipped, NOW)] == usual[1:6]
    aside = move_next_run(schedule, usual[0] + timedelta(hours=1), NOW, "me")
    assert [fire.at for fire in next_slots(aside, NOW)] == usual[:5]
    off = pause_schedule(schedule, NOW, "me")
    assert [fire.at for fire in next_slots(off, NOW)] == usual[:5]
    few = plan_after(a_schedule(trigger=Every("1m", anchor=NOW, max_runs=2)), NOW)
    assert len(next_slots(few, NOW)) == 2


def test_the_second_zone_is_the_viewers_or_utc() -> None:
    schedule = plan_after(a_schedule(trigger=Cron("0 9 * * *", timezone="Asia/Bangkok")), NOW)
    (mine, *_) = next_fires(schedule, DisplayPreferences(zone="Asia/Tokyo"), NOW)
    assert (mine.there[-9:], mine.here[-9:]) == ("09:00 +07", "11:00 JST")
    (same, *_) = next_fires(schedule, DisplayPreferences(zone="Asia/Bangkok"), NOW)
    assert same.here.endswith("02:00 UTC")


def test_many_runs_are_merged_by_hour() -> None:
    schedule = plan_after(a_schedule(), NOW)
    runs = [_ended(NOW - timedelta(minutes=each), number=each) for each in range(1, 200)]
    few = marks_of(schedule, [result_of(run) for run in runs[:10]], (), None, NOW)
    assert sum(mark.status is not None for mark in few) == 10
    many = marks_of(schedule, [result_of(run) for run in runs], (), None, NOW)
    assert all(mark.status is None for mark in many), "merged by hour without hourly counts"


def _ended(at: datetime, status: RunStatus = RunStatus.SUCCEEDED, number: int = 0) -> Run:
    return a_run(
        id=RunId(f"r{number}"),
        schedule_id=ScheduleId("s"),
        origin=Origin.SCHEDULE,
        slot=at,
        status=status,
        created_at=at,
        planned_at=at,
        started_at=at,
        finished_at=at + timedelta(seconds=5),
    )


@pytest.mark.parametrize(
    ("decision", "given", "words"),
    [
        (Decision.FIRED, {}, "Due; started."),
        (Decision.FIRED, {"reason": Reason.CANCELED_BY_HAND}, "canceled by a user"),
        (Decision.FIRED, {"reason": Reason.CATCH_UP}, "catches up"),
        (Decision.SKIPPED, {"reason": Reason.OVERLAP}, "the previous run was still running"),
        (Decision.SKIPPED, {"reason": Reason.DEPENDENCY}, "its dependency did not succeed"),
        (Decision.SKIPPED, {"reason": Reason.SKIPPED_BY_HAND}, "skipped by a user"),
        (Decision.SKIPPED, {"reason": Reason.PAUSED}, "the schedule was paused"),
        (Decision.MISSED, {"reason": Reason.MISFIRE}, "no node was running"),
        (Decision.MISSED, {"missed_count": 7}, "7 runs missed"),
        (Decision.MANUAL, {"origin": Origin.MANUAL}, "Requested manually."),
        (Decision.BACKFILL, {"origin": Origin.BACKFILL}, "Backfill of a past slot"),
    ],
)
def test_each_decision_has_its_reason(
    decision: Decision, given: dict[str, object], words: str
) -> None:
    run = a_run(**({"origin": Origin.SCHEDULE} | given))
    (line,) = log_lines([FireLogEntry(at=NOW, decision=decision, run=run)])
    assert words in line.reason


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("pause", "me paused the schedule"),
        ("resume", "me resumed"),
        ("create", "me created the schedule"),
        ("update", "me changed the schedule"),
        ("delete", "me deleted"),
        ("restore", "me restored"),
        ("backfill", "backfilled"),
        ("run", "me requested a run"),
    ],
)
def test_each_change_names_the_user(verb: str, words: str) -> None:
    note = an_entry(verb=verb, actor="me", reason="why", changes={})
    (line,) = log_lines([FireLogEntry(at=NOW, decision=Decision.CHANGED, note=note)])
    assert words in line.reason
    assert line.comment == "why"


def test_log_lines_name_the_blocking_run_and_the_requester() -> None:
    old = a_run(
        id=RunId("old"),
        created_at=NOW - timedelta(minutes=2),
        finished_at=NOW + timedelta(minutes=1),
        status=RunStatus.SUCCEEDED,
        origin=Origin.MANUAL,
    )
    late = a_run(
        origin=Origin.SCHEDULE, status=RunStatus.SKIPPED, reason=Reason.OVERLAP, created_at=NOW
    )
    note = an_entry(verb="run", actor="anna", changes={"run_id": "old"})
    lines = log_lines(
        [
            FireLogEntry(at=NOW, decision=Decision.SKIPPED, run=late),
            FireLogEntry(at=old.created_at, decision=Decision.MANUAL, run=old),
            FireLogEntry(at=old.created_at, decision=Decision.MANUAL, note=note),
        ]
    )
    assert [line.blocking_run for line in lines] == ["old", None]
    assert lines[1].reason == "Requested by anna."


def test_log_cursors_round_trip() -> None:
    for position in (
        FireLogPosition(run=(5, "r"), note=7),
        FireLogPosition(run=None, note=7),
        FireLogPosition(run=(5, "r"), note=None),
    ):
        assert parse_cursor(encode_position(position)) == position
    assert parse_cursor("") is None
    for broken in ("x", "W10", "WzEsMl0", "A" * 600):
        with pytest.raises(InvalidInput):
            parse_cursor(broken)


def test_scatter_points_have_links_and_a_table() -> None:
    words = ScatterTexts(
        title="t", description="d", when="w", value="v", status="s", median="m", p95="p",
        span=lambda seconds: f"{seconds} s", state=lambda status: status.value,
        moment=lambda at: at.isoformat(),
    )  # fmt: skip
    points = [
        Point(at=NOW, seconds=1.0, status=RunStatus.SUCCEEDED, address="/ui/runs/a"),
        Point(at=NOW, seconds=9.0, status=RunStatus.FAILED, address="/ui/runs/b"),
    ]
    chart = scatter_chart(points, words)
    assert chart.svg.count("<a ") == 2
    assert "9.0 s" in chart.table
    assert scatter_chart([], words).svg == ""
    assert [quantile([3, 1, 2, 4], share) for share in (0.25, 0.5, 0.95)] == [1, 2, 4]
