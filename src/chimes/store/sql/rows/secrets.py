"""Encrypts all secrets of the store with its first key, in batches while nodes work."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Column, Table, and_, bindparam, or_, select, update

from chimes.store.codec.values import RESPONSE, reseal_json, reseal_text
from chimes.store.sql.database.base import Database, Tx
from chimes.store.sql.rows.schedule import SECRET_COLUMNS
from chimes.store.sql.tables import (
    definitions,
    deliveries,
    kept_states,
    requests,
    runs,
    schedules,
)

BATCH = 200
#: Tables, their keys, and the columns that may have secrets.
_TABLES: tuple[tuple[Table, tuple[str, ...], tuple[str, ...]], ...] = (
    (schedules, ("key",), SECRET_COLUMNS),
    (definitions, ("key",), ("target", "policy")),
    (runs, ("id",), ("args",)),
    (deliveries, ("id",), ("recipient",)),
    (kept_states, ("name",), ("value",)),
    (requests, ("scope", "request_key"), ("body",)),
)
_Key = tuple[Any, ...]


async def reseal(database: Database) -> int:
    """Returns how many values were encrypted. A value that changes meanwhile is left to its
    writer, who has the key."""
    count = 0
    for table, names, columns in _TABLES:
        last: _Key | None = None
        while True:
            changed, last = await database.write(partial(_batch, table, names, columns, last))
            count += changed
            if last is None:
                break
    return count


def _batch(
    table: Table, names: tuple[str, ...], columns: tuple[str, ...], last: _Key | None, tx: Tx
) -> tuple[int, _Key | None]:
    """How many values were changed, and the key of the last row; None: there are no more."""
    key = [table.c[name] for name in names]
    statement = select(*key, *(table.c[name] for name in columns)).order_by(*key).limit(BATCH)
    if table is runs:
        statement = statement.where(runs.c.args.is_not(None))
    if last is not None:
        statement = statement.where(_beyond(key, last))
    rows = tx.rows(statement)
    if tx.dialect.name == "sqlite":
        # Overwrites the old values in the file.
        tx.connection.exec_driver_sql("PRAGMA secure_delete = ON")
    changed = 0
    for row in rows:
        for name, stored in zip(columns, row[len(names) :], strict=True):
            sealed = _reseal(tx, table, row, stored)
            if sealed != stored:
                found = {f"key_{each}": row._mapping[each] for each in names}
                changed += tx.run(
                    update(table)
                    .where(*(table.c[each] == bindparam(f"key_{each}") for each in names))
                    .where(table.c[name] == bindparam("before"))
                    .values({name: bindparam("after")}),
                    {**found, "before": stored, "after": sealed},
                )
    return changed, tuple(rows[-1][: len(names)]) if len(rows) == BATCH else None


def _beyond(key: list[Column[Any]], last: _Key) -> Any:
    """Whether a row comes after this key."""
    first, *more = zip(key, last, strict=True)
    beyond = first[0] > first[1]
    if more:
        return or_(beyond, and_(first[0] == first[1], _beyond(key[1:], last[1:])))
    return beyond


def _reseal(tx: Tx, table: Table, row: Any, stored: str) -> str:
    keyring = tx.dialect.keyring
    if table is kept_states:
        return reseal_text(stored, row.name, keyring)
    if table is requests:
        return reseal_text(stored, RESPONSE, keyring)
    return reseal_json(stored, keyring)
