"""Inbox: what schedules delivered, the list and one message of it (UX A.7)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotFound
from chimes.i18n import Message, _, counted
from chimes.model.access import Owner
from chimes.model.ids import InboxId, RunId
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.notification import (
    READ,
    Delivery,
    DeliveryState,
    InboxChange,
    InboxItem,
    Unsnooze,
)
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import Schedule
from chimes.model.validation import MAX_RECIPIENTS
from chimes.notifications.message import CHANNELS
from chimes.notifications.text import DEEPEST, readable_markdown
from chimes.notifications.text import shown as shown_markdown
from chimes.services.manual_runs import may_reply, reply_id
from chimes.triggers.moment import parse_moment
from chimes.web.api.paging import cursor_to, position_from, question_of
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import FORM_ERRORS, FormError
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.inbox.views import (
    FOLDERS,
    HERE,
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

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


# @@ Markdown that somebody else's program wrote, as HTML that can do nothing: no HTML of its own,
# no pictures that would be fetched, links only to where people go, no styles (S47, S74). A line
# is a line, as in every other place where the text is sent to.

#: Our own pages of runs are what digests lead to.
_LINKED = ("http://", "https://", "mailto:", "/ui/runs/")
#: A message has its place in a page: its first heading is not the page's.
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}


@lru_cache(maxsize=64)
def safe_html(markdown: str) -> Markup:
    """What would take too long to read, or is nested too deep, stays the text that it is."""
    text = shown_markdown(markdown)
    if not readable_markdown(text):
        return _as_it_is(text)
    parser = _parser()
    try:
        tokens = parser.parse(text)
        if any(token.level >= DEEPEST - 1 for token in tokens):
            return _as_it_is(text)
        _tame(tokens)
        html = parser.renderer.render(tokens, parser.options, {})
    except RecursionError:
        return _as_it_is(text)
    return Markup(html)  # noqa: S704 - written by the parser, which escapes and knows no HTML


def _as_it_is(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough"]).disable("image")
    # Replaced as the library's documents say it is done.
    setattr(parser, "validateLink", _leads_somewhere)  # noqa: B010
    return parser


def _leads_somewhere(url: str) -> bool:
    return url.strip().lower().startswith(_LINKED)


def _tame(tokens: Sequence[Token]) -> None:
    for token in tokens:
        # The alignment of a table would be an inline style, which no page of ours has.
        token.attrs.pop("style", None)
        if token.type in ("heading_open", "heading_close"):
            token.tag = _HEADINGS[token.tag]
        elif token.type == "link_open":
            token.attrs |= {"rel": "noopener noreferrer nofollow", "target": "_blank"}
        if token.children:
            _tame(token.children)


router = PageRouter()
_TOLD = 20
#: The door by which presses come.
TELEGRAM = "telegram"
#: What tells one reply from the same one sent twice.
LONGEST_KEY = 64


@router.get("/inbox")
async def inbox(request: PageRequest) -> Response:
    return await shown(request, None)


@router.get("/inbox/newer")
async def newer(request: PageRequest) -> Response:
    """How many unread ones there are more than the page knows of."""
    known = request.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    query = asked_in(request.query).query(request.now)
    _unused, unread = await request.context.messages.inbox(request.actor, replace(query, limit=1))
    more = max(0, unread - int(known))
    text = counted("{count} new message – show", "{count} new messages – show", more)
    return JSONResponse({"count": more, "text": text.in_language(request.display.language)})


@router.get("/inbox/{id}")
async def message(request: PageRequest) -> Response:
    """The list with one message open. Looking changes nothing: that it was read is said by a form
    of the page, by itself where there are scripts."""
    return await shown(
        request,
        await request.context.messages.item(request.actor, InboxId(request.path_params["id"])),
    )


async def shown(
    request: PageRequest, item: InboxItem | None, refused: FormError | None = None, failed: str = ""
) -> Response:
    """`failed`: the form of the message that was `refused`; it has what was typed. The answer to
    a form has the list of the page that the form was on, from its beginning, and the message in
    it even if it is not one of that list any more."""
    asked_by_form = request.http.method == "POST"
    asked = asked_in(_query_of(request.back_url()) if asked_by_form else request.query)
    question = question_of(request.http)
    after = position_from(request.query.get("cursor"), question, numbers=True)
    found, unread = await request.context.messages.inbox(
        request.actor, replace(asked.query(request.now), after=after)
    )
    more = ""
    if found.next is not None and not asked_by_form:
        url = request.http.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    items = found.items
    if asked_by_form and item is not None and all(each.id != item.id for each in items):
        items = (item, *items)
    schedule = None if item is None else await _schedule(request, item)
    told = await _told(request, item)
    return request.render(
        "inbox/page.html",
        status=200 if refused is None else refused.status,
        error=refused,
        failed=failed,
        given=request.form,
        asked=asked,
        folders=FOLDERS,
        kinds=KINDS,
        items=items,
        in_chats=await _in_chats(request, items),
        unread=unread,
        more=more,
        newer=asked.address("newer", known=str(unread)),
        item=item,
        body=safe_html(item.text) if item is not None else "",
        schedule=schedule,
        may_edit=schedule is not None and request.actor.may_write(schedule.owner),
        may_mark=may_mark(request.actor, _owner_shown(request, asked, item)),
        told=told,
        words_of=CHANNELS.__getitem__,
        presses=await _presses(request, item) if told else (),
        may_reply=await _may_reply(request, item),
        reply_key=request.form.text("request")[:LONGEST_KEY] or secrets.token_hex(8),
        laters=laters(request.display, request.now),
        name_of=_name_of(asked, found.items),
    )


def _query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def _owner_shown(request: PageRequest, asked: Asked, item: InboxItem | None) -> Owner:
    return item.owner if item is not None else asked.owner or request.actor.owner


def _name_of(asked: Asked, items: tuple[InboxItem, ...]) -> str:
    """Of the schedule that the list is narrowed down to, as its messages call it."""
    names = [each.schedule_name for each in items if each.schedule_id == asked.schedule_id]
    return names[0] if names else asked.schedule_id or ""


async def _schedule(request: PageRequest, item: InboxItem) -> Schedule | None:
    """None: it is gone, or was never one."""
    if item.schedule_id is None:
        return None
    try:
        return await request.context.schedules.get(request.actor, item.schedule_id)
    except NotFound:
        return None


async def _in_chats(
    request: PageRequest, items: tuple[InboxItem, ...]
) -> dict[RunId, DeliveryState]:
    """One question for all of a page."""
    ids = tuple({each.run_id for each in items if each.run_id is not None})
    if not ids:
        return {}
    query = DeliveryQuery(run_ids=ids, channel=Channel.TELEGRAM, limit=len(ids) * MAX_RECIPIENTS)
    return in_chats((await request.context.messages.deliveries(request.actor, query)).items)


async def _presses(request: PageRequest, item: InboxItem | None) -> tuple[Press, ...]:
    if item is None or item.run_id is None:
        return ()
    about = (item.run_id, *((item.schedule_id,) if item.schedule_id else ()))
    query = AuditQuery(object_ids=about, interface=TELEGRAM, since=item.created_at, limit=_TOLD)
    return presses(await request.context.store.list_audit(query))


async def _may_reply(request: PageRequest, item: InboxItem | None) -> bool:
    if item is None or item.run_id is None:
        return False
    try:
        run = await request.context.runs.get(request.actor, item.run_id)
    except NotFound:
        return False
    return may_reply(request.actor, run)


async def _told(request: PageRequest, item: InboxItem | None) -> tuple[Delivery, ...]:
    if item is None or item.run_id is None:
        return ()
    query = DeliveryQuery(run_id=item.run_id, limit=_TOLD)
    return elsewhere((await request.context.messages.deliveries(request.actor, query)).items)


# @@ What can be done with messages: read, starred, put away, later.


@router.post("/inbox/{id}/seen")
async def seen(request: PageRequest) -> Response:
    """Sent by the page itself when a message is open: nothing is said about it. The page takes
    from the answer what is different now: the row and the counts."""
    item = await request.context.messages.change(request.actor, _id(request), READ)
    if request.is_htmx:
        return await shown(request, item)
    return request.redirect(request.back_url(f"{HERE}/{item.id}"))


@router.post("/inbox/{id}/read")
async def read(request: PageRequest) -> Response:
    return await _marked(request, READ, _("Marked as read."), "unread")


@router.post("/inbox/{id}/unread")
async def unread(request: PageRequest) -> Response:
    return await _marked(request, InboxChange(read=False), _("Marked as unread."), "read", to=HERE)


@router.post("/inbox/{id}/star")
async def star(request: PageRequest) -> Response:
    change = InboxChange(starred=True)
    return await _marked(request, change, _("Starred. Starred messages are not deleted."), "unstar")


@router.post("/inbox/{id}/unstar")
async def unstar(request: PageRequest) -> Response:
    return await _marked(request, InboxChange(starred=False), _("Star removed."), "star")


@router.post("/inbox/{id}/archive")
async def archive(request: PageRequest) -> Response:
    change = InboxChange(archived=True, read=True)
    return await _marked(request, change, _("Archived."), "unarchive", to=HERE)


@router.post("/inbox/{id}/unarchive")
async def unarchive(request: PageRequest) -> Response:
    return await _marked(request, InboxChange(archived=False), _("Moved to inbox."), "archive")


@router.post("/inbox/{id}/snooze")
async def snooze(request: PageRequest) -> Response:
    item = await request.context.messages.item(request.actor, _id(request))
    try:
        change = InboxChange(snoozed_until=_until(request))
        return await _marked(request, change, _("Snoozed."), "wake", to=HERE)
    except FORM_ERRORS as error:
        return await shown(request, item, await request.form_error(error), "snooze")


@router.post("/inbox/{id}/wake")
async def wake(request: PageRequest) -> Response:
    change = InboxChange(snoozed_until=Unsnooze())
    return await _marked(request, change, _("Moved to inbox."), "")


@router.post("/inbox/test")
async def test_message(request: PageRequest) -> Response:
    outcome = await request.context.messages.send_test(
        request.actor, Recipient(channel=Channel.INBOX)
    )
    return request.redirect_with_toast(outcome.words, to=request.back_url(HERE), kind=outcome.kind)


@router.post("/inbox/{id}/reply")
async def reply_to_agent(request: PageRequest) -> Response:
    """FormError, the message comes again with the reply as it was typed: the run may have been
    forgotten meanwhile, a quota be used up."""
    item = await request.context.messages.item(request.actor, _id(request))
    if item.run_id is None:
        raise NotFound(_("message {id} not found", id=item.id))
    try:
        run = await request.context.runs.get(request.actor, item.run_id)
        new = await request.context.manual_runs.reply(
            request.actor,
            run,
            request.form.raw("text"),
            run_id=reply_id(item.id, request.form.text("request")[:LONGEST_KEY]),
            language=request.display.language,
        )
    except (*FORM_ERRORS, NotFound) as error:
        return await shown(request, item, await request.form_error(error), "reply")
    return request.redirect_with_toast(
        _("Reply sent. The answer will arrive in your inbox."), to=f"/ui/runs/{new.id}"
    )


@router.post("/inbox/read-all")
async def read_all(request: PageRequest) -> Response:
    asked = asked_in(dict(request.form.items()))
    marked = await request.context.messages.read_all(request.actor, asked.query(request.now))
    text = counted("{count} message marked as read.", "{count} messages marked as read.", marked)
    return request.redirect_with_toast(text, to=request.back_url(HERE))


async def _marked(
    request: PageRequest, change: InboxChange, text: Message, undone_by: str, *, to: str = ""
) -> Response:
    """On to where the form was; `to` where that was the message itself, which is done with."""
    item = await request.context.messages.change(request.actor, _id(request), change)
    back = request.back_url(f"{HERE}/{item.id}")
    if to and back.startswith(f"{HERE}/{item.id}"):
        back = to
    undo = Undo(action=f"{HERE}/{item.id}/{undone_by}") if undone_by else None
    return request.redirect_with_toast(text, to=back, undo=undo)


def _until(request: PageRequest) -> datetime:
    """One of those offered, or a moment by the reader's clock."""
    chosen = request.form.text("later")
    for each in laters(request.display, request.now):
        if each.name == chosen:
            return each.until
    text = request.form.text("until")
    if not text:
        raise InvalidInput(_("choose a time"), field="until", code="missing")
    return parse_moment(text, request.display.zone, field="until")


def _id(request: PageRequest) -> InboxId:
    return InboxId(request.path_params["id"])
