"""What Today shows besides its pictures: is all well, five numbers, what runs just now, and what
was changed. From values to what a template needs; nothing here asks a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode

from chimes.i18n import Message, _, counted
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import (
    FAILED_STATUSES,
    AttentionList,
    IssueCause,
    LagHistogram,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleHealth,
    StatusCounts,
    Window,
    merge_attention,
    sum_counts,
)
from chimes.model.node import Node
from chimes.model.recipient import Channel
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.retelling import retold, retold_line
from chimes.services.attention import PutOff, Refusal, awake
from chimes.services.insights import LATE, Coming, Noticing, ZoneChange
from chimes.triggers.moment import format_moment
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import Chip, Filter
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.core.times import touched_in_words
from chimes.web.dashboard.run.views import plain_line
from chimes.web.dashboard.schedule.fire_log import done_in_words
from chimes.web.dashboard.system.views import CLOCK_WARNING, page_of

# @@ What needs attention, with its cause in words and the one thing to do about it (UX A.1).

#: Of what somebody else said; the whole of it is in the log.
_LONGEST = 160


# --- nodes ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Skewed:
    """A node whose clock is off; in seconds, ahead of the store's above zero."""

    id: NodeId
    offset: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """What is wrong with the nodes; for those who see everything."""

    gone: tuple[NodeId, ...] = ()
    none_alive: bool = False
    #: Some are alive, and an operator has asked all of those to drain.
    all_drained: bool = False
    skewed: tuple[Skewed, ...] = ()
    #: What the store says about itself.
    degraded: str = ""

    @property
    def troubles(self) -> int:
        nobody = self.none_alive and not self.gone
        others = nobody + self.all_drained + bool(self.degraded)
        return len(self.gone) + len(self.skewed) + others


def nodes_seen(nodes: Iterable[Node], degraded: str, now: datetime) -> Nodes:
    known = tuple(nodes)
    gone = tuple(node.id for node in known if node.lease_until <= now)
    skewed = tuple(
        Skewed(id=node.id, offset=node.clock_offset)
        for node in known
        if node.lease_until > now and abs(node.clock_offset) > CLOCK_WARNING
    )
    alive = [node for node in known if node.lease_until > now]
    return Nodes(
        gone=gone,
        none_alive=not alive,
        all_drained=bool(alive) and all(node.drain for node in alive),
        skewed=skewed,
        degraded=degraded,
    )


# --- schedules ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Needing:
    item: ScheduleAttention
    #: The one thing to do about it: `run`, `log`, `edit` or `resume`; empty: only to look.
    best: str
    may_operate: bool
    may_write: bool
    #: Its cause, where more is known of it than the sign says.
    text: Message | None = None

    @property
    def log_address(self) -> str:
        """The log of the run that shows it, or why nothing ran."""
        if self.item.sign.run_id is not None and self.item.sign.cause is not IssueCause.MISSED:
            return f"/ui/runs/{self.item.sign.run_id}"
        return f"/ui/schedules/{self.item.schedule.id}/log"


_BEST = {
    IssueCause.STOPPED: "edit",
    IssueCause.REFUSED: "edit",
    IssueCause.FAILING: "run",
    IssueCause.MISSED: "run",
    IssueCause.LATE: "log",
    IssueCause.PAUSE_OVER: "resume",
    IssueCause.CLOCK_CHANGE: "edit",
}


def needing_attention(
    found: AttentionList, actor: Actor, texts: Mapping[ScheduleId, Message] | None = None
) -> tuple[Needing, ...]:
    """`texts`: of those whose cause is REFUSED or CLOCK_CHANGE."""
    return tuple(_needing(each, actor, texts or {}) for each in found.items)


