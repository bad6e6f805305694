"""What every answer has, errors included: a date, a request id, security headers, a line in the
log."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from email.utils import format_datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chimes.clock import Clock
from chimes.doors import refusal
from chimes.doors.problems import answer_to
from chimes.model.ids import uuid7

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
REQUEST_SECONDS = 30.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger("chimes.http")


class Envelope:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()
        state = scope.setdefault("state", {})
        state["request_id"] = self._request_id(Headers(scope=scope))
        method = scope["method"]
        if method == "HEAD":
            scope["method"] = "GET"
            # For those whose answer would not end by itself.
            state["head"] = True
        # Until the answer begins: a stream may then go on for as long as somebody listens.
        limit = asyncio.timeout(REQUEST_SECONDS)
        answer = _Answer(scope, send, self._clock, limit, without_body=method == "HEAD")
        try:
            async with limit:
                await self._app(scope, receive, answer.send)
        except Exception as error:
            answer.limit = None
            late = refusal.no_answer_in_time() if limit.expired() else error
            await self._failed(late, scope, receive, answer)
        finally:
            self._log(scope, method, answer.status, self._clock.monotonic() - began)

    async def _failed(
        self, error: Exception, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        request_id = scope["state"]["request_id"]
        _log.error("request failed", exc_info=error, extra={"request_id": request_id})
        if answer.status:
            raise error
        told = await answer_to(Request(scope), error)
        await told(scope, receive, answer.send)

    def _request_id(self, headers: Headers) -> str:
        given = headers.get("x-request-id", "")
        return given if _REQUEST_ID.fullmatch(given) else uuid7(self._clock.now())

    def _log(self, scope: Scope, method: str, status: int, seconds: float) -> None:
        state = scope["state"]
        actor = state.get("actor")
        fields: dict[str, object] = {
            "method": method,
            # Without the query: some doors take keys there (S02).
            "path": scope["path"][:500],
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "request_id": state["request_id"],
            "actor": actor.name if actor is not None else "",
        }
        trace = Headers(scope=scope).get("traceparent", "")
        if _TRACE_PARENT.fullmatch(trace):
            fields["traceparent"] = trace
        _log.info("request", extra=fields)


class _Answer:
    def __init__(
        self,
        scope: Scope,
        send: Send,
        clock: Clock,
        limit: asyncio.Timeout,
        *,
        without_body: bool,
    ) -> None:
        self.status = 0
        self._scope = scope
        self._send = send
        self._clock = clock
        #: Given up as soon as the answer begins.
        self.limit: asyncio.Timeout | None = limit
        self._without_body = without_body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.limit is not None and not self.limit.expired():
                self.limit.reschedule(None)
            headers = MutableHeaders(scope=message)
            headers["Date"] = format_datetime(self._clock.now(), usegmt=True)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            state = self._scope["state"]
            headers["X-Request-Id"] = state["request_id"]
            for name, value in state.get("answer_headers", {}).items():
                headers[name] = value
        elif message["type"] == "http.response.body" and self._without_body:
            message = {**message, "body": b""}
        await self._send(message)
