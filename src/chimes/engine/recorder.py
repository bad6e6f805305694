"""Verdicts on their way into the store, in micro-batches.

While one batch is being written the next one gathers: a single verdict goes at once, and under
load a batch is as large as the store is slow. A verdict leaves only when the store has answered:
it is kept through outages, because the fence makes a late one harmless and a repeated one is
recognised (F23); dropping it would repeat an effect for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from chimes.engine.lifecycle import AtOnce, Rest, Told
from chimes.errors import StoreUnavailable, told
from chimes.failpoints import hit
from chimes.model.ids import RunId
from chimes.model.run import Run, RunStatus, Verdict
from chimes.store.port import Store
from chimes.wording import say

BATCH = 500

#: Called with the run as it is now, or None if the verdict was refused.
Settled = Callable[[Verdict, Run | None], None]


class Recorder:
    name = "recorder"

    def __init__(self, store: Store, settled: Settled) -> None:
        self._store = store
        self._settled = settled
        self._pending: dict[tuple[RunId, int], Verdict] = {}
        self._arrived = asyncio.Event()

    def put(self, verdict: Verdict) -> None:
        hit("run.before_record")
        self._pending[_key(verdict)] = verdict
        self._arrived.set()

    @property
    def waiting(self) -> int:
        return len(self._pending)

    async def once(self) -> Rest:
        # The store answers by run id, so a batch holds no two attempts of one run.
        batch = {v.run_id: v for v in islice(self._pending.values(), BATCH)}
        if batch:
            await self._write(tuple(batch.values()))
        if self._pending:
            return AtOnce()
        self._arrived.clear()
        return Told(event=self._arrived)

    async def _write(self, batch: Sequence[Verdict]) -> None:
        try:
            finished = await self._store.finish(batch)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                await self._write_singly(batch)
            else:
                self._pending[_key(batch[0])] = _unstorable(batch[0], error)
                raise
        else:
            accepted = {run.id: run for run in finished.accepted}
            for verdict in batch:
                del self._pending[_key(verdict)]
                self._settled(verdict, accepted.get(verdict.run_id))
            hit("run.after_record")

    async def _write_singly(self, batch: Sequence[Verdict]) -> None:
        """One verdict that cannot be written must not hold up the others."""
        failed: Exception | None = None
        for verdict in batch:
            try:
                await self._write((verdict,))
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed


def _key(verdict: Verdict) -> tuple[RunId, int]:
    return verdict.run_id, verdict.fence


def _unstorable(verdict: Verdict, error: Exception) -> Verdict:
    return replace(
        verdict,
        status=RunStatus.FAILED,
        retry_in=None,
        result=None,
        logs=(),
        error=str(
            say(
                "the result could not be stored: {type}: {message}",
                type=type(error).__name__,
                message=told(error),
            )
        ),
        reason="unstorable_result",
    )
