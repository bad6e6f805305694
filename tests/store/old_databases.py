"""Databases of schema 0009, loaded from `schema_0009`, and what the program of that time
showed of them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg

from tests.store import mariadb_rig

DATA = Path(__file__).parent / "schema_0009"


def load_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "sqlite.sql").read_text())
    connection.close()


async def load_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    # Functions precede the tables that they name.
    await connection.execute(
        "SET check_function_bodies = off;\n" + (DATA / "postgresql.sql").read_text()
    )
    await connection.close()


async def load_mariadb(url: str) -> None:
    connection = await mariadb_rig.connect(url)
    await mariadb_rig.rows_of(connection, "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin")
    # Triggers contain semicolons, so statements are separated by a line.
    for statement in (DATA / "mariadb.sql").read_text().split("\n--\n"):
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
    await connection.ensure_closed()


def shown_by_api() -> dict[str, Any]:
    """Responses by path, and the time at which they were given."""
    found: dict[str, Any] = json.loads((DATA / "api.json").read_text())
    return found


def exported() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "export.jsonl").read_text().splitlines()]
