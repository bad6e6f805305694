"""Where pulled records go. Nothing is there before `commit`. A process that is killed during it
leaves nothing in a database, and whole lines in a file, which the next run writes again."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from chimes.targets.sync.appending import appending, write_all
from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.http_config import Output
from chimes.targets.sync.http_paging import Record
from chimes.targets.sync.wire import Request
from chimes.wording import say

#: More fields than this are a mistake in `records`.
MOST_COLUMNS = 500
_LARGEST_INTEGER = 2**63
#: Seconds that others may take to write what they have pulled; the time of the task ends it too.
PATIENCE = 600.0
_PIECE = 1024 * 1024


class Sink(Protocol):
    def add(self, records: Sequence[Record]) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None:
        """Without a commit: as if nothing had been added."""


def sink_for(output: Output, request: Request) -> Sink:
    """Raises DriverFailure if there can be none."""
    path = Path(request.directory, request.filled(output.path))
    draft = Path(request.private, "records.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if output.format == "jsonl":
            return JsonLines(path, Draft(draft))
        return Sqlite(path, request.filled(output.table), output.key, Draft(draft))
    except (OSError, sqlite3.Error) as error:
        raise DriverFailure(
            "no_output", say("output {path}: {error}", path=path, error=str(error))
        ) from None


class Draft:
    """Records until all of them are there: in a file, as they may be more than the memory holds."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w+b")

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            text = json.dumps(record, ensure_ascii=False)
            self._file.write(text.encode(errors="replace") + b"\n")

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece

    def records(self) -> Iterator[Record]:
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)

    def close(self) -> None:
        self._file.close()


class JsonLines:
    def __init__(self, path: Path, draft: Draft) -> None:
        self._path = path
        self._draft = draft
        # Found out now, not after an hour of pulling.
        path.open("ab").close()

    def add(self, records: Sequence[Record]) -> None:
        self._draft.add(records)

    def commit(self) -> None:
        # Several collections may share the file.
        with appending(self._path) as stream:
            for piece in self._draft.pieces():
                write_all(stream, piece)
            os.fsync(stream.fileno())

    def close(self) -> None:
        self._draft.close()


class Sqlite:
    """A table with a column for each field; what is no plain value is JSON in it. With a key a
    record that is there already is replaced, so that pulling it again changes nothing. Several
    collections may share the file, so it is locked only while all records are written at once."""

    def __init__(self, path: Path, table: str, key: tuple[str, ...], draft: Draft) -> None:
        self._table = _quoted(table)
        self._key = key
        self._draft = draft
        self._database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        # Found out now, not after an hour of pulling.
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("ROLLBACK")
        #: As they are compared there, by what they are called.
        self._columns: dict[str, str] = {}
        #: Of the records, as they are compared.
        self._fields: set[str] = set()

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self._check(record)
        self._draft.add(records)

    def commit(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._columns = {
            str(row[1]).casefold(): str(row[1])
            for row in self._database.execute(f"PRAGMA table_info({self._table})")
        }
        for record in self._draft.records():
            self._add(record)
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()
        self._draft.close()

    def _check(self, record: Record) -> None:
        for field in self._key:
            if record.get(field) is None:
                raise DriverFailure(
                    "bad_answer", say("a record has no {field!r}, which is its key", field=field)
                )
        folded = {name.casefold() for name in record}
        if len(folded) < len(record):
            raise DriverFailure("bad_answer", say("a record has fields that differ in case only"))
        self._fields |= folded
        if len(self._fields) > MOST_COLUMNS:
            raise _too_many_fields()

    def _add(self, record: Record) -> None:
        if not record:
            return
        self._make_room(record)
        columns = [_quoted(self._columns[name.casefold()]) for name in record]
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        if self._key:
            key = ", ".join(_quoted(name) for name in self._key)
            changes = ", ".join(f"{each} = excluded.{each}" for each in columns)
            statement += f" ON CONFLICT ({key}) DO UPDATE SET {changes}"
        self._database.execute(statement, [_value(each) for each in record.values()])

    def _make_room(self, record: Iterable[str]) -> None:
        """A table and columns for all fields of a record."""
        names = list(record)
        if not self._columns:
            key = f", PRIMARY KEY ({', '.join(map(_quoted, self._key))})" if self._key else ""
            self._database.execute(
                f"CREATE TABLE {self._table} ({', '.join(map(_quoted, names))}{key})"
            )
            self._columns = {name.casefold(): name for name in names}
        for name in names:
            if name.casefold() not in self._columns:
                if len(self._columns) >= MOST_COLUMNS:
                    raise _too_many_fields()
                self._database.execute(f"ALTER TABLE {self._table} ADD COLUMN {_quoted(name)}")
                self._columns[name.casefold()] = name


def _too_many_fields() -> DriverFailure:
    return DriverFailure("bad_answer", say("over {most} different fields", most=MOST_COLUMNS))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


def _value(value: object) -> str | int | float | None:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int) and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return value
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return json.dumps(value)
