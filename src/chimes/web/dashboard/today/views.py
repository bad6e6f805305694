"""View models and charts of Today: health, attention, tiles, timeline, heat map, changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import urlencode

from chimes.i18n import Message, _, counted, in_language
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import (
    QUARTER,
    AttentionList,
    IssueCause,
    LagHistogram,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleHealth,
    StatusCounts,
    Window,
    merge_attention,
    quarter_start,
    sum_counts,
)
from chimes.model.node import Node
from chimes.model.planning import MaintenanceWindow
from chimes.model.recipient import Channel
from chimes.model.run import FAILED_STATUSES, LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule, is_paused_by_failures, upcoming_fires
from chimes.model.time_data import FireMove
from chimes.services.attention import CredentialRefusal, Suppression, without_suppressed
from chimes.services.filters import Chip, Filter
from chimes.services.insights import LATE, AffectedSchedule, UpcomingClockChanges, ZoneChange
from chimes.services.monitors import NO_MONITORS, MonitorOverview
from chimes.services.schedules.setup import Misconfigured
from chimes.triggers.clock_changes import clock_changes
from chimes.triggers.values import format_moment
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.timeline import (
    Fire,
    HeatCell,
    HeatMapTexts,
    Lane,
    Overlap,
    TimelineTexts,
    heat_map,
    past_fire,
    timeline,
)
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.audit import describe_change, page_of
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.core.times import describe_clock_change
from chimes.web.dashboard.monitors.views import MonitorRow
from chimes.web.dashboard.run.views import plain_line
from chimes.web.dashboard.system.views import CLOCK_WARNING

#: Longer error texts are truncated; the log has the whole text.
_MAX_ERROR_LENGTH = 160


# --- nodes ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class SkewedNode:
    """A node with a wrong clock. The offset in seconds is positive if it is ahead of the store."""

    id: NodeId
    offset: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProblems:
    dead: tuple[NodeId, ...] = ()
    none_alive: bool = False
    #: All live nodes are draining.
    all_drained: bool = False
    skewed: tuple[SkewedNode, ...] = ()
    #: Why the store is degraded; empty if it is not.
    degraded: str = ""

    @property
    def count(self) -> int:
        no_nodes = self.none_alive and not self.dead
        others = no_nodes + self.all_drained + bool(self.degraded)
        return len(self.dead) + len(self.skewed) + others


def node_problems(nodes: Iterable[Node], degraded: str, now: datetime) -> NodeProblems:
    known = tuple(nodes)
    dead = tuple(node.id for node in known if node.lease_until <= now)
    skewed = tuple(
        SkewedNode(id=node.id, offset=node.clock_offset)
        for node in known
        if node.lease_until > now and abs(node.clock_offset) > CLOCK_WARNING
    )
    alive = [node for node in known if node.lease_until > now]
    return NodeProblems(
        dead=dead,
        none_alive=not alive,
        all_drained=bool(alive) and all(node.drain for node in alive),
        skewed=skewed,
        degraded=degraded,
    )


# --- schedules ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """A schedule that needs attention."""

    item: ScheduleAttention
    #: The suggested action: `run`, `log`, `edit` or `resume`.
    action: str
    may_operate: bool
    may_write: bool
    #: Details of the cause, for REFUSED, NOT_CONFIGURED, TIME_DATA and CLOCK_CHANGE.
    text: Message | None = None

    @property
    def paused_by_failures(self) -> bool:
        return is_paused_by_failures(self.item.schedule)

    @property
    def log_address(self) -> str:
        """The log of the failed run; without a run, the fire log of the schedule."""
        if self.item.sign.run_id is not None and self.item.sign.cause is not IssueCause.MISSED:
            return f"/ui/runs/{self.item.sign.run_id}"
        return f"/ui/schedules/{self.item.schedule.id}/log"


_ACTIONS = {
    IssueCause.STOPPED: "edit",
    IssueCause.REFUSED: "edit",
    IssueCause.NOT_CONFIGURED: "edit",
    IssueCause.FAILING: "run",
    IssueCause.MISSED: "run",
    IssueCause.LATE: "log",
    IssueCause.PAUSE_OVER: "resume",
    IssueCause.TIME_DATA: "edit",
    IssueCause.CLOCK_CHANGE: "edit",
}


def needs_from(
    found: AttentionList, actor: Actor, texts: Mapping[ScheduleId, Message] | None = None
) -> tuple[Need, ...]:
    """`texts`: details of the causes that have any, by schedule."""
    return tuple(_need(each, actor, texts or {}) for each in found.items)


def _need(item: ScheduleAttention, actor: Actor, texts: Mapping[ScheduleId, Message]) -> Need:
    owner, cause = item.schedule.owner, item.sign.cause
    operates, writes = actor.may_operate(owner), actor.may_write(owner)
    action = "resume" if is_paused_by_failures(item.schedule) else _ACTIONS[cause]
    allowed = {"edit": writes, "run": operates, "resume": operates, "log": True}[action]
    has_details = cause in (
        IssueCause.REFUSED,
        IssueCause.NOT_CONFIGURED,
        IssueCause.TIME_DATA,
        IssueCause.CLOCK_CHANGE,
    )
    return Need(
        item=item,
        action=action if allowed else "log",
        may_operate=operates,
        may_write=writes,
        text=texts.get(item.schedule.id) if has_details else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """The most severe issues that are neither snoozed nor known."""

    items: tuple[Need, ...]
    total: int
    #: Number of issues that are snoozed or known.
    snoozed: int
    #: Upcoming clock changes.
    clock_changes: tuple[Message, ...]

    @property
    def more(self) -> int:
        return self.total - len(self.items)


def needs_of(
    issues: AttentionList,
    put_off: Mapping[ScheduleId, Suppression],
    refused: Iterable[CredentialRefusal],
    misconfigured: Iterable[Misconfigured],
    coming: UpcomingClockChanges,
    moved: tuple[tuple[ScheduleAttention, ...], Mapping[ScheduleId, FireMove]],
    actor: Actor,
    display: DisplayPreferences,
    now: datetime,
    *,
    limit: int,
) -> Needs:
    """`issues` contains `limit` plus as many as are snoozed or known."""
    refused, misconfigured = tuple(refused), tuple(misconfigured)
    more = (
        *(each.found for each in refused),
        *(each.found for each in misconfigured),
        *(each.found for each in coming.affected_schedules),
        *moved[0],
    )
    merged = merge_attention(issues, more)
    found = without_suppressed(merged, put_off, limit)
    texts = describe_causes(refused, coming.affected_schedules, display, now, misconfigured)
    # A schedule is listed for its most severe cause.
    texts |= {
        each.schedule.id: _describe_move(moved[1][each.schedule.id], each.schedule, display, now)
        for each in found.items
        if each.sign.cause is IssueCause.TIME_DATA
    }
    return Needs(
        items=needs_from(found, actor, texts),
        total=found.total,
        snoozed=merged.total - found.total,
        clock_changes=describe_zone_changes(coming, display, now),
    )


def _describe_move(
    move: FireMove, schedule: Schedule, display: DisplayPreferences, now: datetime
) -> Message:
    zone = schedule.trigger.zone

    def shown(at: datetime | None) -> str:
        return "–" if at is None else times.absolute(at, zone, display, now=now)

    return _(
        "New time-zone or holiday data move a fire: {old} → {new}",
        old=shown(move.old),
        new=shown(move.new),
    )


def describe_causes(
    refusals: Iterable[CredentialRefusal],
    affected_schedules: Iterable[AffectedSchedule],
    display: DisplayPreferences,
    now: datetime,
    misconfigured: Iterable[Misconfigured] = (),
) -> dict[ScheduleId, Message]:
    """One text per schedule; a refusal outranks a missing setting, and this a clock change."""
    texts = {
        each.found.schedule.id: describe_clock_change(each.touched, display, now)
        for each in affected_schedules
    }
    texts |= {
        each.schedule.id: _(
            "It cannot work: {reason}.",
            reason=in_language(each.warning.message, display.language),
        )
        for each in misconfigured
    }
    return texts | {each.found.schedule.id: _describe_refusal(each, display) for each in refusals}


def _describe_refusal(refusal: CredentialRefusal, display: DisplayPreferences) -> Message:
    error = in_language(refusal.error, display.language)
    error = error if len(error) <= _MAX_ERROR_LENGTH else f"{error[:_MAX_ERROR_LENGTH]}…"
    match refusal.channel:
        case None:
            return _("The receiver rejects the secret or token: {error}", error=error)
        case Channel.TELEGRAM:
            return _("Telegram rejects its messages: {error}", error=error)
        case Channel.EMAIL:
            return _("The mail server rejects its messages: {error}", error=error)
        case _:
            return _("The webhook rejects its messages: {error}", error=error)


# --- clock changes --------------------------------------------------------------------------------
def describe_zone_changes(
    coming: UpcomingClockChanges, display: DisplayPreferences, now: datetime
) -> tuple[Message, ...]:
    return tuple(_describe_zone_change(each, display, now) for each in coming.zones)


def _describe_zone_change(
    coming: ZoneChange, display: DisplayPreferences, now: datetime
) -> Message:
    change = coming.change
    when = times.absolute(change.at, change.zone, display, now=now)
    span = times.span(abs(change.by), display.language)
    if change.by.total_seconds() > 0:
        return counted(
            "{when}: clocks in {zone} go forward by {span}; affects {count} schedule.",
            "{when}: clocks in {zone} go forward by {span}; affects {count} schedules.",
            coming.schedules,
            when=when,
            zone=change.zone,
            span=span,
        )
    return counted(
        "{when}: clocks in {zone} go back by {span}; affects {count} schedule.",
        "{when}: clocks in {zone} go back by {span}; affects {count} schedules.",
        coming.schedules,
        when=when,
        zone=change.zone,
        span=span,
    )


DAY = timedelta(hours=24)
#: The tile is coloured if the success rate is this much below that of the week.
_WORSE_BY = 0.01
#: Longer log lines are truncated.
MAX_LINE_LENGTH = 140


# --- health ---------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    sentence: Message
    good: bool


def health(
    problems: int,
    counts: ScheduleCounts,
    running: int,
    next_at: datetime | None,
    display: DisplayPreferences,
    now: datetime,
) -> Health:
    """`problems` counts schedules and nodes; `next_at` is the next fire time."""
    if problems:
        sentence = counted("{count} needs attention", "{count} need attention", problems)
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


# --- tiles ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    value: str
    text: Message
    address: str
    #: `bad`, `warn` or empty.
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    counts: ScheduleCounts
    running: int
    day: StatusCounts
    week: StatusCounts
    lag: LagHistogram
    #: Start of the last 24 hours.
    since: datetime


def last_day(buckets: Sequence[StatusCounts], now: datetime) -> StatusCounts:
    """Sum of the buckets within the last 24 hours."""
    window = Window.last(DAY, now)
    return sum_counts((each for each in buckets if each.at >= window.since), window.since)


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
    return day is not None and week is not None and day < week - _WORSE_BY


# --- running now ----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class RunningRow:
    run: Run
    #: Median duration of the schedule; None if unknown.
    expected: timedelta | None
    elapsed: timedelta
    #: Elapsed share of the expected duration; None if that is unknown.
    share: float | None
    may_cancel: bool
    #: Last log line; empty if there is none.
    line: str = ""

    @property
    def attempts(self) -> int:
        return self.run.policy.max_retries + 1


def running_rows(
    running: Iterable[Run],
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
    lines: Mapping[RunId, LogEntry],
    actor: Actor,
    display: DisplayPreferences,
    now: datetime,
) -> tuple[RunningRow, ...]:
    rows = []
    for run in running:
        schedule_health = None if run.schedule_id is None else health_by_id.get(run.schedule_id)
        expected = None if schedule_health is None else schedule_health.median
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
        line="" if last is None else short_line(last.message),
    )


def short_line(message: str) -> str:
    """On one line, without ANSI colours, truncated."""
    text = " ".join(plain_line(message).split())
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[:MAX_LINE_LENGTH]}…"


def running_count(shown: Sequence[Run], limit: int, week: StatusCounts) -> int:
    """Exact while all fit into the list; otherwise from the counts of the week."""
    return len(shown) if len(shown) < limit else max(limit, week[RunStatus.RUNNING])


# --- recent changes -------------------------------------------------------------------------------
#: Object kinds whose changes are described in a sentence.
_DESCRIBED_KINDS = ("schedule", "demo")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentChange:
    entry: AuditEntry
    #: Name of the object, else its id.
    name: str
    address: str
    #: What was done, for `_DESCRIBED_KINDS`.
    description: Message | None


def recent_changes(
    entries: Iterable[AuditEntry], names: Mapping[ScheduleId, str]
) -> tuple[RecentChange, ...]:
    return tuple(
        RecentChange(
            entry=each,
            name=names.get(ScheduleId(each.object_id), each.object_id),
            address=page_of(each),
            description=describe_change(each)
            if each.object_kind in _DESCRIBED_KINDS and each.allowed
            else None,
        )
        for each in entries
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The top of the page: overall health."""

    health: Health
    needs: Needs
    nodes: NodeProblems
    tiles: tuple[Tile, ...]
    maintenance: tuple[MaintenanceWindow, ...] = ()
    monitors: MonitorOverview = NO_MONITORS
    #: Monitors that are late or down, as in the list of monitors.
    monitor_rows: tuple[MonitorRow, ...] = ()
    #: Open ones, which wait for a decision.
    proposals: int = 0
    approvals: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineSpan:
    """Length of the timeline, and hours between its axis labels."""

    name: str
    length: timedelta
    step: int


