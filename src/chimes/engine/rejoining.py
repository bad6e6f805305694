"""What a node does that may no longer trust its lease: stop everything, then join anew."""

from __future__ import annotations

import asyncio
import contextlib

from chimes.engine.hands import STUCK_AFTER, Hands
from chimes.engine.hold import Stop
from chimes.engine.lifecycle import AtOnce, Rest, Told
from chimes.engine.membership import Membership
from chimes.store.port import Store


class Rejoining:
    name = "rejoining"

    def __init__(self, store: Store, membership: Membership, hands: Hands) -> None:
        self._store = store
        self._membership = membership
        self._hands = hands

    async def once(self) -> Rest:
        lost = self._membership.lost
        if not lost.is_set():
            return Told(event=lost)
        stuck = self._hands.stuck
        self._hands.stop_all(Stop.LOST)
        # Verdicts that still reach the store in time spare their runs another attempt.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hands.empty.wait(), STUCK_AFTER + 1)
        if self._hands.stuck == stuck and self._hands.empty.is_set():
            # Nothing of the old lease goes on here, so nobody has to wait for its end. A verdict
            # that is not written yet may still come in time: leaving would repeat its run.
            await self._store.leave(self._membership.node_id)
        await self._membership.join()
        return AtOnce()
