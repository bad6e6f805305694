"""What became of deliveries, on its way into the store in small batches; kept through outages,
because the fence makes a late one harmless and dropping it would send a message again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from chimes.engine.digests import settle_missed
from chimes.engine.events import DeliveryEnded, DeliveryFenced, DeliveryRetrying, Listener
from chimes.engine.lifecycle import AtOnce, Rest, Told
from chimes.errors import StoreUnavailable
from chimes.model.delivery import Delivery, DeliveryState, DeliveryVerdict
from chimes.model.ids import DeliveryId
from chimes.store.port import Store

BATCH = 100
#: In one transaction, with those that go along; a single one that brings more goes alone.
MOST_VERDICTS = 2_000


class _Waiting(NamedTuple):
    verdict: DeliveryVerdict
    delivery: Delivery
    seconds: float
    along: tuple[DeliveryVerdict, ...]


class DeliveryRecorder:
    name = "delivery recorder"

    def __init__(
        self, store: Store, tell: Listener, settled: Callable[[Delivery], None] = lambda _: None
    ) -> None:
        """`settled` gets each delivery as it is now."""
        self._store = store
        self._tell = tell
        self._settled = settled
        self._pending: dict[tuple[DeliveryId, int], _Waiting] = {}
        self._arrived = asyncio.Event()

    def put(
        self,
        verdict: DeliveryVerdict,
        delivery: Delivery,
        seconds: float,
        along: tuple[DeliveryVerdict, ...] = (),
    ) -> None:
        """`along`: those that are settled with it, in the same transaction."""
        key = (verdict.delivery_id, verdict.fence)
        self._pending[key] = _Waiting(verdict, delivery, seconds, along)
        self._arrived.set()

    @property
    def waiting(self) -> int:
        return len(self._pending)

    async def once(self) -> Rest:
        # The store answers by id, so a batch holds no two attempts of one delivery.
        batch: dict[DeliveryId, _Waiting] = {}
        verdicts = 0
        for each in islice(self._pending.values(), BATCH):
            verdicts += 1 + len(each.along)
            if batch and verdicts > MOST_VERDICTS:
                break
            batch[each.delivery.id] = each
        if batch:
            await self._write(list(batch.values()))
        if self._pending:
            return AtOnce()
        self._arrived.clear()
        return Told(event=self._arrived)

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            verdicts = [one for each in batch for one in (each.verdict, *each.along)]
            accepted = await self._store.finish_deliveries(verdicts)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                # It cannot be written at all: when its hold is over it is tried again.
                self._drop(batch[0])
                raise
            await self._write_singly(batch)
            return
        now = {each.id: each for each in accepted}
        for each in batch:
            self._drop(each)
            self._settle(each, now.get(each.delivery.id))
        for each in batch:
            if each.verdict.sent and each.delivery.id in now:
                # Accepted may be the word of whoever has taken it in hand, in the same batch.
                missed = [one for one in each.along if not _is_over(now.get(one.delivery_id))]
                await settle_missed(self._store, missed)

    async def _write_singly(self, batch: list[_Waiting]) -> None:
        """One that cannot be written must not hold up the others."""
        failed: Exception | None = None
        for each in batch:
            try:
                await self._write([each])
            except StoreUnavailable:
                raise
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed

    def _drop(self, each: _Waiting) -> None:
        del self._pending[each.verdict.delivery_id, each.verdict.fence]

    def _settle(self, each: _Waiting, now: Delivery | None) -> None:
        if now is None:
            self._tell(DeliveryFenced(delivery=each.delivery))
        elif now.state is DeliveryState.PENDING:
            self._settled(now)
            self._tell(DeliveryRetrying(delivery=now, seconds=each.seconds))
        else:
            self._tell(DeliveryEnded(delivery=now, seconds=each.seconds))


def _is_over(delivery: Delivery | None) -> bool:
    return delivery is not None and delivery.state is not DeliveryState.PENDING
