"""Strategies for cron expressions."""

from __future__ import annotations

from datetime import date

from hypothesis import strategies as st

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron
from chimes.triggers.cron_fields import parse_fields


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
ANY = st.one_of(EXPRESSIONS, QUARTZ)


def parsed(expression: str) -> Cron | None:
    try:
        return Cron(expression)
    except InvalidTrigger:
        return None


def meaning(expression: str) -> tuple[object, ...]:
    fields = parse_fields(expression, "auto")
    first = (date(2024, 1, 1).toordinal() - date(1970, 1, 1).toordinal()) // 64
    days = tuple(fields.days.block(number) for number in range(first, first + 160))
    return fields.seconds, fields.minutes, days
