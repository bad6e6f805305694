"""One stream of signals for each open tab: that runs, schedules, the inbox or nodes have changed.

Signals, not data: what changed is asked for by the page, under the rights of its reader. Stores
tell nobody of every change, so while somebody listens a few small questions are asked every two
seconds, once for all listeners of the same rights. The id of a signal says what was seen, so that
a tab which comes back, to whichever node, hears of what it missed. A page carries such an id from
before it was made: what changes between the page and its stream is missed by nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from chimes.errors import RateLimited, StoreError
from chimes.i18n import _
from chimes.model.access import Actor, Owner
from chimes.model.listing import AuditQuery, InboxQuery, RunQuery, ScheduleQuery
from chimes.model.run import RunStatus
from chimes.web.context import WebContext
from chimes.web.dashboard.core.auth import Reception, arrive, still_welcome

TOPICS = ("runs", "schedules", "inbox", "nodes")
#: Seconds between two looks at the store, and the most often that one is made.
LOOK_EVERY, LOOK_AT_MOST = 2.0, 1.0
HEARTBEAT = 10.0
#: So old, in seconds, may be what a page says it has seen. The older, the more of what it shows
#: already is told again.
SEEN_WITHIN = 5.0
#: Of one server.
MOST_LISTENERS = 200
#: Watches that are kept for whoever goes from page to page.
MOST_WATCHES = 256
#: Runs under way that are looked at; where there are more, something changes all the time.
_WATCHED = 200
#: How far back a new run is looked for.
_RECENT = timedelta(minutes=5)
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store looked like: a mark for each topic."""

    marks: tuple[str, ...]

    @property
    def id(self) -> str:
        return ".".join(self.marks)

    def changed_since(self, other: Seen) -> tuple[str, ...]:
        pairs = zip(TOPICS, self.marks, other.marks, strict=True)
        return tuple(topic for topic, mine, theirs in pairs if mine != theirs)


def seen_from(text: str) -> Seen | None:
    """From `Last-Event-ID`; None if it is not one of ours."""
    marks = tuple(text.split("."))
    right = len(marks) == len(TOPICS) and all(len(mark) == 8 and mark.isalnum() for mark in marks)
    return Seen(marks) if right else None


class Watch:
    """All listeners who may see the same: one of them looks, and the others hear of it."""

    def __init__(self, door: WebContext, actor: Actor) -> None:
        self._door = door
        self._actor = actor
        self._latest: Seen | None = None
        self._looked_at = float("-inf")
        self._counter = -1
        #: The newest run that was seen; it stays when it is no longer recent.
        self._newest = ""
        #: Up to when new runs were looked for, by the store's clock.
        self._looked_until: datetime | None = None
        self._touched = False
        self._lock = asyncio.Lock()
        self.listeners = 0

    async def look(self) -> Seen:
        """Not older than two seconds; at once, but at most once a second, after what this process
        has noticed. StoreError."""
        async with self._lock:
            age = self._age()
            noticed = self._touched or self._door.store.changes() != self._counter
            if self._latest is None or age >= LOOK_EVERY or (age >= LOOK_AT_MOST and noticed):
                return await self._looked()
            return self._latest

    async def seen(self) -> Seen:
        """For a page that is about to be made: nothing of it is newer, and what somebody did here
        is in it. StoreError."""
        async with self._lock:
            if self._latest is None or self._touched or self._age() > SEEN_WITHIN:
                return await self._looked()
            return self._latest

    @property
    def latest(self) -> str:
        """The id of what was seen last, whenever that was."""
        return "" if self._latest is None else self._latest.id

    def touch(self) -> None:
        """Somebody has done something: what was seen before that is old."""
        self._touched = True

    def _age(self) -> float:
        return self._door.clock.monotonic() - self._looked_at

    async def _looked(self) -> Seen:
        counter, self._touched = self._door.store.changes(), False
        self._latest = Seen(await self._marks())
        self._looked_at, self._counter = self._door.clock.monotonic(), counter
        return self._latest

    async def _marks(self) -> tuple[str, ...]:
        """From indexes, whoever asks: nothing here is looked for among all runs or schedules."""
        store, owner = self._door.store, _owner_of(self._actor)
        now = await store.now()
        # Nobody may have looked for a while.
        since = min(now, self._looked_until or now) - _RECENT
        recent = RunQuery(owner=owner, created_since=since, limit=1)
        for run in (await store.list_runs(recent)).items:
            self._newest = run.id
        self._looked_until = now
        active = await store.list_runs(
            RunQuery(owner=owner, statuses=(RunStatus.QUEUED, RunStatus.RUNNING), limit=_WATCHED)
        )
        runs = [
            self._newest,
            *((run.id, run.status, run.attempt, run.cancel_requested) for run in active.items),
        ]
        whose = None if owner is None else str(owner)
        # Who changes a schedule leaves a note; what fires leaves a run.
        schedules = [
            self._newest,
            *(each.number for each in await store.list_audit(AuditQuery(owner=whose, limit=1))),
            await store.count_schedules(ScheduleQuery(owner=owner, enabled=True)),
        ]
        inbox = InboxQuery(owner=owner, archived=None, limit=1)
        messages = [
            *(item.id for item in (await store.list_inbox(inbox)).items),
            await store.count_unread(inbox),
        ]
        nodes = [(node.id, node.version, node.state(now)) for node in await store.nodes()]
        return tuple(_mark(each) for each in (runs, schedules, messages, nodes))


