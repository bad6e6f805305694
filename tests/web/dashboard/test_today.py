"""Today page, over ASGI and as pure functions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from chimes import Chimes
from chimes.errors import NotAllowed, NotFound
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor, Owner, OwnerType, Role, Scope
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    ENGINE,
    NO_LAGS,
    QUARTER,
    AttentionList,
    IssueCause,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleHealth,
    ScheduleIssue,
    StatusCounts,
    Window,
    sum_counts,
)
from chimes.model.listing import AuditQuery
from chimes.model.node import Node
from chimes.model.recipient import Channel
from chimes.model.run import LogEntry, RunStatus
from chimes.model.schedule import Schedule, plan_after
from chimes.services.attention import (
    SNOOZE_DURATION,
    CredentialRefusal,
    SnoozeService,
    without_suppressed,
)
from chimes.services.filters import Chip, Filter
from chimes.services.insights import UpcomingClockChanges, ZoneChange
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron
from chimes.triggers.clock_changes import ClockChange, affected_fire, clock_changes
from chimes.triggers.values import format_moment
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.core.times import describe_clock_change
from chimes.web.dashboard.today.routes import ATTENTION_PAGE_SIZE, CODE, MAX_NEEDS, MAX_RUNNING
from chimes.web.dashboard.today.views import (
    MAX_FIRES,
    MAX_LINE_LENGTH,
    SPANS,
    Choices,
    Numbers,
    ahead_chart,
    describe_causes,
    describe_zone_changes,
    health,
    heat_cells,
    heat_chart,
    heat_since,
    heat_window,
    lanes_by_label,
    lanes_of,
    last_day,
    needs_from,
    node_problems,
    parse_choices,
    running_count,
    running_rows,
    runs_between,
    short_line,
    tiles,
)
from tests.builders import MINUTE, NOW, a_node, a_run, a_schedule, with_definition
from tests.store_contract.scenes import running_run
from tests.web.dashboard.browsing import Browser, browsing

ANNA = Owner(type=OwnerType.USER, id="anna")
LOOK = DisplayPreferences(zone="UTC")
PARTS = {"HX-Request": "true"}


async def failing(
    browser: Browser, name: str = "broken", error: str = "HTTP 500 <boom>", **given: Any
) -> Schedule:
    """A schedule whose last two runs failed."""
    schedule = await browser.rig.store.add_schedule(
        a_schedule(
            name=name,
            owner=SYSTEM_OWNER,
            last_status=RunStatus.FAILED,
            last_error=error,
            **given,
        )
    )
    for ago in (30, 20):
        moment = NOW - ago * MINUTE
        run = a_run(
            schedule,
            status=RunStatus.FAILED,
            slot=moment,
            planned_at=moment,
            created_at=moment,
            started_at=moment,
            finished_at=moment + MINUTE,
            error=error,
        )
        await browser.rig.store.load([run])
    return schedule


# --- page -----------------------------------------------------------------------------------------
async def test_without_schedules_the_page_offers_ways_to_start_and_the_demo() -> None:
    async with browsing() as browser:
        page = (await browser.get("/ui/")).text
        for title in ("Describe it", "Pick a template", "Use code"):
            assert title in page
        assert 'action="/ui/schedules/new"' in page
        assert 'name="words"' in page
        presets = re.findall(r'href="(/ui/schedules/new\?preset=[^"]+)"', page)
        assert len(presets) == 6
        assert "Health ping" in page
        assert (await browser.get(presets[0])).status_code == 200
        await browser.get("/ui/")
        loaded = await browser.send("/ui/demo/load")
        page = (await browser.follow(loaded)).text
        assert "10 demo schedules" in page
        assert "Demo: nightly backup" in page
        assert "need attention" in page
        assert "generated history" in page
        dialog = await browser.send("/ui/demo/remove")
        assert "Remove the demo?" in dialog.text
        removed = await browser.send("/ui/demo/remove")
        assert "Describe it" in (await browser.follow(removed)).text


def test_the_code_example_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the last line, which would run forever."""
    monkeypatch.chdir(tmp_path)
    *lines, last = CODE.strip().splitlines()
    assert last == "app.run()"
    names: dict[str, Any] = {"__name__": "shown"}
    exec("\n".join(lines), names)
    assert isinstance(names["app"], Chimes)


async def test_the_health_line_counts_schedules_and_shows_the_next_run() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        await browser.rig.store.join(a_node(), timedelta(hours=1))
        page = (await browser.get("/ui/")).text
        assert re.search(r"All good – 1 schedule, 0 running, next in \d+ (h|min)", page)
        assert "Needs attention" not in page


