"""What holds for the words of any trigger in every language."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chimes.language import (
    LANGUAGES,
    describe,
    note_in_words,
    remark,
    short_weekday,
    warnings_in_words,
)
from chimes.triggers import Cron, Note, Trigger
from tests.language.expressions import ANY, meaning, parsed
from tests.language.golden import ROWS
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


def test_every_row_of_the_table_has_every_language() -> None:
    assert len(ROWS) >= 130
    assert all(set(row.words) == set(LANGUAGES) for row in ROWS)


@languages
def test_every_note_has_words_of_its_own(lang: str) -> None:
    assert len({note_in_words(note, lang) for note in NOTES}) == len(NOTES)


@pytest.mark.parametrize("lang", ["th", "zh"])
def test_nothing_is_left_in_english(lang: str) -> None:
    said = [describe(row.trigger, lang) for row in ROWS]
    said += [words for row in ROWS for words in warnings_in_words(row.trigger, lang)]
    said += [note_in_words(note, lang) for note in NOTES]
    for words in said:
        assert not re.search("[A-Za-z]", _NAMES.sub("", words)), words


def _check(words: str, lang: str) -> None:
    assert re.fullmatch(_SCRIPTS[lang], words), words
    assert "  " not in words
    assert words == words.strip()


@languages
@settings(max_examples=200, deadline=None)
@given(expression=ANY)
def test_any_expression_has_words(lang: str, expression: str) -> None:
    trigger = parsed(expression)
    if trigger is None:
        return
    words = describe(trigger, lang)
    _check(words, lang)
    assert words.endswith(_ENDS[lang])
    for warning in warnings_in_words(trigger, lang):
        _check(warning, lang)


@languages
@settings(max_examples=30, deadline=None)
@given(expressions=st.lists(ANY, min_size=2, max_size=25, unique=True))
def test_different_schedules_never_read_the_same(lang: str, expressions: list[str]) -> None:
    seen: dict[str, str] = {}
    for expression in expressions:
        trigger = parsed(expression)
        if trigger is None:
            continue
        words = describe(trigger, lang)
        other = seen.setdefault(words, expression)
        assert meaning(other) == meaning(expression), (other, expression, words)


# Neighbours: one field of a schedule changed is a change of its words.
NEIGHBOURS = [
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
@each_row(("one", "other"), NEIGHBOURS)
def test_neighbours_read_differently(lang: str, one: str, other: str) -> None:
    assert describe(Cron(one), lang) != describe(Cron(other), lang)


@languages
def test_the_zone_of_bounds_is_named_where_no_other_is(lang: str) -> None:
    start = datetime(2030, 1, 1, 17, tzinfo=UTC)
    every: Trigger = Cron("@every 1h", timezone="Asia/Bangkok", start_at=start)
    assert describe(every, lang).count("Asia/Bangkok") == 1
    daily = Cron("0 9 * * *", timezone="Asia/Bangkok", start_at=start)
    assert describe(daily, lang).count("Asia/Bangkok") == 1


@pytest.mark.parametrize(
    ("lang", "monday", "line"),
    [("en", "Mon", "Note: x."), ("th", "จ.", "หมายเหตุ: x"), ("zh", "周一", "注意：x。")],
)
def test_what_stands_around_the_words(lang: str, monday: str, line: str) -> None:
    assert short_weekday(datetime(2030, 1, 7, tzinfo=UTC), lang) == monday
    assert short_weekday(datetime(2030, 1, 6, tzinfo=UTC), lang) != monday
    assert remark("x", lang) == line
