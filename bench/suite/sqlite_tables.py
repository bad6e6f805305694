"""The tables of Chimes in an SQLite file, filled in bulk."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from chimes.model.schedule import Schedule, run_definition
from chimes.store.sql.rows.schedule import (
    CURSOR,
    STATS,
    cursor_values,
    definition_digest,
    definition_values,
    edit_values,
    schedule_values,
    stats_values,
)
from chimes.store.sql.rows.values import number_of, schedule_number


def fill_schedules(path: Path, schedules: Sequence[Schedule]) -> None:
    """Inserts into the tables directly, over a second connection; each schedule has a definition of
    its own."""
    rows: dict[str, list[dict[str, object]]] = {}
    for schedule in schedules:
        definition = definition_values(run_definition(schedule))
        digest = definition_digest(definition)
        key, number = schedule_number(schedule.id), number_of(digest)
        cursor = dict(zip(CURSOR, cursor_values(key, schedule), strict=True))
        stats = dict(zip(STATS, stats_values(key, schedule), strict=True))
        for table, values in (
            ("schedules", {"key": key, **schedule_values(schedule), "definition": number}),
            ("definitions", {"key": number, "digest": digest, **definition, "used_at": 0}),
            ("cursors", cursor | edit_values(schedule, schedule_values(schedule))),
            ("schedule_stats", stats),
        ):
            rows.setdefault(table, []).append(values)
    with sqlite3.connect(path) as connection:
        for table, every in rows.items():
            names = list(every[0])
            marks = ", ".join(f":{name}" for name in names)
            columns = ", ".join(f'"{name}"' for name in names)
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", every)
    connection.close()
