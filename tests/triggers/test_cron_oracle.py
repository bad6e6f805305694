"""Cron search against brute force around clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from cron_oracle import CronOracle, days_from, utc
from hypothesis import example, given
from hypothesis import strategies as st

from chimes.triggers import Cron, parse_zone
from tests.examples import examples

ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "America/Santiago",
    "Antarctica/Casey",
    "UTC",
]
FIRST = int(utc(1971, 1, 1).timestamp())
LAST = int(utc(2040, 1, 1).timestamp())


@st.composite
def numbers(draw: st.DrawFn, low: int, high: int) -> str:
    """A field: a value, list, range (that may wrap) or star, with or without a step."""
    value = st.integers(low, high).map(str)
    span = st.tuples(value, value).map("-".join)
    body = draw(st.one_of(value, span, st.just("*"), st.lists(value, min_size=2).map(",".join)))
    if "," in body or not draw(st.booleans()):
        return body
    return f"{body}/{draw(st.integers(1, min(high, 30)))}"


day_terms = st.sampled_from(["L", "LW", "L-3", "L-5W", "1W", "15W", "31W", "1,L", "2W,16"])
weekday_names = st.sampled_from(["SUN", "SAT,SUN", "MON-FRI", "FRI-MON", "SUN#1", "FRI#5", "SUNL"])
mostly_any = st.just("*")


@st.composite
def expressions(draw: st.DrawFn, day: int, hour: int) -> str:
    minute = draw(numbers(0, 59))
    near = st.sampled_from([str((hour + shift) % 24) for shift in range(-2, 3)])
    hours = draw(st.one_of(near, numbers(0, 23)))
    days = draw(st.one_of(mostly_any, mostly_any, st.just(str(day)), numbers(1, 31), day_terms))
    weekdays = draw(st.one_of(mostly_any, mostly_any, numbers(0, 6), weekday_names))
    return f"{minute} {hours} {days} {draw(st.one_of(mostly_any, numbers(1, 12)))} {weekdays}"


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, datetime]:
    name = draw(st.sampled_from(ZONES))
    zone = parse_zone(name)
    changes = [each for each in zone.near.instants if FIRST < each < LAST]
    second = draw(st.sampled_from(changes) if changes else st.integers(FIRST, LAST))
    moment = datetime.fromtimestamp(second // 60 * 60, UTC)
    local = moment + timedelta(seconds=zone.offset_at(second - 1))
    return draw(expressions(local.day, local.hour)), name, moment


def check(trigger: Cron, oracle: CronOracle, low: datetime, high: datetime) -> None:
    expected = oracle.fires(low, high)
    forward = []
    at = trigger.next_after(low - timedelta(microseconds=1))
    while at is not None and at <= high:
        forward.append(at)
        at = trigger.next_after(at)
    assert forward == expected
    backward = []
    at = trigger.previous_before(high + timedelta(microseconds=1))
    while at is not None and at >= low:
        backward.append(at)
        at = trigger.previous_before(at)
    assert backward[::-1] == expected


@examples(250)
@given(cases(), st.sampled_from(["chimes", "chimes", "vixie", "robfig"]), st.integers(3, 30))
@example(("30 2 * * *", "Australia/Lord_Howe", utc(2026, 10, 3, 15, 30)), "chimes", 30)
@example(("* 0 30 12 *", "Pacific/Apia", utc(2011, 12, 30, 10)), "chimes", 30)
def test_cron_matches_the_oracle_around_clock_changes(
    case: tuple[str, str, datetime], dst: str, hours: int
) -> None:
    expression, zone, moment = case
    trigger = Cron(expression, timezone=zone, dst=dst)
    span = timedelta(hours=hours)
    check(trigger, CronOracle(expression, zone, dst=dst), moment - span, moment + span)


@examples(25)
@given(cases(), numbers(0, 59), st.booleans())
def test_cron_with_seconds_matches_the_oracle(
    case: tuple[str, str, datetime], seconds: str, quartz: bool
) -> None:
    expression, zone, moment = case
    if quartz:
        minute, hour, *_ = expression.split()
        expression = f"{seconds} {minute} {hour} * * ? {moment.year}"
    else:
        expression = f"{seconds} {expression}"
    hour = timedelta(hours=1)
    check(
        Cron(expression, timezone=zone), CronOracle(expression, zone), moment - hour, moment + hour
    )


@examples(150)
@given(
    st.one_of(numbers(1, 31), day_terms, mostly_any),
    numbers(1, 12),
    st.one_of(numbers(0, 6), weekday_names, mostly_any),
    st.integers(1971, 2150),
)
def test_days_match_the_oracle_over_years(days: str, months: str, weekdays: str, year: int) -> None:
    expression = f"0 0 {days} {months} {weekdays}"
    trigger, oracle = Cron(expression), CronOracle(expression)
    walked = [day for day in days_from(date(year, 1, 1), 1000) if oracle.matches_day(day)]
    found = []
    at = trigger.next_after(utc(year, 1, 1) - timedelta(seconds=1))
    while at is not None and at.date() < date(year, 1, 1) + timedelta(days=1000):
        found.append(at.date())
        at = trigger.next_after(at)
    assert found == walked


@examples(300)
@given(cases(), st.integers(-(10**12), 10**12))
def test_next_and_previous_are_inverse(case: tuple[str, str, datetime], shift: int) -> None:
    expression, zone, moment = case
    trigger = Cron(expression, timezone=zone)
    start = moment + timedelta(microseconds=shift)
    following = trigger.next_after(start)
    if following is not None:
        assert following > start
        before = trigger.previous_before(following)
        assert before is None or before <= start
        assert before is None or trigger.next_after(before) == following
        assert trigger.previous_before(following + timedelta(microseconds=1)) == following


def test_check_detects_a_difference() -> None:
    low = utc(2026, 3, 8)
    with pytest.raises(AssertionError):
        check(
            Cron("30 2 * * *", timezone="America/New_York"),
            CronOracle("30 2 * * *", "America/New_York", dst="robfig"),
            low,
            low + timedelta(days=1),
        )