def _needing(item: ScheduleAttention, actor: Actor, texts: Mapping[ScheduleId, Message]) -> Needing:
    owner, cause = item.schedule.owner, item.sign.cause
    operates, writes = actor.may_operate(owner), actor.may_write(owner)
    best = _BEST[cause]
    allowed = {"edit": writes, "run": operates, "resume": operates, "log": True}[best]
    told = cause in (IssueCause.REFUSED, IssueCause.CLOCK_CHANGE)
    return Needing(
        item=item,
        best=best if allowed else "log",
        may_operate=operates,
        may_write=writes,
        text=texts.get(item.schedule.id) if told else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """The gravest of those that nobody has put off."""

    items: tuple[Needing, ...]
    total: int
    #: Put off by this reader, or known.
    snoozed: int
    #: Changes of the clocks that are near.
    clocks: tuple[Message, ...]

    @property
    def more(self) -> int:
        return self.total - len(self.items)


def needs_of(
    known: AttentionList,
    put_off: Mapping[ScheduleId, PutOff],
    refused: Iterable[Refusal],
    coming: Coming,
    actor: Actor,
    display: DisplayPreferences,
    now: datetime,
    *,
    limit: int,
) -> Needs:
    """`known`: as many of them as `limit` and as are put off."""
    refused = tuple(refused)
    more = (*(each.found for each in refused), *(each.found for each in coming.noticing))
    every = merge_attention(known, more)
    found = awake(every, put_off, limit)
    texts = causes_in_words(refused, coming.noticing, display, now)
    return Needs(
        items=needing_attention(found, actor, texts),
        total=found.total,
        snoozed=every.total - found.total,
        clocks=zones_in_words(coming, display, now),
    )


def causes_in_words(
    refusals: Iterable[Refusal],
    noticing: Iterable[Noticing],
    display: DisplayPreferences,
    now: datetime,
) -> dict[ScheduleId, Message]:
    """For each schedule its gravest: a refusal rather than a change of the clocks."""
    found = {
        each.found.schedule.id: touched_in_words(each.touched, display, now) for each in noticing
    }
    return found | {each.found.schedule.id: _refused(each, display) for each in refusals}


def _refused(refusal: Refusal, display: DisplayPreferences) -> Message:
    error = retold(refusal.error, display.language)
    error = error if len(error) <= _LONGEST else f"{error[:_LONGEST]}…"
    match refusal.channel:
        case None:
            return _("Its receiver does not accept the secret or token: {error}", error=error)
        case Channel.TELEGRAM:
            return _("Telegram does not accept its messages: {error}", error=error)
        case Channel.EMAIL:
            return _("The mail server does not accept its messages: {error}", error=error)
        case _:
            return _("Its webhook does not accept messages: {error}", error=error)


# --- changes of the clocks ------------------------------------------------------------------------
def zones_in_words(
    coming: Coming, display: DisplayPreferences, now: datetime
) -> tuple[Message, ...]:
    return tuple(_zone_in_words(each, display, now) for each in coming.zones)


def _zone_in_words(coming: ZoneChange, display: DisplayPreferences, now: datetime) -> Message:
    change = coming.change
    when = times.absolute(change.at, change.zone, display, now=now)
    span = times.span(abs(change.by), display.language)
    if change.by.total_seconds() > 0:
        return counted(
            "{when}: the clocks of {zone} go forward by {span}; {count} schedule goes by them.",
            "{when}: the clocks of {zone} go forward by {span}; {count} schedules go by them.",
            coming.schedules,
            when=when,
            zone=change.zone,
            span=span,
        )
    return counted(
        "{when}: the clocks of {zone} go back by {span}; {count} schedule goes by them.",
        "{when}: the clocks of {zone} go back by {span}; {count} schedules go by them.",
        coming.schedules,
        when=when,
        zone=change.zone,
        span=span,
    )


DAY = timedelta(hours=24)
#: A success rate that is so much below that of the week is worth a colour.
_WORSE = 0.01
#: Characters of a last line that are shown.
LINE_ROOM = 140


# --- is all well? ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    sentence: Message
    good: bool


def health(
    needing: int,
    counts: ScheduleCounts,
    running: int,
    next_at: datetime | None,
    display: DisplayPreferences,
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
            when=times.relative(max(next_at, now), now, display.language),
        )
    return Health(sentence=sentence, good=True)


# --- five numbers ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    value: str
    text: Message
    address: str
    #: `bad`, `warn` or nothing.
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    counts: ScheduleCounts
    running: int
    day: StatusCounts
    week: StatusCounts
    lag: LagHistogram
    #: Runs from here on are those of the day.
    since: datetime


def since_a_day(tallies: Sequence[StatusCounts], now: datetime) -> StatusCounts:
    """Of a week in days or less, those of `Window.last(DAY, now)`."""
    window = Window.last(DAY, now)
    return sum_counts((each for each in tallies if each.at >= window.since), window.since)


def tiles(numbers: Numbers, actor: Actor, display: DisplayPreferences) -> tuple[Tile, ...]:
    language = display.language
    day, week = numbers.day.success_rate, numbers.week.success_rate
    lag = numbers.lag.quantile(0.95)
    failed = tuple(
        Chip("status", status.value) for status in RunStatus if status in FAILED_STATUSES
    )
    since = Chip("since", format_moment(numbers.since))
    return (
        Tile(
            value=times.number(numbers.counts.due_soon, language),
            text=_("due within the hour"),
            address=Filter(chips=(Chip("next", "<1h"),)).address("/ui/schedules"),
        ),
        Tile(
            value=times.number(numbers.running, language),
            text=_("running"),
            address=Filter(chips=(Chip("status", "running"),)).address("/ui/runs"),
        ),
        Tile(
            value=times.number(numbers.day.bad, language),
            text=_("failed in 24 h"),
            address=Filter(chips=(*failed, since)).address("/ui/runs"),
            tone="bad" if numbers.day.bad else "",
        ),
        Tile(
            value="–" if day is None else times.percent(day, language),
            text=_("succeeded in 24 h")
            if week is None
            else _("succeeded in 24 h; {week} in 7 days", week=times.percent(week, language)),
            address=Filter(chips=(since,)).address("/ui/runs"),
            tone="warn" if None not in (day, week) and _below(day, week) else "",
        ),
        Tile(
            value=times.span(lag, language),
            text=_("p95 lag in 24 h"),
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
    glances: Mapping[ScheduleId, ScheduleHealth],
    lines: Mapping[RunId, LogEntry],
    actor: Actor,
    display: DisplayPreferences,
    now: datetime,
) -> tuple[RunningRow, ...]:
    rows = []
    for run in running:
        glance = None if run.schedule_id is None else glances.get(run.schedule_id)
        expected = None if glance is None else glance.median
        rows.append(_running_row(run, expected, lines.get(run.id), actor, display, now))
    return tuple(rows)


def _running_row(
    run: Run,
    expected: timedelta | None,
    last: LogEntry | None,
    actor: Actor,
    display: DisplayPreferences,
    now: datetime,
) -> RunningRow:
    elapsed = max(timedelta(0), now - (run.started_at or run.claimed_at or now))
    return RunningRow(
        run=run,
        expected=expected,
        elapsed=elapsed,
        share=elapsed / expected if expected else None,
        may_cancel=actor.may_operate(run.owner) and not run.cancel_requested,
        line="" if last is None else short_line(retold_line(last.message, display.language)),
    )


def short_line(message: str) -> str:
    """One line of it, without colours, as long as there is room for."""
    text = " ".join(plain_line(message).split())
    return text if len(text) <= LINE_ROOM else f"{text[:LINE_ROOM]}…"


def running_count(shown: Sequence[Run], limit: int, week: StatusCounts) -> int:
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
    done: Message | None


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


# @@ What somebody has chosen to see in the two pictures of Today; it is in the address.


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
LANES_BY = ("schedule", "label")
#: By whose clock the pictures are drawn.
CLOCKS = ("mine", "utc")
#: Rows of the heat map.
HEAT_DAYS = {"7d": 7, "14d": 14}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What is None was not chosen: then it is as in the rest of the page."""

    span: str = "24h"
    lanes: str = "schedule"
    clock: str | None = None
    heat: str = "7d"

    @property
    def ahead(self) -> Ahead:
        return SPANS[self.span]

    @property
    def days(self) -> int:
        return HEAT_DAYS[self.heat]

    def display(self, display: DisplayPreferences) -> DisplayPreferences:
        """The reader's, with the clock of the pictures."""
        return display if self.clock is None else replace(display, clock=self.clock)

    def zone(self, display: DisplayPreferences) -> str:
        return primary_zone(self.display(display), None)

    def with_(self, name: str, value: str) -> Choices:
        known = {"span": self.span, "lanes": self.lanes, "heat": self.heat}
        clock = value if name == "clock" else self.clock
        return Choices(**{**known, **({name: value} if name in known else {})}, clock=clock)

    def address(self, part: str = "", **chosen: str) -> str:
        """The page with these choices and others as they are; or a part of it."""
        wanted = self
        for name, value in chosen.items():
            wanted = wanted.with_(name, value)
        usual = Choices()
        pairs = {"part": part} if part else {}
        for name in ("span", "lanes", "clock", "heat"):
            value = getattr(wanted, name)
            if value is not None and value != getattr(usual, name):
                pairs[name] = value
        return f"/ui/?{urlencode(pairs)}" if pairs else "/ui/"


def choices_in(query: Mapping[str, str]) -> Choices:
    """What is not among them counts as not said: an old address still shows something."""
    given = {
        name: query[name]
        for name, known in (
            ("span", SPANS),
            ("lanes", LANES_BY),
            ("clock", CLOCKS),
            ("heat", HEAT_DAYS),
        )
        if query.get(name) in known
    }
    return Choices(**given)
