"""A stub action service on the loopback, and runners and calls for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from chimes.egress import Egress
from chimes.model.policy import Policy
from chimes.model.target import ActionTarget
from chimes.targets.action import ActionConfig, ActionRunner
from chimes.targets.action.service import checked_config
from chimes.targets.base import Call
from chimes.targets.http.connection import Lookup, system_lookup
from tests.builders import NOW, a_run
from tests.targets.agent_servers import StoredCheckpoint
from tests.targets.sinks import OPEN, Handler, Logged, Received, answer, read_request, serving

TOKEN = "Bearer canary-0123456789abcdef"
TARGET = ActionTarget(
    action_type_id="restart",
    kn_id="kn1",
    identities=({"id": "pod-1"}, {"id": "pod-2"}),
    params={"force": True},
    account_id="u-1",
    account_type="user",
)
PENDING = {"execution_id": "e1", "status": "pending", "message": "Action execution started"}
RUNNING = {"id": "e1", "status": "running"}
COMPLETED = {
    "id": "e1",
    "status": "completed",
    "total_count": 2,
    "success_count": 2,
    "failed_count": 0,
    "results": [],
}

#: A JSON document, a bare HTTP status, or raw bytes.
Given = dict[str, Any] | int | bytes


@dataclass
class ActionService:
    """Each POST to execute answers with the next of `executes` (then the last), each GET of an
    execution with the next of `states`."""

    executes: list[Given] = field(default_factory=lambda: [PENDING])
    states: list[Given] = field(default_factory=lambda: [COMPLETED])
    #: Handles the connection instead of a response to execute.
    then: Handler | None = None
    requests: list[Received] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def executed(self) -> list[Received]:
        return [each for each in self.requests if each.target.partition("?")[0].endswith("execute")]

    @property
    def polls(self) -> list[str]:
        return [each.target for each in self.requests if each.method == "GET"]

    @property
    def canceled(self) -> list[Received]:
        return [each for each in self.requests if each.target.endswith("/cancel")]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (received := await read_request(reader)) is not None:
            self.requests.append(received)
            if received in self.executed and self.then is not None:
                await self.then(reader, writer)
                return
            writer.write(self._reply(received))
            await writer.drain()

    def _reply(self, received: Received) -> bytes:
        if received in self.canceled:
            return as_response({"execution_id": "e1", "status": "cancelled", "cancelled_count": 1})
        if received.method == "POST":
            return as_response(_nth(self.executes, len(self.executed)), "202 Accepted")
        return as_response(_nth(self.states, len(self.polls)))


def _nth(given: list[Given], number: int) -> Given:
    return given[min(number, len(given)) - 1]


def as_response(given: Given, status: str = "200 OK") -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, int):
        return answer(f"{given} Trouble", b'{"description": "not now", "error_details": "busy"}')
    return answer(status, json.dumps(given).encode(), Content_Type="application/json")


@asynccontextmanager
async def action_service(**given: Any) -> AsyncIterator[ActionService]:
    service = ActionService(**given)
    async with serving(service.handle) as port:
        service.port = port
        yield service


@asynccontextmanager
async def action_runner(
    url: str, *, egress: Egress = OPEN, lookup: Lookup = system_lookup, **given: Any
) -> AsyncIterator[ActionRunner]:
    config = checked_config(ActionConfig(url=url, **given))
    runner = ActionRunner(config, egress=egress, user_agent="Chimes/test", lookup=lookup)
    await runner.open()
    try:
        yield runner
    finally:
        await runner.close()


def an_action(
    target: ActionTarget = TARGET,
    *,
    timeout: float = 60,
    state: StoredCheckpoint | None = None,
    canceled: bool = False,
    **run: Any,
) -> Call:
    values: dict[str, Any] = {
        "target": target,
        "policy": Policy(timeout=timedelta(seconds=timeout)),
        "attempt": 1,
        "fence": 1,
    }
    return Call(
        run=a_run(**(values | run)),
        triggered_at=NOW,
        log=Logged(),
        state=state or StoredCheckpoint(),
        canceled=lambda: canceled,
    )


def logged(call: Call) -> list[tuple[str, str]]:
    assert isinstance(call.log, Logged)
    return call.log.lines