async def test_a_failing_schedule_is_shown_with_cause_and_action() -> None:
    async with browsing() as browser:
        schedule = await failing(browser)
        await browser.rig.store.join(a_node(), timedelta(hours=1))
        page = (await browser.get("/ui/")).text
        assert "1 needs attention" in page
        assert "2 failures in a row: HTTP 500 &lt;boom&gt;" in page
        assert "<boom>" not in page
        own = f"/ui/schedules/{schedule.id}"
        for address in (f"{own}/run", f"{own}/pause", f"/ui/attention/{schedule.id}/snooze"):
            assert f'action="{address}"' in page
        assert f'href="{own}/edit"' in page
        assert re.search(r'href="/ui/runs/[^"]+" data-key="l">Open log', page)


async def test_a_snooze_hides_a_warning_for_a_day_for_one_user() -> None:
    async with browsing() as browser:
        schedule = await failing(browser)
        snooze = f"/ui/attention/{schedule.id}/snooze"
        await browser.rig.store.join(a_node(), timedelta(days=3))
        done = await browser.send(snooze, on="/ui/")
        page = (await browser.follow(done)).text
        assert "All good" in page
        assert "1 is snoozed or known." in page
        service = SnoozeService(browser.rig.store)
        other = Actor(owner=ANNA, role=Role.OPERATOR)
        assert await service.get_suppressions(other, browser.rig.clock.now()) == {}
        await browser.send(f"/ui/attention/{schedule.id}/wake")
        assert "1 needs attention" in (await browser.get("/ui/")).text
        token = re.findall(r'name="csrf" value="([^"]+)"', browser.page)[0]
        wrong = await browser.post(snooze, {"csrf": token, "cause": "boredom"})
        assert wrong.status_code == 422


async def test_live_parts_are_rendered_separately() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        for part, has in (
            ("health", 'class="health'),
            ("ahead", 'class="chart timeline fluid"'),
            ("running", "No runs in progress."),
        ):
            found = (await browser.get(f"/ui/?part={part}", **PARTS)).text
            assert has in found
            assert "<html" not in found


async def test_the_card_of_a_fire_offers_its_actions() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(
            trigger={"kind": "cron", "expression": "0 */2 * * *", "timezone": "Asia/Bangkok"}
        )
        page = (await browser.get("/ui/?span=6h")).text
        fires = [
            each.replace("&amp;", "&") for each in re.findall(r'href="(/ui/fires/[^"]+)"', page)
        ]
        assert len(fires) == 2
        own = f"/ui/schedules/{made['id']}"
        card = (await browser.get(fires[0])).text
        for action in ("run", "skip", "move"):
            assert f'action="{own}/{action}"' in card
        later = (await browser.get(fires[1])).text
        assert f'action="{own}/skip"' not in later
        assert "Only the next fire" in later
        part = (await browser.get(fires[0], **PARTS)).text
        assert part.lstrip().startswith("<dialog data-open")
        assert (await browser.get("/ui/fires/nobody?at=2026-01-01T00:00:00Z")).status_code == 404
        assert (await browser.get(fires[0].partition("?")[0])).status_code == 422


async def test_the_card_of_a_merged_mark_lists_all_fires() -> None:
    async with browsing() as browser:
        await browser.rig.create(
            trigger={"kind": "cron", "expression": "*/20 * * * *", "timezone": "Asia/Bangkok"}
        )
        page = (await browser.get("/ui/?span=7d")).text
        marks = [
            each.replace("&amp;", "&") for each in re.findall(r'href="(/ui/fires/[^"]+)"', page)
        ]
        several = next(each for each in marks if "until=" in each)
        card = (await browser.get(several)).text
        (count,) = re.findall(r"<dt>(\d+) fires in this mark</dt>", card)
        assert len(re.findall(r"<li><time ", card)) == int(count) > 1
        alone = (await browser.get(several.partition("&until=")[0])).text
        assert "fires in this mark" not in alone
        assert (await browser.get(f"{marks[0].partition('&')[0]}&until=never")).status_code == 422


async def test_the_card_of_a_fire_has_both_zones_and_the_last_result() -> None:
    async with browsing() as browser:
        trigger = Cron("0 9 * * *", timezone="America/New_York")
        schedule = plan_after(a_schedule(trigger=trigger, owner=SYSTEM_OWNER), NOW)
        await browser.rig.store.add_schedule(schedule)
        await browser.rig.store.load(
            [
                a_run(
                    schedule,
                    status=RunStatus.TIMEOUT,
                    started_at=NOW - 30 * MINUTE,
                    finished_at=NOW - 20 * MINUTE,
                )
            ]
        )
        browser.client.cookies.set("chimes_look", "zone=Asia%2FTokyo")
        page = (await browser.get("/ui/?span=7d")).text
        (first, *_) = re.findall(r'href="(/ui/fires/[^"]+)"', page)
        card = (await browser.get(first.replace("&amp;", "&"))).text
        assert re.search(r"2[23]:00 JST", card)
        assert re.search(r"09:00 E[SD]T", card)
        assert "timed out" in card
        for words in ("Run now", "Skip", "Move", "Open"):
            assert words in card


