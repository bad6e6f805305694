"""Rollups: counts of ended runs per quarter of an hour, which time windows are answered from.

Runs are counted in the order of `finished_at` up to a mark that lies `MARGIN` in the past. No
transaction that ends a run takes that long, so no run appears behind the mark later. Code that
nevertheless inserts ended runs behind it (`load`) or deletes them (retention) adjusts the rollups
in the same transaction. Runs before the mark that have not ended are counted in the table of runs.
Every transaction that changes rollups locks the row of the mark and takes no other contended lock
while it holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    union_all,
    update,
)

from chimes.clock import MICROSECOND
from chimes.i18n import STORED_PREFIX
from chimes.model.ids import stored_namespaces
from chimes.model.insights import (
    ALL_RUNS,
    ERROR_KEY_LENGTH,
    FAILED_STATUSES,
    MAX_PLANNING_LEAD,
    RunFilter,
    Window,
)
from chimes.model.run import Origin, Run, RunStatus
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import StatisticsDialect
from chimes.store.sql.listing import Condition
from chimes.store.sql.rows.values import micros
from chimes.store.sql.tables import (
    ACTIVE,
    ALL,
    ENDED,
    ROLLED_UNTIL,
    ROLLUPS,
    node_lags,
    run_lags,
    run_tallies,
    runs,
    store_facts,
)

#: Longer than any transaction takes (`server.UNIT_SECONDS`).
MARGIN = timedelta(minutes=1)
#: A clock that was set back by more than this may have ended runs behind the mark.
SET_BACK = MARGIN / 2
QUARTER = timedelta(minutes=15) // MICROSECOND

_NONE = -1
MARK = select(store_facts.c.value).where(store_facts.c.name == ROLLED_UNTIL)
_MOVE_MARK = (
    update(store_facts).where(store_facts.c.name == ROLLED_UNTIL).values(value=bindparam("mark"))
)
_BEHIND = (text(ENDED), runs.c.finished_at > bindparam("mark"))
#: The end of the next batch of so many runs.
BATCH_END = (
    select(runs.c.finished_at)
    .where(*_BEHIND, runs.c.finished_at <= bindparam("until"))
    .order_by(runs.c.finished_at)
    .limit(1)
    .offset(bindparam("more"))
)

#: Planned time of a run, for conditions that must use another index: planners misjudge how many
#: runs a window contains, and do not know how few are outside the rollups.
PLANNED = runs.c.planned_at + literal_column("0")
HAS_LAG = and_(runs.c.started_at.is_not(None), runs.c.origin == Origin.SCHEDULE.value)


def rolled_until(tx: Tx) -> int:
    row = tx.first(MARK)
    assert row is not None
    return int(row.value)


def _locked_mark(tx: Tx) -> int:
    row = tx.first(tx.for_update(MARK, store_facts.c.name))
    assert row is not None
    return int(row.value)


def roll_up(tx: Tx, limit: int) -> int:
    mark, until = _locked_mark(tx), micros(tx.now() - MARGIN)
    if until < mark - SET_BACK // MICROSECOND:
        mark = _reset_rollups(tx)
    parameters = {"mark": mark, "until": until, "more": limit - 1}
    last = tx.first(BATCH_END, parameters)
    if last is not None:
        until = last.finished_at
    batch = and_(text(ENDED), runs.c.finished_at > mark, runs.c.finished_at <= until)
    number = _count_into_rollups(tx, batch)
    if number:
        tx.run(_MOVE_MARK, {"mark": until})
    return number


def anything_to_roll_up(tx: Tx) -> bool:
    parameters = {"mark": rolled_until(tx), "until": micros(tx.now() - MARGIN), "more": 0}
    return tx.first(BATCH_END, parameters) is not None or parameters["until"] < parameters["mark"]


def _reset_rollups(tx: Tx) -> int:
    for table in ROLLUPS:
        tx.run(delete(table))
    tx.run(_MOVE_MARK, {"mark": 0})
    return 0


def add_inserted_runs(tx: Tx, new: Sequence[Run]) -> None:
    """Adds ended runs that were inserted behind the mark."""
    ended = [(run.id, run.finished_at) for run in new if run.finished_at is not None]
    if not ended:
        return
    mark = _locked_mark(tx)
    passed = [run_id for run_id, finished_at in ended if micros(finished_at) <= mark]
    if passed:
        _count_into_rollups(
            tx, tx.dialect.among(runs.c.id, "ids"), {"ids": tx.dialect.listed(passed)}
        )


def subtract_deleted_runs(tx: Tx, ids: Collection[str]) -> None:
    """Subtracts runs from the rollups; called before they are deleted."""
    mark = _locked_mark(tx)
    passed = and_(tx.dialect.among(runs.c.id, "ids"), runs.c.finished_at <= mark)
    if _count_into_rollups(tx, passed, {"ids": tx.dialect.listed(ids)}, sign=-1):
        newest = select(func.max(runs.c.planned_at)).where(passed)
        row = tx.first(newest, {"ids": tx.dialect.listed(ids)})
        for table in ROLLUPS:
            tx.run(
                delete(table).where(table.c.quarter <= (row[0] if row else 0), table.c.number <= 0)
            )


def _count_into_rollups(
    tx: Tx,
    which: ColumnElement[bool],
    parameters: dict[str, object] | None = None,
    *,
    sign: int = 1,
) -> int:
    statistics = tx.dialect.statistics
    columns = (
        runs.c.owner_type,
        runs.c.owner_id,
        (runs.c.planned_at - runs.c.planned_at % QUARTER).label("quarter"),
        runs.c.namespace,
        runs.c.kind,
        runs.c.origin,
        runs.c.status,
        case((HAS_LAG, statistics.bracket), else_=_NONE).label("bracket"),
        case((HAS_LAG, statistics.node), else_="").label("node"),
    )
    found = select(*columns, func.count().label("number")).where(which)
    found = found.group_by(*(text(str(place)) for place in range(1, len(columns) + 1)))
    tallies: Counter[tuple[str, str, int, str, str, str, str]] = Counter()
    lags: Counter[tuple[str, str, int, int]] = Counter()
    nodes: Counter[tuple[int, str, int]] = Counter()
    total = 0
    for row in tx.rows(found, parameters):
        total += row.number
        for owner in ((row.owner_type, row.owner_id), (ALL, ALL)):
            what = (row.namespace, row.kind, row.origin, row.status)
            tallies[*owner, row.quarter, *what] += sign * row.number
            if row.bracket != _NONE:
                lags[*owner, row.quarter, row.bracket] += sign * row.number
        if row.bracket != _NONE:
            nodes[row.quarter, row.node, row.bracket] += sign * row.number
    _add(tx, run_tallies, tallies)
    _add(tx, run_lags, lags)
    _add(tx, node_lags, nodes)
    return total


def _add(tx: Tx, table: Table, counts: Mapping[Any, int]) -> None:
    if counts:
        rows = [(*key, number) for key, number in sorted(counts.items())]
        tx.dialect.statistics.add(tx.connection, table, rows)


# Statements that count a window: the rollups in it, the runs that ended after the mark, and the
# runs that have not ended, all in one query. Each is built once; the parameters come from
# `parameters_for`.

Statement = Select[Any] | CompoundSelect[Any]

STATUS_ROLLUPS = (
    select(run_tallies.c.status, func.sum(run_tallies.c.number).label("number"))
    .where(run_tallies.c.owner_type == ALL, run_tallies.c.owner_id == ALL)
    .group_by(run_tallies.c.status)
)
#: Fields of a filter besides the owner, as columns of runs and of their rollups.
_NAMES = ("namespace", "kind", "origin")
#: Parameters for the names under which rows of a namespace are stored.
_NAMESPACES = ("namespace", "namespace_2", "namespace_3")
#: Runs that ended after the mark, and runs that have not ended.
_NOT_ROLLED_UP: tuple[list[Any], ...] = (
    [text(ENDED), runs.c.finished_at > MARK.scalar_subquery()],
    [text(ACTIVE)],
)


def parameters_for(
    window: Window, step: timedelta | None = None, filter_: RunFilter = ALL_RUNS
) -> dict[str, object]:
    """Returns the parameters of all statements of this module."""
    since, until = micros(window.since), micros(window.until)
    length = until - since if step is None else step // MICROSECOND
    parameters: dict[str, object] = {
        "first": since,
        "length": length,
        "made_since": since - MAX_PLANNING_LEAD // MICROSECOND,
        "since": since,
        "until": until,
        "owner_type": ALL,
        "owner_id": ALL,
    }
    if filter_.owner is not None:
        parameters |= {"owner_type": filter_.owner.type.value, "owner_id": filter_.owner.id}
    if filter_.schedule_id is not None:
        parameters["schedule_id"] = filter_.schedule_id
    parameters |= {name: str(getattr(filter_, name)) for name in _named(filter_)}
    if filter_.namespace is not None:
        stored = stored_namespaces(filter_.namespace)
        # A namespace with one name uses it for all parameters.
        parameters |= dict(zip(_NAMESPACES, stored * len(_NAMESPACES), strict=False))
    return parameters


def tallies(filter_: RunFilter) -> Statement:
    """Bucket, status, number; a pair may occur several times."""
    owned, names = filter_.owner is not None, _named(filter_)
    if filter_.schedule_id is not None:
        return _tallies_of_schedule(owned, names)
    return _tallies(owned, names)


@cache
def _tallies(owned: bool, names: tuple[str, ...]) -> Statement:
    columns = run_tallies.c
    number = _sum(columns.number)
    rollups = select(_place(columns.quarter), columns.status, number)
    wanted = [*_rollup_conditions(columns), *(_equals(columns, name) for name in names)]
    others = [_tally([*each, *_matching(owned, names)]) for each in _NOT_ROLLED_UP]
    return union_all(rollups.where(*wanted).group_by(text("1"), text("2")), *others)


@cache
def _tallies_of_schedule(owned: bool, names: tuple[str, ...]) -> Statement:
    made_since = runs.c.created_at >= bindparam("made_since")
    return _tally([made_since, *_matching(owned, ("schedule_id", *names))])


def _tally(conditions: Sequence[Any]) -> Select[Any]:
    number = func.count().label("number")
    found = select(_place(runs.c.planned_at), runs.c.status, number).where(*conditions)
    return found.group_by(text("1"), text("2"))


@cache
def lags(statistics: StatisticsDialect, *, owned: bool, by_quarter: bool) -> Statement:
    """Bucket, bracket, number; a pair may occur several times. `by_quarter`: a bucket is no longer
    than a quarter of an hour, so there is nothing to sum up."""
    columns = run_lags.c
    number = columns.number if by_quarter else _sum(columns.number)
    rollups = select(_place(columns.quarter), columns.bracket, number).where(
        *_rollup_conditions(columns)
    )
    rollups = rollups if by_quarter else rollups.group_by(text("1"), text("2"))
    names = (_place(runs.c.planned_at), statistics.bracket.label("bracket"), func.count())
    others = [
        select(*names).where(*each, HAS_LAG, *_matching(owned)).group_by(text("1"), text("2"))
        for each in _NOT_ROLLED_UP
    ]
    return union_all(rollups, *others)


@cache
def node_lags_of(statistics: StatisticsDialect, *, by_quarter: bool) -> Statement:
    """Bucket, node, bracket, number; like `lags`."""
    columns = node_lags.c
    number = columns.number if by_quarter else _sum(columns.number)
    order = [text("1"), text("2"), text("3")]
    rollups = select(_place(columns.quarter), columns.node, columns.bracket, number)
    rollups = rollups.where(*_quarters(columns))
    rollups = rollups if by_quarter else rollups.group_by(*order)
    names = (
        _place(runs.c.planned_at),
        statistics.node.label("node"),
        statistics.bracket.label("bracket"),
        func.count(),
    )
    others = [
        select(*names).where(*each, HAS_LAG, *_matching(owned=False)).group_by(*order)
        for each in _NOT_ROLLED_UP
    ]
    return union_all(rollups, *others)


def _any_late() -> Statement:
    one: ColumnElement[int] = literal_column("1")
    columns = run_lags.c
    of_all = (columns.owner_type == ALL, columns.owner_id == ALL, *_quarters(columns))
    late = (HAS_LAG, runs.c.started_at - runs.c.planned_at > bindparam("late"))
    return union_all(
        select(one).where(*of_all, columns.bracket >= bindparam("least")),
        *(select(one).where(*each, *late, *_matching(owned=False)) for each in _NOT_ROLLED_UP),
    ).limit(1)


@cache
def status_statements() -> tuple[Select[Any], ...]:
    """Number of runs by status, of all times; a status may occur more than once."""
    # Not the column itself: the planner would scan the index of all statuses.
    status = func.coalesce(runs.c.status, "").label("status")
    others = (
        select(status, func.count().label("number")).where(*each).group_by(text("1"))
        for each in _NOT_ROLLED_UP
    )
    return STATUS_ROLLUPS, *others


def failures(filter_: RunFilter) -> Statement:
    """Id, created, planned and error of the newest (`most`) failed runs."""
    of_schedule = ("schedule_id",) if filter_.schedule_id is not None else ()
    return _failures(filter_.owner is not None, (*of_schedule, *_named(filter_)))


@cache
def _failures(owned: bool, names: tuple[str, ...]) -> Statement:
    """Queries each status by itself, so that no more rows are read than needed: the index has each
    status in the order of time, but not all of them together. The runs of one schedule are few and
    have their own index."""
    # A stored message is JSON, which cannot be read when it is cut.
    error = case(
        (func.substr(runs.c.error, 1, len(STORED_PREFIX)) == STORED_PREFIX, runs.c.error),
        else_=func.substr(runs.c.error, 1, ERROR_KEY_LENGTH),
    ).label("error")

    def newest(*conditions: Condition) -> Select[Any]:
        return (
            select(runs.c.id, runs.c.created_at, runs.c.planned_at, error)
            .where(
                *conditions,
                runs.c.created_at >= bindparam("made_since"),
                *_matching(owned, names),
            )
            .order_by(runs.c.created_at.desc(), runs.c.id.desc())
            .limit(bindparam("most"))
        )

    if "schedule_id" in names:
        return newest(runs.c.status.in_([status.value for status in sorted(FAILED_STATUSES)]))
    together = union_all(
        *(select(newest(is_status(each)).subquery()) for each in sorted(FAILED_STATUSES))
    )
    return together.order_by(text("created_at DESC"), text("id DESC")).limit(bindparam("most"))


def is_status(status: RunStatus) -> Condition:
    """The status is a literal: a plan that is made before the parameter is known cannot use a
    partial index."""
    return runs.c.status == literal_column(f"'{status.value}'")


def _matching(owned: bool, names: Sequence[str] = ()) -> Iterator[Condition]:
    yield bindparam("since", type_=BigInteger) <= PLANNED
    yield bindparam("until", type_=BigInteger) > PLANNED
    for name in (*(("owner_type", "owner_id") if owned else ()), *names):
        yield _equals(runs.c, name)


def _equals(columns: Any, name: str) -> Condition:
    if name == "namespace":
        return or_(*(columns.namespace == bindparam(each) for each in _NAMESPACES))
    condition: Condition = columns[name] == bindparam(name)
    return condition


def _named(filter_: RunFilter) -> tuple[str, ...]:
    return tuple(name for name in _NAMES if getattr(filter_, name) is not None)


def _rollup_conditions(columns: Any) -> Iterator[Condition]:
    yield columns.owner_type == bindparam("owner_type")
    yield columns.owner_id == bindparam("owner_id")
    yield from _quarters(columns)


def _quarters(columns: Any) -> Iterator[Condition]:
    yield columns.quarter >= bindparam("since")
    yield columns.quarter < bindparam("until")


def _sum(column: ColumnElement[int]) -> ColumnElement[int]:
    """As an integer: some databases return the sum of integers as a decimal, which costs
    milliseconds for thousands of rows."""
    return cast(func.sum(column), BigInteger).label("number")


def _place(column: ColumnElement[int]) -> ColumnElement[int]:
    """Number of the bucket, with integer division."""
    first, length = (bindparam(name, type_=BigInteger) for name in ("first", "length"))
    return cast((column - first) // length, BigInteger).label("place")


#: Whether any run of a window was late, or may have been: by `late` microseconds, which is in the
#: bracket `least`.
ANY_LATE = _any_late()
