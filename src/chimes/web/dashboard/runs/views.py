"""Filter, chart and rows of the runs page; no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from chimes.i18n import Message, _, in_language
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    MAX_PLANNING_LEAD,
    QUARTER,
    StatusCounts,
    Window,
    lag_of,
    quarter_start,
)
from chimes.model.insights import RunFilter as InsightFilter
from chimes.model.listing import RunQuery, RunSort
from chimes.model.run import Origin, Run, RunStatus, describe_reason
from chimes.redaction import mask_result
from chimes.services.filters import RUN_NAMES, Chip, Filter, RunFilter, read_filter, run_filter
from chimes.services.runs import RunOrigin
from chimes.triggers.values import format_moment
from chimes.web.api.translate import run_out
from chimes.web.dashboard.charts.svg import Chart, element
from chimes.web.dashboard.charts.timeline import Bar, HistogramTexts, histogram
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.lists import csv_cell, csv_text
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.core.times import status_label

RUNS_PATH = "/ui/runs"
#: Selectable time windows, as written in a filter.
WINDOWS: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
HINTS = (
    "status:failed",
    "status:timeout",
    "status:running",
    "status:queued",
    "origin:manual",
    "origin:backfill",
    "owner:me",
    "since:1h",
    "since:7d",
    "until:1h",
    "schedule:",
    "node:",
)
_DEFAULT_SPAN, _SCHEDULE_SPAN = "24h", "30d"
_WEEK, _LONGEST = timedelta(days=7), timedelta(days=370)
_MAX_BARS = 72
_STEPS = tuple(QUARTER * each for each in (1, 2, 4, 8, 12, 24, 48, 96, 192, 672, 1344))
ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSearch:
    """A filter with the time range of the page, and the window of the chart."""

    found: RunFilter
    window: Window
    #: Selected entry of `WINDOWS`; empty: a custom range, or no window.
    span: str

    @property
    def filter(self) -> Filter:
        return self.found.filter

    @property
    def query(self) -> RunQuery:
        return self.found.query

    @property
    def error(self) -> str | None:
        """The error that all results share."""
        return self.found.error

    @property
    def chart_is_exact(self) -> bool:
        """Whether the chart applies every condition of the filter."""
        return not self.found.text and self.found.same is None and self.query.holder is None

    @property
    def totals_filter(self) -> InsightFilter:
        query = self.query
        return InsightFilter(
            owner=query.owner,
            schedule_id=query.schedule_id,
            namespace=query.namespace,
            origin=query.origin,
        )

    def with_query(self, query: RunQuery) -> RunSearch:
        return replace(self, found=replace(self.found, query=query))

    def with_error(self, error: str) -> RunSearch:
        return replace(self, found=self.found.with_error(error))

    def with_filter_error(self, error: Message) -> RunSearch:
        filter_ = replace(self.filter, errors=(*self.filter.errors, error))
        return replace(self, found=replace(self.found, filter=filter_))


def parse_search(text: str, actor: Actor, now: datetime) -> RunSearch:
    """Parses the text of the search box.

    The default window is a day, or a month for one schedule. Active runs are shown whatever their
    age."""
    found = run_filter(read_filter(text, RUN_NAMES), actor, now)
    query, filter_ = found.query, found.filter
    only_active = bool(query.statuses) and all(each in ACTIVE for each in query.statuses)
    span = _SCHEDULE_SPAN if query.schedule_id else _DEFAULT_SPAN
    given = filter_.get("since")
    since, until = query.since, query.until
    if since is not None and since >= (until or now):
        error = _("the time range ends before it starts")
        filter_ = replace(filter_, errors=(*filter_.errors, error))
        since = None
    begins = since or (until or now) - WINDOWS[span]
    if since is None and not only_active:
        since = begins
    # Includes runs planned for now.
    latest = until or quarter_start(now) + QUARTER
    window = Window.around(max(begins, latest - _LONGEST), latest)
    if until is None:
        # Bounds the index range that the list is sorted by.
        query = replace(query, since=since, created_since=since and since - MAX_PLANNING_LEAD)
    else:
        query = replace(query, since=since, sort=RunSort.PLANNED_AT)
    selected = given if given in WINDOWS and until is None else "" if given or until else span
    return RunSearch(
        found=replace(found, filter=filter_, query=query),
        window=window,
        span="" if only_active and not given else selected or "",
    )


def window_links(search: RunSearch) -> list[tuple[str, str, bool]]:
    """Returns name, address and selection state of each window."""
    without = Filter(chips=tuple(each for each in search.filter.chips if each.name != "until"))
    return [
        (each, without.with_chip(Chip("since", each)).address(RUNS_PATH), each == search.span)
        for each in WINDOWS
    ]


def wider_window(search: RunSearch) -> tuple[str, str] | None:
    """Returns the name and address of the next wider window, if any."""
    length = search.window.until - search.window.since
    for name, address, _selected in window_links(search):
        if WINDOWS[name] >= _WEEK and WINDOWS[name] > length and name != search.span:
            return name, address
    return None


def between(filter_: Filter, start: datetime, end: datetime) -> str:
    """Returns the address of the list for this time range."""
    found = filter_.with_chip(Chip("since", format_moment(start)))
    return found.with_chip(Chip("until", format_moment(end))).address(RUNS_PATH)


# --- chart ------------------------------------------------------------------------------------
def bucket_size(window: Window) -> timedelta:
    length = window.until - window.since
    return next((each for each in _STEPS if length / each <= _MAX_BARS), _STEPS[-1])


def build_bars(tallies: Sequence[StatusCounts], step: timedelta, search: RunSearch) -> list[Bar]:
    wanted = search.query.statuses
    return [
        Bar(
            start=tally.at,
            end=min(tally.at + step, search.window.until),
            counts={
                status: number
                for status, number in tally.statuses.items()
                if not wanted or status in wanted
            },
            address=between(search.filter, tally.at, min(tally.at + step, search.window.until)),
        )
        for tally in tallies
    ]


def build_histogram(bars: Sequence[Bar], display: DisplayPreferences, now: datetime) -> Chart:
    language = display.language
    day_apart = bool(bars) and bars[-1].end - bars[0].start > timedelta(days=2)

    def moment(at: datetime) -> str:
        return times.absolute(at, display.zone, display, now=now)

    def clock(at: datetime) -> str:
        if day_apart:
            return times.day(at, display.zone, display, now=now)
        return f"{at.astimezone(times.zone_info(display.zone)):%H:%M}"

    def bar(each: Bar) -> str:
        parts = ", ".join(
            f"{status_label(status, language)} {times.number(number, language)}"
            for status, number in each.counts.items()
            if number
        )
        return f"{moment(each.start)}: {parts or '0'}"

    words = HistogramTexts(
        title=in_language(_("Runs over time"), language),
        description=in_language(
            _("Grouped by result; a bar links to its runs. Times are {zone}.", zone=display.zone),
            language,
        ),
        when=in_language(_("From"), language),
        state=lambda status: status_label(status, language),
        total=in_language(_("Total"), language),
        bar=bar,
        clock=clock,
        moment=moment,
        number=lambda value: times.number(value, language),
    )
    return histogram(bars, words)


#: Control characters except whitespace, and bidirectional formatting characters.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Makes characters visible that could hide or reorder the text around them."""
    return INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


