"""What the dashboard counts: values that stores compute, and what follows from them.

Time is cut into quarters of an hour, because every zone's offset is a multiple of one: hours and
days of any zone are sums of quarters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule, has_runs_left

# @@ How late runs began, as counts in brackets that grow by a fifth each, from a millisecond to a
# month. A quantile read from them is within 10 % of the exact one (9.1 % at worst); less than a
# millisecond reads as none.

_MICROSECOND = timedelta(microseconds=1)
_GROWTH = 1.2
_SHORTEST, _LONGEST = 1_000, 31 * 86_400 * 1_000_000


def _bounds() -> tuple[int, ...]:
    found = [_SHORTEST]
    while found[-1] < _LONGEST:
        found.append(int(found[-1] * _GROWTH))
    return tuple(found)


#: Where brackets begin, in microseconds. Stores keep numbers of brackets: never change these.
BOUNDS = _bounds()


def bracket_of(lag: timedelta) -> int:
    """How many of the bounds it has reached."""
    return bracket_of_micros(lag // _MICROSECOND)


def bracket_of_micros(lag: int) -> int:
    return bisect_right(BOUNDS, lag)


def bracket_lag(bracket: int) -> timedelta:
    """What a lag of this bracket is taken for: as far from its lowest as from its highest, in
    proportion."""
    if bracket <= 0:
        return timedelta(0)
    if bracket >= len(BOUNDS):
        return BOUNDS[-1] * _MICROSECOND
    low, high = BOUNDS[bracket - 1], BOUNDS[bracket]
    return (2 * low * high // (low + high)) * _MICROSECOND


@dataclass(frozen=True, slots=True)
class LagHistogram:
    #: By bracket; those that are not there have none.
    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> timedelta | None:
        """The lag that this share of the runs did not exceed; None: there were none."""
        if not 0 < share <= 1:
            raise InvalidInput(_("a share lies above 0 and not above 1"), field="share")
        left = share * self.total
        for bracket in sorted(self.counts):
            left -= self.counts[bracket]
            if left <= 1e-9:
                return bracket_lag(bracket)
        return None


NO_LAGS = LagHistogram()


def merge_lags(several: Iterable[LagHistogram]) -> LagHistogram:
    counts: dict[int, int] = {}
    for lags in several:
        for bracket, number in lags.counts.items():
            counts[bracket] = counts.get(bracket, 0) + number
    return LagHistogram(counts)


QUARTER = timedelta(minutes=15)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Who began a run of which nobody knows that any more.
UNKNOWN_NODE = NodeId("?")
#: Ended badly.
FAILED_STATUSES = frozenset({RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN})
#: Was carried out, and came to something; the others say nothing about how a schedule is doing.
CONCLUSIVE_STATUSES = FAILED_STATUSES | {RunStatus.SUCCEEDED}
#: So many in a row are a matter for somebody to look at.
FAILING_STREAK = 2
#: Of one schedule, and among errors, runs that were made longer than this before a window begins
#: do not count in it, although planned for it: so that the window is a range of an index.
MAX_PLANNING_LEAD = timedelta(days=1)
#: Buckets that one answer has at most: a month of quarters.
MAX_BUCKETS = 3000
#: Results at which a glance looks, and those of its successes that its median is of.
HEALTH_RESULTS, MEDIAN_SAMPLE = 30, 20
#: Schedules, results of one, and results in all that `newest_results` is asked for at most.
MAX_SCHEDULES, MAX_RESULTS_PER_SCHEDULE, MAX_RESULTS = 200, 1000, 6000
#: Failures among which `error_groups` looks for equal ones: the newest.
MAX_ERRORS = 2000
#: Characters of an error that tell it from others.
ERROR_KEY_LENGTH = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Runs planned from `since` until just before `until`, both on quarters of an hour (UTC)."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if quarter_start(self.since) != self.since or quarter_start(self.until) != self.until:
            raise InvalidInput(
                _("a window begins and ends on a quarter of an hour"), field="window"
            )
        if self.since >= self.until:
            raise InvalidInput(_("a window ends after it begins"), field="window")

    @classmethod
    def around(cls, since: datetime, until: datetime) -> Window:
        """The smallest one with both in it."""
        last = quarter_start(until)
        return cls(since=quarter_start(since), until=last if last == until else last + QUARTER)

    @classmethod
    def last(cls, span: timedelta, now: datetime) -> Window:
        """At least the time of that length that ends now, up to the end of this quarter."""
        return cls(since=quarter_start(now - span), until=quarter_start(now) + QUARTER)

    def starts(self, step: timedelta | None) -> tuple[datetime, ...]:
        """Where its buckets begin; without a step it is one. The last one may be shorter."""
        if step is None:
            return (self.since,)
        if step < QUARTER or step % QUARTER:
            raise InvalidInput(_("a step is a number of quarters of an hour"), field="step")
        number = -((self.since - self.until) // step)
        if number > MAX_BUCKETS:
            raise InvalidInput(
                _("these are {number} buckets, {most} at most", number=number, most=MAX_BUCKETS),
                field="step",
            )
        return tuple(self.since + place * step for place in range(number))


def quarter_start(moment: datetime) -> datetime:
    """When the quarter of an hour began in which it lies."""
    return moment - (moment - _EPOCH) % QUARTER


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """None means: any."""

    owner: Owner | None = None
    schedule_id: ScheduleId | None = None
    namespace: str | None = None
    #: Of the target: `http`, `task`, `flow`, ...
    kind: str | None = None
    origin: Origin | None = None


ALL_RUNS = RunFilter()


def matches_filter(run: Run, filter_: RunFilter, window: Window) -> bool:
    return (
        window.since <= run.planned_at < window.until
        and filter_.owner in (None, run.owner)
        and filter_.schedule_id in (None, run.schedule_id)
        and filter_.namespace in (None, run.namespace)
        and filter_.kind in (None, run.target.kind)
        and filter_.origin in (None, run.origin)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleCounts:
    total: int = 0
    enabled: int = 0
    #: Due within an hour, or overdue.
    due_soon: int = 0
    #: `FAILING_STREAK` or more failures in a row, paused ones included; None: nobody asked.
    failing: int | None = 0

    @property
    def paused(self) -> int:
        return self.total - self.enabled


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusCounts:
    """Runs by status; those that are not there have none."""

    #: Where its bucket begins.
    at: datetime
    statuses: Mapping[RunStatus, int] = field(default_factory=dict)

    def __getitem__(self, status: RunStatus) -> int:
        return self.statuses.get(status, 0)

    @property
    def total(self) -> int:
        return sum(self.statuses.values())

    @property
    def bad(self) -> int:
        return sum(self[status] for status in FAILED_STATUSES)

    @property
    def success_rate(self) -> float | None:
        """Of those that were carried out to an end, from 0 to 1; None: there were none."""
        judged = self.bad + self[RunStatus.SUCCEEDED]
        return self[RunStatus.SUCCEEDED] / judged if judged else None


def sum_counts(tallies: Iterable[StatusCounts], at: datetime) -> StatusCounts:
    """As one, e.g. the quarters of an hour of somebody's zone."""
    numbers: dict[RunStatus, int] = {}
    for tally in tallies:
        for status, number in tally.statuses.items():
            numbers[status] = numbers.get(status, 0) + number
    return StatusCounts(at=at, statuses=numbers)


