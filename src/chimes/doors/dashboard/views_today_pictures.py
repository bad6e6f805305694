"""What comes next: the timeline of Today, with a lane for each schedule or label (UX picture 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from chimes.doors.dashboard import times
from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.charts.lanes import Overlap
from chimes.doors.dashboard.charts.timeline import Fire, Lane, TimelineWords, timeline
from chimes.doors.dashboard.filters import Chip, Filter
from chimes.doors.dashboard.look import Look, by_clock
from chimes.doors.dashboard.views_schedules import state_word
from chimes.doors.dashboard.views_today_choices import Ahead, Choices
from chimes.model.ids import ScheduleId
from chimes.model.insights import QUARTER, Glance, quarter_of
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.service.slots import upcoming_fires
from chimes.triggers.clock_changes import clock_changes
from chimes.triggers.moment import format_moment
from chimes.wording import counted, in_language, say

LANES = 20
#: So much of what has been.
BEHIND = timedelta(hours=3)
#: Of one lane; what comes after is drawn as "and so on".
MOST_FIRES = 30
#: Schedules whose fires are put into the lanes of their labels.
LABELLED = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """None: there is nothing to draw."""

    chart: Chart | None
    choices: Choices
    zone: str
    #: The reader's own, where that is not UTC: then there is something to choose.
    own_zone: str | None


def lanes_of(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, Glance],
    end: datetime,
    now: datetime,
) -> list[Lane]:
    """One for each schedule that has something to show, in the order given; fires as the scheduler
    computes them."""
    lanes = [_lane(each, glances.get(each.id, Glance()), end, now) for each in schedules]
    return [lane for lane in lanes if lane.fires]


def lanes_by_label(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, Glance],
    end: datetime,
    now: datetime,
    without: str,
) -> list[Lane]:
    """One for each label, at most `LANES`, that with the soonest fire first; a schedule is in the
    lane of each of its labels. `without`: what the lane of those that have none is called."""
    found: dict[str, list[Fire]] = {}
    more: set[str] = set()
    addresses: dict[str, str] = {}
    for schedule in schedules:
        lane = _lane(schedule, glances.get(schedule.id, Glance()), end, now)
        named = [replace(fire, name=schedule.name) for fire in lane.fires]
        for label in _labels(schedule):
            name = label or without
            found.setdefault(name, []).extend(named)
            if lane.more:
                more.add(name)
            if label:
                addresses[name] = Filter(chips=(Chip("label", label),)).address("/ui/schedules")
    lanes = [
        Lane(
            name=name,
            fires=sorted(fires, key=lambda fire: fire.at),
            address=addresses.get(name),
            more=name in more,
        )
        for name, fires in found.items()
        if fires
    ]
    return sorted(lanes, key=lambda lane: (_soonest(lane, now), lane.name))[:LANES]


def _labels(schedule: Schedule) -> list[str]:
    """As a filter writes them; one empty for a schedule without any."""
    pairs = schedule.labels.items()
    return [name if value is None else f"{name}={value}" for name, value in pairs] or [""]


def _soonest(lane: Lane, now: datetime) -> datetime:
    return next((fire.at for fire in lane.fires if fire.at >= now), lane.fires[-1].at)


def _lane(schedule: Schedule, glance: Glance, end: datetime, now: datetime) -> Lane:
    past = [
        Fire(
            at=each.planned_at,
            length=each.duration or timedelta(0),
            status=each.status,
            address=f"/ui/runs/{each.run_id}",
        )
        for each in glance.results
        if now - BEHIND <= each.planned_at <= now
    ]
    found = upcoming_fires([schedule], end, limit=MOST_FIRES + 1)
    ahead = [
        Fire(
            at=each.at,
            length=glance.median or timedelta(0),
            address=fire_address(schedule.id, each.at),
        )
        for each in found[:MOST_FIRES]
    ]
    return Lane(
        name=schedule.name,
        fires=past + ahead,
        address=f"/ui/schedules/{schedule.id}",
        more=len(found) > MOST_FIRES,
    )


def fire_address(schedule_id: ScheduleId, at: datetime) -> str:
    """There are hundreds on a page, and a moment of ours needs no escaping in a query."""
    return f"/ui/fires/{schedule_id}?at={format_moment(at)}"


def mark_address(fires: Sequence[Fire]) -> str | None:
    """Of several fires to come of one schedule: a card of all of them."""
    first, last = fires[0], fires[-1]
    if first.address is None or first.status is not None:
        return first.address
    whose = first.address.partition("?")[0]
    same = all((each.address or "").startswith(f"{whose}?") for each in fires)
    alone = len(fires) == 1 or not same
    return first.address if alone else f"{first.address}&until={format_moment(last.at)}"


def ahead_chart(
    lanes: Sequence[Lane], ahead: Ahead, look: Look, now: datetime, *, by_label: bool = False
) -> Chart:
    zone = by_clock(look, None)
    start, end = now - BEHIND, now + ahead.length
    said = partial(in_language, language=look.language)

    def state(status: RunStatus | None) -> str:
        return said(say("planned")) if status is None else state_word(status, look.language)

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = times.dated(fires[0].at, zone, look)
        if len(fires) == 1:
            word = state(fires[0].status)
            whose = fires[0].name or name
            return said(say("{name}, {state}, {when}", name=whose, state=word, when=when))
        return said(
            counted(
                "{name}, {count} run from {when}",
                "{name}, {count} runs from {when}",
                len(fires),
                name=name,
                when=when,
            )
        )

    def together(overlap: Overlap) -> str:
        return said(
            say(
                "{count} at the same time from {when}: {names}",
                count=len(overlap.names),
                when=times.dated(overlap.start, zone, look),
                names=", ".join(overlap.names),
            )
        )

    def clock(at: datetime) -> str:
        local = at.astimezone(times.zone_info(zone))
        whole_day = ahead.step >= 24 or local.hour == 0
        return times.day(at, zone, look, now=now) if whole_day else f"{local:%H:%M}"

    return timeline(
        lanes,
        start=start,
        end=end,
        now=now,
        ticks=ticks_between(zone, start, end, ahead.step),
        changes=[each.at for each in clock_changes(zone, start, end)],
        words=TimelineWords(
            title=said(say("What comes next")),
            description=said(
                say(
                    "Runs of the last three hours and those to come, by the clock of {zone}",
                    zone=zone,
                )
            ),
            lane=said(say("Label") if by_label else say("Schedule")),
            when=said(say("When")),
            status=said(say("Result")),
            now=said(say("now")),
            change=said(say("the clocks change")),
            mark=mark,
            clock=clock,
            moment=lambda at: times.dated(at, zone, look),
            state=state,
            name=said(say("Schedule")),
            meanwhile=said(say("At the same time")),
            together=together,
            address=mark_address,
        ),
    )


def ticks_between(zone: str, start: datetime, end: datetime, step: int) -> list[datetime]:
    """Every `step` hours of that zone's day, whatever its offset from whole hours of UTC is."""
    info = times.zone_info(zone)
    # Walks through quarters of real hours: every offset is a multiple of one, and an hour that
    # does not exist or comes twice moves nothing.
    at = quarter_of(start) + QUARTER
    found: list[datetime] = []
    seen: set[datetime] = set()
    while at < end:
        local = at.astimezone(info)
        wall = local.replace(tzinfo=None)
        if local.minute == 0 and local.hour % step == 0 and wall not in seen:
            seen.add(wall)
            found.append(at)
        at += QUARTER
    return found
