"""The pictures on the page of one schedule: what was and what comes, how long it took, how late it
began; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from chimes.i18n import Message, _, in_language
from chimes.model.insights import Result, StatusCounts
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.schedules import upcoming_fires
from chimes.triggers.clock_changes import clock_changes
from chimes.web.dashboard.charts.scatter import Point, ScatterTexts, scatter_chart
from chimes.web.dashboard.charts.svg import Chart, worst_status
from chimes.web.dashboard.charts.timeline import Fire, Lane, TimelineTexts, timeline
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.schedules.views import status_label

#: The timeline: so much of what was, and of what comes.
PAST, AHEAD = timedelta(days=5), timedelta(days=2)
#: Above this many runs in it, hours stand for them.
MOST_MARKS = 150
#: Of what comes; what follows is drawn as "and so on".
MOST_COMING = 2 * MOST_MARKS
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)
#: What is due this very moment may not be on record yet.
_JUST_NOW = timedelta(minutes=1)


def marks_of(
    schedule: Schedule,
    results: Sequence[Result],
    hours: Iterable[StatusCounts],
    expected: timedelta | None,
    now: datetime,
) -> list[Fire]:
    """What was and what comes, one more than `MOST_COMING` where that is not all. Of many runs an
    hour is one mark, the worst of them."""
    since = now - PAST
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
                at=each.at, status=worst_status(each.statuses), address=f"/ui/schedules/{schedule.id}/runs"
            )
            for each in hours
            if each.total
        ]
    ahead = (
        upcoming_fires([schedule], now + AHEAD, limit=MOST_COMING + 1) if schedule.enabled else []
    )
    return past + [Fire(at=each.at, length=expected or timedelta(0)) for each in ahead]


def expected_marks(
    schedule: Schedule,
    results: Sequence[Result],
    hours: Sequence[StatusCounts],
    now: datetime,
    *,
    whole: bool,
) -> list[Fire]:
    """The times at which it should have run since it is what it is; those of which nothing is on
    record are marked as missed. Of many an hour is one mark. `whole`: `results` are all there
    are."""
    since = max(now - PAST, schedule.updated_at)
    if schedule.purged_until is not None:
        since = max(since, schedule.purged_until)
    if not schedule.enabled or now <= since:
        return []
    slots: list[datetime] = []
    slot = schedule.trigger.next_after(since)
    while slot is not None and slot < now - _JUST_NOW and len(slots) < MOST_MARKS:
        slots.append(slot)
        slot = schedule.trigger.next_after(slot)
    if len(slots) >= MOST_MARKS:
        return _expected_hours(schedule, hours, since, now)
    if not whole and results:
        slots = [each for each in slots if each >= results[-1].planned_at]
    planned = sorted(each.planned_at for each in results if each.origin is Origin.SCHEDULE)
    ends = [*slots[1:], now]
    return [
        Fire(at=each, status=None if _any_between(planned, each, end) else RunStatus.MISSED)
        for each, end in zip(slots, ends, strict=False)
    ]


def _any_between(moments: Sequence[datetime], start: datetime, end: datetime) -> bool:
    place = bisect_left(moments, start)
    return place < len(moments) and moments[place] < end


def _expected_hours(
    schedule: Schedule, hours: Sequence[StatusCounts], since: datetime, now: datetime
) -> list[Fire]:
    found: list[Fire] = []
    for each in hours:
        end = min(each.at + _HOUR, now - _JUST_NOW)
        start = max(each.at, since)
        slot = schedule.trigger.next_after(start - _MICROSECOND) if start < end else None
        if slot is not None and slot < end:
            found.append(Fire(at=each.at, status=None if each.total else RunStatus.MISSED))
    return found


def week(
    schedule: Schedule,
    marks: Sequence[Fire],
    expected: Sequence[Fire],
    display: DisplayPreferences,
    now: datetime,
) -> Chart:
    """What was expected above what was: where nothing stands below, nothing ran."""
    more = sum(each.status is None for each in marks) > MOST_COMING
    zone = primary_zone(display, schedule.trigger.zone)
    start, end = now - PAST, now + AHEAD
    said = partial(in_language, language=display.language)
    info = times.zone_info(zone)
    first = start.astimezone(info).replace(hour=0, minute=0, second=0, microsecond=0)
    midnights = [first + timedelta(days=step) for step in range(1, (end - start).days + 2)]

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = times.format_with_year(fires[0].at, zone, display)
        if len(fires) > 1:
            return said(_("{count} from {when}", count=len(fires), when=when))
        return f"{state(fires[0].status)}, {when}"

    def state(status: RunStatus | None) -> str:
        return said(_("planned")) if status is None else status_label(status, display.language)

    return timeline(
        [
            *([Lane(name=said(_("Expected")), fires=expected)] if expected else []),
            Lane(name=said(_("Runs")), fires=marks[:-1] if more else marks, more=more),
        ],
        start=start,
        end=end,
        now=now,
        ticks=[each for each in midnights if start < each < end],
        clock_changes=[each.at for each in clock_changes(zone, start, end)],
        texts=TimelineTexts(
            title=said(_("Five days behind, two ahead")),
            description=said(
                _("Runs that were and runs to come, by the clock of {zone}", zone=zone)
            ),
            lane=said(_("Row")),
            when=said(_("When")),
            status=said(_("Result")),
            now=said(_("now")),
            clock_change=said(_("the clocks change")),
            mark=mark,
            clock=lambda at: times.day(at, zone, display, now=now),
            moment=lambda at: times.format_with_year(at, zone, display),
            state=state,
        ),
    )


def durations(results: Sequence[Result], schedule: Schedule, display: DisplayPreferences) -> Chart:
    points = [_point(each, each.duration) for each in results if each.duration is not None]
    title = _("How long runs took")
    return scatter_chart(points, _words(title, _("Duration"), schedule, display))


def lags(results: Sequence[Result], schedule: Schedule, display: DisplayPreferences) -> Chart:
    points = [_point(each, each.lag) for each in results if each.lag is not None]
    title = _("How late runs began")
    return scatter_chart(points, _words(title, _("Lag"), schedule, display))


def _point(result: Result, length: timedelta) -> Point:
    return Point(
        at=result.planned_at,
        seconds=length.total_seconds(),
        status=result.status,
        address=f"/ui/runs/{result.run_id}",
    )


def _words(
    title: Message, value: Message, schedule: Schedule, display: DisplayPreferences
) -> ScatterTexts:
    zone = primary_zone(display, schedule.trigger.zone)
    said = partial(in_language, language=display.language)
    return ScatterTexts(
        title=said(title),
        description=said(_("A point for each run, by the clock of {zone}", zone=zone)),
        when=said(_("When")),
        value=said(value),
        status=said(_("Result")),
        median=said(_("median")),
        p95=said(_("p95")),
        span=lambda seconds: times.span(seconds, display.language),
        state=lambda status: status_label(status, display.language),
        moment=lambda at: times.format_with_year(at, zone, display),
    )