@dataclass(frozen=True, kw_only=True, slots=True)
class LagBucket:
    """From planned to begun, of runs that came from slots and have begun."""

    at: datetime
    #: Who began them; None: anybody.
    node: NodeId | None = None
    lags: LagHistogram = NO_LAGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A run, as far as strips, sparklines and charts show it."""

    run_id: RunId
    status: RunStatus
    origin: Origin
    created_at: datetime
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def duration(self) -> timedelta | None:
        """From the begin of the first attempt to the end; None: it has not begun, or not ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at

    @property
    def lag(self) -> timedelta | None:
        """None: it has not begun, or no slot planned it."""
        return lag_of(self)


def result_of(run: Run) -> Result:
    return Result(
        run_id=run.id,
        status=run.status,
        origin=run.origin,
        created_at=run.created_at,
        planned_at=run.planned_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
    )


def lag_of(run: Run | Result) -> timedelta | None:
    """A backfill is late by intention, and what is run by hand or by a flow is planned when it is
    asked for: only slots tell how late the system is."""
    if run.started_at is None or run.origin is not Origin.SCHEDULE:
        return None
    return max(run.started_at - run.planned_at, timedelta(0))


def first_node(run: Run) -> NodeId:
    """Who began it."""
    found = run.attempts[0].node if run.attempts else run.holder
    return found or UNKNOWN_NODE


@dataclass(frozen=True, kw_only=True, slots=True)
class Streak:
    good: bool
    count: int
    #: The oldest of the results that were looked at belongs to it: there may be more.
    open: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleHealth:
    """A schedule on one line."""

    #: Newest first (created_at, id), in any state.
    results: tuple[Result, ...] = ()
    #: Median duration of the newest successes among them, `MEDIAN_SAMPLE` at most.
    median: timedelta | None = None
    #: None: none of them was carried out to an end.
    streak: Streak | None = None
    #: The newest success among them; an older one is in the schedule's `last_success_at`.
    last_good: Result | None = None


def assess_health(results: Sequence[Result]) -> ScheduleHealth:
    good = [result for result in results if result.status is RunStatus.SUCCEEDED]
    streak = streak_of(result.status for result in results)
    if streak is not None and len(results) < HEALTH_RESULTS:
        # These are all that there are.
        streak = replace(streak, open=False)
    return ScheduleHealth(
        results=tuple(results),
        median=median_duration(results),
        streak=streak,
        last_good=good[0] if good else None,
    )


