"""Driver `http_json`: pulls a paged JSON API; inside the process of a task."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeGuard
from urllib.parse import quote

import aiohttp
from yarl import URL

from chimes.clock import SystemClock
from chimes.i18n import _, joined
from chimes.model.egress import EgressRules
from chimes.redaction import mask_url
from chimes.targets.http.connection import EgressDenied, GuardedConnector
from chimes.targets.http.response import wait_asked
from chimes.targets.sync.config import HttpJsonConfig, Output, Pagination, Section, read_http_json
from chimes.targets.sync.wire import Request, rules_from_plain
from chimes.targets.sync.worker_link import DriverFailure, Tether
from chimes.triggers.duration import format_duration_go

# @@ Which page comes next, and where in a body things stand; pure.

Record = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A page: parameters besides those of the URL, or another URL altogether."""

    params: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    #: Page number or offset.
    number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    records: Sequence[Record]
    body: object
    #: Of the Link header with rel=next; empty if there is none.
    link: str = ""


def first_page(pagination: Pagination) -> Position:
    match pagination.style:
        case "page":
            return _numbered(pagination, pagination.start)
        case "offset":
            return _numbered(pagination, 0)
        case _:
            return Position()


def page_after(pagination: Pagination, at: Position, page: Page) -> Position | None:
    """None: that was the last one."""
    match pagination.style:
        case "page" | "offset":
            count = len(page.records)
            if count == 0 or count < pagination.size:
                return None
            return _numbered(pagination, at.number + (1 if pagination.style == "page" else count))
        case "next":
            return _told(pagination, value_at(page.body, pagination.path))
        case "link":
            return Position(link=page.link) if page.link else None
        case _:
            return None


def _numbered(pagination: Pagination, number: int) -> Position:
    params = {pagination.parameter: str(number)}
    if pagination.size_parameter and pagination.size:
        params[pagination.size_parameter] = str(pagination.size)
    return Position(params=params, number=number)


def _told(pagination: Pagination, found: object) -> Position | None:
    if found is None or found is False or found == "":
        return None
    if not isinstance(found, str | int):
        where = ".".join(pagination.path)
        raise DriverFailure("bad_answer", _("{where}: expected a link or a token", where=where))
    if pagination.parameter:
        return Position(params={pagination.parameter: str(found)})
    return Position(link=str(found))


