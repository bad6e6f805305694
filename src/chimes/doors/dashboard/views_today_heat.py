"""When how much runs: days by hours, by the clock of the reader (UX picture 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from chimes.doors.dashboard import times
from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.charts.heat import HeatCell, HeatWords, heat_map
from chimes.doors.dashboard.look import Look, by_clock
from chimes.model.insights import QUARTER, Tally, Window, quarter_of, summed
from chimes.triggers.moment import format_moment
from chimes.wording import counted, in_language, say

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
    window = Window(since=heat_since(zone, now, days), until=quarter_of(now) + QUARTER)
    info = times.zone_info(zone)
    offsets = (each.astimezone(info).utcoffset() for each in (window.since, now))
    whole = all(offset is not None and not offset % _AN_HOUR for offset in offsets)
    return window, _AN_HOUR if whole else QUARTER


def heat_cells(
    tallies: Iterable[Tally],
    zone: str,
    now: datetime,
    days: int = WEEK,
    *,
    step: timedelta = QUARTER,
) -> list[list[HeatCell]]:
    """Tallies of `step` each folded into the days and hours of a zone, the oldest day first. An
    hour that comes twice is one cell of two hours."""
    info = times.zone_info(zone)
    first = heat_since(zone, now, days).astimezone(info).date()
    folded: dict[tuple[int, int], list[Tally]] = {}
    for tally in tallies:
        local = tally.at.astimezone(info)
        row = (local.date() - first).days
        if 0 <= row < days:
            folded.setdefault((row, local.hour), []).append(tally)
    return [[_cell(folded.get((row, hour), ()), step) for hour in range(24)] for row in range(days)]


def _cell(tallies: Sequence[Tally], step: timedelta) -> HeatCell:
    if not tallies:
        return HeatCell()
    whole = tallies[0] if len(tallies) == 1 else summed(tallies, tallies[0].at)
    if not whole.total:
        return HeatCell()
    address = runs_between(tallies[0].at, tallies[-1].at + step)
    return HeatCell(count=whole.total, failed=whole.bad, address=address)


def runs_between(since: datetime, until: datetime) -> str:
    """The address of the filter `since:… until:…`, written out: there are hundreds on a page."""
    first, last = (format_moment(each).replace(":", "%3A") for each in (since, until))
    return f"/ui/runs?q=since%3A%22{first}%22+until%3A%22{last}%22"


def heat_chart(cells: Sequence[Sequence[HeatCell]], look: Look, now: datetime) -> Chart:
    zone = by_clock(look, None)
    said = partial(in_language, language=look.language)
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
        description = say(
            "Runs of the last seven days by day and hour, by the clock of {zone}", zone=zone
        )
    else:
        description = say(
            "Runs of the last {count} days by day and hour, by the clock of {zone}",
            count=len(cells),
            zone=zone,
        )
    return heat_map(
        cells,
        HeatWords(
            title=said(say("When how much runs")),
            description=said(description),
            rows=[times.day(noon, zone, look, now=now) for noon in noons],
            day=said(say("Day")),
            hour=said(say("Hour")),
            runs=said(say("Runs")),
            failed=said(say("Failed")),
            cell=cell,
        ),
    )
