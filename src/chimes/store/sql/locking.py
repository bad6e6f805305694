"""The order in which every transaction takes its locks, so that no two wait for each other:

    schedules (by id) -> concurrency keys (by key) -> runs (by id) -> nodes -> deliveries (by id)
    -> inbox (by id) -> the audit's head

Whether a run may go depends on the other runs of its concurrency key, so whoever adds or ends one
holds the key meanwhile: the row of its schedule, or a row of its own in `concurrency_keys`. It
looks at those runs in a later statement than the one that got the lock, because only that one
sees what the holder before has committed. A run that is inserted blocked by one node is therefore
seen by another that ends the run it waits for, or the other way round; it is never left behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from chimes.errors import StoreBusy
from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.store.sql.database import Tx
from chimes.store.sql.tables import ACTIVE, concurrency_keys, runs, schedules
from chimes.wording import say

_OWN = "schedule:"
_PLACES = select(runs.c.schedule_id, runs.c.concurrency_key, runs.c.kind)


def is_own_key(key: str) -> bool:
    """Whether the row of its schedule stands for it."""
    return key.startswith(_OWN)


def schedule_of_key(key: str) -> ScheduleId:
    """Whose own it is."""
    return ScheduleId(key.removeprefix(_OWN))


#: Of a run: its schedule, and its concurrency key.
Place = tuple[str | None, str | None]


def hold_places(tx: Tx, places: Iterable[Place], *, skip: bool = False) -> frozenset[str]:
    """Schedules and keys of runs. With `skip` the schedules that somebody else holds are left
    out; those that were taken, or that there is no row of, are the answer."""
    if not tx.dialect.locks_rows:
        return frozenset()
    wanted: set[str] = set()
    shared: set[str] = set()
    for schedule_id, key in places:
        if schedule_id is not None:
            wanted.add(schedule_id)
        if key is None:
            continue
        if is_own_key(key):
            wanted.add(key.removeprefix(_OWN))
        else:
            shared.add(key)
    held = hold_schedules(tx, wanted, skip=skip)
    # A key may be without a schedule: where runs were loaded without it, or are timed in memory.
    absent = wanted - held
    if skip:
        absent -= _present(tx, absent)
    hold_keys(tx, shared | {f"{_OWN}{each}" for each in absent})
    return held | absent


def hold_runs(tx: Tx, ids: Collection[RunId]) -> None:
    """What has to be held before these runs may end; neither changes in the life of a run."""
    if tx.dialect.locks_rows and ids:
        hold_places(tx, places_of(tx, ids))


def places_of(tx: Tx, ids: Collection[RunId]) -> set[Place]:
    """Also those of unfinished steps, which end with their flows."""
    given = {"ids": tx.dialect.listed(ids)}
    rows = list(tx.rows(_PLACES.where(tx.dialect.among(runs.c.id, "ids")), given))
    if any(row.kind == "flow" for row in rows):
        steps = _PLACES.where(text(ACTIVE), tx.dialect.among(runs.c.parent_id, "ids"))
        rows.extend(tx.rows(steps, given))
    return {(row.schedule_id, row.concurrency_key) for row in rows}


def hold_schedules(tx: Tx, ids: Collection[str], *, skip: bool = False) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    given = {"ids": tx.dialect.listed(ids)}
    return frozenset(
        row.id for row in tx.rows(tx.held(statement, schedules.c.id, skip=skip), given)
    )


def _present(tx: Tx, ids: Collection[str]) -> frozenset[str]:
    if not ids or not tx.schedules_usable:
        return frozenset()
    statement = select(schedules.c.id).where(tx.dialect.among(schedules.c.id, "ids"))
    return frozenset(row.id for row in tx.rows(statement, {"ids": tx.dialect.listed(ids)}))


def hold_keys(tx: Tx, keys: Collection[str]) -> None:
    if not keys or not tx.dialect.locks_rows:
        return
    column = concurrency_keys.c.key
    statement = tx.held(select(column).where(tx.dialect.among(column, "keys")), column)
    given = {"keys": tx.dialect.listed(keys)}
    missing = set(keys) - {row.key for row in tx.rows(statement, given)}
    if missing:
        # Also locks those that are new, and waits for whoever is just adding the same.
        tx.run(tx.dialect.insert_new(concurrency_keys), [{"key": key} for key in sorted(missing)])
        tx.rows(statement, given)


@contextmanager
def or_busy(tx: Tx, what: str) -> Iterator[None]:
    """Around locks that are worth one wait and no second try (R4.20): StoreBusy says that somebody
    else has held one of them all that time."""
    try:
        yield
    except DBAPIError as error:
        if tx.dialect.lock_timed_out(error):
            raise StoreBusy(say("somebody else is at work on {key}", key=what)) from error
        raise


def hold_owner(tx: Tx, owner: Owner) -> None:
    """So that no two count the same quota at once."""
    hold_keys(tx, [f"owner:{owner}"[:300]])
