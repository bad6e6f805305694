"""The HTTP server: all doors behind the same walls."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from chimes.doors.api import actions, runs, schedules, system, times
from chimes.doors.auth import Gatekeeper
from chimes.doors.context import Doorway
from chimes.doors.door import DoorRouter
from chimes.doors.envelope import Envelope
from chimes.doors.limits import RequestLimits
from chimes.doors.operations import operations
from chimes.doors.problems import answer_to
from chimes.errors import ChimesError

NATIVE_ROUTERS = (schedules.router, actions.router, runs.router, times.router, system.router)


def build_app(doorway: Doorway, *, compat: Sequence[APIRouter] = ()) -> FastAPI:
    """`compat` routers are mounted at the root; a DoorRouter also words its own errors."""
    app = FastAPI(
        title="Chimes",
        version=doorway.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.doorway = doorway
    app.state.gatekeeper = Gatekeeper(doorway)
    app.state.renderers = [
        (prefix, door.render)
        for door in compat
        if isinstance(door, DoorRouter)
        for prefix in door.prefixes
    ]
    for error in (ChimesError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _answer)
    for router in (operations(doorway), *NATIVE_ROUTERS, *compat):
        app.include_router(router)
    # The last one added is the outermost.
    if doorway.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(doorway.settings.cors_origins),
            allow_methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["ETag", "Link", "Location", "X-Request-Id", "Idempotency-Replayed"],
        )
    app.add_middleware(RequestLimits, doorway=doorway)
    app.add_middleware(Envelope, clock=doorway.clock)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    return answer_to(request, error)
