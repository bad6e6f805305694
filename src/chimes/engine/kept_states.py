"""The state that a target keeps from one run to the next, for the attempt of one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chimes.errors import StoreUnavailable
from chimes.model.run import Run
from chimes.model.target import SyncTarget
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
        kept = await _patiently(lambda: self._store.read_state(self._name))
        return None if kept is None else kept.value

    async def keep(self, value: str) -> bool:
        run = self._run
        return await _patiently(
            lambda: self._store.keep_state(run.id, run.fence, self._name, value)
        )


def state_of(store: Store, run: Run) -> TargetState | None:
    """None for a target that keeps nothing."""
    if not isinstance(run.target, SyncTarget):
        return None
    return TargetState(store, run, run.target.key)


async def _patiently(verb: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await verb()
        except StoreUnavailable:
            await asyncio.sleep(PAUSE)
