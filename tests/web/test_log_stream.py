"""Log stream of a run over real sockets: resume, end, keep-alive, drain."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import uvicorn

from chimes.clock import SystemClock
from chimes.errors import StoreUnavailable
from chimes.model.access import Actor, Role
from chimes.model.ids import RunId
from chimes.model.run import AttemptEnd, Run
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.web.api import streams as log_tail
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    NOW,
    a_completion,
    a_node,
    a_run,
    claim_request,
    log_lines,
)
from tests.engine.rig import Faults, until
from tests.web.rig import Rig, serving
from tests.web.test_connections import AnnouncedServer


class FrozenWallClock(SettableClock):
    """A clock with constant wall time and real durations."""

    def __init__(self) -> None:
        super().__init__()
        self._real = SystemClock()

    def monotonic(self) -> float:
        return self._real.monotonic()


@dataclass
class ServedApp:
    rig: Rig
    store: MemoryStore
    client: httpx2.AsyncClient
    faults: Faults
    trouble: list[str] = field(default_factory=list)

    async def running(self, **given: Any) -> Run:
        await self.store.join(a_node(), HOUR)
        await self.store.add_runs([a_run(**given)])
        (run,) = await self.store.claim(claim_request(free=1))
        return run

    async def end(self, run: Run, *last: str) -> None:
        completion = a_completion(run, NOW, AttemptEnd.SUCCEEDED, logs=tuple(log_lines(*last)))
        await self.store.finish([completion])

    @property
    def streams(self) -> int:
        count: int = self.rig.app.state.streams.count
        return count


@asynccontextmanager
async def served(**given: Any) -> AsyncIterator[ServedApp]:
    clock = FrozenWallClock()
    memory = MemoryStore(clock)
    faults = Faults(memory)
    trouble: list[str] = []
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    async with serving(faults.store, clock, not_ready=lambda: "; ".join(trouble), **given) as rig:
        config = uvicorn.Config(rig.app, lifespan="off", log_config=None)
        server = AnnouncedServer(config)
        task = asyncio.create_task(server._serve([listener]))
        await server.up.wait()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            yield ServedApp(rig, memory, client, faults, trouble)
        server.should_exit = True
        await task


@pytest.fixture
async def server() -> AsyncIterator[ServedApp]:
    async with served() as found:
        yield found


class Stream:
    """Reads the events of a stream."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def block(self) -> dict[str, str]:
        """The next event or comment, by field; empty at the end of the stream."""
        found: dict[str, str] = {}
        async with asyncio.timeout(60):
            async for line in self._lines:
                if not line:
                    return found
                name, _, value = line.partition(":")
                found[name] = value.strip()
        return found

    async def entries(self, count: int) -> list[tuple[int, str]]:
        found = []
        while len(found) < count:
            block = await self.block()
            if "data" in block:
                entry = json.loads(block["data"])
                assert block["id"] == str(entry["number"])
                found.append((entry["number"], entry["message"]))
        return found


