"""Every phrase of the corpus is parsed to the expected trigger or needs clarification."""

from __future__ import annotations

import pytest

from chimes.errors import NeedsClarification
from chimes.language import parse
from chimes.triggers import Every
from tests.language.corpus import CLEAR, ROWS, UNCLEAR, WITH_RECIPIENTS, Row
from tests.tables import each_row


def test_a_third_of_the_corpus_needs_clarification() -> None:
    assert len(ROWS) >= 800
    assert 3 * len(UNCLEAR) >= len(ROWS)
    for lang in ("th", "en", "zh"):
        rows = [row for row in ROWS if row.lang == lang]
        assert len(rows) >= 250
        assert 3 * sum(row.trigger is None for row in rows) >= len(rows)


@each_row("row", [*CLEAR, *WITH_RECIPIENTS], ids=lambda row: row.text)
def test_clear_phrase_becomes_the_expected_trigger(row: Row) -> None:
    found = parse(row.text, now=row.now, timezone=row.timezone)
    assert found.trigger == row.trigger
    assert found.task == row.task
    # Recipients are read only where the text names them.
    assert found.recipients == row.recipients
    if not isinstance(found.trigger, Every):
        assert found.timezone == found.trigger.zone


@each_row("row", UNCLEAR, ids=lambda row: row.text)
def test_unclear_phrase_needs_clarification(row: Row) -> None:
    with pytest.raises(NeedsClarification) as raised:
        parse(row.text, now=row.now, timezone=row.timezone)
    assert set(row.missing) <= set(raised.value.missing)
    assert raised.value.message
    assert raised.value.examples


@each_row("row", UNCLEAR[::17], ids=lambda row: row.text)
def test_examples_of_a_question_can_be_parsed(row: Row) -> None:
    with pytest.raises(NeedsClarification) as raised:
        parse(row.text, now=row.now, timezone=row.timezone)
    for example in raised.value.examples:
        assert parse(example, now=row.now, timezone=row.timezone).task


# If one clarification is missing, the error carries the text completed with each possible answer.
@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("ทุกวัน 3 โมง ส่งข่าว", ("ทุกวัน 09:00 ส่งข่าว", "ทุกวัน 15:00 ส่งข่าว")),
        ("每天12点 同步数据", ("每天 00:00 同步数据", "每天 12:00 同步数据")),
        ("every day at 12 call mum", ("every day 00:00 call mum", "every day 12:00 call mum")),
        (
            "ทุกวันจันทร์ ส่งรายงาน",
            (
                "ทุกวันจันทร์ 09:00 ส่งรายงาน",
                "ทุกวันจันทร์ 12:00 ส่งรายงาน",
                "ทุกวันจันทร์ 18:00 ส่งรายงาน",
            ),
        ),
        (
            "every day at 9am EST send news",
            ("every day at 9am America/New_York send news",),
        ),
        (
            "每天 09:00 CST 总结",
            ("每天 09:00 America/Chicago 总结", "每天 09:00 Asia/Shanghai 总结"),
        ),
        # Two questions: neither answer is complete.
        ("every day at 9 EST send news", ()),
    ],
)
def test_question_offers_the_text_with_each_answer(text: str, answers: tuple[str, ...]) -> None:
    with pytest.raises(NeedsClarification) as raised:
        parse(text, now=UNCLEAR[0].now, timezone="Asia/Bangkok")
    assert raised.value.answers == answers


def test_every_offered_answer_parses_and_keeps_the_task() -> None:
    found = 0
    for row in UNCLEAR:
        with pytest.raises(NeedsClarification) as raised:
            parse(row.text, now=row.now, timezone=row.timezone)
        for answer in raised.value.answers:
            found += 1
            read = parse(answer, now=row.now, timezone=row.timezone)
            assert read.task in " ".join(row.text.split()), (row.text, answer, read.task)
    assert found >= 60
