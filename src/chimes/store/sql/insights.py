"""Counts and lists for the dashboard: read from rollups, and from indexes for newer runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    text,
    union_all,
)

from chimes.clock import EPOCH, MICROSECOND
from chimes.i18n import from_stored
from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    ENGINE,
    FAILING_STREAK,
    HEALTH_RESULTS,
    LATE_WITHIN,
    MAX_ERRORS,
    MAX_SCHEDULES,
    MISSED_WITHIN,
    QUARTER,
    AttentionList,
    ErrorGroups,
    IssueCause,
    LagBucket,
    Result,
    RunFilter,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleIssue,
    StatusCounts,
    Window,
    bracket_of,
    error_key,
    most_severe,
)
from chimes.model.listing import Counts, ScheduleQuery
from chimes.model.notification import DeliveryState
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.selection import (
    HOUR,
    Failure,
    Finding,
    count_statuses,
    count_streak,
    group_errors,
    issues_from,
    lag_buckets,
    overdue_issues,
    schedule_issues,
)
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.statistics import StatisticsDialect
from chimes.store.sql.listing import has_status, owned, schedule_conditions
from chimes.store.sql.rollups import (
    CURRENT_RUNS,
    STARTED,
    any_late,
    failures,
    has_problem,
    lags,
    node_lags_of,
    parameters_for,
    status_statements,
    tallies,
)
from chimes.store.sql.rows.access import SELECT_RUNS, SELECT_SCHEDULES, decode_runs, decode_schedule
from chimes.store.sql.rows.values import (
    STATUSES,
    maybe_moment,
    micros,
    moment_of,
    schedule_number,
)
from chimes.store.sql.tables import (
    CLAIMABLE,
    DUE,
    PRESENT,
    UNSUCCESSFUL,
    cursors,
    definitions,
    deliveries,
    queue,
    runs,
    schedule_rows,
    schedule_stats,
    schedules,
)

# The newest runs of each of many schedules, in one statement (`StatisticsDialect.newest`).

#: Creation time and id of a run, by their position in `NEWEST`.
_AGE = itemgetter(4, 1)
_ORIGINS = {origin.value: origin for origin in Origin}


def newest_results(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: Owner | None = None
) -> dict[ScheduleId, tuple[Result, ...]]:
    whose = None if owner is None else (owner.type.value, owner.id)
    found = _newest(tx, ids, each, whose)
    return {name: tuple(map(_result, rows)) for name, rows in found.items()}


def newest_ends(
    tx: Tx, ids: Sequence[ScheduleId], each: int
) -> dict[ScheduleId, list[tuple[RunId, RunStatus]]]:
    """Returns the statuses of the newest runs of each schedule, newest first."""
    found = _newest(tx, ids, each, None)
    return {
        name: [(RunId(row[1]), STATUSES[row[2]]) for row in rows] for name, rows in found.items()
    }


def _newest(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: tuple[str, str] | None
) -> dict[ScheduleId, list[Sequence[Any]]]:
    """Returns rows newest first, by (created_at, id)."""
    if not ids:
        return {}
    keys = {name: schedule_number(name) for name in ids}
    found: dict[int, list[Sequence[Any]]] = {}
    for row in tx.dialect.statistics.newest(tx.connection, list(keys.values()), each, owner):
        found.setdefault(row[0], []).append(row)
    for rows in found.values():
        rows.sort(key=_AGE, reverse=True)
    return {name: found[key] for name, key in keys.items() if key in found}


def _result(row: Sequence[Any]) -> Result:
    """Columns are read by position, as in `NEWEST`. Times are not cached (`moment_of`): there are
    thousands, and few are equal."""
    _, run_id, status, origin, created_at, planned_at, started_at, finished_at, running_since = row
    created = EPOCH + timedelta(0, 0, created_at)
    started_at = running_since if started_at is None else started_at
    return Result(
        run_id=run_id,
        status=STATUSES[status] if running_since is None else RunStatus.RUNNING,
        origin=_ORIGINS[origin],
        created_at=created,
        planned_at=created if planned_at == created_at else EPOCH + timedelta(0, 0, planned_at),
        started_at=None if started_at is None else EPOCH + timedelta(0, 0, started_at),
        finished_at=None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
    )


# Schedules that need attention: each cause is one query on an index or on the table of schedules,
# and returns issues instead of whole rows.

#: The most issues of one cause that a page can use.
MAX_ISSUES_PER_CAUSE = 1000
_ENABLED = schedules.c.enabled == 1
_PAUSED = text("enabled = 0")
#: Enabled and not deleted.
_LIVE = text("live = 1")


class Statements:
    """Statements built once, because building one takes longer than executing most of them. The
    parameters come from `_AttentionQuery`."""

    def __init__(self, statistics: StatisticsDialect, *, owned: bool) -> None:
        whose: list[Any] = []
        if owned:
            whose.append(schedules.c.owner_type == bindparam("owner_type"))
            whose.append(schedules.c.owner_id == bindparam("owner_id"))
        present = [text(PRESENT), *whose]
        of_slots = runs.c.origin == Origin.SCHEDULE.value
        self.stopped_or_failing = _stopped_or_failing(statistics, whose)
        self.missed = _runs_with_issue(
            has_problem(RunStatus.MISSED),
            runs.c.created_at >= bindparam("missed_since"),
            *present,
        )
        self.started_late = _runs_with_issue(
            runs.c.planned_at >= bindparam("late_since"),
            runs.c.planned_at <= bindparam("now"),
            of_slots,
            STARTED - runs.c.planned_at > bindparam("late"),
            *present,
            _ENABLED,
        )
        waiting = select(queue.c.run_id).where(
            text(CLAIMABLE), queue.c.planned_at < bindparam("late_before")
        )
        self.waiting = _runs_with_issue(
            runs.c.id.in_(waiting), of_slots, runs.c.started_at.is_(None), *present, _ENABLED
        )
        self.overdue = (
            select(schedules.c.id, cursors.c.next_run_at)
            .join_from(cursors, schedules, schedules.c.key == cursors.c.schedule)
            .where(text(DUE), cursors.c.next_run_at < bindparam("late_before"), *whose)
        )


@cache
def statements(statistics: StatisticsDialect, *, owned: bool) -> Statements:
    return Statements(statistics, owned=owned)


def _stopped_or_failing(statistics: StatisticsDialect, whose: Sequence[Any]) -> CompoundSelect[Any]:
    """Schedules that stopped, whose pause has ended, or that may be failing: scans of two small
    indexes, and for those whose last run did not succeed one scan of their newest runs."""
    columns = schedules.c
    stopped = and_(
        cursors.c.next_run_at.is_(None),
        schedule_stats.c.last_status == RunStatus.FAILED.value,
        schedule_stats.c.last_error != "",
    )
    doubted_at = case((stopped, columns.updated_at)).label("doubted_at")
    by_receiver = and_(
        columns.updated_by == ENGINE, columns.pause_until.is_(None), columns.pause_note != ""
    )
    return union_all(
        select(columns.id, doubted_at, statistics.judged.label("judged"))
        .select_from(schedule_rows)
        .where(text(UNSUCCESSFUL), _LIVE, *whose),
        select(columns.id, columns.updated_at, literal_column("''")).where(
            text(PRESENT),
            _PAUSED,
            or_(columns.pause_until <= bindparam("now"), by_receiver),
            *whose,
        ),
    )


def _runs_with_issue(*conditions: Any) -> Select[Any]:
    """Runs with their schedules, which are looked up for each run found. In the other direction,
    which some planners prefer, all runs of all those schedules would be read."""
    found_key = runs.c.schedule + literal_column("0")
    columns = (
        schedules.c.id.label("schedule_id"),
        runs.c.id,
        runs.c.planned_at,
        STARTED.label("started_at"),
        runs.c.missed_count,
    )
    return (
        select(*columns)
        .select_from(CURRENT_RUNS.join(schedules, schedules.c.key == found_key))
        .where(*conditions)
    )


def needing_attention(tx: Tx, owner: Owner | None, late: timedelta, limit: int) -> AttentionList:
    asked = _AttentionQuery(tx, owner, late)
    found = most_severe([*asked.stopped_or_failing(), *asked.missed(), *asked.late()])
    shown = found[: min(limit, MAX_SCHEDULES)]
    return AttentionList(total=len(found), items=tuple(_items(tx, shown)))


class _AttentionQuery:
    def __init__(self, tx: Tx, owner: Owner | None, late: timedelta) -> None:
        self._tx = tx
        self._now = now = tx.now()
        hour = Window.last(LATE_WITHIN, now)
        self._statements = statements(tx.dialect.statistics, owned=owner is not None)
        self._parameters: dict[str, object] = {
            "now": micros(now),
            "missed_since": micros(now - MISSED_WITHIN),
            "late_since": micros(now - LATE_WITHIN),
            "late_before": micros(now - late),
            "late": late // MICROSECOND,
            "least": bracket_of(late),
            "since": micros(hour.since),
            "until": micros(hour.until),
        }
        if owner is not None:
            self._parameters |= {"owner_type": owner.type.value, "owner_id": owner.id}

    def stopped_or_failing(self) -> Iterator[ScheduleIssue]:
        found = self._tx.rows(self._statements.stopped_or_failing, self._parameters)
        doubtful = sorted((-row.doubted_at, row.id) for row in found if row.doubted_at is not None)
        ids = [schedule_id for _, schedule_id in doubtful[:MAX_ISSUES_PER_CAUSE]]
        yield from schedule_issues(_load_schedules(self._tx, ids).values(), self._now)
        for row in found:
            at = _failing_since(row.judged or "")
            if at is not None:
                yield ScheduleIssue(
                    schedule_id=row.id,
                    cause=IssueCause.FAILING,
                    at=at,
                    count=FAILING_STREAK,
                    lag=None,
                    run_id=None,
                )

    def missed(self) -> list[ScheduleIssue]:
        findings = [
            Finding(
                ScheduleId(row.schedule_id),
                RunId(row.id),
                moment_of(row.planned_at),
                row.missed_count or 1,
            )
            for row in self._tx.rows(self._statements.missed, self._parameters)
        ]
        return issues_from(IssueCause.MISSED, findings)

    def late(self) -> list[ScheduleIssue]:
        asked = [self._statements.waiting]
        # The rollups usually show that no run of the last hour needs a look.
        if self._tx.first(any_late(), self._parameters) is not None:
            asked.append(self._statements.started_late)
        findings = [
            Finding(
                ScheduleId(row.schedule_id),
                RunId(row.id),
                moment_of(row.planned_at),
                lag=(maybe_moment(row.started_at) or self._now) - moment_of(row.planned_at),
            )
            for statement in asked
            for row in self._tx.rows(statement, self._parameters)
        ]
        rows = self._tx.rows(self._statements.overdue, self._parameters)
        due = {ScheduleId(row.id): moment_of(row.next_run_at) for row in rows}
        issues = issues_from(IssueCause.LATE, findings)
        return [*issues, *overdue_issues(due, issues, self._now)]


def _failing_since(planned: str) -> datetime | None:
    """Evaluates `is_failing` on the text of `StatisticsDialect.judged`. Returns when the
    newest run was planned."""
    newest = planned.split(",")
    return moment_of(int(newest[0])) if len(newest) == FAILING_STREAK and all(newest) else None


def _load_schedules(tx: Tx, ids: Sequence[str]) -> dict[str, Schedule]:
    if not ids:
        return {}
    statement = SELECT_SCHEDULES.where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {row.id: decode_schedule(row) for row in rows}


def _items(tx: Tx, issues: Sequence[ScheduleIssue]) -> Iterator[ScheduleAttention]:
    loaded = _load_schedules(tx, [issue.schedule_id for issue in issues])
    failed = [issue.schedule_id for issue in issues if issue.cause is IssueCause.FAILING]
    results = newest_ends(tx, failed, HEALTH_RESULTS)
    for issue in issues:
        counted = count_streak(issue, results.get(issue.schedule_id, ()))
        yield ScheduleAttention(schedule=loaded[issue.schedule_id], sign=counted)


_RUNNING = SELECT_RUNS.where(has_status([RunStatus.RUNNING]), bindparam("now") >= STARTED).order_by(
    STARTED, runs.c.id
)


def schedule_counts(tx: Tx, query: ScheduleQuery, *, failing: bool) -> ScheduleCounts:
    conditions = schedule_conditions(query, tx.dialect)
    statement = _ALL_COUNTED if len(conditions) == 1 else _counted(conditions)
    row = tx.first(statement, {"soon": micros(tx.now() + HOUR)})
    assert row is not None
    return ScheduleCounts(
        total=row.total,
        enabled=row.enabled,
        due_soon=row.due_soon,
        failing=_count_failing(tx, conditions) if failing else None,
    )


def _count_failing(tx: Tx, conditions: Sequence[Any]) -> int:
    """Only schedules whose last run did not succeed need a look at their newest runs."""
    judged = select(tx.dialect.statistics.judged.label("judged")).select_from(schedule_rows)
    rows = tx.rows(judged.where(text(UNSUCCESSFUL), *conditions))
    return sum(_failing_since(row.judged or "") is not None for row in rows)


def count_runs(
    tx: Tx, window: Window, filter_: RunFilter, step: timedelta | None
) -> tuple[StatusCounts, ...]:
    found = [
        (place, STATUSES[status], number)
        for place, status, number in tx.tuples(
            tallies(filter_), parameters_for(window, step, filter_)
        )
    ]
    return count_statuses(found, window, step)


def run_lags(
    tx: Tx, window: Window, owner: Owner | None, step: timedelta | None, *, by_node: bool
) -> tuple[LagBucket, ...]:
    parameters = parameters_for(window, step, RunFilter(owner=owner))
    statistics, by_quarter = tx.dialect.statistics, step == QUARTER
    if by_node:
        statement = node_lags_of(statistics, by_quarter=by_quarter)
        found: Any = tx.tuples(statement, parameters)
    else:
        statement = lags(statistics, owned=owner is not None, by_quarter=by_quarter)
        found = [
            (place, None, bracket, number)
            for place, bracket, number in tx.tuples(statement, parameters)
        ]
    return lag_buckets(found, window, step, by_node=by_node)


def running_now(tx: Tx, owner: Owner | None, limit: int) -> tuple[Run, ...]:
    statement = _RUNNING.limit(limit)
    if owner is not None:
        keys = select(definitions.c.key).where(owned(definitions.c, owner))
        statement = statement.where(runs.c.definition.in_(keys))
    return tuple(decode_runs(tx, tx.rows(statement, {"now": micros(tx.now())})))


def error_groups(tx: Tx, window: Window, filter_: RunFilter, limit: int) -> ErrorGroups:
    parameters = {**parameters_for(window, filter_=filter_), "most": MAX_ERRORS + 1}
    found = [
        Failure(run_id, moment_of(created_at), moment_of(planned_at), error_key(from_stored(error)))
        for run_id, created_at, planned_at, error in tx.tuples(failures(filter_), parameters)
    ]
    return group_errors(found, limit)


_SOON = cursors.c.next_run_at <= bindparam("soon")


def _counted(conditions: Sequence[Any]) -> Select[Any]:
    due: ColumnElement[int] = func.count(case((and_(_ENABLED, _SOON), 1)))
    return _numbers(due).select_from(schedule_rows).where(*conditions)


def _numbers(due: ColumnElement[int]) -> Select[Any]:
    enabled = func.count(case((_ENABLED, 1))).label("enabled")
    numbers: list[Any] = [func.count().label("total"), enabled, due.label("due_soon")]
    return select(*numbers)


#: Of all schedules: each number comes from an index alone, without reading rows.
_ALL_COUNTED = (
    _numbers(select(func.count()).select_from(cursors).where(text(DUE), _SOON).scalar_subquery())
    .select_from(schedules)
    .where(text(PRESENT))
)


# Numbers of the whole store.

_NUMBER = func.count().label("number")
#: Answered from an index alone, at the cost of a full index scan.
ENABLED = select(
    schedules.c.enabled,
    func.count(case((schedules.c.deleted_at.is_(None), 1))).label("number"),
).group_by(schedules.c.enabled)
STATES = select(deliveries.c.state, _NUMBER).group_by(deliveries.c.state)


def counts(tx: Tx) -> Counts:
    due = (
        select(_NUMBER)
        .select_from(cursors)
        .where(text(DUE), cursors.c.next_run_at <= micros(tx.now()))
    )
    enabled = {row.enabled: row.number for row in tx.rows(ENABLED)}
    return Counts(
        schedules=sum(enabled.values()),
        enabled=enabled.get(1, 0),
        due=tx.rows(due)[0].number,
        runs=_runs_by_status(tx),
        deliveries={DeliveryState(row.state): row.number for row in tx.rows(STATES)},
    )


def _runs_by_status(tx: Tx) -> dict[RunStatus, int]:
    """Reads rollups: a million ended runs are not counted one by one."""
    found: Counter[RunStatus] = Counter()
    for statement in status_statements():
        for status, number in tx.tuples(statement):
            found[RunStatus(status)] += number
    return {status: number for status, number in found.items() if number}
