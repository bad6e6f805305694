"""Display of times, durations and numbers; display preferences."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from chimes.errors import InvalidInput
from chimes.services.preferences import Preferences
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences, resolve_display, with_choices

NOW = datetime(2026, 11, 16, 0, 55, tzinfo=UTC)
NINE = datetime(2026, 11, 16, 2, 0, tzinfo=UTC)
BANGKOK = DisplayPreferences(zone="Asia/Bangkok")


@pytest.mark.parametrize(
    ("language", "era", "expected"),
    [
        ("en", "ce", "Mon 16 Nov 09:00 +07"),
        ("th", "ce", "จ. 16 พ.ย. 09:00 +07"),
        ("zh", "ce", "11月16日 周一 09:00 +07"),
        ("th", "be", "จ. 16 พ.ย. 09:00 +07"),
    ],
)
def test_time_shows_its_zone_in_every_language(language: str, era: str, expected: str) -> None:
    display = DisplayPreferences(language=language, era=era, zone="Asia/Bangkok")
    assert times.absolute(NINE, "Asia/Bangkok", display, now=NOW) == expected


@pytest.mark.parametrize(
    ("language", "era", "expected"),
    [
        ("en", "ce", "Mon 16 Nov 2026 09:00 +07"),
        ("th", "be", "จ. 16 พ.ย. 2569 09:00 +07"),
        ("zh", "ce", "2026年11月16日 周一 09:00 +07"),
    ],
)
def test_chart_times_use_the_era_and_language_of_the_user(
    language: str, era: str, expected: str
) -> None:
    assert (
        times.format_with_year(NINE, "Asia/Bangkok", DisplayPreferences(language=language, era=era))
        == expected
    )


def test_other_year_is_shown_in_the_era_of_the_user() -> None:
    later = datetime(2027, 1, 5, 2, 0, tzinfo=UTC)
    shown = times.absolute(
        later, "Asia/Bangkok", DisplayPreferences(language="th", era="be"), now=NOW
    )
    assert shown == "อ. 5 ม.ค. 2570 09:00 +07"
    assert "2027" in times.absolute(
        later, "Asia/Bangkok", DisplayPreferences(language="th"), now=NOW
    )


def test_zone_abbreviation_follows_clock_changes() -> None:
    # 01:30 occurs twice in New York on 2026-11-01.
    first, second = (datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6))
    shown = [
        times.absolute(each, "America/New_York", DisplayPreferences(), now=NOW)[-9:]
        for each in (first, second)
    ]
    assert shown == ["01:30 EDT", "01:30 EST"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (3900, "in 1 h 5 min"),
        (3600, "in 1 h"),
        (47 * 3600 + 59 * 60, "in 47 h 59 min"),
        (48 * 3600, "in 2 d"),
        (90, "in 1 min 30 s"),
        (600, "in 10 min"),
        (-30, "30 s ago"),
        (0, "now"),
    ],
)
def test_relative_time_has_two_units_up_to_two_days(seconds: int, expected: str) -> None:
    assert times.relative(NOW + timedelta(seconds=seconds), NOW, "en") == expected


def test_schedule_zone_is_a_second_line_if_it_differs() -> None:
    page = str(times.moment_html(NINE, BANGKOK, now=NOW, zone="Europe/Berlin"))
    assert '<time datetime="2026-11-16T02:00:00Z"' in page
    assert ">Mon 16 Nov 09:00 +07<" in page
    assert '<span class="also">Mon 16 Nov 03:00 CET</span>' in page
    assert "in 1 h 5 min" in page
    assert f"Unix {int(NINE.timestamp())}" in page
    same = str(times.moment_html(NINE, BANGKOK, now=NOW, zone="Asia/Bangkok"))
    assert "also" not in same


@pytest.mark.parametrize(
    ("clock", "first", "also"),
    [
        ("mine", "09:00 +07", "03:00 CET"),
        ("schedule", "03:00 CET", "09:00 +07"),
        ("utc", "02:00 UTC", None),
    ],
)
def test_clock_preference_selects_viewer_schedule_or_utc_zone(
    clock: str, first: str, also: str | None
) -> None:
    display = DisplayPreferences(zone="Asia/Bangkok", clock=clock)
    page = str(times.moment_html(NINE, display, now=NOW, zone="Europe/Berlin"))
    assert first in re.search(r'class="when">([^<]+)', page)[1]  # type: ignore[index]
    found = re.search(r'class="also">([^<]+)', page)
    assert (found is None) == (also is None)
    if found is not None and also is not None:
        assert also in found[1]


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0.84, "840 ms"), (2.34, "2.3 s"), (65, "1 min 5 s"), (3900, "1 h 5 min"), (None, "–")],
)
def test_durations(length: float | None, expected: str) -> None:
    assert times.span(length, "en") == expected


def test_hundred_percent_is_shown_only_without_failures() -> None:
    assert times.percent(1.0, "en") == "100%"
    assert times.percent(0.99999, "en") == "99.9%"
    assert times.percent(0.5, "en") == "50%"


def test_sizes_and_numbers() -> None:
    assert times.size(0, "en") == "0 B"
    assert times.size(1536, "en") == "1.5 KB"
    assert times.size(5 * 1024**3, "en") == "5 GB"
    assert times.number(1_234_567, "en") == "1,234,567"


# --- display preferences ----------------------------------------------------------------------


def display_for(cookie: str, preferred: Preferences | None = None) -> DisplayPreferences:
    return resolve_display(
        cookie, accept_language="zh-CN,zh;q=0.9", default_zone="UTC", preferred=preferred
    )


def test_cookie_overrides_owner_preference_and_browser() -> None:
    owner = Preferences(timezone="Asia/Tokyo", language="th")
    assert display_for("").language == "zh"
    assert display_for("", owner).language == "th"
    assert display_for("language=en", owner).language == "en"
    assert display_for("seen_zone=Asia%2FBangkok").zone == "Asia/Bangkok"
    assert not display_for("seen_zone=Asia%2FBangkok").zone_chosen
    assert display_for("seen_zone=Asia%2FBangkok", owner).zone == "Asia/Tokyo"
    assert display_for("zone=Europe%2FBerlin", owner).zone == "Europe/Berlin"


@pytest.mark.parametrize(
    "cookie", ["theme=pink", "zone=../../etc/passwd", "x" * 600, "%00", "a&" * 40, "theme"]
)
def test_invalid_preference_cookie_is_ignored(cookie: str) -> None:
    assert display_for(cookie) == display_for("")


def test_preferences_accumulate_and_can_be_reset() -> None:
    cookie = with_choices("theme=dark", {"zone": "Asia/Tokyo"})
    assert display_for(cookie).theme == "dark"
    assert display_for(with_choices(cookie, {"zone": ""})).zone == "UTC"
    with pytest.raises(InvalidInput):
        with_choices(cookie, {"zone": "Mars/Base"})
