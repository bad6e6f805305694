"""Idempotency-Key: the same request twice is done once and answered twice.

A first request that failed half way, or whose process died, leaves its key without an answer. The
next request under the key does the work in its place, at once or after `TAKE_OVER`: what it makes
gets an id that follows from the first request, so that what was made already is found instead of
made again (ADR 17).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import ChimesError, InvalidInput, NotAllowed, RateLimited, StoreError
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.ids import RunId
from chimes.store.port import Remembered
from chimes.triggers import format_moment, parse_moment
from chimes.web import requests as refusal
from chimes.web.context import WebContext
from chimes.web.problems import answer_to

KEEP = timedelta(hours=24)
#: Longer than any request may take.
TAKE_OVER = timedelta(seconds=60)
#: Doing these again would do more than the first time; their key stays taken.
_ONCE_ONLY = ("/skip", "/move", "/reschedule", "/keys")
#: The body on record of a request that failed and may be taken over at once.
_GIVEN_UP = "given up"
_MADE_IDS = uuid.UUID("a2a3e5f6-6d0c-5b7e-8a51-2f4b9d6f0c11")
#: As a store says that the answer to its COMMIT was lost.
COMMIT_UNKNOWN = "commit_unknown"
_LONGEST = 200
_KEPT_HEADERS = frozenset({"content-type", "content-language", "location", "etag", "link", "vary"})
_log = logging.getLogger("chimes.http")
#: The event loop itself only holds tasks weakly.
_UNDER_WAY: set[asyncio.Task[Response]] = set()
Handler = Callable[[Request], Awaitable[Response]]


class OneTimeAnswer(JSONResponse):
    """Has something that is shown once and must not be kept; `kept` is what a repeat gets."""

    def __init__(self, content: object, *, kept: object, status_code: int = 200) -> None:
        super().__init__(content, status_code=status_code)
        self.kept = JSONResponse(kept).body


def idempotency_key(request: Request) -> str | None:
    """Only a POST can be a repeat; the other methods are repeatable as they are."""
    keys = request.headers.getlist("idempotency-key")
    if request.method != "POST" or not keys:
        return None
    key = keys[0].strip()
    if len(keys) > 1 or not 0 < len(key) <= _LONGEST or not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            _("one key of 1 to {longest} printable ASCII characters", longest=_LONGEST),
            field="Idempotency-Key",
            code="bad_key",
            source="header",
        )
    return key


async def answered_once(
    request: Request, actor: Actor, key: str, body: object, handle: Handler
) -> Response:
    context: WebContext = request.app.state.context
    scope = _scope(f"{actor.owner} {request.method} {request.url.path}")
    content = json.dumps(body, sort_keys=True).encode()
    now = await context.store.now()
    mark = _Mark(sent=hashlib.sha256(content).hexdigest(), began=now)
    known = await context.store.remember_request(scope, key, str(mark), keep=KEEP)
    if known is not None:
        first_mark = _Mark.read(known.fingerprint)
        if first_mark.sent != mark.sent:
            raise _key_reused()
        if known.status:
            return _replayed(known)
        given_up = known.body == _GIVEN_UP or first_mark.abandoned(now)
        if not given_up or request.url.path.endswith(_ONCE_ONLY):
            raise refusal.under_way()
        mark = first_mark
    request.state.made_id = str(uuid.uuid5(_MADE_IDS, f"{scope}\n{key}\n{mark}"))
    first = _First(context, scope, key, str(mark))
    # Not ended by a time limit half way: whether it was done must not stay unknown.
    task = asyncio.create_task(first.answer(request, handle))
    _UNDER_WAY.add(task)
    task.add_done_callback(_ended)
    return await asyncio.shield(task)


def _scope(text: str) -> str:
    """Short enough for every store, however long the ids in it are."""
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()


def _ended(task: asyncio.Task[Response]) -> None:
    _UNDER_WAY.discard(task)
    if not task.cancelled():
        task.exception()  # whoever waited has it; if nobody did, it is not worth a warning


class _First:
    def __init__(self, context: WebContext, scope: str, key: str, fingerprint: str) -> None:
        self._store = context.store
        self._scope = scope
        self._key = key
        self._fingerprint = fingerprint

    async def answer(self, request: Request, handle: Handler) -> Response:
        try:
            answer = await handle(request)
        except (NotAllowed, RateLimited):
            await self._noted(self._store.forget_request(self._scope, self._key))
            raise
        except StoreError as error:
            await self._give_up(request, certain=error.details.get("code") != COMMIT_UNKNOWN)
            raise
        except (ChimesError, RequestValidationError) as error:
            answer = await answer_to(request, error)
        except BaseException:
            await self._give_up(request, certain=False)
            raise
        if answer.status_code >= 500:
            await self._give_up(request, certain=False)
            return answer
        content = answer.kept if isinstance(answer, OneTimeAnswer) else answer.body
        await self._store.answer_request(
            self._scope,
            self._key,
            Remembered(
                fingerprint=self._fingerprint,
                status=answer.status_code,
                body=bytes(content).decode(),
                headers=tuple(
                    (name, value)
                    for name, value in answer.headers.items()
                    if name.lower() in _KEPT_HEADERS
                ),
            ),
        )
        return answer

    async def _give_up(self, request: Request, *, certain: bool) -> None:
        """`certain`: nothing was done. Otherwise what was done must be found again, so the record
        stays; where doing it again would do more, it stays taken."""
        if not request.url.path.endswith(_ONCE_ONLY):
            left = Remembered(fingerprint=self._fingerprint, body=_GIVEN_UP)
            await self._noted(self._store.answer_request(self._scope, self._key, left))
        elif certain:
            await self._noted(self._store.forget_request(self._scope, self._key))

    async def _noted(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except StoreError:
            _log.warning("a failed request stays on record for a while")


def _replayed(known: Remembered) -> Response:
    answer = Response(known.body, status_code=known.status)
    for name, value in known.headers:
        answer.headers[name] = value
    answer.headers["Idempotency-Replayed"] = "true"
    return answer


def _key_reused() -> InvalidInput:
    return InvalidInput(
        _("this key was used with another body"),
        field="Idempotency-Key",
        code="key_reused",
        source="header",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mark:
    """What the store keeps of a request: a hash of its body, and when it began."""

    sent: str
    began: datetime | None

    def __str__(self) -> str:
        return f"{self.sent} {format_moment(self.began)}" if self.began else self.sent

    @classmethod
    def read(cls, text: str) -> _Mark:
        sent, _unused, began = text.partition(" ")
        return cls(sent=sent, began=parse_moment(began) if began else None)

    def abandoned(self, now: datetime) -> bool:
        return self.began is not None and now - self.began > TAKE_OVER


def made_id(request: Request) -> str | None:
    """The id for what a request makes, if it has a key: the same each time it is sent."""
    made: str | None = getattr(request.state, "made_id", None)
    return made


def new_run_id(request: Request) -> RunId | None:
    made = made_id(request)
    return None if made is None else RunId(made)
