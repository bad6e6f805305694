"""Parsing of sentences: patterns, zones, clock changes, questions and invalid arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from chimes.errors import InvalidInput, InvalidTrigger, NeedsClarification
from chimes.language import Parsed, parse, read_trigger
from chimes.language.parser import LONGEST_TEXT
from chimes.triggers import Cron, Every, Once, Trigger
from tests.tables import each_row

BANGKOK = "Asia/Bangkok"
NEW_YORK = "America/New_York"
# A Monday at 09:00 in Bangkok.
NOW = datetime(2026, 11, 16, 2, tzinfo=UTC)


def parsed(text: str, zone: str = BANGKOK, now: datetime = NOW) -> Parsed:
    return parse(text, now=now, timezone=zone)


def question(text: str, zone: str = BANGKOK, now: datetime = NOW) -> NeedsClarification:
    with pytest.raises(NeedsClarification) as found:
        parse(text, now=now, timezone=zone)
    return found.value


PATTERNS = [
    # Names that Softnix uses.
    ("วันนี้ 14:30 สรุปข่าว", "thai_today_time"),
    ("พรุ่งนี้ 09:00 สรุปข่าว", "thai_tomorrow_time"),
    ("ทุกวัน 09:00 สรุปข่าว", "thai_daily_time"),
    ("ทุกวันจันทร์ 09:00 สรุปข่าว", "thai_weekday_time"),
    ("มะรืนนี้ 09:00 สรุปข่าว", "thai_later_day_time"),
    ("วันศุกร์นี้ 09:00 สรุปข่าว", "thai_coming_weekday_time"),
    ("ทุกสิ้นเดือน 09:00 สรุปข่าว", "thai_monthly_time"),
    ("every 25 December at 9:00 greet", "english_yearly_time"),
    ("10 Feb 2027 at 9am launch", "english_date_time"),
    ("the 5th of next month at 9am pay", "english_date_time"),
    ("每隔15分钟检查", "chinese_interval"),
    ("5分钟后关火", "chinese_delay"),
]


@each_row(("text", "pattern"), PATTERNS)
def test_pattern_name(text: str, pattern: str) -> None:
    assert parsed(text).pattern == pattern


def test_result_compares_by_value() -> None:
    found = parsed("ทุกวันจันทร์ 09:00 ส่งรายงาน")
    assert found == Parsed(
        trigger=Cron("0 9 * * 1", timezone=BANGKOK),
        task="ส่งรายงาน",
        timezone=BANGKOK,
        language="th",
        pattern="thai_weekday_time",
    )
    assert parsed("ทุกวันจันทร์ 09:00 ส่งรายงาน") == found


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("every day at 9am สรุปข่าวประจำวัน", "th"),
        ("ทุกวัน 09:00 summarise the AI news please", "th"),
        ("每天9点 summarise the AI news please", "zh"),
        ("every day at 9am résumé", "en"),
        ("ทุกวันจันทร์ เวลา 09:00 น. สรุปข่าว 新闻", "th"),
    ],
)
def test_language_follows_the_script(text: str, language: str) -> None:
    assert parsed(text).language == language


ZONES = [
    ("every day at 9am x", BANGKOK, BANGKOK),
    ("every day at 9am UTC x", BANGKOK, "UTC"),
    ("every day at 9am GMT x", BANGKOK, "UTC"),
    ("every day at 9am London time x", BANGKOK, "Europe/London"),
    ("every day at 9am São Paulo x", BANGKOK, BANGKOK),
    ("every day at 9am, europe/berlin time, x", BANGKOK, "Europe/Berlin"),
    ("every day at 9am local time x", NEW_YORK, NEW_YORK),
    ("New York time, every day at 9am x", BANGKOK, NEW_YORK),
    ("ทุกวัน 09:00 ตามเวลานิวยอร์ก x", BANGKOK, NEW_YORK),
    ("ทุกวัน 09:00 เวลาประเทศไทย x", "UTC", BANGKOK),
    ("ทุกวัน 09:00 เวลาท้องถิ่น x", "Asia/Tokyo", "Asia/Tokyo"),
    ("每天9点(纽约时间)x", BANGKOK, NEW_YORK),
    ("每天当地时间9点x", BANGKOK, BANGKOK),
]


# A zone in the text has precedence over the given one.
@each_row(("text", "given", "zone"), ZONES)
def test_zone_of_the_trigger(text: str, given: str, zone: str) -> None:
    found = parsed(text, given)
    assert found.timezone == zone
    assert found.trigger == Cron("0 9 * * *", timezone=zone)


def test_two_zones_need_clarification() -> None:
    assert question("every day at 9am Bangkok time, Tokyo time, x").missing == ("contradiction",)


# An offset or an abbreviation does not determine the clock changes.
@pytest.mark.parametrize("zone", ["UTC+7", "GMT-05:00", "EST", "Pacific time", "IST"])
def test_ambiguous_zone_needs_clarification(zone: str) -> None:
    assert question(f"every day at 9am {zone} x").missing == ("ambiguous",)


# With a zone, an interval that divides the hour or the day follows the clock of that zone.
def test_interval_with_a_zone() -> None:
    assert parsed("every 15 minutes x").trigger == Every("15m")
    assert parsed("every 15 minutes, UTC").trigger == Cron("*/15 * * * *", timezone="UTC")
    assert parsed("every 6 hours Bangkok time x").trigger == Cron("0 */6 * * *", timezone=BANGKOK)
    assert parsed("every 10 seconds Bangkok time x").trigger == Cron(
        "*/10 * * * * *", timezone=BANGKOK
    )
    assert parsed("every 7 minutes Bangkok time x").trigger == Every("7m")
    assert parsed("every 7 seconds Bangkok time x").trigger == Every("7s")
    assert parsed("every 30 hours Bangkok time x").trigger == Every("30h")


def test_interval_keeps_the_zone_for_display() -> None:
    assert parsed("ทุก 15 นาที เช็ค").timezone == BANGKOK


INTERVALS: list[tuple[str, Trigger]] = [
    ("every 2 hours from 01:15 x", Cron("15 1-23/2 * * *", timezone=BANGKOK)),
    ("every 2 hours from 00:15 x", Cron("15 */2 * * *", timezone=BANGKOK)),
    ("every 30 minutes from 09:15 to 17:45 x", Cron("15-59/30 9-17 * * *", timezone=BANGKOK)),
    ("every 30 minutes from 09:00 to 09:30 x", Cron("*/30 9 * * *", timezone=BANGKOK)),
    ("every 3 hours at minute 20 x", Cron("20 */3 * * *", timezone=BANGKOK)),
    ("every hour at minutes 10 and 40 x", Cron("10,40 * * * *", timezone=BANGKOK)),
    ("every hour from 9:30 to 17:30 x", Cron("30 9-17 * * *", timezone=BANGKOK)),
    ("every day every 15 minutes x", Every("15m")),
    ("every 20 minutes on Mondays in June x", Cron("*/20 * * 6 1", timezone=BANGKOK)),
    ("every 2 days of 24 hours x", Every("48h")),
    ("every quarter of an hour x", Every("15m")),
]


@pytest.mark.parametrize(("text", "trigger"), INTERVALS)
def test_interval_with_hours_minutes_or_days(text: str, trigger: Trigger) -> None:
    assert parsed(text).trigger == trigger


@each_row(
    ("text", "missing"),
    [
        ("every 7 minutes on weekdays x", "interval"),
        ("every 2 hours from 09:00 x", "interval"),
        ("every 90 minutes from 9:00 to 18:00 x", "interval"),
        ("every 10 seconds from 9:00 to 18:00 x", "interval"),
        ("every 2 hours from 9:00 to 18:00 x", "interval"),
        ("every 15 minutes from 18:00 to 9:00 x", "contradiction"),
        ("every 15 minutes at minute 10 x", "contradiction"),
        ("every hour at minute 75 x", "contradiction"),
        ("every 5 hours at minute 10 x", "contradiction"),
        ("every 15 minutes in the morning x", "ambiguous"),
        ("every 15 minutes from 9 to 12 x", "ambiguous"),
        ("every 15 minutes from 9 to 25 x", "contradiction"),
        ("every 15 minutes at 9am x", "contradiction"),
        ("every hour once x", "contradiction"),
        ("at minute 15 every day x", "time"),
        ("every day at 9am at minute 15 x", "contradiction"),
        ("every 15 minutes every 20 minutes x", "contradiction"),
    ],
)
def test_interval_that_no_expression_states_needs_clarification(text: str, missing: str) -> None:
    assert missing in question(text).missing


DAYS = [
    ("every day at 9am in June and July x", "0 9 * 6,7 *"),
    ("every Monday at 9am from June to August x", "0 9 * 6,7,8 1"),
    ("every Friday to Monday at 9am x", "0 9 * * 0,1,5,6"),
    ("every day from Monday to Sunday at 9am x", "0 9 * * *"),
    ("every Sunday and every Monday at 9am x", "0 9 * * 0,1"),
    ("every month on the 1st and on the last day at 9am x", "0 9 1,L * *"),
    ("on the first Monday and the last Friday of every month at 9am x", "0 9 * * 1#1,5L"),
    ("every day at 09:00:30 x", "30 0 9 * * *"),
    ("every day at ten past noon x", "10 12 * * *"),
    ("every day at quarter past 12am x", "15 0 * * *"),
    ("every 1 day at 9am x", "0 9 * * *"),
    ("every 1 week on Monday at 9am x", "0 9 * * 1"),
    ("every 1 month on the 5th at 9am x", "0 9 5 * *"),
    ("every 1 year on 5 May at 9am x", "0 9 5 5 *"),
    ("ทุก 1 สัปดาห์ วันจันทร์ 9:00 x", "0 9 * * 1"),
]


@each_row(("text", "expression"), DAYS)
def test_recurring_days(text: str, expression: str) -> None:
    assert parsed(text).trigger == Cron(expression, timezone=BANGKOK)


@each_row(
    ("text", "missing"),
    [
        ("every month on the 1st and the first Monday at 9am x", "ambiguous"),
        ("every week on the 15th at 9am x", "contradiction"),
        ("every month on Monday at 9am x", "contradiction"),
        ("every day every month at 9am x", "contradiction"),
        ("every day every Monday at 9am x", "contradiction"),
        ("every week every month at 9am x", "contradiction"),
        ("on the 15th the 16th of every month at 9am x", "contradiction"),
        ("every 25 December every 24 December at 9am x", "contradiction"),
        ("tomorrow, Monday and Tuesday, at 9am x", "contradiction"),
        ("tomorrow, Monday, at 9am x", "contradiction"),
        ("every morning and evening at 9 x", "contradiction"),
        ("every day at 9:00:00.5 x", "time"),
        ("every day 9:5 x", "time"),
        ("the 31st of this month at 9am x", "date"),
        ("tomorrow from 9am x", "residue"),
        ("every week x", "date"),
        ("the coming Monday at 9am x", "ambiguous"),
    ],
)
def test_contradictory_days_need_clarification(text: str, missing: str) -> None:
    assert missing in question(text).missing


def test_weekday_named_with_its_date_is_accepted() -> None:
    assert parsed("tomorrow, Tuesday, at 9am x").trigger == parsed("tomorrow at 9am x").trigger


@each_row(
    ("text", "missing"),
    [
        # February has no 31st.
        ("on the 31st of every month in February at 9am x", "date"),
        ("every day at 9am once x", "contradiction"),
        ("every day at 24 x", "contradiction"),
        ("every day at 75 minutes past 9am x", "contradiction"),
        ("every day at quarter past 13 x", "contradiction"),
        ("每天晚上25点 x", "contradiction"),
        ("每天上午9:75 x", "contradiction"),
        ("ทุกวัน ยี่สิบห้านาฬิกา x", "contradiction"),
        ("ทุกวัน 25 น. x", "contradiction"),
        ("ทุกวันจันทร์ที่ 6 ของเดือน 9:00 x", "contradiction"),
        ("每月倒数第三十五天 9:00 x", "contradiction"),
        ("每月第六个周一 9:00 x", "contradiction"),
        ("ทุกชั่วโมง นาทีที่ 75 x", "contradiction"),
        ("每小时第75分 x", "contradiction"),
    ],
)
def test_impossible_time_needs_clarification(text: str, missing: str) -> None:
    assert missing in question(text).missing


# "Next Friday" is unambiguous from this week's Friday on.
@pytest.mark.parametrize(("day", "expected"), [(19, None), (20, "2026-11-27"), (21, "2026-11-27")])
def test_next_friday_depends_on_the_day(day: int, expected: str | None) -> None:
    now = datetime(2026, 11, day, 2, tzinfo=UTC)
    if expected is None:
        assert question("next Friday at 5pm x", now=now).missing == ("ambiguous",)
    else:
        found = parsed("next Friday at 5pm x", now=now).trigger
        assert found == Once(f"{expected}T17:00:00", timezone=BANGKOK)


def test_today_is_the_date_in_the_zone_not_in_utc() -> None:
    late = datetime(2026, 11, 16, 18, tzinfo=UTC)
    assert parsed("วันนี้ 09:00 x", now=late).trigger == Once("2026-11-17T09:00:00", timezone=BANGKOK)
    assert parsed("พรุ่งนี้ 09:00 x", now=late).trigger == Once("2026-11-18T09:00:00", timezone=BANGKOK)


def test_current_moment_counts_as_past() -> None:
    assert question("วันนี้ 09:00 x").missing == ("past",)
    before = NOW - timedelta(microseconds=1)
    assert parsed("วันนี้ 09:00 x", now=before).trigger.next_after(before) == NOW


def test_skipped_time_fires_at_the_clock_change() -> None:
    now = datetime(2027, 3, 13, 12, tzinfo=UTC)
    found = parsed("tomorrow at 2:30 x", NEW_YORK, now).trigger
    assert found.next_after(now) == datetime(2027, 3, 14, 7, tzinfo=UTC)
    assert found.warnings() == ("moved_by_gap",)


def test_delay_is_elapsed_time_across_a_clock_change() -> None:
    now = datetime(2026, 11, 1, 5, 45, tzinfo=UTC)
    for minutes in (10, 30, 90):
        found = parsed(f"in {minutes} minutes x", NEW_YORK, now).trigger
        assert isinstance(found, Once)
        assert found.instant == now + timedelta(minutes=minutes)
        assert found.zone == NEW_YORK


def test_delay_is_rounded_up_to_a_second() -> None:
    now = NOW + timedelta(microseconds=1)
    found = parsed("in 5 minutes x", now=now).trigger
    assert found == Once("2026-11-16T09:05:01", timezone=BANGKOK)


def test_now_may_be_in_any_zone() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=-5)))
    assert parsed("พรุ่งนี้ 09:00 x", now=there) == parsed("พรุ่งนี้ 09:00 x")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2027-02-10T09:00 x", Once("2027-02-10T09:00:00", timezone=BANGKOK)),
        ("2027-02-10T09:00:05Z x", Once("2027-02-10T09:00:05", timezone="UTC")),
        ("2570-02-10 09:00 x", Once("2027-02-10T09:00:00", timezone=BANGKOK)),
        ("05/05/2027 09:00 x", Once("2027-05-05T09:00:00", timezone=BANGKOK)),
    ],
)
def test_date_in_digits(text: str, at: Once) -> None:
    assert parsed(text).trigger == at


def test_utc_offset_needs_clarification() -> None:
    assert question("2027-02-10T09:00+07:00 x").missing == ("ambiguous",)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("in 999999 weeks at 9am x", "date"),
        ("1850-01-01 09:00 x", "past"),
        ("every 999999 hours x", "interval"),
    ],
)
def test_time_out_of_range_needs_clarification(text: str, missing: str) -> None:
    assert question(text).missing == (missing,)


# The language of the text, unless another is given.
def test_language_of_a_question() -> None:
    assert question("ทุกวัน x").message == "กี่โมง?"
    assert question("每天 x").message == "几点？"
    assert question("every day x").message == "At what time?"
    with pytest.raises(NeedsClarification) as found:
        parse("ทุกวัน x", now=NOW, lang="zh-CN")
    assert (found.value.message, found.value.language) == ("几点？", "zh")
    with pytest.raises(NeedsClarification) as found:
        parse("ทุกวัน x", now=NOW, lang="tlh")
    assert found.value.message == "At what time?"


def test_question_quotes_the_words_that_were_not_parsed() -> None:
    found = question("every day at 9am, except holidays, x")
    assert found.missing == ("residue",)
    assert "except" in found.message


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("tomorrow at 5 x", "05:00 or 17:00?"),
        ("พรุ่งนี้ 3 โมง x", "09:00 หรือ 15:00?"),
        ("พรุ่งนี้เช้า 3 โมง x", "09:00 หรือ 15:00?"),
        ("明天12点 x", "00:00 还是 12:00？"),
        ("明天3点半 x", "03:30 还是 15:30？"),
        ("Friday at 3pm x", "Only the coming one, or every week?"),
        ("next Friday at 3pm x", "The one of this week, or of the next?"),
        ("พรุ่งนี้ เที่ยงคืน x", "ต้นวันนั้น หรือสิ้นวันนั้น?"),
        ("every day at 9am EST x", "In which time zone?"),
        ("每天9点美国时间x", "是哪个时区？"),
        ("03/04/2027 9:00 x", "Which date exactly?"),
    ],
)
def test_question_names_the_possible_readings(text: str, choice: str) -> None:
    assert choice in question(text).message


# Tomorrow has another date in that zone than in the author's.
def test_relative_day_in_a_zone_with_another_date_needs_clarification() -> None:
    assert question("tomorrow at 9am New York time x").missing == ("ambiguous",)
    later = datetime(2026, 11, 16, 12, tzinfo=UTC)
    found = parsed("tomorrow at 9am New York time x", now=later).trigger
    assert found == Once("2026-11-17T09:00:00", timezone=NEW_YORK)


def test_question_is_an_invalid_input_error() -> None:
    found = question("every day x")
    assert isinstance(found, InvalidInput)
    assert (found.field, found.code) == ("text", "needs_clarification")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"text": 9}, "wrong_type"),
        ({"text": "x" * (LONGEST_TEXT + 1)}, "too_long"),
        ({"now": datetime(2026, 11, 16)}, "naive_datetime"),  # noqa: DTZ001
        ({"now": "today"}, "wrong_type"),
        ({"timezone": "Mars/Olympus"}, "unknown_zone"),
        ({"timezone": None}, "wrong_type"),
    ],
)
def test_invalid_text_zone_or_moment_is_rejected(given: dict[str, object], code: str) -> None:
    arguments: dict[str, object] = {"text": "x", "now": NOW, "timezone": BANGKOK} | given
    text = arguments.pop("text")
    with pytest.raises(InvalidInput) as found:
        parse(text, **arguments)  # type: ignore[arg-type]
    assert found.value.code == code


EXPRESSIONS: list[tuple[str, Trigger]] = [
    ("0 9 * * 1-5", Cron("0 9 * * 1-5", timezone=BANGKOK)),
    ("@daily", Cron("@daily", timezone=BANGKOK)),
    ("@every 5m", Every("5m")),
    ("CRON_TZ=UTC 0 9 * * *", Cron("CRON_TZ=UTC 0 9 * * *", timezone=BANGKOK)),
    ("every 5m", Every("5m")),
    ("every PT5M", Every("5m")),
    ("2030-02-10T09:00:00+07:00", Once("2030-02-10T09:00:00+07:00", timezone=BANGKOK)),
    ("0 9 L * *", Cron("0 9 L * *", timezone=BANGKOK)),
]


@pytest.mark.parametrize(("text", "trigger"), EXPRESSIONS)
def test_read_trigger_accepts_an_expression(text: str, trigger: Trigger) -> None:
    found = read_trigger(text, now=NOW, timezone=BANGKOK)
    assert (found.trigger, found.task, found.pattern) == (trigger, "", "expression")


def test_read_trigger_accepts_a_sentence() -> None:
    found = read_trigger("ทุกวัน 09:00 สรุปข่าว", now=NOW, timezone=BANGKOK)
    assert (found.trigger, found.task) == (Cron("0 9 * * *", timezone=BANGKOK), "สรุปข่าว")


def test_read_trigger_reports_an_invalid_expression() -> None:
    with pytest.raises(InvalidTrigger, match="61"):
        read_trigger("61 9 * * *", now=NOW, timezone=BANGKOK)


def test_unknown_attribute_of_the_package_raises() -> None:
    from chimes import language

    with pytest.raises(AttributeError, match="parsed"):
        _ = language.parsed  # type: ignore[attr-defined]
