"""Notices that the store has gone back: a fail-over that lost commits, a restored backup (F28).

What this node holds then, it may hold only in its own memory: it lets everything go and joins
anew, so that each run is held by whom the store says, or by nobody. Slots that come back un-run are
run again, under the same run ids.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from chimes.engine.events import Events, StoreRegressed
from chimes.engine.lifecycle import After, Rest, Told
from chimes.engine.membership import Membership
from chimes.engine.storetime import StoreTime
from chimes.model.access import SYSTEM_OWNER
from chimes.model.audit import AuditEntry
from chimes.store.epoch import Epoch, WithEpoch, regress
from chimes.store.port import Store

#: Between two looks.
EVERY = timedelta(seconds=5)


class EpochWatch:
    name = "epoch watch"

    def __init__(
        self,
        store: Store,
        epochs: WithEpoch,
        membership: Membership,
        *,
        time: StoreTime,
        events: Events,
        every: timedelta = EVERY,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._membership = membership
        self._time = time
        self._events = events
        self._every = every
        self._seen: Epoch | None = None
        self._unsaid: list[str] = []

    async def once(self) -> Rest:
        before, self._seen = self._seen, await self._epochs.epoch()
        why = regress(before, self._seen) if before is not None else ""
        if why:
            self._events.emit(StoreRegressed(why=why))
            self._membership.lose(why)
            self._unsaid.append(why)
        while self._unsaid:
            await self._store.append_audit(
                AuditEntry(
                    at=self._time.now(),
                    actor="chimes",
                    door="engine",
                    verb="regress",
                    object_kind="store",
                    object_id="store",
                    owner=str(SYSTEM_OWNER),
                    changes={},
                    reason=str(self._unsaid[0]),
                )
            )
            del self._unsaid[0]
        # A store without a history of its own cannot be exchanged for an older one unseen.
        if not self._seen.history:
            return Told(event=asyncio.Event())
        return After(self._time.rest_of(self._every))
