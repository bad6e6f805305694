# ruff: noqa: S608 - what is put into statements here are the names of our own columns.
"""Where databases differ in how they count; each dialect has one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

from sqlalchemy import ColumnElement, Connection, Integer, Table, Text, literal_column

from chimes.model.lags import BOUNDS

#: What SQLite calls `bracket_of_micros`, and calls back for.
BRACKET_FUNCTION = "chimes_bracket"
_LAG = "runs.started_at - runs.planned_at"
_BOUNDS = ", ".join(map(str, BOUNDS))

Sums = Sequence[tuple[str | int, ...]]


class Counting(ABC):
    #: Of a run that has begun: the bracket of its lag (`bracket_of`).
    bracket: ColumnElement[int]
    #: Who began a run (`first_node`): the node of its first attempt that has ended, or who holds
    #: it. What is no JSON reads as no attempt.
    node: ColumnElement[str]

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

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_postgres_add(table), tuple(map(list, zip(*rows, strict=True))))


class MariadbCounting(Counting):
    bracket = literal_column(f"INTERVAL({_LAG}, {_BOUNDS})", Integer)
    node = literal_column(
        "coalesce(JSON_VALUE(runs.attempts, '$[0].node'), runs.holder, '?')", Text
    )

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_mariadb_add(table), list(rows))


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
