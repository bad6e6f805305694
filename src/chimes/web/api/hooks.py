"""Inbound webhooks. A request authenticates with the token in its address and, if the schedule says
so, with its signature, instead of a key."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import NotFound
from chimes.services.events import EventService
from chimes.services.webhooks import (
    HOOK_PATH,
    check_rate,
    check_signature,
    event_of,
    find_hook,
)
from chimes.triggers import Webhook
from chimes.web.api.responses import BODY_ERRORS, COMMON_ERRORS, NOT_FOUND, HookOut, returns
from chimes.web.requests import WebContext

router = APIRouter(prefix=HOOK_PATH, tags=["hooks"], responses=COMMON_ERRORS)


@router.post(
    "/{token}",
    status_code=202,
    responses=returns(HookOut, 202) | NOT_FOUND | BODY_ERRORS,
    openapi_extra={
        "security": [],
        # Generators of clients leave operations with `*/*` out.
        "requestBody": {
            "description": "Any text in UTF-8, of any content type.",
            "content": {"application/json": {"schema": {}}},
        },
    },
)
async def receive_event(request: Request, token: str) -> Response:
    """Start a run of the schedule whose webhook this is. A repeat of the same `webhook-id` or
    `X-GitHub-Delivery` returns the same run. `run_id` is null if the event becomes part of a later
    run (`debounce`, `throttle`, `batch`), or of none because the schedule is paused."""
    context: WebContext = request.app.state.context
    if "\0" in token:
        raise NotFound()
    schedule = await find_hook(context.store, token)
    trigger = schedule.trigger
    assert isinstance(trigger, Webhook)
    body = await request.body()
    now = await context.store.now()
    check_signature(trigger, request.headers, body, now)
    await check_rate(context.store, schedule, context.settings.hook_requests_per_minute)
    event = event_of(trigger, request.headers, body, now)
    run_id = await EventService(context.store).accept(schedule, event)
    return JSONResponse({"run_id": run_id}, status_code=202)
