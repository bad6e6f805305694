"""Counts and lists for the dashboard: read from rollups, and from indexes for newer runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    text,
)

from chimes.clock import EPOCH, MICROSECOND
from chimes.i18n import from_stored
from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    CONCLUSIVE_STATUSES,
    ENGINE,
    FAILED_STATUSES,
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
from chimes.store.sql.dialects.base import StatisticsDialect
from chimes.store.sql.listing import Condition, owned, schedule_conditions
from chimes.store.sql.rollups import (
    ANY_LATE,
    PLANNED,
    Statement,
    failures,
    is_status,
    lags,
    node_lags_of,
    parameters_for,
    status_statements,
    tallies,
)
from chimes.store.sql.rows.corrupt import decode_run, decode_schedule
from chimes.store.sql.rows.values import STATUSES, maybe_moment, micros, moment_of
from chimes.store.sql.tables import (
    CLAIMABLE,
    DUE,
    HAS_HOLDER,
    NEEDS_ATTENTION,
    PRESENT,
    deliveries,
    runs,
    schedules,
)

# The newest runs of each of many schedules, in one statement (`Counting.newest`).

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
    found: dict[ScheduleId, list[Sequence[Any]]] = {}
    for row in tx.dialect.statistics.newest(tx.connection, ids, each, owner):
        found.setdefault(row[0], []).append(row)
    for rows in found.values():
        rows.sort(key=_AGE, reverse=True)
    return found


def _result(row: Sequence[Any]) -> Result:
    """Columns are read by position, as in `NEWEST`. Times are not cached (`moment_of`): there are
    thousands, and few are equal."""
    _, run_id, status, origin, created_at, planned_at, started_at, finished_at = row
    created = EPOCH + timedelta(0, 0, created_at)
    return Result(
        run_id=run_id,
        status=STATUSES[status],
        origin=_ORIGINS[origin],
        created_at=created,
        planned_at=created if planned_at == created_at else EPOCH + timedelta(0, 0, planned_at),
        started_at=None if started_at is None else EPOCH + timedelta(0, 0, started_at),
        finished_at=None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
    )


# Schedules that need attention: each cause is one query on an index or on the table of schedules,
# and returns issues instead of whole rows.

_BAD = sorted(status.value for status in FAILED_STATUSES)
_JUDGED = sorted(status.value for status in CONCLUSIVE_STATUSES)
#: The most issues of one cause that a page can use.
MAX_ISSUES_PER_CAUSE = 1000


def _failing() -> Iterator[Condition]:
    """SQL form of `is_failing`: only schedules whose last run did not succeed need a look at runs,
    and of those only the newest conclusive runs, one index step each."""
    yield and_(text(NEEDS_ATTENTION))
    yield schedules.c.last_status != RunStatus.SUCCEEDED.value
    for place in range(FAILING_STREAK):
        yield _judged(runs.c.status).offset(place).scalar_subquery().in_(_BAD)


def _judged(column: Any) -> Select[Any]:
    return (
        select(column)
        .where(runs.c.schedule_id == schedules.c.id, runs.c.status.in_(_JUDGED))
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
        .limit(1)
        .correlate(schedules)
    )


class Statements:
    """Statements built once, because building one takes longer than executing most of them. The
    parameters come from `_AttentionQuery`."""

    def __init__(self, statistics: StatisticsDialect, *, owned: bool) -> None:
        restrictions: list[Any] = [text(f"schedules.{PRESENT}")]
        if owned:
            restrictions.append(schedules.c.owner_type == bindparam("owner_type"))
            restrictions.append(schedules.c.owner_id == bindparam("owner_id"))
        working = [*restrictions, schedules.c.enabled == 1]
        of_slots = runs.c.origin == Origin.SCHEDULE.value
        self.stopped_or_failing = _stopped_or_failing(statistics, restrictions)
        self.missed = _runs_with_issue(
            is_status(RunStatus.MISSED),
            runs.c.created_at >= bindparam("missed_since"),
            restrictions=restrictions,
        )
        self.started_late = _runs_with_issue(
            runs.c.planned_at >= bindparam("late_since"),
            runs.c.planned_at <= bindparam("now"),
            of_slots,
            runs.c.started_at - runs.c.planned_at > bindparam("late"),
            restrictions=working,
        )
        self.waiting = _runs_with_issue(
            text(CLAIMABLE),
            of_slots,
            runs.c.started_at.is_(None),
            bindparam("late_before") > PLANNED,
            restrictions=working,
        )
        self.overdue = select(schedules.c.id, schedules.c.next_run_at).where(
            text(DUE), schedules.c.next_run_at < bindparam("late_before"), *working
        )


@cache
def statements(statistics: StatisticsDialect, *, owned: bool) -> Statements:
    return Statements(statistics, owned=owned)


def _stopped_or_failing(statistics: StatisticsDialect, restrictions: Sequence[Any]) -> Select[Any]:
    """Schedules that stopped, whose pause has ended, or that may be failing: one scan of a small
    index, and for those whose last run did not succeed one scan of their newest runs."""
    columns = schedules.c
    unsuccessful = and_(columns.enabled == 1, columns.last_status != RunStatus.SUCCEEDED.value)
    disabled = and_(
        columns.enabled == 1,
        columns.next_run_at.is_(None),
        columns.last_status == RunStatus.FAILED.value,
        columns.last_error != "",
    )
    paused = and_(
        columns.enabled == 0,
        or_(
            columns.pause_until <= bindparam("now"),
            and_(
                columns.updated_by == ENGINE,
                columns.pause_until.is_(None),
                columns.pause_note != "",
            ),
        ),
    )
    doubted_at = case((or_(disabled, paused), columns.updated_at)).label("doubted_at")
    judged = case((unsuccessful, statistics.judged)).label("judged")
    wanted = [text(NEEDS_ATTENTION), *restrictions, or_(unsuccessful, paused)]
    return select(columns.id, doubted_at, judged).where(*wanted)


def _runs_with_issue(*conditions: Any, restrictions: Sequence[Any]) -> Select[Any]:
    """Runs of schedules that match `restrictions`, checked for each run found. In the other
    direction, which some planners prefer, all runs of all those schedules would be read."""
    matching = select(schedules.c.id).where(schedules.c.id == runs.c.schedule_id, *restrictions)
    columns = (
        runs.c.schedule_id,
        runs.c.id,
        runs.c.planned_at,
        runs.c.started_at,
        runs.c.missed_count,
    )
    return select(*columns).where(*conditions, matching.correlate(runs).exists())


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
                max(1, row.missed_count),
            )
            for row in self._tx.rows(self._statements.missed, self._parameters)
        ]
        return issues_from(IssueCause.MISSED, findings)

    def late(self) -> list[ScheduleIssue]:
        asked = [self._statements.waiting]
        # The rollups usually show that no run of the last hour needs a look.
        if self._tx.first(ANY_LATE, self._parameters) is not None:
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
    statement = select(schedules).where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {row.id: decode_schedule(row) for row in rows}


def _items(tx: Tx, issues: Sequence[ScheduleIssue]) -> Iterator[ScheduleAttention]:
    loaded = _load_schedules(tx, [issue.schedule_id for issue in issues])
    failed = [issue.schedule_id for issue in issues if issue.cause is IssueCause.FAILING]
    results = newest_ends(tx, failed, HEALTH_RESULTS)
    for issue in issues:
        counted = count_streak(issue, results.get(issue.schedule_id, ()))
        yield ScheduleAttention(schedule=loaded[issue.schedule_id], sign=counted)


_RUNNING = (
    select(runs)
    .where(
        text(HAS_HOLDER),
        runs.c.status == RunStatus.RUNNING.value,
        runs.c.started_at <= bindparam("now"),
    )
    .order_by(runs.c.started_at, runs.c.id)
)


def schedule_counts(tx: Tx, query: ScheduleQuery, *, failing: bool) -> ScheduleCounts:
    conditions = schedule_conditions(query, tx.dialect)
    plain = not failing and len(conditions) == 1
    statement = _ALL_COUNTED if plain else _counted(conditions, failing=failing)
    row = tx.first(statement, {"soon": micros(tx.now() + HOUR)})
    assert row is not None
    return ScheduleCounts(
        total=row.total,
        enabled=row.enabled,
        due_soon=row.due_soon,
        failing=row.failing if failing else None,
    )


def count_runs(
    tx: Tx, window: Window, filter_: RunFilter, step: timedelta | None
) -> tuple[StatusCounts, ...]:
    found = [
        (place, STATUSES[status], number)
        for place, status, number in _tuples(
            tx, tallies(filter_), parameters_for(window, step, filter_)
        )
    ]
    return count_statuses(found, window, step)


def run_lags(
    tx: Tx, window: Window, owner: Owner | None, step: timedelta | None, *, by_node: bool
) -> tuple[LagBucket, ...]:
    parameters = parameters_for(window, step, RunFilter(owner=owner))
    statistics, by_quarter = tx.dialect.statistics, step == QUARTER
    if by_node:
        found = _tuples(tx, node_lags_of(statistics, by_quarter=by_quarter), parameters)
    else:
        statement = lags(statistics, owned=owner is not None, by_quarter=by_quarter)
        found = [
            (place, None, bracket, number)
            for place, bracket, number in _tuples(tx, statement, parameters)
        ]
    return lag_buckets(found, window, step, by_node=by_node)


def running_now(tx: Tx, owner: Owner | None, limit: int) -> tuple[Run, ...]:
    restrictions = [] if owner is None else [owned(runs.c, owner)]
    rows = tx.rows(_RUNNING.where(*restrictions).limit(limit), {"now": micros(tx.now())})
    return tuple(decode_run(row) for row in rows)


def error_groups(tx: Tx, window: Window, filter_: RunFilter, limit: int) -> ErrorGroups:
    parameters = {**parameters_for(window, filter_=filter_), "most": MAX_ERRORS + 1}
    found = [
        Failure(run_id, moment_of(created_at), moment_of(planned_at), error_key(from_stored(error)))
        for run_id, created_at, planned_at, error in _tuples(tx, failures(filter_), parameters)
    ]
    return group_errors(found, limit)


def _tuples(tx: Tx, statement: Statement, parameters: Mapping[str, object]) -> Sequence[Any]:
    """Rows that are read by position: there are thousands, and access by name is slower."""
    return tx.rows(statement, parameters)


def _counted(conditions: Sequence[Any], *, failing: bool) -> Select[Any]:
    soon = schedules.c.next_run_at <= bindparam("soon")
    due: ColumnElement[int] = func.count(case((and_(schedules.c.enabled == 1, soon), 1)))
    if len(conditions) == 1:
        # Counts all schedules: each number comes from an index alone, without reading rows.
        due = _number(text(DUE), soon)
    columns: list[Any] = [
        func.count().label("total"),
        func.count(case((schedules.c.enabled == 1, 1))).label("enabled"),
        due.label("due_soon"),
        *([_number(*conditions, *_failing()).label("failing")] if failing else []),
    ]
    return select(*columns).select_from(schedules).where(*conditions)


def _number(*conditions: Any) -> ScalarSelect[int]:
    """A subquery that is not correlated with the statement around it."""
    found = select(func.count()).select_from(schedules).where(*conditions)
    return found.correlate(None).scalar_subquery()


_ALL_COUNTED = _counted([text(PRESENT)], failing=False)


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
        .select_from(schedules)
        .where(text(DUE), schedules.c.next_run_at <= micros(tx.now()))
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
        for row in tx.rows(statement):
            found[RunStatus(row.status)] += int(row.number)
    return {status: number for status, number in found.items() if number}
