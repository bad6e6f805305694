"""Unions, business days, hashed fields, sunrise and sunset, jitter, and shared calendars."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import holidays
import pytest
from astral import Observer
from astral.sun import sunrise, sunset

from chimes import AnyOf, BusinessDay, Cron, Every, Once, OnFile, RRule, Sun
from chimes.errors import InvalidTrigger
from chimes.triggers import NamedCalendar, Trigger, trigger_from_dict
from chimes.triggers.calendars import parse_named_calendar
from chimes.triggers.cron_fields import expand_hashes
from tests.tables import each_row

STEP = timedelta(microseconds=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
YORK = "America/New_York"


def fires(trigger: Trigger, count: int, after: datetime = NOW) -> list[datetime]:
    return [fire.at for fire in trigger.fires(after, count)]


def until(trigger: Trigger, end: datetime, after: datetime = NOW) -> list[datetime]:
    found, at = [], trigger.next_after(after)
    while at is not None and at < end:
        found.append(at)
        at = trigger.next_after(at)
    return found


def check_inverse(trigger: Trigger, found: list[datetime]) -> None:
    for one, other in pairwise(found):
        assert one < other
        assert trigger.previous_before(other) == one, (trigger, one, other)
        assert trigger.next_after(other - STEP) == other
        assert trigger.previous_before(one + STEP) == one
    if found:
        assert trigger.count_between(found[0], found[-1]) == len(found)


# --- unions ---------------------------------------------------------------------------------------
def random_member(rand: random.Random) -> Trigger:
    zone = rand.choice(("UTC", YORK, "Europe/Berlin", "Australia/Lord_Howe"))
    hours = rand.choice(("*", "1-3", "*/2", str(rand.randrange(24)), "2"))
    match rand.randrange(4):
        case 0:
            return Every(f"{rand.choice((7, 30, 45, 60, 90))}m", anchor=NOW)
        case 1:
            rule = f"FREQ=DAILY;INTERVAL={rand.randint(1, 3)};BYHOUR=1,2;BYMINUTE=0,30"
            return RRule(rule, dtstart="2026-01-01T02:30:00", timezone=zone)
        case _:
            minute = rand.choice(("0", "30", "*/15", "5,35"))
            return Cron(f"{minute} {hours} * * {rand.choice(('*', '0', '1-5'))}", timezone=zone)


def test_a_union_is_the_set_of_its_fires() -> None:
    """Against the sets of instants, through days with clock changes."""
    for seed in range(60):
        rand = random.Random(seed)
        of = [random_member(rand) for _each in range(rand.randint(1, 4))]
        others = [random_member(rand) for _each in range(rand.randint(0, 2))]
        start = rand.choice(
            (datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC))
        )
        end = start + timedelta(days=3)
        wanted: set[datetime] = set()
        for each in of:
            wanted |= set(until(each, end, start))
        for each in others:
            wanted -= set(until(each, end, start))
        union = AnyOf(of, except_=others)
        assert until(union, end, start) == sorted(wanted), seed
        check_inverse(union, sorted(wanted))
        assert trigger_from_dict(union.to_dict()) == union


def test_a_union_has_bounds_and_calendars_of_its_own() -> None:
    union = AnyOf(
        [
            Cron("0 9 * * *", timezone="Asia/Bangkok"),
            Cron("0 12 * * *", timezone=YORK, end_at="2026-01-03T00:00:00Z"),
        ],
        start_at="2026-01-02T00:00:00Z",
        exclude={"dates": ["2026-01-03", "2026-01-05"]},
    )
    assert [f"{each:%d %H}" for each in fires(union, 4)] == ["02 02", "02 17", "04 02", "06 02"]
    assert [each.local.hour for each in union.fires(NOW, 2)] == [9, 12]
    nothing = AnyOf([Cron("* * * * *")], except_=[Cron("* * * * *")])
    assert nothing.next_after(NOW) is None


@each_row(
    ("body", "field", "code"),
    [
        ({}, "of", "missing_key"),
        ({"of": []}, "of", "out_of_range"),
        ({"of": {"kind": "every"}}, "of", "wrong_type"),
        ({"of": [{"kind": "nope"}]}, "of[0].kind", "unknown_kind"),
        ({"of": [{"kind": "cron", "expression": "x"}]}, "of[0].expression", "field_count"),
        ({"of": [{"kind": "webhook"}]}, "of[0]", "no_times"),
        ({"of": [{"kind": "every", "every": "1h", "max_runs": 2}]}, "of[0].max_runs", "not_here"),
        ({"of": [{"kind": "every", "every": "1h", "jitter": "1m"}]}, "of[0].jitter", "not_here"),
        (
            {"of": [{"kind": "every", "every": "1h"}], "except": [{"kind": "any", "of": []}]},
            "except[0].of",
            "out_of_range",
        ),
    ],
)
def test_bad_unions_name_the_part(body: dict[str, object], field: str, code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict({"kind": "any", **body})
    assert (caught.value.field, caught.value.code) == (field, code)
    with pytest.raises(InvalidTrigger):
        AnyOf([OnFile("/tmp/x")])


# --- business days --------------------------------------------------------------------------------
def workdays(country: str | None, year: int, month: int) -> list[date]:
    """By the holidays package itself."""
    known = None if country is None else holidays.country_holidays(country, years=year)
    day, found = date(year, month, 1), []
    while day.month == month:
        works = day.weekday() < 5 if known is None else known.is_working_day(day)
        if works:
            found.append(day)
        day += timedelta(days=1)
    return found


def test_business_days_are_those_of_the_country() -> None:
    for country in (None, "DE", "US", "CN", "TH", "SA"):
        for number in (1, 3, 21, 23, -1, -5):
            trigger = BusinessDay(number, at="09:00", calendar=country, timezone="UTC")
            wanted, absent = [], 0
            for month in range(1, 13):
                days = workdays(country, 2026, month)
                if len(days) >= abs(number):
                    wanted.append(days[number - 1 if number > 0 else number])
                else:
                    absent += 1
            found = until(trigger, datetime(2027, 1, 1, tzinfo=UTC))
            assert [each.date() for each in found] == wanted, (country, number)
            check_inverse(trigger, found)
            end = datetime(2026, 12, 31, 23, tzinfo=UTC)
            assert len(list(trigger.absences(NOW, end))) == absent, (country, number)
            assert trigger_from_dict(trigger.to_dict()) == trigger


def test_make_up_workdays_count() -> None:
    china = holidays.country_holidays("CN", years=2026)
    makeup = min(day for day in china.weekend_workdays if day.year == 2026)
    weekdays = Cron(
        "0 9 * * *",
        timezone="Asia/Shanghai",
        exclude=[{"weekly": [{"days": ["SAT", "SUN"]}]}, {"holidays": "CN"}],
    )
    shown = {each.local.date() for each in weekdays.fires(NOW, 60)}
    assert makeup in shown
    assert all(china.is_working_day(day) for day in shown)
    # A slot of a holiday moves to a make-up workday.
    moving = Cron(
        "0 9 2 1 *", timezone="Asia/Shanghai", exclude={"holidays": "CN", "on_excluded": "next"}
    )
    assert moving.fires(NOW, 1)[0].local.date() == makeup == date(2026, 1, 4)


def test_a_business_day_in_a_gap_fires_at_the_change() -> None:
    # 29 March 2026 is a Sunday: a make-up workday there, so that the change is on a business day.
    calendar = parse_named_calendar(
        {"workdays": ["2026-03-29"], "dates": ["2026-03-30", "2026-03-31"]}
    )
    trigger = BusinessDay(-1, at="02:30", calendar="own", timezone="Europe/Berlin")
    with pytest.raises(InvalidTrigger) as caught:
        trigger.next_after(NOW)
    assert caught.value.code == "unresolved_calendar"
    known = trigger.with_calendars({"own": calendar})
    found = known.fires(datetime(2026, 3, 1, tzinfo=UTC), 1)[0]
    assert (found.at, found.note) == (datetime(2026, 3, 29, 1, tzinfo=UTC), "moved_by_gap")
    assert trigger_from_dict(known.to_dict()) == known
    assert known.shown() == trigger.to_dict()


@each_row(
    ("body", "field", "code"),
    [
        ({"day": 0, "at": "09:00"}, "day", "out_of_range"),
        ({"day": 24, "at": "09:00"}, "day", "out_of_range"),
        ({"day": "last", "at": "09:00"}, "day", "wrong_type"),
        ({"day": 1}, "at", "missing_key"),
        ({"day": 1, "at": "9"}, "at", "bad_time"),
        ({"day": 1, "at": "24:00"}, "at", "bad_time"),
        ({"day": 1, "at": "09:00", "calendar": "a b"}, "calendar", "bad_name"),
    ],
)
def test_bad_business_days(body: dict[str, object], field: str, code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict({"kind": "business_day", **body})
    assert (caught.value.field, caught.value.code) == (field, code)


# --- named calendars ------------------------------------------------------------------------------
def test_named_calendars_exclude_their_days_and_spans() -> None:
    contents = parse_named_calendar(
        {
            "dates": ["2026-01-05"],
            "holidays": "DE",
            "ranges": [
                ["2026-01-07", "2026-01-08"],
                ["2026-01-09T10:00:00", "2026-01-09T12:00:00"],
            ],
            "workdays": ["2026-01-01"],
        }
    )
    trigger = Cron("0 9-12 * * *", timezone="Europe/Berlin", exclude={"calendar": "bank"})
    assert trigger.calendar_names() == {"bank"}
    known = trigger.with_calendars({"bank": contents})
    found = [each.local for each in known.fires(NOW, 24)]
    shown = [f"{each:%d}" for each in found]
    assert {day: shown.count(day) for day in dict.fromkeys(shown)} == {
        # New Year is a make-up workday.
        "01": 4,
        "02": 4,
        "03": 4,
        "04": 4,
        "06": 4,
        "09": 2,
        "10": 2,
    }
    assert [each.hour for each in found if each.day == 9] == [9, 12]
    check_inverse(known, [each.astimezone(UTC) for each in found])
    assert known.shown()["exclude"] == [{"calendar": "bank"}]
    assert trigger_from_dict(known.to_dict()) == known
    # Every kind takes the calendar.
    for other in (
        Every("1h", exclude={"calendar": "bank"}),
        Once("2026-01-05T09:00:00Z", exclude={"calendar": "bank"}),
        RRule("FREQ=HOURLY;INTERVAL=5", dtstart=NOW, exclude={"calendar": "bank"}),
        RRule("FREQ=DAILY", dtstart=NOW, exclude={"calendar": "bank"}),
        AnyOf([Every("1h")], exclude={"calendar": "bank"}),
        AnyOf([Every("1h", exclude={"calendar": "bank"})]),
        Sun("sunset", latitude=52.5, longitude=13.4, exclude={"calendar": "bank"}),
    ):
        assert other.calendar_names() == {"bank"}
        resolved = other.with_calendars({"bank": contents})
        first = datetime(2026, 1, 4, 23, 59, tzinfo=UTC)
        at = resolved.next_after(first)
        assert at is None or at.date() > date(2026, 1, 5), other
        check_inverse(resolved, fires(resolved, 5, first))


@each_row(
    ("value", "field"),
    [
        ({"dates": ["2026-13-01"]}, "dates[0]"),
        ({"holidays": "XX"}, "holidays"),
        ({"ranges": [["2026-01-02", "2026-01-01"]]}, "ranges[0]"),
        ({"ranges": [["2026-01-02"]]}, "ranges[0]"),
        ({"ranges": [["2026-01-02T00:00:00Z", "2026-01-03"]]}, "ranges[0]"),
        ({"days": []}, "days"),
        ({"workdays": "2026-01-01"}, "workdays"),
    ],
)
def test_bad_calendars(value: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_named_calendar(value)
    assert caught.value.field == field


# --- hashed fields --------------------------------------------------------------------------------
def test_hashed_fields_are_stable_and_spread() -> None:
    for field, low, high in (("H", 0, 59), ("H(10-19)", 10, 19)):
        values = {
            int(expand_hashes(f"{field} * * * *", "auto", f"s{n}").split()[0]) for n in range(900)
        }
        assert values == set(range(low, high + 1)), field
    for number in range(50):
        seed = f"schedule-{number}"
        minute, hour, day, month, weekday = expand_hashes(
            "H(0-29)/10 H(0-5) H H H", "auto", seed
        ).split()
        start, rest = minute.split("-")
        assert 0 <= int(start) < 10
        assert rest == "29/10"
        assert 0 <= int(hour) <= 5
        assert 1 <= int(day) <= 28
        assert 1 <= int(month) <= 12
        assert 0 <= int(weekday) <= 6
        assert expand_hashes("H/15 H,12 * * H(1-5)", "auto", seed) == expand_hashes(
            "H/15 H,12 * * H(1-5)", "auto", seed
        )
    one, other = Cron("H H * * *", seed="one"), Cron("H H * * *", seed="other")
    assert one != other
    assert one.resolved != other.resolved
    assert fires(one, 5) == fires(Cron(one.resolved), 5)
    check_inverse(one, fires(one, 30))
    assert trigger_from_dict(one.to_dict()) == one
    assert one.shown() == {"kind": "cron", "expression": "H H * * *"}
    assert Cron("H H * * *").is_example
    assert not one.is_example
    assert Cron("0 9 * * *", seed="x") == Cron("0 9 * * *")
    # A value is one time of day: a repeated hour fires once, a step like any interval.
    assert (
        Cron("H 1 * * *", timezone=YORK, seed="x").count_between(
            datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
        )
        == 1
    )
    assert (
        Cron("H/30 1 * * *", timezone=YORK, seed="x").count_between(
            datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
        )
        == 4
    )


@each_row(
    "expression", ["H(5-2) * * * *", "H(0-60) * * * *", "HH * * * *", "H-5 * * * *", "* * H/0 * *"]
)
def test_bad_hashed_fields(expression: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Cron(expression)
    assert (caught.value.field, caught.value.code) == ("expression", "bad_field")


# --- sunrise and sunset ---------------------------------------------------------------------------
def test_the_sun_rises_and_sets_as_in_astral() -> None:
    for latitude, longitude, zone in (
        (13.75, 100.5, "Asia/Bangkok"),
        (52.5, 13.4, "Europe/Berlin"),
        (-33.9, 151.2, "Australia/Sydney"),
        (-13.8, -171.8, "Pacific/Apia"),
        (40.7, -74.0, YORK),
    ):
        for event, find in (("sunrise", sunrise), ("sunset", sunset)):
            trigger = Sun(
                event, latitude=latitude, longitude=longitude, offset="-15m", timezone=zone
            )
            found = fires(trigger, 400)
            check_inverse(trigger, found)
            for each in found[::37]:
                at = each + timedelta(minutes=15)
                days = (at.date() + timedelta(days=shift) for shift in (-1, 0, 1))
                near = [find(Observer(latitude, longitude), day) for day in days]
                assert min(abs(at - one) for one in near) < timedelta(minutes=1), (event, zone)
            assert len({each.local.date() for each in trigger.fires(NOW, 300)}) == 300
            assert trigger_from_dict(trigger.to_dict()) == trigger


def test_polar_days_are_absences() -> None:
    trigger = Sun("sunset", latitude=69.65, longitude=18.96, timezone="Europe/Oslo")
    found = until(trigger, datetime(2027, 1, 1, tzinfo=UTC))
    absent = list(trigger.absences(NOW, datetime(2026, 12, 31, 23, 59, tzinfo=UTC)))
    assert len(found) + len(absent) == 365
    assert {each.reason for each in absent} == {"no_sunset"}
    assert {each.at.month for each in absent} == {1, 5, 6, 7, 11, 12}
    check_inverse(trigger, found)


@each_row(
    ("changes", "field"),
    [
        ({"event": "moonrise"}, "event"),
        ({"latitude": 91}, "latitude"),
        ({"longitude": "13"}, "longitude"),
        ({"offset": "13h"}, "offset"),
    ],
)
def test_bad_places(changes: dict[str, object], field: str) -> None:
    body = {"kind": "sun", "event": "sunset", "latitude": 1, "longitude": 1, **changes}
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict(body)
    assert caught.value.field == field


# --- jitter and spread ----------------------------------------------------------------------------
def test_jitter_and_spread_delay_runs_without_changing_their_order() -> None:
    place = {"latitude": 13.75, "longitude": 100.5}
    for trigger in (
        Cron("*/5 * * * *", jitter="10m", spread="3m"),
        Cron("@every 1m", jitter="30s"),
        Every("5m", jitter="5m", spread="1h"),
        AnyOf([Cron("0 * * * *"), Cron("1 * * * *")], jitter="30m"),
        RRule("FREQ=DAILY", dtstart=NOW, jitter="1h"),
        BusinessDay(1, at="09:00", jitter="1h"),
        Sun("sunset", **place, jitter="1h"),
        Once("2026-02-01T00:00:00Z", jitter="1h"),
    ):
        assert trigger_from_dict(trigger.to_dict()) == trigger
        slots = fires(trigger, 30)
        due = [slot + trigger.jitter_for("a", slot) for slot in slots]
        assert due == [slot + trigger.jitter_for("a", slot) for slot in slots]
        assert all(at >= slot for at, slot in zip(due, slots, strict=True))
        assert all(one < other for one, other in pairwise(due)), trigger
        assert all(at < slot for at, slot in zip(due, slots[1:], strict=False))
        assert any(at != slot for at, slot in zip(due, slots, strict=True))
    spread = Cron("0 2 * * *", spread="10m")
    delays = {spread.jitter_for(f"s{n}", NOW) for n in range(200)}
    assert len(delays) > 190
    assert max(delays) < timedelta(minutes=10)
    assert spread.jitter_for("s1", NOW) == spread.jitter_for("s1", NOW + timedelta(days=1))
    assert isinstance(NamedCalendar(), NamedCalendar)
