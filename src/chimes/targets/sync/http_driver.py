"""Driver `http_json`: pulls a paged JSON API inside the child process of a task."""

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
from chimes.egress import EgressRules
from chimes.i18n import _, joined
from chimes.redaction import mask_url
from chimes.targets.http.connection import EgressDenied, GuardedConnector, wait_asked
from chimes.targets.sync.config import HttpJsonConfig, Output, Pagination, Section, read_http_json
from chimes.targets.sync.wire import Request, egress_rules_from_json
from chimes.targets.sync.worker_link import DriverFailure, WorkerLink
from chimes.triggers.values import format_duration_go

Record = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Address of a page: additional query parameters, or another URL."""

    params: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    #: Page number or offset.
    number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    records: Sequence[Record]
    body: object
    #: URL of the Link header with rel=next; empty if there is none.
    link: str = ""


def first_page(pagination: Pagination) -> Position:
    match pagination.style:
        case "page":
            return _numbered_page(pagination, pagination.start)
        case "offset":
            return _numbered_page(pagination, 0)
        case _:
            return Position()


def page_after(pagination: Pagination, at: Position, page: Page) -> Position | None:
    """None: `page` was the last one."""
    match pagination.style:
        case "page" | "offset":
            count = len(page.records)
            if count == 0 or count < pagination.size:
                return None
            return _numbered_page(
                pagination, at.number + (1 if pagination.style == "page" else count)
            )
        case "next":
            return _next_position(pagination, value_at(page.body, pagination.path))
        case "link":
            return Position(link=page.link) if page.link else None
        case _:
            return None


def _numbered_page(pagination: Pagination, number: int) -> Position:
    params = {pagination.parameter: str(number)}
    if pagination.size_parameter and pagination.size:
        params[pagination.size_parameter] = str(pagination.size)
    return Position(params=params, number=number)


def _next_position(pagination: Pagination, found: object) -> Position | None:
    if found is None or found is False or found == "":
        return None
    if not isinstance(found, str | int):
        where = ".".join(pagination.path)
        raise DriverFailure(
            "bad_answer", _("{where} of the response: expected a link or a token", where=where)
        )
    if pagination.parameter:
        return Position(params={pagination.parameter: str(found)})
    return Position(link=str(found))


def value_at(value: object, path: Sequence[str]) -> object:
    """The value at `a.b.c`; None if there is none."""
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
            _("expected a list of records at {path} of the response", path=where)
            if where
            else _("expected a list of records as the response body"),
        )
    for each in found:
        if not isinstance(each, dict):
            raise DriverFailure(
                "bad_answer",
                _("expected objects in the list at {path} of the response", path=where)
                if where
                else _("expected objects in the list of the response body"),
            )
    return found


def max_cursor(one: object, other: object) -> object:
    """The larger of two cursor values; None is the smallest."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, str) and isinstance(other, str):
        return max(one, other)
    if _is_number(one) and _is_number(other):
        return max(one, other)
    raise DriverFailure(
        "bad_cursor", _("the cursor field mixes text and numbers, or has another type")
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CHUNK = 64 * 1024


@contextlib.contextmanager
def open_for_append(path: Path) -> Iterator[FileIO]:
    """Opens a file that several tasks append to, under an exclusive lock. An exception undoes all
    writes; the next writer removes the partial line of a killed process."""
    # Unbuffered, so that nothing is written after the lock is released.
    with FileIO(path, "a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _repair_last_line(stream)
        before = os.fstat(stream.fileno()).st_size
        try:
            yield stream
        except BaseException:
            os.ftruncate(stream.fileno(), before)
            raise


def write_all(stream: FileIO, data: bytes) -> None:
    """Repeats partial raw writes."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) or 0 :]


def _repair_last_line(stream: FileIO) -> None:
    """Removes a last line without a newline, unless it is valid JSON."""
    descriptor = stream.fileno()
    size = os.fstat(descriptor).st_size
    tail = b""
    while len(tail) < size and b"\n" not in tail:
        start = max(0, size - len(tail) - _CHUNK)
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


#: More fields indicate a wrong `records` path.
MAX_COLUMNS = 500
_INTEGER_LIMIT = 2**63
#: Seconds to wait for the database lock of other collections; the task's timeout applies too.
SQLITE_TIMEOUT = 600.0
_DRAFT_CHUNK = 1024 * 1024


class Sink(Protocol):
    """Output of pulled records; writes nothing before `commit`. A process killed during `commit`
    leaves nothing in a database, and whole lines in a file, which the next run writes again."""

    def add(self, records: Sequence[Record]) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None:
        """Discards records that were not committed."""


def sink_for(output: Output, request: Request) -> Sink:
    """Raises DriverFailure if the output cannot be written."""
    path = Path(request.directory, request.expand(output.path))
    draft = Path(request.private_directory, "records.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if output.format == "jsonl":
            return JsonLinesSink(path, Draft(draft))
        return SqliteSink(path, request.expand(output.table), output.key, Draft(draft))
    except (OSError, sqlite3.Error) as error:
        raise DriverFailure(
            "no_output", _("output {path}: {error}", path=path, error=str(error))
        ) from None


class Draft:
    """Buffers records in a file until commit, since they may exceed the memory."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w+b")

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            text = json.dumps(record, ensure_ascii=False)
            self._file.write(text.encode(errors="replace") + b"\n")

    def chunks(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(_DRAFT_CHUNK):
            yield chunk

    def records(self) -> Iterator[Record]:
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)

    def close(self) -> None:
        self._file.close()


class JsonLinesSink:
    def __init__(self, path: Path, draft: Draft) -> None:
        self._path = path
        self._draft = draft
        # Found out now, not after an hour of pulling.
        path.open("ab").close()

    def add(self, records: Sequence[Record]) -> None:
        self._draft.add(records)

    def commit(self) -> None:
        # Several collections may share the file.
        with open_for_append(self._path) as stream:
            for chunk in self._draft.chunks():
                write_all(stream, chunk)
            os.fsync(stream.fileno())

    def close(self) -> None:
        self._draft.close()


class SqliteSink:
    """A table with a column per field; lists and objects are stored as JSON. With a key, records
    are upserted, so that pulling them again changes nothing. Several collections may share the
    file, so it is locked only during the commit."""

    def __init__(self, path: Path, table: str, key: tuple[str, ...], draft: Draft) -> None:
        self._table = _quote_identifier(table)
        self._key = key
        self._draft = draft
        self._database = sqlite3.connect(path, timeout=SQLITE_TIMEOUT, isolation_level=None)
        # Found out now, not after an hour of pulling.
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("ROLLBACK")
        #: Column names of the table by case-folded name.
        self._columns: dict[str, str] = {}
        #: Case-folded field names of the records.
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
                    "bad_answer", _("a record lacks the key field {field!r}", field=name)
                )
        folded = {name.casefold() for name in record}
        if len(folded) < len(record):
            raise DriverFailure(
                "bad_answer", _("a record has field names that differ only in case")
            )
        self._fields |= folded
        if len(self._fields) > MAX_COLUMNS:
            raise _too_many_fields()

    def _add(self, record: Record) -> None:
        if not record:
            return
        self._ensure_columns(record)
        columns = [_quote_identifier(self._columns[name.casefold()]) for name in record]
        marks = ", ".join("?" for _unused in columns)
        statement = f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        if self._key:
            key = ", ".join(_quote_identifier(name) for name in self._key)
            changes = ", ".join(f"{each} = excluded.{each}" for each in columns)
            statement += f" ON CONFLICT ({key}) DO UPDATE SET {changes}"
        self._database.execute(statement, [_to_sql_value(each) for each in record.values()])

    def _ensure_columns(self, record: Iterable[str]) -> None:
        """Creates the table and missing columns for the fields of a record."""
        names = list(record)
        if not self._columns:
            key = (
                f", PRIMARY KEY ({', '.join(map(_quote_identifier, self._key))})"
                if self._key
                else ""
            )
            self._database.execute(
                f"CREATE TABLE {self._table} ({', '.join(map(_quote_identifier, names))}{key})"
            )
            self._columns = {name.casefold(): name for name in names}
        for name in names:
            if name.casefold() not in self._columns:
                if len(self._columns) >= MAX_COLUMNS:
                    raise _too_many_fields()
                self._database.execute(
                    f"ALTER TABLE {self._table} ADD COLUMN {_quote_identifier(name)}"
                )
                self._columns[name.casefold()] = name