async def test_running_runs_show_last_line_attempt_and_node() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        run = await running_run(browser.rig.store)
        lines = [LogEntry(at=NOW, message="first"), LogEntry(at=NOW, message="<b>\x1b[1mlast")]
        await browser.rig.store.append_logs(run.id, run.fence, lines)
        for found in (
            (await browser.get("/ui/")).text,
            (await browser.get("/ui/?part=running", **PARTS)).text,
        ):
            assert "<code>&lt;b&gt;last</code>" in found
            assert str(run.holder) in found
            assert f"1 of {run.policy.max_retries + 1}" in found
            assert f'href="/ui/runs/{run.id}#log"' in found
            assert f'action="/ui/runs/{run.id}/cancel"' in found


async def test_more_running_runs_are_linked() -> None:
    async with browsing() as browser:
        for number in range(MAX_RUNNING):
            part = (await browser.get("/ui/?part=running", **PARTS)).text
            assert "Show all" not in part
            await running_run(browser.rig.store, node_id=f"node-{number}")
        part = (await browser.get("/ui/?part=running", **PARTS)).text
        assert 'href="/ui/runs?q=status:running">Show all' in part


async def test_the_attention_page_lists_all_issues() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        await store.join(a_node(), timedelta(hours=1))
        empty = (await browser.get("/ui/attention")).text
        assert "No schedule needs attention" in empty
        stuck = [
            a_schedule(
                name=f"stuck {number:02}", enabled=False, pause_note="gone", updated_by=ENGINE
            )
            for number in range(ATTENTION_PAGE_SIZE + 3)
        ]
        await store.load(stuck)
        today = (await browser.get("/ui/")).text
        assert f"{ATTENTION_PAGE_SIZE + 3} need attention" in today
        more = ATTENTION_PAGE_SIZE + 3 - MAX_NEEDS
        assert f'<a href="/ui/attention">and {more} more</a>' in today
        first = (await browser.get("/ui/attention")).text
        assert first.count('class="need"') == ATTENTION_PAGE_SIZE
        assert 'name="back" value="/ui/attention"' in first
        (address,) = re.findall(r'rel="next" href="([^"]+)"', first)
        whole = (await browser.get(address)).text
        assert {each.name for each in stuck} <= set(re.findall(r"<strong>([^<]+)</strong>", whole))
        assert 'rel="next"' not in whole
        part = (await browser.get(address, **PARTS)).text
        assert part.count('class="need"') == ATTENTION_PAGE_SIZE + 3
        assert "<html" not in part
        for odd in ("x", "-1", "0", "99999", "²"):
            page = await browser.get(f"/ui/attention?most={odd}")
            assert page.text.count('class="need"') == ATTENTION_PAGE_SIZE
        done = await browser.send(f"/ui/attention/{stuck[0].id}/snooze", on=address)
        page = (await browser.follow(done)).text
        assert page.count('class="need"') == ATTENTION_PAGE_SIZE + 2
        assert "1 is snoozed or known." in page


async def test_a_rejected_token_replaces_the_failure_message() -> None:
    async with browsing() as browser:
        schedule = await failing(browser, error="HTTP 401 Unauthorized")
        await browser.rig.store.join(a_node(), timedelta(hours=1))
        page = (await browser.get("/ui/")).text
        assert "1 needs attention" in page
        assert "The receiver rejects the secret or token: HTTP 401 Unauthorized" in page
        assert "failures in a row" not in page
        for action in ("run", "pause"):
            assert f'action="/ui/schedules/{schedule.id}/{action}"' in page
        done = await browser.send(f"/ui/attention/{schedule.id}/snooze", on="/ui/")
        assert "All good" in (await browser.follow(done)).text


async def test_an_upcoming_clock_change_is_shown_with_its_effect() -> None:
    clock = SettableClock(datetime(2027, 3, 12, 7, tzinfo=UTC))
    async with browsing(store=MemoryStore(clock), clock=clock) as browser:
        made = await browser.rig.create(
            trigger={"kind": "cron", "expression": "30 2 * * *", "timezone": "America/New_York"}
        )
        await browser.rig.store.join(a_node(), timedelta(hours=1))
        page = (await browser.get("/ui/?span=7d")).text
        assert "1 needs attention" in page
        assert "Sun 14 Mar: 02:30 does not exist in America/New_York; it fires at 03:00." in page
        assert "clocks in America/New_York go forward by 1 h; affects 1 schedule." in page
        assert f'href="/ui/schedules/{made["id"]}/edit"' in page
        browser.client.cookies.set("chimes_look", "zone=America%2FNew_York")
        assert 'class="dst"' in (await browser.get("/ui/?span=7d")).text


