"""Times for people: zones, distances, figures."""

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
def test_a_time_has_its_zone_in_every_language(language: str, era: str, expected: str) -> None:
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
def test_pictures_have_the_year_and_the_words_of_the_reader(
    language: str, era: str, expected: str
) -> None:
    assert (
        times.format_with_year(NINE, "Asia/Bangkok", DisplayPreferences(language=language, era=era))
        == expected
    )


def test_another_year_is_said_in_the_era_of_the_reader() -> None:
    later = datetime(2027, 1, 5, 2, 0, tzinfo=UTC)
    said = times.absolute(
        later, "Asia/Bangkok", DisplayPreferences(language="th", era="be"), now=NOW
    )
    assert said == "อ. 5 ม.ค. 2570 09:00 +07"
    assert "2027" in times.absolute(
        later, "Asia/Bangkok", DisplayPreferences(language="th"), now=NOW
    )


def test_the_mark_of_a_zone_follows_its_clock_changes() -> None:
    # 01:30 comes twice in New York on 2026-11-01
    first, second = (datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6))
    said = [
        times.absolute(each, "America/New_York", DisplayPreferences(), now=NOW)[-9:]
        for each in (first, second)
    ]
    assert said == ["01:30 EDT", "01:30 EST"]


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
def test_a_distance_has_two_units_up_to_two_days(seconds: int, expected: str) -> None:
    assert times.relative(NOW + timedelta(seconds=seconds), NOW, "en") == expected


def test_the_schedules_zone_is_a_second_line_where_it_differs() -> None:
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
def test_the_switch_has_three_positions(clock: str, first: str, also: str | None) -> None:
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
def test_lengths(length: float | None, expected: str) -> None:
    assert times.span(length, "en") == expected


def test_a_hundred_percent_is_said_only_where_nothing_failed() -> None:
    assert times.percent(1.0, "en") == "100%"
    assert times.percent(0.99999, "en") == "99.9%"
    assert times.percent(0.5, "en") == "50%"


def test_sizes_and_numbers() -> None:
    assert times.size(0, "en") == "0 B"
    assert times.size(1536, "en") == "1.5 KB"
    assert times.size(5 * 1024**3, "en") == "5 GB"
    assert times.number(1_234_567, "en") == "1,234,567"


# --- how somebody likes it --------------------------------------------------------------------


def seen(cookie: str, preferred: Preferences | None = None) -> DisplayPreferences:
    return resolve_display(
        cookie, accept_language="zh-CN,zh;q=0.9", default_zone="UTC", preferred=preferred
    )


def test_what_was_chosen_here_goes_before_what_the_owner_and_the_browser_say() -> None:
    owner = Preferences(timezone="Asia/Tokyo", language="th")
    assert seen("").language == "zh"
    assert seen("", owner).language == "th"
    assert seen("language=en", owner).language == "en"
    assert seen("seen_zone=Asia%2FBangkok").zone == "Asia/Bangkok"
    assert not seen("seen_zone=Asia%2FBangkok").zone_chosen
    assert seen("seen_zone=Asia%2FBangkok", owner).zone == "Asia/Tokyo"
    assert seen("zone=Europe%2FBerlin", owner).zone == "Europe/Berlin"


@pytest.mark.parametrize(
    "cookie", ["theme=pink", "zone=../../etc/passwd", "x" * 600, "%00", "a&" * 40, "theme"]
)
def test_a_cookie_of_nonsense_is_no_choice(cookie: str) -> None:
    assert seen(cookie) == seen("")


def test_choices_add_up_and_can_be_taken_back() -> None:
    cookie = with_choices("theme=dark", {"zone": "Asia/Tokyo"})
    assert seen(cookie).theme == "dark"
    assert seen(with_choices(cookie, {"zone": ""})).zone == "UTC"
    with pytest.raises(InvalidInput):
        with_choices(cookie, {"zone": "Mars/Base"})
