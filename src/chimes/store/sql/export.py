"""Export and import of a whole store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, assert_never

from sqlalchemy import Column, Row, Select, Table, delete, select, update

from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import LogEntry, Run, RunStatus, release
from chimes.model.schedule import Schedule
from chimes.store.port import Item, RunLog
from chimes.store.sql.database.base import Database, Reader, Tx
from chimes.store.sql.dialects.base import Rows
from chimes.store.sql.records import (
    adopt_audit,
    audit_of,
    checkpoint_of,
    checkpoint_values,
    key_of,
    key_values,
    last_audit_number,
)
from chimes.store.sql.rollups import add_inserted_runs
from chimes.store.sql.rows.access import (
    SELECT_RUNS,
    SELECT_SCHEDULES,
    ExistingRuns,
    decode_runs,
    decode_schedule,
    insert_runs,
)
from chimes.store.sql.rows.notifications import delivery_of, delivery_values, item_of, item_values
from chimes.store.sql.rows.run import LOG, log_of, log_values
from chimes.store.sql.schedules import insert_schedule
from chimes.store.sql.tables import (
    COUNTED_UNTIL,
    api_keys,
    audit,
    audit_head,
    deliveries,
    inbox,
    kept_states,
    metadata,
    run_logs,
    runs,
    schedules,
    store_facts,
)

CHUNK = 500
_Other = RunLog | AuditEntry | ApiKey | Checkpoint | Delivery | InboxItem
_Decode = Callable[[Tx, Rows], Sequence[Item]]


async def dump(database: Database) -> AsyncIterator[Item]:
    async with database.snapshot() as read:
        async for item in _walk(read, SELECT_SCHEDULES, schedules.c.id, _each(decode_schedule)):
            yield item
        async for item in _walk(read, SELECT_RUNS, runs.c.id, decode_runs):
            yield item
        async for log in _logs(read):
            yield log
        for table, by, decode in _OTHER_TABLES:
            async for item in _walk(read, select(table), table.c[by], _each(decode)):
                yield item


_OTHER_TABLES: tuple[tuple[Table, str, Callable[[Row[Any]], Item]], ...] = (
    (audit, "number", audit_of),
    (api_keys, "id", key_of),
    (kept_states, "name", checkpoint_of),
    (deliveries, "id", delivery_of),
    (inbox, "id", item_of),
)


def load(tx: Tx, items: Sequence[Item]) -> int:
    tx.wakes = True
    # First the schedules, because runs refer to them.
    loaded = sum(insert_schedule(tx, item) for item in items if isinstance(item, Schedule))
    loaded += _load_runs(tx, [item for item in items if isinstance(item, Run)])
    return loaded + sum(_adopt(tx, item) for item in items if not isinstance(item, Schedule | Run))


async def clear(database: Database, keep: str) -> None:
    """In many transactions, because tables may be large."""
    for table in metadata.sorted_tables:
        if table not in (store_facts, audit_head, kept_states):
            while await database.write(partial(_empty, table)):
                pass
    await database.write(lambda tx: tx.run(delete(kept_states).where(kept_states.c.name != keep)))
    await database.write(_start_again)
    database.forget_known()


def _start_again(tx: Tx) -> None:
    """Nodes that have seen a higher epoch drop their claims."""
    counters = store_facts.c.name.in_(("epoch", COUNTED_UNTIL))
    tx.run(update(store_facts).where(counters).values(value=0))
    tx.run(update(audit_head).values(number=0, hash=""))


def _empty(table: Table, tx: Tx) -> bool:
    return tx.dialect.empty(tx.connection, table)


def _each(decode: Callable[[Row[Any]], Item]) -> _Decode:
    return lambda _tx, rows: [decode(row) for row in rows]


async def _walk(
    read: Reader, statement: Select[Any], column: Column[Any], decode: _Decode
) -> AsyncIterator[Item]:
    """All rows of the statement in the order of the column, decoded."""

    def chunk(tx: Tx, after: object = None) -> tuple[Sequence[Item], object]:
        onwards = statement if after is None else statement.where(column > after)
        rows = tx.rows(onwards.order_by(column).limit(CHUNK))
        return decode(tx, rows), rows[-1]._mapping[column] if rows else None

    items, last = await read(chunk)
    while items:
        for item in items:
            yield item
        items, last = await read(partial(chunk, after=last))


def _rows(statement: Select[Any], tx: Tx) -> Rows:
    return tx.rows(statement)


async def _logs(read: Reader) -> AsyncIterator[RunLog]:
    after = ""
    while True:
        chosen = (
            select(run_logs.c.run_id)
            .where(run_logs.c.run_id > after)
            .distinct()
            .order_by(run_logs.c.run_id)
            .limit(CHUNK // 10)
            .subquery()
        )
        entries = (
            select(run_logs)
            .join(chosen, run_logs.c.run_id == chosen.c.run_id)
            .order_by(run_logs.c.run_id, run_logs.c.number)
        )
        rows = await read(partial(_rows, entries))
        if not rows:
            return
        logs: dict[str, list[LogEntry]] = {}
        for row in rows:
            logs.setdefault(row.run_id, []).append(log_of(row))
        for run_id, log in logs.items():
            yield RunLog(run_id=RunId(run_id), entries=tuple(log))
        after = rows[-1].run_id


def _load_runs(tx: Tx, items: Sequence[Run]) -> int:
    existing = ExistingRuns(tx, items)
    new = [run for run in items if existing.add(run)]
    new = insert_runs(tx, [release(r) if r.status is RunStatus.RUNNING else r for r in new])
    add_inserted_runs(tx, new)
    return len(new)


def _adopt(tx: Tx, item: _Other) -> int:
    keyring = tx.dialect.keyring
    match item:
        case RunLog():
            return _adopt_log(tx, item)
        case AuditEntry():
            if last_audit_number(tx) >= item.number:
                return 0
            adopt_audit(tx, item)
            return 1
        case ApiKey():
            return tx.run(tx.dialect.insert_new(api_keys), key_values(item))
        case Checkpoint():
            return tx.run(tx.dialect.insert_new(kept_states), checkpoint_values(item, keyring))
        case Delivery():
            return tx.run(tx.dialect.insert_new(deliveries), delivery_values(item, keyring))
        case InboxItem():
            return tx.run(tx.dialect.insert_new(inbox), item_values(item))
        case _:
            assert_never(item)


def _adopt_log(tx: Tx, log: RunLog) -> int:
    if tx.first(select(run_logs.c.number).where(run_logs.c.run_id == log.run_id).limit(1)):
        return 0
    rows = [log_values(log.run_id, entry.number, entry) for entry in log.entries]
    values = [dict(zip(LOG, row, strict=True)) for row in rows]
    if values:
        tx.run(tx.dialect.insert_new(run_logs), values)
    return 1
