"""The heartbeat: a thread with its own event loop, so that work which blocks the engine's loop
does not cost the node its lease (RELIABILITY 0.11, F18)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from chimes.clock import Clock
from chimes.engine.events import DutyFailed, DutyRecovered, Events, NodeBeat
from chimes.engine.membership import Membership
from chimes.engine.storetime import StoreTime
from chimes.model.node import Beat, NodeFacts
from chimes.store.port import Store

NAME = "heartbeat"


class Heartbeat:
    """Renews the lease, by default three times within its length; after a failure it tries again
    sooner. A call that fails, or is not answered within the margin, counts like a refusal:
    nothing renews the trust but an accepted beat."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreTime,
        events: Events,
        canceling: Callable[[], None],
        facts: Callable[[], NodeFacts] = NodeFacts,
        hearing: Callable[[bool], None] = lambda drain: None,
        period: timedelta | None = None,
    ) -> None:
        """`facts` is asked in the thread; `canceling` and `hearing` (whether the node is to drain)
        are called in the engine's loop."""
        self._facts = facts
        self._hearing = hearing
        self._untold = False
        self._period = period or membership.lease / 3
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._canceling = canceling
        self._failing = False
        self._main: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="chimes heartbeat", daemon=True)

    def start(self) -> None:
        self._main = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        own = self._own
        if own is not None:
            with contextlib.suppress(RuntimeError):  # that loop has ended already
                own.call_soon_threadsafe(self._stopped.set)
        patience = self._membership.margin.total_seconds() + 1
        await asyncio.to_thread(self._thread.join, patience)

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._own = asyncio.get_running_loop()
        period = self._period
        while not self._stopped.is_set():
            ok = await self.once()
            # What was just heard is confirmed soon.
            wait = (period if ok and not self._untold else period / 10).total_seconds()
            if self._membership.joined:
                # Wakes in time to say that the trust is over.
                wait = min(wait, max(0.0, self._membership.trust_left) + 0.001)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), wait)

    async def once(self) -> bool:
        """One beat. False: it was not accepted, or there was no lease to renew."""
        member = self._membership
        if not member.trusted:
            return False
        node_id = member.node_id
        before = self._clock.monotonic()
        try:
            facts = self._facts()
            beat = await self._beat(member.margin, facts)
        except Exception as error:
            self._tell(DutyFailed(duty=NAME, error=error, first=not self._failing))
            self._failing = True
            return False
        if self._failing:
            self._failing = False
            self._tell(DutyRecovered(duty=NAME))
        self._time.observed(beat.now, before)
        if not beat.alive:
            member.lose("the lease had ended before the heartbeat came")
            return False
        member.renewed(node_id, before)
        skew = (self._clock.now() - beat.now).total_seconds()
        self._tell(NodeBeat(node_id=node_id, clock_skew=skew))
        if beat.cancel:
            self._on_main(self._canceling)
        self._untold = beat.drain != facts.draining
        if self._untold:
            self._on_main(partial(self._hearing, beat.drain))
        return True

    async def _beat(self, within: timedelta, facts: NodeFacts) -> Beat:
        async with asyncio.timeout(within.total_seconds()):
            return await self._store.beat(
                self._membership.node_id,
                self._membership.lease,
                clock=self._clock.now(),
                facts=facts,
            )

    def _tell(self, event: DutyFailed | DutyRecovered | NodeBeat) -> None:
        self._on_main(lambda: self._events.emit(event))

    def _on_main(self, call: Callable[[], None]) -> None:
        if self._main is not None:
            with contextlib.suppress(RuntimeError):  # the engine's loop has been closed
                self._main.call_soon_threadsafe(call)
