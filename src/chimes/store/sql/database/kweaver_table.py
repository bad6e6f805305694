"""Reads an existing KWeaver `t_action_schedule` table, and replaces it with the compatibility view.

The table exists in two variants: one renamed a column and added two. Columns that a table lacks are
empty.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncmy.errors

from chimes.errors import ConfigError, NotFound, StoreUnavailable
from chimes.i18n import _
from chimes.store.sql.database.mariadb import normalized, open_connection
from chimes.store.sql.migrations.mariadb_view import ACTION_VIEW, NOW

TABLE: Final = "t_action_schedule"
_NAME = re.compile(r"[A-Za-z0-9_$]{1,64}(\.[A-Za-z0-9_$]{1,64})?")
_NO_SUCH_TABLE = 1146
_COLUMNS = frozenset({"f_id", "f_cron_expression", "f_status"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionRow:
    """A row as stored; times are milliseconds, 0 for none."""

    id: str
    name: str
    kn_id: str
    branch: str
    action_type_id: str
    cron_expression: str
    #: JSON texts, or empty.
    identities: str
    params: str
    status: str
    last_run_time: int
    next_run_time: int
    lock_holder: str
    lock_time: int
    creator: str
    creator_type: str
    updater: str
    updater_type: str
    create_time: int
    update_time: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionTable:
    rows: tuple[ActionRow, ...]
    #: The database's clock in milliseconds, against which the age of a lock is measured.
    read_at: int


async def read_table(url: str, table: str = TABLE) -> ActionTable:
    """Reads all rows in one snapshot, ordered by id. Raises NotFound if there is no such table, and
    ConfigError if it is another kind of table or the view of Chimes."""
    name = _quoted(table)
    async with _connection(url) as connection, connection.cursor() as cursor:
        await cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        await cursor.execute(f"SELECT {NOW} DIV 1000")
        ((read_at,),) = await cursor.fetchall()
        if await _is_view(cursor, table):
            raise ConfigError(
                _("{table} is the view that Chimes shows, not a table to import", table=table),
                code="not_a_table",
            )
        try:
            await cursor.execute(f"SELECT * FROM {name} ORDER BY f_id")  # noqa: S608 - checked above
        except asyncmy.errors.MySQLError as error:
            raise _read_error(table, error) from None
        columns = [each[0] for each in cursor.description or ()]
        if missing := _COLUMNS - set(columns):
            raise ConfigError(
                _(
                    "{table} lacks the columns {columns}: it is no table of action schedules",
                    table=table,
                    columns=", ".join(sorted(missing)),
                ),
                code="not_a_table",
            )
        found = [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall() or ()]
    return ActionTable(rows=tuple(_row(each) for each in found), read_at=int(read_at))


async def rename_aside(url: str) -> str:
    """Renames the table with its content, atomically. Returns its new name. Raises NotFound if
    there is none."""
    async with _connection(url) as connection, connection.cursor() as cursor:
        await cursor.execute(
            "SELECT TABLE_NAME FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, %s) = %s",
            (len(TABLE), TABLE),
        )
        taken = {str(name) for (name,) in await cursor.fetchall() or ()}
        if TABLE not in taken or await _is_view(cursor, TABLE):
            raise NotFound(_("there is no table {table}", table=TABLE))
        numbers = ("", *(f"_{number}" for number in range(2, len(taken) + 2)))
        aside = next(name for each in numbers if (name := f"{TABLE}_imported{each}") not in taken)
        await cursor.execute(f"RENAME TABLE {_quoted(TABLE)} TO {_quoted(aside)}")
        return aside


async def restore_table(url: str, aside: str) -> None:
    async with _connection(url) as connection, connection.cursor() as cursor:
        await cursor.execute(f"RENAME TABLE {_quoted(aside)} TO {_quoted(TABLE)}")


async def create_view(url: str) -> None:
    """Creates the view in place of the renamed table."""
    async with _connection(url) as connection, connection.cursor() as cursor:
        await cursor.execute(ACTION_VIEW)


def same_database(one: str, other: str) -> bool:
    """Returns whether both URLs name the same database of the same server, by the same names."""
    first, second = normalized(one), normalized(other)
    return all(
        getattr(first, part) == getattr(second, part) for part in ("host", "port", "database")
    )


async def _is_view(cursor: Any, table: str) -> bool:
    schema, _unused, name = table.rpartition(".")
    await cursor.execute(
        "SELECT COUNT(*) FROM information_schema.VIEWS"
        " WHERE TABLE_SCHEMA = COALESCE(NULLIF(%s, ''), DATABASE()) AND TABLE_NAME = %s",
        (schema, name),
    )
    ((count,),) = await cursor.fetchall()
    return bool(count)


def _row(found: Mapping[str, object]) -> ActionRow:
    def text(name: str) -> str:
        value = found.get(name)
        return value.decode() if isinstance(value, bytes) else str(value or "")

    def number(name: str) -> int:
        value = found.get(name)
        return int(value) if isinstance(value, int) else 0

    return ActionRow(
        id=text("f_id"),
        name=text("f_name"),
        kn_id=text("f_kn_id"),
        branch=text("f_branch"),
        action_type_id=text("f_action_type_id"),
        cron_expression=text("f_cron_expression"),
        identities=text("f_instance_identities") or text("f_unique_identities"),
        params=text("f_dynamic_params"),
        status=text("f_status"),
        last_run_time=number("f_last_run_time"),
        next_run_time=number("f_next_run_time"),
        lock_holder=text("f_lock_holder"),
        lock_time=number("f_lock_time"),
        creator=text("f_creator"),
        creator_type=text("f_creator_type"),
        updater=text("f_updater"),
        updater_type=text("f_updater_type"),
        create_time=number("f_create_time"),
        update_time=number("f_update_time"),
    )


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    at = normalized(url)
    try:
        connection = await open_connection(at, autocommit=True, init_command="SET NAMES utf8mb4")
    except (asyncmy.errors.MySQLError, OSError, TimeoutError) as error:
        raise StoreUnavailable(
            _(
                "{database} cannot be reached: {error}",
                database=at.render_as_string(hide_password=True),
                error=str(error) or type(error).__name__,
            )
        ) from None
    try:
        yield connection
    finally:
        await connection.ensure_closed()


def _quoted(table: str) -> str:
    if not _NAME.fullmatch(table):
        raise ConfigError(
            _("{table!r} is not the name of a table", table=table[:80]), code="bad_table"
        )
    return ".".join(f"`{part}`" for part in table.split("."))


def _read_error(table: str, error: Exception) -> Exception:
    if error.args and error.args[0] == _NO_SUCH_TABLE:
        return NotFound(_("there is no table {table}", table=table))
    return StoreUnavailable(_("{table} cannot be read: {error}", table=table, error=error))
