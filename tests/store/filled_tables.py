"""Fills a SQL store with so many rows that a statement that scans a table shows.

The rows are inserted directly: their times are small numbers, and only the columns that hot
statements read matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table

from chimes.store.sql.database.base import Tx
from chimes.store.sql.rows.values import schedule_number
from chimes.store.sql.tables import (
    claims,
    cursors,
    definitions,
    deliveries,
    inbox,
    nodes,
    queue,
    runs,
    schedule_stats,
    schedules,
)

SCHEDULES = 2000
#: Ended runs; those of sync sources; waiting and claimed runs of many concurrency keys.
ENDED = 4000
TASKS, SOURCES = 4000, 8
QUEUED = 4000
CLAIMED = 2000
#: The keys of these schedules share the waiting and the claimed runs.
KEYS = 400
#: Blocked runs of the key of the first schedule, in addition to the others.
BACKLOG = 1500
MESSAGES = 2000
NODES = 40
FAR = 10**17
FILLED = (
    *(schedules, cursors, schedule_stats, definitions, runs, queue, claims, nodes),
    *(deliveries, inbox),
)


def key_of(n: int) -> int:
    """The key of a schedule, which is the negative number of its own concurrency key."""
    return schedule_number(f"s{n}")


def fill_tables(tx: Tx) -> None:
    numbers = range(1, SCHEDULES + 1)
    _insert(tx, schedules, [_schedule(n) for n in numbers])
    _insert(tx, cursors, [_cursor(n) for n in numbers])
    _insert(
        tx,
        schedule_stats,
        [
            {
                "schedule": key_of(n),
                "last_run_at": n,
                "last_status": "failed" if n % 100 == 1 else "succeeded",
                "last_error": "",
            }
            for n in numbers
        ],
    )
    _insert(tx, definitions, [_definition(n) for n in numbers])
    _insert(tx, definitions, [_definition_of_source(n) for n in range(SOURCES)])
    _insert(tx, runs, [_ended(n) for n in range(1, ENDED + 1)])
    _insert(tx, runs, [_task(n) for n in range(1, TASKS + 1)])
    waiting = [_waiting(n) for n in range(1, QUEUED + 1)]
    waiting += [
        _waiting(n) | {"blocked": 1, "concurrency": -key_of(1)}
        for n in range(QUEUED + 1, QUEUED + BACKLOG + 1)
    ]
    _insert(tx, queue, waiting)
    _insert(tx, runs, [_active(n, each["run_id"]) for n, each in enumerate(waiting, 1)])
    claimed = [_claimed(n) for n in range(1, CLAIMED + 1)]
    _insert(tx, claims, claimed)
    _insert(tx, runs, [_active(n, each["run_id"]) for n, each in enumerate(claimed, 1)])
    _insert(tx, nodes, [_node(n) for n in range(NODES)])
    _insert(tx, deliveries, [_delivery(n) for n in range(1, MESSAGES + 1)])
    _insert(tx, inbox, [_item(n) for n in range(1, MESSAGES + 1)])


def _insert(tx: Tx, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    names = tuple(rows[0])
    values = [tuple(row[name] for name in names) for row in rows]
    tx.dialect.insert_many(tx.connection, table, names, values)


def _schedule(n: int) -> dict[str, Any]:
    texts = ("trigger", "target", "policy", "labels", "compat_data")
    return {
        "key": key_of(n),
        "id": f"s{n}",
        "namespace": "native",
        "name": f"name {n}",
        "owner_type": "user",
        "owner_id": f"u{n % 50}",
        "kind": "http",
        "priority": 0,
        **dict.fromkeys(texts, "{}"),
        "enabled": int(n % 10 != 0),
        "pause_note": "",
        "version": 1,
        "definition": n,
        "created_at": n,
        "created_by": "",
        "updated_at": n,
        "updated_by": "",
        "deleted_at": 1 if n % 20 == 0 else None,
    }


def _cursor(n: int) -> dict[str, Any]:
    """The earliest tenth belongs to paused schedules, which keep their time."""
    live = n % 10 != 0 and n > SCHEDULES // 10
    return {
        "schedule": key_of(n),
        "revision": 1,
        "live": int(live),
        "fired_count": 0,
        "next_slot": n,
        "next_run_at": n,
    }


def _definition(n: int) -> dict[str, Any]:
    return {
        "key": n,
        "digest": f"d{n}",
        "schedule": key_of(n),
        "schedule_id": f"s{n}",
        "schedule_name": f"name {n}",
        "schedule_version": 1,
        "namespace": "native",
        "owner_type": "user",
        "owner_id": f"u{n % 50}",
        "kind": "http",
        "target": "{}",
        "policy": "{}",
        "needs": "http",
        "used_at": n,
    }


def _definition_of_source(n: int) -> dict[str, Any]:
    return _definition(n) | {
        "key": -n - 1,
        "digest": f"t{n}",
        "schedule": None,
        "schedule_id": None,
        "kind": "sync",
        "needs": f"sync:s{n}",
    }


def _run(n: int, run_id: str) -> dict[str, Any]:
    return {
        "id": run_id,
        "schedule": key_of(n % KEYS + 1),
        "slot": None,
        "definition": n % KEYS + 1,
        "source": None,
        "origin": "schedule",
        "parent_id": None,
        "priority": 0,
        "catch_up": 0,
        "concurrency_key": "",
        "concurrency_limit": 1,
        "created_at": n,
        "planned_at": n,
        "available_at": n,
        "status": "queued",
        "attempt": 1,
        "fence": 1,
        "node": None,
        "started_at": None,
        "finished_at": None,
        "problem": None,
    }


def _ended(n: int) -> dict[str, Any]:
    failed = n % 100 == 11
    return _run(n, f"h{n}") | {
        "slot": n,
        "parent_id": "h1" if n % 100 == 0 else None,
        "started_at": n,
        "finished_at": n,
        "status": "failed" if failed else "succeeded",
        "problem": "failed" if failed else None,
    }


def _task(n: int) -> dict[str, Any]:
    return _ended(n) | {
        "id": f"t{n}",
        "schedule": None,
        "slot": None,
        "parent_id": None,
        "origin": "manual",
        "source": f"sync:s{n % SOURCES}",
        "concurrency_key": f"sync:s{n % SOURCES}#c",
        "definition": -(n % SOURCES) - 1,
        "created_at": n * 8,
        "status": "succeeded",
        "problem": None,
    }


def _active(n: int, run_id: str) -> dict[str, Any]:
    return _run(n, run_id) | {"created_at": FAR + n, "catch_up": n % 2}


def _waiting(n: int) -> dict[str, Any]:
    """Of each key, five blocked ones and five admitted ones."""
    return {
        "run_id": f"q{n}",
        "rank": n % 3,
        "available_at": n,
        "planned_at": n,
        "needs": "http",
        "attempt": 0,
        "fence": 0,
        "blocked": n // KEYS % 2,
        "concurrency": -key_of(n % KEYS + 1),
        "concurrency_limit": 5,
        "owner": n % 5 + 1,
    }


def _claimed(n: int) -> dict[str, Any]:
    return {
        "run_id": f"c{n}",
        "node": f"n{n % NODES}",
        "attempt": 1,
        "fence": 1,
        "started": 1,
        "cancel_requested": int(n % 100 == 0),
        "claimed_at": n,
        "available_at": n,
        "concurrency": -key_of(n % KEYS + 1),
    }


def _node(n: int) -> dict[str, Any]:
    return {
        "id": f"n{n}",
        "version": "1",
        "roles": "[]",
        "capacity": 100,
        "started_at": 1,
        "heartbeat_at": 1,
        "lease_until": FAR,
        "clock_offset": 0.0,
        "offers": "[]",
        "drain": 0,
        "facts": "",
    }


def _delivery(n: int) -> dict[str, Any]:
    """One in twenty is pending."""
    pending = n % 20 == 0
    return {
        "id": f"d{n}",
        "run_id": f"h{n}",
        "schedule_name": "",
        "owner_type": "user",
        "owner_id": f"u{n % 50}",
        "channel": "inbox",
        "recipient": "{}",
        "occasion": "success",
        "state": "pending" if pending else "delivered",
        "attempts": 1,
        "fence": 1,
        "progress": 0,
        "created_at": n,
        "available_at": n,
        "finished_at": None if pending else n,
        "error": "",
        "code": "",
        "receipt": "",
    }


def _item(n: int) -> dict[str, Any]:
    return {
        "id": f"i{n}",
        "owner_type": "user",
        "owner_id": f"u{n % 50}",
        "schedule_name": "",
        "title": "",
        "text": "",
        "status": "",
        "artifacts": "[]",
        "created_at": n,
        "starred": 0,
    }
