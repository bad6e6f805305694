"""Route class of the native API: authentication, strict body, idempotency, then the handler.

Authentication comes first, so that validation tells unauthenticated callers nothing.

A repeated request with the same Idempotency-Key has no further effect and gets the first response
again. A request without effect (an error, a dry run) leaves its key free. If the first request
failed half way, or its process died, its key has no response. The next request with the key takes
over, at once or after `TAKE_OVER`. The id of what it creates is derived from the first request, so
that an object that already exists is found, not created again (ADR 17).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import ChimesError, Conflict, InvalidInput, NotFound, StoreError
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.ids import RunId
from chimes.services.access import ByteBudget
from chimes.services.schedules.rules import load_calendars
from chimes.store.port import IdempotencyRecord
from chimes.triggers import format_moment, parse_moment
from chimes.web.requests import (
    MAX_KEYS,
    RequestRejected,
    WebContext,
    authenticate,
    check_query,
    rate_limit_key,
    read_json,
    remember_viewer,
)


class NativeRequest(Request):
    """Parses the body with `strict_json`."""

    max_keys = MAX_KEYS

    async def json(self) -> object:
        if not hasattr(self, "_strict"):
            self._strict = await read_json(self, max_keys=self.max_keys)
            await load_calendars(await self.body())
        return self._strict


class NativeRoute(APIRoute):
    #: Whether the answer to a request with an Idempotency-Key is kept.
    keeps_answers = True
    #: The keys of all objects in a body.
    max_keys = MAX_KEYS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(plain: Request) -> Response:
            request = NativeRequest(plain.scope, plain.receive)
            request.max_keys = self.max_keys
            actor = await authenticate(request)
            remember_viewer(request, actor)
            _check_characters(request)
            body = await request.json() if self.body_field is not None else None
            key = idempotency_key(request)
            if key is None or not self.keeps_answers:
                answer = await handle(request)
            else:
                answer = await respond_once(request, actor, key, body, handle)
            for name, value in self._deprecation():
                answer.headers.append(name, value)
            return answer

        return checked

    def _deprecation(self) -> tuple[tuple[str, str], ...]:
        """The headers of a deprecated operation (RFC 9745, RFC 8594)."""
        if not self.deprecated:
            return ()
        dates = (self.openapi_extra or {})[DEPRECATION]
        since, sunset = (datetime.fromisoformat(dates[name]) for name in ("since", "sunset"))
        return (
            ("Deprecation", f"@{int(since.timestamp())}"),
            ("Sunset", format_datetime(sunset, usegmt=True)),
            ("Link", f'<{dates["successor"]}>; rel="successor-version"'),
        )


#: Where the document has the dates of a deprecated operation.
DEPRECATION = "x-deprecation"


def deprecated(*, since: str, sunset: str, successor: str) -> dict[str, Any]:
    """Options of a route that will be removed, which `docs/api-changes.md` describes. Dates are in
    ISO 8601; `successor` is the path that replaces it."""
    dates = {
        name: datetime.fromisoformat(day).replace(tzinfo=UTC).isoformat()
        for name, day in (("since", since), ("sunset", sunset))
    }
    return {"deprecated": True, "openapi_extra": {DEPRECATION: dates | {"successor": successor}}}


class PureRoute(NativeRoute):
    """A route that only computes: a repeated request may compute again."""

    keeps_answers = False


class SetRoute(NativeRoute):
    """A route that takes many objects at once."""

    max_keys = 25 * MAX_KEYS


class PureSetRoute(SetRoute):
    """A route that only computes, and takes many objects at once."""

    keeps_answers = False


def _check_characters(request: Request) -> None:
    """A NUL in the path is 404: no id has one, and some stores fail on it."""
    if "\0" in request.url.path or any("\0" in str(v) for v in request.path_params.values()):
        raise NotFound()
    check_query(request)


# Coroutines, because FastAPI calls plain functions in a thread.
async def _context(request: Request) -> WebContext:
    context: WebContext = request.app.state.context
    return context


async def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


Context = Annotated[WebContext, Depends(_context)]
Caller = Annotated[Actor, Depends(_actor)]


# --- Idempotency-Key ------------------------------------------------------------------------------
KEEP = timedelta(hours=24)
#: Longer than the time limit of a request.
TAKE_OVER = timedelta(seconds=60)
#: Paths that are not repeatable: their key stays in use.
_NOT_REPEATABLE = ("/skip", "/move", "/reschedule", "/keys")
#: Stored as the body of a request that failed and may be taken over at once.
_ABANDONED = "given up"
#: Stored as the body of a request whose answer was too large, or whose owner has kept too much.
_NOT_KEPT = "not_kept"
#: Bytes of the largest answer that is kept, and of all answers of an owner (a key of the system)
#: that are kept at the same time.
MAX_KEPT_ANSWER, MAX_KEPT_BYTES = 128 * 1024, 64 * 1024 * 1024
_ID_NAMESPACE = uuid.UUID("a2a3e5f6-6d0c-5b7e-8a51-2f4b9d6f0c11")
#: Error code of a store that does not know whether its COMMIT succeeded.
COMMIT_UNKNOWN = "commit_unknown"
_MAX_KEY_LENGTH = 200
_STORED_HEADERS = frozenset(
    {"content-type", "content-language", "location", "etag", "link", "vary"}
)
_log = logging.getLogger("chimes.http")
#: Strong references: the event loop only has weak ones.
_TASKS: set[asyncio.Task[Response]] = set()
Handler = Callable[[Request], Awaitable[Response]]


class OneTimeResponse(JSONResponse):
    """A response with a secret that is shown once; `stored` is what a repeated request gets."""

    def __init__(self, content: object, *, stored: object, status_code: int = 200) -> None:
        super().__init__(content, status_code=status_code)
        self.stored = JSONResponse(stored).body


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key of a POST; other methods are idempotent."""
    keys = request.headers.getlist("idempotency-key")
    if request.method != "POST" or not keys:
        return None
    key = keys[0].strip()
    if (
        len(keys) > 1
        or not 0 < len(key) <= _MAX_KEY_LENGTH
        or not (key.isascii() and key.isprintable())
    ):
        raise InvalidInput(
            _(
                "expected one key of 1 to {max_length} printable ASCII characters",
                max_length=_MAX_KEY_LENGTH,
            ),
            field="Idempotency-Key",
            code="bad_key",
            source="header",
        )
    return key


