"""Driver `http_json`: a paged JSON API into JSON Lines or SQLite."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from chimes.egress import EgressRules
from chimes.model.run import AttemptEnd
from chimes.model.target import SyncTarget
from chimes.targets.sync.http_driver import max_cursor, open_for_append, write_all
from chimes.targets.sync.worker_link import DriverFailure
from tests.targets.sync_calls import ExecutedRun, StoredCheckpoint, a_runner, execute
from tests.targets.waiting import until

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """An HTTP server with a handler per test that records the requests."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.handler: Handler = self.nothing
        self.url = ""

    async def nothing(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return await self.handler(request)

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(request.query) for request in self.asked]

    def pages(self, *answers: Any) -> None:
        """Sets the responses in order: a body, a status, or a tuple of headers, body and status."""
        left = list(answers)

        async def handle(request: web.Request) -> web.Response:
            answer = left.pop(0)
            if isinstance(answer, int):
                return web.Response(status=answer)
            if isinstance(answer, tuple):
                return web.json_response(answer[1], headers=answer[0], status=answer[2])
            return web.json_response(answer)

        self.handler = handle


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"http://127.0.0.1:{port}"
    yield made
    await runner.cleanup()


def jsonl(api: Api, **more: Any) -> dict[str, Any]:
    return {"url": f"{api.url}/x", "output": {"format": "jsonl", "path": "out.jsonl"}, **more}


def sqlite(api: Api, **more: Any) -> dict[str, Any]:
    output = {"format": "sqlite", "path": "out.db", "table": "{collection}", "key": "id"}
    return {"url": f"{api.url}/x", "output": output, **more}


async def pull(
    config: dict[str, Any], folder: Path, kept: StoredCheckpoint | None = None
) -> ExecutedRun:
    return await execute(a_runner("http_json", config, folder), kept)


def lines(folder: Path, name: str = "out.jsonl") -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def rows(folder: Path, query: str = "SELECT * FROM orders ORDER BY 1") -> list[Any]:
    database = sqlite3.connect(folder / "out.db")
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


# Pages


async def test_pages_by_number(api: Api, tmp_path: Path) -> None:
    api.pages({"data": {"items": ids(1, 2)}}, {"data": {"items": ids(3)}})
    page = {"style": "page", "parameter": "p", "start": 0, "size": 2, "size_parameter": "n"}
    config = jsonl(api, records="data.items", pagination=page, params={"a": 1})
    done = await pull(config, tmp_path)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.outcome.result == {"records": 3, "pages": 2}
    assert ("info", "3 records of 2 pages") in done.lines
    assert lines(tmp_path) == ids(1, 2, 3)
    assert api.queries == [{"a": "1", "p": "0", "n": "2"}, {"a": "1", "p": "1", "n": "2"}]


async def test_pages_by_number_of_unknown_size_end_with_an_empty_one(
    api: Api, tmp_path: Path
) -> None:
    api.pages(ids(1, 2), ids(3), [])
    await pull(jsonl(api, pagination={"style": "page"}), tmp_path)
    assert [query["page"] for query in api.queries] == ["1", "2", "3"]
    assert lines(tmp_path) == ids(1, 2, 3)


async def test_pages_by_offset(api: Api, tmp_path: Path) -> None:
    api.pages(ids(1, 2), ids(3, 4), ids(5))
    await pull(jsonl(api, pagination={"style": "offset", "size": 2}), tmp_path)
    assert [(q["offset"], q["limit"]) for q in api.queries] == [("0", "2"), ("2", "2"), ("4", "2")]
    assert lines(tmp_path) == ids(1, 2, 3, 4, 5)


async def test_pages_by_token_and_by_link(api: Api, tmp_path: Path) -> None:
    token = {"style": "next", "path": "paging.next", "parameter": "token"}
    api.pages({"r": ids(1), "paging": {"next": "t 2"}}, {"r": ids(2), "paging": {"next": None}})
    await pull(jsonl(api, records="r", pagination=token), tmp_path)
    assert api.queries == [{}, {"token": "t 2"}]
    link = {"style": "next", "path": "next"}
    api.pages({"r": ids(3), "next": "/y?at=5"}, {"r": ids(4)})
    await pull(jsonl(api, records="r", pagination=link), tmp_path)
    assert [request.path_qs for request in api.asked[2:]] == ["/x", "/y?at=5"]
    header = {"Link": '</z?page=2>; rel="next", </z?page=9>; rel="last"'}
    api.pages((header, ids(5), 200), ids(6))
    await pull(jsonl(api, pagination={"style": "link"}), tmp_path)
    assert [request.path_qs for request in api.asked[4:]] == ["/x", "/z?page=2"]
    assert lines(tmp_path) == ids(1, 2, 3, 4, 5, 6)


