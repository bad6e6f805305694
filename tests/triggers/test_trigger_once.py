"""The `once` trigger."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from cron_oracle import utc

from chimes.errors import InvalidTrigger
from chimes.triggers import Once


def test_once_at_a_local_time() -> None:
    trigger = Once("2030-02-10T09:00:00", timezone="Asia/Bangkok")
    at = utc(2030, 2, 10, 2)
    assert trigger.instant == at
    assert trigger.next_after(at - timedelta(microseconds=1)) == at
    assert trigger.next_after(at) is None
    assert trigger.previous_before(at) is None
    assert trigger.previous_before(at + timedelta(microseconds=1)) == at
    assert trigger.warnings() == ()
    assert trigger.zone == "Asia/Bangkok"


def test_once_in_a_gap_is_moved() -> None:
    trigger = Once("2026-03-08T02:30:00.5", timezone="America/New_York")
    assert trigger.next_after(utc(2026, 1, 1)) == utc(2026, 3, 8, 7)
    assert trigger.warnings() == ("moved_by_gap",)
    assert [fire.note for fire in trigger.fires(utc(2026, 1, 1), 5)] == ["moved_by_gap"]


def test_once_in_an_overlap_is_the_first_occurrence() -> None:
    assert Once("2026-11-01T01:30:00", timezone="America/New_York").instant == utc(
        2026, 11, 1, 5, 30
    )
    second = Once("2026-11-01T01:30:00-05:00", timezone="America/New_York")
    assert second.instant == utc(2026, 11, 1, 6, 30)
    assert Once("2026-11-01T01:30:00-05:00[America/New_York]") == second


def test_default_zone_applies_to_local_times_only() -> None:
    bare = Once("2030-02-10T09:00:00")
    assert bare.zone == "UTC"
    assert bare.instant == utc(2030, 2, 10, 9)
    placed = bare.with_default_zone("Asia/Bangkok")
    assert placed == Once("2030-02-10T09:00:00", timezone="Asia/Bangkok")
    assert placed.with_default_zone("Asia/Tokyo") is placed
    fixed = Once("2030-02-10T09:00:00Z").with_default_zone("Asia/Bangkok")
    assert fixed.instant == utc(2030, 2, 10, 9)
    assert fixed.fires(utc(2030, 1, 1), 1)[0].local.hour == 16


def test_once_accepts_datetimes() -> None:
    aware = datetime(2030, 2, 10, 9, tzinfo=timezone(timedelta(hours=7)))
    assert Once(aware) == Once("2030-02-10T02:00:00Z")
    naive = aware.replace(tzinfo=None)
    assert Once(naive, timezone="Asia/Bangkok").instant == Once(aware).instant
    assert Once(aware).anchored(aware) == Once(aware)


@pytest.mark.parametrize(
    ("at", "more", "code"),
    [
        ("2026-06-30T23:59:60Z", {}, "leap_second"),
        ("9999-01-01T00:00:00Z", {}, "out_of_range"),
        ("1969-12-31T23:59:59Z", {}, "out_of_range"),
        ("1970-01-01T00:00:00", {"timezone": "Asia/Bangkok"}, "out_of_range"),
        ("2030-02-30T00:00:00Z", {}, "bad_moment"),
        ("2030-02-10T09:00:00+07:00[Asia/Tokyo]", {}, "offset_mismatch"),
        ("2030-02-10T09:00:00[Asia/Tokyo]", {"timezone": "Asia/Bangkok"}, "zone_mismatch"),
        ("2030-02-10T09:00:00", {"timezone": "+07:00"}, "unknown_zone"),
        (5, {}, "wrong_type"),
        (None, {}, "wrong_type"),
    ],
)
def test_invalid_times_are_rejected(at: object, more: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Once(at, **more)
    assert caught.value.code == code
    assert caught.value.field == ("timezone" if code == "unknown_zone" else "at")