async def respond_once(
    request: Request, actor: Actor, key: str, body: object, handle: Handler
) -> Response:
    context: WebContext = request.app.state.context
    scope = _scope(f"{actor.owner} {request.method} {request.url.path}")
    content = json.dumps(body, sort_keys=True).encode()
    if request.url.query:
        content += b"?" + json.dumps(sorted(request.query_params.multi_items())).encode()
    now = await context.store.now()
    mark = _Fingerprint(sent=hashlib.sha256(content).hexdigest(), began=now)
    known = await context.store.remember_request(scope, key, str(mark), keep=KEEP)
    if known is not None:
        first_mark = _Fingerprint.read(known.fingerprint)
        if first_mark.sent != mark.sent:
            raise _key_reused()
        if known.status:
            return _replay(known)
        abandoned_before = known.body == _ABANDONED or first_mark.abandoned(now)
        if not abandoned_before or request.url.path.endswith(_NOT_REPEATABLE):
            raise _request_in_progress()
        mark = first_mark
    request.state.idempotent_id = str(uuid.uuid5(_ID_NAMESPACE, f"{scope}\n{key}\n{mark}"))
    budget: ByteBudget = request.app.state.kept_answers
    kept_bytes = partial(budget.take, rate_limit_key(actor))
    first = _FirstRequest(context, scope, key, str(mark), kept_bytes)
    # Shielded from the request time limit: its result must be recorded.
    task = asyncio.create_task(first.answer(request, handle))
    _TASKS.add(task)
    task.add_done_callback(_discard_task)
    return await asyncio.shield(task)


def _request_in_progress() -> RequestRejected:
    return RequestRejected(
        409,
        "request_under_way",
        _("the first request with this Idempotency-Key has not been answered yet"),
        headers={"Retry-After": "1"},
    )


def _scope(text: str) -> str:
    """Hashes long scopes to fit the column of every store."""
    return text if len(text) <= _MAX_KEY_LENGTH else hashlib.sha256(text.encode()).hexdigest()


