"""Inbox page: messages that schedules delivered, and actions on them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotFound
from chimes.i18n import Message, _, counted
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import InboxId, RunId
from chimes.model.listing import DeliveryQuery
from chimes.model.notification import (
    READ,
    Delivery,
    DeliveryState,
    InboxChange,
    InboxItem,
    Unsnooze,
)
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import FAILED_STATUSES, Run
from chimes.model.validation import MAX_RECIPIENTS
from chimes.notifications.message import CHANNELS, MAX_NESTING, readable_markdown, sanitize
from chimes.services.attention import KnownFailure
from chimes.services.manual_runs import may_reply, reply_id
from chimes.triggers.values import parse_moment
from chimes.web.dashboard.core.lists import next_page, page_position
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    FormError,
    PageRequest,
    PageRouter,
    Undo,
    status_of,
)
from chimes.web.dashboard.inbox.views import (
    FOLDERS,
    INBOX_PATH,
    KINDS,
    ButtonPress,
    InboxFilter,
    button_presses,
    may_mark,
    other_deliveries,
    parse_filter,
    snooze_choices,
    telegram_states,
)
from chimes.web.dashboard.runs.views import visible
from chimes.web.dashboard.schedule.actions import find_schedule

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


# --- Markdown ---------------------------------------------------------------------------------
# Messages contain untrusted Markdown: raw HTML, images and styles are removed and links restricted.
# Line breaks are kept, as in the other channels.

#: Digests link to pages of runs, notices of proposals and approvals to their pages.
_LINK_PREFIXES = ("http://", "https://", "mailto:", "/ui/runs/", "/ui/proposals/", "/ui/approvals/")
#: Headings of a message are below those of the page.
_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}


@lru_cache(maxsize=64)
def safe_html(markdown: str) -> Markup:
    """Renders Markdown as safe HTML; text that is too complex or nested too deeply stays plain."""
    text = sanitize(markdown)
    if not readable_markdown(text):
        return _preformatted(text)
    parser = _parser()
    try:
        tokens = parser.parse(text)
        if any(token.level >= MAX_NESTING - 1 for token in tokens):
            return _preformatted(text)
        _sanitize(tokens)
        html = parser.renderer.render(tokens, parser.options, {})
    except RecursionError:
        return _preformatted(text)
    return Markup(html)  # noqa: S704 - written by the parser, which escapes and knows no HTML


def _preformatted(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"]).disable("image")
    # The documented way to restrict links.
    setattr(parser, "validateLink", _is_allowed_link)  # noqa: B010
    return parser


def _is_allowed_link(url: str) -> bool:
    return url.strip().lower().startswith(_LINK_PREFIXES)


def _sanitize(tokens: Sequence[Token]) -> None:
    for token in tokens:
        # Table alignment is an inline style, which the content security policy forbids.
        token.attrs.pop("style", None)
        if token.type in ("heading_open", "heading_close"):
            token.tag = _HEADINGS[token.tag]
        elif token.type == "link_open":
            token.attrs |= {"rel": "noopener noreferrer nofollow", "target": "_blank"}
        if token.children:
            _sanitize(token.children)


router = PageRouter()
_MAX_DELIVERIES = 20
#: Interface of button presses in the audit log.
TELEGRAM = "telegram"
#: Length of the key that makes a reply idempotent.
MAX_KEY_LENGTH = 64


@router.get("/inbox")
async def inbox(request: PageRequest) -> Response:
    return await render_inbox(request, None)


@router.get("/inbox/newer")
async def newer(request: PageRequest) -> Response:
    """Counts unread messages that arrived since the page was rendered."""
    known = request.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    query = parse_filter(request.query).query(request.now)
    _page, unread = await request.context.notifications.list_inbox(
        request.actor, replace(query, limit=1)
    )
    more = max(0, unread - int(known))
    text = counted("{count} new message – show", "{count} new messages – show", more)
    return JSONResponse({"count": more, "text": text.in_language(request.display.language)})


@router.get("/inbox/{id}")
async def message(request: PageRequest) -> Response:
    """The list with one message open. GET changes nothing: a form on the page marks it as read."""
    return await render_inbox(
        request,
        await request.context.notifications.get_inbox_item(
            request.actor, InboxId(request.path_params["id"])
        ),
    )


async def render_inbox(
    request: PageRequest,
    item: InboxItem | None,
    form_error: FormError | None = None,
    failed: str = "",
) -> Response:
    """Renders the list with the open message.

    `failed` is the form that `form_error` belongs to. After a form, the list is that of the page
    that the form was on, and contains the message even if it no longer matches."""
    is_form = request.http.method == "POST"
    filter_ = parse_filter(_query_of(request.back_url()) if is_form else request.query)
    after = page_position(request)
    found, unread = await request.context.notifications.list_inbox(
        request.actor, replace(filter_.query(request.now), after=after)
    )
    more = "" if is_form else next_page(request, found.next)
    items = found.items
    if is_form and item is not None and all(each.id != item.id for each in items):
        items = (item, *items)
    schedule = None if item is None else await find_schedule(request, item.schedule_id)
    deliveries = await _other_deliveries(request, item)
    failed_run, known = await _failure_of(request, item)
    return request.render(
        "inbox/page.html",
        status=status_of(form_error),
        error=form_error,
        failed=failed,
        given=request.form,
        filter=filter_,
        folders=FOLDERS,
        kinds=KINDS,
        items=items,
        telegram_states=await _telegram_states(request, items),
        unread=unread,
        more=more,
        newer=filter_.address("newer", known=str(unread)),
        item=item,
        body=safe_html(item.text) if item is not None else "",
        schedule=schedule,
        may_edit=schedule is not None and request.actor.may_write(schedule.owner),
        may_mark=may_mark(request.actor, _owner_of(request, filter_, item)),
        known=known,
        may_acknowledge=failed_run is not None
        and known is None
        and request.actor.may_operate(failed_run.owner),
        visible=visible,
        deliveries=deliveries,
        channel_label=CHANNELS.__getitem__,
        button_presses=await _button_presses(request, item) if deliveries else (),
        may_reply=await _may_reply(request, item),
        reply_key=request.form.text("request")[:MAX_KEY_LENGTH] or secrets.token_hex(8),
        snooze_choices=snooze_choices(request.display, request.now),
        schedule_name=_schedule_name(filter_, found.items),
    )


async def _failure_of(
    request: PageRequest, item: InboxItem | None
) -> tuple[Run | None, KnownFailure | None]:
    """Returns the failed run that a message is about, and the mark of its failure."""
    if item is None or item.run_id is None or item.status not in FAILED_STATUSES:
        return None, None
    try:
        run = await request.context.runs.get(request.actor, item.run_id)
    except NotFound:
        return None, None
    return run, await request.context.known_failures.get_for_run(run)


def _query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def _owner_of(request: PageRequest, filter_: InboxFilter, item: InboxItem | None) -> Owner:
    return item.owner if item is not None else filter_.owner or request.actor.owner


def _schedule_name(filter_: InboxFilter, items: tuple[InboxItem, ...]) -> str:
    """Returns the name of the schedule that the list is filtered by."""
    names = [each.schedule_name for each in items if each.schedule_id == filter_.schedule_id]
    return names[0] if names else filter_.schedule_id or ""


async def _telegram_states(
    request: PageRequest, items: tuple[InboxItem, ...]
) -> dict[RunId, DeliveryState]:
    """Returns the Telegram states of all messages on the page with one query."""
    ids = tuple({each.run_id for each in items if each.run_id is not None})
    if not ids:
        return {}
    query = DeliveryQuery(run_ids=ids, channel=Channel.TELEGRAM, limit=len(ids) * MAX_RECIPIENTS)
    return telegram_states(
        (await request.context.notifications.list_deliveries(request.actor, query)).items
    )


async def _button_presses(request: PageRequest, item: InboxItem | None) -> tuple[ButtonPress, ...]:
    if item is None or item.run_id is None:
        return ()
    entries = await request.context.audit.list_for_message(
        request.actor, item, interface=TELEGRAM, limit=_MAX_DELIVERIES
    )
    return button_presses(entries)


async def _may_reply(request: PageRequest, item: InboxItem | None) -> bool:
    if item is None or item.run_id is None:
        return False
    try:
        run = await request.context.runs.get(request.actor, item.run_id)
    except NotFound:
        return False
    return may_reply(request.actor, run)


async def _other_deliveries(request: PageRequest, item: InboxItem | None) -> tuple[Delivery, ...]:
    if item is None or item.run_id is None:
        return ()
    query = DeliveryQuery(run_id=item.run_id, limit=_MAX_DELIVERIES)
    return other_deliveries(
        (await request.context.notifications.list_deliveries(request.actor, query)).items
    )


# --- actions ----------------------------------------------------------------------------------
@router.post("/inbox/{id}/seen")
async def seen(request: PageRequest) -> Response:
    """Marks an open message as read without a toast. The page updates the row and the counts from
    the response."""
    item = await request.context.notifications.change_inbox_item(request.actor, _id(request), READ)
    if request.is_htmx:
        return await render_inbox(request, item)
    return request.redirect(request.back_url(f"{INBOX_PATH}/{item.id}"))


@router.post("/inbox/{id}/read")
async def read(request: PageRequest) -> Response:
    return await _change(request, READ, _("Marked as read."), "unread")


@router.post("/inbox/{id}/unread")
async def unread(request: PageRequest) -> Response:
    return await _change(
        request, InboxChange(read=False), _("Marked as unread."), "read", to=INBOX_PATH
    )


@router.post("/inbox/{id}/star")
async def star(request: PageRequest) -> Response:
    change = InboxChange(starred=True)
    return await _change(request, change, _("Starred. Starred messages are not deleted."), "unstar")


@router.post("/inbox/{id}/unstar")
async def unstar(request: PageRequest) -> Response:
    return await _change(request, InboxChange(starred=False), _("Star removed."), "star")


@router.post("/inbox/{id}/archive")
async def archive(request: PageRequest) -> Response:
    change = InboxChange(archived=True, read=True)
    return await _change(request, change, _("Archived."), "unarchive", to=INBOX_PATH)


@router.post("/inbox/{id}/unarchive")
async def unarchive(request: PageRequest) -> Response:
    return await _change(request, InboxChange(archived=False), _("Moved to inbox."), "archive")


@router.post("/inbox/{id}/snooze")
async def snooze(request: PageRequest) -> Response:
    item = await request.context.notifications.get_inbox_item(request.actor, _id(request))
    try:
        change = InboxChange(snoozed_until=_until(request))
        return await _change(request, change, _("Snoozed."), "wake", to=INBOX_PATH)
    except FORM_ERRORS as error:
        return await render_inbox(request, item, await request.form_error(error), "snooze")


@router.post("/inbox/{id}/wake")
async def wake(request: PageRequest) -> Response:
    change = InboxChange(snoozed_until=Unsnooze())
    return await _change(request, change, _("Moved to inbox."), "")


@router.post("/inbox/test")
async def test_message(request: PageRequest) -> Response:
    outcome = await request.context.notifications.send_test(
        request.actor, Recipient(channel=Channel.INBOX)
    )
    return request.redirect_with_toast(
        outcome.words, to=request.back_url(INBOX_PATH), kind=outcome.kind
    )


@router.post("/inbox/{id}/reply")
async def reply_to_agent(request: PageRequest) -> Response:
    """Sends a reply. On error the form keeps the text: the run may be deleted, a quota used up."""
    item = await request.context.notifications.get_inbox_item(request.actor, _id(request))
    if item.run_id is None:
        raise NotFound(_("message {id} not found", id=item.id))
    try:
        run = await request.context.runs.get(request.actor, item.run_id)
        new = await request.context.manual_runs.reply(
            request.actor,
            run,
            request.form.raw("text"),
            run_id=reply_id(item.id, request.form.text("request")[:MAX_KEY_LENGTH]),
            language=request.display.language,
        )
    except (*FORM_ERRORS, NotFound) as error:
        return await render_inbox(request, item, await request.form_error(error), "reply")
    return request.redirect_with_toast(
        _("Reply sent. The answer will arrive in your inbox."), to=f"/ui/runs/{new.id}"
    )


@router.post("/inbox/read-all")
async def read_all(request: PageRequest) -> Response:
    filter_ = parse_filter(dict(request.form.items()))
    marked = await request.context.notifications.mark_all_read(
        request.actor, filter_.query(request.now)
    )
    text = counted("{count} message marked as read.", "{count} messages marked as read.", marked)
    return request.redirect_with_toast(text, to=request.back_url(INBOX_PATH))


async def _change(
    request: PageRequest, change: InboxChange, text: Message, undone_by: str, *, to: str = ""
) -> Response:
    """Changes a message and redirects back; `to` replaces the page of the message itself."""
    item = await request.context.notifications.change_inbox_item(
        request.actor, _id(request), change
    )
    back = request.back_url(f"{INBOX_PATH}/{item.id}")
    if to and back.startswith(f"{INBOX_PATH}/{item.id}"):
        back = to
    undo = Undo(action=f"{INBOX_PATH}/{item.id}/{undone_by}") if undone_by else None
    return request.redirect_with_toast(text, to=back, undo=undo)


def _until(request: PageRequest) -> datetime:
    """Returns the chosen time, or the entered one in the viewer's zone."""
    chosen = request.form.text("later")
    for each in snooze_choices(request.display, request.now):
        if each.name == chosen:
            return each.until
    text = request.form.text("until")
    if not text:
        raise InvalidInput(_("choose a time"), field="until", code="missing")
    return parse_moment(text, request.display.zone, field="until")


def _id(request: PageRequest) -> InboxId:
    return InboxId(request.path_params["id"])
