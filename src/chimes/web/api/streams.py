"""Streams the log of a run as Server-Sent Events.

`id:` is the number of a log entry; a client resumes after it. Stores do not announce new lines, so
each stream polls; the interval grows with the number of streams.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import StreamingResponse

from chimes.clock import Clock
from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited, StoreError
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.ids import RunId
from chimes.web.api.translate import Json, log_out
from chimes.web.requests import WebContext, authenticate, rate_limit_key, set_language

STREAM = "text/event-stream"
#: Streams per server, and of one owner (of one key of the system).
MAX_STREAMS, MAX_STREAMS_PER_OWNER = 200, 50
#: Poll interval in seconds, and the addition for each open stream.
POLL_SECONDS, POLL_SECONDS_PER_STREAM = 0.25, 0.002
#: Poll interval after a store error.
POLL_SECONDS_ON_ERROR = 1.0
#: Keep-alive interval: proxies close idle connections, and writing detects closed ones.
KEEP_ALIVE_SECONDS = 10.0
_PAGE = 500
_MAX_NUMBER = 2**53
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """A response of Server-Sent Events."""

    media_type = STREAM


def event_stream(events: AsyncIterator[str]) -> EventStream:
    return EventStream(events, headers=_HEADERS)


class StreamCounter:
    """Counts the open streams of the server."""

    def __init__(self) -> None:
        self.count = 0
        self._by_owner = Counter[str]()

    def check_limit(self, actor: Actor) -> None:
        """Raises RateLimited if no further stream may be opened."""
        if self._by_owner[rate_limit_key(actor)] >= MAX_STREAMS_PER_OWNER:
            raise RateLimited(
                _(
                    "{owner} already has {most} open streams on this server, the maximum allowed",
                    owner=actor.owner,
                    most=MAX_STREAMS_PER_OWNER,
                ),
                retry_after=timedelta(seconds=KEEP_ALIVE_SECONDS),
            )
        if self.count >= MAX_STREAMS:
            raise RateLimited(
                _(
                    "this server already has {max_streams} open streams, its limit",
                    max_streams=MAX_STREAMS,
                ),
                retry_after=timedelta(seconds=KEEP_ALIVE_SECONDS),
            )

    @contextmanager
    def open(self, actor: Actor) -> Iterator[None]:
        """Counts a stream while it is open. Raises RateLimited, because several streams can pass
        `check_limit` at the same time."""
        self.check_limit(actor)
        owner = rate_limit_key(actor)
        self.count += 1
        self._by_owner[owner] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._by_owner[owner] -= 1
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    @property
    def pause(self) -> float:
        return POLL_SECONDS + POLL_SECONDS_PER_STREAM * self.count


def accepts_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return any(each.partition(";")[0].strip() == STREAM for each in accepted.split(","))


def last_event_id(request: Request, after: int) -> int:
    """Last-Event-ID, which a reconnecting browser sends, wins over the query."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MAX_NUMBER):
        raise InvalidInput(
            _("expected the number of a log entry, from `id:`"),
            field="Last-Event-ID",
            code="bad_number",
            source="header",
        )
    return int(text)


async def stream_log(
    request: Request, context: WebContext, actor: Actor, run_id: RunId, after: int, lang: str
) -> EventStream:
    """Streams the entries above `after` until the run has ended."""
    streams: StreamCounter = request.app.state.streams
    streams.check_limit(actor)
    await context.runs.get(actor, run_id)
    allowed = partial(still_allowed, request)
    tail = LogStream(context, actor, run_id, streams, allowed=allowed)
    events = empty_stream() if request.scope["state"].get("head") else tail.events(after)
    return set_language(event_stream(events), lang)


class LogStream:
    """One stream: polls the log of a run."""

    def __init__(
        self,
        context: WebContext,
        actor: Actor,
        run_id: RunId,
        streams: StreamCounter,
        *,
        allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self._runs = context.runs
        self._clock: Clock = context.clock
        self._not_ready = context.not_ready
        self._actor = actor
        self._run_id = run_id
        self._streams = streams
        self._allowed = allowed

    async def events(self, after: int) -> AsyncIterator[str]:
        try:
            with self._streams.open(self._actor):
                yield "retry: 1000\n\n"
                async for text in self._events(after):
                    yield text
        except RateLimited:
            # The response has started already: the client tries again later.
            yield "retry: 10000\n\n"

    async def _events(self, after: int) -> AsyncIterator[str]:
        last_keep_alive = self._clock.monotonic()
        while not self._draining:
            pause = self._streams.pause
            try:
                # Read before the log, so that the last lines are not missed.
                run = await self._runs.get(self._actor, self._run_id)
                async for number, text in self._lines(after):
                    after = number
                    yield text
                if run.status.terminal:
                    yield _event({"run_id": run.id, "status": run.status.value}, kind="end")
                    return
            except NotFound:
                return
            except StoreError:
                pause = POLL_SECONDS_ON_ERROR
            if self._clock.monotonic() - last_keep_alive >= KEEP_ALIVE_SECONDS:
                if not await self._allowed():
                    return
                yield ": still here\n\n"
                last_keep_alive = self._clock.monotonic()
            await asyncio.sleep(pause)

    async def _lines(self, after: int) -> AsyncIterator[tuple[int, str]]:
        while True:
            page = await self._runs.list_logs(self._actor, self._run_id, after=after, limit=_PAGE)
            for entry in page:
                after = entry.number
                yield after, _event(log_out(entry), number=after)
            if len(page) < _PAGE:
                return

    @property
    def _draining(self) -> bool:
        """The client must reconnect to another node."""
        return self._not_ready() == "draining"


async def still_allowed(request: Request) -> bool:
    """A key may be revoked while its stream is open."""
    try:
        await authenticate(request, counted=False)
    except NotAuthenticated:
        return False
    except (RateLimited, StoreError):
        return True
    return True


async def empty_stream() -> AsyncIterator[str]:
    return
    yield


def _event(data: Json, *, kind: str = "", number: int | None = None) -> str:
    name = f"event: {kind}\n" if kind else ""
    position = "" if number is None else f"id: {number}\n"
    return f"{position}{name}data: {json.dumps(data, ensure_ascii=False)}\n\n"