SPANS = {
    "6h": TimelineSpan(name="6h", length=timedelta(hours=6), step=1),
    "24h": TimelineSpan(name="24h", length=timedelta(hours=24), step=3),
    "7d": TimelineSpan(name="7d", length=timedelta(days=7), step=24),
}
LANES_BY = ("schedule", "label")
#: Time zone of the charts.
CLOCKS = ("mine", "utc")
#: Rows of the heat map.
HEAT_DAYS = {"7d": 7, "14d": 14}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """Chart settings from the URL. `clock` None: as in the rest of the page."""

    span: str = "24h"
    lanes: str = "schedule"
    clock: str | None = None
    heat: str = "7d"

    @property
    def ahead(self) -> TimelineSpan:
        return SPANS[self.span]

    @property
    def days(self) -> int:
        return HEAT_DAYS[self.heat]

    def display(self, display: DisplayPreferences) -> DisplayPreferences:
        """The viewer's preferences, with the time zone of the charts."""
        return display if self.clock is None else replace(display, clock=self.clock)

    def zone(self, display: DisplayPreferences) -> str:
        return primary_zone(self.display(display), None)

    def with_(self, name: str, value: str) -> Choices:
        known = {"span": self.span, "lanes": self.lanes, "heat": self.heat}
        clock = value if name == "clock" else self.clock
        return Choices(**{**known, **({name: value} if name in known else {})}, clock=clock)

    def address(self, part: str = "", **chosen: str) -> str:
        """URL of the page, or of a part of it, with changed choices."""
        choices = self
        for name, value in chosen.items():
            choices = choices.with_(name, value)
        default = Choices()
        pairs = {"part": part} if part else {}
        for name in ("span", "lanes", "clock", "heat"):
            value = getattr(choices, name)
            if value is not None and value != getattr(default, name):
                pairs[name] = value
        return f"/ui/?{urlencode(pairs)}" if pairs else "/ui/"