async def test_chart_choices_are_in_the_url_and_in_the_parts() -> None:
    async with browsing() as browser:
        await browser.rig.create(labels={"team": "billing"})
        await browser.rig.create(name="another", labels={"team": "billing", "urgent": None})
        await browser.rig.create(name="bare")
        browser.client.cookies.set("chimes_look", "zone=Asia%2FTokyo")
        page = (await browser.get("/ui/?lanes=label&span=7d&clock=utc&heat=14d")).text
        assert "Upcoming runs (UTC)" in page
        assert "Last 14 days by hour (UTC)" in page or "last fourteen days" in page
        assert 'hx-get="/ui/?part=ahead&amp;span=7d&amp;lanes=label&amp;clock=utc' in page
        for name in ("team=billing", "urgent", "no label"):
            assert f"<title>{name}</title>" in page
        assert 'href="/ui/schedules?q=label%3Ateam%3Dbilling"' in page
        part = (await browser.get("/ui/?part=ahead&lanes=label&clock=utc", **PARTS)).text
        assert "team=billing" in part
        assert "<html" not in part
        usual = (await browser.get("/ui/?lanes=nonsense&span=1y&clock=x&heat=9")).text
        assert "Upcoming runs (Asia/Tokyo)" in usual
        assert "<title>team=billing</title>" not in usual


async def test_a_cell_of_the_heat_map_opens_the_runs_of_that_hour_in_tokyo() -> None:
    """On both sides of midnight in Tokyo."""
    clock = SettableClock(datetime(2026, 11, 15, 16, tzinfo=UTC))
    async with browsing(store=MemoryStore(clock), clock=clock) as browser:
        schedule = await browser.rig.store.add_schedule(a_schedule(owner=SYSTEM_OWNER))
        before, after = (
            a_run(
                schedule,
                status=RunStatus.SUCCEEDED,
                planned_at=at,
                created_at=at,
                started_at=at,
                finished_at=at,
            )
            # 23:50 and 00:10 in Tokyo.
            for at in (
                datetime(2026, 11, 15, 14, 50, tzinfo=UTC),
                datetime(2026, 11, 15, 15, 10, tzinfo=UTC),
            )
        )
        await browser.rig.store.load([before, after])
        browser.client.cookies.set("chimes_look", "zone=Asia%2FTokyo")
        page = (await browser.get("/ui/?heat=14d")).text
        assert "Last 14 days by hour (Asia/Tokyo)" in page
        rows = re.findall(r"<tr><td>([^<]+)</td><td>(\d\d:00)</td><td>1</td><td>0</td></tr>", page)
        assert rows == [("Sun 15 Nov", "23:00"), ("Mon 16 Nov", "00:00")]
        cells = [
            each.replace("&amp;", "&")
            for each in re.findall(r'href="(/ui/runs\?q=since[^"]+)" aria-label', page)
        ]
        assert len(cells) == 2
        for cell, mine, other in ((cells[0], before, after), (cells[1], after, before)):
            listed = (await browser.get(cell)).text
            assert mine.id in listed
            assert other.id not in listed


async def test_recent_changes_include_deleted_schedules() -> None:
    async with browsing() as browser:
        kept = await browser.rig.create(name="kept")
        gone = await browser.rig.create(name="gone by now")
        await browser.rig.client.delete(f"/api/v1/schedules/{gone['id']}")
        page = (await browser.get("/ui/")).text
        assert re.search(r">gone by now</a><br><span>\S+ deleted the schedule.", page)
        assert re.search(r">kept</a><br><span>\S+ created the schedule.", page)
        assert f'href="/ui/schedules/{kept["id"]}"' in page


async def test_other_owners_see_nothing() -> None:
    async with browsing() as browser:
        schedule = await failing(browser, name="secret plan")
        await browser.rig.store.join(a_node("node-secret"), timedelta(hours=1))
        made = await browser.rig.key(Role.MEMBER, ANNA)
        key = made["Authorization"].removeprefix("Bearer ")
        await browser.send("/ui/login", on="/ui/login", key=key)
        page = (await browser.get("/ui/")).text
        assert "secret" not in page
        assert "Describe it" in page, "the user has no schedules yet"
        assert "Load demo data" not in page
        assert (
            await browser.get(f"/ui/fires/{schedule.id}?at=2026-01-01T00:00Z")
        ).status_code == 404
        await browser.rig.store.add_schedule(a_schedule(name="of anna", owner=ANNA))
        page = (await browser.get("/ui/")).text
        assert "of anna" in page
        assert "secret" not in page
        assert "Recent changes" not in page
        token = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        for address in (f"/ui/attention/{schedule.id}/snooze", f"/ui/attention/{schedule.id}/wake"):
            answer = await browser.post(address, {"csrf": token, "cause": "failing"})
            assert answer.status_code == 404
        for address in ("/ui/demo/load", "/ui/demo/remove"):
            answer = await browser.post(address, {"csrf": token, "sure": "yes"})
            assert answer.status_code == 403


# --- texts ----------------------------------------------------------------------------------------
def test_the_health_line_is_translated() -> None:
    counts = ScheduleCounts(total=214)
    soon = health(0, counts, 3, NOW + 4 * MINUTE, LOOK, NOW)
    assert soon.sentence == "All good – 214 schedules, 3 running, next in 4 min"
    assert soon.good
    overdue = health(0, counts, 3, NOW - MINUTE, LOOK, NOW)
    assert overdue.sentence.endswith("next now")
    assert health(0, counts, 0, None, LOOK, NOW).sentence.endswith("nothing planned")
    bad = health(2, counts, 3, None, LOOK, NOW)
    assert (bad.sentence, bad.good) == ("2 need attention", False)
    assert health(1, counts, 3, None, LOOK, NOW).sentence == "1 needs attention"


