"""Checkpoints: state that a target keeps between runs or between the attempts of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chimes.engine.events import Event, RunEnded, RunRescued
from chimes.engine.poller import NextPoll, PollOnEvent
from chimes.errors import StoreUnavailable
from chimes.model.checkpoint import (
    action_checkpoint_name,
    agent_callback_name,
    agent_checkpoint_name,
)
from chimes.model.definition import ActionTarget, AgentTarget, SyncTarget
from chimes.model.ids import RunId
from chimes.model.run import Run
from chimes.store.port import Store

T = TypeVar("T")
#: Seconds between two tries while the store is unavailable. The reconciler stops an attempt that
#: loses its run meanwhile.
RETRY_PAUSE = 0.25


class TargetState:
    """Implements `chimes.targets.base.State`."""

    def __init__(self, store: Store, run: Run, name: str) -> None:
        self._store = store
        self._run = run
        self._name = name

    async def read(self) -> str | None:
        return await self._read(self._name)

    async def heard(self) -> str | None:
        return await self._read(agent_callback_name(self._run.id))

    async def keep(self, value: str) -> bool:
        run = self._run
        return await _retrying(
            lambda: self._store.save_checkpoint(run.id, run.fence, self._name, value)
        )

    async def _read(self, name: str) -> str | None:
        checkpoint = await _retrying(lambda: self._store.get_checkpoint(name))
        return None if checkpoint is None else checkpoint.value


def checkpoint_of(store: Store, run: Run) -> TargetState | None:
    """None for a target without a checkpoint. A sync keeps one for all its runs; an agent prompt
    or an action keeps one per run, which is deleted when the run has ended."""
    if run.target.kind == "task":
        # The most frequent kind, decided first: this is called for every attempt.
        return None
    match run.target:
        case SyncTarget():
            return TargetState(store, run, run.target.key)
        case AgentTarget():
            return TargetState(store, run, agent_checkpoint_name(run.id))
        case ActionTarget():
            return TargetState(store, run, action_checkpoint_name(run.id))
        case _:
            return None


class CheckpointCleaner:
    """Deletes the checkpoints of ended agent and action runs; a duty and an event listener."""

    name = "checkpoint cleaner"
    event_types = (RunEnded, RunRescued)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: dict[RunId, tuple[str, ...]] = {}
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded | RunRescued):
            names = _names_of(event.run)
            if names and event.run.status.terminal:
                self._ended[event.run.id] = names
                self._changed.set()

    async def run_once(self) -> NextPoll:
        await self.clean()
        self._changed.clear()
        return PollOnEvent(event=self._changed)

    async def clean(self) -> None:
        while self._ended:
            run_id = next(iter(self._ended))
            for name in self._ended[run_id]:
                if await self._store.get_checkpoint(name) is not None:
                    await self._store.set_checkpoint(name, None)
            del self._ended[run_id]


def _names_of(run: Run) -> tuple[str, ...]:
    """The checkpoints of this run alone."""
    match run.target:
        case AgentTarget():
            return agent_checkpoint_name(run.id), agent_callback_name(run.id)
        case ActionTarget():
            return (action_checkpoint_name(run.id),)
        case _:
            return ()


async def _retrying(operation: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_PAUSE)
