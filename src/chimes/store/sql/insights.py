"""What is counted: from sums where there are any (`rolling`), and from an index what is newer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    case,
    func,
    select,
    text,
)

from chimes.model.access import Owner
from chimes.model.attention import Attentions
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    EVERY_RUN,
    MOST_ERRORS,
    QUARTER,
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
from chimes.store.sql.attention import failing, needing_attention
from chimes.store.sql.base import SqlBase
from chimes.store.sql.database import Tx
from chimes.store.sql.listing import owned, schedule_conditions
from chimes.store.sql.newest import newest_results
from chimes.store.sql.rolling import anything_to_roll_up, roll_up
from chimes.store.sql.rows.mending import readable_run
from chimes.store.sql.rows.parts import STATUSES, micros, moment_of
from chimes.store.sql.tables import DUE, HELD, PRESENT, runs, schedules
from chimes.store.sql.windows import (
    Statement,
    failures,
    given_for,
    lags,
    node_lags_of,
    tallies,
)

_BEGUN = (
    select(runs)
    .where(
        text(HELD),
        runs.c.status == RunStatus.RUNNING.value,
        runs.c.started_at <= bindparam("now"),
    )
    .order_by(runs.c.started_at, runs.c.id)
)


class SqlInsights(SqlBase):
    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        return await self._database.look(lambda tx: _schedule_counts(tx, query, bad=failing))

    async def count_runs(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, step: timedelta | None = None
    ) -> tuple[Tally, ...]:
        window.starts(step)
        statement, given = tallies(filter_), given_for(window, step, filter_)

        def work(tx: Tx) -> tuple[Tally, ...]:
            found = [
                (place, STATUSES[status], number)
                for place, status, number in _tuples(tx, statement, given)
            ]
            return tallied(found, window, step)

        return await self._database.look(work)

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
        given = given_for(window, step, RunFilter(owner=owner))
        by_quarter = step == QUARTER

        def work(tx: Tx) -> tuple[LagBucket, ...]:
            counting = tx.dialect.counting
            if by_node:
                found = _tuples(tx, node_lags_of(counting, by_quarter=by_quarter), given)
            else:
                statement = lags(counting, owned=owner is not None, by_quarter=by_quarter)
                found = [
                    (place, None, bracket, number)
                    for place, bracket, number in _tuples(tx, statement, given)
                ]
            return lag_buckets(found, window, step, by_node=by_node)

        return await self._database.look(work)

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        return await self._database.look(lambda tx: newest_results(tx, ids, each, owner))

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        mine = [] if owner is None else [owned(runs.c, owner)]
        statement = _BEGUN.where(*mine).limit(limit)

        def work(tx: Tx) -> tuple[Run, ...]:
            rows = tx.rows(statement, {"now": micros(tx.now())})
            return tuple(readable_run(row) for row in rows)

        return await self._database.look(work)

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> Attentions:
        return await self._database.read(lambda tx: needing_attention(tx, owner, late, limit))

    async def error_groups(
        self, window: Window, filter_: RunFilter = EVERY_RUN, *, limit: int
    ) -> ErrorGroups:
        statement = failures(filter_)
        given = {**given_for(window, filter_=filter_), "most": MOST_ERRORS + 1}

        def work(tx: Tx) -> ErrorGroups:
            found = [
                Failure(run_id, moment_of(created_at), moment_of(planned_at), error)
                for run_id, created_at, planned_at, error in _tuples(tx, statement, given)
            ]
            return grouped(found, limit)

        return await self._database.look(work)

    async def roll_up(self, *, limit: int) -> int:
        if not await self._database.look(anything_to_roll_up):
            return 0
        return await self._database.write(lambda tx: roll_up(tx, limit))


def _tuples(tx: Tx, statement: Statement, given: Mapping[str, object]) -> Sequence[Any]:
    """Rows to be taken apart by position: thousands of them, and names take longer."""
    return tx.rows(statement, given)


def _schedule_counts(tx: Tx, query: ScheduleQuery, *, bad: bool) -> ScheduleCounts:
    conditions = schedule_conditions(query, tx.dialect)
    statement = _counted(conditions, bad=bad) if bad or len(conditions) > 1 else _ALL_COUNTED
    row = tx.first(statement, {"soon": micros(tx.now() + HOUR)})
    assert row is not None
    return ScheduleCounts(
        total=row.total,
        enabled=row.enabled,
        due_soon=row.due_soon,
        failing=row.failing if bad else None,
    )


def _counted(conditions: Sequence[Any], *, bad: bool) -> Select[Any]:
    soon = schedules.c.next_run_at <= bindparam("soon")
    due: ColumnElement[int] = func.count(case((and_(schedules.c.enabled == 1, soon), 1)))
    if len(conditions) == 1:
        # Of all that there are: each number from an index alone, and no row is looked at.
        due = _number(text(DUE), soon)
    columns: list[Any] = [
        func.count().label("total"),
        func.count(case((schedules.c.enabled == 1, 1))).label("enabled"),
        due.label("due_soon"),
        *([_number(*conditions, *failing()).label("failing")] if bad else []),
    ]
    return select(*columns).select_from(schedules).where(*conditions)


def _number(*conditions: Any) -> ScalarSelect[int]:
    """By itself, whatever it stands in."""
    found = select(func.count()).select_from(schedules).where(*conditions)
    return found.correlate(None).scalar_subquery()


_ALL_COUNTED = _counted([text(PRESENT)], bad=False)
