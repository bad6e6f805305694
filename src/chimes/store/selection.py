"""Queries and statistics in Python, for in-memory stores; the reference for the other stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from chimes.clock import to_micros
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, RunId, ScheduleId, stored_namespaces
from chimes.model.insights import (
    FAILING_STREAK,
    LATE_WITHIN,
    MAX_ERRORS,
    MAX_PLANNING_LEAD,
    MAX_RESULTS,
    MAX_RESULTS_PER_SCHEDULE,
    MAX_SCHEDULES,
    MISSED_WITHIN,
    ErrorGroup,
    ErrorGroups,
    IssueCause,
    LagBucket,
    LagHistogram,
    Result,
    RunFilter,
    ScheduleCounts,
    ScheduleIssue,
    StatusCounts,
    Window,
    bracket_of,
    error_key,
    first_node,
    is_failing,
    lag_of,
    matches_filter,
    stopped_by_error,
    streak_of,
)
from chimes.model.listing import (
    AuditQuery,
    DeliveryQuery,
    InboxQuery,
    Page,
    Position,
    RunQuery,
    RunSort,
    ScheduleQuery,
    ScheduleSort,
)
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import FAILED_STATUSES, Origin, Run, RunStatus
from chimes.model.schedule import Schedule


def matches_audit(entry: AuditEntry, query: AuditQuery) -> bool:
    return (
        query.owner in (None, entry.owner)
        and query.object_id in (None, entry.object_id)
        and (query.object_ids is None or entry.object_id in query.object_ids)
        and query.verb in (None, entry.verb)
        and (query.verbs is None or entry.verb in query.verbs)
        and query.actor in (None, entry.actor)
        and query.interface in (None, entry.interface)
        and (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at <= query.until)
        and (query.before is None or entry.number < query.before)
    )


def group_by_zone(
    found: Iterable[tuple[str | None, ScheduleId]],
) -> dict[str, tuple[ScheduleId, ...]]:
    """Skips schedules with an unknown zone (None)."""
    zones: dict[str, list[ScheduleId]] = {}
    for zone, schedule_id in found:
        if zone is not None:
            zones.setdefault(zone, []).append(schedule_id)
    return {zone: tuple(sorted(ids)) for zone, ids in zones.items()}


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=_Identified)
Value = str | int | None


def select_schedules(rows: Iterable[Schedule], query: ScheduleQuery) -> Page[Schedule]:
    chosen = [row for row in rows if matches_schedule(row, query)]
    return page(
        chosen,
        lambda row: schedule_value(row, query.sort),
        descending=query.descending,
        after=query.after,
        limit=query.limit,
    )


def select_runs(rows: Iterable[Run], query: RunQuery) -> Page[Run]:
    chosen = [row for row in rows if matches_run(row, query)]
    return page(
        chosen,
        lambda row: run_value(row, query.sort),
        descending=query.descending,
        after=query.after,
        limit=query.limit,
    )


def select_deliveries(rows: Iterable[Delivery], query: DeliveryQuery) -> Page[Delivery]:
    chosen = [row for row in rows if matches_delivery(row, query)]
    return page(
        chosen,
        lambda row: to_micros(row.created_at),
        descending=True,
        after=query.after,
        limit=query.limit,
    )


def select_inbox(rows: Iterable[InboxItem], query: InboxQuery) -> Page[InboxItem]:
    chosen = [row for row in rows if matches_inbox(row, query)]
    return page(
        chosen,
        lambda row: to_micros(row.created_at),
        descending=True,
        after=query.after,
        limit=query.limit,
    )


def schedule_value(row: Schedule, sort: ScheduleSort) -> Value:
    if sort is ScheduleSort.NAME:
        return row.name
    moment = {
        ScheduleSort.NEXT_RUN_AT: row.next_run_at,
        ScheduleSort.CREATED_AT: row.created_at,
        ScheduleSort.UPDATED_AT: row.updated_at,
    }[sort]
    return None if moment is None else to_micros(moment)


def run_value(row: Run, sort: RunSort) -> int:
    return to_micros(row.created_at if sort is RunSort.CREATED_AT else row.planned_at)


def matches_schedule(row: Schedule, query: ScheduleQuery) -> bool:
    return (
        row.deleted_at is None
        and (query.ids is None or row.id in query.ids)
        and (not query.last_statuses or row.last_status in query.last_statuses)
        and query.owner in (None, row.owner)
        and (query.namespace is None or row.namespace in stored_namespaces(query.namespace))
        and query.name in (None, row.name)
        and (query.text is None or query.text in row.name)
        and query.enabled in (None, row.enabled)
        and query.kind in (None, row.target.kind)
        and (not query.triggers or row.trigger.kind in query.triggers)
        and all(getattr(row.target, name, None) == value for name, value in query.target)
        and (query.due_by is None or _due_by(row, query.due_by))
        and (query.label is None or query.label in row.labels)
        and (query.label_value is None or row.labels.get(query.label or "") == query.label_value)
    )


def _due_by(row: Schedule, moment: datetime) -> bool:
    return row.next_run_at is not None and row.next_run_at <= moment


def matches_run(row: Run, query: RunQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and (query.namespace is None or row.namespace in stored_namespaces(query.namespace))
        and query.schedule_id in (None, row.schedule_id)
        and (not query.statuses or row.status in query.statuses)
        and query.origin in (None, row.origin)
        and query.parent_id in (None, row.parent_id)
        and query.holder in (None, row.holder)
        and (query.ids is None or row.id in query.ids)
        and query.requirement in (None, row.target.requirement)
        and query.concurrency_key in (None, row.concurrency_key)
        and (query.since is None or row.planned_at >= query.since)
        and (query.until is None or row.planned_at < query.until)
        and (query.created_since is None or row.created_at >= query.created_since)
        and (query.created_until is None or row.created_at <= query.created_until)
    )


def matches_delivery(row: Delivery, query: DeliveryQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and query.run_id in (None, row.run_id)
        and query.schedule_id in (None, row.schedule_id)
        and (not query.states or row.state in query.states)
        and (query.run_ids is None or row.run_id in query.run_ids)
        and query.channel in (None, row.recipient.channel)
        and (query.ids is None or row.id in query.ids)
    )


def matches_inbox(row: InboxItem, query: InboxQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and query.run_id in (None, row.run_id)
        and query.schedule_id in (None, row.schedule_id)
        and query.unread in (None, row.read_at is None)
        and query.starred in (None, row.starred)
        and query.archived in (None, row.archived_at is not None)
        and (not query.statuses or row.status in query.statuses)
        and (
            query.awake_at is None
            or row.snoozed_until is None
            or row.snoozed_until <= query.awake_at
        )
        and (
            query.asleep_at is None
            or (row.snoozed_until is not None and row.snoozed_until > query.asleep_at)
        )
    )


def page(
    rows: list[Row],
    value: Callable[[Row], Value],
    *,
    descending: bool,
    after: Position | None,
    limit: int | None,
) -> Page[Row]:
    """Rows without a value come last in both directions; ids break ties in the sort direction."""
    with_value = sorted(
        (row for row in rows if value(row) is not None),
        key=lambda row: (value(row), row.id),
        reverse=descending,
    )
    without = sorted(
        (row for row in rows if value(row) is None), key=lambda row: row.id, reverse=descending
    )
    ordered = with_value + without
    if after is not None:
        ordered = [row for row in ordered if _beyond((value(row), row.id), after, descending)]
    if limit is None or len(ordered) <= limit:
        return Page(tuple(ordered), None)
    chosen = ordered[:limit]
    return Page(tuple(chosen), (value(chosen[-1]), chosen[-1].id))


def _beyond(position: Position, after: Position, descending: bool) -> bool:
    value, row_id = position
    last, last_id = after
    if (value is None) != (last is None):
        return value is None
    if value == last:
        return row_id < last_id if descending else row_id > last_id
    if isinstance(value, str) and isinstance(last, str):
        return value < last if descending else value > last
    assert isinstance(value, int)
    assert isinstance(last, int)
    return value < last if descending else value > last


# --- statistics

HOUR = timedelta(hours=1)


def count_schedules(
    matching: Sequence[Schedule], failing: int | None, now: datetime
) -> ScheduleCounts:
    return ScheduleCounts(
        total=len(matching),
        enabled=sum(each.enabled for each in matching),
        due_soon=sum(
            each.enabled and each.next_run_at is not None and each.next_run_at <= now + HOUR
            for each in matching
        ),
        failing=failing,
    )


def may_be_failing(schedule: Schedule) -> bool:
    """Whether its runs must be read to decide."""
    return schedule.last_status not in (None, RunStatus.SUCCEEDED)


def in_window(run: Run, window: Window, filter_: RunFilter) -> bool:
    made = filter_.schedule_id is None or run.created_at >= window.since - MAX_PLANNING_LEAD
    return made and matches_filter(run, filter_, window)


def bucket_index(moment: datetime, window: Window, step: timedelta | None) -> int:
    """The index of the bucket that contains the moment."""
    return 0 if step is None else (moment - window.since) // step


def count_statuses(
    found: Iterable[tuple[int, RunStatus, int]], window: Window, step: timedelta | None
) -> tuple[StatusCounts, ...]:
    """`found`: bucket index, status, count."""
    numbers: dict[int, dict[RunStatus, int]] = {}
    for place, status, number in found:
        if number:
            counts = numbers.setdefault(place, {})
            counts[status] = counts.get(status, 0) + number
    return tuple(
        [
            StatusCounts(at=at, statuses=numbers.get(place, {}))
            for place, at in enumerate(window.starts(step))
        ]
    )


def lag_buckets(
    found: Iterable[tuple[int, NodeId | None, int, int]],
    window: Window,
    step: timedelta | None,
    *,
    by_node: bool,
) -> tuple[LagBucket, ...]:
    """`found`: bucket index, node (None: all), bracket, count. By node, empty buckets are left
    out."""
    starts = window.starts(step)
    numbers: dict[tuple[int, NodeId | None], dict[int, int]] = {}
    if not by_node:
        numbers = {(place, None): {} for place in range(len(starts))}
    for place, node, bracket, number in found:
        if number:
            counts = numbers.setdefault((place, node), {})
            counts[bracket] = counts.get(bracket, 0) + number
    return tuple(
        LagBucket(at=starts[place], node=node, lags=LagHistogram(counts))
        for (place, node), counts in sorted(numbers.items(), key=_by_place_and_node)
    )


def _by_place_and_node(item: tuple[tuple[int, NodeId | None], object]) -> tuple[int, str]:
    (place, node), _unused = item
    return place, node or ""


def start_lag(run: Run, *, by_node: bool) -> tuple[NodeId | None, int] | None:
    """The node that started the run and the bracket of its lag; None without a lag."""
    lag = lag_of(run)
    if lag is None:
        return None
    return (first_node(run) if by_node else None), bracket_of(lag)


def check_by_node(owner: Owner | None, *, by_node: bool) -> None:
    if by_node and owner is not None:
        raise InvalidInput(_("lags by node are available only for all owners"), field="by_node")


def check_newest(schedule_ids: Iterable[ScheduleId], each: int) -> list[ScheduleId]:
    """Check the limits and drop duplicates."""
    ids = list(dict.fromkeys(schedule_ids))
    if len(ids) > MAX_SCHEDULES or each > MAX_RESULTS_PER_SCHEDULE or len(ids) * each > MAX_RESULTS:
        raise InvalidInput(
            _(
                "{each} results of {number} schedules are too many for one query",
                each=each,
                number=len(ids),
            )
        )
    return ids


def newest_first(run: Run | Result) -> tuple[datetime, str]:
    """Sort key, for use with reverse=True."""
    return run.created_at, run.run_id if isinstance(run, Result) else run.id


# --- attention ----------------------------------------------------------------------------------
class Finding(NamedTuple):
    """A run that shows an issue of its schedule."""

    schedule_id: ScheduleId
    run_id: RunId
    planned_at: datetime
    number: int = 1
    lag: timedelta | None = None


def issues_from(cause: IssueCause, seen: Iterable[Finding]) -> list[ScheduleIssue]:
    found: dict[ScheduleId, list[Finding]] = {}
    for each in seen:
        found.setdefault(each.schedule_id, []).append(each)
    signs = []
    for schedule_id, runs in found.items():
        newest = max(runs, key=lambda run: (run.planned_at, run.run_id))
        lags = [run.lag for run in runs if run.lag is not None]
        sign = ScheduleIssue(
            schedule_id=schedule_id,
            cause=cause,
            at=newest.planned_at,
            count=sum(run.number for run in runs),
            lag=max(lags, default=None),
            run_id=newest.run_id,
        )
        signs.append(sign)
    return signs


def find_missed(runs: Iterable[Run], now: datetime) -> list[Finding]:
    return [
        Finding(run.schedule_id, run.id, run.planned_at, max(1, run.missed_count))
        for run in runs
        if run.status is RunStatus.MISSED
        and run.schedule_id is not None
        and run.created_at >= now - MISSED_WITHIN
    ]


def find_late(runs: Iterable[Run], now: datetime, late: timedelta) -> list[Finding]:
    found = []
    for run in runs:
        lag = _late_by(run, now)
        if run.schedule_id is not None and lag is not None and lag > late:
            found.append(Finding(run.schedule_id, run.id, run.planned_at, lag=lag))
    return found


def _late_by(run: Run, now: datetime) -> timedelta | None:
    if run.origin is not Origin.SCHEDULE:
        return None
    if run.started_at is None:
        return now - run.planned_at if run.claimable else None
    return lag_of(run) if now - LATE_WITHIN <= run.planned_at <= now else None


def overdue_issues(
    due: Mapping[ScheduleId, datetime], known: Iterable[ScheduleIssue], now: datetime
) -> list[ScheduleIssue]:
    """Schedules that are overdue and have no late run."""
    reported = {issue.schedule_id for issue in known}
    return [
        ScheduleIssue(schedule_id=schedule_id, cause=IssueCause.LATE, at=at, lag=now - at)
        for schedule_id, at in due.items()
        if schedule_id not in reported
    ]


def schedule_issues(schedules: Iterable[Schedule], now: datetime) -> list[ScheduleIssue]:
    """Issues that follow from the schedule alone."""
    signs = []
    for each in schedules:
        if stopped_by_error(each):
            signs.append(
                ScheduleIssue(schedule_id=each.id, cause=IssueCause.STOPPED, at=each.updated_at)
            )
        elif not each.enabled and each.pause_until is not None and each.pause_until <= now:
            signs.append(
                ScheduleIssue(schedule_id=each.id, cause=IssueCause.PAUSE_OVER, at=each.pause_until)
            )
    return signs


def failing_issue(schedule: Schedule, results: Sequence[Result]) -> ScheduleIssue | None:
    """From the newest results of the schedule."""
    if not schedule.enabled or not is_failing(results):
        return None
    return ScheduleIssue(
        schedule_id=schedule.id,
        cause=IssueCause.FAILING,
        at=next(result.planned_at for result in results if result.status in FAILED_STATUSES),
        count=FAILING_STREAK,
    )


def count_streak(sign: ScheduleIssue, results: Sequence[tuple[RunId, RunStatus]]) -> ScheduleIssue:
    """Set count and newest run of a FAILING issue from the results, newest first."""
    streak = streak_of(status for _unused, status in results)
    if sign.cause is not IssueCause.FAILING or streak is None or streak.good:
        return sign
    newest = next(run_id for run_id, status in results if status in FAILED_STATUSES)
    return replace(sign, count=max(FAILING_STREAK, streak.count), run_id=newest)


def run_statuses(results: Iterable[Result]) -> list[tuple[RunId, RunStatus]]:
    return [(result.run_id, result.status) for result in results]


# --- errors -------------------------------------------------------------------------------------
class Failure(NamedTuple):
    run_id: RunId
    created_at: datetime
    planned_at: datetime
    #: Its first `ERROR_KEY_LENGTH` characters.
    error: str


def find_failures(runs: Iterable[Run], window: Window, filter_: RunFilter) -> list[Failure]:
    return [
        Failure(run.id, run.created_at, run.planned_at, error_key(run.error))
        for run in runs
        if run.status in FAILED_STATUSES
        and run.created_at >= window.since - MAX_PLANNING_LEAD
        and matches_filter(run, filter_, window)
    ]


def group_errors(failures: Iterable[Failure], limit: int) -> ErrorGroups:
    """More than `MAX_ERRORS` failures set `more`."""
    newest = sorted(failures, key=lambda each: (each.created_at, each.run_id), reverse=True)
    found: dict[str, list[Failure]] = {}
    for each in newest[:MAX_ERRORS]:
        found.setdefault(each.error, []).append(each)
    groups = [
        ErrorGroup(
            error=error,
            count=len(same),
            first=min(each.planned_at for each in same),
            last=max(each.planned_at for each in same),
            example=same[0].run_id,
        )
        for error, same in found.items()
    ]
    return ErrorGroups(
        groups=tuple(_by_weight(groups)[:limit]),
        failures=min(len(newest), MAX_ERRORS),
        more=len(newest) > MAX_ERRORS,
    )


def _by_weight(groups: Iterable[ErrorGroup]) -> list[ErrorGroup]:
    by_text = sorted(groups, key=lambda group: group.error)
    return sorted(by_text, key=lambda group: (group.count, group.last), reverse=True)


def has_owner(owner: Owner | None, row: Run | Schedule) -> bool:
    return owner in (None, row.owner)
