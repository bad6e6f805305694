"""Lock order of every transaction, which prevents deadlocks:

schedules (by id) -> concurrency keys (by key) -> runs (by id) -> nodes -> deliveries (by id) ->
inbox (by id) -> head of the audit chain

Whether a run is admitted depends on the other runs of its concurrency key. A transaction that
adds or ends a run therefore locks the key: the row of the schedule, or a row in
`concurrency_keys`. It reads the runs of the key in a later statement than the one that acquired
the lock, because only a later statement sees what the previous lock holder committed. Without
this, a run that one node inserts as blocked could be missed by the node that ends the run before
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from chimes.errors import StoreBusy
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.store.sql.database.base import Tx
from chimes.store.sql.tables import ACTIVE, concurrency_keys, runs, schedules

#: Prefix of the concurrency key that belongs to one schedule.
OWN_KEY = "schedule:"
_LOCK_TARGETS = select(runs.c.schedule_id, runs.c.concurrency_key, runs.c.kind)


def is_own_key(key: str) -> bool:
    """Returns whether the lock of this key is the row of its schedule."""
    return key.startswith(OWN_KEY)


def schedule_of_key(key: str) -> ScheduleId:
    """Returns the schedule that a schedule's own key belongs to."""
    return ScheduleId(key.removeprefix(OWN_KEY))


#: Schedule id and concurrency key of a run.
LockTarget = tuple[str | None, str | None]


def lock_schedules_and_keys(
    tx: Tx, keys: Iterable[LockTarget], *, skip: bool = False
) -> frozenset[str]:
    """Locks the schedules and concurrency keys of runs. With `skip`, schedules that another
    transaction has locked are skipped. Returns the schedules that were locked or have no row."""
    if not tx.dialect.locks_rows:
        return frozenset()
    wanted: set[str] = set()
    shared: set[str] = set()
    for schedule_id, key in keys:
        if schedule_id is not None:
            wanted.add(schedule_id)
        if key is None:
            continue
        if is_own_key(key):
            wanted.add(key.removeprefix(OWN_KEY))
        else:
            shared.add(key)
    locked = lock_schedules(tx, wanted, skip=skip)
    # The schedule of a key may be missing: runs may be loaded without it.
    absent = wanted - locked
    if skip:
        absent -= _present(tx, absent)
    lock_keys(tx, shared | {f"{OWN_KEY}{each}" for each in absent})
    return locked | absent


def lock_for_completion(tx: Tx, ids: Collection[RunId]) -> None:
    """Locks what must be locked before these runs may end. Schedule and key of a run never
    change."""
    if tx.dialect.locks_rows and ids:
        lock_schedules_and_keys(tx, lock_targets_of(tx, ids))


def lock_targets_of(tx: Tx, ids: Collection[RunId]) -> set[LockTarget]:
    """Includes the unfinished steps of flows, which end with their flow."""
    parameters = {"ids": tx.dialect.listed(ids)}
    rows = list(tx.rows(_LOCK_TARGETS.where(tx.dialect.among(runs.c.id, "ids")), parameters))
    if any(row.kind == "flow" for row in rows):
        steps = _LOCK_TARGETS.where(text(ACTIVE), tx.dialect.among(runs.c.parent_id, "ids"))
        rows.extend(tx.rows(steps, parameters))
    return {(row.schedule_id, row.concurrency_key) for row in rows}


def lock_schedules(tx: Tx, ids: Collection[str], *, skip: bool = False) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    parameters = {"ids": tx.dialect.listed(ids)}
    return frozenset(
        row.id for row in tx.rows(tx.for_update(statement, schedules.c.id, skip=skip), parameters)
    )


def _present(tx: Tx, ids: Collection[str]) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    return frozenset(row.id for row in tx.rows(statement, {"ids": tx.dialect.listed(ids)}))


def lock_keys(tx: Tx, keys: Collection[str]) -> None:
    if not keys or not tx.dialect.locks_rows:
        return
    column = concurrency_keys.c.key
    statement = tx.for_update(select(column).where(tx.dialect.among(column, "keys")), column)
    parameters = {"keys": tx.dialect.listed(keys)}
    missing = set(keys) - {row.key for row in tx.rows(statement, parameters)}
    if missing:
        # Also locks the new rows, and waits for transactions that insert the same key.
        tx.run(tx.dialect.insert_new(concurrency_keys), [{"key": key} for key in sorted(missing)])
        tx.rows(statement, parameters)


@contextmanager
def busy_on_lock_timeout(tx: Tx, what: str) -> Iterator[None]:
    """Waits for locks once, without a second try. Raises StoreBusy if another transaction held one
    of them for the whole wait."""
    try:
        yield
    except DBAPIError as error:
        if tx.dialect.lock_timed_out(error):
            raise StoreBusy(_("another transaction is using {key}; try again", key=what)) from error
        raise


def lock_owner(tx: Tx, owner: Owner) -> None:
    """Serializes transactions that count the same quota."""
    lock_keys(tx, [f"owner:{owner}"[:300]])
