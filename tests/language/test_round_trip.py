"""A description parses back into the trigger that it describes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chimes.errors import NeedsClarification
from chimes.language import LANGUAGES, describe, parse
from chimes.language.round_trip import parse_description
from chimes.language.semantics import cron_values, numbers
from chimes.triggers import Cron, Every, Once, Trigger
from tests.examples import examples
from tests.language.expressions import ANY, meaning, parsed
from tests.language.golden import ROWS, Row
from tests.tables import each_row

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
#: Longer lists of dates are not shown in full, so they cannot be read back.
_SHOWN_DATES = 5
#: More single years than this would make an expression that is too long.
_MOST_YEARS = 30

languages = pytest.mark.parametrize("lang", LANGUAGES)


def _is_shortened(trigger: Trigger) -> bool:
    return any(len(calendar.dates) > _SHOWN_DATES for calendar in trigger.exclude)


def _same(one: Trigger, other: Trigger) -> bool:
    """Whether they fire at the same times; an expression may be spelled differently."""
    return one == other or _instants(one) == _instants(other)


def _instants(trigger: Trigger) -> list[datetime]:
    return [fire.at for fire in trigger.fires(NOW, 40)]


SHOWN = [row for row in ROWS if not _is_shortened(row.trigger)]


@languages
@each_row("row", SHOWN, ids=lambda row: row.name)
def test_golden_description_parses_back(lang: str, row: Row) -> None:
    found = parse(row.words[lang], now=NOW, timezone="America/Lima")
    assert found.task == ""
    assert found.language == lang
    assert describe(found.trigger, lang) == row.words[lang]
    assert _same(found.trigger, row.trigger)
    if isinstance(row.trigger, Cron | Once) and "@every" not in row.name:
        assert found.timezone == found.trigger.zone == row.trigger.zone
    assert (found.trigger.start_at, found.trigger.end_at) == (
        row.trigger.start_at,
        row.trigger.end_at,
    )
    assert (found.trigger.max_runs, found.trigger.exclude) == (
        row.trigger.max_runs,
        row.trigger.exclude,
    )


@languages
@examples(120)
@given(expression=ANY)
def test_description_of_any_expression_parses_back(lang: str, expression: str) -> None:
    trigger = parsed(expression)
    assume(trigger is not None)
    assert trigger is not None
    years = cron_values(trigger).days.years
    assume(years is None or len(numbers(years)) <= _MOST_YEARS)
    found = parse_description(describe(trigger, lang), lang)
    assert isinstance(found, Cron)
    assert meaning(found.expression) == meaning(expression)


MOMENTS = st.integers(1, 60 * 365 * 86400 * 10).map(
    lambda tenths: NOW + timedelta(milliseconds=100 * tenths)
)
STEPS = st.integers(1, 86_400_000).map(lambda count: timedelta(milliseconds=count))
ZONES = st.sampled_from(["Asia/Bangkok", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "UTC"])


@languages
@examples(60)
@given(step=STEPS, anchor=st.none() | MOMENTS, jitter=st.none() | STEPS, start=st.none() | MOMENTS)
def test_description_of_any_interval_parses_back(
    lang: str,
    step: timedelta,
    anchor: datetime | None,
    jitter: timedelta | None,
    start: datetime | None,
) -> None:
    late = None if jitter is None else min(jitter, step)
    trigger = Every(step, anchor=anchor, jitter=late, start_at=start)
    assert parse(describe(trigger, lang), now=NOW).trigger == trigger


@languages
@examples(60)
@given(moment=MOMENTS, zone=ZONES)
def test_description_of_any_moment_parses_back(lang: str, moment: datetime, zone: str) -> None:
    trigger = Once(moment, timezone=zone)
    found = parse(describe(trigger, lang), now=NOW).trigger
    assert isinstance(found, Once)
    assert (found.instant, found.zone) == (trigger.instant, trigger.zone)


@languages
def test_description_of_a_past_moment_needs_clarification(lang: str) -> None:
    words = describe(Once("2026-11-16T07:59:59Z"), lang)
    with pytest.raises(NeedsClarification) as raised:
        parse(words, now=NOW)
    assert "past" in raised.value.missing


# Dates that the description omits must not be lost.
@languages
@pytest.mark.parametrize("row", [row for row in ROWS if _is_shortened(row.trigger)])
def test_shortened_description_needs_clarification(lang: str, row: Row) -> None:
    with pytest.raises(NeedsClarification) as raised:
        parse(row.words[lang], now=NOW)
    assert raised.value.missing == ("residue",)


@pytest.mark.parametrize("bound", ["自2026年13月1日 00:00起", "周日除外", "最多5次"])
def test_described_limit_after_a_sentence_needs_clarification(bound: str) -> None:
    with pytest.raises(NeedsClarification) as raised:
        parse(f"每天9:00；{bound}", now=NOW)
    assert "residue" in raised.value.missing or "contradiction" in raised.value.missing
    assert parse("每天9:00；发报告", now=NOW).task == "发报告"


# At a clock change, listed times stay fixed and rates stay intervals.
@languages
@pytest.mark.parametrize(
    "expression", ["0 9-17 * * *", "0 1,2,3 * * *", "*/15 2 * * *", "30 * * * *", "0 */2 * * *"]
)
def test_parsed_description_keeps_its_behaviour_at_clock_changes(
    lang: str, expression: str
) -> None:
    trigger = Cron(expression, timezone="America/New_York")
    found = parse_description(describe(trigger, lang), lang)
    assert isinstance(found, Cron)
    for change in (datetime(2026, 11, 1, tzinfo=UTC), datetime(2027, 3, 14, tzinfo=UTC)):
        assert found.fires(change, 40) == trigger.fires(change, 40)


@each_row(
    ("text", "lang"),
    [
        ("", "en"),
        ("every day at 09:00, UTC", "en"),
        ("Every day at 09:00", "en"),
        ("Every day at 25:00, UTC", "en"),
        ("Every day at 09:00, Mars/Olympus time", "en"),
        ("On the 32nd of every month at 09:00, UTC", "en"),
        ("Every day at 09:00, UTC; at most 0 times", "en"),
        ("Every day at 09:00, UTC; and then some", "en"),
        ("Every 99999999999999999999 hours", "en"),
        ("Every fortnight", "en"),
        ("On the 13th of every month, if that is a Friday, at 00:00, UTC", "en"),
        ("Every Monday and Monday at 09:00, UTC", "en"),
        ("ทุกวัน เวลา 9:00 น. ตามเวลา UTC", "th"),
        ("每天 09:00，UTC 时间 发报告", "zh"),
        ("Once, on Monday 10 February 2030 at 09:00, UTC", "en"),
        ("Every day at 09:00, UTC" + "; only once" * 500, "en"),
        ("每天 09:00，UTC 时间", "tlh"),
    ],
)
def test_other_sentences_are_not_descriptions(text: str, lang: str) -> None:
    assert parse_description(text, lang) is None


HOSTILE = [
    ("en", "Every day at minutes 1 to 99999999999 of every hour, UTC"),
    ("en", "On the 1st to the 99999999999th of every month at 00:00, UTC"),
    ("en", "Every day at every 0th minute from 0 to 56 of every hour, UTC"),
    ("en", "On every 0th day from the 1st to the 31st of every month at 00:00, UTC"),
    ("en", "Every hour from " + "1" * 900),
    ("en", "Every minute at second " + "1 and " * 150),
    ("th", "ทุกวัน ที่นาทีที่ " + "5, " * 250 + " ของทุกชั่วโมง ตามเวลา UTC"),
    ("zh", "每小时的第" + "5、" * 450 + "分，UTC 时间"),
]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("lang", "text"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_numbers_are_rejected_quickly(lang: str, text: str) -> None:
    assert parse_description(text, lang) is None


@languages
@examples(100)
@given(data=st.data())
def test_mixed_descriptions_do_not_raise(lang: str, data: st.DataObject) -> None:
    words = data.draw(st.sampled_from(ROWS)).words[lang]
    at = data.draw(st.integers(0, len(words)))
    other = data.draw(st.sampled_from(ROWS)).words[lang]
    mixed = words[:at] + other[data.draw(st.integers(0, len(other))) :]
    found = parse_description(mixed, lang)
    assert found is None or describe(found, lang) == mixed.strip()
