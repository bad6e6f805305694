"""What comes next: the timeline of Today, with a lane for each schedule or label (UX picture 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from chimes.i18n import _, counted, in_language
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    QUARTER,
    ScheduleHealth,
    StatusCounts,
    Window,
    quarter_start,
    sum_counts,
)
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.services.schedules import upcoming_fires
from chimes.triggers.clock_changes import clock_changes
from chimes.triggers.moment import format_moment
from chimes.web.dashboard.charts.histogram import HeatCell, HeatWords, heat_map
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.timeline import Fire, Lane, Overlap, TimelineWords, timeline
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import Chip, Filter
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.schedules.views import state_word
from chimes.web.dashboard.today.views import Ahead, Choices

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
    glances: Mapping[ScheduleId, ScheduleHealth],
    end: datetime,
    now: datetime,
) -> list[Lane]:
    """One for each schedule that has something to show, in the order given; fires as the scheduler
    computes them."""
    lanes = [_lane(each, glances.get(each.id, ScheduleHealth()), end, now) for each in schedules]
    return [lane for lane in lanes if lane.fires]


def lanes_by_label(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, ScheduleHealth],
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
        lane = _lane(schedule, glances.get(schedule.id, ScheduleHealth()), end, now)
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


def _lane(schedule: Schedule, glance: ScheduleHealth, end: datetime, now: datetime) -> Lane:
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
    lanes: Sequence[Lane],
    ahead: Ahead,
    display: DisplayPreferences,
    now: datetime,
    *,
    by_label: bool = False,
) -> Chart:
    zone = primary_zone(display, None)
    start, end = now - BEHIND, now + ahead.length
    said = partial(in_language, language=display.language)

    def state(status: RunStatus | None) -> str:
        return said(_("planned")) if status is None else state_word(status, display.language)

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = times.dated(fires[0].at, zone, display)
        if len(fires) == 1:
            word = state(fires[0].status)
            whose = fires[0].name or name
            return said(_("{name}, {state}, {when}", name=whose, state=word, when=when))
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
            _(
                "{count} at the same time from {when}: {names}",
                count=len(overlap.names),
                when=times.dated(overlap.start, zone, display),
                names=", ".join(overlap.names),
            )
        )

    def clock(at: datetime) -> str:
        local = at.astimezone(times.zone_info(zone))
        whole_day = ahead.step >= 24 or local.hour == 0
        return times.day(at, zone, display, now=now) if whole_day else f"{local:%H:%M}"

    return timeline(
        lanes,
        start=start,
        end=end,
        now=now,
        ticks=ticks_between(zone, start, end, ahead.step),
        changes=[each.at for each in clock_changes(zone, start, end)],
        words=TimelineWords(
            title=said(_("What comes next")),
            description=said(
                _(
                    "Runs of the last three hours and those to come, by the clock of {zone}",
                    zone=zone,
                )
            ),
            lane=said(_("Label") if by_label else _("Schedule")),
            when=said(_("When")),
            status=said(_("Result")),
            now=said(_("now")),
            change=said(_("the clocks change")),
            mark=mark,
            clock=clock,
            moment=lambda at: times.dated(at, zone, display),
            state=state,
            name=said(_("Schedule")),
            meanwhile=said(_("At the same time")),
            together=together,
            address=mark_address,
        ),
    )


def ticks_between(zone: str, start: datetime, end: datetime, step: int) -> list[datetime]:
    """Every `step` hours of that zone's day, whatever its offset from whole hours of UTC is."""
    info = times.zone_info(zone)
    # Walks through quarters of real hours: every offset is a multiple of one, and an hour that
    # does not exist or comes twice moves nothing.
    at = quarter_start(start) + QUARTER
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


# @@ When how much runs: days by hours, by the clock of the reader (UX picture 2).

WEEK = 7
_A_DAY, _AN_HOUR = timedelta(days=1), timedelta(hours=1)


def heat_since(zone: str, now: datetime, days: int = WEEK) -> datetime:
    """Midnight there, so many days ago, today among them: of seven, each weekday is there once."""
    local = now.astimezone(times.zone_info(zone))
    day = local.date() - timedelta(days=days - 1)
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


def heat_window(zone: str, now: datetime, days: int = WEEK) -> tuple[Window, timedelta]:
    """What the map needs to know of, and in which steps: by the hour, or by quarters of one where
    those hours are not the hours of UTC."""
    window = Window(since=heat_since(zone, now, days), until=quarter_start(now) + QUARTER)
    info = times.zone_info(zone)
    offsets = (each.astimezone(info).utcoffset() for each in (window.since, now))
    whole = all(offset is not None and not offset % _AN_HOUR for offset in offsets)
    return window, _AN_HOUR if whole else QUARTER


def heat_cells(
    tallies: Iterable[StatusCounts],
    zone: str,
    now: datetime,
    days: int = WEEK,
    *,
    step: timedelta = QUARTER,
) -> list[list[HeatCell]]:
    """MetricsCollector of `step` each folded into the days and hours of a zone, the oldest day first. An
    hour that comes twice is one cell of two hours."""
    info = times.zone_info(zone)
    first = heat_since(zone, now, days).astimezone(info).date()
    folded: dict[tuple[int, int], list[StatusCounts]] = {}
    for tally in tallies:
        local = tally.at.astimezone(info)
        row = (local.date() - first).days
        if 0 <= row < days:
            folded.setdefault((row, local.hour), []).append(tally)
    return [[_cell(folded.get((row, hour), ()), step) for hour in range(24)] for row in range(days)]


def _cell(tallies: Sequence[StatusCounts], step: timedelta) -> HeatCell:
    if not tallies:
        return HeatCell()
    whole = tallies[0] if len(tallies) == 1 else sum_counts(tallies, tallies[0].at)
    if not whole.total:
        return HeatCell()
    address = runs_between(tallies[0].at, tallies[-1].at + step)
    return HeatCell(count=whole.total, failed=whole.bad, address=address)


def runs_between(since: datetime, until: datetime) -> str:
    """The address of the filter `since:… until:…`, written out: there are hundreds on a page."""
    first, last = (format_moment(each).replace(":", "%3A") for each in (since, until))
    return f"/ui/runs?q=since%3A%22{first}%22+until%3A%22{last}%22"


def heat_chart(
    cells: Sequence[Sequence[HeatCell]], display: DisplayPreferences, now: datetime
) -> Chart:
    zone = primary_zone(display, None)
    said = partial(in_language, language=display.language)
    since = heat_since(zone, now, len(cells)).astimezone(times.zone_info(zone))
    # At noon: no clock is changed then.
    noons = [since.replace(hour=12) + day * _A_DAY for day in range(len(cells))]

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

    if len(cells) == WEEK:
        description = _(
            "Runs of the last seven days by day and hour, by the clock of {zone}", zone=zone
        )
    else:
        description = _(
            "Runs of the last {count} days by day and hour, by the clock of {zone}",
            count=len(cells),
            zone=zone,
        )
    return heat_map(
        cells,
        HeatWords(
            title=said(_("When how much runs")),
            description=said(description),
            rows=[times.day(noon, zone, display, now=now) for noon in noons],
            day=said(_("Day")),
            hour=said(_("Hour")),
            runs=said(_("Runs")),
            failed=said(_("Failed")),
            cell=cell,
        ),
    )