def _discard_task(task: asyncio.Task[Response]) -> None:
    _TASKS.discard(task)
    if not task.cancelled():
        task.exception()  # Marks the exception as retrieved if the client has gone.


class _FirstRequest:
    def __init__(
        self,
        context: WebContext,
        scope: str,
        key: str,
        fingerprint: str,
        take_bytes: Callable[[int], Awaitable[bool]],
    ) -> None:
        self._store = context.store
        self._scope = scope
        self._key = key
        self._fingerprint = fingerprint
        self._take_bytes = take_bytes

    async def answer(self, request: Request, handle: Handler) -> Response:
        try:
            answer = await handle(request)
        except StoreError as error:
            await self._release(request, certain=error.details.get("code") != COMMIT_UNKNOWN)
            raise
        except (ChimesError, RequestValidationError):
            await self._forget()
            raise
        except BaseException:
            await self._release(request, certain=False)
            raise
        if answer.status_code >= 500:
            await self._release(request, certain=False)
            return answer
        if answer.status_code >= 400 or getattr(request.state, "without_effect", False):
            await self._forget()
            return answer
        content = answer.stored if isinstance(answer, OneTimeResponse) else answer.body
        kept = len(content) <= MAX_KEPT_ANSWER and await self._take_bytes(len(content))
        await self._store.answer_request(
            self._scope,
            self._key,
            IdempotencyRecord(
                fingerprint=self._fingerprint,
                status=answer.status_code,
                body=bytes(content).decode() if kept else _NOT_KEPT,
                headers=tuple(
                    (name, value)
                    for name, value in answer.headers.items()
                    if name.lower() in _STORED_HEADERS
                ),
            ),
        )
        return answer

    async def _forget(self) -> None:
        """Nothing has happened: a repetition is executed."""
        await self._write(self._store.forget_request(self._scope, self._key))

    async def _release(self, request: Request, *, certain: bool) -> None:
        """Releases the key for a takeover. `certain`: the request had no effect, so that the key of
        a path that is not repeatable becomes free, too."""
        if not request.url.path.endswith(_NOT_REPEATABLE):
            released = IdempotencyRecord(fingerprint=self._fingerprint, body=_ABANDONED)
            await self._write(self._store.answer_request(self._scope, self._key, released))
        elif certain:
            await self._forget()

    async def _write(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except StoreError:
            _log.warning("the key of a failed request stays in use until it expires")


def _replay(known: IdempotencyRecord) -> Response:
    if known.body == _NOT_KEPT:
        raise _answer_not_kept(known)
    answer = Response(known.body, status_code=known.status)
    for name, value in known.headers:
        answer.headers[name] = value
    answer.headers["Idempotency-Replayed"] = "true"
    return answer


def _answer_not_kept(known: IdempotencyRecord) -> Conflict:
    location = dict(known.headers).get("location", "")
    return Conflict(
        _(
            "this request was executed before, with status {status} and location {location!r}; its "
            "response was too large to be kept",
            status=known.status,
            location=location,
        )
        if location
        else _(
            "this request was executed before, with status {status}; its response was too large to "
            "be kept",
            status=known.status,
        ),
        code="answer_not_kept",
    )


def mark_without_effect(request: Request) -> None:
    """The answer to this request is not kept for its Idempotency-Key, as it is a dry run."""
    request.state.without_effect = True


def _key_reused() -> InvalidInput:
    return InvalidInput(
        _("this key was used with another body or query"),
        field="Idempotency-Key",
        code="key_reused",
        source="header",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fingerprint:
    """Stored fingerprint of a request: hash of the body and start time."""

    sent: str
    began: datetime | None

    def __str__(self) -> str:
        return f"{self.sent} {format_moment(self.began)}" if self.began else self.sent

    @classmethod
    def read(cls, text: str) -> _Fingerprint:
        sent, _unused, began = text.partition(" ")
        return cls(sent=sent, began=parse_moment(began) if began else None)

    def abandoned(self, now: datetime) -> bool:
        return self.began is not None and now - self.began > TAKE_OVER


def idempotent_id(request: Request) -> str | None:
    """The id of the object that a request with a key creates; the same for repeated requests."""
    made: str | None = getattr(request.state, "idempotent_id", None)
    return made


def new_run_id(request: Request) -> RunId | None:
    made = idempotent_id(request)
    return None if made is None else RunId(made)