# --- rows -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    run: Run
    lag: timedelta | None
    duration: timedelta | None
    #: Median duration of the schedule.
    median: timedelta | None
    #: Who requested a manual run, if recorded.
    requested_by: RunOrigin | None
    node: str
    #: Zone of the schedule, if it still exists.
    zone: str | None = None

    @property
    def bar(self) -> Markup:
        return duration_bar(self.duration, self.median)

    @property
    def why(self) -> str:
        """Describes the reason of an end that is not an error."""
        return describe_reason(self.run.shown_reason)

    @property
    def name(self) -> str:
        return self.run.schedule_name or self.run.step or self.run.target.kind

    @property
    def step(self) -> str:
        """Step of the flow, unless the row is already named after it."""
        return self.run.step if self.run.schedule_name else ""

    @property
    def address(self) -> str:
        return f"{RUNS_PATH}/{self.run.id}"


def rows_of(
    runs: Iterable[Run],
    medians: Mapping[ScheduleId, timedelta],
    origins: Mapping[RunId, RunOrigin],
    zones: Mapping[ScheduleId, str],
    now: datetime,
) -> tuple[Row, ...]:
    return tuple(
        Row(
            run=run,
            lag=lag_of(run),
            duration=duration_of(run, now),
            median=medians.get(run.schedule_id) if run.schedule_id else None,
            requested_by=origins.get(run.id),
            node=node_of(run),
            zone=zones.get(run.schedule_id) if run.schedule_id else None,
        )
        for run in runs
    )