def a_live_node(name: str, lease: timedelta) -> Node:
    return replace(a_node(name), lease_until=NOW + lease)


def test_nodes_with_wrong_clocks_are_problems() -> None:
    right, ahead = a_live_node("right", MINUTE), a_live_node("ahead", MINUTE)
    late, dead = a_live_node("late", MINUTE), a_live_node("dead", -MINUTE)
    offsets = (0.9, 3.0, -2.0, 99.0)
    nodes = [
        replace(node, clock_offset=offset)
        for node, offset in zip((right, ahead, late, dead), offsets, strict=True)
    ]
    found = node_problems(nodes, "", NOW)
    assert [(each.id, each.offset) for each in found.skewed] == [("ahead", 3.0), ("late", -2.0)]
    assert found.count == 3


def test_causes_are_described() -> None:
    schedule = a_schedule(owner=ANNA)
    sign = ScheduleIssue(schedule_id=schedule.id, cause=IssueCause.REFUSED, at=NOW)
    attention = ScheduleAttention(schedule=schedule, sign=sign)

    def description(channel: Channel | None, error: str = "no") -> str:
        refusal = CredentialRefusal(found=attention, channel=channel, error=error)
        return describe_causes([refusal], [], LOOK, NOW)[schedule.id]

    assert description(None) == "The receiver rejects the secret or token: no"
    assert description(Channel.TELEGRAM) == "Telegram rejects its messages: no"
    assert description(Channel.EMAIL) == "The mail server rejects its messages: no"
    assert description(Channel.WEBHOOK) == "The webhook rejects its messages: no"
    assert description(None, "x" * 999).endswith("x…")
    back, forward = (
        ZoneChange(change=ClockChange(zone="Europe/Paris", at=NOW, by=by), schedules=2)
        for by in (-timedelta(hours=1), timedelta(minutes=30))
    )
    one, two = describe_zone_changes(UpcomingClockChanges(zones=(back, forward)), LOOK, NOW)
    assert "clocks in Europe/Paris go back by 1 h; affects 2 schedules." in one
    assert "clocks in Europe/Paris go forward by 30 min; affects 2 schedules" in two


@pytest.mark.parametrize(
    ("expression", "description"),
    [
        ("30 1 * * *", "Sun 1 Nov: 01:30 occurs twice in {}; it fires only the first time."),
        ("*/20 1 * * *", "Sun 1 Nov: 01:00 occurs twice in {}; it fires both times."),
    ],
)
def test_repeated_hours_are_described(expression: str, description: str) -> None:
    zone, now = "America/New_York", datetime(2026, 10, 30, tzinfo=UTC)
    (change,) = clock_changes(zone, now, now + timedelta(days=7))
    touched = affected_fire(Cron(expression, timezone=zone), change)
    assert touched is not None
    assert describe_clock_change(touched, LOOK, now) == description.format(zone)


def test_dead_nodes_are_problems() -> None:
    one, gone = a_live_node("one", MINUTE), a_live_node("gone", -MINUTE)
    assert node_problems([one], "", NOW).count == 0
    assert node_problems([one, gone], "", NOW).dead == ("gone",)
    alone = node_problems([gone], "", NOW)
    assert (alone.none_alive, alone.count) == (True, 1)
    without_nodes = node_problems([], "disk full", NOW)
    assert (without_nodes.none_alive, without_nodes.count) == (True, 2)


@pytest.mark.parametrize(
    ("cause", "best", "for_viewers"),
    [
        (IssueCause.STOPPED, "edit", "log"),
        (IssueCause.REFUSED, "edit", "log"),
        (IssueCause.FAILING, "run", "log"),
        (IssueCause.MISSED, "run", "log"),
        (IssueCause.LATE, "log", "log"),
        (IssueCause.PAUSE_OVER, "resume", "log"),
        (IssueCause.CLOCK_CHANGE, "edit", "log"),
    ],
)
def test_every_cause_has_an_action_that_the_user_may_perform(
    cause: IssueCause, best: str, for_viewers: str
) -> None:
    schedule = a_schedule(owner=ANNA)
    sign = ScheduleIssue(schedule_id=schedule.id, cause=cause, at=NOW, lag=MINUTE)
    found = AttentionList(total=1, items=(ScheduleAttention(schedule=schedule, sign=sign),))
    (owner,) = needs_from(found, Actor(owner=ANNA, role=Role.MEMBER))
    (viewer,) = needs_from(found, Actor(owner=ANNA, role=Role.VIEWER))
    assert (owner.action, viewer.action) == (best, for_viewers)
    assert owner.log_address == f"/ui/schedules/{schedule.id}/log"


