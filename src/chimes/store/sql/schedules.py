"""Schedules: adding, changing, listing and counting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, insert, select

from chimes.errors import AlreadyExists, Conflict, NotFound
from chimes.i18n import _
from chimes.model.access import Owner, Quota
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import Page, ScheduleQuery
from chimes.model.run import Reason, RunStatus, cancel
from chimes.model.schedule import Schedule, counts_against, quota_exceeded, run_definition
from chimes.store.port import ScheduleEdit
from chimes.store.selection import group_by_zone
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import Tx
from chimes.store.sql.listing import SCHEDULE_SORTS, page_of, schedule_conditions
from chimes.store.sql.locks import lock_for_completion, lock_owner, lock_schedules_and_keys
from chimes.store.sql.prefetch import undo_prefetch
from chimes.store.sql.records import append_audit, append_audits
from chimes.store.sql.rows.access import (
    SELECT_SCHEDULES,
    ExistingRuns,
    decode_schedule,
    insert_runs,
    load_runs,
    load_schedule_and_damage,
    load_schedules_and_damage,
    skip_taken_slots,
    write_schedule,
)
from chimes.store.sql.rows.schedule import (
    CURSOR,
    STATS,
    cursor_values,
    edit_values,
    sealed_values,
    stats_values,
    store_definitions,
)
from chimes.store.sql.rows.values import schedule_number, zone_in
from chimes.store.sql.tables import cursors, queue, runs, schedule_rows, schedule_stats, schedules

#: Same rule as `counts_against`.
_ACTIVE = case(
    (schedules.c.enabled == 1, cursors.c.next_run_at), else_=schedules.c.pause_until
).is_not(None)


def add_schedule(
    tx: Tx, schedule: Schedule, audit: AuditEntry | None, quotas: Sequence[Quota]
) -> Schedule:
    if quotas:
        lock_owner(tx, schedule.owner)
    if not insert_schedule(tx, schedule):
        raise AlreadyExists(_("schedule {id} exists already", id=schedule.id))
    _check_quotas(tx, None, schedule, quotas)
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return schedule


def insert_schedule(tx: Tx, schedule: Schedule) -> bool:
    """Returns False if the id exists."""
    key = schedule_number(schedule.id)
    (definition,) = store_definitions(tx, [run_definition(schedule)])
    sealed = sealed_values(schedule, tx.dialect.keyring)
    values = sealed | {"key": key, "definition": definition}
    names = tuple(schedules.c.keys())
    row = tuple(values[name] for name in names)
    if not tx.dialect.insert_missing(tx.connection, schedules, names, [row], unique="id"):
        return False
    cursor = dict(zip(CURSOR, cursor_values(key, schedule), strict=True))
    tx.run(insert(cursors), cursor | edit_values(schedule, sealed))
    tx.run(insert(schedule_stats), dict(zip(STATS, stats_values(key, schedule), strict=True)))
    return True


def change_schedule(
    tx: Tx, edit: ScheduleEdit, quotas: Sequence[Quota], *, deleted: bool
) -> Schedule:
    before, damage = load_schedule_and_damage(tx, edit.schedule_id)
    after, now = _apply(tx, edit, before, damage, tx.now(), quotas, deleted=deleted)
    if after.deleted_at is not None:
        _cancel_waiting(tx, [edit.schedule_id], now)
    if edit.audit is not None:
        append_audit(tx, edit.audit)
    tx.wakes = True
    return after


def change_schedules(tx: Tx, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
    found = load_schedules_and_damage(tx, [edit.schedule_id for edit in edits])
    now = tx.now()
    changed: list[Schedule] = []
    for edit in edits:
        before, damage = found.get(edit.schedule_id, (None, frozenset()))
        after, now = _apply(tx, edit, before, damage, now)
        changed.append(after)
    _cancel_waiting(tx, [s.id for s in changed if s.deleted_at is not None], now)
    append_audits(tx, [edit.audit for edit in edits if edit.audit is not None])
    tx.wakes = True
    return tuple(changed)


def list_schedules(tx: Tx, query: ScheduleQuery) -> Page[Schedule]:
    return page_of(
        tx,
        SELECT_SCHEDULES.where(*schedule_conditions(query, tx.dialect)),
        SCHEDULE_SORTS[query.sort],
        schedules.c.id,
        query,
        lambda rows: [decode_schedule(row) for row in rows],
        descending=query.descending,
    )


def count_schedules(tx: Tx, query: ScheduleQuery) -> int:
    statement = select(func.count()).select_from(schedule_rows)
    row = tx.first(statement.where(*schedule_conditions(query, tx.dialect)))
    return 0 if row is None else int(row[0])


def zones_in_use(tx: Tx, owner: Owner | None) -> dict[str, tuple[ScheduleId, ...]]:
    query = ScheduleQuery(owner=owner, enabled=True)
    wanted = (
        select(schedules.c.id, schedules.c.trigger)
        .select_from(schedule_rows)
        .where(*schedule_conditions(query, tx.dialect), cursors.c.next_run_at.is_not(None))
    )
    # By position: there are thousands, and access by name is slower.
    rows: Sequence[Sequence[Any]] = tx.rows(wanted)
    return group_by_zone((zone_in(trigger), ScheduleId(name)) for name, trigger in rows)


def _apply(
    tx: Tx,
    edit: ScheduleEdit,
    found: Schedule | None,
    damage: Collection[str],
    now: datetime,
    quotas: Sequence[Quota] = (),
    *,
    deleted: bool = False,
) -> tuple[Schedule, datetime]:
    """Returns the locked schedule after its change, and the time of the change. `now` was read
    after the row was locked: slots that fired while this transaction waited for the lock are before
    the change, not after it."""
    if found is None or (found.deleted_at is not None and not deleted):
        raise NotFound(_("schedule {id} not found", id=edit.schedule_id))
    before, now = undo_prefetch(tx, found, now)
    after = skip_taken_slots(tx, before, edit.change(before, now), now)
    _refuse_placeholders(before, after, damage)
    _check_quotas(tx, before, after, quotas)
    new = edit.runs(before, now) if edit.runs else ()
    if new:
        lock_schedules_and_keys(tx, [(run.schedule_id, run.concurrency_key) for run in new])
        existing = ExistingRuns(tx, new)
        added = [run for run in new if existing.add(run)]
        insert_runs(tx, added)
        write_outbox_of_inserted(tx, added, now)
    write_schedule(tx, after)
    return after, now


def _refuse_placeholders(before: Schedule, after: Schedule, damage: Collection[str]) -> None:
    """A corrupt part must be replaced, or its schedule deleted; a placeholder is never stored."""
    unchanged = [
        name for name in damage if getattr(after, name, None) == getattr(before, name, None)
    ]
    if unchanged and after.deleted_at is None:
        raise Conflict(
            _(
                "{error}; replace the {parts}, or delete it",
                error=before.last_error,
                parts=", ".join(unchanged),
            )
        )


def _check_quotas(
    tx: Tx, before: Schedule | None, after: Schedule, quotas: Sequence[Quota]
) -> None:
    counted = [
        quota
        for quota in quotas
        if counts_against(after, quota) and not (before and counts_against(before, quota))
    ]
    if counted and before is not None:
        lock_owner(tx, after.owner)
    for quota in counted:
        if _reached(tx, after, quota):
            raise quota_exceeded(after.owner, quota)


def _reached(tx: Tx, new: Schedule, quota: Quota) -> bool:
    """Returns whether the owner has reached the quota; counts no further than needed."""
    query = ScheduleQuery(owner=new.owner, namespace=quota.namespace)
    conditions = schedule_conditions(query, tx.dialect)
    if quota.active:
        conditions = [*conditions, _ACTIVE]
    others = (
        select(schedules.c.id)
        .select_from(schedule_rows)
        .where(*conditions, schedules.c.id != new.id)
    )
    return len(tx.rows(others.limit(quota.limit))) >= quota.limit


def _cancel_waiting(tx: Tx, schedule_ids: Sequence[ScheduleId], now: datetime) -> None:
    """Their schedules are locked; shared concurrency keys are locked before the runs."""
    if not schedule_ids:
        return
    keys = [schedule_number(each) for each in schedule_ids]
    statement = (
        select(runs.c.id)
        .join(queue, queue.c.run_id == runs.c.id)
        .where(tx.dialect.among(runs.c.schedule, "keys"))
    )
    rows = tx.tuples(statement, {"keys": tx.dialect.listed(keys)})
    ids = sorted(row[0] for row in rows)
    lock_for_completion(tx, ids)
    waiting = [run for run in load_runs(tx, ids).values() if run.status is RunStatus.QUEUED]
    effects = CompletionEffects(tx, now, waiting, recording=False)
    for run in waiting:
        effects.apply(cancel(run, Reason.SCHEDULE_DELETED, now))
    effects.write()
