"""Deletes what nothing uses any more: purged schedules, old keys, definitions and idle locks."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, or_, select

from chimes.model.access import unused_keys
from chimes.store.codec.values import USED_INTERVAL
from chimes.store.sql.database.base import Tx
from chimes.store.sql.due_schedules import delete_old_batches
from chimes.store.sql.locks import lock_schedules
from chimes.store.sql.rows.records import key_of
from chimes.store.sql.rows.values import micros, schedule_number
from chimes.store.sql.tables import (
    api_keys,
    claims,
    concurrency_keys,
    cursors,
    definitions,
    queue,
    runs,
    schedule_stats,
    schedules,
)

#: `is_declared_id`.
_DECLARED = "________-____-5___-____-____________"
#: Deleted schedules without runs (`is_purgeable`).
PURGEABLE = (
    select(schedules.c.id)
    .join(cursors, cursors.c.schedule == schedules.c.key)
    .where(
        schedules.c.deleted_at < bindparam("before"),
        or_(cursors.c.purged_until.is_(None), cursors.c.purged_until < bindparam("before")),
        schedules.c.id.not_like(_DECLARED),
        ~select(runs.c.id).where(runs.c.schedule == schedules.c.key).exists(),
    )
    .order_by(schedules.c.deleted_at, schedules.c.id)
    .limit(bindparam("most"))
)
_old = runs.alias("old")
#: Definitions that nothing refers to. A definition is marked as used once a day while it is in use,
#: so its runs were created at most a day after the mark: only few runs as old are left.
UNUSED_DEFINITIONS = (
    select(definitions.c.key)
    .where(
        definitions.c.used_at < bindparam("unused_since"),
        ~select(schedules.c.key)
        .where(
            schedules.c.key == definitions.c.schedule,
            schedules.c.definition == definitions.c.key,
        )
        .exists(),
        definitions.c.key.not_in(
            select(_old.c.definition).where(_old.c.created_at < bindparam("before"))
        ),
    )
    .limit(bindparam("most"))
)
#: Keys without active runs, and all rows of owners.
IDLE_KEYS = (
    select(concurrency_keys.c.key)
    .where(
        ~select(queue.c.run_id).where(queue.c.concurrency == concurrency_keys.c.key).exists(),
        ~select(claims.c.run_id).where(claims.c.concurrency == concurrency_keys.c.key).exists(),
    )
    .limit(bindparam("most"))
)


def prune_unused(tx: Tx, before: datetime, limit: int) -> int:
    delete_old_batches(tx, before)
    return (
        _purge_schedules(tx, before, limit)
        + _delete_idle_keys(tx, limit)
        + _delete_definitions(tx, before, limit)
        + _delete_api_keys(tx, before, limit)
    )


def _purge_schedules(tx: Tx, before: datetime, limit: int) -> int:
    parameters: dict[str, object] = {"before": micros(before), "most": limit}
    found = [row[0] for row in tx.tuples(PURGEABLE, parameters)]
    if found and tx.locking:
        # Looks again at those that are locked: one may have been restored meanwhile.
        locked = lock_schedules(tx, found, skip=True)
        again = PURGEABLE.where(tx.dialect.among(schedules.c.id, "ids"))
        parameters["ids"] = tx.dialect.listed(sorted(locked))
        found = [row[0] for row in tx.tuples(again, parameters)]
    keys = sorted(schedule_number(each) for each in found)
    for table, column in ((cursors, "schedule"), (schedule_stats, "schedule"), (schedules, "key")):
        tx.dialect.delete_many(tx.connection, table, column, keys)
    return len(keys)


def _delete_idle_keys(tx: Tx, limit: int) -> int:
    """A row that is deleted shortly before it is needed is inserted again (`lock_keys`), so it does
    not matter when it was used last. One that a transaction holds stays."""
    parameters: dict[str, object] = {"most": limit}
    column = concurrency_keys.c.key
    idle = [row[0] for row in tx.tuples(IDLE_KEYS, parameters)]
    if idle and tx.locking:
        among = tx.dialect.among(column, "keys")
        locking = tx.for_update(select(column).where(among), column, skip=True)
        locked = [row[0] for row in tx.tuples(locking, {"keys": tx.dialect.listed(sorted(idle))})]
        # Runs of the last holder of the lock are visible only to a later statement.
        parameters["keys"] = tx.dialect.listed(locked)
        idle = [row[0] for row in tx.tuples(IDLE_KEYS.where(among), parameters)]
    tx.dialect.delete_many(tx.connection, concurrency_keys, "key", sorted(idle))
    return len(idle)


def _delete_definitions(tx: Tx, before: datetime, limit: int) -> int:
    parameters = {
        "unused_since": micros(before - 2 * USED_INTERVAL),
        "before": micros(before),
        "most": limit,
    }
    unused = [row[0] for row in tx.tuples(UNUSED_DEFINITIONS, parameters)]
    tx.dialect.delete_many(tx.connection, definitions, "key", unused)
    return len(unused)


def _delete_api_keys(tx: Tx, before: datetime, limit: int) -> int:
    rows = tx.rows(tx.for_update(select(api_keys), api_keys.c.id))
    gone = [key.id for key in unused_keys((key_of(row) for row in rows), before)[:limit]]
    tx.dialect.delete_many(tx.connection, api_keys, "id", gone)
    return len(gone)
