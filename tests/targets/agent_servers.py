"""Stub model servers and run pipelines on the loopback, and runners and calls for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from chimes.model.policy import Policy
from chimes.model.target import AgentTarget
from chimes.targets.agent import AgentConfig, AgentPrompt
from chimes.targets.agent.service import checked_config
from chimes.targets.base import Call
from tests.builders import NOW, a_run
from tests.targets.sinks import Handler, Logged, Received, Sink, answer, read_request, serving

API_KEY = "sk-canary-0123456789abcdef"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def delta(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "stub-1", "choices": [{"index": 0, "delta": {"content": text}}], **more}


def ending(reason: str = "stop") -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def event(found: object, eol: str = "\n") -> bytes:
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return f"data: {text}{eol}{eol}".encode()


def events(*found: object) -> bytes:
    return b"".join(map(event, found))


def sending(*pieces: bytes, head: bytes = STREAM, pause: float = 0.0) -> Handler:
    """Sends the response in these pieces, then closes the connection."""

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return send


def bytewise(data: bytes) -> Iterable[bytes]:
    return (data[place : place + 1] for place in range(len(data)))


@asynccontextmanager
async def model_server(*pieces: bytes, then: Handler | None = None) -> AsyncIterator[Sink]:
    sink = Sink(then=then or sending(*pieces))
    async with serving(sink.handle) as port:
        sink.port = port
        yield sink


@asynccontextmanager
async def agent_runner(url: str, **given: Any) -> AsyncIterator[AgentPrompt]:
    values: dict[str, Any] = {"pipeline": "openai", "model": "wanted-1", "api_key": API_KEY}
    config = AgentConfig(url=url, **(values | given))
    runner = AgentPrompt(checked_config(config), user_agent="Chimes/test")
    await runner.open()
    try:
        yield runner
    finally:
        await runner.close()


@dataclass
class StoredCheckpoint:
    """The checkpoint of a run, in memory."""

    value: str | None = None
    said: str | None = None
    writes: list[str] = field(default_factory=list)

    async def read(self) -> str | None:
        return self.value

    async def read_callback(self) -> str | None:
        return self.said

    async def save(self, value: str) -> bool:
        self.value = value
        self.writes.append(value)
        return True


def a_prompt(
    prompt: str = "Summarise the news",
    *,
    timeout: float = 60,
    state: StoredCheckpoint | None = None,
    canceled: bool = False,
    run: dict[str, Any] | None = None,
    **target: Any,
) -> Call:
    values: dict[str, Any] = {
        "target": AgentTarget(prompt=prompt, **target),
        "policy": Policy(timeout=timedelta(seconds=timeout)),
        "attempt": 1,
        "fence": 1,
    }
    return Call(
        run=a_run(**(values | (run or {}))),
        triggered_at=NOW,
        log=Logged(),
        state=state or StoredCheckpoint(),
        canceled=lambda: canceled,
    )


def logged(call: Call) -> list[tuple[str, str]]:
    assert isinstance(call.log, Logged)
    return call.log.lines


@dataclass
class Pipeline:
    """A run pipeline that honours Idempotency-Key. Each GET answers with the next of `statuses`
    (then the last); an int is a bare HTTP status."""

    statuses: list[dict[str, Any] | int] = field(
        default_factory=lambda: [{"status": "completed", "output": "done"}]
    )
    #: HTTP statuses of the first POSTs to /runs, which are refused.
    refusals: list[int] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    gets: int = 0
    canceled: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def posts(self) -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in self.requests if each.target == "/runs"]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (received := await read_request(reader)) is not None:
            self.requests.append(received)
            writer.write(self._reply(received))
            await writer.drain()

    def _reply(self, received: Received) -> bytes:
        if received.target == "/runs":
            if self.refusals:
                return answer(f"{self.refusals.pop(0)} Refused", b'{"error": "not now"}')
            key = received.headers["idempotency-key"]
            made = self.runs.setdefault(key, f"pipe/{len(self.runs) + 1}")
            return _json({"run_id": made, "status": "queued"}, "202 Accepted")
        if received.target.endswith("/cancel"):
            self.canceled.append(received.target)
            return _json({"status": "canceled"})
        found = self.statuses[min(self.gets, len(self.statuses) - 1)]
        self.gets += 1
        return answer(f"{found} Trouble") if isinstance(found, int) else _json(found)


def _json(found: object, status: str = "200 OK") -> bytes:
    return answer(status, json.dumps(found).encode(), Content_Type="application/json")


@asynccontextmanager
async def pipeline_server(**given: Any) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(**given)
    async with serving(pipeline.handle) as port:
        pipeline.port = port
        yield pipeline
