"""Descriptions of triggers, notes and warnings in every language."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.language import (
    LANGUAGES,
    describe,
    note_in_words,
    short_weekday,
    warning_line,
    warnings_in_words,
)
from chimes.triggers import Cron, Every, Note, Once, Trigger
from tests.examples import examples
from tests.language.expressions import ANY, meaning, parsed
from tests.language.golden import ROWS, Row
from tests.tables import each_row

NOTES: tuple[Note, ...] = (
    "moved_by_gap",
    "repeated_hour_first",
    "repeated_hour_second",
    "repeated_hour_once",
    "moved_by_calendar",
)
# Names that are the same in every language.
_NAMES = re.compile(r"UTC|[A-Z][a-z]+/[A-Za-z_]+|vixie|robfig|\bTH\b")
_SCRIPTS = {
    "en": r"[ -~]+",
    "th": r"[ -~\u0e00-\u0e7f]+",
    "zh": r"[ -~\u3001-\u9fff\uff00-\uff5e]+",
}
_ENDS = {"en": ", UTC", "th": " ตามเวลา UTC", "zh": "，UTC 时间"}

languages = pytest.mark.parametrize("lang", LANGUAGES)


def test_every_golden_row_has_every_language() -> None:
    assert len(ROWS) >= 130
    assert all(set(row.words) == set(LANGUAGES) for row in ROWS)


@pytest.mark.parametrize("tag", ["en", "en-GB", "th-TH", "zh-CN", "zh-Hans"])
@each_row("row", ROWS, ids=lambda row: row.name)
def test_description_equals_the_golden_row(tag: str, row: Row) -> None:
    assert describe(row.trigger, tag) == row.words[tag[:2]]


def test_description_is_english_by_default() -> None:
    assert all(describe(row.trigger) == row.words["en"] for row in ROWS)


def test_unknown_language_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="'tlh'; there are en, th, zh"):
        describe(Every("1m"), "tlh")


# A year of the Buddhist era would be read as such.
def test_thai_years_name_their_calendar() -> None:
    assert "ค.ศ. 2030" in describe(Once("2030-02-10T09:00:00Z"), "th")
    assert "ค.ศ. 2026" in describe(Every("1h", anchor="2026-01-01T00:00:00Z"), "th")
    assert "ค.ศ. 2028" in describe(Cron("0 0 9 ? * MON 2028"), "th")


# Readers who work on other days must not take these for working days.
def test_chinese_working_days_are_monday_to_friday_exactly() -> None:
    assert describe(Cron("0 9 * * 1-5"), "zh") == "工作日 09:00，UTC 时间"
    assert describe(Cron("0 9 * * 1-6"), "zh") == "每周一至周六 09:00，UTC 时间"


@languages
def test_zone_of_bounds_is_named_only_if_no_other_is(lang: str) -> None:
    start = datetime(2030, 1, 1, 17, tzinfo=UTC)
    every: Trigger = Cron("@every 1h", timezone="Asia/Bangkok", start_at=start)
    assert describe(every, lang).count("Asia/Bangkok") == 1
    daily = Cron("0 9 * * *", timezone="Asia/Bangkok", start_at=start)
    assert describe(daily, lang).count("Asia/Bangkok") == 1


def _check(words: str, lang: str) -> None:
    assert re.fullmatch(_SCRIPTS[lang], words), words
    assert "  " not in words
    assert words == words.strip()


@languages
@examples(200)
@given(expression=ANY)
def test_any_expression_has_a_description(lang: str, expression: str) -> None:
    trigger = parsed(expression)
    if trigger is None:
        return
    words = describe(trigger, lang)
    _check(words, lang)
    assert words.endswith(_ENDS[lang])
    for warning in warnings_in_words(trigger, lang):
        _check(warning, lang)


@languages
@examples(30)
@given(expressions=st.lists(ANY, min_size=2, max_size=25, unique=True))
def test_different_schedules_have_different_descriptions(lang: str, expressions: list[str]) -> None:
    seen: dict[str, str] = {}
    for expression in expressions:
        trigger = parsed(expression)
        if trigger is None:
            continue
        words = describe(trigger, lang)
        other = seen.setdefault(words, expression)
        assert meaning(other) == meaning(expression), (other, expression, words)


# Pairs that differ in one field.
SIMILAR_EXPRESSIONS = [
    ("5/10 8,10,12,14 * * *", "*/10 8,10,12,14 * * *"),
    ("5/10 * * * *", "5-55/10 1-23 * * *"),
    ("*/2 * 8-9 * * *", "1/2 * 8-9 * * *"),
    ("1-57/2 * 8-9 * * *", "1-59/2 * 8-9 * * *"),
    ("0 0 L-3 * *", "0 0 L-3W * *"),
    ("0 0 LW * *", "0 0 L-0W * *"),
    ("0 0 13 * 5", "0 0 13 * *"),
    ("0 0 */2 * 1-5", "0 0 */2 * 1-4"),
    ("0 0 * 6 MON#1,5L", "0 0 * 6-7 MON#1,5L"),
    ("0 0 */2 6-8 1,3,5L", "0 0 */2 6-8 1,3,5"),
    ("0 0 0 1 1 ? 2027-2030", "0 0 0 1 1 ? 2027/3"),
]


@languages
@each_row(("one", "other"), SIMILAR_EXPRESSIONS)
def test_similar_expressions_have_different_descriptions(lang: str, one: str, other: str) -> None:
    assert describe(Cron(one), lang) != describe(Cron(other), lang)


# Parts of the warnings.
ENGLISH_WARNINGS = [
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


@each_row(("expression", "parts"), ENGLISH_WARNINGS, ids=[row[0] for row in ENGLISH_WARNINGS])
def test_english_warnings(expression: str, parts: list[str]) -> None:
    found = warnings_in_words(Cron(expression))
    assert len(found) == len(parts)
    for text, part in zip(found, parts, strict=True):
        assert part in text


THAI_WARNINGS = [
    ("0 9 * * *", []),
    (
        "0 0 13 * 5",
        [
            "นับวันที่ตรงกับวันที่หรือวันในสัปดาห์อย่างใดอย่างหนึ่ง ไม่ต้องตรงทั้งสองอย่าง "
            "หากต้องการให้ตรงทั้งสองอย่าง ให้ขึ้นต้นช่องใดช่องหนึ่งด้วย *"
        ],
    ),
    (
        "0 0 */2 * MON",
        [
            "นับเฉพาะวันที่ตรงทั้งวันที่และวันในสัปดาห์",
            "รอบทุก 2 วัน เริ่มนับใหม่ทุกเดือน ช่วงรอยต่อจึงห่างไม่เท่าช่วงอื่น",
        ],
    ),
    ("*/7 * * * *", ["รอบทุก 7 นาที เริ่มนับใหม่ทุกชั่วโมง ช่วงรอยต่อจึงห่างกัน 4 นาที"]),
    (
        "* 9 * * *",
        ["ทำงานทุกนาทีในชั่วโมงเหล่านี้ วันละ 60 ครั้ง หากต้องการชั่วโมงละครั้ง ให้ใส่ 0 ในช่องนาที"],
    ),
    ("*/10 * * * * *", ["ทำงานวันละ 8640 ครั้ง"]),
    ("0 0 31 * *", ["ไม่ทำงานในเดือนที่ไม่มีวันที่ 31"]),
    ("0 0 29 2 *", ["ทำงานเฉพาะปีอธิกสุรทิน"]),
]

CHINESE_WARNINGS = [
    ("0 9 * * *", []),
    (
        "0 0 13 * 5",
        [
            "日期或星期有一个符合就运行，不要求两者同时符合；"
            "若要两者同时符合，请让其中一个字段以 * 开头"
        ],
    ),
    (
        "0 0 */2 * MON",
        [
            "只有日期和星期同时符合的日子才运行",
            "2天的间隔每月重新计算，因此交界处的间隔不同",
        ],
    ),
    ("0 0 1 */5 *", ["5个月的间隔每年重新计算，交界处的间隔为2个月"]),
    (
        "* 9 * * *",
        ["在这些小时内每分钟都运行，每天60次；若要每小时一次，请在分钟字段填 0"],
    ),
    ("*/10 * * * * *", ["每天运行8640次"]),
    ("0 0 31 * *", ["没有31号的月份不运行"]),
    ("0 0 29 2 *", ["只在闰年运行"]),
]


@pytest.mark.parametrize(("lang", "rows"), [("th", THAI_WARNINGS), ("zh", CHINESE_WARNINGS)])
def test_translated_warnings(lang: str, rows: list[tuple[str, list[str]]]) -> None:
    for expression, words in rows:
        assert list(warnings_in_words(Cron(expression), lang)) == words, expression


@languages
def test_time_skipped_by_a_clock_change_leads_to_a_warning(lang: str) -> None:
    trigger = Once("2027-03-14T02:30:00", timezone="America/New_York")
    assert warnings_in_words(trigger, lang) == (note_in_words("moved_by_gap", lang),)
    assert warnings_in_words(Every("7m"), lang) == ()


def test_english_warning_about_a_skipped_time() -> None:
    assert warnings_in_words(Once("2027-03-14T02:30:00", timezone="America/New_York")) == (
        "its time is skipped when the clocks go forward; it runs at the change",
    )


@languages
def test_every_note_has_its_own_words(lang: str) -> None:
    assert len({note_in_words(note, lang) for note in NOTES}) == len(NOTES)
    assert note_in_words("moved_by_gap") == note_in_words("moved_by_gap", "en")


@pytest.mark.parametrize("lang", ["th", "zh"])
def test_translations_contain_no_english(lang: str) -> None:
    texts = [describe(row.trigger, lang) for row in ROWS]
    texts += [words for row in ROWS for words in warnings_in_words(row.trigger, lang)]
    texts += [note_in_words(note, lang) for note in NOTES]
    for words in texts:
        assert not re.search("[A-Za-z]", _NAMES.sub("", words)), words


@pytest.mark.parametrize(
    ("lang", "monday", "line"),
    [("en", "Mon", "Note: x."), ("th", "จ.", "หมายเหตุ: x"), ("zh", "周一", "注意：x。")],
)
def test_short_weekday_and_remark(lang: str, monday: str, line: str) -> None:
    assert short_weekday(datetime(2030, 1, 7, tzinfo=UTC), lang) == monday
    assert short_weekday(datetime(2030, 1, 6, tzinfo=UTC), lang) != monday
    assert warning_line("x", lang) == line
