"""What the list of runs shows, from values to what a template needs; pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from markupsafe import Markup

from chimes.i18n import Message, _, in_language
from chimes.model.access import Actor
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    ERROR_KEY_LENGTH,
    FAILED_STATUSES,
    MAX_PLANNING_LEAD,
    QUARTER,
    RunFilter,
    StatusCounts,
    Window,
    lag_of,
    quarter_start,
)
from chimes.model.listing import RunQuery, RunSort
from chimes.model.run import Run, RunStatus
from chimes.notifications.message import reason as reason_words
from chimes.redaction import masked_result
from chimes.services.run_requests import RunOrigin
from chimes.triggers.moment import format_moment
from chimes.web.api.translate import run_out
from chimes.web.dashboard.charts.histogram import Bar, HistogramWords, histogram
from chimes.web.dashboard.charts.svg import Chart, element
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import RUN_NAMES, Chip, Filter, read_filter, run_filter
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.schedules.views import state_word

HERE = "/ui/runs"
#: The windows to choose from, as they are written in a filter.
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
_USUAL, _OF_SCHEDULE = "24h", "30d"
_WEEK, _LONGEST = timedelta(days=7), timedelta(days=370)
_MOST_BARS = 72
_STEPS = tuple(QUARTER * each for each in (1, 2, 4, 8, 12, 24, 48, 96, 192, 672, 1344))
ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a filter asks the store, the insights, and the page itself."""

    filter: Filter
    query: RunQuery
    window: Window
    #: The one of `WINDOWS` that the list shows; empty: other moments, or no window at all.
    span: str
    #: To be found in the schedule's name or the error, in small letters.
    text: str = ""
    same: RunId | None = None
    #: The error that all of them have, up to `ERROR_KEY_LENGTH`.
    error: str | None = None

    @property
    def counted(self) -> bool:
        """Whether sums know of every condition."""
        return not self.text and self.same is None and self.query.holder is None

    @property
    def sifted(self) -> bool:
        """Whether the page has conditions that the store is not asked for."""
        return bool(self.text) or self.error is not None

    @property
    def totals(self) -> RunFilter:
        query = self.query
        return RunFilter(
            owner=query.owner,
            schedule_id=query.schedule_id,
            namespace=query.namespace,
            origin=query.origin,
        )

    def matches(self, run: Run) -> bool:
        if self.error is not None and run.error[:ERROR_KEY_LENGTH] != self.error:
            return False
        return self.text in run.schedule_name.lower() or self.text in run.error.lower()

    def with_error(self, error: str) -> Asked:
        """Of runs that ended badly in the same words."""
        query = self.query
        if not query.statuses:
            query = replace(query, statuses=tuple(sorted(FAILED_STATUSES)))
        return replace(self, error=error[:ERROR_KEY_LENGTH], query=query)

    def with_wrong(self, wrong: Message) -> Asked:
        return replace(self, filter=replace(self.filter, errors=(*self.filter.errors, wrong)))


def asked_for(text: str, actor: Actor, now: datetime) -> Asked:
    """From the text of the box. Without a moment in it the window is a day, or a month of one
    schedule; what is under way is shown however long it has been."""
    found = run_filter(read_filter(text, RUN_NAMES), actor, now)
    query, filter_ = found.query, found.filter
    under_way = bool(query.statuses) and all(each in ACTIVE for each in query.statuses)
    span = _OF_SCHEDULE if query.schedule_id else _USUAL
    said = filter_.get("since")
    since, until = query.since, query.until
    if since is not None and since >= (until or now):
        wrong = _("the time range ends before it starts")
        filter_ = replace(filter_, errors=(*filter_.errors, wrong))
        since = None
    begins = since or (until or now) - WINDOWS[span]
    if since is None and not under_way:
        since = begins
    # What was planned for just now is in it.
    latest = until or quarter_start(now) + QUARTER
    window = Window.around(max(begins, latest - _LONGEST), latest)
    if until is None:
        # A range of the index by which the list is sorted.
        query = replace(query, since=since, created_since=since and since - MAX_PLANNING_LEAD)
    else:
        query = replace(query, since=since, sort=RunSort.PLANNED_AT)
    shown = said if said in WINDOWS and until is None else "" if said or until else span
    return Asked(
        filter=filter_,
        query=query,
        window=window,
        span="" if under_way and not said else shown or "",
        text=(found.text or "").lower(),
        same=found.same,
    )


def window_links(asked: Asked) -> list[tuple[str, str, bool]]:
    """Each window, its address, and whether it is the one that is shown."""
    without = Filter(chips=tuple(each for each in asked.filter.chips if each.name != "until"))
    return [
        (each, without.with_chip(Chip("since", each)).address(HERE), each == asked.span)
        for each in WINDOWS
    ]


def wider(asked: Asked) -> tuple[str, str] | None:
    """The next window that is wider, and its address; None: there is none."""
    length = asked.window.until - asked.window.since
    for name, address, _unused in window_links(asked):
        if WINDOWS[name] >= _WEEK and WINDOWS[name] > length and name != asked.span:
            return name, address
    return None


