"""Where databases differ in how they count; each dialect has one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Insert, Integer, Table, Text, literal_column
from sqlalchemy.dialects import mysql, postgresql, sqlite

from chimes.model.lags import BOUNDS

#: Written where it is asked for: `bracket_of` in the words of SQLite, which calls back for it.
BRACKET_FUNCTION = "chimes_bracket"
_LAG = "runs.started_at - runs.planned_at"
_BOUNDS = ", ".join(map(str, BOUNDS))


class Counting(ABC):
    #: Of a run that has begun: the bracket of its lag (`bracket_of`).
    bracket: ColumnElement[int]
    #: Who began a run (`first_node`): the node of its first attempt that has ended, or who holds
    #: it. What is no JSON reads as no attempt.
    node: ColumnElement[str]

    @abstractmethod
    def adding(self, table: Table) -> Insert:
        """A row whose key exists is added to by its `number`."""


class SqliteCounting(Counting):
    bracket = literal_column(f"{BRACKET_FUNCTION}({_LAG})", Integer)
    node = literal_column(
        "coalesce(CASE WHEN json_valid(runs.attempts)"
        " THEN json_extract(runs.attempts, '$[0].node') END, runs.holder, '?')",
        Text,
    )

    @cache  # noqa: B019 there is one of each
    def adding(self, table: Table) -> Insert:
        insert = sqlite.insert(table)
        number = table.c.number + insert.excluded.number
        return insert.on_conflict_do_update(index_elements=_key(table), set_={"number": number})


class PostgresCounting(Counting):
    bracket = literal_column(f"width_bucket({_LAG}, ARRAY[{_BOUNDS}]::bigint[])", Integer)
    # Not as JSON: one damaged row would fail the whole statement.
    node = literal_column(
        "coalesce(nullif(split_part(split_part(runs.attempts, '\"node\":\"', 2), '\"', 1), ''),"
        " runs.holder, '?')",
        Text,
    )

    @cache  # noqa: B019 there is one of each
    def adding(self, table: Table) -> Insert:
        insert = postgresql.insert(table)
        number = table.c.number + insert.excluded.number
        return insert.on_conflict_do_update(index_elements=_key(table), set_={"number": number})


class MariadbCounting(Counting):
    bracket = literal_column(f"INTERVAL({_LAG}, {_BOUNDS})", Integer)
    node = literal_column(
        "coalesce(JSON_VALUE(runs.attempts, '$[0].node'), runs.holder, '?')", Text
    )

    @cache  # noqa: B019 there is one of each
    def adding(self, table: Table) -> Insert:
        insert = mysql.insert(table)
        return insert.on_duplicate_key_update(number=table.c.number + insert.inserted.number)


def _key(table: Table) -> list[Any]:
    return list(table.primary_key.columns)
