"""Routes under `/telegram`: webhook, manual poll, metrics and audit of the bot."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotAuthenticated
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.listing import AuditQuery
from chimes.notifications.telegram_api import BotApiError
from chimes.store.port import Store
from chimes.telegram.bot import NO_WAIT, Bot, LongPolling, UpdateInProgress
from chimes.telegram.conversation import INTERFACE
from chimes.web.compat.base import CompatRouter
from chimes.web.problems import native_response
from chimes.web.requests import WebContext, authenticate

ACCEPTS = ("Bearer", "ApiKey", "X-API-Key", "?api_key")
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
_MAX_ROWS = 1000


def telegram_router(
    context: WebContext, bot: Bot, polling: LongPolling, *, secret: str, webhook: bool
) -> CompatRouter:
    router = CompatRouter(interface=INTERFACE, prefixes=["/telegram"], render=native_response)

    async def receive_update(request: Request) -> Response:
        """Receives an update. Checks the secret that Telegram sends before reading the body."""
        given = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode(), secret.encode()):
            raise NotAuthenticated(presented=bool(given))
        try:
            update = json.loads(await request.body())
        except ValueError:
            raise InvalidInput(_("the body is not JSON"), code="bad_json") from None
        try:
            handled = await bot.process(update)
        except UpdateInProgress:
            raise Conflict(_("this update is being processed"), code="under_way") from None
        return JSONResponse({"ok": True, "handled": handled})

    async def poll(request: Request) -> Response:
        """Poll Telegram once."""
        await _check_operator(request)
        limit = _number(request, "limit", 20, 100)
        if webhook:
            raise Conflict(_("this bot receives updates by webhook"), code="webhook")
        try:
            handled = await polling.poll_once(wait=NO_WAIT, limit=limit)
        except UpdateInProgress:
            raise Conflict(_("an update is being processed"), code="under_way") from None
        except BotApiError as error:
            raise Conflict(
                _("Telegram: {description}", description=error.description), code="telegram_error"
            ) from None
        return JSONResponse({"processed": handled})

    async def metrics(request: Request) -> Response:
        await _check_operator(request)
        return JSONResponse(dict(sorted(bot.counts.items())))

    async def audit(request: Request) -> Response:
        await _check_operator(request)
        chat = request.query_params.get("chat_id")
        run = request.query_params.get("run_id")
        rows = await _rows(context.store, chat, run, _number(request, "limit", 100, _MAX_ROWS))
        return JSONResponse({"items": rows})

    # The names are in the operation ids of the OpenAPI document, so they must not change.
    for path, handler, method, name in (
        ("/telegram/webhook", receive_update, "POST", "take_update"),
        ("/telegram/poll", poll, "POST", "poll"),
        ("/telegram/metrics", metrics, "GET", "metrics"),
        ("/telegram/audit", audit, "GET", "audit"),
    ):
        router.add_api_route(path, handler, methods=[method], response_model=None, name=name)
    return router


async def _check_operator(request: Request) -> Actor:
    actor = await authenticate(request, interface=INTERFACE, accepts=ACCEPTS)
    if not actor.sees_everything:
        raise NotAllowed()
    return actor


async def _rows(
    store: Store, chat: str | None, run: str | None, limit: int
) -> list[dict[str, object]]:
    """Audit entries of the bot, newest first."""
    rows: list[dict[str, object]] = []
    query = AuditQuery(interface=INTERFACE, limit=_MAX_ROWS)
    while len(rows) < limit:
        found = await store.list_audit(query)
        rows += [_row(each) for each in found if _matches(each, chat, run)]
        if len(found) < query.limit:
            break
        query = replace(query, before=found[-1].number)
    return rows[:limit]


def _matches(each: AuditEntry, chat: str | None, run: str | None) -> bool:
    if chat is not None and each.address != f"chat:{chat}" and each.object_id != chat:
        return False
    return run is None or run in (each.object_id, each.changes.get("run_id"))


def _row(each: AuditEntry) -> dict[str, object]:
    details: Mapping[str, object] = each.changes
    return {
        "ts": each.at.isoformat(),
        "event": each.verb,
        "chat_id": each.object_id
        if each.object_kind == "chat"
        else each.address.removeprefix("chat:"),
        "update_id": details.get("update_id"),
        "run_id": details.get("run_id"),
        "command": details.get("command", each.verb),
        "arg_preview": details.get("arg_preview", each.object_id),
        "ok": bool(details.get("ok", each.allowed)),
    }


def _number(request: Request, name: str, default: int, maximum: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isdecimal() or not 1 <= int(given[:9]) <= maximum:
        raise InvalidInput(
            _("{name} is a whole number from 1 to {maximum}", name=name, maximum=maximum),
            field=name,
            code="out_of_range",
            source="query",
        )
    return int(given)