def a_tally(at: datetime, **statuses: int) -> StatusCounts:
    return StatusCounts(
        at=at, statuses={RunStatus(name): count for name, count in statuses.items()}
    )


def test_every_tile_links_to_its_list() -> None:
    day = Window.last(timedelta(hours=24), NOW)
    quarters = [
        a_tally(day.since - QUARTER, succeeded=90),
        a_tally(day.since, succeeded=9, failed=1),
    ]
    numbers = Numbers(
        counts=ScheduleCounts(total=5, due_soon=2),
        running=7,
        day=last_day(quarters, NOW),
        week=a_tally(day.since, succeeded=99, failed=1),
        lag=NO_LAGS,
        since=day.since,
    )
    operator = tiles(numbers, Actor(role=Role.OPERATOR), LOOK)
    assert [tile.value for tile in operator] == ["2", "7", "1", "90%", "–"]
    assert [tile.tone for tile in operator] == ["", "", "bad", "warn", ""]
    assert operator[0].address == "/ui/schedules?q=next%3A%3C1h"
    assert operator[1].address == "/ui/runs?q=status%3Arunning"
    failed = operator[2].address
    assert "status%3Afailed" in failed
    assert "status%3Atimeout" in failed
    assert "since%3A" in failed
    assert operator[4].address.startswith("/ui/system")
    member = tiles(numbers, Actor(owner=ANNA, role=Role.MEMBER), LOOK)
    assert member[4].address.startswith("/ui/runs")
    nothing = replace(numbers, day=a_tally(NOW), week=a_tally(NOW))
    assert tiles(nothing, Actor(), LOOK)[3].text == "succeeded in 24 h"


def test_running_runs_are_compared_with_the_median() -> None:
    schedule, since = a_schedule(), NOW - 2 * MINUTE
    run = a_run(schedule, status=RunStatus.RUNNING, attempt=2, started_at=since, owner=ANNA)
    shown = [run, with_definition(run, schedule_id=None)]
    usual = {schedule.id: ScheduleHealth(median=4 * MINUTE)}
    lines = {run.id: LogEntry(at=NOW, message="\x1b[32m10 %\x1b[0m of it\n  <b>")}
    known, unknown = running_rows(
        shown, usual, lines, Actor(owner=ANNA, role=Role.MEMBER), LOOK, NOW
    )
    assert (known.elapsed, known.share, known.may_cancel) == (2 * MINUTE, 0.5, True)
    assert unknown.share is None
    assert known.line == "10 % of it <b>"
    (dialog,) = running_rows([replace(run, cancel_requested=True)], {}, {}, Actor(), LOOK, NOW)
    assert not dialog.may_cancel
    assert dialog.line == ""
    long = short_line("x" * 5000)
    assert long == "x" * MAX_LINE_LENGTH + "…"
    assert running_count(shown, 20, a_tally(NOW, running=90)) == 2
    assert running_count(shown, 2, a_tally(NOW, running=90)) == 90
    assert running_count(shown, 2, a_tally(NOW)) == 2


# --- charts ---------------------------------------------------------------------------------------
def a_cron(expression: str, zone: str = "UTC", **given: Any) -> Schedule:
    return plan_after(a_schedule(trigger=Cron(expression, timezone=zone), **given), NOW)


def test_lanes_limit_the_number_of_fires() -> None:
    dense, daily = a_cron("* * * * * *", name="dense"), a_cron("0 3 * * *", name="daily")
    end = NOW + timedelta(hours=24)
    lanes = lanes_of([dense, daily], {}, end, NOW)
    assert [(lane.name, len(lane.fires), lane.more) for lane in lanes] == [
        ("dense", MAX_FIRES, True),
        ("daily", 1, False),
    ]
    svg = ahead_chart(lanes, SPANS["24h"], LOOK, NOW).svg
    assert f"×{MAX_FIRES}+" in svg
    assert 'class="rest"' in svg
    assert lanes_of([daily], {daily.id: ScheduleHealth()}, NOW + MINUTE, NOW) == []


def test_lanes_by_label() -> None:
    one = a_cron("0 3 * * *", name="one", labels={"team": "a"})
    two = a_cron("0 2 * * *", name="two", labels={"team": "a", "big": None})
    dense = a_cron("* * * * *", name="dense")
    lanes = lanes_by_label([one, two, dense], {}, NOW + timedelta(hours=24), NOW, "none")
    assert {lane.name: [fire.name for fire in lane.fires][:2] for lane in lanes} == {
        "none": ["dense", "dense"],
        "big": ["two"],
        "team=a": ["two", "one"],
    }
    assert lanes[0].name == "none", "lanes are ordered by next fire"
    assert [lane.more for lane in lanes if lane.name == "none"] == [True]
    chart = ahead_chart(lanes, SPANS["24h"], LOOK, NOW, by_label=True)
    assert '<th scope="col">Label</th><th scope="col">Schedule</th>' in chart.table
    assert "<td>team=a</td><td>one</td>" in chart.table
    assert chart.names is not None
    assert "/ui/schedules?q=label%3Ateam%3Da" in chart.names


