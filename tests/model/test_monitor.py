"""The status rules of monitors: expected times, deadlines, transitions (pure)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from chimes.model import replace
from chimes.model.ids import MonitorId
from chimes.model.monitor import (
    MAX_EVENTS,
    MAX_PINGS,
    MAX_STARTS,
    DownCause,
    Monitor,
    MonitorEventKind,
    MonitorStatus,
    PingKind,
    check_monitor,
    down_at,
    edit_monitor,
    event_reference,
    expected_at,
    is_settled,
    next_check,
    parse_event_reference,
    pause_monitor,
    record_ping,
    resume_monitor,
    settle_monitor,
    status_at,
)
from chimes.model.notification import plan_monitor_deliveries
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.triggers import Cron, Every, Once, Trigger
from tests.builders import ALICE
from tests.tables import each_row

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NEW, UP, LATE, DOWN, PAUSED = (
    MonitorStatus.NEW,
    MonitorStatus.UP,
    MonitorStatus.LATE,
    MonitorStatus.DOWN,
    MonitorStatus.PAUSED,
)


def monitor(trigger: Trigger | None = None, at: datetime = NOW, **given: object) -> Monitor:
    values = {
        "id": MonitorId("abcdefghijkl"),
        "name": "backup",
        "owner": ALICE,
        "trigger": trigger or Every(10 * MINUTE),
        "grace": 5 * MINUTE,
        "created_at": at,
        "updated_at": at,
        "counts_from": at,
    }
    return Monitor(**(values | given))  # type: ignore[arg-type]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Zone, the nights around a clock change as 02:30 local in UTC. New York and Berlin skip 02:30 in
# spring, Lord Howe moves by 30 minutes, Bangkok never changes.
NIGHTS = {
    "America/New_York": ["2030-03-09T07:30", "2030-03-10T07:00", "2030-03-11T06:30"],
    "Europe/Berlin": ["2030-03-30T01:30", "2030-03-31T01:00", "2030-04-01T00:30"],
    "Australia/Lord_Howe": ["2030-10-04T16:00", "2030-10-05T15:30", "2030-10-06T15:30"],
    "Asia/Bangkok": ["2030-03-29T19:30", "2030-03-30T19:30", "2030-03-31T19:30"],
}


@pytest.mark.parametrize("zone", NIGHTS)
def test_expected_times_follow_the_trigger_over_clock_changes(zone: str) -> None:
    nights = [utc(each) for each in NIGHTS[zone]]
    trigger = Cron("30 2 * * *", timezone=zone)
    it = monitor(trigger, nights[0] - timedelta(hours=3))
    for night in nights:
        expected = expected_at(it)
        assert expected == night
        assert status_at(it, expected - timedelta(seconds=1)) in (NEW, UP)
        assert status_at(it, expected) is LATE
        assert status_at(it, expected + 5 * MINUTE - timedelta(seconds=1)) is LATE
        assert status_at(it, expected + 5 * MINUTE) is DOWN
        it = record_ping(it, PingKind.SUCCESS, expected + MINUTE)
        assert it.noticed is UP
        assert [each.kind for each in it.events if each.kind is MonitorEventKind.DOWN] == []


def test_expected_times_of_each_kind_of_trigger() -> None:
    def simple_period() -> None:
        it = monitor()
        assert expected_at(it) == NOW + 10 * MINUTE
        # Counts from the last success, not from a grid.
        it = record_ping(it, PingKind.SUCCESS, NOW + 3 * MINUTE)
        assert expected_at(it) == NOW + 13 * MINUTE

    def anchored_interval() -> None:
        it = monitor(Every(10 * MINUTE, anchor=NOW))
        it = record_ping(it, PingKind.SUCCESS, NOW + 3 * MINUTE)
        assert expected_at(it) == NOW + 10 * MINUTE

    def once() -> None:
        it = monitor(Once(NOW + timedelta(hours=1)))
        assert expected_at(it) == NOW + timedelta(hours=1)
        it = record_ping(it, PingKind.SUCCESS, NOW + timedelta(hours=1, minutes=1))
        assert expected_at(it) is None
        assert status_at(it, NOW + timedelta(days=400)) is UP

    def excluded_days() -> None:
        # NOW is a Monday; Tuesday to Thursday are excluded.
        excluded = [{"dates": ["2030-01-08", "2030-01-09", "2030-01-10"]}]
        it = monitor(Cron("0 9 * * *", timezone="UTC", exclude=excluded))
        assert expected_at(it) == utc("2030-01-11T09:00")
        period = monitor(Every(timedelta(days=1), exclude=excluded))
        assert expected_at(period) == utc("2030-01-11T12:00")

    for each in (simple_period, anchored_interval, once, excluded_days):
        each()


def test_transitions_are_noticed_once() -> None:
    it = monitor()
    assert check_monitor(it, NOW + 9 * MINUTE) is it
    late = check_monitor(it, NOW + 11 * MINUTE)
    assert (late.noticed, [each.kind for each in late.events]) == (LATE, [MonitorEventKind.LATE])
    assert late.events[0].at == NOW + 10 * MINUTE
    assert check_monitor(late, NOW + 12 * MINUTE) is late
    down = check_monitor(late, NOW + timedelta(hours=3))
    assert down.noticed is DOWN
    assert down.events[-1].at == NOW + 15 * MINUTE
    assert down.down is not None
    assert down.down.cause is DownCause.MISSING
    assert check_monitor(down, NOW + timedelta(days=9)) is down
    # Later expected times do not make it go down again, nor up.
    assert status_at(down, NOW + timedelta(days=9)) is DOWN
    up = record_ping(down, PingKind.SUCCESS, NOW + timedelta(hours=4))
    assert (up.noticed, up.down) == (UP, None)
    assert up.events[-1].kind is MonitorEventKind.RECOVERED
    assert up.events[-1].outage == timedelta(hours=3, minutes=45)
    assert up.pending == (1, 2, 3)
    settled = settle_monitor(up, up.pending, up.noticed)
    assert is_settled(settled)
    # After an outage of all nodes only the last state is an event.
    assert [e.kind for e in check_monitor(it, NOW + timedelta(days=1)).events] == [
        MonitorEventKind.DOWN
    ]
    # A ping notices what was due before it.
    pinged = record_ping(it, PingKind.SUCCESS, NOW + timedelta(days=1))
    assert [e.kind for e in pinged.events] == [MonitorEventKind.DOWN, MonitorEventKind.RECOVERED]


def test_starts_give_durations_and_deadlines() -> None:
    it = record_ping(monitor(grace=timedelta(hours=1)), PingKind.START, NOW + 9 * MINUTE)
    assert it.noticed is UP
    # A job that has begun is not late.
    assert status_at(it, NOW + 20 * MINUTE) is UP
    done = record_ping(it, PingKind.SUCCESS, NOW + 21 * MINUTE)
    assert (done.last_duration, done.started, done.pings[-1].duration) == (
        12 * MINUTE,
        (),
        12 * MINUTE,
    )
    # Without an end it is down one grace period after the start.
    assert down_at(it) == NOW + 69 * MINUTE
    over = check_monitor(it, NOW + 69 * MINUTE)
    assert over.down is not None
    assert over.down.cause is DownCause.OVERRUN
    ended = record_ping(over, PingKind.SUCCESS, NOW + 80 * MINUTE)
    assert (ended.noticed, ended.last_duration) == (UP, 71 * MINUTE)
    # Jobs that overlap are paired by rid, and one without an end is noticed.
    pair = record_ping(monitor(grace=timedelta(hours=1)), PingKind.START, NOW, rid="a")
    pair = record_ping(pair, PingKind.START, NOW + MINUTE, rid="b")
    pair = record_ping(pair, PingKind.SUCCESS, NOW + 3 * MINUTE, rid="b")
    assert pair.last_duration == 2 * MINUTE
    assert [each.rid for each in pair.started] == ["a"]
    assert status_at(pair, NOW + 59 * MINUTE) is not DOWN
    pair = check_monitor(pair, NOW + timedelta(hours=1))
    assert pair.noticed is DOWN
    # The start that overran is not held against a later success without it.
    pair = record_ping(pair, PingKind.SUCCESS, NOW + 61 * MINUTE, rid="c")
    assert status_at(pair, NOW + 62 * MINUTE) is UP
    # Starts alone do not keep a monitor up.
    only = monitor()
    for minute in range(0, 14, 2):
        only = record_ping(only, PingKind.START, NOW + minute * MINUTE)
    assert status_at(only, NOW + 15 * MINUTE) is DOWN


def test_failures_are_down_at_once_and_reported_once() -> None:
    it = record_ping(monitor(), PingKind.SUCCESS, NOW)
    it = record_ping(it, PingKind.FAIL, NOW + MINUTE, exit_code=3)
    assert it.noticed is DOWN
    assert it.down is not None
    assert (it.down.cause, it.down.exit_code) == (DownCause.FAILED, 3)
    it = record_ping(it, PingKind.FAIL, NOW + 2 * MINUTE, exit_code=4)
    it = record_ping(it, PingKind.LOG, NOW + 2 * MINUTE)
    it = record_ping(it, PingKind.START, NOW + 2 * MINUTE)
    assert [each.kind for each in it.events] == [MonitorEventKind.DOWN]
    assert it.noticed is DOWN
    it = record_ping(it, PingKind.SUCCESS, NOW + 3 * MINUTE)
    assert it.noticed is UP


def test_pause_resume_and_edit() -> None:
    it = check_monitor(monitor(), NOW + timedelta(hours=1))
    paused = pause_monitor(it, NOW + timedelta(hours=2), "alice")
    assert status_at(paused, NOW + timedelta(days=9)) is PAUSED
    assert next_check(paused, NOW) is None
    assert pause_monitor(paused, NOW + timedelta(hours=3), "bob") is paused
    ping = record_ping(paused, PingKind.FAIL, NOW + timedelta(hours=3))
    assert (ping.noticed, len(ping.events), ping.ping_count) == (PAUSED, 1, 1)
    at = NOW + timedelta(days=1)
    resumed = resume_monitor(paused, at, "alice")
    assert (resumed.noticed, resumed.down, expected_at(resumed)) == (NEW, None, at + 10 * MINUTE)
    assert resumed.version == paused.version + 1
    # A new trigger counts from now on; what is down stays down.
    down = check_monitor(monitor(), NOW + timedelta(hours=1))
    edited = edit_monitor(down, replace(down, trigger=Every(60 * MINUTE)), at, "bob")
    assert (edited.noticed, edited.counts_from, edited.updated_by) == (DOWN, at, "bob")
    late = check_monitor(monitor(), NOW + 12 * MINUTE)
    edited = edit_monitor(late, replace(late, trigger=Every(60 * MINUTE)), NOW + 12 * MINUTE, "b")
    assert edited.noticed is NEW
    assert edit_monitor(late, late, at, "bob") is late


# Whatever pings arrive after a check, no status changes by time before the next one.
@each_row(
    ["trigger", "grace", "before", "kind"],
    product(
        (Every(10 * MINUTE), Every(2 * MINUTE), Cron("*/7 * * * *", timezone="UTC")),
        (MINUTE, 30 * MINUTE),
        (None, PingKind.SUCCESS, PingKind.FAIL, PingKind.START),
        PingKind,
    ),
)
def test_no_deadline_lies_before_the_next_check(
    trigger: Trigger, grace: timedelta, before: PingKind | None, kind: PingKind
) -> None:
    it = monitor(trigger, grace=grace)
    if before is not None:
        it = record_ping(it, before, NOW)
    bound = next_check(it, NOW)
    assert bound is not None
    assert bound > NOW
    for seconds in (1, 20, 59):
        at = NOW + timedelta(seconds=seconds)
        if at < bound:
            pinged = record_ping(it, kind, at)
            assert check_monitor(pinged, bound - timedelta(microseconds=1)) is pinged


def test_histories_are_bounded() -> None:
    it = monitor()
    for number in range(MAX_PINGS + 50):
        it = record_ping(it, PingKind.START, NOW, rid=f"job-{number}")
    for _again in range(MAX_EVENTS + 5):
        it = record_ping(it, PingKind.FAIL, NOW)
        it = record_ping(it, PingKind.SUCCESS, NOW)
    assert len(it.pings) == MAX_PINGS
    assert it.pings[-1].number == it.ping_count == MAX_PINGS + 50 + 2 * (MAX_EVENTS + 5)
    assert len(it.started) == MAX_STARTS
    assert (len(it.events), len(it.pending)) == (MAX_EVENTS, MAX_EVENTS)


def test_deliveries_of_an_event() -> None:
    inbox = Recipient(channel=Channel.INBOX)
    late_only = Recipient(channel=Channel.TELEGRAM, to="7", on=(NotifyOn.LATE,))
    it = check_monitor(monitor(delivery=(inbox, late_only)), NOW + 11 * MINUTE)
    late = plan_monitor_deliveries(it, it.events[0], NOW + 11 * MINUTE)
    assert [(each.recipient, each.notify_on) for each in late] == [
        (inbox, NotifyOn.LATE),
        (late_only, NotifyOn.LATE),
    ]
    it = check_monitor(it, NOW + timedelta(hours=1))
    down = plan_monitor_deliveries(it, it.events[1], NOW + timedelta(hours=1))
    again = plan_monitor_deliveries(it, it.events[1], NOW + timedelta(hours=2))
    assert [each.notify_on for each in down] == [NotifyOn.FAILURE]
    assert [each.id for each in down] == [each.id for each in again]
    assert down[0].id != late[0].id
    reference = event_reference(it.id, 2)
    assert down[0].run_id == reference
    assert parse_event_reference(reference) == (it.id, 2)
    assert parse_event_reference("01980b24-1d3f-7a90-8b66-5e2d7c1f4a02") is None
