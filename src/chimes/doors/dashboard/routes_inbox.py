"""Inbox: what schedules delivered, the list and one message of it (UX A.7)."""

from __future__ import annotations

import secrets
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

from starlette.responses import JSONResponse, Response

from chimes.delivery.words import CHANNELS
from chimes.doors.api.paging import cursor_to, position_from, question_of
from chimes.doors.dashboard.markdown import safe_html
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import Refused
from chimes.doors.dashboard.views_inbox import (
    FOLDERS,
    KINDS,
    Asked,
    Press,
    asked_in,
    elsewhere,
    in_chats,
    laters,
    may_mark,
    presses,
)
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotFound
from chimes.model.access import Owner
from chimes.model.delivery import Delivery, DeliveryState, InboxItem
from chimes.model.ids import InboxId, RunId
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.recipient import Channel
from chimes.model.recipient_rules import MOST_RECIPIENTS
from chimes.model.schedule import Schedule
from chimes.service.replies import may_reply
from chimes.wording import counted

pages = Pages()
_TOLD = 20
#: The door by which presses come.
TELEGRAM = "telegram"
#: What tells one reply from the same one sent twice.
LONGEST_KEY = 64


@pages.get("/inbox")
async def inbox(visit: Visit) -> Response:
    return await shown(visit, None)


@pages.get("/inbox/newer")
async def newer(visit: Visit) -> Response:
    """How many unread ones there are more than the page knows of."""
    known = visit.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    query = asked_in(visit.query).query(visit.now)
    _, unread = await visit.door.messages.inbox(visit.actor, replace(query, limit=1))
    more = max(0, unread - int(known))
    text = counted("{count} new message – show", "{count} new messages – show", more)
    return JSONResponse({"count": more, "text": text.in_language(visit.look.language)})


@pages.get("/inbox/{id}")
async def message(visit: Visit) -> Response:
    """The list with one message open. Looking changes nothing: that it was read is said by a form
    of the page, by itself where there are scripts."""
    return await shown(
        visit, await visit.door.messages.item(visit.actor, InboxId(visit.path["id"]))
    )


async def shown(
    visit: Visit, item: InboxItem | None, refused: Refused | None = None, failed: str = ""
) -> Response:
    """`failed`: the form of the message that was `refused`; it has what was typed. The answer to
    a form has the list of the page that the form was on, from its beginning, and the message in
    it even if it is not one of that list any more."""
    asked_by_form = visit.request.method == "POST"
    asked = asked_in(_query_of(visit.back()) if asked_by_form else visit.query)
    question = question_of(visit.request)
    after = position_from(visit.query.get("cursor"), question, numbers=True)
    found, unread = await visit.door.messages.inbox(
        visit.actor, replace(asked.query(visit.now), after=after)
    )
    more = ""
    if found.next is not None and not asked_by_form:
        url = visit.request.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    items = found.items
    if asked_by_form and item is not None and all(each.id != item.id for each in items):
        items = (item, *items)
    schedule = None if item is None else await _schedule(visit, item)
    told = await _told(visit, item)
    return visit.page(
        "inbox/page.html",
        status=200 if refused is None else refused.status,
        error=refused,
        failed=failed,
        given=visit.form,
        asked=asked,
        folders=FOLDERS,
        kinds=KINDS,
        items=items,
        in_chats=await _in_chats(visit, items),
        unread=unread,
        more=more,
        newer=asked.address("newer", known=str(unread)),
        item=item,
        body=safe_html(item.text) if item is not None else "",
        schedule=schedule,
        may_edit=schedule is not None and visit.actor.may_write(schedule.owner),
        may_mark=may_mark(visit.actor, _owner_shown(visit, asked, item)),
        told=told,
        words_of=CHANNELS.__getitem__,
        presses=await _presses(visit, item) if told else (),
        may_reply=await _may_reply(visit, item),
        reply_key=visit.form.text("request")[:LONGEST_KEY] or secrets.token_hex(8),
        laters=laters(visit.look, visit.now),
        name_of=_name_of(asked, found.items),
    )


def _query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def _owner_shown(visit: Visit, asked: Asked, item: InboxItem | None) -> Owner:
    return item.owner if item is not None else asked.owner or visit.actor.owner


def _name_of(asked: Asked, items: tuple[InboxItem, ...]) -> str:
    """Of the schedule that the list is narrowed down to, as its messages call it."""
    names = [each.schedule_name for each in items if each.schedule_id == asked.schedule_id]
    return names[0] if names else asked.schedule_id or ""


async def _schedule(visit: Visit, item: InboxItem) -> Schedule | None:
    """None: it is gone, or was never one."""
    if item.schedule_id is None:
        return None
    try:
        return await visit.door.schedules.get(visit.actor, item.schedule_id)
    except NotFound:
        return None


async def _in_chats(visit: Visit, items: tuple[InboxItem, ...]) -> dict[RunId, DeliveryState]:
    """One question for all of a page."""
    ids = tuple({each.run_id for each in items if each.run_id is not None})
    if not ids:
        return {}
    query = DeliveryQuery(run_ids=ids, channel=Channel.TELEGRAM, limit=len(ids) * MOST_RECIPIENTS)
    return in_chats((await visit.door.messages.deliveries(visit.actor, query)).items)


async def _presses(visit: Visit, item: InboxItem | None) -> tuple[Press, ...]:
    if item is None or item.run_id is None:
        return ()
    about = (item.run_id, *((item.schedule_id,) if item.schedule_id else ()))
    query = AuditQuery(object_ids=about, door=TELEGRAM, since=item.created_at, limit=_TOLD)
    return presses(await visit.door.store.list_audit(query))


async def _may_reply(visit: Visit, item: InboxItem | None) -> bool:
    if item is None or item.run_id is None:
        return False
    try:
        run = await visit.door.runs.get(visit.actor, item.run_id)
    except NotFound:
        return False
    return may_reply(visit.actor, run)


async def _told(visit: Visit, item: InboxItem | None) -> tuple[Delivery, ...]:
    if item is None or item.run_id is None:
        return ()
    query = DeliveryQuery(run_id=item.run_id, limit=_TOLD)
    return elsewhere((await visit.door.messages.deliveries(visit.actor, query)).items)
