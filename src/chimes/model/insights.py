"""Statistics for the dashboard: counts, lags, health and schedules that need attention.

Time buckets are quarters of an hour: every zone offset is a multiple of one, so hours and days of
any zone are sums of quarters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import NodeId, RunId, ScheduleId, stored_namespaces
from chimes.model.run import CONCLUSIVE_STATUSES, FAILED_STATUSES, Origin, Run, RunStatus
from chimes.model.schedule import Schedule, has_runs_left

# --- lag histogram: brackets from a millisecond to a month, each a fifth wider than the one before.
# Quantiles are within 10 % of the exact value (9.1 % at worst); below a millisecond reads as 0.

_MICROSECOND = timedelta(microseconds=1)
_GROWTH = 1.2
_SHORTEST, _LONGEST = 1_000, 31 * 86_400 * 1_000_000


def _bounds() -> tuple[int, ...]:
    found = [_SHORTEST]
    while found[-1] < _LONGEST:
        found.append(int(found[-1] * _GROWTH))
    return tuple(found)


#: Lower bounds of the brackets in microseconds. Stores keep bracket numbers: never change these.
BOUNDS = _bounds()


def bracket_of(lag: timedelta) -> int:
    """The number of the bracket."""
    return bracket_of_micros(lag // _MICROSECOND)


def bracket_of_micros(lag: int) -> int:
    return bisect_right(BOUNDS, lag)


def bracket_lag(bracket: int) -> timedelta:
    """The value that represents a bracket: the harmonic mean of its bounds."""
    if bracket <= 0:
        return timedelta(0)
    if bracket >= len(BOUNDS):
        return BOUNDS[-1] * _MICROSECOND
    low, high = BOUNDS[bracket - 1], BOUNDS[bracket]
    return (2 * low * high // (low + high)) * _MICROSECOND


class LagHistogram(Struct, frozen=True):
    #: Counts by bracket; missing brackets are empty.
    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> timedelta | None:
        """The lag that this share of the runs did not exceed; None without runs."""
        if not 0 < share <= 1:
            raise InvalidInput(_("a share must be above 0 and at most 1"), field="share")
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

#: Stands for an unknown node.
UNKNOWN_NODE = NodeId("?")
#: Statuses that count as failures.
#: Failures in a row from which a schedule counts as failing.
FAILING_STREAK = 2
#: For one schedule and for errors, runs created longer than this before the window are not
#: counted, so that the query is an index range.
MAX_PLANNING_LEAD = timedelta(days=1)
#: Buckets per query: a month of quarters.
MAX_BUCKETS = 3000
#: Results that decide the health of a schedule, and successes for its median.
HEALTH_RESULTS, MEDIAN_SAMPLE = 30, 20
#: Limits of `newest_results`: schedules, results per schedule, results in total.
MAX_SCHEDULES, MAX_RESULTS_PER_SCHEDULE, MAX_RESULTS = 200, 1000, 6000
#: The newest failures, which `error_groups` groups.
MAX_ERRORS = 2000
#: Characters of an error that identify its group.
ERROR_KEY_LENGTH = 500


def error_key(error: str) -> str:
    """The part of an error that identifies its group; a message that is short enough stays one."""
    return error if len(error) <= ERROR_KEY_LENGTH else error[:ERROR_KEY_LENGTH]


class Window(Struct, frozen=True, kw_only=True):
    """Runs planned from `since` until just before `until`, both on quarters of an hour (UTC)."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if quarter_start(self.since) != self.since or quarter_start(self.until) != self.until:
            raise InvalidInput(
                _("a window must begin and end on a quarter of an hour"), field="window"
            )
        if self.since >= self.until:
            raise InvalidInput(_("a window must end after it begins"), field="window")

    @classmethod
    def around(cls, since: datetime, until: datetime) -> Window:
        """The smallest window that contains both."""
        last = quarter_start(until)
        return cls(since=quarter_start(since), until=last if last == until else last + QUARTER)

    @classmethod
    def last(cls, span: timedelta, now: datetime) -> Window:
        """The last `span` until the end of the current quarter."""
        return cls(since=quarter_start(now - span), until=quarter_start(now) + QUARTER)

    def starts(self, step: timedelta | None) -> tuple[datetime, ...]:
        """Start times of the buckets; one bucket without a step. The last may be shorter."""
        if step is None:
            return (self.since,)
        if step < QUARTER or step % QUARTER:
            raise InvalidInput(_("a step must be a multiple of 15 minutes"), field="step")
        number = -((self.since - self.until) // step)
        if number > MAX_BUCKETS:
            raise InvalidInput(
                _("{number} buckets are more than {most}", number=number, most=MAX_BUCKETS),
                field="step",
            )
        return tuple(self.since + place * step for place in range(number))


def quarter_start(moment: datetime) -> datetime:
    """The start of the quarter of an hour that contains the moment."""
    return moment - (moment - _EPOCH) % QUARTER


class RunFilter(Struct, frozen=True, kw_only=True):
    """None: any."""

    owner: Owner | None = None
    schedule_id: ScheduleId | None = None
    namespace: str | None = None
    #: Kind of the target: `http`, `task`, `flow`, ...
    kind: str | None = None
    origin: Origin | None = None


ALL_RUNS = RunFilter()


def matches_filter(run: Run, filter_: RunFilter, window: Window) -> bool:
    return (
        window.since <= run.planned_at < window.until
        and filter_.owner in (None, run.owner)
        and filter_.schedule_id in (None, run.schedule_id)
        and (filter_.namespace is None or run.namespace in stored_namespaces(filter_.namespace))
        and filter_.kind in (None, run.target.kind)
        and filter_.origin in (None, run.origin)
    )


class ScheduleCounts(Struct, frozen=True, kw_only=True):
    total: int = 0
    enabled: int = 0
    #: Due within an hour, or overdue.
    due_soon: int = 0
    #: `FAILING_STREAK` or more failures in a row, including paused schedules; None: not counted.
    failing: int | None = 0

    @property
    def paused(self) -> int:
        return self.total - self.enabled


class StatusCounts(Struct, frozen=True, kw_only=True):
    """Runs by status; missing statuses are 0."""

    #: Start of the bucket.
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
        """Successes among conclusive and missed runs, from 0 to 1; None without any."""
        expected = self.bad + self[RunStatus.MISSED] + self[RunStatus.SUCCEEDED]
        return self[RunStatus.SUCCEEDED] / expected if expected else None


def sum_counts(several: Iterable[StatusCounts], at: datetime) -> StatusCounts:
    """Merge buckets, e.g. quarters into hours of a zone."""
    numbers: dict[RunStatus, int] = {}
    for counts in several:
        for status, number in counts.statuses.items():
            numbers[status] = numbers.get(status, 0) + number
    return StatusCounts(at=at, statuses=numbers)


class LagBucket(Struct, frozen=True, kw_only=True):
    """Lags (planned to started) of scheduled runs that have started."""

    at: datetime
    #: The node that started them; None: all nodes.
    node: NodeId | None = None
    lags: LagHistogram = NO_LAGS


class Result(Struct, frozen=True, kw_only=True):
    """The fields of a run that charts show."""

    run_id: RunId
    status: RunStatus
    origin: Origin
    created_at: datetime
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def duration(self) -> timedelta | None:
        """From the start of the first attempt to the end, or None."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at

    @property
    def lag(self) -> timedelta | None:
        """None: not started, or not scheduled."""
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
    """Planned to started, only of scheduled runs: backfills are late by intention, manual runs and
    steps are planned when requested."""
    if run.started_at is None or run.origin is not Origin.SCHEDULE:
        return None
    return max(run.started_at - run.planned_at, timedelta(0))


def first_node(run: Run) -> NodeId:
    """The node of the first attempt."""
    found = run.attempts[0].node if run.attempts else run.holder
    return found or UNKNOWN_NODE


class Streak(Struct, frozen=True, kw_only=True):
    good: bool
    count: int
    #: The streak includes the oldest result that was read, so it may be longer.
    open: bool


class ScheduleHealth(Struct, frozen=True, kw_only=True):
    """Recent results of a schedule and what follows from them."""

    #: Newest first (created_at, id), in any state.
    results: tuple[Result, ...] = ()
    #: Median duration of the newest successes among them, `MEDIAN_SAMPLE` at most.
    median: timedelta | None = None
    #: None without conclusive results.
    streak: Streak | None = None
    #: The newest success among them; an older one is in the schedule's `last_success_at`.
    last_good: Result | None = None


def assess_health(results: Sequence[Result]) -> ScheduleHealth:
    good = [result for result in results if result.status is RunStatus.SUCCEEDED]
    streak = streak_of((result.status for result in results), judged=_EXPECTED_STATUSES)
    if streak is not None and len(results) < HEALTH_RESULTS:
        # All results were read.
        streak = replace(streak, open=False)
    return ScheduleHealth(
        results=tuple(results),
        median=median_duration(results),
        streak=streak,
        last_good=good[0] if good else None,
    )


def median_duration(results: Sequence[Result]) -> timedelta | None:
    """Median of successes; failures say nothing about the usual duration."""
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


#: A missed run ends a streak of successes, as a failed one.
_EXPECTED_STATUSES = CONCLUSIVE_STATUSES | {RunStatus.MISSED}


def streak_of(
    statuses: Iterable[RunStatus], *, judged: Collection[RunStatus] = CONCLUSIVE_STATUSES
) -> Streak | None:
    """Newest first."""
    good = [status is RunStatus.SUCCEEDED for status in statuses if status in judged]
    if not good:
        return None
    count = next((at for at, each in enumerate(good) if each != good[0]), len(good))
    return Streak(good=good[0], count=count, open=count == len(good))


def is_failing(results: Sequence[Result]) -> bool:
    """Whether the newest conclusive results are failures."""
    judged = [result.status for result in results if result.status in CONCLUSIVE_STATUSES][
        :FAILING_STREAK
    ]
    return len(judged) == FAILING_STREAK and all(status in FAILED_STATUSES for status in judged)


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Failed runs with the same error."""

    error: str
    count: int
    #: When the first and the last of them were planned.
    first: datetime
    last: datetime
    #: The newest.
    example: RunId


class ErrorGroups(Struct, frozen=True, kw_only=True):
    #: The most frequent first, then the newest.
    groups: tuple[ErrorGroup, ...] = ()
    #: Failures that were read, and whether the window has older ones.
    failures: int = 0
    more: bool = False


# --- schedules that need attention

#: `updated_by` of a schedule that was paused because of 410 Gone.
ENGINE = "chimes"
#: Periods in which missed and late slots are searched.
MISSED_WITHIN, LATE_WITHIN = timedelta(hours=24), timedelta(hours=1)


class IssueCause(StrEnum):
    """Why a schedule needs attention, most severe first."""

    #: It could not be planned, or its receiver answered 410 Gone.
    STOPPED = "stopped"
    #: The receiver or a notification channel rejected a credential.
    REFUSED = "refused"
    #: No node has a setting that it needs, or its callback is denied.
    NOT_CONFIGURED = "not_configured"
    FAILING = "failing"
    MISSED = "missed"
    LATE = "late"
    #: The end of the pause has passed.
    PAUSE_OVER = "pause_over"
    #: New time-zone or holiday data move one of its fires.
    TIME_DATA = "time_data"
    #: A clock change will move or repeat one of its fires.
    CLOCK_CHANGE = "clock_change"


_SEVERITY = {cause: place for place, cause in enumerate(IssueCause)}


class ScheduleIssue(Struct, frozen=True, kw_only=True):
    """One reason why a schedule needs attention."""

    schedule_id: ScheduleId
    cause: IssueCause
    #: When it was last seen.
    at: datetime
    #: Number of runs or slots; for FAILING the streak.
    count: int = 1
    #: The longest, for LATE.
    lag: timedelta | None = None
    #: The newest run that shows it.
    run_id: RunId | None = None


class ScheduleAttention(Struct, frozen=True, kw_only=True):
    """A schedule with its most severe issue."""

    schedule: Schedule
    sign: ScheduleIssue


class AttentionList(Struct, frozen=True, kw_only=True):
    #: Number of schedules.
    total: int = 0
    items: tuple[ScheduleAttention, ...] = ()


def most_severe(signs: Iterable[ScheduleIssue]) -> list[ScheduleIssue]:
    """The most severe issue of each schedule, sorted by severity, newest first."""
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
    """Add issues that the store does not search for."""
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
    """Whether it was stopped because it could not be planned, or paused because of 410 Gone or of
    failures in a row."""
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
        # It cannot be planned.
        return True
