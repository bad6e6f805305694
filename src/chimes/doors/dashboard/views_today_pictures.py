"""The two pictures of Today: what comes next, and when how much runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from chimes.doors.dashboard import times
from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.charts.heat import HeatCell, HeatWords, heat_map
from chimes.doors.dashboard.charts.timeline import Fire, Lane, TimelineWords, timeline
from chimes.doors.dashboard.filters import Chip, Filter
from chimes.doors.dashboard.look import Look, by_clock
from chimes.doors.dashboard.views_schedule import clock_changes
from chimes.doors.dashboard.views_schedules import plain_moment, state_word
from chimes.model.ids import ScheduleId
from chimes.model.insights import QUARTER, Glance, Tally, quarter_of, summed
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.service.slots import upcoming_fires
from chimes.triggers.moment import format_moment
from chimes.wording import counted, in_language, say

LANES = 20
#: So much of what has been.
BEHIND = timedelta(hours=3)
#: Of one lane; what comes after is drawn as "and so on".
MOST_FIRES = 30
HEAT_DAYS = 7
_A_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ahead:
    """How far the timeline goes, and how many hours lie between the words of its axis."""

    name: str
    length: timedelta
    step: int


SPANS = {
    "6h": Ahead(name="6h", length=timedelta(hours=6), step=1),
    "24h": Ahead(name="24h", length=timedelta(hours=24), step=3),
    "7d": Ahead(name="7d", length=timedelta(days=7), step=24),
}
USUAL_SPAN = SPANS["24h"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """None: there is nothing to draw."""

    chart: Chart | None
    span: str
    zone: str
    spans: tuple[str, ...] = tuple(SPANS)


# --- the timeline ---------------------------------------------------------------------------------
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


def ahead_chart(lanes: Sequence[Lane], ahead: Ahead, look: Look, now: datetime) -> Chart:
    zone = by_clock(look, None)
    start, end = now - BEHIND, now + ahead.length
    said = partial(in_language, language=look.language)

    def state(status: RunStatus | None) -> str:
        return said(say("planned")) if status is None else state_word(status, look.language)

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = plain_moment(fires[0].at, zone, look)
        if len(fires) == 1:
            word = state(fires[0].status)
            return said(say("{name}, {state}, {when}", name=name, state=word, when=when))
        return said(
            counted(
                "{name}, {count} run from {when}",
                "{name}, {count} runs from {when}",
                len(fires),
                name=name,
                when=when,
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
        changes=clock_changes(zone, start, end),
        words=TimelineWords(
            title=said(say("What comes next")),
            description=said(
                say(
                    "Runs of the last three hours and those to come, by the clock of {zone}",
                    zone=zone,
                )
            ),
            lane=said(say("Schedule")),
            when=said(say("When")),
            status=said(say("Result")),
            now=said(say("now")),
            change=said(say("the clocks change")),
            mark=mark,
            clock=clock,
            moment=lambda at: plain_moment(at, zone, look),
            state=state,
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


# --- the heat map ---------------------------------------------------------------------------------
def heat_since(zone: str, now: datetime) -> datetime:
    """Midnight there, six days ago: with today each weekday is there once."""
    local = now.astimezone(times.zone_info(zone))
    day = local.date() - timedelta(days=HEAT_DAYS - 1)
    midnight = local.replace(
        year=day.year,
        month=day.month,
        day=day.day,
        hour=0,
        minute=0,
        second=0,
        microsecond=0,
        fold=0,
    )
    return midnight.astimezone(now.tzinfo)


def heat_cells(quarters: Iterable[Tally], zone: str, now: datetime) -> list[list[HeatCell]]:
    """Quarters folded into the days and hours of a zone, the oldest day first. An hour that comes
    twice is one cell of two hours."""
    info = times.zone_info(zone)
    first = heat_since(zone, now).astimezone(info).date()
    folded: dict[tuple[int, int], list[Tally]] = {}
    for quarter in quarters:
        local = quarter.at.astimezone(info)
        row = (local.date() - first).days
        if 0 <= row < HEAT_DAYS:
            folded.setdefault((row, local.hour), []).append(quarter)
    return [[_cell(folded.get((row, hour), ())) for hour in range(24)] for row in range(HEAT_DAYS)]


def _cell(quarters: Sequence[Tally]) -> HeatCell:
    if not quarters:
        return HeatCell()
    whole = summed(quarters, quarters[0].at)
    chips = (
        Chip("since", format_moment(quarters[0].at)),
        Chip("until", format_moment(quarters[-1].at + QUARTER)),
    )
    return HeatCell(
        count=whole.total, failed=whole.bad, address=Filter(chips=chips).address("/ui/runs")
    )


def heat_chart(cells: Sequence[Sequence[HeatCell]], look: Look, now: datetime) -> Chart:
    zone = by_clock(look, None)
    said = partial(in_language, language=look.language)
    since = heat_since(zone, now).astimezone(times.zone_info(zone))
    # At noon: no clock is changed then.
    noons = [since.replace(hour=12) + day * _A_DAY for day in range(HEAT_DAYS)]

    def cell(day: str, hour: int, found: HeatCell) -> str:
        return said(
            counted(
                "{day}, {hour}:00: {count} run, {failed} failed",
                "{day}, {hour}:00: {count} runs, {failed} failed",
                found.count,
                day=day,
                hour=f"{hour:02d}",
                failed=found.failed,
            )
        )

    return heat_map(
        cells,
        HeatWords(
            title=said(say("When how much runs")),
            description=said(
                say(
                    "Runs of the last seven days by day and hour, by the clock of {zone}", zone=zone
                )
            ),
            rows=[times.day(noon, zone, look, now=now) for noon in noons],
            day=said(say("Day")),
            hour=said(say("Hour")),
            runs=said(say("Runs")),
            failed=said(say("Failed")),
            cell=cell,
        ),
    )