async def test_endless_pagination_fails(api: Api, tmp_path: Path) -> None:
    api.pages(*[{"r": ids(1), "next": "/same"}] * 9)
    config = jsonl(api, records="r", pagination={"style": "next", "path": "next"})
    done = await pull(config, tmp_path)
    assert (done.outcome.code, done.outcome.error) == (
        "endless_pages",
        "page 3 repeats an earlier URL",
    )
    api.pages(*[ids(1)] * 9)
    done = await pull(jsonl(api, pagination={"style": "page"}, max_pages=3), tmp_path)
    assert done.outcome.error == "there are more than 3 pages (max_pages)"
    assert lines(tmp_path) == []


async def test_next_page_on_another_host_is_rejected(api: Api, tmp_path: Path) -> None:
    api.pages({"r": ids(1), "next": "http://elsewhere.example/"})
    config = jsonl(
        api,
        records="r",
        pagination={"style": "next", "path": "next"},
        headers={"Authorization": "Bearer s3cr3t-word"},
    )
    done = await pull(config, tmp_path)
    assert done.outcome.error == "the next page is on another host: elsewhere.example"
    assert api.asked[0].headers["Authorization"] == "Bearer s3cr3t-word"
    assert "s3cr3t" not in done.text


# The cursor


async def test_cursor_continues_from_the_last_run(api: Api, tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    cursor = {"field": "meta.at", "parameter": "since", "start": "2020-01-01"}
    config = jsonl(api, cursor=cursor)
    at = [{"meta": {"at": day}} for day in ("2024-02-01", "2024-03-01", "2024-01-01")]
    api.pages(at)
    await pull(config, tmp_path, kept)
    assert json.loads(kept.value or "") == {"cursor": "2024-03-01"}
    api.pages([])
    await pull(config, tmp_path, kept)
    assert json.loads(kept.value or "") == {"cursor": "2024-03-01"}
    assert [query["since"] for query in api.queries] == ["2020-01-01", "2024-03-01"]


async def test_cursor_is_encoded_in_the_url(api: Api, tmp_path: Path) -> None:
    api.pages(ids(7, 5))
    config = jsonl(api, cursor={"field": "id"}) | {
        "url": f"{api.url}/{{source}}/{{collection}}/after/{{cursor}}"
    }
    kept = StoredCheckpoint('{"cursor": "a/b"}')
    done = await pull(config, tmp_path, kept)
    assert api.asked[0].raw_path == "/shop/orders/after/a%2Fb"
    # The stored text and the numbers of this page cannot be compared.
    assert done.outcome.code == "bad_cursor"
    assert kept.values == []


async def test_failed_run_writes_no_records(api: Api, tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    for config in (jsonl(api), sqlite(api)):
        api.pages(ids(1), 404)
        more = {"pagination": {"style": "page"}, "cursor": {"field": "id"}}
        done = await pull(config | more, tmp_path, kept)
        assert done.outcome.error == f"{api.url}/x?page=2 returned HTTP status 404"
    assert lines(tmp_path) == []
    assert rows(tmp_path, "SELECT * FROM sqlite_master") == []
    assert kept.values == []


# SQLite


async def test_collections_may_share_a_database(api: Api, tmp_path: Path) -> None:
    """The database is locked only while records are written."""
    users_done = asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        if request.query["page"] == "1":
            return web.json_response(ids(1))
        if request.path == "/orders":
            await users_done.wait()
        return web.json_response([])

    api.handler = handle
    config = sqlite(api, pagination={"style": "page"}) | {"url": f"{api.url}/{{collection}}"}
    runner = a_runner("http_json", config, tmp_path, collections=("orders", "users"))
    orders = asyncio.create_task(execute(runner))
    await until(lambda: "2" in [each["page"] for each in api.queries])
    users = SyncTarget(source="shop", collection="users")
    try:
        done = await asyncio.wait_for(execute(runner, target=users), 20)
        assert done.outcome.result == {"records": 1, "pages": 2}, done.text
        assert rows(tmp_path, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("users",)]
    finally:
        users_done.set()
        assert (await orders).outcome.end is AttemptEnd.SUCCEEDED
    assert rows(tmp_path) == [(1,)]


async def test_incomplete_last_line_is_removed_before_appending(api: Api, tmp_path: Path) -> None:
    """A killed process may leave an incomplete last line."""
    for before, kept in (
        ('{"id": 1}\n{"id": 2, "na', ids(1)),
        ('{"id": 2, "na', []),
        ('{"id": 1}\n{"id": 2}', ids(1, 2)),
        ('{"id": 1}\n' + '{"id": "' + "x" * 200_000, ids(1)),
    ):
        (tmp_path / "out.jsonl").write_text(before)
        api.pages(ids(2, 3))
        await pull(jsonl(api), tmp_path)
        assert lines(tmp_path) == kept + ids(2, 3)


def test_partial_append_is_rolled_back(tmp_path: Path) -> None:
    """For example on a full disk."""
    file = tmp_path / "out.jsonl"
    file.write_text('{"id": 1}\n')

    def fill() -> None:
        with open_for_append(file) as stream:
            write_all(stream, b'{"id": 2}\n{"id"')
            raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space left"):
        fill()
    assert file.read_text() == '{"id": 1}\n'


async def test_record_with_the_same_key_is_replaced(api: Api, tmp_path: Path) -> None:
    first = [
        {"id": 1, "name": "a", "tags": ["x"], "big": 2**70, "ok": True},
        {"id": 2, "name": None, "price": 1.5},
    ]
    api.pages(first)
    await pull(sqlite(api), tmp_path)
    api.pages([{"id": 2, "name": "b"}, {"id": 3, 'odd "name': "c"}])
    await pull(sqlite(api), tmp_path)
    assert rows(tmp_path, "SELECT id, name, price FROM orders ORDER BY id") == [
        (1, "a", None),
        (2, "b", 1.5),
        (3, None, None),
    ]
    assert rows(tmp_path, 'SELECT tags, big, ok, "odd ""name" FROM orders WHERE id IN (1, 3)') == [
        ('["x"]', str(2**70), 1, None),
        (None, None, None, "c"),
    ]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([{"name": "x"}], "a record lacks the key field 'id'"),
        ([{"id": 1, "ID": 2}], "a record has field names that differ only in case"),
        (
            [{"id": 1, **{f"f{n}": n for n in range(600)}}],
            "the records have more than 500 different fields",
        ),
        ([5], "expected objects in the list of the response body"),
        ({"id": 1}, "expected a list of records as the response body"),
    ],
)
async def test_invalid_records_fail_the_run(
    api: Api, tmp_path: Path, records: Any, error: str
) -> None:
    api.pages(ids(1), records)
    done = await pull(sqlite(api, pagination={"style": "page"}), tmp_path)
    assert done.outcome.error == error
    assert rows(tmp_path, "SELECT * FROM sqlite_master") == []