def _too_many_fields() -> DriverFailure:
    return DriverFailure(
        "bad_answer", _("the records have more than {most} different fields", most=MAX_COLUMNS)
    )


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


def _to_sql_value(value: object) -> str | int | float | None:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int) and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        return value
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return json.dumps(value)


MIN_BACKOFF, MAX_BACKOFF = timedelta(seconds=1), timedelta(minutes=1)
MAX_RETRY_AFTER = timedelta(hours=1)


def synchronise(request: Request, link: WorkerLink) -> Mapping[str, object]:
    config = read_http_json(Section(request.config, "config"))
    with closing(sink_for(config.output, request)) as sink:
        return asyncio.run(_Pull(config, request, link, sink).run())


class _RetryableError(Exception):
    """A failed request that may be retried."""

    def __init__(self, why: str, retry_after: timedelta | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class _Pull:
    def __init__(
        self, config: HttpJsonConfig, request: Request, link: WorkerLink, sink: Sink
    ) -> None:
        self._config = config
        self._request = request
        self._link = link
        self._sink = sink
        checkpoint = request.checkpoint
        self._since = checkpoint.get("cursor") if isinstance(checkpoint, dict) else None
        self._base = self._first_url()
        self._clock = SystemClock()

    async def run(self) -> Mapping[str, object]:
        """Stores the cursor after all pages are written, since pages may not be ordered by it."""
        config = self._config
        cursor: object = self._since
        pages = records = 0
        seen: set[URL] = set()
        position: Position | None = first_page(config.pagination)
        async with _session(egress_rules_from_json(self._request.rules)) as session:
            while position is not None:
                url = self._url_of(position)
                if url in seen:
                    raise DriverFailure(
                        "endless_pages", _("page {number} repeats an earlier URL", number=pages + 1)
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
                        cursor = max_cursor(cursor, value_at(each, config.cursor.field))
                position = page_after(config.pagination, position, page)
        self._sink.commit()
        if config.cursor is not None and cursor is not None:
            self._link.save_checkpoint({"cursor": cursor})
        self._link.log(
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
            # The headers may contain credentials for the configured host only.
            raise DriverFailure(
                "bad_answer", _("the next page is on another host: {host}", host=url.host)
            )
        return url

    async def _page(self, session: aiohttp.ClientSession, url: URL, number: int) -> Page:
        wait = MIN_BACKOFF
        for left in range(self._config.retries, -1, -1):
            try:
                async with asyncio.timeout(self._config.timeout.total_seconds()):
                    return await self._fetch(session, url)
            except EgressDenied as denied:
                raise DriverFailure("egress_denied", denied.args[0]) from None
            except TimeoutError:
                failure = _RetryableError(
                    _("no response within {time}", time=format_duration_go(self._config.timeout))
                )
            except (aiohttp.ClientError, OSError) as error:
                failure = _RetryableError(joined(": ", (type(error).__name__, str(error))))
            except _RetryableError as error:
                failure = error
            if not left:
                break
            pause = max(wait, min(failure.retry_after or wait, MAX_RETRY_AFTER))
            self._link.log(
                "warning",
                _(
                    "page {number}: {problem}; retrying in {time}",
                    number=number,
                    problem=failure.args[0],
                    time=format_duration_go(pause),
                ),
            )
            await asyncio.sleep(pause.total_seconds())
            wait = min(2 * wait, MAX_BACKOFF)
        raise DriverFailure(
            "no_answer",
            _("{problem}: {url}", problem=failure.args[0], url=mask_url(str(url))),
        )

    async def _fetch(self, session: aiohttp.ClientSession, url: URL) -> Page:
        headers = {"Accept": "application/json", **self._config.headers}
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            status = response.status
            if status in (408, 429) or status >= 500:
                retry_after = wait_asked(response.headers.get("Retry-After"), self._clock.now())
                raise _RetryableError(_("HTTP status {status}", status=status), retry_after)
            if not 200 <= status < 300:
                masked = mask_url(str(url))
                raise DriverFailure(
                    "bad_status",
                    _(
                        "{url} returned HTTP status {status}: redirects are not followed",
                        url=masked,
                        status=status,
                    )
                    if status < 400
                    else _("{url} returned HTTP status {status}", url=masked, status=status),
                )
            body = await self._read_body(response)
            link = response.links.get("next")
            return Page(
                records=records_in(body, self._config.records),
                body=body,
                link=str(link["url"]) if link else "",
            )

    async def _read_body(self, response: aiohttp.ClientResponse) -> object:
        received = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            received += chunk
            if len(received) > self._config.max_page_bytes:
                raise DriverFailure(
                    "answer_too_large",
                    _(
                        "a page is larger than {most} bytes (max_page_bytes)",
                        most=self._config.max_page_bytes,
                    ),
                )
        try:
            return json.loads(received)
        except (ValueError, RecursionError) as error:
            raise DriverFailure(
                "bad_answer", _("the response is not valid JSON: {error}", error=str(error))
            ) from None


def _session(rules: EgressRules) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=GuardedConnector(rules=rules, limit=1),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
    )
