"""Every phrase of the corpus is parsed to the expected trigger or needs clarification."""

from __future__ import annotations

import pytest

from chimes.errors import NeedsClarification
from chimes.language import parse
from chimes.triggers import Every
from tests.language.corpus import ASKED, READ, ROWS, WITH_RECIPIENTS, Row
from tests.tables import each_row


def test_the_corpus_is_large_and_a_third_of_it_are_traps() -> None:
    assert len(ROWS) >= 800
    assert 3 * len(ASKED) >= len(ROWS)
    for lang in ("th", "en", "zh"):
        said = [row for row in ROWS if row.lang == lang]
        assert len(said) >= 250
        assert 3 * sum(row.trigger is None for row in said) >= len(said)


@each_row("row", [*READ, *WITH_RECIPIENTS], ids=lambda row: row.text)
def test_it_is_read(row: Row) -> None:
    found = parse(row.text, now=row.now, timezone=row.timezone)
    assert found.trigger == row.trigger
    assert found.task == row.task
    # Recipients are read only where the text names them.
    assert found.recipients == row.recipients
    if not isinstance(found.trigger, Every):
        assert found.timezone == found.trigger.zone


@each_row("row", ASKED, ids=lambda row: row.text)
def test_it_is_asked_about(row: Row) -> None:
    with pytest.raises(NeedsClarification) as asked:
        parse(row.text, now=row.now, timezone=row.timezone)
    assert set(row.missing) <= set(asked.value.missing)
    assert asked.value.message
    assert asked.value.examples


@each_row("row", ASKED[::17], ids=lambda row: row.text)
def test_examples_can_be_read(row: Row) -> None:
    with pytest.raises(NeedsClarification) as asked:
        parse(row.text, now=row.now, timezone=row.timezone)
    for example in asked.value.examples:
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
        # Two questions: neither answer would do.
        ("every day at 9 EST send news", ()),
    ],
)
def test_a_question_comes_with_the_text_made_exact(text: str, answers: tuple[str, ...]) -> None:
    with pytest.raises(NeedsClarification) as asked:
        parse(text, now=ASKED[0].now, timezone="Asia/Bangkok")
    assert asked.value.answers == answers


def test_every_answer_is_read_and_keeps_the_words_around_it() -> None:
    found = 0
    for row in ASKED:
        with pytest.raises(NeedsClarification) as asked:
            parse(row.text, now=row.now, timezone=row.timezone)
        for answer in asked.value.answers:
            found += 1
            read = parse(answer, now=row.now, timezone=row.timezone)
            assert read.task in " ".join(row.text.split()), (row.text, answer, read.task)
    assert found >= 60
