"""Whether this node may act on the runs it holds: its id, and until when it trusts its lease.

Trust is counted on the monotonic clock from before the request that renewed the lease was sent,
less a margin; so it ends before the lease does, also when the store cannot be reached
(RELIABILITY 0.5). Trust that is lost stays lost: the node joins again under a new id, because
somebody else may have taken its runs in the meantime (F16).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType

from chimes.clock import Clock
from chimes.engine.events import Events, NodeJoined, NodeLost
from chimes.engine.storetime import StoreTime
from chimes.model.defaults import RunDefaults
from chimes.model.ids import NodeId
from chimes.model.node import Node
from chimes.store.port import Store


def new_node_id() -> NodeId:
    """Never used twice, also not by a machine that starts again with the same pid."""
    return NodeId(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")


class Membership:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        time: StoreTime,
        events: Events,
        lease: timedelta,
        version: str,
        roles: tuple[str, ...],
        capacity: int,
        offers: Callable[[], frozenset[str]] = frozenset,
        defaults: Mapping[str, RunDefaults] = MappingProxyType({}),
        node_id: NodeId | None = None,
        node_ids: Callable[[], NodeId] = new_node_id,
    ) -> None:
        self._store = store
        self._clock = clock
        self._time = time
        self._events = events
        self._version = version
        self._roles = roles
        self._capacity = capacity
        self._offers = offers
        self._defaults = defaults
        self._node_ids = node_ids
        self._loop: asyncio.AbstractEventLoop | None = None
        self._joined = False
        self._trusted_until = 0.0
        self.lease = lease
        self.margin = lease / 6
        self.node_id = node_id or node_ids()
        #: Set when trust was lost and not yet found again.
        self.lost = asyncio.Event()
        #: Set unless an operator asked this node to drain.
        self.at_work = asyncio.Event()
        self.at_work.set()

    async def join(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.lost.is_set():
            self.node_id = self._node_ids()
        before = await self._register()
        self.lost.clear()
        self._trust_from(before)
        self._joined = True
        self._events.emit(NodeJoined(node_id=self.node_id))

    async def announce(self) -> None:
        """The others learn what this node offers now. One that has lost its lease says so when it
        joins again."""
        if self.trusted:
            await self._register()

    async def _register(self) -> float:
        """When it was sent, on the monotonic clock."""
        before = self._clock.monotonic()
        now = await self._time.ask()
        offers = self._offers()
        await self._store.join(
            Node(
                id=self.node_id,
                version=self._version,
                roles=self._roles,
                capacity=self._capacity,
                offers=tuple(sorted(offers)),
                defaults={
                    name: self._defaults[name]
                    for name in self._defaults
                    # Of a source each collection by itself.
                    if name.partition("#")[0] in offers
                },
                started_at=now,
                heartbeat_at=now,
                lease_until=now + self.lease,
                # What was asked of the id that is lost holds for the new one.
                drain=self.draining,
            ),
            self.lease,
        )
        return before

    async def leave(self) -> None:
        self._joined = False
        await self._store.leave(self.node_id)

    @property
    def draining(self) -> bool:
        """Whether it is to take nothing new until it is told to go on."""
        return not self.at_work.is_set()

    @property
    def joined(self) -> bool:
        """Whether there is a lease to renew."""
        return self._joined

    @property
    def trusted(self) -> bool:
        if self._joined and self._clock.monotonic() >= self._trusted_until:
            self.lose("no heartbeat was answered in time")
        return self._joined

    @property
    def trust_left(self) -> float:
        return self._trusted_until - self._clock.monotonic()

    def renewed(self, node_id: NodeId, before: float) -> None:
        """A heartbeat sent at `before` was accepted."""
        if self._joined and node_id == self.node_id:
            self._trust_from(before)

    def lose(self, why: str) -> None:
        """May be called from any thread."""
        if not self._joined or self._loop is None:
            return
        self._joined = False
        self._loop.call_soon_threadsafe(self._tell, NodeLost(node_id=self.node_id, why=why))

    def _tell(self, event: NodeLost) -> None:
        self.lost.set()
        self._events.emit(event)

    def _trust_from(self, before: float) -> None:
        self._trusted_until = before + (self.lease - self.margin).total_seconds()
