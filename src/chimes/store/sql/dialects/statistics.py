"""SQL of statistics that differs between databases; each dialect has one implementation."""

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Table,
    Text,
    func,
    literal_column,
)

from chimes.model.insights import BOUNDS, FAILING_STREAK, MAX_SCHEDULES
from chimes.model.run import CONCLUSIVE_STATUSES, FAILED_STATUSES

#: Name of the SQLite function that calls `bracket_of_micros`.
BRACKET_FUNCTION = "chimes_bracket"
_BOUNDS = ", ".join(map(str, BOUNDS))

#: Columns of `newest`. The last is the start of a claimed run, otherwise NULL; it is looked up only
#: for the few runs that have not ended.
NEWEST = (
    "schedule, id, status, origin, created_at, planned_at, started_at, finished_at,"
    " CASE WHEN status = 'queued' THEN (SELECT CASE WHEN claims.claimed_at > claims.available_at"
    " THEN claims.claimed_at ELSE claims.available_at END"
    " FROM claims WHERE claims.run_id = runs.id) END AS running_since"
)
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC LIMIT"


def _words(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


_JUDGED = (
    "FROM runs WHERE runs.schedule = schedules.key"
    f" AND runs.status IN ({_words(CONCLUSIVE_STATUSES)}) {_NEWEST_FIRST}"
)
_IF_BAD = f"CASE WHEN status IN ({_words(FAILED_STATUSES)}) THEN planned_at ELSE '' END"
_NEWEST_JUDGED = f"(SELECT status, planned_at {_JUDGED} {FAILING_STREAK}) AS judged"
#: Numbers of schedules that a statement is built for, so that few statements have to be prepared.
_SIZES = (1, 10, 25, 50, 100, MAX_SCHEDULES)

RollupRows = Sequence[tuple[str | int, ...]]


class StatisticsDialect(ABC):
    #: The node in the first entry of `runs.attempts`; NULL without entries or if they are corrupt.
    first_node: ColumnElement[str]
    #: Of a row of `schedules`, its `FAILING_STREAK` newest conclusive runs (`CONCLUSIVE_STATUSES`),
    #: newest first: the planned time of each, or nothing if it succeeded, separated by commas. Uses
    #: one index scan for all of them where the database can.
    judged: ColumnElement[str]

    @abstractmethod
    def bracket(self, lag: ColumnElement[int]) -> ColumnElement[int]:
        """The bracket of a lag in microseconds (`bracket_of`)."""

    @abstractmethod
    def newest(
        self, connection: Connection, keys: Sequence[int], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        """Returns the newest runs of each schedule, with one bounded index scan per schedule. A
        window function over all rows would read the whole history. The columns are `NEWEST`;
        `owner` restricts to runs of that type and id."""

    @abstractmethod
    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        """Adds rows to a rollup table, each with a distinct key: `number` is added to an existing
        row."""


class SqliteStatistics(StatisticsDialect):
    first_node = literal_column(
        "CASE WHEN json_valid(runs.attempts) THEN json_extract(runs.attempts, '$[0].node') END",
        Text,
    )
    judged = literal_column(f"(SELECT group_concat({_IF_BAD}) FROM {_NEWEST_JUDGED})", Text)

    def bracket(self, lag: ColumnElement[int]) -> ColumnElement[int]:
        return func.chimes_bracket(lag, type_=Integer)

    def newest(
        self, connection: Connection, keys: Sequence[int], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, keys, each, owner, "?")

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_sqlite_add(table), list(rows))


class PostgresStatistics(StatisticsDialect):
    # Not parsed as JSON: one corrupt row would fail the whole statement.
    first_node = literal_column(
        "nullif(split_part(split_part(runs.attempts, '\"node\":\"', 2), '\"', 1), '')", Text
    )
    judged = literal_column(
        f"(SELECT string_agg({_IF_BAD.replace('planned_at', 'planned_at::text')}, ',')"
        f" FROM {_NEWEST_JUDGED})",
        Text,
    )

    def bracket(self, lag: ColumnElement[int]) -> ColumnElement[int]:
        return func.width_bucket(lag, literal_column(f"ARRAY[{_BOUNDS}]::bigint[]"), type_=Integer)

    def newest(
        self, connection: Connection, keys: Sequence[int], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        parameters = (list(keys), each, *(owner or ()))
        return connection.exec_driver_sql(_postgres_newest(owner is not None), parameters).all()

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_postgres_add(table), tuple(map(list, zip(*rows, strict=True))))


class MariadbStatistics(StatisticsDialect):
    first_node = literal_column("JSON_VALUE(runs.attempts, '$[0].node')", Text)
    # One scan each: a derived table cannot refer to the schedule here.
    judged = literal_column(
        "concat_ws(',', {})".format(
            ", ".join(
                f"(SELECT {_IF_BAD} {_JUDGED} 1 OFFSET {place})" for place in range(FAILING_STREAK)
            )
        ),
        Text,
    )

    def bracket(self, lag: ColumnElement[int]) -> ColumnElement[int]:
        return func.interval(lag, literal_column(_BOUNDS), type_=Integer)

    def newest(
        self, connection: Connection, keys: Sequence[int], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, keys, each, owner, "%s")

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_mariadb_add(table), list(rows))


def _of_owner(type_: str, id_: str) -> str:
    """Looked up for each run that is read, because these are few."""
    return (
        " AND EXISTS (SELECT 1 FROM definitions WHERE definitions.key = runs.definition"
        f" AND owner_type = {type_} AND owner_id = {id_})"
    )


def _newest_parts(
    connection: Connection,
    keys: Sequence[int],
    each: int,
    owner: tuple[str, str] | None,
    mark: str,
) -> Sequence[Row[Any]]:
    size = next(size for size in _SIZES if size >= len(keys))
    # No schedule has the key 0.
    padded = (*keys, *[0] * (size - len(keys)))
    parameters = tuple(value for key in padded for value in (key, *(owner or ()), each))
    return connection.exec_driver_sql(_parts(size, owner is not None, mark), parameters).all()


@cache
def _parts(size: int, owned: bool, mark: str) -> str:
    """One part for each schedule, because there is no LATERAL."""
    condition = _of_owner(mark, mark) if owned else ""
    return " UNION ALL ".join(
        f"SELECT * FROM (SELECT {NEWEST} FROM runs WHERE schedule = {mark}{condition}"
        f" {_NEWEST_FIRST} {mark}) AS part{place}"
        for place in range(size)
    )


@cache
def _postgres_newest(owned: bool) -> str:
    condition = _of_owner("$3", "$4") if owned else ""
    return (
        "SELECT newest.* FROM unnest($1::bigint[]) AS wanted(key)"
        f" CROSS JOIN LATERAL (SELECT {NEWEST} FROM runs WHERE schedule = wanted.key{condition}"
        f" {_NEWEST_FIRST} $2) AS newest"
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


# One statement for all rows: one for each would be a round trip for each.
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