def between(filter_: Filter, start: datetime, end: datetime) -> str:
    """The address of the list of just this time."""
    found = filter_.with_chip(Chip("since", format_moment(start)))
    return found.with_chip(Chip("until", format_moment(end))).address(HERE)


# --- the picture ------------------------------------------------------------------------------
def step_of(window: Window) -> timedelta:
    length = window.until - window.since
    return next((each for each in _STEPS if length / each <= _MOST_BARS), _STEPS[-1])


def bars_of(tallies: Sequence[StatusCounts], step: timedelta, asked: Asked) -> list[Bar]:
    wanted = asked.query.statuses
    return [
        Bar(
            start=tally.at,
            end=min(tally.at + step, asked.window.until),
            counts={
                status: number
                for status, number in tally.statuses.items()
                if not wanted or status in wanted
            },
            address=between(asked.filter, tally.at, min(tally.at + step, asked.window.until)),
        )
        for tally in tallies
    ]


def histogram_of(bars: Sequence[Bar], display: DisplayPreferences, now: datetime) -> Chart:
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
            f"{state_word(status, language)} {times.number(number, language)}"
            for status, number in each.counts.items()
            if number
        )
        return f"{moment(each.start)}: {parts or '0'}"

    words = HistogramWords(
        title=in_language(_("Runs over time"), language),
        description=in_language(
            _("Grouped by result; a bar links to its runs. Times are {zone}.", zone=display.zone),
            language,
        ),
        when=in_language(_("From"), language),
        state=lambda status: state_word(status, language),
        total=in_language(_("Total"), language),
        bar=bar,
        clock=clock,
        moment=moment,
        number=lambda value: times.number(value, language),
    )
    return histogram(bars, words)


#: Control characters, except blanks and ends of lines, and what turns the text after it.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Nothing in it hides or turns what stands beside it (S47, S68)."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


# --- rows -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    run: Run
    lag: timedelta | None
    duration: timedelta | None
    #: How long runs of its schedule usually take.
    median: timedelta | None
    #: Who asked for it, where somebody did and it is known.
    asked_by: RunOrigin | None
    node: str
    #: Of its schedule, while there is one.
    zone: str | None = None

    @property
    def bar(self) -> Markup:
        return duration_bar(self.duration, self.median)

    @property
    def why(self) -> str:
        """In words why it ended as it did, where that was no error."""
        return reason_words(self.run.reason)

    @property
    def name(self) -> str:
        return self.run.schedule_name or self.run.step or self.run.target.kind

    @property
    def step(self) -> str:
        """Within the flow that it is called after; empty: it is no step, or that is its name."""
        return self.run.step if self.run.schedule_name else ""

    @property
    def address(self) -> str:
        return f"{HERE}/{self.run.id}"


def rows_of(
    runs: Iterable[Run],
    medians: Mapping[ScheduleId, timedelta],
    askers: Mapping[RunId, RunOrigin],
    zones: Mapping[ScheduleId, str],
    now: datetime,
) -> tuple[Row, ...]:
    return tuple(
        Row(
            run=run,
            lag=lag_of(run),
            duration=duration_of(run, now),
            median=medians.get(run.schedule_id) if run.schedule_id else None,
            asked_by=askers.get(run.id),
            node=node_of(run),
            zone=zones.get(run.schedule_id) if run.schedule_id else None,
        )
        for run in runs
    )


def duration_of(run: Run, now: datetime) -> timedelta | None:
    """So far, while it goes on."""
    if run.started_at is None:
        return None
    return max((run.finished_at or now) - run.started_at, timedelta(0))


def node_of(run: Run) -> str:
    """Who has it, or who had it last."""
    return run.holder or (run.attempts[-1].node if run.attempts else "")


_WIDE, _HIGH = 64, 8


def duration_bar(duration: timedelta | None, median: timedelta | None) -> Markup:
    """As long as it took; the line in the middle is the median."""
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


# @@ Runs as files, for spreadsheets and programs; pure.

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
#: Spreadsheets take a cell that begins so for a formula, and would carry it out.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(value: object) -> str:
    """Text that no spreadsheet carries out (S55); numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    # Spreadsheets leave out blanks before a formula.
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) or text[:1] in _FORMULA else text


def csv_head() -> str:
    return _csv([COLUMNS])


def csv_lines(runs: Iterable[Run], lang: str) -> str:
    return _csv([_cells(run, lang) for run in runs])


def json_lines(runs: Iterable[Run], lang: str) -> str:
    """One object a line, as the API shows them, without secrets in results: files travel."""
    return "".join(f"{json.dumps(run_shown(run, lang), ensure_ascii=False)}\n" for run in runs)


def run_shown(run: Run, lang: str) -> Mapping[str, object]:
    """As the API has it, for people to read: of the result, what its names say is secret is
    hidden."""
    masked = None if run.result is None else masked_result(run.result)
    return {**run_out(run, lang), "result": masked}


def _cells(run: Run, lang: str) -> list[str]:
    shown = run_out(run, lang) | {"owner": str(run.owner)}
    return [cell(shown[name]) for name in COLUMNS]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()
