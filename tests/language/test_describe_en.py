"""Triggers in English: a golden table, and properties over any expression."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.triggers import Cron, Every, Note, Once, Trigger
from chimes.triggers.cron_fields import parse_fields

GOLDEN = [
    ("* * * * *", "Every minute, UTC"),
    ("30 8-18 * * *", "Every hour from 08:30 to 18:30, UTC"),
    ("0 0-5,10-20 * * *", "Every hour from 00:00 to 05:00 and from 10:00 to 20:00, UTC"),
    (
        "0 5-7,9,11-13 * * *",
        "Every day at 05:00, 06:00, 07:00, 09:00, 11:00, 12:00 and 13:00, UTC",
    ),
    (
        "0 0-2,4-6,8-10,12-14 * * *",
        "Every day at 00:00, 01:00, 02:00, 04:00, 05:00, 06:00, 08:00, 09:00, 10:00, 12:00, "
        "13:00 and 14:00, UTC",
    ),
    ("*/10 0-29 9 * * *", "Every 10 seconds in minutes 0 to 29 of hour 9, UTC"),
    ("*/5 * * * *", "Every 5 minutes, UTC"),
    ("*/7 * * * *", "Every day at every 7th minute from 0 to 56 of every hour, UTC"),
    ("0 * * * *", "Every hour, UTC"),
    ("30 * * * *", "Every hour at minute 30, UTC"),
    ("0 */2 * * *", "Every 2 hours from 00:00, UTC"),
    ("15 1/2 * * *", "Every 2 hours from 01:15, UTC"),
    ("30 2 * * *", "Every day at 02:30, UTC"),
    ("0 9 * * 1-5", "Every weekday at 09:00, UTC"),
    ("0 9,12,18 * * *", "Every day at 09:00, 12:00 and 18:00, UTC"),
    ("*/15 9-17 * * 1-5", "Every 15 minutes from 09:00 to 17:45, every weekday, UTC"),
    ("0 9-17 * * *", "Every hour from 09:00 to 17:00, UTC"),
    ("0 0 1 * *", "On the 1st of every month at 00:00, UTC"),
    ("0 0 1 1 *", "On the 1st of January at 00:00, UTC"),
    ("@weekly", "Every Sunday at 00:00, UTC"),
    ("@yearly", "On the 1st of January at 00:00, UTC"),
    ("@hourly", "Every hour, UTC"),
    ("@every 90m", "Every 1 hour and 30 minutes"),
    ("0 0 13 * 5", "On the 13th of every month and every Friday at 00:00, UTC"),
    (
        "0 0 */2 * MON",
        "On every 2nd day from the 1st to the 31st of every month, if that is a Monday, "
        "at 00:00, UTC",
    ),
    ("0 0 L * *", "On the last day of every month at 00:00, UTC"),
    ("0 0 LW * *", "On the last weekday of every month at 00:00, UTC"),
    ("0 0 15W * *", "On the weekday nearest the 15th of every month at 00:00, UTC"),
    ("0 0 L-3 * *", "On the day 3 days before the last of every month at 00:00, UTC"),
    ("0 0 * * 5L", "On the last Friday of every month at 00:00, UTC"),
    ("0 0 * * MON#2", "On the second Monday of every month at 00:00, UTC"),
    ("* 9 * * *", "Every minute from 09:00 to 09:59, UTC"),
    ("*/10 * * * * *", "Every 10 seconds, UTC"),
    ("30 * * * * *", "Every minute at second 30, UTC"),
    ("0 0 12 ? * MON-FRI", "Every weekday at 12:00, UTC"),
    ("0/30 0 9 * * *", "Every day at 09:00:00 and 09:00:30, UTC"),
    ("*/5 22-2 * * *", "Every 5 minutes from 00:00 to 02:55 and from 22:00 to 23:55, UTC"),
    ("0 22-2 * * *", "Every day at 00:00, 01:00, 02:00, 22:00 and 23:00, UTC"),
    ("0 0 1,15 * *", "On the 1st and the 15th of every month at 00:00, UTC"),
    ("0 0 1-7 * *", "On the 1st to the 7th of every month at 00:00, UTC"),
    ("0 0 * 6-8 *", "Every day from June to August at 00:00, UTC"),
    ("0 0 31 * *", "On the 31st of every month at 00:00, UTC"),
    ("0 0 29 2 *", "On the 29th of February at 00:00, UTC"),
    ("5,10,20 9-17 * * *", "Every day at minutes 5, 10 and 20 of hours 9 to 17, UTC"),
    (
        "*/7 9-17/2 * * *",
        "Every day at every 7th minute from 0 to 56 of every 2nd hour from 9 to 17, UTC",
    ),
    ("* * * * * *", "Every second, UTC"),
    ("*/15 30 9 * * *", "Every day at 09:30:00, 09:30:15, 09:30:30 and 09:30:45, UTC"),
    ("0 0 1-31 * MON", "Every day at 00:00, UTC"),
    ("0 0 * * 0,6", "Every Saturday and Sunday at 00:00, UTC"),
    ("0 0 * * 1-4", "Every day from Monday to Thursday at 00:00, UTC"),
    ("0 0 * * FRI-MON", "Every Monday, Friday, Saturday and Sunday at 00:00, UTC"),
    ("*/20 */3 * * *", "Every 20 minutes in every 3rd hour from 0 to 21, UTC"),
    ("10 */5 * * *", "Every day at 00:10, 05:10, 10:10, 15:10 and 20:10, UTC"),
    ("0 0 12 1/5 * ? *", "On every 5th day from the 1st to the 31st of every month at 12:00, UTC"),
    (
        "0 11 11 11 11 ? 2027/3",
        "On the 11th of November at 11:11, in every 3rd year from 2027 to 2198, UTC",
    ),
    ("1-58 * * * *", "Every day at minutes 1 to 58 of every hour, UTC"),
    ("0 0 1 */3 *", "On the 1st of January, April, July and October at 00:00, UTC"),
    ("0,15 * 9 * * *", "Every minute at seconds 0 and 15 from 09:00 to 09:59, UTC"),
    ("CRON_TZ=Asia/Bangkok 0 9 * * *", "Every day at 09:00, Asia/Bangkok time"),
    ("3 0 0 ? * L *", "Every Saturday at 00:00:03, UTC"),
    ("0 0 1,L * *", "On the 1st and the last day of every month at 00:00, UTC"),
    (
        "0 0 1W,15W * *",
        "On the weekday nearest the 1st and the weekday nearest the 15th of every month "
        "at 00:00, UTC",
    ),
    ("0 0 L-1W * *", "On the weekday nearest the day before the last of every month at 00:00, UTC"),
    ("0 0 L-1 * *", "On the day before the last of every month at 00:00, UTC"),
    ("0 0 * * MON,FRI", "Every Monday and Friday at 00:00, UTC"),
    ("0 0 * * MON,WED#1", "Every Monday and on the first Wednesday of every month at 00:00, UTC"),
    ("0 0 13 6 5", "On the 13th of June and every Friday in June at 00:00, UTC"),
    (
        "0 0 13 6-8 5",
        "On the 13th of June to August and every Friday from June to August at 00:00, UTC",
    ),
    ("0 0 * 6,7 1", "Every Monday in June and July at 00:00, UTC"),
    ("0 12 * 1,3,5-8 *", "Every day in January, March and May to August at 12:00, UTC"),
    ("*/5 * 1 * *", "Every 5 minutes, on the 1st of every month, UTC"),
    ("*/10 * * 2 1-5", "Every 10 minutes, every weekday in February, UTC"),
    (
        "0 0 */2 * 1-5",
        "On every 2nd day from the 1st to the 31st of every month, if that is a weekday, "
        "at 00:00, UTC",
    ),
    (
        "0 0 */5 * MON#1,5L",
        "On every 5th day from the 1st to the 31st of every month, if that is the first "
        "Monday of the month or the last Friday of the month, at 00:00, UTC",
    ),
    ("45 23 * * 6", "Every Saturday at 23:45, UTC"),
    ("0 8-10 * * *", "Every day at 08:00, 09:00 and 10:00, UTC"),
    ("0 8-9 * * *", "Every day at 08:00 and 09:00, UTC"),
    ("0 6,8-10,20 * * *", "Every day at 06:00, 08:00, 09:00, 10:00 and 20:00, UTC"),
    ("*/5 8,10,12,14 * * *", "Every 5 minutes in every 2nd hour from 8 to 14, UTC"),
    (
        "*/5 8-9,12-13,20 * * *",
        "Every 5 minutes from 08:00 to 09:55, from 12:00 to 13:55 and from 20:00 to 20:55, UTC",
    ),
    ("5/10 * * * *", "Every 10 minutes from minute 5, UTC"),
    ("0 0 31 1 *", "On the 31st of January at 00:00, UTC"),
    ("0 0 30 * *", "On the 30th of every month at 00:00, UTC"),
    ("0 0 1-3,5 * *", "On the 1st to the 3rd and the 5th of every month at 00:00, UTC"),
    ("0 0 1,2,5 * *", "On the 1st, the 2nd and the 5th of every month at 00:00, UTC"),
    ("0-10 * * * *", "Every day at minutes 0 to 10 of every hour, UTC"),
    ("0,30 * * * *", "Every 30 minutes, UTC"),
    ("15,45 9-17 * * *", "Every 30 minutes from 09:15 to 17:45, UTC"),
    ("0 */6 * * *", "Every day at 00:00, 06:00, 12:00 and 18:00, UTC"),
    ("0 */12 * * *", "Every day at 00:00 and 12:00, UTC"),
    ("*/2 * * * *", "Every 2 minutes, UTC"),
    ("0/5 14,18 * * *", "Every 5 minutes from 14:00 to 14:55 and from 18:00 to 18:55, UTC"),
    (
        "0 15 10 L-2 * ? 2027",
        "On the day 2 days before the last of every month at 10:15, in 2027, UTC",
    ),
    (
        "0 0 12 ? * MON-WED 2026,2028",
        "Every day from Monday to Wednesday at 12:00, in 2026 and 2028, UTC",
    ),
    ("* 30 9 * * *", "Every second in minute 30 of hour 9, UTC"),
    ("*/10 0-5 * * * *", "Every 10 seconds in minutes 0 to 5 of every hour, UTC"),
    ("5 */2 * * * *", "Every day at second 5 of every 2nd minute from 0 to 58 of every hour, UTC"),
    ("0 0 5 31 * ?", "On the 31st of every month at 05:00, UTC"),
    ("0 0 0 1 JAN ?", "On the 1st of January at 00:00, UTC"),
    ("10-20/5 3 * * *", "Every day at 03:10, 03:15 and 03:20, UTC"),
    ("0 0 1/10 * *", "On every 10th day from the 1st to the 31st of every month at 00:00, UTC"),
    ("0 0 * */2 *", "Every day in January, March, May, July, September and November at 00:00, UTC"),
    ("0 0 * * */2", "Every Tuesday, Thursday, Saturday and Sunday at 00:00, UTC"),
    ("0 9-17/2 * * 1-5", "Every weekday at 09:00, 11:00, 13:00, 15:00 and 17:00, UTC"),
    ("10,40 14 ? 3 WED", "Every Wednesday in March at 14:10 and 14:40, UTC"),
    ("0 10,44 14 ? 3 WED", "Every Wednesday in March at 14:10 and 14:44, UTC"),
    ("0 0 1 1,7 *", "On the 1st of January and July at 00:00, UTC"),
    ("59 23 31 12 *", "On the 31st of December at 23:59, UTC"),
    ("0 0 * * 7", "Every Sunday at 00:00, UTC"),
    ("0 0 * * 1-7", "Every day at 00:00, UTC"),
]


# TIME "Words"
@pytest.mark.parametrize(("expression", "words"), GOLDEN, ids=[row[0] for row in GOLDEN])
def test_cron_in_words(expression: str, words: str) -> None:
    assert describe(Cron(expression)) == words


NEW_YORK = "America/New_York"
DATES = [f"2026-12-2{day}" for day in range(8)]
WEEKLY = [
    {"days": ["SAT", "SUN"]},
    {"days": ["MON", "TUE", "WED", "THU", "FRI"], "from": "12:00", "to": "13:00"},
    {"days": ["FRI"], "from": "22:00", "to": "06:00"},
]
OTHERS: list[tuple[Trigger, str]] = [
    (Cron("30 2 * * *", timezone=NEW_YORK), "Every day at 02:30, America/New_York time"),
    (Cron("0 0 12 ? * MON-FRI", dialect="quartz"), "Every weekday at 12:00, UTC"),
    (Cron("0 0 12 ? * 2", dialect="quartz"), "Every Monday at 12:00, UTC"),
    (Cron("0 0 * * *", dst="vixie"), "Every day at 00:00, UTC; clock changes as in vixie"),
    (Every("5m"), "Every 5 minutes"),
    (Every("1m"), "Every minute"),
    (Every("1h"), "Every hour"),
    (Every("24h"), "Every 24 hours"),
    (Every("168h"), "Every 7 days of 24 hours"),
    (Every("1m30s"), "Every 1 minute and 30 seconds"),
    (Every("250ms"), "Every 250 milliseconds"),
    (Every("25h1m1s"), "Every 25 hours, 1 minute and 1 second"),
    (
        Every("5m", anchor="2026-01-01T09:00:00Z", jitter="30s"),
        "Every 5 minutes, counted from 1 January 2026 at 09:00 UTC, each run up to 30 "
        "seconds later",
    ),
    (Every("5m", jitter="0s"), "Every 5 minutes"),
    (
        Cron("@every 1h", anchor="2026-01-01T00:00:00Z"),
        "Every hour, counted from 1 January 2026 at 00:00 UTC",
    ),
    (
        Every("1h", start_at="2026-01-01T00:00:00Z"),
        "Every hour; from 1 January 2026 at 00:00 UTC on",
    ),
    (Every("1h", max_runs=1), "Every hour; only once"),
    (
        Once("2030-02-10T09:00:00", timezone="Asia/Bangkok"),
        "Once, on Sunday 10 February 2030 at 09:00, Asia/Bangkok time",
    ),
    (Once("2030-02-10T09:00:05.25Z"), "Once, on Sunday 10 February 2030 at 09:00:05.25, UTC"),
    (
        Once("2027-03-14T02:30:00", timezone=NEW_YORK),
        "Once, on Sunday 14 March 2027 at 03:00, America/New_York time",
    ),
    (
        Cron(
            "0 9 * * *",
            timezone=NEW_YORK,
            start_at="2026-01-01T00:00:00Z",
            end_at="2026-12-31T23:59:59Z",
            max_runs=5,
        ),
        "Every day at 09:00, America/New_York time; from 31 December 2025 at 19:00 on; "
        "until 31 December 2026 at 18:59:59; at most 5 times",
    ),
    (
        Cron("0 9 * * *", exclude=[{"holidays": "TH", "on_excluded": "next"}]),
        "Every day at 09:00, UTC; except on public holidays of TH, then on the next business day",
    ),
    (
        Cron("0 9 * * *", exclude=[{"dates": ["2026-12-25"]}]),
        "Every day at 09:00, UTC; except on 2026-12-25",
    ),
    (
        Cron("0 9 * * *", exclude=[{"dates": DATES[:6]}]),
        "Every day at 09:00, UTC; except on 2026-12-20, 2026-12-21, 2026-12-22, 2026-12-23, "
        "2026-12-24 and 1 more date",
    ),
    (
        Cron("0 9 * * *", exclude=[{"dates": DATES, "on_excluded": "previous"}]),
        "Every day at 09:00, UTC; except on 2026-12-20, 2026-12-21, 2026-12-22, 2026-12-23, "
        "2026-12-24 and 3 more dates, then on the previous business day",
    ),
    (
        Cron("0 9 * * *", exclude=[{"weekly": WEEKLY}]),
        "Every day at 09:00, UTC; except on Saturday and Sunday, on Monday to Friday from 12:00 "
        "to 13:00 and on Friday from 22:00 to 06:00 of the next day",
    ),
]


# TIME "Words"
@pytest.mark.parametrize(("trigger", "words"), OTHERS, ids=[row[1][:60] for row in OTHERS])
def test_triggers_in_words(trigger: Trigger, words: str) -> None:
    assert describe(trigger) == words
    assert describe(trigger, "en-GB") == words


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(InvalidInput, match="'tlh'; there are en"):
        describe(Every("1m"), "tlh")


WARNINGS = [
    ("0 9 * * *", []),
    ("*/5 * * * *", []),
    ("0 0 13 * 5", ["date or its weekday"]),
    ("0 0 */2 * MON", ["both its date and its weekday", "The step of 2 days starts anew"]),
    ("*/7 * * * *", ["The step of 7 minutes starts anew with each hour; the gap there is 4"]),
    ("*/59 * * * *", ["step of 59 minutes starts anew with each hour; the gap there is 1 minute"]),
    ("5/10 * * * *", []),
    ("7/10 * * * *", []),
    ("13/10 * * * *", ["the gap there is 20 minutes"]),
    ("59/10 * * * *", []),
    ("0 */5 * * *", ["step of 5 hours starts anew with each day; the gap there is 4 hours"]),
    ("0 0 1 */5 *", ["step of 5 months starts anew with each year; the gap there is 2 months"]),
    ("*/7 0 * * * *", ["step of 7 seconds starts anew with each minute"]),
    ("* 9 * * *", ["60 times a day; put 0"]),
    ("*/10 * * * * *", ["Runs 8640 times a day"]),
    ("* * * * *", []),
    ("0 0 31 * *", ["without a day 31"]),
    ("0 0 31 1,3 *", []),
    ("0 0 31,L * *", []),
    ("0 0 29 2 *", ["leap years only"]),
    ("0 0 29 * *", ["without a day 29"]),
    ("@daily", []),
    ("@every 7m", []),
]


@pytest.mark.parametrize(("expression", "parts"), WARNINGS, ids=[row[0] for row in WARNINGS])
def test_warnings(expression: str, parts: list[str]) -> None:
    found = warnings_in_words(Cron(expression))
    assert len(found) == len(parts)
    for text, part in zip(found, parts, strict=True):
        assert part in text


# T10
def test_a_moment_in_a_gap_is_warned_about() -> None:
    assert warnings_in_words(Once("2027-03-14T02:30:00", timezone=NEW_YORK)) == (
        "its time is skipped when the clocks go forward; it runs at the change",
    )
    assert warnings_in_words(Every("7m")) == ()


def test_every_note_has_words() -> None:
    notes: tuple[Note, ...] = (
        "moved_by_gap",
        "repeated_hour_first",
        "repeated_hour_second",
        "repeated_hour_once",
        "moved_by_calendar",
    )
    assert len({note_in_words(note) for note in notes}) == 5


def _term(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    return st.one_of(
        number,
        st.tuples(number, number).map("-".join),
        st.integers(2, max(2, high - low)).map(lambda step: f"*/{step}"),
        st.tuples(number, st.integers(2, max(2, high - low))).map(
            lambda pair: f"{pair[0]}/{pair[1]}"
        ),
        st.tuples(number, number, st.integers(1, 5)).map(lambda t: f"{t[0]}-{t[1]}/{t[2]}"),
    )


def _field(low: int, high: int, *others: str) -> st.SearchStrategy[str]:
    term = st.one_of(_term(low, high), *(st.just(other) for other in others))
    listed = st.lists(term, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), listed)


DATE_TERMS = ("L", "LW", "15W", "1W", "L-3", "L-3W")
WEEKDAY_TERMS = ("MON", "5L", "2#1", "FRI#5", "SUN-TUE")
EXPRESSIONS = st.tuples(
    st.one_of(st.just("0"), _field(0, 59)),
    _field(0, 59),
    _field(0, 23),
    _field(1, 31, *DATE_TERMS),
    _field(1, 12, "JAN"),
    _field(0, 7, *WEEKDAY_TERMS),
).map(" ".join)
QUARTZ = st.tuples(
    _field(0, 59),
    _field(0, 59),
    _field(0, 23),
    st.sampled_from(["?", "*"]),
    _field(1, 12),
    _field(1, 7),
    _field(1990, 2190),
).map(" ".join)


def _parsed(expression: str) -> Cron | None:
    try:
        return Cron(expression)
    except InvalidTrigger:
        return None


@settings(max_examples=300, deadline=None)
@given(st.one_of(EXPRESSIONS, QUARTZ))
def test_any_expression_has_words(expression: str) -> None:
    trigger = _parsed(expression)
    if trigger is not None:
        words = describe(trigger)
        assert words.isascii()
        assert words.endswith(", UTC")
        assert words[0].isupper()
        assert "  " not in words
        assert "None" not in words
        warnings_in_words(trigger)


def _meaning(expression: str) -> tuple[object, ...]:
    fields = parse_fields(expression, "auto")
    first = (date(2024, 1, 1).toordinal() - date(1970, 1, 1).toordinal()) // 64
    days = tuple(fields.days.block(number) for number in range(first, first + 160))
    return fields.seconds, fields.minutes, days


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(EXPRESSIONS, QUARTZ), min_size=2, max_size=25, unique=True))
def test_different_schedules_never_read_the_same(expressions: list[str]) -> None:
    seen: dict[str, str] = {}
    for expression in expressions:
        trigger = _parsed(expression)
        if trigger is None:
            continue
        other = seen.setdefault(describe(trigger), expression)
        assert _meaning(other) == _meaning(expression), (other, expression, describe(trigger))
