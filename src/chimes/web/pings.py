"""Pings and badges of monitors: URLs that jobs on other machines and README pages call (ADR 75).

The unguessable token in the path is the only credential, so these paths need no key, and are exempt
from the checks of Host and Origin. Answers are plain text, because people read them in mails of
cron.
"""

from __future__ import annotations

import asyncio
import re
from xml.sax.saxutils import escape

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import NotFound, StoreUnavailable
from chimes.i18n import _
from chimes.model.monitor import (
    MAX_EXIT_CODE,
    MAX_LOG_LENGTH,
    MAX_RID_LENGTH,
    MonitorStatus,
    PingKind,
)
from chimes.services.access import RateLimiter
from chimes.web.middleware import BADGE, PING
from chimes.web.problems import Problem
from chimes.web.requests import RequestRejected, WebContext

#: Pings of one monitor and one node: on average, and at once.
PINGS_PER_SECOND, PING_BURST = 2.0, 60
#: Unknown tokens from one address.
MISSES_PER_SECOND, MISS_BURST = 1.0, 20
#: The store answers within this time, or the job retries.
STORE_SECONDS = 5.0
_RID = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_RID_LENGTH}}}")
_CODE = re.compile(r"[0-9]{1,3}")
_VERBS = {"": PingKind.SUCCESS, "start": PingKind.START, "fail": PingKind.FAIL, "log": PingKind.LOG}


def base_url(request: Request, settings: Settings) -> str:
    return (settings.public_url or str(request.base_url)).rstrip("/")


def ping_url(base: str, token: str) -> str:
    return f"{base}{PING}{token}"


def badge_url(base: str, token: str) -> str:
    return f"{base}{BADGE}{token}.svg"


def render_plain(request: Request, problem: Problem) -> Response:
    return PlainTextResponse(
        f"{problem.detail}\n", status_code=problem.status, headers=dict(problem.headers)
    )


def ping_router(context: WebContext) -> APIRouter:
    router = APIRouter()
    endpoint = PingEndpoint(context, context.clock)
    for path in ("/ping/{token}", "/ping/{token}/{verb}"):
        router.add_route(path, endpoint.ping, methods=["GET", "POST"], include_in_schema=False)
    router.add_route("/badge/{token}.svg", endpoint.badge, include_in_schema=False)
    return router


class PingEndpoint:
    def __init__(self, context: WebContext, clock: Clock) -> None:
        self._context = context
        self._pings = RateLimiter(clock, rate=PINGS_PER_SECOND, burst=PING_BURST)
        self._misses = RateLimiter(clock, rate=MISSES_PER_SECOND, burst=MISS_BURST)

    async def ping(self, request: Request) -> Response:
        token = request.path_params["token"]
        kind, exit_code = _verb(request.path_params.get("verb", ""))
        rid = request.query_params.get("rid", "")
        if rid and not _RID.fullmatch(rid):
            raise _bad_rid()
        self._pings.take(token[:64])
        address = request.client.host if request.client else ""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._context.monitors.ping(
                    token,
                    kind,
                    exit_code=exit_code,
                    rid=rid,
                    address=address,
                    body=await request.body(),
                )
        except TimeoutError:
            raise StoreUnavailable() from None
        except NotFound:
            raise self._unknown(address) from None
        return PlainTextResponse("OK\n", headers={"Ping-Body-Limit": str(MAX_LOG_LENGTH)})

    async def badge(self, request: Request) -> Response:
        try:
            name, status = await self._context.monitors.badge_status(request.path_params["token"])
        except NotFound:
            raise self._unknown(request.client.host if request.client else "") from None
        headers = {
            "Cache-Control": "no-cache, max-age=0",
            # Pages of other origins show it.
            "Cross-Origin-Resource-Policy": "cross-origin",
        }
        return Response(badge_svg(name, status), media_type="image/svg+xml", headers=headers)

    def _unknown(self, address: str) -> NotFound:
        """The same for every wrong token. Raises RateLimited for an address that guesses."""
        self._misses.take(address)
        return NotFound(_("not found"))


def _verb(text: str) -> tuple[PingKind, int | None]:
    if text in _VERBS:
        return _VERBS[text], None
    if not _CODE.fullmatch(text):
        raise NotFound(_("not found"))
    if int(text) > MAX_EXIT_CODE:
        raise RequestRejected(
            400, "bad_exit_code", _("an exit code is a number from 0 to {most}", most=MAX_EXIT_CODE)
        )
    return (PingKind.FAIL if int(text) else PingKind.SUCCESS), int(text)


def _bad_rid() -> RequestRejected:
    return RequestRejected(
        400,
        "bad_rid",
        _(
            "rid has up to {most} letters, digits and the characters . _ : -",
            most=MAX_RID_LENGTH,
        ),
    )


# --- badges ---------------------------------------------------------------------------------------
_COLOURS = {
    MonitorStatus.UP: "#2e7d32",
    MonitorStatus.LATE: "#8a5a00",
    MonitorStatus.DOWN: "#b3261e",
    MonitorStatus.NEW: "#5f6368",
    MonitorStatus.PAUSED: "#5f6368",
}
_MAX_LABEL = 40
#: Average width of a character of 11 px, and of a wide one.
_WIDTH, _WIDE = 6.6, 11.5


def badge_svg(name: str, status: MonitorStatus) -> str:
    """Name and status in two boxes, without anything that a viewer has to load."""
    label = name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 1]}…"
    left, right = _text_width(label) + 12, _text_width(status.value) + 12
    whole = left + right
    title = f"{label}: {status.value}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}"><title>{escape(title)}</title>'
        f'<clipPath id="r"><rect width="{whole}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[status]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11"><text x="{left / 2:g}" y="14" textLength="{left - 12}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - 12}" '
        f'lengthAdjust="spacingAndGlyphs">{status.value}</text></g></svg>'
    )


def _text_width(text: str) -> int:
    return max(8, round(sum(_WIDE if ord(char) > 0x2E80 else _WIDTH for char in text)))
