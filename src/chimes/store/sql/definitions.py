"""Definitions of runs: stored once for equal ones, and remembered by every process.

A definition never changes, so a process reads each at most once. Its key is a hash of its columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, select, update

from chimes.clock import MICROSECOND
from chimes.model.run import RunDefinition
from chimes.store.codec.values import USED_INTERVAL, content_digest
from chimes.store.sql.database.base import StoredDefinition, Tx
from chimes.store.sql.rows.definition import definition_of, definition_values
from chimes.store.sql.rows.values import Value, micros, number_of
from chimes.store.sql.tables import definitions, schedules

_COLUMNS = tuple(definitions.c.keys())
#: The columns that the digest covers.
_DEFINING = tuple(name for name in _COLUMNS if name not in ("key", "digest", "used_at"))
_TARGET = _COLUMNS.index("target")
_TOUCH = (
    update(definitions)
    .where(definitions.c.key == bindparam("this_key"))
    .values(used_at=bindparam("now"))
)


def definition_digest(values: Mapping[str, Value]) -> str:
    """Equal for definitions whose columns are equal."""
    return content_digest(json.dumps([values[name] for name in _DEFINING], ensure_ascii=False))


# --- reading --------------------------------------------------------------------------------------
def load_definitions(tx: Tx, keys: Collection[int]) -> dict[int, StoredDefinition]:
    """The definitions with these keys, without those that do not exist."""
    known = tx.known.definitions
    found = {key: each for key in keys if (each := known.get(key)) is not None}
    missing = sorted(set(keys) - found.keys())
    if not missing:
        return found
    statement = select(definitions).where(tx.dialect.among(definitions.c.key, "keys"))
    for row in tx.tuples(statement, {"keys": tx.dialect.listed(missing)}):
        stored = StoredDefinition(*definition_of(row))
        found[row[0]] = stored
        if not stored.error:
            known.put(row[0], stored, len(row[_TARGET]))
    return found


# --- writing --------------------------------------------------------------------------------------
def store_definitions(tx: Tx, wanted: Sequence[RunDefinition]) -> list[int]:
    """Returns the key of each; adds those that are missing."""
    if not wanted:
        return []
    now = micros(tx.now())
    values: dict[str, dict[str, Value]] = {}
    digests: list[str] = []
    encoded: dict[int, str] = {}
    for definition in wanted:
        digest = encoded.get(id(definition))
        if digest is None:
            row = definition_values(definition)
            digest = encoded[id(definition)] = definition_digest(row)
            values[digest] = {"digest": digest, **row, "used_at": now}
        digests.append(digest)
    keys = {digest: number_of(digest) for digest in values}
    found = {} if tx.joined else _find(tx, keys, now)
    while missing := sorted(values.keys() - found.keys()):
        for digest in missing:
            values[digest]["key"] = keys[digest]
        rows = [tuple(values[digest][name] for name in _COLUMNS) for digest in missing]
        tx.dialect.insert_missing(tx.connection, definitions, _COLUMNS, rows, unique="key")
        tx.wrote_definitions = True
        if tx.joined:
            # Reading would fix the snapshot of the caller's transaction, in which rows that others
            # commit from now on are invisible.
            return [keys[digest] for digest in digests]
        found |= _find(tx, {digest: keys[digest] for digest in missing}, now)
        # Practically never: the key of another definition.
        keys |= {digest: keys[digest] + 1 for digest in missing if digest not in found}
    return [found[digest] for digest in digests]


def _find(tx: Tx, keys: Mapping[str, int], now: int) -> dict[str, int]:
    """Of these digests with their presumed keys, those that are stored."""
    fresh = now - USED_INTERVAL // MICROSECOND
    known = tx.known.digests
    found = {
        digest: entry[0]
        for digest in keys
        if (entry := known.get(digest)) is not None and entry[1] > fresh
    }
    missing = [key for digest, key in keys.items() if digest not in found]
    if not missing:
        return found
    columns = (definitions.c.digest, definitions.c.key, definitions.c.used_at)
    statement = select(*columns).where(tx.dialect.among(definitions.c.key, "keys"))
    for digest, key, used_at in tx.tuples(statement, {"keys": tx.dialect.listed(missing)}):
        if digest not in keys:
            continue
        if used_at <= fresh:
            if not tx.run(_TOUCH, {"this_key": key, "now": now}):
                continue  # retention has deleted it meanwhile
        elif not tx.wrote_definitions:
            known.put(digest, (key, used_at))
        found[digest] = key
    return found


def touch_definition(tx: Tx, schedule: int) -> None:
    """Marks the current definition of a schedule as used until now, before another takes its place:
    its runs are up to now."""
    current = select(schedules.c.definition).where(schedules.c.key == bindparam("this_schedule"))
    statement = (
        update(definitions)
        .where(definitions.c.key == current.scalar_subquery())
        .values(used_at=bindparam("now"))
    )
    tx.run(statement, {"this_schedule": schedule, "now": micros(tx.now())})
