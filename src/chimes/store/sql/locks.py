"""Lock order of every transaction, which prevents deadlocks:

cursors of schedules (by key) -> concurrency keys (by key) -> queue (by run) -> claims (by run) ->
nodes -> deliveries (by id) -> inbox (by id) -> head of the audit chain

The cursor of a schedule is the lock of the schedule: firing, edits and completions hold it.
Whether a run is admitted depends on the other runs of its concurrency key. A transaction that
adds or ends a run therefore locks the key: the cursor of the schedule, or a row in
`concurrency_keys`. It reads the runs of the key in a later statement than the one that acquired
the lock, because only a later statement sees what the previous lock holder committed. Without
this, a run that one node inserts as blocked could be missed by the node that ends the run before
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.exc import DBAPIError

from chimes.errors import StoreBusy
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.ids import RunId
from chimes.model.run import own_key
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.rows.run import OWN_KEY
from chimes.store.sql.rows.schedule import load_definitions
from chimes.store.sql.rows.values import number_of, schedule_number
from chimes.store.sql.tables import claims, concurrency_keys, cursors, queue, runs

#: Schedule id and concurrency key of a run.
LockTarget = tuple[str | None, str | None]

_LOCK_TARGETS = select(runs.c.id, runs.c.definition, runs.c.concurrency_key)


def lock_schedules_and_keys(
    tx: Tx, targets: Iterable[LockTarget], *, skip: bool = False
) -> frozenset[str]:
    """Locks the schedules and concurrency keys of runs. With `skip`, schedules that another
    transaction has locked are skipped. Returns the schedules that were locked or have no row."""
    wanted: set[str] = set()
    shared: set[str] = set()
    own: set[str] = set()
    for schedule_id, key in targets:
        if schedule_id is not None:
            wanted.add(schedule_id)
        if key is not None:
            if schedule_id is not None and key == own_key(schedule_id):
                own.add(schedule_id)
            else:
                shared.add(key)
    if not tx.locking:
        return frozenset(wanted)
    locked = lock_schedules(tx, wanted, skip=skip)
    # The schedule of a run may be missing: runs may be loaded without it.
    absent = wanted - locked
    if skip and absent:
        absent -= _present(tx, absent)
    lock_keys(tx, shared | {own_key(each) for each in own & absent})
    return locked | absent


def lock_schedules(tx: Tx, ids: Collection[str], *, skip: bool = False) -> frozenset[str]:
    """Returns the schedules that were locked."""
    if not ids or not tx.locking or not tx.schedules_usable:
        return frozenset(ids)
    keys = {schedule_number(each): each for each in ids}
    statement = _locked_cursors(tx.dialect, skip=skip)
    rows = tx.tuples(statement, {"keys": tx.dialect.listed(sorted(keys))})
    return frozenset(keys[row[0]] for row in rows)


@cache
def _locked_cursors(dialect: Dialect, *, skip: bool) -> Select[Any]:
    column = cursors.c.schedule
    statement = select(column).where(dialect.among(column, "keys")).order_by(column)
    return dialect.for_update(statement, skip=skip)


def _present(tx: Tx, ids: Collection[str]) -> frozenset[str]:
    column = cursors.c.schedule
    keys = {schedule_number(each): each for each in ids}
    statement = select(column).where(tx.dialect.among(column, "keys"))
    rows = tx.tuples(statement, {"keys": tx.dialect.listed(sorted(keys))})
    return frozenset(keys[row[0]] for row in rows)


def lock_keys(tx: Tx, names: Collection[str]) -> None:
    """Locks shared keys. Retention deletes rows of idle keys (`prune_unused`): a row that was
    deleted while this transaction waited for it is inserted again, until the lock is held."""
    if not names or not tx.locking:
        return
    column = concurrency_keys.c.key
    statement = tx.for_update(select(column).where(tx.dialect.among(column, "keys")), column)
    missing = {number_of(name): name for name in names}
    while True:
        parameters = {"keys": tx.dialect.listed(sorted(missing))}
        for row in tx.tuples(statement, parameters):
            del missing[row[0]]
        if not missing:
            return
        # Waits for transactions that insert or delete the same key. Whether a row was inserted here
        # or by another transaction, it is the next statement that finds and locks it.
        rows = sorted(missing.items())
        columns = ("key", "name")
        tx.dialect.insert_missing(tx.connection, concurrency_keys, columns, rows, unique="key")


def lock_for_completion(tx: Tx, ids: Collection[RunId]) -> None:
    """Locks what must be locked before these runs may end. Schedule and key of a run never
    change."""
    if tx.locking and ids:
        lock_schedules_and_keys(tx, lock_targets_of(tx, ids))


def lock_targets_of(tx: Tx, ids: Collection[RunId]) -> set[LockTarget]:
    """Includes the unfinished steps of flows, which end with their flow."""
    parameters = {"ids": tx.dialect.listed(ids)}
    rows = list(tx.tuples(_LOCK_TARGETS.where(tx.dialect.among(runs.c.id, "ids")), parameters))
    known = load_definitions(tx, {row[1] for row in rows})
    if any(each.value.target.kind == "flow" for each in known.values()):
        steps = _LOCK_TARGETS.where(
            tx.dialect.among(runs.c.parent_id, "ids"), runs.c.finished_at.is_(None)
        )
        rows.extend(tx.tuples(steps, parameters))
        known |= load_definitions(tx, {row[1] for row in rows})
    found: set[LockTarget] = set()
    for _run_id, definition, key in rows:
        stored = known.get(definition)
        schedule_id = None if stored is None else stored.value.schedule_id
        if key == OWN_KEY and schedule_id is not None:
            key = own_key(schedule_id)
        found.add((schedule_id, key))
    return found


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


# --- active runs of a key -------------------------------------------------------------------------
def admitted_runs(tx: Tx, numbers: Collection[int]) -> dict[int, list[RunId]]:
    """The active runs of each key that are not blocked, oldest first."""
    if not numbers:
        return {}
    parameters = {"numbers": tx.dialect.listed(numbers)}
    rows = [row for row in tx.tuples(_admitted_runs(tx.dialect), parameters) if row[0] is not None]
    found: dict[int, list[RunId]] = {}
    for _created_at, run_id, number in sorted(rows, key=lambda row: (row[0], row[1])):
        found.setdefault(number, []).append(run_id)
    return found


# Statements are built once: building one takes longer than executing most of them.
@cache
def _admitted_runs(dialect: Dialect) -> Select[Any]:
    """Time of creation, run and key. A lookup for each of the few active runs: the plan of a join,
    made while there were few runs, would read all of them in the order of the result."""
    waiting = select(queue.c.concurrency, queue.c.run_id).where(
        dialect.among(queue.c.concurrency, "numbers"), queue.c.blocked == 0
    )
    claimed = select(claims.c.concurrency, claims.c.run_id).where(
        dialect.among(claims.c.concurrency, "numbers")
    )
    active = waiting.union_all(claimed).subquery("active")
    created_at = select(runs.c.created_at).where(runs.c.id == active.c.run_id).scalar_subquery()
    return select(created_at, active.c.run_id, active.c.concurrency)


def oldest_active(tx: Tx, number: int) -> RunId | None:
    """The oldest active run of a key, blocked or not."""
    parameters = {"number": number}
    found = [
        row[0]
        for table in (queue, claims)
        for row in tx.tuples(
            select(runs.c.id, runs.c.created_at)
            .join(table, table.c.run_id == runs.c.id)
            .where(table.c.concurrency == number)
            .order_by(runs.c.created_at, runs.c.id)
            .limit(1)
        )
    ]
    if len(found) < 2:
        return found[0] if found else None
    oldest = select(runs.c.id).where(runs.c.id.in_(found)).order_by(runs.c.created_at, runs.c.id)
    row = tx.first(oldest.limit(1), parameters)
    return None if row is None else row[0]
