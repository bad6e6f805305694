"""Month view of schedules: local days, fires of the scheduler, limits."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, plan_after, upcoming_fires
from chimes.triggers import Cron, Every, Trigger
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.schedules import month as month_module
from chimes.web.dashboard.schedules.month import (
    MAX_SLOTS,
    Planned,
    midnight,
    month_name,
    parse_day,
    parse_month,
    plan_month,
    span_of,
    weekdays,
    weeks_of,
)
from tests.builders import a_schedule
from tests.web.dashboard.browsing import browsing
from tests.web.dashboard.test_runs import ended

MONTH = "/ui/schedules?view=month"
NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
ZONES = ("UTC", "Asia/Bangkok", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo")


def scheduled(trigger: Trigger, **given: Any) -> Schedule:
    return plan_after(a_schedule(trigger=trigger, next_slot=None, **given), NOW)


@pytest.mark.parametrize("zone", ZONES)
def test_days_of_a_year_are_contiguous(zone: str) -> None:
    first = date(2026, 1, 1)
    moments = [midnight(first + timedelta(days=number), zone) for number in range(366)]
    lengths = {after - before for before, after in pairwise(moments)}
    assert timedelta(hours=24) in lengths
    assert lengths <= {timedelta(minutes=each) for each in (23 * 60, 23.5 * 60, 1440, 1470, 1500)}
    for number in range(12):
        span = span_of(date(2026, number + 1, 1), zone)
        assert span.end == span_of(month_module.next_month(span.first), zone).start


@pytest.mark.parametrize("zone", ZONES)
def test_fires_match_the_scheduler_on_their_local_day(zone: str) -> None:
    span = span_of(date(2027, 3, 1), zone)
    schedules = [
        scheduled(Cron("30 2 * * *", timezone="America/New_York")),
        scheduled(Cron("0 */6 * * *", timezone="Asia/Tokyo"), name="often"),
        scheduled(Every("7h", anchor=NOW)),
        scheduled(Every("24h", anchor=NOW, jitter="30m")),
    ]
    found = plan_month(schedules, span, zone)
    assert found.omitted == 0
    for schedule in schedules:
        expected = [
            each.at
            for each in upcoming_fires([schedule], span.end, limit=5000)
            if span.start <= each.at < span.end
        ]
        shown = [
            at
            for day in sorted(found.days)
            for fires in found.days[day]
            if fires.schedule == schedule
            for at in fires.at
        ]
        assert shown == expected
        assert not any(each.more for day in found.days.values() for each in day)
    for day, fires in found.days.items():
        start, end = midnight(day, zone), midnight(day + timedelta(days=1), zone)
        assert all(start <= at < end for each in fires for at in each.at)


def test_frequent_fires_are_counted_up_to_a_limit() -> None:
    span = span_of(date(2026, 12, 1), "UTC")
    (first, *_) = plan_month([scheduled(Every("1m", anchor=NOW))], span, "UTC").days.values()
    assert [(len(each.at), each.more) for each in first] == [(100, True)]
    exact = plan_month([scheduled(Every("15m", anchor=NOW))], span, "UTC")
    assert {(len(each.at), each.more) for day in exact.days.values() for each in day} == {
        (96, False)
    }
    assert len(exact.days) == 31


def test_busy_schedules_do_not_hide_others_and_the_total_is_limited() -> None:
    span = span_of(date(2026, 12, 1), "UTC")
    busy = [scheduled(Every("1m", anchor=NOW)) for _ in range(20)]
    daily = scheduled(Cron("0 9 * * *", timezone="UTC"))
    found = plan_month([*busy, daily], span, "UTC")
    assert found.omitted == 0
    assert len([1 for fires in found.days.values() if fires[-1].schedule == daily]) == 31
    slots = sum(len(each.at) for day in found.days.values() for each in day)
    assert slots < MAX_SLOTS
    crowd = plan_month(busy * 20, span, "UTC")
    assert 0 < crowd.omitted < 400


def test_planned_fires_respect_max_runs() -> None:
    span = span_of(date(2026, 12, 1), "UTC")
    few = scheduled(Cron("0 9 * * *", timezone="UTC", max_runs=20))
    found = plan_month([few], span, "UTC")
    assert sorted(found.days) == [date(2026, 12, day) for day in range(1, 7)]
    never = scheduled(Every("1s", anchor=NOW, max_runs=10**9))
    assert plan_month([never], span, "UTC") == Planned(omitted=1)
    off = replace(few, next_run_at=None, next_slot=None)
    assert plan_month([off], span, "UTC") == Planned()


def test_first_weekday_depends_on_the_locale() -> None:
    for language, first in (("en", "Monday"), ("th", "วันอาทิตย์"), ("zh", "星期一")):
        display = DisplayPreferences(language=language, zone="Asia/Bangkok")
        assert weekdays(display)[0][1] == first
        span = span_of(date(2026, 11, 1), "Asia/Bangkok")
        weeks = weeks_of(span, Planned(), {}, display, "Asia/Bangkok", NOW)
        assert {len(week) for week in weeks} == {7}
        days = [day for week in weeks for day in week if day]
        assert [day.date.day for day in days] == list(range(1, 31))
        column = [day.date.weekday() for week in weeks if (day := week[0])]
        assert set(column) == {6 if language == "th" else 0}
        assert [day.date.day for day in days if day.today] == [16]
        assert [day.date.day for day in days if day.over] == list(range(1, 16))


def test_month_name_uses_the_era_of_the_user() -> None:
    first = date(2026, 11, 1)
    assert month_name(first, DisplayPreferences(language="th", era="be")) == "พฤศจิกายน 2569"
    assert month_name(first, DisplayPreferences(language="th")) == "พฤศจิกายน 2026"
    assert month_name(first, DisplayPreferences(language="zh")) == "2026年11月"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2027-02", date(2027, 2, 1)),
        ("2027-2", date(2027, 2, 1)),
        ("2026-13", date(2026, 12, 1)),
        ("9999-12", date(2026, 12, 1)),
        ("x", date(2026, 12, 1)),
        ("٢٠٢٧-٠٢", date(2026, 12, 1)),
    ],
)
def test_month_is_parsed_from_the_url(text: str, first: date) -> None:
    now = datetime(2026, 11, 30, 20, tzinfo=UTC)
    span = parse_month(text, now, "Asia/Bangkok")
    assert span.first == first, "it is already December in Bangkok"
    assert parse_day(f"{first:%Y-%m}-05", span) == first.replace(day=5)
    assert parse_day("2001-01-01", span) is None
    assert parse_day("nonsense", span) is None


async def test_month_page_links_days_and_months() -> None:
    async with browsing() as browser:
        now = browser.rig.clock.now()
        for name in ("a", "b", "c", "d", "<b>e</b>"):
            await browser.rig.create(name=name, labels={"x": None})
        await browser.rig.create(name="other")
        await browser.rig.store.load([ended(now - timedelta(hours=1), RunStatus.FAILED)])
        page = (await browser.get(f"{MONTH}&q=label:x")).text
        tomorrow = (now + timedelta(days=1)).date()
        assert f"day={tomorrow:%Y-%m-%d}#day" in page
        assert ">×5</span>" in page
        assert "and 2 more" in page
        assert "other" not in page.partition("calendar")[2].partition("</table>")[0]
        assert "<b>e" not in page
        assert "▶ 1" not in page, "runs are not counted by labels"
        assert ">▶</span>" in page, "of past days"
        counted = (await browser.get(MONTH)).text
        assert "▶ 1" in counted
        assert ">▶</span>" not in counted
        assert ">▶ 0<" not in counted, "days without runs stay empty"
        day = (await browser.get(f"{MONTH}&q=label:x&day={tomorrow:%Y-%m-%d}")).text
        assert day.partition('id="day"')[2].count("data-open-row") == 5
        next_month = month_module.next_month(now.date().replace(day=1))
        assert f"month={next_month:%Y-%m}" in page
        later = await browser.get(f"{MONTH}&month={next_month:%Y-%m}")
        assert later.status_code == 200
        assert "▶ 1" not in later.text
        remembered = (await browser.get("/ui/schedules")).text
        assert 'class="calendar"' in remembered
