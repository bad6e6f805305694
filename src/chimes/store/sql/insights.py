"""What is counted: from sums where there are any (`rolling`), and from an index what is newer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    case,
    func,
    literal,
    literal_column,
    select,
    text,
)

from chimes.model.access import Owner
from chimes.model.attention import Attentions
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.insights import (
    BAD,
    ERROR_ROOM,
    EVERY_RUN,
    MADE_BEFORE,
    MOST_ERRORS,
    ErrorGroups,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    Tally,
    Window,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run, RunStatus
from chimes.store.counting import (
    HOUR,
    Failure,
    check_by_node,
    check_newest,
    grouped,
    lag_buckets,
    tallied,
)
from chimes.store.plain import MICROSECOND
from chimes.store.sql.attention import failing, needing_attention
from chimes.store.sql.base import SqlBase
from chimes.store.sql.database import Tx
from chimes.store.sql.insight_tables import ALL, node_lags, run_lags, run_tallies
from chimes.store.sql.listing import Condition, owned, schedule_conditions
from chimes.store.sql.newest import newest_results
from chimes.store.sql.rolling import HAS_LAG, PLANNED, anything_to_roll_up, roll_up, rolled_until
from chimes.store.sql.rows.mending import readable_run
from chimes.store.sql.rows.parts import STATUSES, micros, moment_of
from chimes.store.sql.tables import ACTIVE, ENDED, HELD, runs, schedules

_BAD = sorted(status.value for status in BAD)


class SqlInsights(SqlBase):
    async def schedule_counts(self, query: ScheduleQuery) -> ScheduleCounts:
        return await self._database.read(lambda tx: _schedule_counts(tx, query))

    async def count_runs(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, step: timedelta | None = None
    ) -> tuple[Tally, ...]:
        window.starts(step)

        def work(tx: Tx) -> tuple[Tally, ...]:
            place = _Places(window, step)
            found = [
                (int(place_), STATUSES[status], int(number))
                for statement in _counts(tx, window, filter_, place)
                for place_, status, number in _tuples(tx, statement)
            ]
            return tallied(found, window, step)

        return await self._database.read(work)

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        window.starts(step)
        check_by_node(owner, by_node=by_node)

        def work(tx: Tx) -> tuple[LagBucket, ...]:
            place = _Places(window, step)
            found = [
                (int(place_), NodeId(node) if by_node else None, bracket, int(number))
                for statement in lag_statements(tx, window, owner, place, by_node=by_node)
                for place_, node, bracket, number in _tuples(tx, statement)
            ]
            return lag_buckets(found, window, step, by_node=by_node)

        return await self._database.read(work)

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        return await self._database.look(lambda tx: newest_results(tx, ids, each, owner))

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        def work(tx: Tx) -> tuple[Run, ...]:
            conditions: list[Any] = [
                text(HELD),
                runs.c.status == RunStatus.RUNNING.value,
                runs.c.started_at <= micros(tx.now()),
                *([owned(runs.c, owner)] if owner is not None else []),
            ]
            order = (runs.c.started_at, runs.c.id)
            rows = tx.rows(select(runs).where(*conditions).order_by(*order).limit(limit))
            return tuple(readable_run(row) for row in rows)

        return await self._database.read(work)

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> Attentions:
        return await self._database.read(lambda tx: needing_attention(tx, owner, late, limit))

    async def error_groups(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, limit: int
    ) -> ErrorGroups:
        statement = failures_of(window, filter_)

        def work(tx: Tx) -> ErrorGroups:
            found = [
                Failure(run_id, moment_of(created_at), moment_of(planned_at), error)
                for run_id, created_at, planned_at, error in _tuples(tx, statement)
            ]
            return grouped(found, limit)

        return await self._database.read(work)

    async def roll_up(self, *, limit: int) -> int:
        if not await self._database.look(anything_to_roll_up):
            return 0
        return await self._database.write(lambda tx: roll_up(tx, limit))


def _tuples(tx: Tx, statement: Select[Any]) -> Sequence[Sequence[Any]]:
    """Rows to be taken apart by position: thousands of them, and names take longer."""
    return tx.rows(statement)


class _Places:
    """Buckets by their number."""

    def __init__(self, window: Window, step: timedelta | None) -> None:
        self.since = window.since
        self._step = step if step is not None else window.until - window.since

    def of(self, column: ColumnElement[int]) -> ColumnElement[int]:
        """Written out, so that a database sees the same expression wherever it stands."""
        since, step = micros(self.since), self._step // MICROSECOND
        # As whole numbers: otherwise they would be divided as decimals, and rounded down.
        first, length = (literal_column(str(each), BigInteger) for each in (since, step))
        return ((column - first) // length).label("place")


def _counts(
    tx: Tx, window: Window, filter_: RunFilter, place: _Places
) -> Iterator[Select[tuple[int, str, int]]]:
    if filter_.schedule_id is not None:
        yield _tally(place, [*_of_schedule(window, filter_), *_matching(window, filter_)])
        return
    columns = run_tallies.c
    number = func.sum(columns.number).label("number")
    conditions = [*_sums_of(columns, filter_.owner, window)]
    for column, value in (
        (columns.namespace, filter_.namespace),
        (columns.kind, filter_.kind),
        (columns.origin, filter_.origin),
    ):
        if value is not None:
            conditions.append(column == str(value))
    sums = select(place.of(columns.quarter), columns.status, number).where(*conditions)
    yield sums.group_by(text("1"), text("2"))
    for stretch in _not_in_sums(tx):
        yield _tally(place, [*stretch, *_matching(window, filter_)])


def _tally(place: _Places, conditions: Sequence[Any]) -> Select[Any]:
    number = func.count().label("number")
    found = select(place.of(runs.c.planned_at), runs.c.status, number).where(*conditions)
    return found.group_by(text("1"), text("2"))


def lag_statements(
    tx: Tx, window: Window, owner: Owner | None, place: _Places, *, by_node: bool
) -> Iterator[Select[Any]]:
    """In the order of their columns: bucket, node, bracket, number."""
    nobody = literal("").label("node")
    if by_node:
        columns: Any = node_lags.c
        conditions = list(_quarters(columns, window))
    else:
        columns = run_lags.c
        conditions = list(_sums_of(columns, owner, window))
    sums: Select[Any] = select(
        place.of(columns.quarter),
        columns.node if by_node else nobody,
        columns.bracket,
        func.sum(columns.number).label("number"),
    )
    yield sums.where(*conditions).group_by(*_first_three())
    counting = tx.dialect.counting
    names: list[ColumnElement[Any]] = [
        place.of(runs.c.planned_at),
        counting.node.label("node") if by_node else nobody,
        counting.bracket.label("bracket"),
        func.count().label("number"),
    ]
    for stretch in _not_in_sums(tx):
        wanted = [*stretch, HAS_LAG, *_matching(window, RunFilter(owner=owner))]
        yield select(*names).where(*wanted).group_by(*_first_three())


def _first_three() -> list[Any]:
    return [text("1"), text("2"), text("3")]


def _sums_of(columns: Any, owner: Owner | None, window: Window) -> Iterator[Condition]:
    yield columns.owner_type == (ALL if owner is None else owner.type.value)
    yield columns.owner_id == (ALL if owner is None else owner.id)
    yield from _quarters(columns, window)


def _quarters(columns: Any, window: Window) -> Iterator[Condition]:
    yield columns.quarter >= micros(window.since)
    yield columns.quarter < micros(window.until)


def _not_in_sums(tx: Tx) -> tuple[list[Any], list[Any]]:
    """What has ended since the mark, and what has not ended."""
    return [text(ENDED), runs.c.finished_at > rolled_until(tx)], [text(ACTIVE)]


def _matching(window: Window, filter_: RunFilter) -> Iterator[Condition]:
    yield micros(window.since) <= PLANNED
    yield micros(window.until) > PLANNED
    if filter_.owner is not None:
        yield owned(runs.c, filter_.owner)
    for column, value in (
        (runs.c.schedule_id, filter_.schedule_id),
        (runs.c.namespace, filter_.namespace),
        (runs.c.kind, filter_.kind),
        (runs.c.origin, filter_.origin),
    ):
        if value is not None:
            yield column == str(value)


def _of_schedule(window: Window, filter_: RunFilter) -> Iterator[Condition]:
    yield runs.c.created_at >= micros(window.since - MADE_BEFORE)


def failures_of(window: Window, filter_: RunFilter) -> Select[Any]:
    error = func.substr(runs.c.error, 1, ERROR_ROOM).label("error")
    return (
        select(runs.c.id, runs.c.created_at, runs.c.planned_at, error)
        .where(
            runs.c.status.in_(_BAD),
            runs.c.created_at >= micros(window.since - MADE_BEFORE),
            *_matching(window, filter_),
        )
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
        .limit(MOST_ERRORS + 1)
    )


def _schedule_counts(tx: Tx, query: ScheduleQuery) -> ScheduleCounts:
    conditions = schedule_conditions(query, tx.dialect)
    soon = and_(schedules.c.enabled == 1, schedules.c.next_run_at <= micros(tx.now() + HOUR))
    row = tx.first(
        select(
            func.count().label("total"),
            func.count(case((schedules.c.enabled == 1, 1))).label("enabled"),
            func.count(case((soon, 1))).label("due_soon"),
            func.count(case((schedules.c.last_run_at.is_(None), 1))).label("never_ran"),
        ).where(*conditions)
    )
    bad = tx.first(select(func.count()).select_from(schedules).where(*conditions, *failing()))
    assert row is not None
    assert bad is not None
    return ScheduleCounts(
        total=row.total,
        enabled=row.enabled,
        due_soon=row.due_soon,
        never_ran=row.never_ran,
        failing=bad[0],
    )
