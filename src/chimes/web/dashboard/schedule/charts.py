"""Charts of one schedule: timeline, duration_chart and lag_chart. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from chimes.i18n import Message, _, in_language
from chimes.model.insights import Result, StatusCounts
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule, upcoming_fires
from chimes.services.schedules.versions import Period
from chimes.triggers.clock_changes import clock_changes
from chimes.web.dashboard.charts.scatter import Point, ScatterTexts, scatter_chart
from chimes.web.dashboard.charts.svg import Chart, worst_status
from chimes.web.dashboard.charts.timeline import Fire, Lane, TimelineTexts, past_fire, timeline
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.core.times import status_label

#: The timeline shows this much before and after now.
PAST, FUTURE = timedelta(days=5), timedelta(days=2)
#: With more runs, the timeline shows one mark per hour.
MAX_MARKS = 150
#: Upcoming fires; further ones are drawn as an ellipsis.
MAX_UPCOMING = 2 * MAX_MARKS
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)
#: A slot that is just due may have no run yet.
_JUST_NOW = timedelta(minutes=1)
_MAX_TICKS, _TICK_HOURS = 8, (1, 2, 3, 6, 12)


def marks_of(
    schedule: Schedule,
    results: Sequence[Result],
    hours: Iterable[StatusCounts],
    expected: timedelta | None,
    now: datetime,
) -> list[Fire]:
    """Past runs and upcoming fires; one more than `MAX_UPCOMING` if there are more. With many runs,
    one mark per hour with the worst status."""
    since = now - PAST
    recent = [each for each in results if each.planned_at >= since]
    if len(recent) < MAX_MARKS:
        past = [past_fire(each) for each in recent]
    else:
        past = [
            Fire(
                at=each.at,
                status=worst_status(each.statuses),
                address=f"/ui/schedules/{schedule.id}/runs",
            )
            for each in hours
            if each.total
        ]
    ahead = (
        upcoming_fires([schedule], now + FUTURE, limit=MAX_UPCOMING + 1) if schedule.enabled else []
    )
    return past + [Fire(at=each.at, length=expected or timedelta(0)) for each in ahead]


def expected_marks(
    schedule: Schedule,
    periods: Sequence[Period],
    results: Sequence[Result],
    hours: Sequence[StatusCounts],
    now: datetime,
    *,
    complete: bool,
) -> list[Fire]:
    """Slots of the triggers that the schedule had; those without a run are marked as missed. With
    many slots, one mark per hour. `complete`: whether `results` contains all runs."""
    since = now - PAST
    if schedule.purged_until is not None:
        since = max(since, schedule.purged_until)
    if not complete and results:
        since = max(since, results[-1].planned_at - _MICROSECOND)
    slots: list[datetime] = []
    for period in periods:
        slots += _slots_of(period, since, now - _JUST_NOW, limit=MAX_MARKS - len(slots))
    if len(slots) >= MAX_MARKS:
        return _expected_hours(periods, hours, now - PAST, now)
    planned = sorted(each.planned_at for each in results if each.origin is Origin.SCHEDULE)
    ends = [*slots[1:], now]
    return [
        Fire(at=each, status=None if _any_between(planned, each, end) else RunStatus.MISSED)
        for each, end in zip(slots, ends, strict=False)
    ]


def _slots_of(period: Period, since: datetime, until: datetime, *, limit: int) -> list[datetime]:
    found: list[datetime] = []
    if period.trigger is None:
        return found
    slot = period.trigger.next_after(max(since, period.start))
    while slot is not None and slot < min(until, period.end) and len(found) < limit:
        found.append(slot)
        slot = period.trigger.next_after(slot)
    return found


def _any_between(moments: Sequence[datetime], start: datetime, end: datetime) -> bool:
    place = bisect_left(moments, start)
    return place < len(moments) and moments[place] < end


def _expected_hours(
    periods: Sequence[Period], hours: Sequence[StatusCounts], since: datetime, now: datetime
) -> list[Fire]:
    found: list[Fire] = []
    for each in hours:
        end, start = min(each.at + _HOUR, now - _JUST_NOW), max(each.at, since) - _MICROSECOND
        if any(_slots_of(period, start, end, limit=1) for period in periods):
            found.append(Fire(at=each.at, status=None if each.total else RunStatus.MISSED))
    return found


def timeline_chart(
    schedule: Schedule,
    marks: Sequence[Fire],
    expected: Sequence[Fire],
    display: DisplayPreferences,
    now: datetime,
) -> Chart:
    """A lane of expected slots above a lane of runs: a gap below shows a missing run."""
    more = sum(each.status is None for each in marks) > MAX_UPCOMING
    zone = primary_zone(display, schedule.trigger.zone)
    start, end = now - PAST, now + FUTURE
    translate = partial(in_language, language=display.language)
    info = times.zone_info(zone)
    first = start.astimezone(info).replace(hour=0, minute=0, second=0, microsecond=0)
    midnights = [first + timedelta(days=step) for step in range(1, (end - start).days + 2)]

    state = partial(times.fire_label, language=display.language)

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = times.format_with_year(fires[0].at, zone, display)
        if len(fires) > 1:
            return translate(_("{count} from {when}", count=len(fires), when=when))
        return f"{state(fires[0].status)}, {when}"

    return timeline(
        [
            *([Lane(name=translate(_("Expected")), fires=expected)] if expected else []),
            Lane(name=translate(_("Runs")), fires=marks[:-1] if more else marks, more=more),
        ],
        start=start,
        end=end,
        now=now,
        ticks=[each for each in midnights if start < each < end],
        clock_changes=[each.at for each in clock_changes(zone, start, end)],
        texts=TimelineTexts(
            title=translate(_("Last 5 days, next 2 days")),
            description=translate(_("Past and upcoming runs, in {zone}", zone=zone)),
            lane=translate(_("Row")),
            when=translate(_("When")),
            status=translate(_("Result")),
            now=translate(_("now")),
            clock_change=translate(_("clock change")),
            mark=mark,
            clock=lambda at: times.day(at, zone, display, now=now),
            moment=lambda at: times.format_with_year(at, zone, display),
            state=state,
        ),
    )


def duration_chart(
    results: Sequence[Result],
    schedule: Schedule,
    display: DisplayPreferences,
    now: datetime,
    usual: timedelta | None,
) -> Chart:
    """`usual`: the usual duration of the schedule, as on all other pages."""
    points = [_point(each, each.duration) for each in results if each.duration is not None]
    texts = _texts(_("Durations"), _("Duration"), _("usual"), schedule, display, points, now)
    ticks = _ticks(points, primary_zone(display, schedule.trigger.zone))
    middle = None if usual is None else usual.total_seconds()
    return scatter_chart(points, texts, ticks=ticks, usual=middle)


def lag_chart(
    results: Sequence[Result], schedule: Schedule, display: DisplayPreferences, now: datetime
) -> Chart:
    points = [_point(each, each.lag) for each in results if each.lag is not None]
    texts = _texts(_("Lag"), _("Lag"), _("median"), schedule, display, points, now)
    return scatter_chart(
        points, texts, ticks=_ticks(points, primary_zone(display, schedule.trigger.zone))
    )


def _long(points: Sequence[Point]) -> bool:
    """Whether the axis names days instead of hours."""
    moments = [each.at for each in points]
    return bool(moments) and max(moments) - min(moments) > timedelta(days=2)


def _ticks(points: Sequence[Point], zone: str) -> list[datetime]:
    """At most `_MAX_TICKS` round local times within the points."""
    if not points:
        return []
    first, last = min(each.at for each in points), max(each.at for each in points)
    if _long(points):
        midnight = first.astimezone(times.zone_info(zone)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        days = (last - first).days + 1
        return [
            midnight + timedelta(days=number)
            for number in range(1, days + 1, days // _MAX_TICKS + 1)
        ]
    for step in _TICK_HOURS:
        ticks = times.ticks_between(zone, first, last, step)
        if len(ticks) <= _MAX_TICKS:
            return ticks
    return []


def _point(result: Result, length: timedelta) -> Point:
    return Point(
        at=result.planned_at,
        seconds=length.total_seconds(),
        status=result.status,
        address=f"/ui/runs/{result.run_id}",
    )


def _texts(
    title: Message,
    value: Message,
    middle: Message,
    schedule: Schedule,
    display: DisplayPreferences,
    points: Sequence[Point],
    now: datetime,
) -> ScatterTexts:
    zone = primary_zone(display, schedule.trigger.zone)
    info, long = times.zone_info(zone), _long(points)
    translate = partial(in_language, language=display.language)
    return ScatterTexts(
        title=translate(title),
        description=translate(_("One point per run, in {zone}", zone=zone)),
        when=translate(_("When")),
        value=translate(value),
        status=translate(_("Result")),
        median=translate(middle),
        p95=translate(_("p95")),
        span=lambda seconds: times.span(seconds, display.language),
        state=lambda status: status_label(status, display.language),
        moment=lambda at: times.format_with_year(at, zone, display),
        clock=lambda at: (
            times.day(at, zone, display, now=now) if long else f"{at.astimezone(info):%H:%M}"
        ),
    )