@asynccontextmanager
async def follow_log(
    server: ServedApp, run_id: RunId, headers: dict[str, str] | None = None, **query: Any
) -> AsyncIterator[Stream]:
    params = {"follow": "true"} | query
    async with server.client.stream(
        "GET", f"/runs/{run_id}/logs", params=params, headers=headers
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        stream = Stream(answer)
        assert await stream.block() == {"retry": "1000"}
        yield stream


async def test_stream_sends_lines_as_written_and_ends_with_the_run(server: ServedApp) -> None:
    run = await server.running()
    await server.store.append_logs(run.id, run.fence, log_lines("one", "ก 水 'two'\nlines"))
    async with follow_log(server, run.id) as stream:
        assert await stream.entries(2) == [(1, "one"), (2, "ก 水 'two'\nlines")]
        began = asyncio.get_running_loop().time()
        await server.store.append_logs(run.id, run.fence, log_lines("three"))
        assert await stream.entries(1) == [(3, "three")]
        assert asyncio.get_running_loop().time() - began < 1.0
        await server.end(run, "last")
        assert await stream.entries(1) == [(4, "last")]
        block = await stream.block()
        assert block["event"] == "end"
        assert json.loads(block["data"]) == {"run_id": run.id, "status": "succeeded"}
        assert "id" not in block
        assert await stream.block() == {}
    await until(lambda: server.streams == 0)


async def test_streamed_entry_equals_the_api_entry(server: ServedApp) -> None:
    run = await server.running()
    await server.end(run, "one")
    page = (await server.client.get(f"/runs/{run.id}/logs")).json()
    async with follow_log(server, run.id) as stream:
        assert json.loads((await stream.block())["data"]) == page["items"][0]


async def test_stream_resumes_after_the_last_event_id(server: ServedApp) -> None:
    run = await server.running()
    await server.store.append_logs(run.id, run.fence, log_lines("one", "two", "three"))
    async with follow_log(server, run.id, after=1) as stream:
        assert await stream.entries(2) == [(2, "two"), (3, "three")]
    # A browser reconnects to the old URL and sends Last-Event-ID.
    async with follow_log(server, run.id, {"Last-Event-ID": "2"}, after=1) as stream:
        assert await stream.entries(1) == [(3, "three")]
    for odd in ("x", "1" + "0" * 5000):
        bad = await server.client.get(
            f"/runs/{run.id}/logs", params={"follow": "true"}, headers={"Last-Event-ID": odd}
        )
        assert (bad.status_code, bad.json()["errors"][0]["header"]) == (422, "Last-Event-ID")


async def test_accept_header_requests_a_stream(server: ServedApp) -> None:
    run = await server.running()
    await server.end(run, "one")
    accept = {"Accept": "text/event-stream, */*;q=0.1"}
    answer = await server.client.get(f"/runs/{run.id}/logs", headers=accept)
    assert "event: end" in answer.text
    plain = await server.client.get(f"/runs/{run.id}/logs", headers={"Accept": "*/*"})
    assert plain.json()["next_after"] is None


async def test_long_log_is_streamed_completely(server: ServedApp) -> None:
    run = await server.running()
    texts = [str(number) for number in range(1300)]
    await server.store.append_logs(run.id, run.fence, log_lines(*texts))
    async with follow_log(server, run.id, limit=10) as stream:
        assert [text for _, text in await stream.entries(1300)] == texts


async def test_stream_sends_keep_alive_comments(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "KEEP_ALIVE_SECONDS", 0.1)
    run = await server.running()
    async with follow_log(server, run.id) as stream:
        for _ in range(2):
            assert await stream.block() == {"": "still here"}


async def test_disconnected_client_is_detected(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "KEEP_ALIVE_SECONDS", 0.1)
    run = await server.running()
    async with follow_log(server, run.id):
        await until(lambda: server.streams == 1)
    await until(lambda: server.streams == 0)


async def test_streams_end_when_the_server_drains(server: ServedApp) -> None:
    run = await server.running()
    async with follow_log(server, run.id) as stream:
        server.trouble.append("draining")
        assert await stream.block() == {}


async def test_stream_survives_a_store_outage(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "POLL_SECONDS_ON_ERROR", 0.05)
    run = await server.running()
    async with follow_log(server, run.id) as stream:
        asked = server.faults.count["get_run"]
        server.faults.down = StoreUnavailable("away")
        await until(lambda: server.faults.count["get_run"] > asked + 2)
        await server.store.append_logs(run.id, run.fence, log_lines("meanwhile"))
        server.faults.down = None
        assert await stream.entries(1) == [(1, "meanwhile")]


async def test_number_of_streams_is_limited(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "MAX_STREAMS", 1)
    run = await server.running()
    async with follow_log(server, run.id):
        await until(lambda: server.streams == 1)
        refused = await server.client.get(f"/runs/{run.id}/logs", params={"follow": "true"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "10"
        assert (await server.client.get(f"/runs/{run.id}/logs")).status_code == 200


async def test_stream_needs_permission_to_read_the_run(
    server: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "KEEP_ALIVE_SECONDS", 0.1)
    run = await server.running(owner=ALICE)
    keys = {owner: await server.rig.key(Role.VIEWER, owner) for owner in (ALICE, BOB)}
    path = f"/runs/{run.id}/logs?follow=true"
    assert (await server.client.get(path)).status_code == 401
    assert (await server.client.get(path, headers=keys[BOB])).status_code == 404
    assert (
        await server.client.get("/runs/nothing/logs?follow=1", headers=keys[ALICE])
    ).status_code == 404
    async with follow_log(server, run.id, keys[ALICE]) as stream:
        assert await stream.block() == {"": "still here"}
        # Revoking the key ends its streams.
        access = server.rig.context.access
        for key in await access.keys(Actor()):
            await access.revoke(Actor(), key.id)
        while block := await stream.block():
            assert block == {"": "still here"}


async def test_head_request_does_not_stream(server: ServedApp) -> None:
    run = await server.running()
    answer = await server.client.head(f"/runs/{run.id}/logs", params={"follow": "true"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
