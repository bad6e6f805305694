"""Streams of changes: Server-Sent Events that say which topics have changed, for open pages of the
dashboard and for clients of the API.

Events carry no data: a client requests what changed, with its permissions. Stores do not push every
change, so while clients are connected a few indexed queries are made every two seconds, shared by
all streams with the same permissions. The id of an event is a fingerprint of the state, so that a
client that reconnects, to any node, gets the events it missed. A page carries the id from before it
was rendered, so that no change is lost between rendering and connecting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from chimes.errors import RateLimited, StoreError
from chimes.model.access import Actor, Owner
from chimes.services.insights import TOPICS
from chimes.web.api.streams import StreamCounter
from chimes.web.requests import WebContext

#: Seconds between two polls of the store; the minimum applies after a local change.
POLL_INTERVAL, MIN_POLL_INTERVAL = 2.0, 1.0
HEARTBEAT_INTERVAL = 10.0
#: Maximum age in seconds of the snapshot that a page refers to. With an older one, more events
#: would repeat what the page shows already.
MAX_SNAPSHOT_AGE = 5.0
#: Pollers that are kept, one per owner.
MAX_POLLERS = 256


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the store as one fingerprint per topic."""

    fingerprints: tuple[str, ...]

    @property
    def id(self) -> str:
        return ".".join(self.fingerprints)

    def changed_since(self, other: Snapshot) -> tuple[str, ...]:
        pairs = zip(TOPICS, self.fingerprints, other.fingerprints, strict=True)
        return tuple(topic for topic, mine, theirs in pairs if mine != theirs)


def parse_event_id(text: str) -> Snapshot | None:
    """From `Last-Event-ID`; None if it is invalid."""
    parts = tuple(text.split("."))
    valid = len(parts) == len(TOPICS) and all(len(part) == 8 and part.isalnum() for part in parts)
    return Snapshot(parts) if valid else None


class ChangePoller:
    """Polls the store on behalf of all streams with the same permissions."""

    def __init__(self, context: WebContext, actor: Actor) -> None:
        self._clock = context.clock
        self._detector = context.change_detector(actor)
        self._latest: Snapshot | None = None
        self._polled_at = float("-inf")
        self._local_changes = -1
        self._invalidated = False
        self._lock = asyncio.Lock()
        self.streams = 0

    async def poll(self) -> Snapshot:
        """At most two seconds old, or one second after a local change. StoreError."""
        async with self._lock:
            age = self._age()
            changed = self._invalidated or self._detector.local_changes() != self._local_changes
            if (
                self._latest is None
                or age >= POLL_INTERVAL
                or (age >= MIN_POLL_INTERVAL and changed)
            ):
                return await self._take_snapshot()
            return self._latest

    async def snapshot_for_page(self) -> Snapshot:
        """For a page that is about to be rendered: not newer than the page, and includes the
        actions of this process. StoreError."""
        async with self._lock:
            if self._latest is None or self._invalidated or self._age() > MAX_SNAPSHOT_AGE:
                return await self._take_snapshot()
            return self._latest

    @property
    def latest_id(self) -> str:
        return "" if self._latest is None else self._latest.id

    def invalidate(self) -> None:
        self._invalidated = True

    def _age(self) -> float:
        return self._clock.monotonic() - self._polled_at

    async def _take_snapshot(self) -> Snapshot:
        local_changes, self._invalidated = self._detector.local_changes(), False
        self._latest = Snapshot(await self._detector.fingerprints())
        self._polled_at, self._local_changes = self._clock.monotonic(), local_changes
        return self._latest


class LiveUpdates:
    """All event streams of the dashboard, or of the API, of this server."""

    def __init__(self, context: WebContext, streams: StreamCounter | None = None) -> None:
        self._context = context
        #: Least recently used first.
        self._pollers: dict[Owner | None, ChangePoller] = {}
        #: Those of the dashboard are apart from the streams of logs, with the same limits.
        self.streams = streams or StreamCounter()

    async def current_event_id(self, actor: Actor) -> str:
        """The id from which the stream of a page resumes; empty if the store is unavailable."""
        try:
            return (await self._poller(actor).snapshot_for_page()).id
        except StoreError:
            return ""

    def cached_event_id(self, actor: Actor) -> str:
        """As `current_event_id` without polling, for a form that is shown again; empty before the
        first poll."""
        poller = self._pollers.get(_owner_of(actor))
        return poller.latest_id if poller is not None else ""

    def invalidate(self) -> None:
        """After an action, whose result the next page shows already."""
        for poller in self._pollers.values():
            poller.invalidate()

    def _poller(self, actor: Actor) -> ChangePoller:
        owner = _owner_of(actor)
        poller = self._pollers.pop(owner, None) or ChangePoller(self._context, actor)
        self._pollers[owner] = poller
        if len(self._pollers) > MAX_POLLERS:
            idle = next((name for name, each in self._pollers.items() if not each.streams), owner)
            if idle != owner:
                del self._pollers[idle]
        return poller

    async def stream(
        self,
        actor: Actor,
        known: Snapshot | None,
        is_active: Callable[[], Awaitable[bool]],
        topics: Collection[str] = TOPICS,
    ) -> AsyncIterator[str]:
        """`known`: the state that the client has seen; None: the current one."""
        poller = self._poller(actor)
        poller.streams += 1
        try:
            with self.streams.open(actor):
                yield "retry: 1000\n\n"
                async for event in self._events(poller, known, is_active, topics):
                    yield event
        except RateLimited:
            yield "retry: 10000\n\n"
        finally:
            poller.streams -= 1

    async def _events(
        self,
        poller: ChangePoller,
        known: Snapshot | None,
        is_active: Callable[[], Awaitable[bool]],
        topics: Collection[str],
    ) -> AsyncIterator[str]:
        clock = self._context.clock
        last_heartbeat = float("-inf")
        while self._context.not_ready() != "draining":
            try:
                snapshot = await poller.poll()
            except StoreError:
                # A page shows that it is not live, because heartbeats are missing.
                await asyncio.sleep(POLL_INTERVAL)
                continue
            changed = [] if known is None else snapshot.changed_since(known)
            for topic in [each for each in changed if each in topics]:
                yield _event(snapshot, f"{topic}.changed", {"topic": topic})
            if clock.monotonic() - last_heartbeat >= HEARTBEAT_INTERVAL or known is None:
                if not await is_active():
                    return
                last_heartbeat = clock.monotonic()
                # An event and not a comment, because scripts cannot see comments.
                yield _event(snapshot, "beat", {})
            known = snapshot
            await asyncio.sleep(MIN_POLL_INTERVAL)


def _event(snapshot: Snapshot, kind: str, data: dict[str, str]) -> str:
    return f"id: {snapshot.id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


def _owner_of(actor: Actor) -> Owner | None:
    """None for an actor who sees the objects of all owners."""
    return None if actor.sees_all_owners else actor.owner
