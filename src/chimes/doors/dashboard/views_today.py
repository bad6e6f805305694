"""What Today shows besides its pictures: is all well, five numbers, what runs just now, and what
was changed. From values to what a template needs; nothing here asks a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.doors.dashboard import times
from chimes.doors.dashboard.filters import Chip, Filter
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.views_fire_log import done_in_words
from chimes.doors.dashboard.views_run import plain_line
from chimes.doors.dashboard.views_system import page_of
from chimes.doors.dashboard.views_today_needs import Needs, Nodes
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import BAD, Glance, ScheduleCounts, Tally, Window, summed
from chimes.model.lags import Lags
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.retelling import retold_line
from chimes.service.insights import LATE
from chimes.triggers.moment import format_moment
from chimes.wording import Wording, counted, say

DAY = timedelta(hours=24)
#: A success rate that is so much below that of the week is worth a colour.
_WORSE = 0.01
#: Characters of a last line that are shown.
LINE_ROOM = 140


# --- is all well? ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    sentence: Wording
    good: bool


def health(
    needing: int,
    counts: ScheduleCounts,
    running: int,
    next_at: datetime | None,
    look: Look,
    now: datetime,
) -> Health:
    """`needing`: schedules and nodes together. `next_at`: when the next one is due."""
    if needing:
        sentence = counted("{count} needs attention", "{count} need attention", needing)
        return Health(sentence=sentence, good=False)
    if next_at is None:
        sentence = counted(
            "All good – {count} schedule, {running} running, nothing planned",
            "All good – {count} schedules, {running} running, nothing planned",
            counts.total,
            running=running,
        )
    else:
        sentence = counted(
            "All good – {count} schedule, {running} running, next {when}",
            "All good – {count} schedules, {running} running, next {when}",
            counts.total,
            running=running,
            when=times.relative(max(next_at, now), now, look.language),
        )
    return Health(sentence=sentence, good=True)


# --- five numbers ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    value: str
    text: Wording
    address: str
    #: `bad`, `warn` or nothing.
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    counts: ScheduleCounts
    running: int
    day: Tally
    week: Tally
    lag: Lags
    #: Runs from here on are those of the day.
    since: datetime


def since_a_day(tallies: Sequence[Tally], now: datetime) -> Tally:
    """Of a week in days or less, those of `Window.last(DAY, now)`."""
    window = Window.last(DAY, now)
    return summed((each for each in tallies if each.at >= window.since), window.since)


def tiles(numbers: Numbers, actor: Actor, look: Look) -> tuple[Tile, ...]:
    language = look.language
    day, week = numbers.day.success_rate, numbers.week.success_rate
    lag = numbers.lag.quantile(0.95)
    failed = tuple(Chip("status", status.value) for status in RunStatus if status in BAD)
    since = Chip("since", format_moment(numbers.since))
    return (
        Tile(
            value=times.number(numbers.counts.due_soon, language),
            text=say("due within the hour"),
            address=Filter(chips=(Chip("next", "<1h"),)).address("/ui/schedules"),
        ),
        Tile(
            value=times.number(numbers.running, language),
            text=say("running"),
            address=Filter(chips=(Chip("status", "running"),)).address("/ui/runs"),
        ),
        Tile(
            value=times.number(numbers.day.bad, language),
            text=say("failed in 24 h"),
            address=Filter(chips=(*failed, since)).address("/ui/runs"),
            tone="bad" if numbers.day.bad else "",
        ),
        Tile(
            value="–" if day is None else times.percent(day, language),
            text=say("succeeded in 24 h")
            if week is None
            else say("succeeded in 24 h; {week} in 7 days", week=times.percent(week, language)),
            address=Filter(chips=(since,)).address("/ui/runs"),
            tone="warn" if None not in (day, week) and _below(day, week) else "",
        ),
        Tile(
            value=times.span(lag, language),
            text=say("p95 lag in 24 h"),
            address="/ui/system?span=24h"
            if actor.sees_everything
            else Filter(chips=(since,)).address("/ui/runs"),
            tone="warn" if lag is not None and lag > LATE else "",
        ),
    )


def _below(day: float | None, week: float | None) -> bool:
    return day is not None and week is not None and day < week - _WORSE


# --- running now ----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class RunningRow:
    run: Run
    #: How long runs of its schedule usually take; None: nobody knows.
    expected: timedelta | None
    elapsed: timedelta
    #: Of the time it usually takes; None: nobody knows.
    share: float | None
    may_cancel: bool
    #: The last that it said, in one line; empty: nothing yet.
    line: str = ""

    @property
    def attempts(self) -> int:
        return self.run.policy.max_retries + 1


def running_rows(
    running: Iterable[Run],
    glances: Mapping[ScheduleId, Glance],
    lines: Mapping[RunId, LogEntry],
    actor: Actor,
    look: Look,
    now: datetime,
) -> tuple[RunningRow, ...]:
    rows = []
    for run in running:
        glance = None if run.schedule_id is None else glances.get(run.schedule_id)
        expected = None if glance is None else glance.median
        rows.append(_running_row(run, expected, lines.get(run.id), actor, look, now))
    return tuple(rows)


def _running_row(
    run: Run,
    expected: timedelta | None,
    last: LogEntry | None,
    actor: Actor,
    look: Look,
    now: datetime,
) -> RunningRow:
    elapsed = max(timedelta(0), now - (run.started_at or run.claimed_at or now))
    return RunningRow(
        run=run,
        expected=expected,
        elapsed=elapsed,
        share=elapsed / expected if expected else None,
        may_cancel=actor.may_operate(run.owner) and not run.cancel_requested,
        line="" if last is None else short_line(retold_line(last.message, look.language)),
    )


def short_line(message: str) -> str:
    """One line of it, without colours, as long as there is room for."""
    text = " ".join(plain_line(message).split())
    return text if len(text) <= LINE_ROOM else f"{text[:LINE_ROOM]}…"


def running_count(shown: Sequence[Run], limit: int, week: Tally) -> int:
    """Exact while they fit into the list; otherwise as many as the week's sums know of."""
    return len(shown) if len(shown) < limit else max(limit, week[RunStatus.RUNNING])


# --- recent changes -------------------------------------------------------------------------------
#: What is done to these is said in a sentence.
_TOLD = ("schedule", "demo")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentChange:
    entry: AuditEntry
    #: What the object is called, where it has a name.
    name: str
    address: str
    #: What was done, where there are words for it.
    done: Wording | None


def recent_changes(
    entries: Iterable[AuditEntry], names: Mapping[str, str]
) -> tuple[RecentChange, ...]:
    return tuple(
        RecentChange(
            entry=each,
            name=names.get(each.object_id, each.object_id),
            address=page_of(each),
            done=done_in_words(each) if each.object_kind in _TOLD and each.allowed else None,
        )
        for each in entries
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The part of the page that says whether all is well."""

    health: Health
    needs: Needs
    nodes: Nodes
    tiles: tuple[Tile, ...]
