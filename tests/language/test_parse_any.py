"""Properties of parsing any text: a result or a question, in bounded time, in any spelling."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput, NeedsClarification
from chimes.language import Parsed, describe, parse
from chimes.language.parser import LONGEST_TEXT
from chimes.triggers import Once
from tests.examples import examples
from tests.language.corpus import CLEAR, ROWS, Row
from tests.tables import each_row

NOW = datetime(2026, 11, 16, 2, tzinfo=UTC)
MISSING = {"time", "date", "past", "ambiguous", "contradiction", "residue", "interval", "unit"}
# Words of all languages: most drawn texts are about time, few are valid.
WORDS = sorted({word for row in ROWS for word in row.text.split()})
MIXED_WORDS = st.lists(
    st.sampled_from(WORDS) | st.sampled_from(list("0123456789:.-/ ,")) | st.characters(),
    max_size=12,
)


def _check_result(text: str) -> None:
    found = _parsed_or_question(text)
    if isinstance(found, NeedsClarification):
        assert found.missing
        assert set(found.missing) <= MISSING
        assert found.message
        assert found.examples
    else:
        assert found.trigger.next_after(NOW) is not None
        assert found.task == found.task.strip()
        describe(found.trigger, found.language)


def _parsed_or_question(text: str) -> Parsed | NeedsClarification:
    try:
        return parse(text, now=NOW, timezone="Asia/Bangkok")
    except NeedsClarification as question:
        return question


@examples(300)
@given(st.text(max_size=60))
def test_any_text_gives_a_result_or_a_question(text: str) -> None:
    _check_result(text)


@examples(500)
@given(MIXED_WORDS, st.sampled_from(["", " "]))
def test_any_words_give_a_result_or_a_question(words: list[str], between: str) -> None:
    _check_result(between.join(words))


def _names_times(row: Row) -> bool:
    """Whether it has times on days, in the given zone and before the task."""
    found = parse(row.text, now=row.now, timezone=row.timezone)
    return (
        row.text.endswith(row.task)
        and found.timezone == row.timezone
        and not found.pattern.endswith(("interval", "delay"))
    )


def _whole() -> st.SearchStrategy[Row]:
    """Computed by the test that needs the rows, not by every worker that imports this module."""
    return st.sampled_from([row for row in CLEAR if _names_times(row)])


WHOLE = st.deferred(_whole)


@examples(200)
@given(WHOLE, WHOLE)
def test_two_phrases_merge_only_if_both_times_are_kept(one: Row, other: Row) -> None:
    time_of_one = one.text.removesuffix(one.task).strip()
    time_of_other = other.text.removesuffix(other.task).strip()
    assert one.trigger is not None
    assert other.trigger is not None
    read = _parsed_or_question(f"{time_of_one} {time_of_other}")
    if isinstance(read, NeedsClarification):
        return
    found = read.trigger
    slots = [fire.at for fire in found.fires(NOW, 400)]
    for each in (one.trigger, other.trigger):
        assert each.next_after(NOW) in slots


_WIDE = {ord(each): ord(each) + 0xFEE0 for each in "0123456789:()"}
_THAI_DIGITS = {ord(str(digit)): 0x0E50 + digit for digit in range(10)}


def _wide(text: str) -> str:
    return text.translate(_WIDE)


def _thai_digits(text: str) -> str:
    return text.translate(_THAI_DIGITS)


def _upper_case(text: str) -> str:
    return text.upper() if text.isascii() else text


def _spaced(text: str) -> str:
    return f"  {text.replace(' ', '   ')} \n"


def _invisible(text: str) -> str:
    return text.replace(" ", "\u200b \ufeff")


def _sentence(text: str) -> str:
    return f"{text}."


VARIATIONS = (_wide, _thai_digits, _upper_case, _spaced, _invisible, _sentence)


@pytest.mark.parametrize("vary", VARIATIONS, ids=lambda each: each.__name__)
def test_spelling_variants_give_the_same_trigger(vary: object) -> None:
    assert callable(vary)
    for row in CLEAR[::3]:
        found = parse(vary(row.text), now=row.now, timezone=row.timezone)
        assert found.trigger == row.trigger, row.text


@pytest.mark.parametrize("lang", ["th", "en", "zh"])
def test_description_of_a_parsed_trigger_parses_back(lang: str) -> None:
    for row in CLEAR:
        assert row.trigger is not None
        found = parse(describe(row.trigger, lang), now=row.now, timezone="UTC").trigger
        if isinstance(row.trigger, Once):
            assert isinstance(found, Once)
            assert (found.instant, found.zone) == (row.trigger.instant, row.trigger.zone)
        else:
            assert found.fires(row.now, 50) == row.trigger.fires(row.now, 50), row.text


FLOODS = (
    *("every ", "9:00 ", "1", "and ", "in ", "/", ".", "monday, ", "the 1st and ", "1 hour "),
    *("ทุก", "วัน", "ก", "สิบ", "จ. ", "วันที่ 1 และ ", "ครึ่ง", "1 ชั่วโมง "),
    *("每天", "到", "、", "一", "周一", "1号、", "半小时", "年"),
    *("new york ", "asia/", "a ", "1-", "\u0e4d", "\U0001f600", " "),
)


@pytest.mark.timeout(60)
@each_row("piece", FLOODS)
def test_repetitive_text_is_parsed_within_two_seconds(piece: str) -> None:
    text = (piece * LONGEST_TEXT)[:LONGEST_TEXT]
    _check_result("every day at 9am x 每天 ทุกวัน")
    before = time.process_time()
    _check_result(text)
    assert time.process_time() - before < 2


def test_too_long_text_is_rejected_at_once() -> None:
    text = "ทุกวัน 09:00 " * 6000
    before = time.process_time()
    with pytest.raises(InvalidInput) as refused:
        parse(text, now=NOW)
    assert refused.value.code == "too_long"
    assert time.process_time() - before < 0.5
