"""An asyncpg connection as far as `store.sql.joining` uses a SQLAlchemy one.

SQLAlchemy could adopt the connection itself, but then it would install its own type codecs on it,
which are the caller's. So statements are only compiled by it and sent as they are.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.util import await_only, greenlet_spawn

T = TypeVar("T")


async def with_raw(raw: Any, work: Callable[[Connection], T]) -> T:
    """`work` is plain code; its statements run on the asyncpg connection."""
    connection = cast(Connection, _RawConnection(raw))
    return cast(T, await greenlet_spawn(work, connection))


def is_asyncpg(connection: object) -> bool:
    """Also one that a pool handed out, which is a proxy."""
    return type(connection).__module__.partition(".")[0] == "asyncpg"


def in_transaction(connection: Any) -> bool:
    return bool(connection.is_in_transaction())


class _RawConnection:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def execute(self, statement: Any, given: Any = None) -> _Result:
        if isinstance(given, list):
            results = [self.execute(statement, each) for each in given]
            return _Result([], sum(result.rowcount for result in results))
        compiled = statement.compile(dialect=_dialect(), column_keys=list(given) if given else None)
        values = compiled.construct_params(given, escape_names=False)
        processors = compiled._bind_processors
        ordered = [
            processors[name](values[name]) if name in processors else values[name]
            for name in compiled.positiontup or ()
        ]
        return self._send(str(compiled), ordered)

    def exec_driver_sql(self, statement: str, given: Sequence[object] = ()) -> _Result:
        return self._send(statement, given)

    def _send(self, statement: str, given: Sequence[object]) -> _Result:
        prepared = await_only(self._raw.prepare(statement))
        rows = await_only(prepared.fetch(*given))
        # Such as `INSERT 0 1`: the last word is the number of rows.
        count = prepared.get_statusmsg().rpartition(" ")[2]
        return _Result([_row(row) for row in rows], int(count) if count.isdigit() else len(rows))


class _Result:
    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def all(self) -> list[tuple[Any, ...]]:
        return self._rows

    def first(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def scalars(self) -> _Result:
        return _Result([row[0] for row in self._rows], self.rowcount)

    def scalar(self) -> object:
        return self._rows[0][0] if self._rows else None


def _row(record: Mapping[str, object]) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", _row_type(tuple(record.keys()))(*record.values()))


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)


@cache
def _dialect() -> Any:
    untyped: Any = PGDialect_asyncpg
    return untyped()