class Live:
    """All streams of this server."""

    def __init__(self, door: WebContext) -> None:
        self._door = door
        #: The one used last is the last of them.
        self._watches: dict[Owner | None, Watch] = {}
        self.count = 0

    async def seen_by(self, actor: Actor) -> str:
        """The id from which the stream of a page goes on that is about to be made; empty if the
        store does not answer, as the page itself will say."""
        try:
            return (await self._watch(actor).seen()).id
        except StoreError:
            return ""

    def last_seen_by(self, actor: Actor) -> str:
        """The same without looking, for a form that comes back: empty if nobody has looked yet."""
        watch = self._watches.get(_owner_of(actor))
        return watch.latest if watch is not None else ""

    def touch(self) -> None:
        """After an action, which the next page shows already."""
        for watch in self._watches.values():
            watch.touch()

    def _watch(self, actor: Actor) -> Watch:
        owner = _owner_of(actor)
        watch = self._watches.pop(owner, None) or Watch(self._door, actor)
        self._watches[owner] = watch
        if len(self._watches) > MOST_WATCHES:
            idle = next((name for name, each in self._watches.items() if not each.listeners), owner)
            if idle != owner:
                del self._watches[idle]
        return watch

    def check_room(self) -> None:
        if self.count >= MOST_LISTENERS:
            raise RateLimited(
                _("as many pages listen as this server takes"),
                retry_after=timedelta(seconds=HEARTBEAT),
            )

    async def signals(
        self, actor: Actor, known: Seen | None, welcome: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        watch = self._watch(actor)
        watch.listeners += 1
        self.count += 1
        try:
            yield "retry: 1000\n\n"
            async for text in self._heard(watch, known, welcome):
                yield text
        finally:
            self.count -= 1
            watch.listeners -= 1

    async def _heard(
        self, watch: Watch, known: Seen | None, welcome: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        clock = self._door.clock
        beaten = float("-inf")
        while self._door.not_ready() != "draining":
            try:
                seen = await watch.look()
            except StoreError:
                # Whoever listens sees by the silence that nobody knows.
                await asyncio.sleep(LOOK_EVERY)
                continue
            for topic in seen.changed_since(known) if known is not None else ():
                yield f"id: {seen.id}\nevent: {topic}.changed\ndata: {{}}\n\n"
            if clock.monotonic() - beaten >= HEARTBEAT or known is None:
                if not await welcome():
                    return
                beaten = clock.monotonic()
                # An event and not a comment: the page shows by it that all is well.
                yield f"id: {seen.id}\nevent: beat\ndata: {{}}\n\n"
            known = seen
            await asyncio.sleep(LOOK_AT_MOST)


def events_route(reception: Reception, live: Live) -> Callable[[Request], Awaitable[Response]]:
    async def events(request: Request) -> Response:
        visit = await arrive(reception, request)
        live.check_room()
        given = request.headers.get("last-event-id") or request.query_params.get("after", "")
        stream = live.signals(
            visit.actor, seen_from(given), lambda: still_welcome(reception, request)
        )
        if request.scope["state"].get("head"):
            return Response(media_type="text/event-stream", headers=_HEADERS)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)

    return events


def _owner_of(actor: Actor) -> Owner | None:
    """None: whoever sees everything."""
    return None if actor.sees_everything else actor.owner


def _mark(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=4).hexdigest()
