"""Listing in Python, for stores that hold their rows in memory; the reference for the SQL ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, InboxItem
from chimes.model.ids import ScheduleId
from chimes.model.listing import (
    AuditQuery,
    DeliveryQuery,
    InboxQuery,
    Page,
    Position,
    RunQuery,
    RunSort,
    ScheduleQuery,
    ScheduleSort,
)
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.plain import to_micros


def matches_audit(entry: AuditEntry, query: AuditQuery) -> bool:
    return (
        query.owner in (None, entry.owner)
        and query.object_id in (None, entry.object_id)
        and (query.object_ids is None or entry.object_id in query.object_ids)
        and query.verb in (None, entry.verb)
        and (query.verbs is None or entry.verb in query.verbs)
        and query.actor in (None, entry.actor)
        and query.door in (None, entry.door)
        and (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at <= query.until)
        and (query.before is None or entry.number < query.before)
    )


def by_zone(
    found: Iterable[tuple[str | None, ScheduleId]],
) -> dict[str, tuple[ScheduleId, ...]]:
    """None: nobody can tell."""
    zones: dict[str, list[ScheduleId]] = {}
    for zone, schedule_id in found:
        if zone is not None:
            zones.setdefault(zone, []).append(schedule_id)
    return {zone: tuple(sorted(ids)) for zone, ids in zones.items()}


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=_Identified)
Value = str | int | None


def select_schedules(rows: Iterable[Schedule], query: ScheduleQuery) -> Page[Schedule]:
    chosen = [row for row in rows if matches_schedule(row, query)]
    return page(
        chosen,
        lambda row: schedule_value(row, query.sort),
        descending=query.descending,
        after=query.after,
        limit=query.limit,
    )


def select_runs(rows: Iterable[Run], query: RunQuery) -> Page[Run]:
    chosen = [row for row in rows if matches_run(row, query)]
    return page(
        chosen,
        lambda row: run_value(row, query.sort),
        descending=query.descending,
        after=query.after,
        limit=query.limit,
    )


def select_deliveries(rows: Iterable[Delivery], query: DeliveryQuery) -> Page[Delivery]:
    chosen = [row for row in rows if matches_delivery(row, query)]
    return page(
        chosen,
        lambda row: to_micros(row.created_at),
        descending=True,
        after=query.after,
        limit=query.limit,
    )


def select_inbox(rows: Iterable[InboxItem], query: InboxQuery) -> Page[InboxItem]:
    chosen = [row for row in rows if matches_inbox(row, query)]
    return page(
        chosen,
        lambda row: to_micros(row.created_at),
        descending=True,
        after=query.after,
        limit=query.limit,
    )


def schedule_value(row: Schedule, sort: ScheduleSort) -> Value:
    if sort is ScheduleSort.NAME:
        return row.name
    moment = {
        ScheduleSort.NEXT_RUN_AT: row.next_run_at,
        ScheduleSort.CREATED_AT: row.created_at,
        ScheduleSort.UPDATED_AT: row.updated_at,
    }[sort]
    return None if moment is None else to_micros(moment)


def run_value(row: Run, sort: RunSort) -> int:
    return to_micros(row.created_at if sort is RunSort.CREATED_AT else row.planned_at)


def matches_schedule(row: Schedule, query: ScheduleQuery) -> bool:
    return (
        row.deleted_at is None
        and (query.ids is None or row.id in query.ids)
        and (not query.last_statuses or row.last_status in query.last_statuses)
        and query.owner in (None, row.owner)
        and query.namespace in (None, row.namespace)
        and query.name in (None, row.name)
        and (query.text is None or query.text in row.name)
        and query.enabled in (None, row.enabled)
        and query.kind in (None, row.target.kind)
        and all(getattr(row.target, name, None) == value for name, value in query.target)
        and (query.due_by is None or _due_by(row, query.due_by))
        and (query.label is None or query.label in row.labels)
        and (query.label_value is None or row.labels.get(query.label or "") == query.label_value)
    )


def _due_by(row: Schedule, moment: datetime) -> bool:
    return row.next_run_at is not None and row.next_run_at <= moment


def matches_run(row: Run, query: RunQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and query.namespace in (None, row.namespace)
        and query.schedule_id in (None, row.schedule_id)
        and (not query.statuses or row.status in query.statuses)
        and query.origin in (None, row.origin)
        and query.parent_id in (None, row.parent_id)
        and query.holder in (None, row.holder)
        and (query.ids is None or row.id in query.ids)
        and query.needs in (None, row.target.needs)
        and query.concurrency_key in (None, row.concurrency_key)
        and (query.since is None or row.planned_at >= query.since)
        and (query.until is None or row.planned_at < query.until)
        and (query.created_since is None or row.created_at >= query.created_since)
        and (query.created_until is None or row.created_at <= query.created_until)
    )


def matches_delivery(row: Delivery, query: DeliveryQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and query.run_id in (None, row.run_id)
        and query.schedule_id in (None, row.schedule_id)
        and (not query.states or row.state in query.states)
        and (query.run_ids is None or row.run_id in query.run_ids)
        and query.channel in (None, row.recipient.channel)
        and (query.ids is None or row.id in query.ids)
    )


def matches_inbox(row: InboxItem, query: InboxQuery) -> bool:
    return (
        query.owner in (None, row.owner)
        and query.run_id in (None, row.run_id)
        and query.schedule_id in (None, row.schedule_id)
        and query.unread in (None, row.read_at is None)
        and query.starred in (None, row.starred)
        and query.archived in (None, row.archived_at is not None)
        and (not query.statuses or row.status in query.statuses)
        and (
            query.awake_at is None
            or row.snoozed_until is None
            or row.snoozed_until <= query.awake_at
        )
        and (
            query.asleep_at is None
            or (row.snoozed_until is not None and row.snoozed_until > query.asleep_at)
        )
    )


def page(
    rows: list[Row],
    value: Callable[[Row], Value],
    *,
    descending: bool,
    after: Position | None,
    limit: int | None,
) -> Page[Row]:
    """Rows without a value come last in both directions; ids break ties in the sort direction."""
    with_value = sorted(
        (row for row in rows if value(row) is not None),
        key=lambda row: (value(row), row.id),
        reverse=descending,
    )
    without = sorted(
        (row for row in rows if value(row) is None), key=lambda row: row.id, reverse=descending
    )
    ordered = with_value + without
    if after is not None:
        ordered = [row for row in ordered if _beyond((value(row), row.id), after, descending)]
    if limit is None or len(ordered) <= limit:
        return Page(tuple(ordered), None)
    chosen = ordered[:limit]
    return Page(tuple(chosen), (value(chosen[-1]), chosen[-1].id))


def _beyond(position: Position, after: Position, descending: bool) -> bool:
    value, row_id = position
    last, last_id = after
    if (value is None) != (last is None):
        return value is None
    if value == last:
        return row_id < last_id if descending else row_id > last_id
    if isinstance(value, str) and isinstance(last, str):
        return value < last if descending else value > last
    assert isinstance(value, int)
    assert isinstance(last, int)
    return value < last if descending else value > last
