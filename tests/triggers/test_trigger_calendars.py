"""Exclusion calendars: skipped and moved slots against brute force."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from time import process_time

import holidays
import pytest
from cron_oracle import DAYS, CronOracle, utc
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron, Every, Once
from chimes.triggers.calendars import Calendar, Window
from tests.examples import examples
from tests.tables import each_row

DAY = timedelta(days=1)
WEEKEND = {"weekly": [{"days": ["SAT", "SUN"], "from": "00:00", "to": "24:00"}]}
Entry = dict[str, object]


def covers(entry: Entry, day: date, clock: str) -> bool:
    if "dates" in entry:
        return str(day) in entry["dates"]
    if "holidays" in entry:
        return day in holidays.country_holidays(entry["holidays"], years=day.year)
    for window in entry["weekly"]:
        start, end = window["from"], window["to"]
        today = DAYS[day.isoweekday() % 7] in window["days"]
        yesterday = DAYS[(day - DAY).isoweekday() % 7] in window["days"]
        if start < end and today and start <= clock < end:
            return True
        if start > end and ((today and clock >= start) or (yesterday and clock < end)):
            return True
    return False


def destination(entries: list[Entry], day: date, clock: str) -> date | None:
    """The day to which the slot of a day moves, or None if it is skipped."""
    entry = next((each for each in entries if covers(each, day, clock)), None)
    if entry is None:
        return day
    policy = entry.get("on_excluded", "skip")
    if policy == "skip":
        return None
    step = DAY if policy == "next" else -DAY
    for _ in range(366):
        day += step
        if day.isoweekday() < 6 and not any(covers(each, day, clock) for each in entries):
            return day
    return None


class ExcludingOracle(CronOracle):
    def __init__(self, expression: str, zone: str, entries: list[Entry]) -> None:
        super().__init__(expression, zone)
        self.entries = entries
        self.any_day = CronOracle(f"{self.minute} {self.hour} * * *")

    def matches(self, local: datetime) -> bool:
        if not self.any_day.matches(local):
            return False
        clock = local.strftime("%H:%M")
        sources = (local.date() + number * DAY for number in range(-16, 17))
        return any(
            self.matches_day(source) and destination(self.entries, source, clock) == local.date()
            for source in sources
        )


clocks = st.sampled_from(["00:00", "02:30", "06:00", "09:00", "12:15", "18:00", "23:00"])
windows = st.fixed_dictionaries(
    {
        "days": st.lists(st.sampled_from(DAYS), min_size=1, max_size=4, unique=True),
        "from": clocks,
        "to": st.one_of(clocks.filter(lambda clock: clock != "00:00"), st.just("24:00")),
    }
).filter(lambda window: window["from"] != window["to"])
march = st.dates(date(2026, 2, 25), date(2026, 3, 20)).map(str)
policies = st.sampled_from([{}, {"on_excluded": "next"}, {"on_excluded": "previous"}])
calendars = st.lists(
    st.tuples(
        st.one_of(
            st.lists(march, min_size=1, max_size=6, unique=True).map(lambda days: {"dates": days}),
            st.lists(windows, min_size=1, max_size=2).map(lambda each: {"weekly": each}),
            st.just({"holidays": "TH"}),
        ),
        policies,
    ).map(lambda pair: pair[0] | pair[1]),
    min_size=1,
    max_size=3,
)


@examples(40)
@given(
    st.sampled_from(
        ["30 2 * * *", "0 9 * * *", "0 */6 * * *", "15 12 * * MON-FRI", "30 2,12 */2 * *"]
    ),
    st.sampled_from(["America/New_York", "Asia/Bangkok"]),
    calendars,
)
def test_cron_against_brute_force(expression: str, zone: str, entries: list[Entry]) -> None:
    low, high = utc(2026, 3, 5), utc(2026, 3, 11)
    expected = ExcludingOracle(expression, zone, entries).fires(low, high)
    trigger = Cron(expression, timezone=zone, exclude=entries)
    found = []
    at = trigger.next_after(low - timedelta(seconds=1))
    while at is not None and at <= high:
        found.append(at)
        at = trigger.next_after(at)
    assert found == expected
    back = []
    at = trigger.previous_before(high + timedelta(seconds=1))
    while at is not None and at >= low:
        back.append(at)
        at = trigger.previous_before(at)
    assert back[::-1] == expected


@examples(40)
@given(
    st.sampled_from([3600, 5400, 25200, 86400, 90000, 3 * 86400 + 60]),
    st.booleans(),
    calendars,
)
def test_every_against_brute_force(step: int, anchored: bool, entries: list[Entry]) -> None:
    anchor = utc(2026, 3, 6, 5, 30) if anchored else None
    trigger = Every(timedelta(seconds=step), anchor=anchor, exclude=entries)
    low, high = utc(2026, 3, 4), utc(2026, 3, 13)
    expected = set()
    slot = anchor or utc(1970, 1, 1) + (low - utc(1970, 1, 1)) // timedelta(seconds=step) * (
        timedelta(seconds=step)
    )
    if not anchored:
        slot -= 20 * DAY // timedelta(seconds=step) * timedelta(seconds=step)
    while slot <= high + 20 * DAY:
        day = destination(entries, slot.date(), slot.strftime("%H:%M"))
        if day is not None:
            expected.add(datetime.combine(day, slot.timetz()))
        slot += timedelta(seconds=step)
    wanted = sorted(at for at in expected if low <= at <= high)
    found = []
    at = trigger.next_after(low - timedelta(microseconds=1))
    while at is not None and at <= high:
        found.append(at)
        at = trigger.next_after(at)
    assert found == wanted
    back = []
    at = trigger.previous_before(high + timedelta(microseconds=1))
    while at is not None and at >= low:
        back.append(at)
        at = trigger.previous_before(at)
    assert back[::-1] == wanted


def test_holidays_are_skipped() -> None:
    trigger = Cron("0 9 * * *", timezone="Asia/Bangkok", exclude=[{"holidays": "TH"}])
    days = [fire.local.strftime("%m-%d") for fire in trigger.fires(utc(2026, 4, 11), 4)]
    assert days == ["04-11", "04-12", "04-16", "04-17"]  # Songkran


def test_holidays_of_a_subdivision() -> None:
    lincoln = utc(2026, 2, 12)
    for name, fires in (("US", True), ("US-NY", False)):
        trigger = Cron("0 0 * * *", exclude=[{"holidays": name}])
        assert (trigger.next_after(lincoln - timedelta(seconds=1)) == lincoln) is fires


def test_excluded_slot_moves_to_a_business_day() -> None:
    friday = {"dates": ["2026-12-25"]}
    later = Cron("0 9 * * FRI", exclude=[friday | {"on_excluded": "next"}])
    fires = later.fires(utc(2026, 12, 19), 3)
    assert [fire.at.day for fire in fires] == [28, 1, 8]
    assert [fire.note for fire in fires] == ["moved_by_calendar", None, None]
    earlier = Cron("0 9 * * FRI", exclude=[friday | {"on_excluded": "previous"}])
    assert earlier.next_after(utc(2026, 12, 19)) == utc(2026, 12, 24, 9)


def test_moved_fires_merge() -> None:
    trigger = Cron("0 9 * * *", exclude=[WEEKEND | {"on_excluded": "next"}])
    days = [fire.at.day for fire in trigger.fires(utc(2026, 3, 5), 4)]
    assert days == [5, 6, 9, 10]


def test_first_matching_calendar_decides() -> None:
    both = [{"dates": ["2026-03-06"]}, {"dates": ["2026-03-06"], "on_excluded": "next"}]
    assert Cron("0 9 6 3 *", exclude=both).next_after(utc(2026, 1, 1)).year == 2027
    moved = Cron("0 9 6 3 *", exclude=both[::-1])
    assert moved.next_after(utc(2026, 1, 1)) == utc(2026, 3, 9, 9)


def test_long_blackout_is_skipped_quickly() -> None:
    night = {"weekly": [{"days": DAYS, "from": "00:00", "to": "23:59"}]}
    year = {"dates": [str(date(2026, 1, 1) + number * DAY) for number in range(3000)]}
    for trigger in (
        Cron("* * * * * *", exclude=[night, year]),
        Every("1ms", exclude=[night, year]),
    ):
        start = process_time()
        assert trigger.next_after(utc(2026, 1, 1)) == utc(2034, 3, 20, 23, 59)
        assert trigger.previous_before(utc(2034, 3, 20, 23, 59)).year == 2025
        assert process_time() - start < 1  # checking every slot would take minutes


def test_everything_excluded_never_fires() -> None:
    always = [{"weekly": [{"days": DAYS}], "on_excluded": "next"}]
    for trigger in (
        Cron("0 9 * * *", exclude=always),
        Every("24h", exclude=always),
        Every("24h", anchor=utc(2026, 1, 1), exclude=always),
        Once("2026-03-07T09:00:00Z", exclude=always),
    ):
        assert trigger.next_after(utc(2026, 1, 1)) is None
        assert trigger.previous_before(utc(2027, 1, 1)) is None


def test_slot_without_a_business_day_within_a_year_is_skipped() -> None:
    closed = {"dates": [str(date(2026, 1, 1) + number * DAY) for number in range(400)]}
    new_year = "0 9 1 1 *"
    later = Cron(new_year, exclude=[closed | {"on_excluded": "next"}])
    # 2027-01-01 moves to the first open day, 2027-02-05; 2026-01-01 has too far to go.
    assert [fire.at for fire in later.fires(utc(2025, 6, 1), 2)] == [
        utc(2027, 2, 5, 9),
        utc(2028, 1, 1, 9),
    ]
    earlier = Cron(new_year, exclude=[closed | {"on_excluded": "previous"}])
    assert [fire.at for fire in earlier.fires(utc(2025, 6, 1), 2)] == [
        utc(2025, 12, 31, 9),
        utc(2028, 1, 1, 9),
    ]


@pytest.mark.parametrize("policy", ["next", "previous"])
def test_once_without_a_business_day_within_a_year_never_fires(policy: str) -> None:
    closed = [str(date(9997, 12, 20) + number * DAY) for number in range(735)]
    at = "9998-12-29T09:00:00Z"
    trigger = Once(at, exclude=[{"dates": closed, "on_excluded": policy}])
    assert trigger.next_after(utc(2026, 1, 1)) is None
    assert trigger.previous_before(utc(9999, 6, 1)) is None


def test_holidays_at_the_limits_of_the_calendar() -> None:
    for policy in ("skip", "next"):
        trigger = Cron("0 0 * * *", exclude=[{"holidays": "TH", "on_excluded": policy}])
        assert trigger.next_after(utc(9998, 12, 30)) == utc(9998, 12, 31)
        assert trigger.next_after(utc(9998, 12, 31)) is None
        assert trigger.next_after(utc(1, 1, 1)) == utc(1, 1, 2)
        assert trigger.previous_before(utc(1, 1, 1)) is None


def test_exclusion_of_other_hours_has_no_effect() -> None:
    trigger = Cron("0 9 * * *", exclude=[{"weekly": [{"days": DAYS, "from": "12:00"}]}])
    assert trigger.next_after(utc(2026, 1, 1)) == utc(2026, 1, 1, 9)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("skip", None), ("next", utc(2026, 3, 9, 2)), ("previous", utc(2026, 3, 6, 2))],
)
def test_once_on_an_excluded_day(policy: str, expected: datetime | None) -> None:
    entry = WEEKEND | {"on_excluded": policy}
    local = Once("2026-03-07T09:00:00", timezone="Asia/Bangkok", exclude=[entry])
    instant = Once("2026-03-07T09:00:00+07:00[Asia/Bangkok]", exclude=[entry])
    for trigger in (local, instant):
        assert trigger.next_after(utc(2026, 1, 1)) == expected
        assert trigger.warnings() == (("moved_by_calendar",) if expected else ())
    free = Once("2026-03-06T09:00:00", exclude=[entry])
    assert free.next_after(utc(2026, 1, 1)) == utc(2026, 3, 6, 9)


def test_moved_interval_fire_has_a_note() -> None:
    trigger = Every("24h", exclude=[{"dates": ["2026-03-06"], "on_excluded": "next"}])
    assert [fire.note for fire in trigger.fires(utc(2026, 3, 5), 2)] == [None, None]
    odd = Every("7h", exclude=[{"dates": ["2026-03-06"], "on_excluded": "next"}])
    assert "moved_by_calendar" in [fire.note for fire in odd.fires(utc(2026, 3, 5), 30)]


def test_calendars_are_hashable_values() -> None:
    entry = {"weekly": [{"days": ["sat"], "from": "22:00", "to": "06:00"}], "on_excluded": "next"}
    trigger = Cron("0 9 * * *", exclude=[entry])
    assert trigger.exclude == (Calendar(weekly=(Window(64, 1320, 360),), on_excluded="next"),)
    assert Cron("0 9 * * *", exclude=trigger.exclude) == trigger
    assert hash(trigger) == hash(Cron("0 9 * * *", exclude=[entry]))


@each_row(
    ("exclude", "field", "code"),
    [
        (5, "exclude", "wrong_type"),
        ("DE", "exclude", "wrong_type"),
        ([5], "exclude[0]", "wrong_type"),
        ([{}], "exclude[0]", "bad_calendar"),
        ([{"dates": ["2026-01-01"], "holidays": "TH"}], "exclude[0]", "bad_calendar"),
        ([{"date": ["2026-01-01"]}], "exclude[0].date", "unknown_key"),
        ([{"dates": "2026-01-01"}], "exclude[0].dates", "wrong_type"),
        ([{"dates": []}], "exclude[0].dates", "out_of_range"),
        ([{"dates": [5]}], "exclude[0].dates[0]", "wrong_type"),
        ([{"dates": ["2026-02-30"]}], "exclude[0].dates[0]", "bad_date"),
        ([{"dates": ["20260201"]}], "exclude[0].dates[0]", "bad_date"),
        (
            [{"dates": ["2026-01-01"], "on_excluded": "later"}],
            "exclude[0].on_excluded",
            "bad_choice",
        ),
        ([{"holidays": 5}], "exclude[0].holidays", "wrong_type"),
        ([{"holidays": "XX"}], "exclude[0].holidays", "unknown_calendar"),
        ([{"holidays": "US-ZZ"}], "exclude[0].holidays", "unknown_calendar"),
        ([{"holidays": "US-"}], "exclude[0].holidays", "unknown_calendar"),
        ([{"weekly": [{"days": ["FUN"]}]}], "exclude[0].weekly[0].days[0]", "bad_weekday"),
        ([{"weekly": [{"days": []}]}], "exclude[0].weekly[0].days", "out_of_range"),
        ([{"weekly": [{}]}], "exclude[0].weekly[0].days", "wrong_type"),
        ([{"weekly": [5]}], "exclude[0].weekly[0]", "wrong_type"),
        (
            [{"weekly": [{"days": ["SAT"], "from": "25:00"}]}],
            "exclude[0].weekly[0].from",
            "bad_time",
        ),
        ([{"weekly": [{"days": ["SAT"], "to": "24:01"}]}], "exclude[0].weekly[0].to", "bad_time"),
        ([{"weekly": [{"days": ["SAT"], "from": 9}]}], "exclude[0].weekly[0].from", "wrong_type"),
        (
            [{"weekly": [{"days": ["SAT"], "from": "09:00", "to": "09:00"}]}],
            "exclude[0].weekly[0]",
            "empty_window",
        ),
        ([{"dates": ["2026-01-01"]}] * 17, "exclude", "out_of_range"),
    ],
)
def test_invalid_calendars_are_rejected(exclude: object, field: str, code: str) -> None:
    for make in (lambda: Cron("0 9 * * *", exclude=exclude), lambda: Every("5m", exclude=exclude)):
        with pytest.raises(InvalidTrigger) as caught:
            make()
        assert (caught.value.field, caught.value.code) == (field, code)


def test_unknown_country_has_a_hint() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Cron("0 9 * * *", exclude=[{"holidays": "Thailand"}])
    assert caught.value.hint is not None
    with pytest.raises(InvalidTrigger) as caught:
        Cron("0 9 * * *", exclude=[{"holidays": "th"}])
    assert caught.value.hint == "did you mean TH?"