async def test_records_without_key_are_appended(api: Api, tmp_path: Path) -> None:
    output = {"format": "sqlite", "path": "out.db"}
    for _ in range(2):
        api.pages([{}, {"a": 1}])
        await pull(jsonl(api) | {"output": output}, tmp_path)
    assert rows(tmp_path) == [(1,), (1,)]


# Errors


async def test_busy_server_is_retried(api: Api, tmp_path: Path) -> None:
    api.pages(({"Retry-After": "1"}, None, 429), 503, ids(1))
    done = await pull(jsonl(api, retries=2), tmp_path)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.at("warning") == [
        "page 1: HTTP status 429; retrying in 1s",
        "page 1: HTTP status 503; retrying in 2s",
    ]
    assert lines(tmp_path) == ids(1)


async def test_retries_are_limited(api: Api, tmp_path: Path) -> None:
    api.pages(500)
    done = await pull(jsonl(api, retries=0, params={"token": "t0p"}), tmp_path)
    assert done.outcome.error == f"HTTP status 500: {api.url}/x?token=***"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (302, "returned HTTP status 302: redirects are not followed"),
        (401, "returned HTTP status 401"),
    ],
)
async def test_final_error_statuses_are_not_retried(
    api: Api, tmp_path: Path, status: int, error: str
) -> None:
    api.pages(status)
    done = await pull(jsonl(api), tmp_path)
    assert (done.outcome.code, done.outcome.error) == ("bad_status", f"{api.url}/x {error}")
    assert len(api.asked) == 1


async def test_decompressed_page_size_is_limited(api: Api, tmp_path: Path) -> None:
    bomb = gzip.compress(b"[" + b" " * 50_000_000 + b"]")

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    api.handler = handle
    done = await pull(jsonl(api, max_page_bytes=1_000_000), tmp_path)
    assert done.outcome.error == "a page is larger than 1000000 bytes (max_page_bytes)"


async def test_invalid_json_fails_the_run(api: Api, tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    api.handler = handle
    done = await pull(jsonl(api), tmp_path)
    assert done.outcome.error.startswith("the response is not valid JSON: ")


async def test_egress_rules_apply(api: Api, tmp_path: Path) -> None:
    runner = a_runner(
        "http_json", jsonl(api), tmp_path, egress=lambda: EgressRules(open_mode=False)
    )
    done = await execute(runner)
    assert done.outcome.code == "egress_denied"
    assert "is a private address" in done.outcome.error
    assert api.asked == []


async def test_unwritable_output_fails_before_the_first_request(api: Api, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").mkdir()
    done = await pull(jsonl(api), tmp_path)
    assert done.outcome.code == "no_output"
    assert api.asked == []


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [(None, 3, 3), (3, None, 3), (2, 10, 10), ("b", "a", "b"), (1, 1.5, 1.5), (None, None, None)],
)
def test_max_cursor(one: object, other: object, found: object) -> None:
    assert max_cursor(one, other) == found


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (True, 2), ([], [])])
def test_max_cursor_of_incomparable_values_fails(one: object, other: object) -> None:
    with pytest.raises(DriverFailure):
        max_cursor(one, other)
