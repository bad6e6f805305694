"""System, channels and secrets: what is set, whether it can be reached, what did not arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from chimes.delivery.words import CHANNELS
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.reaching import reach_source, reach_url
from chimes.doors.dashboard.refusing import REFUSALS, Refused
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.views_runs import visible
from chimes.doors.dashboard.views_system_channels import channel_rows, new_signing_key
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.model.delivery import DeliveryState
from chimes.model.ids import DeliveryId
from chimes.model.listing import DeliveryQuery
from chimes.model.recipient import Channel, Recipient
from chimes.service.nodes import may_control
from chimes.wording import in_language, say

if TYPE_CHECKING:
    # The bot is loaded where one is configured.
    from chimes.doors.telegram.bot import Bot

pages = Pages()
HERE = "/ui/system/channels"
_SHOWN = 20


@pages.get("/system/channels")
async def channels(visit: Visit) -> Response:
    operators_only(visit)
    return await page(visit)


@pages.post("/system/channels/check/{id}")
async def check(visit: Visit) -> Response:
    """A look from this node at what is configured; nothing is sent."""
    _controllers_only(visit)
    wanted = visit.path["id"]
    row = next((each for each in channel_rows(visit.door.settings) if each.id == wanted), None)
    if row is None or not row.url:
        raise NotFound(say("There is nothing to check under {name!r}", name=wanted))
    name = in_language(row.name, visit.look.language)
    found = await reach_url(name, row.url, visit.door.clock)
    return visit.done(found.text, to=HERE, kind="done" if found.ok else "error")


@pages.post("/system/sources/{id}/check")
async def check_source(visit: Visit) -> Response:
    _controllers_only(visit)
    sources = visit.door.sources.now
    source = sources.by_id.get(visit.path["id"])
    if source is None:
        raise NotFound(say("There is no source {id!r}", id=visit.path["id"]))
    found = await reach_source(source, sources, visit.door.clock)
    return visit.done(found.text, to=HERE, kind="done" if found.ok else "error")


@pages.post("/system/channels/signing-key")
async def signing_key(visit: Visit) -> Response:
    """Made and shown, not kept: the page that answers is the only one that has it."""
    _controllers_only(visit)
    return await page(visit, made=new_signing_key())


@pages.post("/system/channels/test")
async def send_test(visit: Visit) -> Response:
    """A real message in the name of the visitor, who waits for what becomes of it."""
    operators_only(visit)
    given = visit.form.text("channel")
    if given not in set(Channel):
        raise InvalidInput(say("choose a channel"), field="channel")
    secret = visit.form.raw("signing_secret").strip()
    recipient = Recipient(
        channel=Channel(given),
        to=visit.form.text("to"),
        language=visit.look.language,
        signing_secrets=(secret,) if secret else (),
    )
    try:
        outcome = await visit.door.messages.send_test(visit.actor, recipient)
    except REFUSALS as error:
        return await page(visit, error=await visit.refused(error), failed=given)
    return visit.done(outcome.words, to=HERE, kind=outcome.kind)


@pages.post("/system/deliveries/{id}/retry")
async def retry(visit: Visit) -> Response:
    await visit.door.messages.retry(visit.actor, DeliveryId(visit.path["id"]))
    return visit.done(say("The message is sent again."), to=HERE)


async def page(
    visit: Visit,
    *,
    made: str = "",
    error: Refused | None = None,
    failed: str = "",
) -> Response:
    """`failed`: the channel of the test that `error` is about."""
    bot: Bot | None = getattr(visit.request.app.state, "telegram", None)
    dead = await visit.door.messages.deliveries(
        visit.actor, DeliveryQuery(states=(DeliveryState.DEAD,), limit=_SHOWN)
    )
    return visit.page(
        "system/channels.html",
        status=200 if error is None else error.status,
        rows=channel_rows(visit.door.settings),
        bot=bot is not None,
        sources=tuple(visit.door.sources.now.by_id.values()),
        channels=CHANNELS,
        visible=visible,
        dead=dead.items,
        more_dead=dead.next is not None,
        may_control=may_control(visit.actor),
        made=made,
        error=error,
        failed=failed,
        given=visit.form,
        email=bool(visit.door.settings.smtp_url),
        may_test=visit.actor.may_create(visit.actor.owner),
    )


def _controllers_only(visit: Visit) -> None:
    if not may_control(visit.actor):
        raise NotAllowed()
