"""The statements that count a window: the sums in it, what has ended since they were made, and what
has not ended (`rolling`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    func,
    literal,
    literal_column,
    select,
    text,
)

from chimes.model.access import Owner
from chimes.model.insights import MADE_BEFORE, RunFilter, Window
from chimes.store.plain import MICROSECOND
from chimes.store.sql.database import Tx
from chimes.store.sql.insight_tables import ALL, node_lags, run_lags, run_tallies
from chimes.store.sql.listing import Condition, owned
from chimes.store.sql.rolling import HAS_LAG, PLANNED, rolled_until
from chimes.store.sql.rows.parts import micros
from chimes.store.sql.tables import ACTIVE, ENDED, runs

STATUS_SUMS = (
    select(run_tallies.c.status, func.sum(run_tallies.c.number).label("number"))
    .where(run_tallies.c.owner_type == ALL, run_tallies.c.owner_id == ALL)
    .group_by(run_tallies.c.status)
)


class Places:
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


def count_statements(
    tx: Tx, window: Window, filter_: RunFilter, place: Places
) -> Iterator[Select[tuple[int, str, int]]]:
    if filter_.schedule_id is not None:
        yield _tally(place, [*_of_schedule(window, filter_), *matching(window, filter_)])
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
        yield _tally(place, [*stretch, *matching(window, filter_)])


def _tally(place: Places, conditions: Sequence[Any]) -> Select[Any]:
    number = func.count().label("number")
    found = select(place.of(runs.c.planned_at), runs.c.status, number).where(*conditions)
    return found.group_by(text("1"), text("2"))


def lag_statements(
    tx: Tx, window: Window, owner: Owner | None, place: Places, *, by_node: bool
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
        wanted = [*stretch, HAS_LAG, *matching(window, RunFilter(owner=owner))]
        yield select(*names).where(*wanted).group_by(*_first_three())


def status_statements(tx: Tx) -> Iterator[Select[Any]]:
    """How many runs there are by status, of all times; a status can come more than once."""
    yield STATUS_SUMS
    for stretch in _not_in_sums(tx):
        # Not the column itself: its own index has them grouped already, and all of them.
        status = func.coalesce(runs.c.status, "").label("status")
        columns: list[ColumnElement[Any]] = [status, func.count().label("number")]
        yield select(*columns).where(*stretch).group_by(text("1"))


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


def matching(window: Window, filter_: RunFilter) -> Iterator[Condition]:
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
