"""What Today shows besides its pictures: is all well, what needs attention, five numbers, and what
runs just now. From values to what a template needs; nothing here asks a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.doors.dashboard import times
from chimes.doors.dashboard.filters import Chip, Filter
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.views_system import page_of
from chimes.model.access import Actor
from chimes.model.attention import Attention, Attentions, Cause
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.insights import BAD, ScheduleCounts, Tally, Window, summed
from chimes.model.lags import Lags
from chimes.model.node import Node
from chimes.model.run import RunStatus
from chimes.service.insights import LATE, RunningNow
from chimes.triggers.moment import format_moment
from chimes.wording import Wording, counted, say

DAY = timedelta(hours=24)
#: A success rate that is so much below that of the week is worth a colour.
_WORSE = 0.01


# --- is all well? ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    sentence: Wording
    good: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """What is wrong with the nodes; for those who see everything."""

    gone: tuple[NodeId, ...] = ()
    none_alive: bool = False
    #: What the store says about itself.
    degraded: str = ""

    @property
    def troubles(self) -> int:
        return len(self.gone) + (self.none_alive and not self.gone) + bool(self.degraded)


def nodes_seen(nodes: Iterable[Node], degraded: str, now: datetime) -> Nodes:
    known = tuple(nodes)
    gone = tuple(node.id for node in known if node.lease_until <= now)
    return Nodes(gone=gone, none_alive=len(gone) == len(known), degraded=degraded)


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


# --- what needs attention -------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Needing:
    item: Attention
    #: The one thing to do about it: `run`, `log`, `edit` or `resume`; empty: only to look.
    best: str
    may_operate: bool
    may_write: bool

    @property
    def log_address(self) -> str:
        """The log of the run that shows it, or why nothing ran."""
        if self.item.sign.run_id is not None and self.item.sign.cause is not Cause.MISSED:
            return f"/ui/runs/{self.item.sign.run_id}"
        return f"/ui/schedules/{self.item.schedule.id}/log"


_BEST = {
    Cause.STOPPED: "edit",
    Cause.FAILING: "run",
    Cause.MISSED: "run",
    Cause.LATE: "log",
    Cause.PAUSE_OVER: "resume",
}


def needing_attention(found: Attentions, actor: Actor) -> tuple[Needing, ...]:
    return tuple(_needing(each, actor) for each in found.items)


def _needing(item: Attention, actor: Actor) -> Needing:
    owner = item.schedule.owner
    operates, writes = actor.may_operate(owner), actor.may_write(owner)
    best = _BEST[item.sign.cause]
    allowed = {"edit": writes, "run": operates, "resume": operates, "log": True}[best]
    return Needing(
        item=item, best=best if allowed else "log", may_operate=operates, may_write=writes
    )


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


def since_a_day(quarters: Sequence[Tally], now: datetime) -> Tally:
    """Of the quarters of a week, those of `Window.last(DAY, now)`."""
    window = Window.last(DAY, now)
    return summed((each for each in quarters if each.at >= window.since), window.since)


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
    now: RunningNow
    elapsed: timedelta
    #: Of the time it usually takes; None: nobody knows.
    share: float | None
    may_cancel: bool

    @property
    def attempts(self) -> int:
        return self.now.run.policy.max_retries + 1


def running_rows(
    running: Iterable[RunningNow], actor: Actor, now: datetime
) -> tuple[RunningRow, ...]:
    return tuple(_running_row(each, actor, now) for each in running)


def _running_row(each: RunningNow, actor: Actor, now: datetime) -> RunningRow:
    run, expected = each.run, each.expected
    elapsed = max(timedelta(0), now - (run.started_at or run.claimed_at or now))
    return RunningRow(
        now=each,
        elapsed=elapsed,
        share=elapsed / expected if expected else None,
        may_cancel=actor.may_operate(run.owner) and not run.cancel_requested,
    )


def running_count(shown: Sequence[RunningNow], limit: int, week: Tally) -> int:
    """Exact while they fit into the list; otherwise as many as the week's sums know of."""
    return len(shown) if len(shown) < limit else max(limit, week[RunStatus.RUNNING])


# --- recent changes -------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class RecentChange:
    entry: AuditEntry
    #: What the object is called, where it has a name.
    name: str
    address: str


def recent_changes(
    entries: Iterable[AuditEntry], names: Mapping[str, str]
) -> tuple[RecentChange, ...]:
    return tuple(
        RecentChange(
            entry=each, name=names.get(each.object_id, each.object_id), address=page_of(each)
        )
        for each in entries
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The part of the page that says whether all is well."""

    health: Health
    needing: tuple[Needing, ...]
    #: Not shown for want of room.
    more: int
    #: Not shown because somebody has put them off.
    snoozed: int
    nodes: Nodes
    tiles: tuple[Tile, ...]
