"""Rollups: counts of ended runs per quarter of an hour, which time windows are answered from.

Runs are taken in the order of `created_at` up to a mark that lies `MARGIN` in the past: ended ones
are added to the rollups, the others are written into `open_runs` and added when they have ended.
So a window is counted from the rollups, the runs in `open_runs` and the runs created after the
mark, and completions change no index for it. No transaction of a node takes as long as `MARGIN`,
so no run appears behind the mark later. Code that nevertheless inserts runs behind it (`load`) or
deletes runs (retention) adjusts the rollups in the same transaction. Every transaction that changes
rollups locks the row of the mark and takes no other contended lock while it holds it. A transaction
of unknown length cannot do that, and adds its runs to `open_runs` at once.
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
    TextClause,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    union_all,
    update,
)

from chimes.clock import MICROSECOND
from chimes.i18n import STORED_PREFIX
from chimes.model.ids import RunId, stored_namespaces
from chimes.model.insights import (
    ALL_RUNS,
    ERROR_KEY_LENGTH,
    MAX_PLANNING_LEAD,
    UNKNOWN_NODE,
    RunFilter,
    Window,
)
from chimes.model.run import FAILED_STATUSES, Origin, Run, RunStatus
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.statistics import StatisticsDialect
from chimes.store.sql.listing import Condition
from chimes.store.sql.rows.values import micros, schedule_number
from chimes.store.sql.tables import (
    ALL,
    COUNTED_UNTIL,
    ROLLUPS,
    claims,
    definitions,
    node_lags,
    open_runs,
    run_lags,
    run_tallies,
    runs,
    store_facts,
)

#: Longer than any transaction takes (`server.UNIT_SECONDS`).
MARGIN = timedelta(minutes=1)
#: A clock that was set back by more than this may have created runs behind the mark.
SET_BACK = MARGIN / 2
QUARTER = timedelta(minutes=15) // MICROSECOND

_NONE = -1
_MARK_ROW = select(store_facts.c.value).where(store_facts.c.name == COUNTED_UNTIL)
_MOVE_MARK = (
    update(store_facts).where(store_facts.c.name == COUNTED_UNTIL).values(value=bindparam("mark"))
)
#: The row is written by the first rollup.
MARK = func.coalesce(_MARK_ROW.scalar_subquery(), 0)

_ENDED = runs.c.status != literal_column(f"'{RunStatus.QUEUED.value}'")
_IS_OPEN = select(open_runs.c.run_id).where(open_runs.c.run_id == runs.c.id).exists()
_BATCH = (runs.c.created_at > bindparam("mark"), runs.c.created_at <= bindparam("until"))
#: The end of the next batch of so many runs.
BATCH_END = (
    select(runs.c.created_at)
    .where(*_BATCH)
    .order_by(runs.c.created_at)
    .limit(1)
    .offset(bindparam("more"))
)
#: Open runs that have ended, and those that were deleted.
SETTLED = (
    select(open_runs.c.run_id)
    .select_from(open_runs.outerjoin(runs, runs.c.id == open_runs.c.run_id))
    .where(or_(runs.c.id.is_(None), and_(_ENDED, runs.c.created_at <= bindparam("mark"))))
    .limit(bindparam("most"))
)

#: Times of a run, for conditions that must use another index: planners misjudge how many runs a
#: window contains, and do not know how few are outside the rollups.
PLANNED = runs.c.planned_at + literal_column("0")
_CREATED = runs.c.created_at + literal_column("0")

#: A run in its current state, which its claim contains while it runs.
CURRENT_RUNS = runs.outerjoin(claims, claims.c.run_id == runs.c.id)
_STATUS = case((claims.c.run_id.is_not(None), RunStatus.RUNNING.value), else_=runs.c.status)
#: A prefetched run starts when it is due.
STARTED = func.coalesce(
    runs.c.started_at,
    case(
        (claims.c.claimed_at > claims.c.available_at, claims.c.claimed_at),
        else_=claims.c.available_at,
    ),
)
_IS_SLOT = runs.c.origin == Origin.SCHEDULE.value


def _locked_mark(tx: Tx) -> int:
    mark = tx.for_update(_MARK_ROW, store_facts.c.name)
    row = tx.first(mark)
    if row is None:
        tx.run(tx.dialect.insert_new(store_facts), {"name": COUNTED_UNTIL, "value": 0})
        row = tx.first(mark)
    assert row is not None
    return int(row.value)


def roll_up(tx: Tx, limit: int) -> int:
    """Returns how many open runs were settled, or new ones taken."""
    mark, until = _locked_mark(tx), micros(tx.now() - MARGIN)
    if until < mark - SET_BACK // MICROSECOND:
        mark = _reset_rollups(tx)
    number = _settle_open_runs(tx, mark, limit)
    return number if number >= limit else number + _take_runs(tx, mark, until, limit - number)


def _settle_open_runs(tx: Tx, mark: int, limit: int) -> int:
    found = [row.run_id for row in tx.rows(SETTLED, {"mark": mark, "most": limit})]
    if found:
        among = tx.dialect.among(runs.c.id, "ids")
        _count_into_rollups(tx, and_(among, _ENDED), {"ids": tx.dialect.listed(found)})
        _forget_open_runs(tx, found)
    return len(found)


def _take_runs(tx: Tx, mark: int, until: int, limit: int) -> int:
    last = tx.first(BATCH_END, {"mark": mark, "until": until, "more": limit - 1})
    if last is not None:
        until = last.created_at
    batch = {"mark": mark, "until": until}
    row = tx.first(select(func.count()).select_from(runs).where(*_BATCH), batch)
    number = 0 if row is None else int(row[0])
    if number:
        # Open runs first: one that ends meanwhile must not be missed, nor be taken twice.
        _add_open_runs(tx, and_(*_BATCH, ~_ENDED), batch)
        _count_into_rollups(tx, and_(*_BATCH, _ENDED, ~_IS_OPEN), batch)
        tx.run(_MOVE_MARK, {"mark": until})
    return number


def anything_to_roll_up(tx: Tx) -> bool:
    row = tx.first(_MARK_ROW)
    mark, until = 0 if row is None else row.value, micros(tx.now() - MARGIN)
    return (
        until < mark
        or tx.first(BATCH_END, {"mark": mark, "until": until, "more": 0}) is not None
        or tx.first(SETTLED, {"mark": mark, "most": 1}) is not None
    )


def _reset_rollups(tx: Tx) -> int:
    for table in (*ROLLUPS, open_runs):
        tx.run(delete(table))
    tx.run(_MOVE_MARK, {"mark": 0})
    return 0


def add_inserted_runs(tx: Tx, new: Sequence[Run]) -> None:
    """Adds inserted runs that are behind the mark to `open_runs`. Only runs that were created a
    while ago can be."""
    recent = tx.now() - SET_BACK
    old = [run.id for run in new if run.created_at <= recent]
    if old:
        passed = (tx.dialect.among(runs.c.id, "ids"), runs.c.created_at <= _locked_mark(tx))
        _add_open_runs(tx, and_(*passed), {"ids": tx.dialect.listed(old)})


def add_uncommitted_run(tx: Tx, run_id: RunId) -> None:
    """For a transaction that may commit when the mark has passed the run."""
    _add_open_runs(tx, runs.c.id == bindparam("run_id"), {"run_id": run_id})


def subtract_deleted_runs(tx: Tx, ids: Collection[str]) -> None:
    """Subtracts runs from the rollups; called before they are deleted."""
    mark, parameters = _locked_mark(tx), {"ids": tx.dialect.listed(ids)}
    passed = and_(tx.dialect.among(runs.c.id, "ids"), runs.c.created_at <= mark, _ENDED, ~_IS_OPEN)
    if _count_into_rollups(tx, passed, parameters, sign=-1):
        row = tx.first(select(func.max(runs.c.planned_at)).where(passed), parameters)
        newest = row[0] if row else 0
        for table in ROLLUPS:
            tx.run(delete(table).where(table.c.quarter <= newest, table.c.number <= 0))
    _forget_open_runs(tx, ids)


def _add_open_runs(tx: Tx, which: Condition, parameters: Mapping[str, object]) -> None:
    found = select(runs.c.id).where(which, ~_IS_OPEN)
    tx.run(insert(open_runs).from_select(["run_id"], found), parameters)


def _forget_open_runs(tx: Tx, ids: Collection[str]) -> None:
    statement = delete(open_runs).where(tx.dialect.among(open_runs.c.run_id, "ids"))
    tx.run(statement, {"ids": tx.dialect.listed(ids)})


def _count_into_rollups(
    tx: Tx, which: Condition, parameters: Mapping[str, object], *, sign: int = 1
) -> int:
    statistics, has_lag = tx.dialect.statistics, and_(runs.c.started_at.is_not(None), _IS_SLOT)
    bracket = statistics.bracket(runs.c.started_at - runs.c.planned_at)
    columns = (
        definitions.c.owner_type,
        definitions.c.owner_id,
        (runs.c.planned_at - runs.c.planned_at % QUARTER).label("quarter"),
        definitions.c.namespace,
        definitions.c.kind,
        runs.c.origin,
        runs.c.status,
        case((has_lag, bracket), else_=_NONE).label("bracket"),
        case((has_lag, _started_by(statistics, runs.c.node)), else_="").label("node"),
    )
    found = (
        select(*columns, func.count().label("number"))
        .join_from(runs, definitions, definitions.c.key == runs.c.definition)
        .where(which)
        .group_by(*_positions(columns))
    )
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


def _started_by(
    statistics: StatisticsDialect, *last: ColumnElement[str | None]
) -> ColumnElement[str]:
    """The node that started a run (`first_node`). `last`: the nodes of its last attempt, which is
    the first one if no other is recorded."""
    return func.coalesce(statistics.first_node, *last, UNKNOWN_NODE)


def _add(tx: Tx, table: Table, counts: Mapping[Any, int]) -> None:
    if counts:
        rows = [(*key, number) for key, number in sorted(counts.items())]
        tx.dialect.statistics.add(tx.connection, table, rows)


# Statements that count a window: its rollups and the runs that are not rolled up, in one query.
# Each is built once; the parameters come from `parameters_for`, columns are read by position.

Statement = Select[Any] | CompoundSelect[Any]

_OWNER = ("owner_type", "owner_id")
#: Fields of a filter besides owner and schedule, as columns of rollups.
_NAMES = ("namespace", "kind", "origin")
#: Parameters for the names under which rows of a namespace are stored.
_NAMESPACES = ("namespace", "namespace_2", "namespace_3")
#: Runs created after the mark, and open ones. The upper limit excludes no run: without it,
#: PostgreSQL expects a third of all runs to be after the mark, and reads the whole table.
_NOT_ROLLED_UP: tuple[tuple[Condition, ...], ...] = (
    (runs.c.created_at > MARK, runs.c.created_at < literal_column(str(2**62))),
    (runs.c.id.in_(select(open_runs.c.run_id)), _CREATED <= MARK),
)
_LAG = STARTED - runs.c.planned_at
_HAS_LAG = (STARTED.is_not(None), _IS_SLOT)


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
        parameters["schedule"] = schedule_number(filter_.schedule_id)
    for name in ("kind", "origin"):
        if getattr(filter_, name) is not None:
            parameters[name] = str(getattr(filter_, name))
    if filter_.namespace is not None:
        stored = stored_namespaces(filter_.namespace)
        # A namespace with one name uses it for all parameters.
        parameters |= dict(zip(_NAMESPACES, stored * len(_NAMESPACES), strict=False))
    return parameters


def tallies(filter_: RunFilter) -> Statement:
    """Bucket, status, number; a pair may occur several times."""
    return _tallies(_names(filter_), of_schedule=filter_.schedule_id is not None)


@cache
def _tallies(names: tuple[str, ...], *, of_schedule: bool) -> Statement:
    if of_schedule:
        keys = (_place(runs.c.planned_at), _STATUS)
        return _count_runs(keys, *_RECENT_OF_SCHEDULE, *_matching(names))
    return _count_window(run_tallies, {"status": _STATUS}, names=names)


@cache
def lags(statistics: StatisticsDialect, *, owned: bool, by_quarter: bool) -> Statement:
    """Bucket, bracket, number; a pair may occur several times. `by_quarter`: a bucket is no longer
    than a quarter of an hour, so there is nothing to sum up."""
    keys = {"bracket": statistics.bracket(_LAG)}
    names = _OWNER if owned else ()
    return _count_window(run_lags, keys, *_HAS_LAG, names=names, summed=by_quarter)


@cache
def node_lags_of(statistics: StatisticsDialect, *, by_quarter: bool) -> Statement:
    """Bucket, node, bracket, number; like `lags`."""
    node = _started_by(statistics, runs.c.node, claims.c.node)
    keys: dict[str, ColumnElement[Any]] = {"node": node, "bracket": statistics.bracket(_LAG)}
    return _count_window(node_lags, keys, *_HAS_LAG, summed=by_quarter)


def _count_window(
    rollup: Table,
    keys: Mapping[str, ColumnElement[Any]],
    *conditions: Condition,
    names: Sequence[str] = (),
    summed: bool = False,
) -> Statement:
    """Bucket, keys, number. `keys`: columns of the rollup, and the same of a run. `conditions`
    apply to runs, and `names` are the columns that the filter restricts."""
    columns = rollup.c
    restricted = {*_OWNER, *names} & set(columns.keys())
    rolled_up = _sum_rollups(
        (_place(columns.quarter), *(columns[name] for name in keys)),
        columns.number,
        *_quarters(columns),
        *(_equals(columns[name], name) for name in sorted(restricted)),
        summed=summed,
    )
    buckets = (_place(runs.c.planned_at), *keys.values())
    others = (*conditions, *_matching(names))
    return union_all(rolled_up, *(_count_runs(buckets, *each, *others) for each in _NOT_ROLLED_UP))


@cache
def any_late() -> Statement:
    """Whether any run of a window was late, or may have been: by `late` microseconds, which is in
    the bracket `least`."""
    one: ColumnElement[int] = literal_column("1")
    columns, late = run_lags.c, bindparam("late", type_=BigInteger)
    return union_all(
        select(one).where(
            columns.owner_type == ALL,
            columns.owner_id == ALL,
            *_quarters(columns),
            columns.bracket >= bindparam("least"),
        ),
        *(
            select(one).select_from(CURRENT_RUNS).where(*each, _IS_SLOT, late < _LAG, *_matching())
            for each in _NOT_ROLLED_UP
        ),
    ).limit(1)


@cache
def status_statements() -> tuple[Select[Any], ...]:
    """Status and number of runs, of all times; a status may occur more than once."""
    columns = run_tallies.c
    of_all = (columns.owner_type == ALL, columns.owner_id == ALL)
    rollups = _sum_rollups((columns.status,), columns.number, *of_all)
    return rollups, *(_count_runs((_STATUS,), *each) for each in _NOT_ROLLED_UP)


def failures(filter_: RunFilter) -> Statement:
    """Id, created, planned and error of the newest (`most`) failed runs."""
    return _failures(_names(filter_), of_schedule=filter_.schedule_id is not None)


@cache
def _failures(names: tuple[str, ...], *, of_schedule: bool) -> Statement:
    """Queries each status by itself, so that no more rows are read than needed: the index has each
    status in the order of time, but not all of them together. The runs of one schedule are few and
    have their own index."""
    # A stored message is JSON, which cannot be read when it is cut.
    error = case(
        (func.substr(runs.c.error, 1, len(STORED_PREFIX)) == STORED_PREFIX, runs.c.error),
        else_=func.coalesce(func.substr(runs.c.error, 1, ERROR_KEY_LENGTH), ""),
    ).label("error")

    def newest(*conditions: Condition) -> Select[Any]:
        return (
            select(runs.c.id, runs.c.created_at, runs.c.planned_at, error)
            .where(*conditions, *_matching(names))
            .order_by(runs.c.created_at.desc(), runs.c.id.desc())
            .limit(bindparam("most"))
        )

    failed = sorted(FAILED_STATUSES)
    if of_schedule:
        among = runs.c.status.in_([status.value for status in failed])
        return newest(*_RECENT_OF_SCHEDULE, among)
    parts = (newest(has_problem(status), _RECENT) for status in failed)
    together = union_all(*(select(part.subquery()) for part in parts))
    return together.order_by(text("created_at DESC"), text("id DESC")).limit(bindparam("most"))


def has_problem(status: RunStatus) -> Condition:
    """The status is a literal: a plan that is made before the parameter is known cannot use a
    partial index."""
    return runs.c.problem == literal_column(f"'{status.value}'")


_RECENT = runs.c.created_at >= bindparam("made_since")
_RECENT_OF_SCHEDULE = (runs.c.schedule == bindparam("schedule"), _RECENT)


def _count_runs(keys: Sequence[ColumnElement[Any]], *conditions: Condition) -> Select[Any]:
    found = select(*keys, func.count()).select_from(CURRENT_RUNS).where(*conditions)
    return found.group_by(*_positions(keys))


def _sum_rollups(
    keys: Sequence[ColumnElement[Any]],
    number: ColumnElement[int],
    *conditions: Condition,
    summed: bool = False,
) -> Select[Any]:
    """`summed`: there is only one row of each key."""
    if summed:
        return select(*keys, number).where(*conditions)
    # As an integer: some databases return the sum of integers as a decimal, which costs
    # milliseconds for thousands of rows.
    total = cast(func.sum(number), BigInteger)
    return select(*keys, total).where(*conditions).group_by(*_positions(keys))


def _positions(columns: Sequence[object]) -> list[TextClause]:
    return [text(str(place)) for place in range(1, len(columns) + 1)]


def _names(filter_: RunFilter) -> tuple[str, ...]:
    """The columns that a filter restricts, besides the schedule."""
    owner = _OWNER if filter_.owner is not None else ()
    return (*owner, *(name for name in _NAMES if getattr(filter_, name) is not None))


def _matching(names: Sequence[str] = ()) -> Iterator[Condition]:
    """Runs of the window that match the filter."""
    yield bindparam("since", type_=BigInteger) <= PLANNED
    yield bindparam("until", type_=BigInteger) > PLANNED
    if "origin" in names:
        yield _equals(runs.c.origin, "origin")
    defined = [_equals(definitions.c[name], name) for name in names if name != "origin"]
    if defined:
        yield runs.c.definition.in_(select(definitions.c.key).where(*defined))


def _equals(column: ColumnElement[str], name: str) -> Condition:
    if name == "namespace":
        return or_(*(column == bindparam(each) for each in _NAMESPACES))
    return column == bindparam(name)


def _quarters(columns: Any) -> Iterator[Condition]:
    yield columns.quarter >= bindparam("since")
    yield columns.quarter < bindparam("until")


def _place(column: ColumnElement[int]) -> ColumnElement[int]:
    """Number of the bucket, with integer division."""
    first, length = (bindparam(name, type_=BigInteger) for name in ("first", "length"))
    return cast((column - first) // length, BigInteger)
