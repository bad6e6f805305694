"""Triggers in English, and what holds in every language."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.triggers import Cron, Every, Note, Once
from tests.language.golden import ROWS, Row
from tests.tables import each_row

NEW_YORK = "America/New_York"


@each_row("row", ROWS, ids=lambda row: row.name)
def test_triggers_in_words(row: Row) -> None:
    assert describe(row.trigger) == row.words["en"]
    assert describe(row.trigger, "en-GB") == row.words["en"]


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(InvalidInput, match="'tlh'; there are en, th, zh"):
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


@each_row(("expression", "parts"), WARNINGS, ids=[row[0] for row in WARNINGS])
def test_warnings(expression: str, parts: list[str]) -> None:
    found = warnings_in_words(Cron(expression))
    assert len(found) == len(parts)
    for text, part in zip(found, parts, strict=True):
        assert part in text


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
