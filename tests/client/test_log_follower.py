"""Following a log: on a real server, and line by line without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chimes.client import Client
from chimes.client.client import LogFollower
from chimes.client.transport import Reply
from chimes.errors import NotFound, RateLimited, Unreachable


def feed(follower: LogFollower, *lines: str) -> list[str]:
    """The messages of the log entries that these lines of the stream complete."""
    return [entry.message for line in lines for entry in follower.line(line)]


def an_event(number: int, message: str) -> tuple[str, ...]:
    entry = {"number": number, "at": "2030-01-01T00:00:00Z", "level": "info", "message": message}
    return f"id: {number}", f"data: {json.dumps(entry)}", ""


def a_follower(**given: Any) -> LogFollower:
    return LogFollower("r/1", **({"after": 0, "patience": 15.0} | given))


def reply(status: int, **headers: str) -> Reply:
    body = json.dumps({"code": "x", "detail": "because", "status": status}).encode()
    return Reply(status=status, headers=headers, body=body)


class TestWithoutServer:
    def test_entries_are_parsed_until_the_end_event(self) -> None:
        follower = a_follower()
        assert feed(follower, "retry: 1000", "", ": still here", "") == []
        assert feed(follower, *an_event(1, "one"), *an_event(2, "two")) == ["one", "two"]
        assert not follower.ended()
        assert feed(follower, "event: end", 'data: {"status": "failed"}', "") == []
        assert follower.ended()

    def test_follower_resumes_after_the_last_complete_entry(self) -> None:
        follower = a_follower(after=4)
        assert follower.call.query == {"after": "4", "follow": "true"}
        assert follower.call.path == "/runs/r%2F1/logs"
        feed(follower, *an_event(5, "five"), "id: 6", "data: {")
        assert follower.disconnected("lost") <= 0.2
        # An incomplete event is ignored.
        assert follower.call.query["after"] == "5"
        assert feed(follower, *an_event(6, "six")) == ["six"]

    def test_patience_is_limited_and_reset_by_every_line(self) -> None:
        follower = a_follower(patience=1.0)

        def disconnect_repeatedly() -> None:
            for _ in range(100):
                follower.disconnected("lost")

        with pytest.raises(Unreachable, match="lost"):
            disconnect_repeatedly()
        feed(follower, *an_event(1, "one"))
        assert follower.disconnected("lost") > 0

    def test_only_temporary_rejections_are_retried(self) -> None:
        with pytest.raises(NotFound, match="because"):
            a_follower().rejected(reply(404))
        assert a_follower().rejected(reply(429, **{"retry-after": "3"})) == 3.0
        assert a_follower().rejected(reply(503)) > 0
        with pytest.raises(RateLimited):
            a_follower(patience=1.0).rejected(reply(429, **{"retry-after": "3"}))


def test_log_is_followed_while_the_run_writes(client: Client) -> None:
    handle = client.enqueue("speaks", {"times": 3, "pause": 0.4})
    lines = handle.follow_logs()
    assert next(lines).message == "line 0"
    assert not handle.run().ended
    found = [handle.logs()[0], *lines]
    assert [line.message for line in found] == ["line 0", "line 1", "line 2"]
    assert found == handle.logs()
    assert list(client.follow_logs(handle.id, after=found[-1].number)) == []


async def test_async_client_follows_a_log(client: Client) -> None:
    async with client.aio as aio:
        handle = await aio.enqueue("speaks", {"times": 2})
        found = [line async for line in handle.follow_logs()]
        assert found == await handle.logs()
        with pytest.raises(NotFound):
            await _first(aio.follow_logs("nothing"))


async def _first(lines: AsyncIterator[Any]) -> object:
    async with asyncio.timeout(60):
        return await anext(lines)
