"""The names and formats of CLDR are those of Babel, from which they were copied."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import babel.dates
import babel.numbers
from tools import cldr

from chimes.web.dashboard.core.cldr import format_decimal, format_percent, locale_of
from chimes.web.dashboard.core.times import LOCALES


def test_the_data_are_those_of_the_pinned_babel() -> None:
    assert cldr.TARGET.read_text() == cldr.text(), f"run {Path(cldr.__file__).name} again"


def test_dates_and_numbers_are_formatted_as_babel_does() -> None:
    patterns = ("EEE d MMM y", "EEEE d MMMM y", "MMMM y", "y年M月d日 EEE", "d MMM '2569'")
    for language, name in LOCALES.items():
        for number in range(0, 800, 13):
            day = date(2026, 1, 1) + timedelta(days=number)
            for pattern in patterns:
                expected = babel.dates.format_date(day, pattern, locale=name)
                assert locale_of(language).format_date(day, pattern) == expected
        for value in (0, 0.0004, 0.5, 1, 12.3456, 999.9996, 1234.5, 1e9, -1234567.125):
            expected = babel.numbers.format_decimal(value, locale=name)
            assert format_decimal(value) == expected, value
        for share in (0, 0.004, 0.005, 0.015, 0.5, 0.914, 0.9985, 0.999, 1, 1.255, 30):
            for places, pattern in ((0, "#,##0%"), (1, "#,##0.#%")):
                expected = babel.numbers.format_percent(share, pattern, locale=name)
                assert format_percent(share, places) == expected, share
