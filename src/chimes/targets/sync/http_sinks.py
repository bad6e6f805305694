"""Where pulled records go. Nothing is there before `commit`, and then all of it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.http_config import Output
from chimes.targets.sync.http_paging import Record
from chimes.targets.sync.wire import Request

#: More fields than this are a mistake in `records`.
MOST_COLUMNS = 500
_LARGEST_INTEGER = 2**63


class Sink(Protocol):
    def add(self, records: Sequence[Record]) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None:
        """Without a commit: as if nothing had been added."""


def sink_for(output: Output, request: Request) -> Sink:
    """Raises DriverFailure if there can be none."""
    path = Path(request.directory, _filled(output.path, request))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if output.format == "jsonl":
            return JsonLines(path, Path(request.private, "records.jsonl"))
        return Sqlite(path, _filled(output.table, request), output.key)
    except (OSError, sqlite3.Error) as error:
        raise DriverFailure("no_output", f"output {path}: {error}") from None


def _filled(text: str, request: Request) -> str:
    return text.replace("{source}", request.source).replace("{collection}", request.collection)


class JsonLines:
    def __init__(self, path: Path, draft: Path) -> None:
        self._path = path
        self._draft = draft.open("w+b")
        # Found out now, not after an hour of pulling.
        path.open("ab").close()

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self._draft.write(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
            self._draft.write(b"\n")

    def commit(self) -> None:
        self._draft.seek(0)
        with self._path.open("ab") as stream:
            # Several collections may share the file.
            fcntl.flock(stream, fcntl.LOCK_EX)
            shutil.copyfileobj(self._draft, stream)
            stream.flush()
            os.fsync(stream.fileno())

    def close(self) -> None:
        self._draft.close()


class Sqlite:
    """A table with a column for each field; what is no plain value is JSON in it. With a key a
    record that is there already is replaced, so that pulling it again changes nothing."""

    def __init__(self, path: Path, table: str, key: tuple[str, ...]) -> None:
        self._table = _quoted(table)
        self._key = key
        self._database = sqlite3.connect(path, timeout=60.0, isolation_level=None)
        self._database.execute("BEGIN IMMEDIATE")
        #: As they are compared there, by what they are called.
        self._columns = {
            str(row[1]).casefold(): str(row[1])
            for row in self._database.execute(f"PRAGMA table_info({self._table})")
        }

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self._add(record)

    def commit(self) -> None:
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()

    def _add(self, record: Record) -> None:
        for field in self._key:
            if record.get(field) is None:
                raise DriverFailure("bad_answer", f"a record has no {field!r}, which is its key")
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
        folded = {name.casefold() for name in names}
        if len(folded) < len(names):
            raise DriverFailure("bad_answer", "a record has fields that differ in case only")
        if not self._columns:
            key = f", PRIMARY KEY ({', '.join(map(_quoted, self._key))})" if self._key else ""
            self._database.execute(
                f"CREATE TABLE {self._table} ({', '.join(map(_quoted, names))}{key})"
            )
            self._columns = {name.casefold(): name for name in names}
        for name in names:
            if name.casefold() not in self._columns:
                if len(self._columns) >= MOST_COLUMNS:
                    raise DriverFailure("bad_answer", f"over {MOST_COLUMNS} different fields")
                self._database.execute(f"ALTER TABLE {self._table} ADD COLUMN {_quoted(name)}")
                self._columns[name.casefold()] = name


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
