"""The state that a target keeps: from one run to the next, or from one attempt to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chimes.engine.events import Event, RunEnded, RunRescued
from chimes.engine.poller import Rest, Told
from chimes.errors import StoreUnavailable
from chimes.model import checkpoint as action_run
from chimes.model import checkpoint as agent_run
from chimes.model.ids import RunId
from chimes.model.run import Run
from chimes.model.target import ActionTarget, AgentTarget, SyncTarget
from chimes.store.port import Store

T = TypeVar("T")
#: Seconds between two tries while the store is away. The engine stops the attempt when it has
#: lost its run meanwhile.
PAUSE = 0.25


class TargetState:
    def __init__(self, store: Store, run: Run, name: str) -> None:
        self._store = store
        self._run = run
        self._name = name

    async def read(self) -> str | None:
        return await self._read(self._name)

    async def heard(self) -> str | None:
        return await self._read(agent_run.heard_name(self._run.id))

    async def keep(self, value: str) -> bool:
        run = self._run
        return await _patiently(
            lambda: self._store.keep_state(run.id, run.fence, self._name, value)
        )

    async def _read(self, name: str) -> str | None:
        kept = await _patiently(lambda: self._store.read_state(name))
        return None if kept is None else kept.value


def state_of(store: Store, run: Run) -> TargetState | None:
    """None for a target that keeps nothing. What an agent run or an action keeps is its own, and
    is forgotten when it has ended."""
    if run.target.kind == "task":
        # Most are, and are asked for every attempt.
        return None
    match run.target:
        case SyncTarget():
            return TargetState(store, run, run.target.key)
        case AgentTarget():
            return TargetState(store, run, agent_run.kept_name_agent_run(run.id))
        case ActionTarget():
            return TargetState(store, run, action_run.kept_name(run.id))
        case _:
            return None


class Forgetting:
    """Forgets what was kept for agent runs and actions that have ended; a duty, and a listener of
    the engine."""

    name = "forgetting"
    hears = (RunEnded, RunRescued)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: dict[RunId, tuple[str, ...]] = {}
        self._stirred = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded | RunRescued):
            names = _names_kept(event.run)
            if names and event.run.status.terminal:
                self._ended[event.run.id] = names
                self._stirred.set()

    async def once(self) -> Rest:
        await self.forget()
        self._stirred.clear()
        return Told(event=self._stirred)

    async def forget(self) -> None:
        while self._ended:
            run_id = next(iter(self._ended))
            for name in self._ended[run_id]:
                if await self._store.read_state(name) is not None:
                    await self._store.set_state(name, None)
            del self._ended[run_id]


def _names_kept(run: Run) -> tuple[str, ...]:
    """Of this run alone."""
    match run.target:
        case AgentTarget():
            return agent_run.kept_name_agent_run(run.id), agent_run.heard_name(run.id)
        case ActionTarget():
            return (action_run.kept_name(run.id),)
        case _:
            return ()


async def _patiently(verb: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await verb()
        except StoreUnavailable:
            await asyncio.sleep(PAUSE)
