"""Which tasks keep their logs: the last ones of each pair of source and collection
(`sync_log_runs`). Looked after when a task of the pair ends here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from chimes.clock import Clock
from chimes.engine.events import Event, RunEnded
from chimes.engine.lifecycle import After, AtOnce, Rest, Told
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.sync_task import TASK_RUN_STATUSES
from chimes.model.target import SyncTarget
from chimes.store.port import Store

PAGE = 500
#: Tasks beyond the last ones that are looked at again each time: other nodes may have ended some.
AGAIN = 50
#: Looking takes at most this share of the time: those that keep their logs may be many.
SHARE = 0.1


class LogRetention:
    """A duty, and a listener of the engine."""

    name = "log retention"

    def __init__(self, store: Store, clock: Clock, *, keep: int) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._waiting: dict[str, SyncTarget] = {}
        #: Pairs whose older tasks were looked through to the last.
        self._cleared: set[str] = set()
        self._stirred = asyncio.Event()

    hears = (RunEnded,)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded) and isinstance(event.run.target, SyncTarget):
            target = event.run.target
            self._waiting[target.key] = target
            self._stirred.set()

    async def once(self) -> Rest:
        if not self._waiting:
            self._stirred.clear()
            return Told(event=self._stirred)
        key = next(iter(self._waiting))
        target = self._waiting.pop(key)
        began = self._clock.monotonic()
        try:
            await self._trim(target)
        except BaseException:
            self._waiting.setdefault(key, target)
            raise
        self._cleared.add(key)
        took = self._clock.monotonic() - began
        return After(took / SHARE) if took > SHARE else AtOnce()

    async def _trim(self, target: SyncTarget) -> None:
        """Newest first, past those that keep their logs."""
        query = RunQuery(
            needs=target.needs,
            concurrency_key=target.key,
            statuses=TASK_RUN_STATUSES,
            descending=True,
            limit=PAGE,
        )
        seen = 0
        most = self._keep + AGAIN if target.key in self._cleared else None
        while True:
            page = await self._store.list_runs(query)
            old = page.items[max(0, self._keep - seen) :]
            dropped: list[RunId] = [run.id for run in old if run.status.terminal]
            if dropped:
                await self._store.drop_logs(dropped)
            seen += len(page.items)
            if page.next is None or (most is not None and seen >= most):
                return
            query = replace(query, after=page.next)
