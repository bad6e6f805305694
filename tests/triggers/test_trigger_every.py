"""Interval triggers: `every` and `@every`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from cron_oracle import utc
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron, Every
from tests.tables import each_row

ANCHOR = utc(2026, 1, 1, 0, 0, 7)


def test_slots_count_from_the_anchor() -> None:
    trigger = Every("5m", anchor=ANCHOR)
    assert trigger.next_after(ANCHOR) == ANCHOR + timedelta(minutes=5)
    assert trigger.next_after(ANCHOR + timedelta(seconds=1)) == ANCHOR + timedelta(minutes=5)
    assert trigger.previous_before(ANCHOR + timedelta(minutes=5)) == ANCHOR


def test_future_anchor_is_the_first_slot() -> None:
    trigger = Every("5m", anchor=ANCHOR)
    assert trigger.next_after(utc(2020, 1, 1)) == ANCHOR
    assert trigger.next_after(ANCHOR - timedelta(microseconds=1)) == ANCHOR
    assert trigger.previous_before(ANCHOR) is None
    assert trigger.previous_before(utc(2020, 1, 1)) is None


def test_interval_without_anchor_is_aligned_to_the_epoch() -> None:
    trigger = Every("7m")
    assert trigger.next_after(utc(1970, 1, 1)) == utc(1970, 1, 1, 0, 7)
    assert trigger.previous_before(utc(1970, 1, 1)) == utc(1969, 12, 31, 23, 53)


def test_intervals_ignore_clock_changes() -> None:
    trigger = Cron("TZ=America/New_York @every 1h").anchored(utc(2026, 3, 8, 5, 30))
    fires = trigger.fires(utc(2026, 3, 8, 6), 3)
    assert [fire.at.hour for fire in fires] == [6, 7, 8]
    assert [fire.local.hour for fire in fires] == [1, 3, 4]
    assert {fire.note for fire in fires} == {None}


def test_every_descriptor_is_an_interval() -> None:
    trigger = Cron("@every 1h30m10s", timezone="Asia/Bangkok")
    assert trigger.zone == "Asia/Bangkok"
    anchored = trigger.anchored(ANCHOR)
    assert anchored.anchored(utc(2027, 1, 1)) is anchored
    step = timedelta(hours=1, minutes=30, seconds=10)
    assert anchored.next_after(ANCHOR) == ANCHOR + step
    assert anchored.previous_before(ANCHOR + step) == ANCHOR
    assert anchored.to_dict()["anchor"] == "2026-01-01T00:00:07Z"
    assert Cron("@EVERY PT5M").next_after(utc(2026, 1, 1)) == utc(2026, 1, 1, 0, 5)


def test_anchored_sets_the_anchor_once() -> None:
    local = datetime(2026, 1, 1, 7, 0, 7, tzinfo=timezone(timedelta(hours=7)))
    trigger = Every("5m").anchored(local)
    assert trigger == Every("5m", anchor="2026-01-01T00:00:07Z")
    assert trigger.anchor.tzinfo is UTC
    assert trigger.anchored(utc(2027, 1, 1)) is trigger
    cron = Cron("0 0 * * *")
    assert cron.anchored(local) is cron


@given(
    st.integers(1000, 10**12),
    st.one_of(st.none(), st.integers(0, 10**15)),
    st.integers(-(10**14), 3 * 10**15),
)
def test_next_and_previous_are_inverse(step: int, anchor: int | None, moment: int) -> None:
    def instant(value: int) -> datetime:
        return utc(1970, 1, 1) + timedelta(microseconds=value)

    trigger = Every(
        timedelta(microseconds=step), anchor=None if anchor is None else instant(anchor)
    )
    start = instant(moment)
    following = trigger.next_after(start)
    before = trigger.previous_before(following)
    assert following > start
    assert before is None or before <= start
    if anchor is None or moment > anchor:
        assert following - before == trigger.every
        assert trigger.next_after(before) == following


def test_jitter_is_a_hash_of_the_slot() -> None:
    trigger = Every("5m", anchor=ANCHOR, jitter="5s")
    slots = [ANCHOR + number * trigger.every for number in range(200)]
    delays = [trigger.jitter_for("schedule", slot) for slot in slots]
    assert delays == [trigger.jitter_for("schedule", slot) for slot in slots]
    assert all(timedelta(0) <= delay < timedelta(seconds=5) for delay in delays)
    assert len(set(delays)) == 200
    assert delays != [trigger.jitter_for("other", slot) for slot in slots]
    assert max(delays) > timedelta(seconds=4.5)
    assert min(delays) < timedelta(seconds=0.5)
    # The jitter must not change between machines or releases.
    assert trigger.jitter_for("schedule", ANCHOR) == timedelta(seconds=2, microseconds=440591)
    assert trigger.next_after(ANCHOR) == ANCHOR + trigger.every


def test_jitter_defaults_to_zero() -> None:
    assert Every("5m").jitter_for("schedule", ANCHOR) == timedelta(0)
    assert Every("5m", jitter="0s").jitter_for("schedule", ANCHOR) == timedelta(0)
    assert Cron("0 0 * * *").jitter_for("schedule", ANCHOR) == timedelta(0)


def test_interval_of_microseconds() -> None:
    trigger = Every("1.5ms", anchor=ANCHOR)
    assert trigger.next_after(ANCHOR) - ANCHOR == timedelta(microseconds=1500)
    assert trigger.previous_before(ANCHOR + timedelta(microseconds=1500)) == ANCHOR


def test_zone_of_an_interval_is_utc() -> None:
    trigger = Every("5m")
    assert trigger.zone == "UTC"
    assert trigger.with_default_zone("Asia/Bangkok") is trigger
    assert trigger.warnings() == ()
    with pytest.raises(InvalidTrigger):
        trigger.with_default_zone("Nowhere")


def test_interval_beyond_the_calendar_has_no_fire() -> None:
    assert Every("87600h").next_after(utc(9998, 6, 1)) is None


@each_row(
    ("every", "more", "field"),
    [
        ("0s", {}, "every"),
        ("0", {}, "every"),
        ("-5s", {}, "every"),
        ("0.5ms", {}, "every"),
        ("1e12", {}, "every"),
        ("87673h", {}, "every"),
        (timedelta(0), {}, "every"),
        (timedelta(days=4000), {}, "every"),
        (5, {}, "every"),
        (None, {}, "every"),
        ("5m", {"jitter": "6m"}, "jitter"),
        ("5m", {"jitter": "-1s"}, "jitter"),
        ("5m", {"jitter": 3}, "jitter"),
        ("5m", {"anchor": "yesterday"}, "anchor"),
        ("5m", {"anchor": "2026-01-01T00:00:00"}, "anchor"),
        ("5m", {"anchor": datetime(2026, 1, 1)}, "anchor"),  # noqa: DTZ001
        ("5m", {"anchor": 5}, "anchor"),
        ("5m", {"anchor": "9999-01-01T00:00:00Z"}, "anchor"),
    ],
)
def test_invalid_intervals_are_rejected(every: object, more: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Every(every, **more)
    assert caught.value.field == field
