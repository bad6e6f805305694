"""The stream of changes, over real connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chimes.model.access import Actor, Role
from chimes.web import live_updates
from chimes.web.api import streams
from tests.builders import ALICE, BOB
from tests.engine.rig import until
from tests.system.node import Node
from tests.web.rig import definition
from tests.web.test_log_stream import ServedApp, Stream, served

LIMIT = 2


@pytest.fixture(autouse=True)
def _fast_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "MIN_POLL_INTERVAL", 0.02)
    monkeypatch.setattr(live_updates, "POLL_INTERVAL", 0.02)


@pytest.fixture
async def server() -> AsyncIterator[ServedApp]:
    async with served() as found:
        yield found


@asynccontextmanager
async def events(
    client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[Stream]:
    async with client.stream("GET", "/events", params=query, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        stream = Stream(answer)
        assert await stream.block() == {"retry": "1000"}
        yield stream


async def following(stream: Stream, kind: str) -> dict[str, str]:
    """The next event of this kind; others in between, except heartbeats, are an error."""
    while (block := await stream.block()) and block.get("event") == "beat" != kind:
        pass
    assert block.get("event") == kind, block
    return block


async def create(server: ServedApp, headers: dict[str, str] | None = None, **given: Any) -> str:
    answer = await server.client.post("/schedules", json=definition(**given), headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_changes_are_streamed_and_resumed(server: ServedApp) -> None:
    async with events(server.client) as stream:
        begin = await following(stream, "beat")
        made = await create(server)
        changed = await following(stream, "schedules.changed")
        assert json.loads(changed["data"]) == {"topic": "schedules"}
        assert changed["id"] != begin["id"]
    await server.client.post(f"/schedules/{made}/run")
    # What happened while no stream was open, by header and by parameter.
    async with events(server.client, {"Last-Event-ID": changed["id"]}) as stream:
        assert json.loads((await following(stream, "runs.changed"))["data"]) == {"topic": "runs"}
        assert "id" in await following(stream, "schedules.changed")
    async with events(server.client, after=begin["id"], topics="schedules") as stream:
        await following(stream, "schedules.changed")
    await until(lambda: server.streams == 0)


async def test_changes_of_other_owners_are_not_streamed(server: ServedApp) -> None:
    alice, bob = [await server.rig.key(Role.MEMBER, owner) for owner in (ALICE, BOB)]
    async with events(server.client, bob) as stream:
        before = (await following(stream, "beat"))["id"]
        await create(server, alice)
        mine = await create(server, bob)
        changed = await following(stream, "schedules.changed")
        await server.client.post(f"/schedules/{mine}/pause", headers=bob)
        await following(stream, "schedules.changed")
    # Nothing of Bob's changes from here on.
    async with events(server.client, bob, topics="runs,inbox") as stream:
        now = (await following(stream, "beat"))["id"]
        await create(server, alice)
        await server.client.post(f"/schedules/{mine}/run", headers=bob)
        assert (await following(stream, "runs.changed"))["id"] != now
    assert len({before, changed["id"], now}) == 3
    for topics, key, status in (("nodes", bob, 422), ("walls", bob, 422)):
        answer = await server.client.get("/events", params={"topics": topics}, headers=key)
        assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (status, "topics")
    assert (await server.client.get("/events")).status_code == 401


async def test_streams_are_limited_and_end_with_the_key_or_the_node(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_updates, "HEARTBEAT_INTERVAL", 0.05)
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_OWNER", LIMIT)
    key = await server.rig.key(Role.VIEWER, ALICE)
    admin = await server.rig.key(Role.ADMIN)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(events(server.client, key))
        await stack.enter_async_context(events(server.client, key))
        refused = await server.client.get("/events", headers=key)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        other = await stack.enter_async_context(events(server.client, admin))
        await following(other, "beat")
        access = server.rig.context.access
        for each in await access.keys(Actor()):
            if each.role is Role.VIEWER:
                await access.revoke(Actor(), each.id)
        while await first.block():
            pass
        server.trouble.append("draining")
        while await other.block():
            pass
    head = await server.client.head("/events", headers=admin)
    assert (head.status_code, head.text) == (200, "")
    for headers, params, where in (
        ({"Last-Event-ID": "x"}, {}, {"header": "Last-Event-ID"}),
        ({}, {"after": "1.2.3.4"}, {"parameter": "after"}),
    ):
        bad = await server.client.get("/events", params=params, headers=admin | headers)
        assert bad.status_code == 422
        assert where.items() <= bad.json()["errors"][0].items()


async def test_a_stream_resumes_after_the_server_was_killed(tmp_path: Path) -> None:
    node = Node(f"sqlite:///{tmp_path}/chimes.db", tmp_path).start()
    try:
        async with httpx2.AsyncClient(timeout=60) as client:
            client.base_url = f"http://127.0.0.1:{node.port}/api/v1"
            async with events(client) as stream:
                await following(stream, "beat")
                await client.post("/schedules", json=definition())
                seen = (await following(stream, "schedules.changed"))["id"]
                node.kill()
            node.start()
            client.base_url = f"http://127.0.0.1:{node.port}/api/v1"
            # Nothing has happened: the first event is a heartbeat of the same state.
            async with events(client, {"Last-Event-ID": seen}, topics="schedules,runs") as stream:
                assert (await stream.block())["event"] == "beat"
            made = await client.post("/schedules", json=definition(name="while away"))
            assert made.status_code == 201
            async with events(client, {"Last-Event-ID": seen}, topics="schedules") as stream:
                await following(stream, "schedules.changed")
    finally:
        node.kill()