def value_at(value: object, path: Sequence[str]) -> object:
    """What stands at `a.b.c`; None if there is nothing."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def records_in(body: object, path: Sequence[str]) -> Sequence[Record]:
    where = ".".join(path)
    found = value_at(body, path)
    if not isinstance(found, list):
        raise DriverFailure(
            "bad_answer",
            _("expected a list of records at {path} of the answer", path=where)
            if where
            else _("expected a list of records as the body of the answer"),
        )
    for each in found:
        if not isinstance(each, dict):
            raise DriverFailure(
                "bad_answer",
                _("expected objects in the list at {path} of the answer", path=where)
                if where
                else _("expected objects in the list as the body of the answer"),
            )
    return found


def higher(one: object, other: object) -> object:
    """The later of two values of a cursor's field; None is before everything."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, str) and isinstance(other, str):
        return max(one, other)
    if _is_number(one) and _is_number(other):
        return max(one, other)
    raise DriverFailure(
        "bad_cursor", _("the cursor's field is neither always text nor always a number")
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


# @@ Appending to files that others append to as well. Only whole lines stay, whatever happens.

_PIECE = 64 * 1024


@contextlib.contextmanager
def appending(path: Path) -> Iterator[FileIO]:
    """Nobody else of ours writes meanwhile. With an exception all of it is taken back; what a
    process was killed over is taken back by the next one, as far as it is not whole."""
    # Unbuffered, so that nothing is written after the lock is gone.
    with FileIO(path, "a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _mend(stream)
        before = os.fstat(stream.fileno()).st_size
        try:
            yield stream
        except BaseException:
            os.ftruncate(stream.fileno(), before)
            raise


def write_all(stream: FileIO, data: bytes) -> None:
    """A raw write may take a part of it."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) or 0 :]


def _mend(stream: FileIO) -> None:
    """A last line without an end is a torn one, unless it can be read."""
    descriptor = stream.fileno()
    size = os.fstat(descriptor).st_size
    tail = b""
    while len(tail) < size and b"\n" not in tail:
        start = max(0, size - len(tail) - _PIECE)
        tail = os.pread(descriptor, size - len(tail) - start, start) + tail
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        json.loads(torn)
    except ValueError:
        os.ftruncate(descriptor, size - len(torn))
    else:
        write_all(stream, b"\n")


# @@ Where pulled records go. Nothing is there before `commit`. A process that is killed during it
# leaves nothing in a database, and whole lines in a file, which the next run writes again.

#: More fields than this are a mistake in `records`.
MOST_COLUMNS = 500
_LARGEST_INTEGER = 2**63
#: Seconds that others may take to write what they have pulled; the time of the task ends it too.
PATIENCE = 600.0
_PIECE_HTTP_SINKS = 1024 * 1024


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
            "no_output", _("output {path}: {error}", path=path, error=str(error))
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
        while piece := self._file.read(_PIECE_HTTP_SINKS):
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
        for name in self._key:
            if record.get(name) is None:
                raise DriverFailure(
                    "bad_answer", _("a record has no {field!r}, which is its key", field=name)
                )
        folded = {name.casefold() for name in record}
        if len(folded) < len(record):
            raise DriverFailure("bad_answer", _("a record has fields that differ in case only"))
        self._fields |= folded
        if len(self._fields) > MOST_COLUMNS:
            raise _too_many_fields()

    def _add(self, record: Record) -> None:
        if not record:
            return
        self._make_room(record)
        columns = [_quoted(self._columns[name.casefold()]) for name in record]
        marks = ", ".join("?" for _unused in columns)
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
    return DriverFailure("bad_answer", _("over {most} different fields", most=MOST_COLUMNS))


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


FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(minutes=1)
LONGEST_ASKED = timedelta(hours=1)


def synchronise(request: Request, tether: Tether) -> Mapping[str, object]:
    config = read_http_json(Section(request.config, "config"))
    with closing(sink_for(config.output, request)) as sink:
        return asyncio.run(_Pull(config, request, tether, sink).run())


class _Again(Exception):
    """Worth another try."""

    def __init__(self, why: str, asked: timedelta | None = None) -> None:
        super().__init__(why)
        self.asked = asked


class _Pull:
    def __init__(
        self, config: HttpJsonConfig, request: Request, tether: Tether, sink: Sink
    ) -> None:
        self._config = config
        self._request = request
        self._tether = tether
        self._sink = sink
        kept = request.kept
        self._since = kept.get("cursor") if isinstance(kept, dict) else None
        self._base = self._first_url()
        self._clock = SystemClock()

    async def run(self) -> Mapping[str, object]:
        """The cursor is kept when all pages are written: they need not come in its order."""
        config = self._config
        cursor: object = self._since
        pages = records = 0
        seen: set[URL] = set()
        position: Position | None = first_page(config.pagination)
        async with _session(rules_from_plain(self._request.rules)) as session:
            while position is not None:
                url = self._url_of(position)
                if url in seen:
                    raise DriverFailure(
                        "endless_pages", _("page {number} was there already", number=pages + 1)
                    )
                if pages >= config.max_pages:
                    raise DriverFailure(
                        "endless_pages",
                        _(
                            "there are more than {most} pages (max_pages)",
                            most=config.max_pages,
                        ),
                    )
                seen.add(url)
                page = await self._page(session, url, pages + 1)
                self._sink.add(page.records)
                pages, records = pages + 1, records + len(page.records)
                if config.cursor is not None:
                    for each in page.records:
                        cursor = higher(cursor, value_at(each, config.cursor.field))
                position = page_after(config.pagination, position, page)
        self._sink.commit()
        if config.cursor is not None and cursor is not None:
            self._tether.keep({"cursor": cursor})
        self._tether.log(
            "info", _("{records} records of {pages} pages", records=records, pages=pages)
        )
        return {"records": records, "pages": pages}

    def _first_url(self) -> URL:
        config = self._config
        since = self._since
        if since is None and config.cursor is not None:
            since = config.cursor.start
        placeholders = {
            "source": self._request.source,
            "collection": self._request.collection,
            "cursor": "" if since is None else str(since),
        }
        text = config.url
        for name, value in placeholders.items():
            text = text.replace(f"{{{name}}}", quote(value, safe=""))
        params = dict(config.params)
        if config.cursor is not None and config.cursor.parameter and since is not None:
            params[config.cursor.parameter] = str(since)
        return URL(text, encoded=True).update_query(params)

    def _url_of(self, position: Position) -> URL:
        if not position.link:
            return self._base.update_query(position.params)
        url = self._base.join(URL(position.link))
        if url.origin() != self._base.origin():
            # The headers are meant for the one, not for whom it names.
            raise DriverFailure(
                "bad_answer", _("the next page is on another host: {host}", host=url.host)
            )
        return url

    async def _page(self, session: aiohttp.ClientSession, url: URL, number: int) -> Page:
        wait = FIRST_WAIT
        for left in range(self._config.retries, -1, -1):
            try:
                async with asyncio.timeout(self._config.timeout.total_seconds()):
                    return await self._fetched(session, url)
            except EgressDenied as denied:
                raise DriverFailure("egress_denied", denied.args[0]) from None
            except TimeoutError:
                again = _Again(
                    _("no answer within {time}", time=format_duration_go(self._config.timeout))
                )
            except (aiohttp.ClientError, OSError) as error:
                again = _Again(joined(": ", (type(error).__name__, str(error))))
            except _Again as failure:
                again = failure
            if not left:
                break
            pause = max(wait, min(again.asked or wait, LONGEST_ASKED))
            self._tether.log(
                "warning",
                _(
                    "page {number}: {problem}; again in {time}",
                    number=number,
                    problem=again.args[0],
                    time=format_duration_go(pause),
                ),
            )
            await asyncio.sleep(pause.total_seconds())
            wait = min(2 * wait, LONGEST_WAIT)
        raise DriverFailure(
            "no_answer",
            _("{problem}: {url}", problem=again.args[0], url=mask_url(str(url))),
        )

    async def _fetched(self, session: aiohttp.ClientSession, url: URL) -> Page:
        headers = {"Accept": "application/json", **self._config.headers}
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            status = response.status
            if status in (408, 429) or status >= 500:
                asked = wait_asked(response.headers.get("Retry-After"), self._clock.now())
                raise _Again(_("answered {status}", status=status), asked)
            if not 200 <= status < 300:
                masked = mask_url(str(url))
                raise DriverFailure(
                    "bad_status",
                    _(
                        "{url} answered {status}: redirects are not followed",
                        url=masked,
                        status=status,
                    )
                    if status < 400
                    else _("{url} answered {status}: that is final", url=masked, status=status),
                )
            body = await self._body(response)
            link = response.links.get("next")
            return Page(
                records=records_in(body, self._config.records),
                body=body,
                link=str(link["url"]) if link else "",
            )

    async def _body(self, response: aiohttp.ClientResponse) -> object:
        received = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            received += piece
            if len(received) > self._config.max_page_bytes:
                raise DriverFailure(
                    "answer_too_large",
                    _(
                        "a page has over {most} bytes (max_page_bytes)",
                        most=self._config.max_page_bytes,
                    ),
                )
        try:
            return json.loads(received)
        except (ValueError, RecursionError) as error:
            raise DriverFailure(
                "bad_answer", _("the answer is no JSON: {error}", error=str(error))
            ) from None


def _session(rules: EgressRules) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=GuardedConnector(rules=rules, limit=1),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
    )
