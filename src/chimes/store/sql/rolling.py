"""The sums that windows are answered from: ended runs, counted once they have ended for a while.

Runs are taken in the order of `finished_at` up to a mark that lies `MARGIN` in the past: no
transaction that ends a run takes so long, so nothing appears behind the mark afterwards. Whoever
puts ended runs behind it all the same (`load`), or takes them away (retention), says so here, in
the same transaction. What lies before the mark and has not ended is counted where it lies. The
row with the mark is locked by all who change sums, and they wait for nobody else while they have
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    text,
    update,
)

from chimes.model.run import Origin, Run
from chimes.store.plain import MICROSECOND
from chimes.store.sql.database import Tx
from chimes.store.sql.insight_tables import (
    ALL,
    ROLLED_UNTIL,
    SUMS,
    node_lags,
    run_lags,
    run_tallies,
)
from chimes.store.sql.rows.parts import micros
from chimes.store.sql.tables import ENDED, runs, store_facts

#: Longer than a transaction takes (`server_database.UNIT_SECONDS`).
MARGIN = timedelta(minutes=1)
#: A clock that was set back by more than this has ended runs behind the mark.
SET_BACK = MARGIN / 2
QUARTER = timedelta(minutes=15) // MICROSECOND

_NONE = -1
MARK = select(store_facts.c.value).where(store_facts.c.name == ROLLED_UNTIL)
_MOVE_MARK = (
    update(store_facts).where(store_facts.c.name == ROLLED_UNTIL).values(value=bindparam("mark"))
)
_BEHIND = (text(ENDED), runs.c.finished_at > bindparam("mark"))
#: The end of the next stretch of so many runs.
STRETCH = (
    select(runs.c.finished_at)
    .where(*_BEHIND, runs.c.finished_at <= bindparam("until"))
    .order_by(runs.c.finished_at)
    .limit(1)
    .offset(bindparam("more"))
)

#: When a run was planned, for conditions that are to follow another index: how many runs a window
#: holds is something that planners guess badly, and how few are outside the sums they do not know.
PLANNED = runs.c.planned_at + literal_column("0")
HAS_LAG = and_(runs.c.started_at.is_not(None), runs.c.origin == Origin.SCHEDULE.value)


def rolled_until(tx: Tx) -> int:
    row = tx.first(MARK)
    assert row is not None
    return int(row.value)


def _locked_mark(tx: Tx) -> int:
    row = tx.first(tx.held(MARK, store_facts.c.name))
    assert row is not None
    return int(row.value)


def roll_up(tx: Tx, limit: int) -> int:
    mark, until = _locked_mark(tx), micros(tx.now() - MARGIN)
    if until < mark - SET_BACK // MICROSECOND:
        mark = _begin_anew(tx)
    given = {"mark": mark, "until": until, "more": limit - 1}
    last = tx.first(STRETCH, given)
    if last is not None:
        until = last.finished_at
    stretch = and_(text(ENDED), runs.c.finished_at > mark, runs.c.finished_at <= until)
    number = _fold(tx, stretch)
    if number:
        tx.run(_MOVE_MARK, {"mark": until})
    return number


def anything_to_roll_up(tx: Tx) -> bool:
    given = {"mark": rolled_until(tx), "until": micros(tx.now() - MARGIN), "more": 0}
    return tx.first(STRETCH, given) is not None or given["until"] < given["mark"]


def _begin_anew(tx: Tx) -> int:
    for table in SUMS:
        tx.run(delete(table))
    tx.run(_MOVE_MARK, {"mark": 0})
    return 0


def note_inserted(tx: Tx, new: Sequence[Run]) -> None:
    """Ended runs that were inserted, as far as the sums have passed them already."""
    ended = [(run.id, run.finished_at) for run in new if run.finished_at is not None]
    if not ended:
        return
    mark = _locked_mark(tx)
    passed = [run_id for run_id, finished_at in ended if micros(finished_at) <= mark]
    if passed:
        _fold(tx, tx.dialect.among(runs.c.id, "ids"), {"ids": tx.dialect.listed(passed)})


def note_forgotten(tx: Tx, ids: Collection[str]) -> None:
    """To be said before they are deleted."""
    mark = _locked_mark(tx)
    passed = and_(tx.dialect.among(runs.c.id, "ids"), runs.c.finished_at <= mark)
    if _fold(tx, passed, {"ids": tx.dialect.listed(ids)}, sign=-1):
        newest = select(func.max(runs.c.planned_at)).where(passed)
        row = tx.first(newest, {"ids": tx.dialect.listed(ids)})
        for table in SUMS:
            tx.run(
                delete(table).where(table.c.quarter <= (row[0] if row else 0), table.c.number <= 0)
            )


def _fold(
    tx: Tx,
    which: ColumnElement[bool],
    given: dict[str, object] | None = None,
    *,
    sign: int = 1,
) -> int:
    counting = tx.dialect.counting
    columns = (
        runs.c.owner_type,
        runs.c.owner_id,
        (runs.c.planned_at - runs.c.planned_at % QUARTER).label("quarter"),
        runs.c.namespace,
        runs.c.kind,
        runs.c.origin,
        runs.c.status,
        case((HAS_LAG, counting.bracket), else_=_NONE).label("bracket"),
        case((HAS_LAG, counting.node), else_="").label("node"),
    )
    found = select(*columns, func.count().label("number")).where(which)
    found = found.group_by(*(text(str(place)) for place in range(1, len(columns) + 1)))
    tallies: Counter[tuple[str, str, int, str, str, str, str]] = Counter()
    lags: Counter[tuple[str, str, int, int]] = Counter()
    nodes: Counter[tuple[int, str, int]] = Counter()
    total = 0
    for row in tx.rows(found, given):
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
        tx.dialect.counting.add(tx.connection, table, rows)