def silent_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """Columns that say nothing about these rows; compact lists omit them."""
    rows = tuple(rows)
    says = {
        "origin": any(row.run.origin is not Origin.SCHEDULE or row.run.retry_of for row in rows),
        "attempt": any(row.run.attempt > 1 for row in rows),
        "node": len({row.node for row in rows if row.node}) > 1,
        "error": any(row.run.error or row.run.shown_reason for row in rows),
    }
    return tuple(name for name, useful in says.items() if not useful)


def duration_of(run: Run, now: datetime) -> timedelta | None:
    """Returns the duration, up to now for a running run."""
    if run.started_at is None:
        return None
    return max((run.finished_at or now) - run.started_at, timedelta(0))


def node_of(run: Run) -> str:
    """Returns the node that executes the run, or executed it last."""
    return run.holder or (run.attempts[-1].node if run.attempts else "")


_WIDE, _HIGH = 64, 8


def duration_bar(duration: timedelta | None, median: timedelta | None) -> Markup:
    """Draws the duration; the line in the middle is the median."""
    if duration is None or not median:
        return Markup("")
    share = min(2.0, duration / median)
    return element(
        "svg",
        element("rect", x=0, y=1, width=_WIDE, height=_HIGH - 2, rx=2, class_="h0"),
        element("rect", x=0, y=1, width=max(1.0, share * _WIDE / 2), height=_HIGH - 2, rx=2,
                class_="over" if share > 1.5 else "usual"),
        element("line", x1=_WIDE / 2, x2=_WIDE / 2, y1=0, y2=_HIGH, class_="half"),
        class_="chart against", viewBox=f"0 0 {_WIDE} {_HIGH}", width=_WIDE, height=_HIGH,
        aria_hidden="true", focusable="false",
    )  # fmt: skip


# --- export -----------------------------------------------------------------------------------

COLUMNS = (
    "id",
    "schedule_id",
    "schedule_name",
    "namespace",
    "owner",
    "origin",
    "status",
    "attempt",
    "planned_at",
    "created_at",
    "started_at",
    "finished_at",
    "duration_ms",
    "lag_ms",
    "node",
    "error",
    "reason",
    "retry_of",
    "parent_id",
    "step",
)


def csv_head() -> str:
    return csv_text([COLUMNS])


def csv_lines(runs: Iterable[Run], lang: str) -> str:
    return csv_text([_cells(run, lang) for run in runs])


def json_lines(runs: Iterable[Run], lang: str) -> str:
    """Returns one API object per line, with secrets in results masked."""
    return "".join(f"{json.dumps(redacted_run(run, lang), ensure_ascii=False)}\n" for run in runs)


def redacted_run(run: Run, lang: str) -> Mapping[str, object]:
    """Returns the run as in the API, with secrets in the result masked."""
    masked = None if run.result is None else mask_result(run.result)
    return {**run_out(run, lang), "result": masked}


def _cells(run: Run, lang: str) -> list[str]:
    values = run_out(run, lang) | {"owner": str(run.owner)}
    return [csv_cell(values[name]) for name in COLUMNS]
