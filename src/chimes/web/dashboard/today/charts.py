"""Charts of Today: the timeline of upcoming fires and the heat map of runs."""

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
from chimes.services.schedules.service import upcoming_fires
from chimes.triggers.clock_changes import clock_changes
from chimes.triggers.values import format_moment
from chimes.web.dashboard.charts.histogram import HeatCell, HeatMapTexts, heat_map
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.timeline import Fire, Lane, Overlap, TimelineTexts, timeline
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import Chip, Filter
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.core.times import status_label
from chimes.web.dashboard.today.views import Choices, TimelineSpan

MAX_LANES = 20
#: The timeline starts this long before now.
PAST = timedelta(hours=3)
#: Fires per lane; further ones are drawn as an ellipsis.
MAX_FIRES = 30
#: Schedules that are grouped by label.
MAX_LABELLED_SCHEDULES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    #: None if there is nothing to draw.
    chart: Chart | None
    choices: Choices
    zone: str
    #: The viewer's zone if it is not UTC; the page then offers both.
    own_zone: str | None


def lanes_of(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, ScheduleHealth],
    end: datetime,
    now: datetime,
) -> list[Lane]:
    """One lane per schedule with fires, in the given order."""
    lanes = [_lane(each, glances.get(each.id, ScheduleHealth()), end, now) for each in schedules]
    return [lane for lane in lanes if lane.fires]


def lanes_by_label(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, ScheduleHealth],
    end: datetime,
    now: datetime,
    without: str,
) -> list[Lane]:
    """One lane per label, by next fire; a schedule is in the lane of each of its labels. `without`
    is the name of the lane of schedules without labels."""
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
    return sorted(lanes, key=lambda lane: (_soonest(lane, now), lane.name))[:MAX_LANES]


def _labels(schedule: Schedule) -> list[str]:
    """In filter syntax; one empty string for a schedule without labels."""
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
        if now - PAST <= each.planned_at <= now
    ]
    found = upcoming_fires([schedule], end, limit=MAX_FIRES + 1)
    ahead = [
        Fire(
            at=each.at,
            length=glance.median or timedelta(0),
            address=fire_address(schedule.id, each.at),
        )
        for each in found[:MAX_FIRES]
    ]
    return Lane(
        name=schedule.name,
        fires=past + ahead,
        address=f"/ui/schedules/{schedule.id}",
        more=len(found) > MAX_FIRES,
    )


def fire_address(schedule_id: ScheduleId, at: datetime) -> str:
    """Not urlencoded: a page has hundreds of these, and RFC 3339 times need no escaping."""
    return f"/ui/fires/{schedule_id}?at={format_moment(at)}"


def mark_address(fires: Sequence[Fire]) -> str | None:
    """URL of a mark; one that stands for several fires of one schedule opens a card of all."""
    first, last = fires[0], fires[-1]
    if first.address is None or first.status is not None:
        return first.address
    whose = first.address.partition("?")[0]
    same = all((each.address or "").startswith(f"{whose}?") for each in fires)
    alone = len(fires) == 1 or not same
    return first.address if alone else f"{first.address}&until={format_moment(last.at)}"


