"""The log of a run as it is written: Server-Sent Events, to be taken up again at any entry.

`id:` is the number of an entry, which is what `after` takes. Stores tell nobody that a line has
come, so each follower asks again, the less often the more of them there are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
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
from chimes.web.auth import authenticate
from chimes.web.context import WebContext
from chimes.web.locale import in_language

STREAM = "text/event-stream"
#: Of one server.
MOST_FOLLOWERS = 200
#: Seconds between two questions of one follower, and how much longer for each further one.
PAUSE, PAUSE_EACH = 0.25, 0.002
#: After a store that could not answer.
PAUSE_WITHOUT_STORE = 1.0
#: Seconds between two signs of life: proxies close what is silent, and who has gone shows then.
HEARTBEAT = 10.0
_PAGE = 500
_LARGEST = 2**53
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Followers:
    """How many there are; one for the whole server."""

    def __init__(self) -> None:
        self.count = 0

    def check_room(self) -> None:
        if self.count >= MOST_FOLLOWERS:
            raise RateLimited(
                _(
                    "as many logs are followed as this server takes ({most_followers})",
                    most_followers=MOST_FOLLOWERS,
                ),
                retry_after=timedelta(seconds=HEARTBEAT),
            )

    @property
    def pause(self) -> float:
        return PAUSE + PAUSE_EACH * self.count


def wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return any(each.partition(";")[0].strip() == STREAM for each in accepted.split(","))


def resumed_after(request: Request, after: int) -> int:
    """What a browser sends when it comes back counts more than the address it has."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _LARGEST):
        raise InvalidInput(
            _("the number of an entry, as it stood in `id:`"),
            field="Last-Event-ID",
            code="bad_number",
            source="header",
        )
    return int(text)


async def followed(
    request: Request, context: WebContext, actor: Actor, run_id: RunId, after: int, lang: str
) -> StreamingResponse:
    """Everything above `after`, until the run has ended."""
    followers: Followers = request.app.state.followers
    followers.check_room()
    await context.runs.get(actor, run_id)
    allowed = partial(_still_allowed, request)
    tail = LogTail(context, actor, run_id, followers, allowed=allowed, lang=lang)
    events = _nothing() if request.scope["state"].get("head") else tail.events(after)
    return in_language(StreamingResponse(events, media_type=STREAM, headers=_HEADERS), lang)


class LogTail:
    """One follower."""

    def __init__(
        self,
        context: WebContext,
        actor: Actor,
        run_id: RunId,
        followers: Followers,
        *,
        allowed: Callable[[], Awaitable[bool]],
        lang: str,
    ) -> None:
        self._runs = context.runs
        self._clock: Clock = context.clock
        self._not_ready = context.not_ready
        self._actor = actor
        self._run_id = run_id
        self._followers = followers
        self._allowed = allowed
        self._lang = lang

    async def events(self, after: int) -> AsyncIterator[str]:
        self._followers.count += 1
        try:
            if self._followers.count > MOST_FOLLOWERS:
                # They came at the same moment.
                yield "retry: 10000\n\n"
                return
            yield "retry: 1000\n\n"
            beaten = self._clock.monotonic()
            while not self._draining:
                pause = self._followers.pause
                try:
                    # Asked before the log: what is written before its end is not missed.
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
                    pause = PAUSE_WITHOUT_STORE
                if self._clock.monotonic() - beaten >= HEARTBEAT:
                    if not await self._allowed():
                        return
                    yield ": still here\n\n"
                    beaten = self._clock.monotonic()
                await asyncio.sleep(pause)
        finally:
            self._followers.count -= 1

    async def _lines(self, after: int) -> AsyncIterator[tuple[int, str]]:
        while True:
            page = await self._runs.logs(self._actor, self._run_id, after=after, limit=_PAGE)
            for entry in page:
                after = entry.number
                yield after, _event(log_out(entry, self._lang), number=after)
            if len(page) < _PAGE:
                return

    @property
    def _draining(self) -> bool:
        """Somebody else has to be asked from here on."""
        return self._not_ready() == "draining"


async def _still_allowed(request: Request) -> bool:
    """A key may be revoked while somebody follows."""
    try:
        await authenticate(request)
    except NotAuthenticated:
        return False
    except (RateLimited, StoreError):
        return True
    return True


async def _nothing() -> AsyncIterator[str]:
    return
    yield


def _event(data: Json, *, kind: str = "", number: int | None = None) -> str:
    name = f"event: {kind}\n" if kind else ""
    position = "" if number is None else f"id: {number}\n"
    return f"{position}{name}data: {json.dumps(data, ensure_ascii=False)}\n\n"
