"""Pagination: conditions of queries, and keyset paging from the end of the previous page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Row,
    and_,
    case,
    false,
    or_,
    select,
    text,
    true,
    tuple_,
)

from chimes.model.access import Owner
from chimes.model.ids import stored_namespaces
from chimes.model.listing import (
    DeliveryQuery,
    InboxQuery,
    Page,
    Position,
    RunQuery,
    RunSort,
    ScheduleQuery,
    ScheduleSort,
)
from chimes.model.run import RunStatus
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.rows.values import encode, micros
from chimes.store.sql.tables import (
    NEEDS_ATTENTION,
    PRESENT,
    SYNC,
    deliveries,
    inbox,
    runs,
    schedules,
)

T = TypeVar("T")
Condition = ColumnElement[bool]

SCHEDULE_SORTS: Mapping[ScheduleSort, Column[Any]] = {
    ScheduleSort.NEXT_RUN_AT: schedules.c.next_run_at,
    ScheduleSort.CREATED_AT: schedules.c.created_at,
    ScheduleSort.UPDATED_AT: schedules.c.updated_at,
    ScheduleSort.NAME: schedules.c.name,
}
RUN_SORTS: Mapping[RunSort, Column[Any]] = {
    RunSort.CREATED_AT: runs.c.created_at,
    RunSort.PLANNED_AT: runs.c.planned_at,
}

_OF_SOURCES = "sync:"


def schedule_conditions(query: ScheduleQuery, dialect: Dialect) -> list[Condition]:
    found: list[Condition] = [and_(text(PRESENT))]
    if query.ids is not None:
        found.append(schedules.c.id.in_(query.ids))
    if query.last_statuses:
        found.extend(_last_ended(query.last_statuses))
    if query.owner is not None:
        found.append(owned(schedules.c, query.owner))
    if query.namespace is not None:
        found.append(schedules.c.namespace.in_(stored_namespaces(query.namespace)))
    if query.name is not None:
        found.append(schedules.c.name == query.name)
    if query.text is not None:
        found.append(dialect.contains(schedules.c.name, query.text))
    if query.enabled is not None:
        found.append(schedules.c.enabled == int(query.enabled))
    if query.kind is not None:
        found.append(schedules.c.kind == query.kind)
    for name, value in query.target:
        found.append(_in_target(dialect, name, value))
    if query.due_by is not None:
        found.append(schedules.c.next_run_at <= micros(query.due_by))
    if query.label is not None:
        found.append(dialect.has_entry(schedules.c.labels, query.label, query.label_value))
    return found


def _last_ended(statuses: Collection[RunStatus]) -> Iterator[Condition]:
    yield schedules.c.last_status.in_([each.value for each in statuses])
    if RunStatus.SUCCEEDED not in statuses:
        # Redundant, but it lets the planner use the partial index.
        yield and_(text(NEEDS_ATTENTION))


def _in_target(dialect: Dialect, name: str, value: str) -> Condition:
    """Compares the text first: a row with corrupt JSON must not fail the whole list."""
    written = encode({name: value})[1:-1]
    holds = dialect.has_entry(schedules.c.target, name, value)
    return case((dialect.contains(schedules.c.target, written), holds), else_=false())


def run_conditions(query: RunQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.owner is not None:
        found.append(owned(runs.c, query.owner))
    if query.namespace is not None:
        found.append(runs.c.namespace.in_(stored_namespaces(query.namespace)))
    for column, value in (
        (runs.c.schedule_id, query.schedule_id),
        (runs.c.parent_id, query.parent_id),
        (runs.c.holder, query.holder),
        (runs.c.needs, query.requirement),
        (runs.c.concurrency_key, query.concurrency_key),
    ):
        if value is not None:
            found.append(column == value)
    if query.requirement is not None and query.requirement.startswith(_OF_SOURCES):
        # Redundant, but it lets the planner use the partial index.
        found.append(and_(text(SYNC)))
    if query.statuses:
        found.append(runs.c.status.in_([status.value for status in query.statuses]))
    if query.origin is not None:
        found.append(runs.c.origin == query.origin.value)
    if query.ids is not None:
        found.append(runs.c.id.in_(query.ids))
    return found + _in_windows(query)


def _in_windows(query: RunQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.since is not None:
        found.append(runs.c.planned_at >= micros(query.since))
    if query.until is not None:
        found.append(runs.c.planned_at < micros(query.until))
    if query.created_since is not None:
        found.append(runs.c.created_at >= micros(query.created_since))
    if query.created_until is not None:
        found.append(runs.c.created_at <= micros(query.created_until))
    return found


def owned(columns: Any, owner: Owner) -> Condition:
    return and_(columns.owner_type == str(owner.type), columns.owner_id == owner.id)


def delivery_conditions(query: DeliveryQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.owner is not None:
        found.append(owned(deliveries.c, query.owner))
    if query.run_id is not None:
        found.append(deliveries.c.run_id == query.run_id)
    if query.schedule_id is not None:
        found.append(deliveries.c.schedule_id == query.schedule_id)
    if query.states:
        found.append(deliveries.c.state.in_([state.value for state in query.states]))
    if query.channel is not None:
        found.append(deliveries.c.channel == query.channel.value)
    if query.run_ids is not None:
        found.append(deliveries.c.run_id.in_(query.run_ids))
    if query.ids is not None:
        found.append(deliveries.c.id.in_(query.ids))
    return found


def inbox_conditions(query: InboxQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.owner is not None:
        found.append(owned(inbox.c, query.owner))
    if query.run_id is not None:
        found.append(inbox.c.run_id == query.run_id)
    if query.schedule_id is not None:
        found.append(inbox.c.schedule_id == query.schedule_id)
    if query.unread is not None:
        found.append(inbox.c.read_at.is_(None) if query.unread else inbox.c.read_at.is_not(None))
    if query.starred is not None:
        found.append(inbox.c.starred == int(query.starred))
    if query.archived is not None:
        archived = inbox.c.archived_at
        found.append(archived.is_not(None) if query.archived else archived.is_(None))
    if query.awake_at is not None:
        until = inbox.c.snoozed_until
        found.append(or_(until.is_(None), until <= micros(query.awake_at)))
    if query.statuses:
        found.append(inbox.c.status.in_(query.statuses))
    if query.asleep_at is not None:
        found.append(inbox.c.snoozed_until > micros(query.asleep_at))
    return found


class _Paging(Protocol):
    """Paging fields that all queries have."""

    @property
    def after(self) -> Position | None: ...

    @property
    def limit(self) -> int | None: ...


def page_of(
    tx: Tx,
    column: Column[Any],
    query: _Paging,
    conditions: Sequence[Condition],
    decode: Callable[[Row[Any]], T],
    *,
    descending: bool,
) -> Page[T]:
    """Rows with and without a sort value are read one after the other, so that each scan follows an
    index."""
    wanted = None if query.limit is None else query.limit + 1
    found: list[Row[Any]] = []
    for batch, order in _key_ranges(column, query.after, descending=descending):
        left = None if wanted is None else wanted - len(found)
        if left == 0:
            break
        statement = select(column.table).where(*conditions, batch).order_by(*order).limit(left)
        found.extend(tx.rows(statement))
    if query.limit is None or len(found) <= query.limit:
        return Page(tuple(decode(row) for row in found), None)
    found = found[: query.limit]
    last = found[-1]
    return Page(tuple(decode(row) for row in found), (getattr(last, column.name), last.id))


def _key_ranges(
    column: Column[Any], after: Position | None, *, descending: bool
) -> Iterator[tuple[Condition, tuple[ColumnElement[Any], ...]]]:
    row_id = column.table.c.id
    order = tuple(each.desc() if descending else each.asc() for each in (column, row_id))
    value, after_id = after or (None, None)
    present = column.isnot(None) if column.nullable else true()
    if after_id is None:
        yield present, order
    elif value is not None:
        place, last = tuple_(column, row_id), tuple_(value, after_id)
        yield (place < last if descending else place > last), order
    if column.nullable:
        without: Condition = column.is_(None)
        if after_id is not None and value is None:
            beyond = row_id < after_id if descending else row_id > after_id
            without = and_(without, beyond)
        yield without, order[1:]