def ahead_chart(
    lanes: Sequence[Lane],
    ahead: TimelineSpan,
    display: DisplayPreferences,
    now: datetime,
    *,
    by_label: bool = False,
) -> Chart:
    zone = primary_zone(display, None)
    start, end = now - PAST, now + ahead.length
    translate = partial(in_language, language=display.language)

    def state(status: RunStatus | None) -> str:
        return translate(_("planned")) if status is None else status_label(status, display.language)

    def mark(name: str, fires: Sequence[Fire]) -> str:
        when = times.format_with_year(fires[0].at, zone, display)
        if len(fires) == 1:
            word = state(fires[0].status)
            whose = fires[0].name or name
            return translate(_("{name}, {state}, {when}", name=whose, state=word, when=when))
        return translate(
            counted(
                "{name}, {count} run from {when}",
                "{name}, {count} runs from {when}",
                len(fires),
                name=name,
                when=when,
            )
        )

    def overlap_text(overlap: Overlap) -> str:
        return translate(
            _(
                "{count} overlap from {when}: {names}",
                count=len(overlap.names),
                when=times.format_with_year(overlap.start, zone, display),
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
        clock_changes=[each.at for each in clock_changes(zone, start, end)],
        texts=TimelineTexts(
            title=translate(_("Upcoming runs")),
            description=translate(
                _(
                    "Runs of the last three hours and upcoming runs, in {zone}",
                    zone=zone,
                )
            ),
            lane=translate(_("Label") if by_label else _("Schedule")),
            when=translate(_("When")),
            status=translate(_("Result")),
            now=translate(_("now")),
            clock_change=translate(_("clock change")),
            mark=mark,
            clock=clock,
            moment=lambda at: times.format_with_year(at, zone, display),
            state=state,
            name=translate(_("Schedule")),
            overlaps=translate(_("Overlaps")),
            overlap=overlap_text,
            address=mark_address,
        ),
    )


def ticks_between(zone: str, start: datetime, end: datetime, step: int) -> list[datetime]:
    """Every `step` hours of the local day, also in zones with a fractional UTC offset."""
    info = times.zone_info(zone)
    # Steps of 15 minutes of absolute time: every UTC offset is a multiple of it, and skipped or
    # repeated hours need no special case.
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


WEEK = 7
_A_DAY, _AN_HOUR = timedelta(days=1), timedelta(hours=1)


def heat_since(zone: str, now: datetime, days: int = WEEK) -> datetime:
    """Local midnight of the first of `days` days, the last of which is today."""
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
    """The window of the heat map, and its bucket size: an hour, or 15 minutes in zones with a
    fractional UTC offset."""
    window = Window(since=heat_since(zone, now, days), until=quarter_start(now) + QUARTER)
    info = times.zone_info(zone)
    offsets = (each.astimezone(info).utcoffset() for each in (window.since, now))
    whole_hours = all(offset is not None and not offset % _AN_HOUR for offset in offsets)
    return window, _AN_HOUR if whole_hours else QUARTER


def heat_cells(
    buckets: Iterable[StatusCounts],
    zone: str,
    now: datetime,
    days: int = WEEK,
    *,
    step: timedelta = QUARTER,
) -> list[list[HeatCell]]:
    """Buckets of `step` each, grouped by local day and hour, oldest day first. A repeated hour is
    one cell of two hours."""
    info = times.zone_info(zone)
    first = heat_since(zone, now, days).astimezone(info).date()
    folded: dict[tuple[int, int], list[StatusCounts]] = {}
    for bucket in buckets:
        local = bucket.at.astimezone(info)
        row = (local.date() - first).days
        if 0 <= row < days:
            folded.setdefault((row, local.hour), []).append(bucket)
    return [[_cell(folded.get((row, hour), ()), step) for hour in range(24)] for row in range(days)]


def _cell(buckets: Sequence[StatusCounts], step: timedelta) -> HeatCell:
    if not buckets:
        return HeatCell()
    whole = buckets[0] if len(buckets) == 1 else sum_counts(buckets, buckets[0].at)
    if not whole.total:
        return HeatCell()
    address = runs_between(buckets[0].at, buckets[-1].at + step)
    return HeatCell(count=whole.total, failed=whole.bad, address=address)


def runs_between(since: datetime, until: datetime) -> str:
    """URL of the filter `since:… until:…`, built by hand: a page has hundreds of these."""
    first, last = (format_moment(each).replace(":", "%3A") for each in (since, until))
    return f"/ui/runs?q=since%3A%22{first}%22+until%3A%22{last}%22"


def heat_chart(
    cells: Sequence[Sequence[HeatCell]], display: DisplayPreferences, now: datetime
) -> Chart:
    zone = primary_zone(display, None)
    translate = partial(in_language, language=display.language)
    since = heat_since(zone, now, len(cells)).astimezone(times.zone_info(zone))
    # At noon, because clocks change at night.
    noons = [since.replace(hour=12) + day * _A_DAY for day in range(len(cells))]

    def cell(day: str, hour: int, found: HeatCell) -> str:
        return translate(
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
        description = _("Runs of the last seven days by day and hour, in {zone}", zone=zone)
    else:
        description = _(
            "Runs of the last {count} days by day and hour, in {zone}",
            count=len(cells),
            zone=zone,
        )
    return heat_map(
        cells,
        HeatMapTexts(
            title=translate(_("Runs by hour")),
            description=translate(description),
            rows=[times.day(noon, zone, display, now=now) for noon in noons],
            day=translate(_("Day")),
            hour=translate(_("Hour")),
            runs=translate(_("Runs")),
            failed=translate(_("Failed")),
            cell=cell,
        ),
    )