@pytest.mark.parametrize("query", [{}, {"span": "6h"}, {"lanes": "label", "clock": "utc"}])
def test_choices_round_trip_through_the_url(query: dict[str, str]) -> None:
    choices = parse_choices(query)
    assert dict(parse_qsl(urlsplit(choices.address()).query)) == query
    other = urlsplit(choices.address(heat="14d", part="ahead"))
    assert dict(parse_qsl(other.query)) == query | {"heat": "14d", "part": "ahead"}
    back = parse_choices({"heat": "14d", **query})
    assert back.address(heat="7d") == choices.address()


def test_charts_use_the_time_zone_of_the_page_by_default() -> None:
    tokyo, by_utc = (
        DisplayPreferences(zone="Asia/Tokyo"),
        DisplayPreferences(zone="Asia/Tokyo", clock="utc"),
    )
    assert (Choices().zone(tokyo), Choices().zone(by_utc)) == ("Asia/Tokyo", "UTC")
    assert Choices(clock="utc").zone(tokyo) == "UTC"
    assert Choices(clock="mine").zone(by_utc) == "Asia/Tokyo"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Asia/Kolkata", "Asia/Kathmandu"])
def test_axis_ticks_are_local_hours(zone: str) -> None:
    from zoneinfo import ZoneInfo

    start = datetime(2026, 11, 15, 14, 47, tzinfo=UTC)
    for ahead in SPANS.values():
        for tick in times.ticks_between(zone, start, start + ahead.length, ahead.step):
            local = tick.astimezone(ZoneInfo(zone))
            assert (local.minute, local.hour % ahead.step) == (0, 0)
    days = times.ticks_between(zone, start, start + timedelta(days=7), 24)
    assert len(days) == 7


def test_a_clock_change_is_drawn_as_a_line() -> None:
    now = datetime(2026, 10, 31, 20, tzinfo=UTC)
    display = DisplayPreferences(zone="America/New_York")
    schedule = plan_after(a_schedule(trigger=Cron("0 * * * *", timezone="UTC")), now)
    end = now + timedelta(hours=24)
    lanes = lanes_of([schedule], {}, end, now)
    assert 'class="dst"' in ahead_chart(lanes, SPANS["24h"], display, now).svg
    assert 'class="dst"' not in ahead_chart(lanes, SPANS["24h"], LOOK, now).svg
    ticks = times.ticks_between("America/New_York", now, end, 1)
    assert len(ticks) == 22, "23 hours between, and the repeated hour has one label"


@pytest.mark.parametrize(
    ("zone", "at", "row", "hour"),
    [
        # 23:45 and 00:15 in Tokyo, on both sides of midnight
        ("Asia/Tokyo", datetime(2026, 11, 15, 14, 45, tzinfo=UTC), 5, 23),
        ("Asia/Tokyo", datetime(2026, 11, 15, 15, 15, tzinfo=UTC), 6, 0),
        # offset 05:30: 18:15 UTC is 23:45, 18:30 UTC is midnight
        ("Asia/Kolkata", datetime(2026, 11, 14, 18, 15, tzinfo=UTC), 5, 23),
        ("Asia/Kolkata", datetime(2026, 11, 14, 18, 30, tzinfo=UTC), 6, 0),
        ("UTC", datetime(2026, 11, 15, 15, 15, tzinfo=UTC), 6, 15),
    ],
)
def test_heat_map_cells_are_local_days_and_hours(
    zone: str, at: datetime, row: int, hour: int
) -> None:
    now = datetime(2026, 11, 15, 16, tzinfo=UTC)
    cells = heat_cells([a_tally(at, succeeded=3, failed=1)], zone, now)
    found = [(r, h) for r, hours in enumerate(cells) for h, cell in enumerate(hours) if cell.count]
    assert found == [(row, hour)]
    cell = cells[row][hour]
    assert (cell.count, cell.failed) == (4, 1)
    assert cell.address is not None
    assert f"{at:%Y-%m-%dT%H}%3A{at:%M}" in cell.address
    chart = heat_chart(cells, DisplayPreferences(zone=zone), now)
    assert cell.address.replace("&", "&amp;") in chart.svg
    assert f"<td>{hour:02d}:00</td>" in chart.table


