"""Monitors: check-ins of jobs that run elsewhere, and the pure rules of their status (ADR 75).

A job sends a ping when it has ended, and may send one when it begins. A monitor has a trigger,
which says when a ping is expected, and a grace period. It is `late` from the expected time, and
`down` after the grace period, at once after a failed ping, and when a job that has begun does not
end within the grace period. `down` lasts until the next successful ping.

Every change is a pure function of the monitor and the time. A change of the status that people are
notified of leaves a `MonitorEvent`; its number is in `pending` until its deliveries are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.fields import Secrets
from chimes.model.ids import MonitorId, RunId
from chimes.model.recipient import NotifyOn, Recipient
from chimes.triggers import Trigger

MIN_GRACE = timedelta(seconds=1)
MAX_GRACE = timedelta(days=365)
#: As in Healthchecks.
DEFAULT_GRACE = timedelta(hours=1)
MAX_TAGS = 20
MAX_TAG_LENGTH = 50
#: Pings and events in the history of a monitor.
MAX_PINGS = 100
MAX_EVENTS = 50
#: Jobs of one monitor that have begun and not ended.
MAX_STARTS = 20
#: Pings whose log is kept, and characters of one log: the last ones, which name the error.
MAX_LOGS = 20
MAX_LOG_LENGTH = 10_000
MAX_RID_LENGTH = 64
MAX_EXIT_CODE = 255
#: A longer time between start and end is not a duration of one job.
MAX_DURATION = timedelta(days=7)


class MonitorStatus(StrEnum):
    #: No ping yet, and none was expected.
    NEW = "new"
    UP = "up"
    #: A ping was expected; the grace period is not over.
    LATE = "late"
    DOWN = "down"
    PAUSED = "paused"


#: Most severe first.
SEVERITY = (
    MonitorStatus.DOWN,
    MonitorStatus.LATE,
    MonitorStatus.NEW,
    MonitorStatus.UP,
    MonitorStatus.PAUSED,
)


class PingKind(StrEnum):
    SUCCESS = "success"
    START = "start"
    FAIL = "fail"
    #: Only adds a log.
    LOG = "log"


class DownCause(StrEnum):
    #: No ping until the end of the grace period.
    MISSING = "missing"
    #: A ping with `/fail` or a nonzero exit code.
    FAILED = "failed"
    #: A job has begun and did not end within the grace period.
    OVERRUN = "overrun"


class MonitorEventKind(StrEnum):
    LATE = "late"
    DOWN = "down"
    RECOVERED = "recovered"


class Ping(Struct, frozen=True, kw_only=True):
    """One ping in the history."""

    number: int
    kind: PingKind
    at: datetime
    exit_code: int | None = None
    #: Time since the start with the same `rid`.
    duration: timedelta | None = None
    rid: str = ""
    address: str = ""
    #: Bytes of the body; its last characters are kept as a log.
    size: int = 0


class StartedJob(Struct, frozen=True, kw_only=True):
    at: datetime
    rid: str = ""
    #: The monitor has been down since; the job no longer has a deadline.
    overdue: bool = False


class Down(Struct, frozen=True, kw_only=True):
    cause: DownCause
    at: datetime
    exit_code: int | None = None


class MonitorEvent(Struct, frozen=True, kw_only=True):
    number: int
    kind: MonitorEventKind
    #: When it happened, which may be before it was noticed.
    at: datetime
    cause: DownCause | None = None
    exit_code: int | None = None
    #: Of a late or missing ping.
    expected_at: datetime | None = None
    #: Of a recovery: how long it was down.
    outage: timedelta | None = None


class Monitor(Struct, frozen=True, kw_only=True):
    id: MonitorId
    name: str
    owner: Owner
    trigger: Trigger
    grace: timedelta = DEFAULT_GRACE
    tags: tuple[str, ...] = ()
    delivery: tuple[Recipient, ...] = ()
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    updated_by: str = ""
    version: int = 1
    paused_at: datetime | None = None
    #: Hashes of the secret parts of the ping URL and of the badge URL.
    ping_hash: str = ""
    badge_hash: str = ""
    #: The secret parts: ping, badge. Empty in a store that cannot encrypt them.
    secrets: Secrets = ()

    # --- state, changed by pings and by time
    #: Pings are expected after this time: creation, change of the trigger, or resume.
    counts_from: datetime
    #: The status that the last change or check found.
    noticed: MonitorStatus = MonitorStatus.NEW
    #: The status in the index of all monitors (`services/monitors.py`).
    indexed: MonitorStatus | None = None
    last_ping_at: datetime | None = None
    last_success_at: datetime | None = None
    last_duration: timedelta | None = None
    down: Down | None = None
    started: tuple[StartedJob, ...] = ()
    #: Newest last.
    pings: tuple[Ping, ...] = ()
    events: tuple[MonitorEvent, ...] = ()
    #: Numbers of events whose deliveries are not known to be written.
    pending: tuple[int, ...] = field(default=())
    ping_count: int = 0
    event_count: int = 0


# --- what a monitor expects -----------------------------------------------------------------------
def expected_at(monitor: Monitor) -> datetime | None:
    """When the next ping is expected, perhaps in the past; None: none is expected any more.

    An interval without an anchor counts from the last successful ping, as the period of
    Healthchecks does. All other triggers have fixed times: the first one after that ping."""
    since = monitor.counts_from
    if monitor.last_success_at is not None and monitor.last_success_at > since:
        since = monitor.last_success_at
    return monitor.trigger.anchored(since).next_after(since)


def down_at(monitor: Monitor) -> datetime | None:
    """When it is down unless a ping arrives; None: never."""
    expected = expected_at(monitor)
    bounds = [each.at for each in monitor.started if not each.overdue]
    if expected is not None:
        bounds.append(expected)
    return min(bounds) + monitor.grace if bounds else None


def is_running(monitor: Monitor) -> bool:
    """Whether a job has begun and may still end in time."""
    return any(not each.overdue for each in monitor.started)


def status_at(monitor: Monitor, now: datetime) -> MonitorStatus:
    if monitor.paused_at is not None:
        return MonitorStatus.PAUSED
    if monitor.down is not None:
        return MonitorStatus.DOWN
    deadline = down_at(monitor)
    if deadline is not None and now >= deadline:
        return MonitorStatus.DOWN
    expected = expected_at(monitor)
    if expected is not None and now >= expected and not is_running(monitor):
        return MonitorStatus.LATE
    return MonitorStatus.NEW if monitor.last_ping_at is None else MonitorStatus.UP


def next_check(monitor: Monitor, now: datetime) -> datetime | None:
    """The earliest time at which its status can change without being noticed, whatever pings arrive
    until then; None: not before it is changed. So a ping wakes no node.

    A ping makes no deadline earlier than one grace period after it, and expects the next one not
    before the next time of the trigger."""
    if monitor.paused_at is not None:
        return None
    found = [now + monitor.grace]
    following = monitor.trigger.anchored(now).next_after(now)
    if following is not None:
        found.append(following)
    if monitor.down is None:
        found += [each for each in (expected_at(monitor), down_at(monitor)) if each and each > now]
    return min(found)


# --- changes --------------------------------------------------------------------------------------
def check_monitor(monitor: Monitor, now: datetime) -> Monitor:
    """Notices that it is late or down; the same object if nothing has changed."""
    status = status_at(monitor, now)
    if status is monitor.noticed:
        return monitor
    if status is MonitorStatus.LATE:
        expected = expected_at(monitor)
        assert expected is not None
        event = MonitorEvent(
            number=0, kind=MonitorEventKind.LATE, at=expected, expected_at=expected
        )
        return _with_event(replace(monitor, noticed=status), event)
    if status is MonitorStatus.DOWN and monitor.down is None:
        at, expected = down_at(monitor), expected_at(monitor)
        assert at is not None
        missing = expected is not None and expected + monitor.grace == at
        cause = DownCause.MISSING if missing else DownCause.OVERRUN
        return _go_down(monitor, Down(cause=cause, at=at), expected)
    return replace(monitor, noticed=status)


def record_ping(
    monitor: Monitor,
    kind: PingKind,
    now: datetime,
    *,
    exit_code: int | None = None,
    rid: str = "",
    address: str = "",
    size: int = 0,
) -> Monitor:
    """The monitor after a ping; what was due before it is noticed first."""
    monitor = check_monitor(monitor, now)
    begun = next((each for each in monitor.started if each.rid == rid), None)
    duration = None
    if kind in (PingKind.SUCCESS, PingKind.FAIL) and begun is not None:
        duration = now - begun.at if now - begun.at <= MAX_DURATION else None
    number = monitor.ping_count + 1
    ping = Ping(
        number=number,
        kind=kind,
        at=now,
        exit_code=exit_code,
        duration=duration,
        rid=rid,
        address=address,
        size=size,
    )
    monitor = replace(
        monitor, pings=(*monitor.pings, ping)[-MAX_PINGS:], ping_count=number, last_ping_at=now
    )
    match kind:
        case PingKind.START:
            return _notice(_start(monitor, rid, now), now)
        case PingKind.SUCCESS:
            return _notice(_succeed(monitor, rid, duration, now), now)
        case PingKind.FAIL:
            return _fail(monitor, rid, duration, exit_code, now)
        case PingKind.LOG:
            return _notice(monitor, now)


def _start(monitor: Monitor, rid: str, now: datetime) -> Monitor:
    others = [each for each in monitor.started if each.rid != rid]
    # While it is down, a start that does not end says nothing new.
    job = StartedJob(at=now, rid=rid, overdue=monitor.down is not None)
    return replace(monitor, started=(*others, job)[-MAX_STARTS:])


def _succeed(monitor: Monitor, rid: str, duration: timedelta | None, now: datetime) -> Monitor:
    before = monitor.down
    after = replace(
        _without_start(monitor, rid),
        last_success_at=now,
        last_duration=duration,
        down=None,
    )
    if before is None:
        return after
    recovered = MonitorEvent(
        number=0,
        kind=MonitorEventKind.RECOVERED,
        at=now,
        cause=before.cause,
        outage=max(now - before.at, timedelta()),
    )
    return _with_event(after, recovered)


def _fail(
    monitor: Monitor, rid: str, duration: timedelta | None, exit_code: int | None, now: datetime
) -> Monitor:
    after = replace(_without_start(monitor, rid), last_duration=duration)
    if monitor.paused_at is not None or after.down is not None:
        return after
    return _go_down(after, Down(cause=DownCause.FAILED, at=now, exit_code=exit_code), None)


def _without_start(monitor: Monitor, rid: str) -> Monitor:
    return replace(monitor, started=tuple(each for each in monitor.started if each.rid != rid))


def _go_down(monitor: Monitor, down: Down, expected: datetime | None) -> Monitor:
    event = MonitorEvent(
        number=0,
        kind=MonitorEventKind.DOWN,
        at=down.at,
        cause=down.cause,
        exit_code=down.exit_code,
        expected_at=expected if down.cause is DownCause.MISSING else None,
    )
    after = replace(
        monitor,
        down=down,
        noticed=MonitorStatus.DOWN,
        started=tuple(replace(each, overdue=True) for each in monitor.started),
    )
    return _with_event(after, event)


def _with_event(monitor: Monitor, event: MonitorEvent) -> Monitor:
    number = monitor.event_count + 1
    return replace(
        monitor,
        events=(*monitor.events, replace(event, number=number))[-MAX_EVENTS:],
        event_count=number,
        pending=(*monitor.pending, number)[-MAX_EVENTS:],
    )


def _notice(monitor: Monitor, now: datetime) -> Monitor:
    return replace(monitor, noticed=status_at(monitor, now))


def pause_monitor(monitor: Monitor, now: datetime, by: str) -> Monitor:
    """Nothing is expected until it is resumed; pings are recorded."""
    if monitor.paused_at is not None:
        return monitor
    return _edited(replace(monitor, paused_at=now, noticed=MonitorStatus.PAUSED), now, by)


def resume_monitor(monitor: Monitor, now: datetime, by: str) -> Monitor:
    """Expects pings from now on; what was down before is forgotten."""
    if monitor.paused_at is None:
        return monitor
    after = replace(monitor, paused_at=None, down=None, started=(), counts_from=now)
    return _edited(_notice(after, now), now, by)


def edit_monitor(before: Monitor, after: Monitor, now: datetime, by: str) -> Monitor:
    """`after` has other fields that people choose. A new trigger counts from now on; a monitor that
    is down stays down until the next successful ping."""
    if after == before:
        return before
    if after.trigger != before.trigger:
        after = replace(after, counts_from=now)
    return _edited(check_monitor(after, now), now, by)


def settle_monitor(monitor: Monitor, events: Sequence[int], indexed: MonitorStatus) -> Monitor:
    """The deliveries of these events are written, and the index has this status."""
    pending = tuple(each for each in monitor.pending if each not in events)
    return replace(monitor, pending=pending, indexed=indexed)


def is_settled(monitor: Monitor) -> bool:
    return not monitor.pending and monitor.indexed is monitor.noticed


def _edited(monitor: Monitor, now: datetime, by: str) -> Monitor:
    return replace(monitor, version=monitor.version + 1, updated_at=now, updated_by=by)


# --- notifications --------------------------------------------------------------------------------
_NOTIFY_ON = {
    MonitorEventKind.LATE: NotifyOn.LATE,
    MonitorEventKind.DOWN: NotifyOn.FAILURE,
    MonitorEventKind.RECOVERED: NotifyOn.RECOVERY,
}
_REFERENCE = "monitor:"


def notify_on_for_event(event: MonitorEvent) -> NotifyOn:
    return _NOTIFY_ON[event.kind]


def event_reference(monitor_id: MonitorId, number: int) -> RunId:
    """What a delivery about an event has in the place of a run."""
    return RunId(f"{_REFERENCE}{monitor_id}:{number}")


def parse_event_reference(reference: str | None) -> tuple[MonitorId, int] | None:
    """The monitor and the number of the event; None: it is a run."""
    if reference is None or not reference.startswith(_REFERENCE):
        return None
    monitor_id, _colon, number = reference.removeprefix(_REFERENCE).partition(":")
    return (MonitorId(monitor_id), int(number)) if number.isdigit() else None
