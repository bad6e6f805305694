"""What operators do to nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from chimes.errors import Conflict, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeEvent
from chimes.model.sync import Sources
from chimes.services.audit import entry
from chimes.store.port import Store, node_not_found


class NodeService:
    """Nodes belong to nobody: operators and admins see them, and may drain, resume and forget them
    as far as their key allows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_nodes(self, actor: Actor) -> tuple[Node, ...]:
        if not actor.sees_everything:
            raise NotAllowed()
        return await self._store.nodes()

    async def get(self, actor: Actor, node_id: NodeId) -> Node:
        for node in await self.list_nodes(actor):
            if node.id == node_id:
                return node
        raise node_not_found(node_id)

    async def drain(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        """It takes nothing new from its next heartbeat on, finishes what it has, and stays. A
        process that starts anew is a new node, which is not drained."""
        return await self._ask(actor, node_id, "drain", drain=True, reason=reason)

    async def resume(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        return await self._ask(actor, node_id, "resume", drain=False, reason=reason)

    async def forget(self, actor: Actor, node_id: NodeId, *, reason: str = "") -> Node:
        """One whose lease is over; what it still held is taken over by the others at once, as it
        would be without this."""
        node = await self._operable(actor, node_id)
        changes = {"version": [node.version, None]}
        note = await self._note(actor, "forget", node_id, changes, reason)
        return await self._store.forget_node(node_id, note)

    async def _ask(
        self, actor: Actor, node_id: NodeId, verb: str, *, drain: bool, reason: str
    ) -> Node:
        node = await self._operable(actor, node_id)
        changes = {"drain": [node.drain, drain]}
        note = await self._note(actor, verb, node_id, changes, reason)
        return await self._store.drain_node(node_id, drain, note)

    async def _operable(self, actor: Actor, node_id: NodeId) -> Node:
        node = await self.get(actor, node_id)
        if not may_control(actor):
            raise NotAllowed()
        return node

    async def _note(
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

    async def active(self, now: datetime) -> tuple[Node, ...]:
        """Nodes with a valid lease, for every user: their capabilities are no secret."""
        return tuple(node for node in await self._store.nodes() if node.lease_until > now)

    async def events(self, actor: Actor, since: datetime) -> tuple[NodeEvent, ...]:
        """Nodes that joined or left since then, oldest first."""
        if not actor.sees_everything:
            raise NotAllowed()
        return await self._store.node_events(since)


def may_control(actor: Actor) -> bool:
    """A member of the system's own is not one: it sees only what is its own."""
    return actor.sees_everything and actor.may_operate(SYSTEM_OWNER)


# @@ The sources that this node knows.

Word = Literal["created", "updated", "deleted", "unchanged", "kept"]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What becomes of one schedule, by its name `source/collection`."""

    name: str
    #: `kept`: the file does not have it, but another node that is alive does.
    what: Word


@dataclass(frozen=True, kw_only=True, slots=True)
class ReloadResult:
    file: str
    changes: tuple[SourceChange, ...]


#: Reads the file again; True: only says what would change.
Reload = Callable[[bool], Awaitable[ReloadResult]]


class SourceRegistry:
    """Those of this node's file as it was last read: a reload puts others in their place."""

    def __init__(self, sources: Sources | None = None, *, file: str = "") -> None:
        self._sources = sources or Sources()
        self._reload: Reload | None = None
        #: Where they stand; empty: there is no file.
        self.file = file

    @property
    def now(self) -> Sources:
        """A frozen value: whoever goes on for a while takes it once."""
        return self._sources

    def put(self, sources: Sources) -> None:
        self._sources = sources

    def reloaded_by(self, reload: Reload) -> None:
        self._reload = reload

    async def reload(self, actor: Actor, *, dry_run: bool = False) -> ReloadResult:
        """Raises ConfigError, and leaves everything as it is, for a file that is not valid."""
        if not actor.administers:
            raise NotAllowed()
        if self._reload is None or not self.file:
            raise Conflict(_("this node has no configuration file to read again"), code="no_file")
        return await self._reload(dry_run)
