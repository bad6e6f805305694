"""Cron rules: clock changes, day fields, Quartz syntax, descriptors; with examples of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import process_time

import pytest
from cron_oracle import utc

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron, Once, ensure_fires, never_fires
from tests.tables import each_row

NEW_YORK = "America/New_York"


def on_day(expression: str, zone: str, year: int, month: int, day: int, **more: str) -> list[str]:
    """The fires of one local day, as UTC times."""
    trigger = Cron(expression, timezone=zone, **more)
    low = Once(f"{year}-{month:02d}-{day:02d}T00:00:00", timezone=zone).instant
    found = []
    at = trigger.next_after(low - timedelta(seconds=1))
    while at is not None and trigger.local(at).day == day and trigger.local(at).month == month:
        found.append(at.strftime("%H:%M"))
        at = trigger.next_after(at)
    return found


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", (2026, 3, 8), ["07:00"]),
        ("0,30 2 * * *", (2026, 3, 8), ["07:00"]),  # several become one
        ("0 1-3 * * *", (2026, 3, 8), ["06:00", "07:00"]),  # merged
        ("*/15 2 * * *", (2026, 3, 8), ["07:00"]),
        ("30 1 * * *", (2026, 11, 1), ["05:30"]),
        (
            "*/15 1 * * *",
            (2026, 11, 1),
            ["05:00", "05:15", "05:30", "05:45", "06:00", "06:15", "06:30", "06:45"],
        ),
    ],
)
def test_fixed_times_at_clock_changes(
    expression: str, day: tuple[int, int, int], expected: list[str]
) -> None:
    assert on_day(expression, NEW_YORK, *day) == expected


def test_hourly_fires_in_a_gap() -> None:
    assert on_day("30 * * * *", NEW_YORK, 2026, 3, 8)[1:3] == ["06:30", "07:30"]


def test_half_hourly_fires_in_an_overlap() -> None:
    fires = on_day("*/30 * * * *", NEW_YORK, 2026, 11, 1)
    assert fires[2:7] == ["05:00", "05:30", "06:00", "06:30", "07:00"]


def test_next_and_previous_are_inverse() -> None:
    trigger = Cron("30 1 * * *", timezone=NEW_YORK)
    fire = utc(2026, 11, 1, 5, 30)
    assert trigger.next_after(fire - timedelta(microseconds=1)) == fire
    assert trigger.previous_before(fire + timedelta(microseconds=1)) == fire
    assert trigger.previous_before(trigger.next_after(fire)) == fire
    assert trigger.next_after(trigger.previous_before(fire)) == fire


def test_missing_day_of_apia_has_no_fire() -> None:
    trigger = Cron("30 12 * * *", timezone="Pacific/Apia")
    local = [fire.local.strftime("%d") for fire in trigger.fires(utc(2011, 12, 28), 3)]
    assert local == ["28", "29", "31"]


def test_shift_of_seven_hours_is_not_a_clock_change() -> None:
    # Vostok went from +07 to +00 on 1994-02-01 at 00:00.
    trigger = Cron("0 20 * * *", timezone="Antarctica/Vostok")
    fires = trigger.fires(utc(1994, 1, 31), 3)
    assert [fire.at for fire in fires] == [
        utc(1994, 1, 31, 13),
        utc(1994, 1, 31, 20),
        utc(1994, 2, 1, 20),
    ]
    assert [fire.note for fire in fires] == ["repeated_hour_first", "repeated_hour_second", None]


def test_a_shift_of_three_hours_is_a_clock_change() -> None:
    # Casey went from +08 to +11 on 2018-10-07 at 04:00, and back on 2019-03-17 at 03:00.
    assert on_day("30 5 * * *", "Antarctica/Casey", 2018, 10, 7) == ["20:00"]
    assert on_day("30 1 * * *", "Antarctica/Casey", 2019, 3, 17) == ["14:30"]


def test_search_starting_in_a_repeated_hour() -> None:
    moment = utc(2026, 11, 1, 6, 10)
    fixed = Cron("30 1 * * *", timezone=NEW_YORK)
    assert fixed.next_after(moment) == utc(2026, 11, 2, 6, 30)
    assert fixed.previous_before(moment) == utc(2026, 11, 1, 5, 30)
    assert Cron("*/15 1 * * *", timezone=NEW_YORK).next_after(moment) == utc(2026, 11, 1, 6, 15)


def test_last_fires_in_a_repeated_hour() -> None:
    trigger = Cron("0 */30 23 17 2 ? 2018", timezone="America/Sao_Paulo")
    assert [fire.at.strftime("%H:%M") for fire in trigger.fires(utc(2018, 2, 1), 9)] == [
        "01:00",
        "01:30",
        "02:00",
        "02:30",
    ]


def test_previous_of_the_first_fire_in_a_repeated_hour() -> None:
    trigger = Cron("0 */30 23 17 2 ? 2018", timezone="America/Sao_Paulo")
    assert trigger.previous_before(utc(2018, 2, 18, 2, 0)) == utc(2018, 2, 18, 1, 30)
    assert trigger.previous_before(utc(2018, 2, 18, 1, 0)) is None


def test_zone_of_the_expression_takes_precedence() -> None:
    prefixed = Cron("CRON_TZ=Asia/Tokyo 0 9 * * *", timezone="Europe/Berlin")
    assert prefixed.zone == "Asia/Tokyo"
    assert prefixed.next_after(utc(2026, 1, 1)) == utc(2026, 1, 2)
    assert prefixed.with_default_zone("Asia/Bangkok") is prefixed
    assert Cron("TZ=Asia/Tokyo 0 9 * * *") != prefixed
    plain = Cron("0 9 * * *")
    assert plain.zone == "UTC"
    assert plain.with_default_zone("Asia/Bangkok") == Cron("0 9 * * *", timezone="Asia/Bangkok")
    assert Cron("0 9 * * *", timezone="UTC").with_default_zone("Asia/Bangkok").zone == "UTC"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 13 * FRI", [6, 13, 20, 27]),  # either
        ("0 0 1-7 * FRI", [1, 2, 3, 4, 5, 6, 7, 13, 20, 27]),
        ("0 0 */2 * FRI", [13, 27]),  # both: starts with *
        ("0 0 13 * */5", [13]),  # both; */5 is Sunday and Friday
        ("0 0 ? * FRI", [6, 13, 20, 27]),
        ("0 0 13 * ?", [13]),
        ("0 0 1,*/2 * 5", [1, 3, 5, 6, 7, 9, 11, 13, 15, 17, 19, 20, 21, 23, 25, 27]),
    ],
)
def test_day_of_month_and_day_of_week_combine(expression: str, expected: list[int]) -> None:
    trigger = Cron(expression)
    fires = trigger.fires(utc(2026, 1, 31, 23, 59), 30)
    assert [fire.at.day for fire in fires if fire.at < utc(2026, 3, 1)] == expected
    seconds_first = Cron(f"0 {expression}")
    assert seconds_first.fires(utc(2026, 1, 31, 23, 59), 30) == fires


@each_row(
    ("expression", "expected"),
    [
        ("0 0 0 ? 2 1 *", [1, 8, 15, 22]),  # 1 is Sunday
        ("0 0 0 ? 2 7 *", [7, 14, 21, 28]),
        ("0 0 0 ? 2 FRI-MON *", [1, 2, 6, 7, 8, 9, 13, 14, 15, 16, 20, 21, 22, 23, 27, 28]),
        ("0 0 0 ? 2 6-2/2 *", [1, 6, 8, 13, 15, 20, 22, 27]),
        ("0 0 0 27-3 2 ? *", [1, 2, 3, 27, 28]),
        ("0 0 0 29W 2 ? *", []),  # no such day
        ("0 0 0 28W 2 ? *", [27]),
        ("0 0 0 1W 2 ? *", [2]),  # stays in its month
        ("0 0 0 ? 2 SUN#4 *", [22]),
        ("0 0 0 ? 2 SUN#5 *", []),
        ("0 0 0 ? 2 L *", [7, 14, 21, 28]),
        ("0 0 0 ? 2 FRIL *", [27]),
        ("0 0 0 L-27 2 ? *", [1]),
        ("0 0 0 L-28 2 ? *", []),
        ("0 0 0 L-28W 2 ? *", []),
        ("0 0 0 L-27W 2 ? *", [2]),
        ("0 0 0 LW 2 ? *", [27]),
        ("0 0 0 1 2 * *", [1]),  # * is accepted for ? in seven fields
        ("0 0 0 /10 2 ? *", [1, 11, 21]),
        ("0 0 0 ? 2 SAT *", [7, 14, 21, 28]),
        ("0 0 0 ? 2 2L,6L *", [23, 27]),
    ],
)
def test_quartz_day_fields(expression: str, expected: list[int]) -> None:
    trigger = Cron(expression)
    fires = trigger.fires(utc(2026, 1, 31, 23, 59), 30)
    assert [fire.at.day for fire in fires if fire.at < utc(2026, 3, 1)] == expected


def test_quartz_years() -> None:
    trigger = Cron("0 0 0 1 1 ? 2190/3")
    years = [fire.at.year for fire in trigger.fires(utc(2189, 1, 1), 9)]
    assert years == [2190, 2193, 2196, 2199]
    assert Cron("0 0 0 1 1 ? 1970").previous_before(utc(1980, 1, 1)) == utc(1970, 1, 1)
    assert Cron("0 0 0 1 1 ? 1970-1971").previous_before(utc(1970, 1, 1)) is None


def test_quartz_fire_in_a_gap() -> None:
    assert on_day("0 30 2 * * ? *", NEW_YORK, 2026, 3, 8) == ["07:00"]


@pytest.mark.parametrize(
    "expression",
    ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 1 1 ? 2001", "0 0 0 ? 2 SUN#5 2026"],
)
def test_expressions_that_never_fire_are_detected(expression: str) -> None:
    start = process_time()
    trigger = Cron(expression, timezone="Europe/Berlin")
    assert trigger.next_after(utc(2026, 1, 1)) is None
    assert process_time() - start < 0.5
    assert never_fires(trigger, utc(2026, 1, 1))
    with pytest.raises(InvalidTrigger) as caught:
        ensure_fires(trigger, utc(2026, 1, 1))
    assert caught.value.code == "never_fires"


@pytest.mark.parametrize(
    ("expression", "moment", "expected"),
    [
        ("0 0 29 2 *", utc(2097, 1, 1), utc(2104, 2, 29)),
        ("0 0 29 2 */7", utc(2026, 1, 1), utc(2032, 2, 29)),
        ("0 0 29 2 */7", utc(2088, 3, 1), utc(2128, 2, 29)),
    ],
)
def test_rare_days_are_found_quickly(expression: str, moment: datetime, expected: datetime) -> None:
    trigger = Cron(expression)
    start = process_time()
    assert trigger.next_after(moment) == expected
    assert process_time() - start < 0.5
    assert trigger.previous_before(expected) <= moment
    assert trigger.previous_before(expected + timedelta(seconds=1)) == expected
    assert not never_fires(trigger, moment)
    ensure_fires(trigger, moment)


def test_six_fields_start_with_seconds() -> None:
    trigger = Cron("15,45 30 2 * * *")
    assert trigger.next_after(utc(2026, 1, 1, 2, 30, 15)) == utc(2026, 1, 1, 2, 30, 45)
    assert trigger.next_after(utc(2026, 1, 1, 2, 30, 45)) == utc(2026, 1, 2, 2, 30, 15)
    assert trigger.previous_before(utc(2026, 1, 1, 2, 30, 45)) == utc(2026, 1, 1, 2, 30, 15)
    assert trigger.previous_before(utc(2026, 1, 1, 2, 30, 15)) == utc(2025, 12, 31, 2, 30, 45)
    assert trigger.previous_before(utc(2026, 1, 1, 2, 30, 10)) == utc(2025, 12, 31, 2, 30, 45)
    assert Cron("0 0 12 * * ?", dialect="quartz") != Cron("0 0 12 * * ?")


@each_row(
    ("one", "other"),
    [
        ("0 0 * * 0", "0 0 * * 7"),
        ("0 0 * * sun", "0 0 * * SUN"),
        ("0 0 * jan,FEB *", "0 0 * 1,2 *"),
        ("10/20 * * * *", "10-59/20 * * * *"),
        ("*/20 * * * *", "0,20,40 * * * *"),
        ("0 0 * * MON/2", "0 0 * * 1,3,5"),
        ("0 0 * * 7/2", "0 0 * * 0,2,4,6"),
        ("0 0 * * FRI-MON", "0 0 * * 5,6,0,1"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * 6-0", "0 0 * * 0,6"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-3/2 * * *", "0 22,0,2 * * *"),
        ("0 23-23 * * *", "0 23 * * *"),
        ("0 0 28-2 * *", "0 0 28,29,30,31,1,2 * *"),
        ("0 0 * NOV-FEB *", "0 0 * 11,12,1,2 *"),
        ("  0   0 *  * * ", "0 0 * * *"),
        ("0 0 L * *", "0 0 0 L * ? *"),
        ("0 0 15W * *", "0 0 0 15W * ? *"),
        ("0 0 * * MON#2", "0 0 0 ? * 2#2 *"),
        ("0 0 * * 0L", "0 0 0 ? * 1L *"),
        ("0 0 * * 7L", "0 0 0 ? * 1L *"),
        ("0 0 * * 7#1", "0 0 0 ? * 1#1 *"),
        ("0 0 * * L", "0 0 * * 6"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_equivalent_expressions_have_the_same_fires(one: str, other: str) -> None:
    moment = utc(2026, 2, 3, 4, 5)
    assert Cron(one).fires(moment, 12) == Cron(other).fires(moment, 12)


def test_descriptor_with_a_zone_prefix() -> None:
    trigger = Cron("TZ=Asia/Tokyo  @midnight")
    assert trigger.next_after(utc(2026, 1, 1)) == utc(2026, 1, 1, 15)
    assert trigger.expression == "TZ=Asia/Tokyo @midnight"


@pytest.mark.parametrize(
    ("dst", "expression", "gap", "overlap"),
    [
        ("chimes", "30 2 * * *", ["07:00"], None),
        ("vixie", "30 2 * * *", ["07:00"], None),
        ("robfig", "30 2 * * *", [], None),
        ("vixie", "*/15 2 * * *", [], None),
        ("vixie", "0-59/15 2 * * *", ["07:00"], None),
        ("vixie", "30 1 * * *", None, ["05:30"]),
        ("vixie", "*/30 1 * * *", None, ["05:00", "05:30", "06:00", "06:30"]),
        ("vixie", "0-59/30 1 * * *", None, ["05:00", "05:30"]),
        ("robfig", "30 1 * * *", None, ["05:30", "06:30"]),
    ],
)
def test_dst_policies_at_clock_changes(
    dst: str, expression: str, gap: list[str] | None, overlap: list[str] | None
) -> None:
    if gap is not None:
        assert on_day(expression, NEW_YORK, 2026, 3, 8, dst=dst) == gap
    if overlap is not None:
        assert on_day(expression, NEW_YORK, 2026, 11, 1, dst=dst) == overlap


@pytest.mark.parametrize(
    ("expression", "moment", "notes"),
    [
        ("30 2 * * *", utc(2026, 3, 7), [None, "moved_by_gap", None]),
        ("0 3 * * *", utc(2026, 3, 8), [None, None]),
        ("0 1-3 * * *", utc(2026, 3, 8, 6), [None, None]),  # merged: scheduled anyway
        ("30 1 * * *", utc(2026, 11, 1), ["repeated_hour_once", None]),
        (
            "*/30 1 * * *",
            utc(2026, 11, 1),
            ["repeated_hour_first"] * 2 + ["repeated_hour_second"] * 2 + [None],
        ),
        ("59 0 * * *", utc(2026, 11, 1), [None, None]),
        ("0 2 * * *", utc(2026, 11, 1), [None, None]),
    ],
)
def test_fires_have_notes_at_clock_changes(
    expression: str, moment: datetime, notes: list[str | None]
) -> None:
    trigger = Cron(expression, timezone=NEW_YORK)
    assert [fire.note for fire in trigger.fires(moment, len(notes))] == notes


def test_fire_has_the_local_time() -> None:
    (fire,) = Cron("30 2 * * *", timezone=NEW_YORK).fires(utc(2026, 3, 8), 1)
    assert fire.at.utcoffset() == timedelta(0)
    assert fire.local.isoformat() == "2026-03-08T03:00:00-04:00"
    assert fire.local == fire.at


def test_fires_at_the_limits_of_the_calendar() -> None:
    trigger = Cron("0 12 * * *", timezone="Europe/Berlin")
    assert trigger.next_after(utc(2500, 7, 1)) == utc(2500, 7, 1, 10)
    assert trigger.next_after(utc(2500, 1, 1)) == utc(2500, 1, 1, 11)
    assert trigger.next_after(utc(9998, 12, 31, 23)) is None
    assert trigger.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert trigger.previous_before(datetime.max.replace(tzinfo=UTC)) == utc(9998, 12, 31, 11)
    assert trigger.next_after(datetime.min.replace(tzinfo=UTC)).year == 1
    assert trigger.previous_before(datetime.min.replace(tzinfo=UTC)) is None
    assert Cron("0 0 29 2 *").next_after(utc(9997, 1, 1)) is None


def test_fires_beyond_the_precomputed_transitions() -> None:
    trigger = Cron("30 2 * 3 SUN", timezone=NEW_YORK)
    year = utc(2109, 12, 31)
    gap = [fire for fire in trigger.fires(year, 5) if fire.note]
    assert [fire.local.isoformat() for fire in gap] == ["2110-03-09T03:00:00-04:00"]
