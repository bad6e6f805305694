"""Times and dates that people write: relative to now, or a moment."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chimes.errors import InvalidTrigger
from chimes.triggers.values import format_moment, parse_date, parse_time

#: A Wednesday; in Bangkok it is 03:00 on the day after.
NOW = datetime(2030, 1, 16, 20, tzinfo=UTC)
ZONE = "Asia/Bangkok"
#: Text, as a time in the past, as a time in the future.
TIMES = [
    ("now", "2030-01-16T20:00:00Z", "2030-01-16T20:00:00Z"),
    ("24h", "2030-01-15T20:00:00Z", "2030-01-17T20:00:00Z"),
    ("1h30m", "2030-01-16T18:30:00Z", "2030-01-16T21:30:00Z"),
    ("PT90M", "2030-01-16T18:30:00Z", "2030-01-16T21:30:00Z"),
    ("2 Weeks", "2030-01-02T20:00:00Z", "2030-01-30T20:00:00Z"),
    ("3d 12h", "2030-01-13T08:00:00Z", "2030-01-20T08:00:00Z"),
    ("-5m", "2030-01-16T19:55:00Z", "2030-01-16T19:55:00Z"),
    ("+5m", "2030-01-16T20:05:00Z", "2030-01-16T20:05:00Z"),
    ("3 days ago", "2030-01-13T20:00:00Z", "2030-01-13T20:00:00Z"),
    ("in 2h", "2030-01-16T22:00:00Z", "2030-01-16T22:00:00Z"),
    ("yesterday", "2030-01-15T17:00:00Z", "2030-01-15T17:00:00Z"),
    ("today", "2030-01-16T17:00:00Z", "2030-01-16T17:00:00Z"),
    ("Tomorrow 10:00", "2030-01-18T03:00:00Z", "2030-01-18T03:00:00Z"),
    ("10:30:15", "2030-01-17T03:30:15Z", "2030-01-17T03:30:15Z"),
    ("monday", "2030-01-13T17:00:00Z", "2030-01-20T17:00:00Z"),
    # Today is a Thursday in Bangkok.
    ("thursday at 7:30", "2030-01-10T00:30:00Z", "2030-01-24T00:30:00Z"),
    ("2030-01-01", "2029-12-31T17:00:00Z", "2029-12-31T17:00:00Z"),
    ("2030-01-01 09:00", "2030-01-01T02:00:00Z", "2030-01-01T02:00:00Z"),
    ("2030-01-01T09:00:00Z", "2030-01-01T09:00:00Z", "2030-01-01T09:00:00Z"),
    ("2030-01-01T09:00+01:00", "2030-01-01T08:00:00Z", "2030-01-01T08:00:00Z"),
]


def test_times() -> None:
    wrong = []
    for text, past, future in TIMES:
        found = tuple(
            format_moment(parse_time(text, now=NOW, zone=ZONE, past=each)) for each in (True, False)
        )
        if found != (past, future):
            wrong.append((text, found))
    assert wrong == []


def test_local_times_in_a_gap_move_forward() -> None:
    now = datetime(2027, 3, 13, 12, tzinfo=UTC)
    found = parse_time("tomorrow 02:30", now=now, zone="America/New_York")
    assert format_moment(found) == "2027-03-14T07:00:00Z"


def test_no_times() -> None:
    for text in (
        "",
        "soon",
        "25:00",
        "tomorrow 9",
        "in",
        "ago",
        "h",
        "2030-02-30",
        "9" * 500,
        "1y",
    ):
        with pytest.raises(InvalidTrigger) as refused:
            parse_time(text, now=NOW, zone=ZONE, field="--since")
        assert refused.value.field == "--since", text
        assert "--since" in refused.value.message


def test_dates() -> None:
    for text, day in (("today", 17), ("yesterday", 16), ("2030-01-05", 5), ("thursday", 10)):
        assert parse_date(text, now=NOW, zone=ZONE).day == day, text
    for text in ("24h", "10:00", "2030-02-30", "someday", ""):
        with pytest.raises(InvalidTrigger):
            parse_date(text, now=NOW, zone=ZONE)