@pytest.mark.parametrize(
    ("zone", "minutes"),
    [
        ("UTC", 60),
        ("Asia/Bangkok", 60),
        ("America/New_York", 60),
        ("Asia/Kolkata", 15),
        ("Asia/Kathmandu", 15),
        # The offset has a half hour until 4 October and none afterwards.
        ("Australia/Lord_Howe", 15),
    ],
)
def test_hourly_buckets_are_used_if_the_utc_offset_is_whole_hours(zone: str, minutes: int) -> None:
    now = datetime(2026, 10, 5, 16, 20, tzinfo=UTC)
    window, step = heat_window(zone, now)
    assert step == minutes * MINUTE
    assert window.since == heat_since(zone, now)
    assert window.until == datetime(2026, 10, 5, 16, 30, tzinfo=UTC)
    quarters = [a_tally(at, succeeded=n % 5) for n, at in enumerate(window.starts(QUARTER))]
    tallies = [
        sum_counts((each for each in quarters if at <= each.at < at + step), at)
        for at in window.starts(step)
    ]
    by_quarter, by_step = (
        [[cell.count for cell in row] for row in cells]
        for cells in (
            heat_cells(quarters, zone, now),
            heat_cells(tallies, zone, now, step=step),
        )
    )
    assert by_step == by_quarter
    assert sum(map(sum, by_step)) == sum(each.total for each in quarters)


def test_a_heat_map_cell_links_to_its_filter() -> None:
    since, until = NOW, NOW + QUARTER / 7
    chips = (Chip("since", format_moment(since)), Chip("until", format_moment(until)))
    assert runs_between(since, until) == Filter(chips=chips).address("/ui/runs")


def test_a_repeated_hour_is_one_cell_of_the_heat_map() -> None:
    now = datetime(2026, 11, 1, 12, tzinfo=UTC)  # the clocks of New York go back on this day
    since = heat_since("America/New_York", now)
    assert since == datetime(2026, 10, 26, 4, tzinfo=UTC)
    quarters = [
        a_tally(datetime(2026, 11, 1, 5, tzinfo=UTC) + n * QUARTER, failed=1) for n in range(8)
    ]
    cell = heat_cells(quarters, "America/New_York", now)[6][1]
    assert cell.count == 8
    assert cell.address is not None
    assert "T05%3A00" in cell.address
    assert "T07%3A00" in cell.address


# --- snoozing -------------------------------------------------------------------------------------
async def test_a_worse_issue_is_shown_despite_a_snooze() -> None:
    clock = SettableClock()
    store = MemoryStore(clock)
    schedule = await store.add_schedule(a_schedule(owner=ANNA))
    anna, service = Actor(owner=ANNA, role=Role.MEMBER), SnoozeService(store)
    until = await service.snooze(anna, schedule.id, IssueCause.LATE)
    assert until == NOW + SNOOZE_DURATION
    snoozes = await service.get_suppressions(anna, NOW)

    def visible_issues(cause: IssueCause) -> AttentionList:
        sign = ScheduleIssue(schedule_id=schedule.id, cause=cause, at=NOW)
        found = AttentionList(total=1, items=(ScheduleAttention(schedule=schedule, sign=sign),))
        return without_suppressed(found, snoozes, 20)

    assert (
        visible_issues(IssueCause.LATE) == visible_issues(IssueCause.PAUSE_OVER) == AttentionList()
    )
    assert visible_issues(IssueCause.FAILING).total == 1
    assert await service.get_suppressions(anna, until) == {}
    await service.unsnooze(anna, schedule.id)
    assert await service.get_suppressions(anna, NOW) == {}
    assert [each.verb for each in await store.list_audit(AuditQuery())] == ["wake", "snooze"]


async def test_snoozing_is_authorised() -> None:
    store = MemoryStore(SettableClock())
    schedule = await store.add_schedule(a_schedule(owner=ANNA))
    service = SnoozeService(store)
    bob = Actor(owner=Owner(type=OwnerType.USER, id="bob"), role=Role.MEMBER)
    with pytest.raises(NotFound):
        await service.snooze(bob, schedule.id, IssueCause.LATE)
    with pytest.raises(NotFound):
        await service.unsnooze(bob, ScheduleId("nobody"))
    viewer = Actor(owner=ANNA, role=Role.VIEWER)
    await service.snooze(viewer, schedule.id, IssueCause.LATE)
    narrowed = replace(viewer, scopes=(Scope.READ,))
    with pytest.raises(NotAllowed):
        await service.snooze(narrowed, schedule.id, IssueCause.LATE)


@pytest.mark.parametrize(
    "damaged", ["{", "[]", '{"a": 1}', '{"a": ["late", "x"]}', '{"a": ["b", ""]}']
)
async def test_corrupt_snoozes_are_ignored(damaged: str) -> None:
    store = MemoryStore(SettableClock())
    await store.set_checkpoint(f"snoozed:{ANNA}", damaged)
    assert await SnoozeService(store).get_suppressions(Actor(owner=ANNA), NOW) == {}


async def test_banner_while_maintenance_is_on() -> None:
    async with browsing() as browser:
        await browser.rig.create()
        assert "Maintenance is on" not in (await browser.get("/ui/")).text
        for namespace in (None, "shop"):
            body = {"namespace": namespace, "reason": "new <disk>"}
            await browser.rig.client.post("/api/v1/maintenance", json=body)
        page = (await browser.get("/ui/")).text
        assert "Maintenance is on: no schedule fires." in page
        assert "Maintenance is on for the namespace shop" in page
        assert "new &lt;disk&gt;" in page