def parse_choices(query: Mapping[str, str]) -> Choices:
    """Ignores invalid values, so that old URLs still work."""
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


# --- timeline -------------------------------------------------------------------------------------
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
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
    end: datetime,
    now: datetime,
) -> list[Lane]:
    """One lane per schedule with fires, in the given order."""
    lanes = [
        _lane(each, health_by_id.get(each.id, ScheduleHealth()), end, now) for each in schedules
    ]
    return [lane for lane in lanes if lane.fires]


def lanes_by_label(
    schedules: Iterable[Schedule],
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
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
        lane = _lane(schedule, health_by_id.get(schedule.id, ScheduleHealth()), end, now)
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


def _lane(
    schedule: Schedule, schedule_health: ScheduleHealth, end: datetime, now: datetime
) -> Lane:
    past = [
        past_fire(each) for each in schedule_health.results if now - PAST <= each.planned_at <= now
    ]
    found = upcoming_fires([schedule], end, limit=MAX_FIRES + 1)
    ahead = [
        Fire(
            at=each.at,
            length=schedule_health.median or timedelta(0),
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

    state = partial(times.fire_label, language=display.language)

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
        ticks=times.ticks_between(zone, start, end, ahead.step),
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


# --- heat map -------------------------------------------------------------------------------------
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
