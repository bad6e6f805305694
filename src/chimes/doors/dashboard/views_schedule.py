"""What the page of one schedule shows, from values to what a template needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from chimes.doors.dashboard import times
from chimes.doors.dashboard.charts.drawing import Chart, worst
from chimes.doors.dashboard.charts.points import Point, PointWords, points_chart
from chimes.doors.dashboard.charts.timeline import Fire, Lane, TimelineWords, timeline
from chimes.doors.dashboard.look import Look, by_clock
from chimes.doors.dashboard.views_schedules import plain_moment, state_word
from chimes.model.insights import Result, Tally
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, runs_left
from chimes.service.slots import upcoming_fires
from chimes.triggers import Fire as Slot
from chimes.triggers import Note
from chimes.wording import Wording, in_language, say

SHOWN_FIRES = 5
#: The timeline: so much of what was, and of what comes.
BEHIND, AHEAD = timedelta(days=5), timedelta(days=2)
#: Above this many runs in it, hours stand for them.
MOST_MARKS = 150
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class NextFire:
    at: datetime
    #: By the schedule's clock, and by the reader's (or UTC, where they are the same).
    there: str
    here: str
    note: Note | None


def next_slots(schedule: Schedule, now: datetime, count: int = SHOWN_FIRES) -> list[Slot]:
    """The slots to come, from the cursor on, by the function that the scheduler and the preview
    use; of a paused one, what would come if it went on now."""
    trigger = schedule.trigger
    if trigger.max_runs is not None:
        count = min(count, max(0, trigger.max_runs - schedule.fired_count))
    if schedule.next_slot is None:
        return trigger.fires(now, count) if not schedule.enabled and runs_left(schedule) else []
    first = schedule.next_slot
    on_grid = trigger.next_after(first - _MICROSECOND) == first
    if on_grid:
        return trigger.fires(first - _MICROSECOND, count)
    return [Slot(first, trigger.local(first), None), *trigger.fires(first, count - 1)]


def second_clock(zone: str, look: Look) -> str:
    """Beside the schedule's own: the reader's, or UTC where that is the same one."""
    return look.zone if look.zone != zone else "UTC"


def next_fires(schedule: Schedule, look: Look, now: datetime) -> tuple[NextFire, ...]:
    zone = schedule.trigger.zone
    other = second_clock(zone, look)
    return tuple(
        NextFire(
            at=slot.at,
            there=times.absolute(slot.at, zone, look, now=now),
            here=times.absolute(slot.at, other, look, now=now),
            note=slot.note,
        )
        for slot in next_slots(schedule, now)
    )


def clock_changes(zone: str, start: datetime, end: datetime) -> tuple[datetime, ...]:
    """The moments at which the clocks of a zone change, to the minute."""
    info = times.zone_info(zone)
    found: list[datetime] = []
    low = start
    while low < end:
        high = min(low + _HOUR * 24, end)
        if low.astimezone(info).utcoffset() != high.astimezone(info).utcoffset():
            found.append(_change_between(zone, low, high))
        low = high
    return tuple(found)


def _change_between(zone: str, low: datetime, high: datetime) -> datetime:
    info = times.zone_info(zone)
    before = low.astimezone(info).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(info).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high.replace(second=0, microsecond=0) if high.second < 30 else high


# --- pictures -------------------------------------------------------------------------------------
def marks_of(
    schedule: Schedule,
    results: Sequence[Result],
    hours: Iterable[Tally],
    expected: timedelta | None,
    now: datetime,
) -> list[Fire]:
    """What was and what comes. Of many runs an hour is one mark, the worst of them."""
    since = now - BEHIND
    recent = [each for each in results if each.planned_at >= since]
    if len(recent) < MOST_MARKS:
        past = [
            Fire(
                at=each.planned_at,
                length=each.duration or timedelta(0),
                status=each.status,
                address=f"/ui/runs/{each.run_id}",
            )
            for each in recent
        ]
    else:
        past = [
            Fire(
                at=each.at, status=worst(each.statuses), address=f"/ui/schedules/{schedule.id}/runs"
            )
            for each in hours
            if each.total
        ]
    ahead = upcoming_fires([schedule], now + AHEAD) if schedule.enabled else []
    coming = [Fire(at=each.at, length=expected or timedelta(0)) for each in ahead[: 2 * MOST_MARKS]]
    return past + coming


def week(schedule: Schedule, marks: Sequence[Fire], look: Look, now: datetime) -> Chart:
    zone = by_clock(look, schedule.trigger.zone)
    start, end = now - BEHIND, now + AHEAD
    said = partial(in_language, language=look.language)
    info = times.zone_info(zone)
    first = start.astimezone(info).replace(hour=0, minute=0, second=0, microsecond=0)
    midnights = [first + timedelta(days=step) for step in range(1, (end - start).days + 2)]

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = plain_moment(fires[0].at, zone, look)
        if len(fires) > 1:
            return said(say("{count} from {when}", count=len(fires), when=when))
        return f"{state(fires[0].status)}, {when}"

    def state(status: RunStatus | None) -> str:
        return said(say("planned")) if status is None else state_word(status, look.language)

    return timeline(
        [Lane(name=schedule.name, fires=marks)],
        start=start,
        end=end,
        now=now,
        ticks=[each for each in midnights if start < each < end],
        changes=clock_changes(zone, start, end),
        words=TimelineWords(
            title=said(say("Five days behind, two ahead")),
            description=said(
                say("Runs that were and runs to come, by the clock of {zone}", zone=zone)
            ),
            lane=said(say("Schedule")),
            when=said(say("When")),
            status=said(say("Result")),
            now=said(say("now")),
            change=said(say("the clocks change")),
            mark=mark,
            clock=lambda at: times.day(at, zone, look, now=now),
            moment=lambda at: plain_moment(at, zone, look),
            state=state,
        ),
    )


def durations(results: Sequence[Result], schedule: Schedule, look: Look) -> Chart:
    points = [_point(each, each.duration) for each in results if each.duration is not None]
    title = say("How long runs took")
    return points_chart(points, _words(title, say("Duration"), schedule, look))


def lags(results: Sequence[Result], schedule: Schedule, look: Look) -> Chart:
    points = [_point(each, each.lag) for each in results if each.lag is not None]
    title = say("How late runs began")
    return points_chart(points, _words(title, say("Lag"), schedule, look))


def _point(result: Result, length: timedelta) -> Point:
    return Point(
        at=result.planned_at,
        seconds=length.total_seconds(),
        status=result.status,
        address=f"/ui/runs/{result.run_id}",
    )


def _words(title: Wording, value: Wording, schedule: Schedule, look: Look) -> PointWords:
    zone = by_clock(look, schedule.trigger.zone)
    said = partial(in_language, language=look.language)
    return PointWords(
        title=said(title),
        description=said(say("A point for each run, by the clock of {zone}", zone=zone)),
        when=said(say("When")),
        value=said(value),
        status=said(say("Result")),
        median=said(say("median")),
        p95=said(say("p95")),
        span=lambda seconds: times.span(seconds, look.language),
        state=lambda status: state_word(status, look.language),
        moment=lambda at: plain_moment(at, zone, look),
    )
