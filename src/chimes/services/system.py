"""The system, for operators: nodes, state of the store, and the sync sources of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import Conflict, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import NodeId
from chimes.model.listing import Counts
from chimes.model.node import Node, NodeEvent
from chimes.model.sync import Sources
from chimes.services.schedules.rules import known_connections
from chimes.store.port import Store, StoreStatus, node_not_found


class NodeService:
    """Nodes have no owner. Operators and admins see them, and control them if their key allows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_nodes(self, actor: Actor) -> tuple[Node, ...]:
        _only_operators(actor)
        return await self._store.nodes()

    async def get(self, actor: Actor, node_id: NodeId) -> Node:
        for node in await self.list_nodes(actor):
            if node.id == node_id:
                return node
        raise node_not_found(node_id)

    async def drain(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        """From its next heartbeat on the node claims no runs; it finishes its in-flight runs and
        stays up. A restarted process is a new node that is not drained."""
        return await self._set_drain(actor, node_id, "drain", drain=True, reason=reason)

    async def resume(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        return await self._set_drain(actor, node_id, "resume", drain=False, reason=reason)

    async def forget(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        """Removes a node whose lease has expired. Its runs are rescued as they would be anyway."""
        node = await self._operable(actor, node_id)
        changes = {"version": [node.version, None]}
        audit = await self._audit(actor, "forget", node_id, changes, reason)
        return await self._store.forget_node(node_id, audit)

    async def _set_drain(
        self, actor: Actor, node_id: NodeId, verb: str, *, drain: bool, reason: str
    ) -> Node:
        node = await self._operable(actor, node_id)
        changes = {"drain": [node.drain, drain]}
        audit = await self._audit(actor, verb, node_id, changes, reason)
        return await self._store.drain_node(node_id, drain, audit)

    async def _operable(self, actor: Actor, node_id: NodeId) -> Node:
        node = await self.get(actor, node_id)
        if not may_control(actor):
            raise NotAllowed()
        return node

    async def _audit(
        self,
        actor: Actor,
        verb: str,
        node_id: NodeId,
        changes: Mapping[str, object],
        reason: str,
    ) -> AuditEntry:
        now = await self._store.now()
        return entry(
            actor, verb, "node", node_id, at=now, owner=SYSTEM_OWNER, changes=changes, reason=reason
        )

    async def list_active(self, now: datetime) -> tuple[Node, ...]:
        """Nodes with a valid lease, for every user: their capabilities are no secret."""
        return tuple(node for node in await self._store.nodes() if node.lease_until > now)

    async def list_events(self, actor: Actor, since: datetime) -> tuple[NodeEvent, ...]:
        """Nodes that joined or left since then, oldest first."""
        _only_operators(actor)
        return await self._store.node_events(since)


def may_control(actor: Actor) -> bool:
    """Whether the actor may drain, resume and forget nodes."""
    return actor.sees_everything and actor.may_operate(SYSTEM_OWNER)


def _only_operators(actor: Actor) -> None:
    if not actor.sees_everything:
        raise NotAllowed()


# --- the store ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class StoreHealth:
    status: StoreStatus
    counts: Counts
    #: Bytes; None if the store cannot tell.
    size: int | None
    #: Seconds of one round trip.
    latency: float


class SystemService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def get_store_health(self, actor: Actor) -> StoreHealth:
        _only_operators(actor)
        started = self._clock.monotonic()
        await self._store.now()
        latency = self._clock.monotonic() - started
        status, counts, size = await asyncio.gather(
            self._store.status(), self._store.counts(), self._store.size()
        )
        return StoreHealth(status=status, counts=counts, size=size, latency=latency)

    async def get_store_status(self, actor: Actor) -> StoreStatus:
        _only_operators(actor)
        return await self._store.status()

    async def count_prunable(self, actor: Actor, before: datetime, *, limit: int) -> int:
        """How many runs retention would delete; counts at most `limit`."""
        _only_operators(actor)
        return await self._store.count_prunable(before, most=limit)


# --- sync sources ---------------------------------------------------------------------------------
ChangeKind = Literal["created", "updated", "deleted", "unchanged", "kept"]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What a reload does to one schedule, named `source/collection`."""

    name: str
    #: `kept`: not in the file, but on another live node.
    what: ChangeKind


@dataclass(frozen=True, kw_only=True, slots=True)
class ReloadResult:
    file: str
    changes: tuple[SourceChange, ...]


#: Reads the file again; True: a dry run.
Reload = Callable[[bool], Awaitable[ReloadResult]]


class SourceRegistry:
    """The sources of this node's file as last read; a reload replaces them."""

    def __init__(self, sources: Sources | None = None, *, file: str = "") -> None:
        self._sources = sources or Sources()
        self._reload: Reload | None = None
        #: Path of the file; empty: there is none.
        self.file = file

    @property
    def now(self) -> Sources:
        """An immutable value; read it once for a consistent view."""
        return self._sources

    def put(self, sources: Sources) -> None:
        self._sources = sources

    def reloaded_by(self, reload: Reload) -> None:
        self._reload = reload

    async def reload(self, actor: Actor, *, dry_run: bool = False) -> ReloadResult:
        """Raises ConfigError for an invalid file, and then changes nothing."""
        if not actor.administers:
            raise NotAllowed()
        if self._reload is None or not self.file:
            raise Conflict(_("this node has no configuration file"), code="no_file")
        return await self._reload(dry_run)


# --- connections ----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionView:
    """A connection of this process or of live nodes, without its URL."""

    name: str
    kind: str
    #: Empty: this process does not have it in its file.
    roles: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    #: The live nodes that have it; only for an actor who sees everything.
    nodes: tuple[str, ...] = ()


class ConnectionService:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    async def list(self, actor: Actor) -> list[ConnectionView]:
        """By kind and name."""
        here = {each.capability: each for each in self._settings.connections}
        known = await known_connections(self._store, here)
        found = []
        for capability, nodes in sorted(known.items()):
            kind, _colon, name = capability.partition(":")
            own = here.get(capability)
            found.append(
                ConnectionView(
                    name=name,
                    kind=kind,
                    roles=() if own is None else own.roles,
                    allow=() if own is None else own.allow,
                    nodes=tuple(sorted(node.id for node in nodes)) if actor.sees_everything else (),
                )
            )
        return found
