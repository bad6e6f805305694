"""Quiet hours and digests in wall time, across midnight and clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.model.recipient import Digest, Period, QuietHours

NEW_YORK, BANGKOK = "America/New_York", "Asia/Bangkok"
MOMENTS = st.integers(1_767_225_600, 1_830_297_600).map(
    lambda second: datetime.fromtimestamp(second, UTC)
)
ZONES = st.sampled_from([NEW_YORK, BANGKOK, "UTC", "Australia/Lord_Howe", "Europe/London"])
CLOCKS = st.times().map(lambda at: time(at.hour, at.minute))


HALF_HOURS = Digest(every=Period.HOUR, at=time(0), zone="Asia/Kolkata")
IN_THE_GAP = Digest(every=Period.DAY, at=time(2, 30), zone=NEW_YORK)
TWICE = Digest(every=Period.DAY, at=time(1, 30), zone=NEW_YORK)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def night(zone: str = BANGKOK) -> QuietHours:
    return QuietHours(start=time(22), end=time(7), zone=zone)


@pytest.mark.parametrize(
    ("moment", "until"),
    [
        ("2026-11-16 14:59", None),
        ("2026-11-16 15:00", "2026-11-17 00:00"),
        ("2026-11-16 23:59", "2026-11-17 00:00"),
        ("2026-11-17 00:00", None),
    ],
)
def test_quiet_hours_go_over_midnight(moment: str, until: str | None) -> None:
    assert night().until(utc(moment)) == (None if until is None else utc(until))


def test_quiet_hours_within_a_day() -> None:
    lunch = QuietHours(start=time(12), end=time(13), zone=BANGKOK)
    assert lunch.until(utc("2026-11-16 05:30")) == utc("2026-11-16 06:00")
    assert lunch.until(utc("2026-11-16 06:00")) is None


def test_quiet_hours_end_at_wall_time_on_clock_changes() -> None:
    """In New York the night of 2027-03-14 is an hour shorter, that of 2027-11-07 an hour longer."""
    assert night(NEW_YORK).until(utc("2027-03-14 04:00")) == utc("2027-03-14 11:00")
    assert night(NEW_YORK).until(utc("2027-11-07 04:00")) == utc("2027-11-07 12:00")
    in_the_gap = QuietHours(start=time(1), end=time(2, 30), zone=NEW_YORK)
    assert in_the_gap.until(utc("2027-03-14 06:30")) == utc("2027-03-14 07:00")


@pytest.mark.parametrize(
    ("digest", "moment", "end"),
    [
        (Digest(every=Period.HOUR, at=time(0)), "2026-11-16 08:00", "2026-11-16 09:00"),
        (Digest(every=Period.HOUR, at=time(0, 15)), "2026-11-16 08:14", "2026-11-16 08:15"),
        (HALF_HOURS, "2026-11-16 08:00", "2026-11-16 08:30"),
        (Digest(every=Period.DAY, zone=BANGKOK), "2026-11-16 00:59", "2026-11-16 01:00"),
        (Digest(every=Period.DAY, zone=BANGKOK), "2026-11-16 01:00", "2026-11-17 01:00"),
        (Digest(every=Period.WEEK, zone=BANGKOK), "2026-11-16 00:00", "2026-11-16 01:00"),
        (Digest(every=Period.WEEK, weekday=4), "2026-11-16 00:00", "2026-11-20 08:00"),
        (IN_THE_GAP, "2027-03-13 12:00", "2027-03-14 07:00"),
        (TWICE, "2027-11-07 05:30", "2027-11-08 06:30"),
    ],
)
def test_digest_period_ends_at_wall_time(digest: Digest, moment: str, end: str) -> None:
    assert digest.end_after(utc(moment)) == utc(end)


@given(MOMENTS, ZONES, CLOCKS, CLOCKS)
def test_quiet_hours_end_within_26_hours(
    moment: datetime, zone: str, start: time, end: time
) -> None:
    quiet = QuietHours(start=start, end=end, zone=zone)
    until = quiet.until(moment)
    if until is not None:
        assert moment < until <= moment + timedelta(hours=26)
        assert start == end or quiet.until(until) is None


@given(MOMENTS, ZONES, CLOCKS, st.sampled_from(Period), st.integers(0, 6))
def test_all_times_of_a_period_have_the_same_end(
    moment: datetime, zone: str, at: time, every: Period, weekday: int
) -> None:
    digest = Digest(every=every, at=at, zone=zone, weekday=weekday)
    end = digest.end_after(moment)
    assert moment < end <= moment + digest.length + timedelta(hours=1)
    assert digest.end_after(end - timedelta(microseconds=1)) == end
    assert digest.end_after(end) > end
