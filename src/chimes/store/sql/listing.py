"""Pagination: conditions of queries, and keyset paging from the end of the previous page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Row,
    Select,
    and_,
    case,
    false,
    or_,
    select,
    text,
    true,
    tuple_,
    union_all,
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
from chimes.model.run import OWN_KEY_PREFIX, RunStatus
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.rows.values import encode, micros, schedule_number
from chimes.store.sql.tables import (
    PRESENT,
    UNSUCCESSFUL,
    claims,
    cursors,
    definitions,
    deliveries,
    inbox,
    queue,
    runs,
    schedule_stats,
    schedules,
)

T = TypeVar("T")
Condition = ColumnElement[bool]

SCHEDULE_SORTS: Mapping[ScheduleSort, Column[Any]] = {
    ScheduleSort.NEXT_RUN_AT: cursors.c.next_run_at,
    ScheduleSort.CREATED_AT: schedules.c.created_at,
    ScheduleSort.UPDATED_AT: schedules.c.updated_at,
    ScheduleSort.NAME: schedules.c.name,
}
#: The index of a column contains only the rows that meet the first condition. The others, which are
#: few, are read by themselves.
_PARTS: Mapping[Column[Any], tuple[Condition, ...]] = {
    cursors.c.next_run_at: (and_(text("live = 1")), and_(text("live = 0")))
}
RUN_SORTS: Mapping[RunSort, Column[Any]] = {
    RunSort.CREATED_AT: runs.c.created_at,
    RunSort.PLANNED_AT: runs.c.planned_at,
}

_OF_SOURCES = "sync:"
#: Where the runs of each status are that have not ended.
_ACTIVE = {
    RunStatus.QUEUED: select(queue.c.run_id),
    RunStatus.RUNNING: select(claims.c.run_id),
}


def schedule_conditions(  # noqa: C901 (one condition for each field)
    query: ScheduleQuery, dialect: Dialect
) -> list[Condition]:
    """Conditions on `schedule_rows`."""
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
    if query.triggers:
        found.append(_has_trigger(dialect, query.triggers))
    for name, value in query.target:
        found.append(_in_target(dialect, name, value))
    if query.due_by is not None:
        found.append(cursors.c.next_run_at <= micros(query.due_by))
    if query.label is not None:
        found.append(dialect.has_entry(schedules.c.labels, query.label, query.label_value))
    return found


def _last_ended(statuses: Collection[RunStatus]) -> Iterator[Condition]:
    yield schedule_stats.c.last_status.in_([each.value for each in statuses])
    if RunStatus.SUCCEEDED not in statuses:
        # Redundant, but it lets the planner use the partial index.
        yield and_(text(UNSUCCESSFUL))


def _has_trigger(dialect: Dialect, kinds: Collection[str]) -> Condition:
    """The kind is the first key of the text."""
    texts = [encode({"kind": each})[:-1] for each in kinds]
    return or_(*(dialect.contains(schedules.c.trigger, each) for each in texts))


def _in_target(dialect: Dialect, name: str, value: str) -> Condition:
    """Compares the text first: a row with corrupt JSON must not fail the whole list."""
    written = encode({name: value})[1:-1]
    holds = dialect.has_entry(schedules.c.target, name, value)
    return case((dialect.contains(schedules.c.target, written), holds), else_=false())


def run_conditions(query: RunQuery) -> list[Condition]:
    """Conditions on `run_rows`."""
    found: list[Condition] = []
    if query.schedule_id is not None:
        found.append(runs.c.schedule == schedule_number(query.schedule_id))
    of_source = query.requirement is not None and query.requirement.startswith(_OF_SOURCES)
    for column, value in (
        (runs.c.parent_id, query.parent_id),
        (claims.c.node, query.holder),
        (runs.c.source, query.requirement if of_source else None),
    ):
        if value is not None:
            found.append(column == value)
    if query.ids is not None:
        found.append(runs.c.id.in_(query.ids))
    if query.statuses:
        found.append(has_status(query.statuses, indexed=not found))
    if query.concurrency_key is not None:
        found.append(_has_key(query.concurrency_key))
    if query.origin is not None:
        found.append(runs.c.origin == query.origin.value)
    defined = _definition_conditions(query)
    if defined:
        found.append(runs.c.definition.in_(select(definitions.c.key).where(*defined)))
    return found + _in_windows(query)


def _definition_conditions(query: RunQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.owner is not None:
        found.append(owned(definitions.c, query.owner))
    if query.namespace is not None:
        found.append(definitions.c.namespace.in_(stored_namespaces(query.namespace)))
    # The requirement of a sync run is in its own row.
    if query.requirement is not None and not query.requirement.startswith(_OF_SOURCES):
        found.append(definitions.c.needs == query.requirement)
    return found


def _has_key(key: str) -> Condition:
    if not key.startswith(OWN_KEY_PREFIX):
        return runs.c.concurrency_key == key
    schedule = schedule_number(key.removeprefix(OWN_KEY_PREFIX))
    return and_(runs.c.concurrency_key == "", runs.c.schedule == schedule)


def has_status(statuses: Collection[RunStatus], *, indexed: bool = True) -> Condition:
    """If the statuses are all of one of these kinds, only the few rows of `queue` and `claims` or
    of the index of problems are read. `indexed`: there is no better index."""
    sources = [_ACTIVE[status] for status in sorted(statuses) if status in _ACTIVE]
    ended = [status.value for status in sorted(statuses) if status not in _ACTIVE]
    problems = indexed and RunStatus.SUCCEEDED not in statuses
    is_ended = (runs.c.problem if problems else runs.c.status).in_(ended)
    if not sources:
        return is_ended
    # As a derived table: MariaDB would look every run up in a union.
    active = union_all(*sources).subquery()
    is_active = runs.c.id.in_(select(active.c.run_id))
    return or_(is_active, is_ended) if ended else is_active


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
    statement: Select[Any],
    column: Column[Any],
    row_id: Column[Any],
    query: _Paging,
    decode: Callable[[Sequence[Row[Any]]], Sequence[T]],
    *,
    descending: bool,
) -> Page[T]:
    """The rows of the statement in the order of the column and then of the id. Rows with and
    without a sort value are read one after the other, so that each scan follows an index."""
    wanted = None if query.limit is None else query.limit + 1
    parts = _PARTS.get(column, (true(),))
    found: list[Row[Any]] = []
    for batch, order in _key_ranges(column, row_id, query.after, descending=descending):
        left = None if wanted is None else wanted - len(found)
        if left == 0:
            break
        ordered = statement.where(batch).order_by(*order).limit(left)
        rows = [row for part in parts for row in tx.rows(ordered.where(part))]
        if len(parts) > 1:
            rows.sort(key=lambda row: _position(row, column, row_id), reverse=descending)
        found.extend(rows[:left])
    if query.limit is None or len(found) <= query.limit:
        return Page(tuple(decode(found)), None)
    found = found[: query.limit]
    last = found[-1]._mapping
    return Page(tuple(decode(found)), (last[column], last[row_id]))


def _position(row: Row[Any], column: Column[Any], row_id: Column[Any]) -> tuple[Any, str]:
    """Sort key among rows that all have a sort value, or all have none."""
    values = row._mapping
    return values[column] or 0, values[row_id]


def _key_ranges(
    column: Column[Any], row_id: Column[Any], after: Position | None, *, descending: bool
) -> Iterator[tuple[Condition, tuple[ColumnElement[Any], ...]]]:
    order = tuple(each.desc() if descending else each.asc() for each in (column, row_id))
    value, after_id = after or (None, None)
    present = column.isnot(None) if column.nullable else true()
    if after_id is None:
        yield present, order
    elif value is not None:
        place, last = tuple_(column, row_id), tuple_(value, after_id)
        # Redundant, but an index of the column alone can use it.
        start = column <= value if descending else column >= value
        yield and_(start, place < last if descending else place > last), order
    if column.nullable:
        without: Condition = column.is_(None)
        if after_id is not None and value is None:
            beyond = row_id < after_id if descending else row_id > after_id
            without = and_(without, beyond)
        yield without, order[1:]
