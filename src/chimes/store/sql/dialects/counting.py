# ruff: noqa: S608 - what is put into statements here are the names of our own columns.
"""Where databases differ in how they count; each dialect has one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Row, Table, Text, literal_column

from chimes.model.insights import BAD, FAILING, JUDGED, MOST_SCHEDULES
from chimes.model.lags import BOUNDS

#: What SQLite calls `bracket_of_micros`, and calls back for.
BRACKET_FUNCTION = "chimes_bracket"
_LAG = "runs.started_at - runs.planned_at"
_BOUNDS = ", ".join(map(str, BOUNDS))

NEWEST = "schedule_id, id, status, origin, created_at, planned_at, started_at, finished_at"
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC LIMIT"


def _words(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


#: Of the newest runs that were judged, newest first: when those that ended badly were planned.
_JUDGED = (
    "FROM runs WHERE runs.schedule_id = schedules.id"
    f" AND runs.status IN ({_words(JUDGED)}) {_NEWEST_FIRST}"
)
_IF_BAD = f"CASE WHEN status IN ({_words(BAD)}) THEN planned_at ELSE '' END"
_NEWEST_JUDGED = f"(SELECT status, planned_at {_JUDGED} {FAILING}) AS judged"
#: How many schedules a statement is made for, so that there are few of them to be prepared.
_SIZES = (1, 10, 25, 50, 100, MOST_SCHEDULES)

Sums = Sequence[tuple[str | int, ...]]


class Counting(ABC):
    #: Of a run that has begun: the bracket of its lag (`bracket_of`).
    bracket: ColumnElement[int]
    #: Who began a run (`first_node`): the node of its first attempt that has ended, or who holds
    #: it. What is no JSON reads as no attempt.
    node: ColumnElement[str]
    #: Of a schedule, its `FAILING` newest runs that were judged (`JUDGED`), newest first: when each
    #: was planned, or nothing if it ended well; parted by commas. All of them in one walk through
    #: the index, where a database can.
    judged: ColumnElement[str]

    @abstractmethod
    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        """Of each schedule its newest runs, so many at most: a walk through the index for each,
        and never further than asked for. Numbering the rows of all of them would read their whole
        past. Columns are `NEWEST`; `owner`: only runs of that type and id."""

    @abstractmethod
    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        """Rows of a table of sums, each with a key of its own: one that is there already is added
        to by its `number`."""


class SqliteCounting(Counting):
    bracket = literal_column(f"{BRACKET_FUNCTION}({_LAG})", Integer)
    node = literal_column(
        "coalesce(CASE WHEN json_valid(runs.attempts)"
        " THEN json_extract(runs.attempts, '$[0].node') END, runs.holder, '?')",
        Text,
    )
    judged = literal_column(f"(SELECT group_concat({_IF_BAD}) FROM {_NEWEST_JUDGED})", Text)

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, ids, each, owner, "?")

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_sqlite_add(table), list(rows))


class PostgresCounting(Counting):
    bracket = literal_column(f"width_bucket({_LAG}, ARRAY[{_BOUNDS}]::bigint[])", Integer)
    # Not as JSON: one damaged row would fail the whole statement.
    node = literal_column(
        "coalesce(nullif(split_part(split_part(runs.attempts, '\"node\":\"', 2), '\"', 1), ''),"
        " runs.holder, '?')",
        Text,
    )
    judged = literal_column(
        f"(SELECT string_agg({_IF_BAD.replace('planned_at', 'planned_at::text')}, ',')"
        f" FROM {_NEWEST_JUDGED})",
        Text,
    )

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        given = (list(ids), each, *(owner or ()))
        return connection.exec_driver_sql(_postgres_newest(owner is not None), given).all()

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_postgres_add(table), tuple(map(list, zip(*rows, strict=True))))


class MariadbCounting(Counting):
    bracket = literal_column(f"INTERVAL({_LAG}, {_BOUNDS})", Integer)
    node = literal_column(
        "coalesce(JSON_VALUE(runs.attempts, '$[0].node'), runs.holder, '?')", Text
    )
    # A walk for each: what is in FROM cannot look at the schedule here.
    judged = literal_column(
        "concat_ws(',', {})".format(
            ", ".join(f"(SELECT {_IF_BAD} {_JUDGED} 1 OFFSET {place})" for place in range(FAILING))
        ),
        Text,
    )

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, ids, each, owner, "%s")

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_mariadb_add(table), list(rows))


def _newest_parts(
    connection: Connection,
    ids: Sequence[str],
    each: int,
    owner: tuple[str, str] | None,
    mark: str,
) -> Sequence[Row[Any]]:
    size = next(size for size in _SIZES if size >= len(ids))
    padded = (*ids, *[""] * (size - len(ids)))
    given = tuple(value for one in padded for value in (one, *(owner or ()), each))
    return connection.exec_driver_sql(_parts(size, owner is not None, mark), given).all()


@cache
def _parts(size: int, owned: bool, mark: str) -> str:
    """One part for each schedule, for want of LATERAL."""
    mine = f" AND owner_type = {mark} AND owner_id = {mark}" if owned else ""
    return " UNION ALL ".join(
        f"SELECT * FROM (SELECT {NEWEST} FROM runs WHERE schedule_id = {mark}{mine}"
        f" {_NEWEST_FIRST} {mark}) AS part{place}"
        for place in range(size)
    )


@cache
def _postgres_newest(owned: bool) -> str:
    mine = " AND owner_type = $3 AND owner_id = $4" if owned else ""
    return (
        f"SELECT newest.* FROM unnest($1::text[]) AS wanted(id) CROSS JOIN LATERAL (SELECT {NEWEST}"
        f" FROM runs WHERE schedule_id = wanted.id{mine} {_NEWEST_FIRST} $2) AS newest"
    )


def _key(table: Table) -> str:
    return ", ".join(column.name for column in table.primary_key.columns)


@cache
def _sqlite_add(table: Table) -> str:
    marks = ", ".join("?" * len(table.c))
    return (
        f"INSERT INTO {table.name} VALUES ({marks}) ON CONFLICT ({_key(table)})"
        " DO UPDATE SET number = number + excluded.number"
    )


# One statement for all of them: one for each would be a round trip for each.
@cache
def _postgres_add(table: Table) -> str:
    types = ("bigint" if isinstance(each.type, Integer) else "text" for each in table.c)
    lists = ", ".join(f"${place}::{type_}[]" for place, type_ in enumerate(types, 1))
    return (
        f"INSERT INTO {table.name} SELECT * FROM unnest({lists}) ON CONFLICT ({_key(table)})"
        f" DO UPDATE SET number = {table.name}.number + excluded.number"
    )


@cache
def _mariadb_add(table: Table) -> str:
    marks = ", ".join(["%s"] * len(table.c))
    return (
        f"INSERT INTO {table.name} VALUES ({marks})"
        " ON DUPLICATE KEY UPDATE number = number + VALUES(number)"
    )