def median_duration(results: Sequence[Result]) -> timedelta | None:
    """What to expect: failures are short or long for reasons of their own, so they do not count."""
    lengths = [
        result.finished_at - result.started_at
        for result in results
        if result.status is RunStatus.SUCCEEDED and result.started_at and result.finished_at
    ][:MEDIAN_SAMPLE]
    if not lengths:
        return None
    lengths.sort()
    middle = len(lengths) // 2
    return lengths[middle] if len(lengths) % 2 else (lengths[middle - 1] + lengths[middle]) / 2


def streak_of(statuses: Iterable[RunStatus]) -> Streak | None:
    """Newest first."""
    judged = [status is RunStatus.SUCCEEDED for status in statuses if status in CONCLUSIVE_STATUSES]
    if not judged:
        return None
    count = next((at for at, good in enumerate(judged) if good != judged[0]), len(judged))
    return Streak(good=judged[0], count=count, open=count == len(judged))


def is_failing(results: Sequence[Result]) -> bool:
    """By the newest results of a schedule."""
    judged = [result.status for result in results if result.status in CONCLUSIVE_STATUSES][
        :FAILING_STREAK
    ]
    return len(judged) == FAILING_STREAK and all(status in FAILED_STATUSES for status in judged)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorGroup:
    """Runs that ended badly in the same words."""

    error: str
    count: int
    #: When the first and the last of them were planned.
    first: datetime
    last: datetime
    #: The newest.
    example: RunId


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorGroups:
    #: The most frequent first, then the newest.
    groups: tuple[ErrorGroup, ...] = ()
    #: How many failures were looked at, and whether there are older ones in the window.
    failures: int = 0
    more: bool = False


# @@ Which schedules somebody should look at, and why.

#: Who pauses a schedule whose receiver wants no more calls.
ENGINE = "chimes"
#: How far back missed and late slots are looked for.
MISSED_WITHIN, LATE_WITHIN = timedelta(hours=24), timedelta(hours=1)


class IssueCause(StrEnum):
    """Why somebody should look at a schedule, the gravest first."""

    #: It could not be planned, or its receiver wants no more calls: nothing happens any more.
    STOPPED = "stopped"
    #: A secret or token is not accepted, by its receiver or by who is told of its results.
    REFUSED = "refused"
    FAILING = "failing"
    MISSED = "missed"
    LATE = "late"
    #: Its end has passed, and nobody has ended it.
    PAUSE_OVER = "pause_over"
    #: A change of the clocks is near, and moves or repeats one of its fires.
    CLOCK_CHANGE = "clock_change"


_SEVERITY = {cause: place for place, cause in enumerate(IssueCause)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleIssue:
    """That a schedule needs attention."""

    schedule_id: ScheduleId
    cause: IssueCause
    #: When it was last seen.
    at: datetime
    #: How often: runs, slots; for FAILING in a row, as far as a glance goes.
    count: int = 1
    #: The longest, of LATE.
    lag: timedelta | None = None
    #: The newest run that shows it.
    run_id: RunId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleAttention:
    """A schedule with the gravest of its signs."""

    schedule: Schedule
    sign: ScheduleIssue


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionList:
    #: Schedules in all.
    total: int = 0
    items: tuple[ScheduleAttention, ...] = ()


def most_severe(signs: Iterable[ScheduleIssue]) -> list[ScheduleIssue]:
    """One for each schedule, the gravest; then the newest first."""
    best: dict[ScheduleId, ScheduleIssue] = {}
    for sign in signs:
        known = best.get(sign.schedule_id)
        if known is None or _SEVERITY[sign.cause] < _SEVERITY[known.cause]:
            best[sign.schedule_id] = sign
    return sorted(
        best.values(),
        key=lambda sign: (_SEVERITY[sign.cause], -(sign.at - _EPOCH), sign.schedule_id),
    )


def merge_attention(found: AttentionList, more: Iterable[ScheduleAttention]) -> AttentionList:
    """With signs that the store does not look for. A schedule is there once, with its gravest."""
    known = {each.schedule.id: each for each in found.items}
    new = 0
    for each in more:
        before = known.get(each.schedule.id)
        new += before is None
        if before is None or _SEVERITY[each.sign.cause] < _SEVERITY[before.sign.cause]:
            known[each.schedule.id] = each
    order = most_severe(each.sign for each in known.values())
    items = tuple(known[sign.schedule_id] for sign in order)
    return AttentionList(total=found.total + new, items=items)


def stopped_by_error(schedule: Schedule) -> bool:
    """Nothing will come of it any more, and nobody wanted that: it was set aside because it could
    not be planned, or paused because its receiver is gone."""
    if not schedule.enabled:
        by_receiver = schedule.updated_by == ENGINE and schedule.pause_until is None
        return by_receiver and bool(schedule.pause_note)
    if schedule.next_run_at is not None or not schedule.last_error:
        return False
    if schedule.last_status is not RunStatus.FAILED or not has_runs_left(schedule):
        return False
    try:
        return schedule.trigger.next_after(schedule.last_slot or schedule.created_at) is not None
    except Exception:
        # What cannot be planned is what was set aside.
        return True
