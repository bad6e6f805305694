"""What can be done with messages: read, starred, put away, later."""

from __future__ import annotations

from datetime import datetime

from starlette.responses import Response

from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS
from chimes.doors.dashboard.routes_inbox import LONGEST_KEY, shown
from chimes.doors.dashboard.views_inbox import HERE, asked_in, laters
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotFound
from chimes.model.ids import InboxId
from chimes.model.inbox import READ, InboxChange, Wake
from chimes.model.recipient import Channel, Recipient
from chimes.service.replies import reply, reply_id
from chimes.triggers.moment import parse_moment
from chimes.wording import Wording, counted, say

pages = Pages()


@pages.post("/inbox/{id}/seen")
async def seen(visit: Visit) -> Response:
    """Sent by the page itself when a message is open: nothing is said about it. The page takes
    from the answer what is different now: the row and the counts."""
    item = await visit.door.messages.change(visit.actor, _id(visit), READ)
    if visit.partial:
        return await shown(visit, item)
    return visit.redirect(visit.back(f"{HERE}/{item.id}"))


@pages.post("/inbox/{id}/read")
async def read(visit: Visit) -> Response:
    return await _marked(visit, READ, say("Marked as read."), "unread")


@pages.post("/inbox/{id}/unread")
async def unread(visit: Visit) -> Response:
    return await _marked(visit, InboxChange(read=False), say("Marked as unread."), "read", to=HERE)


@pages.post("/inbox/{id}/star")
async def star(visit: Visit) -> Response:
    change = InboxChange(starred=True)
    return await _marked(visit, change, say("Starred: it stays for good."), "unstar")


@pages.post("/inbox/{id}/unstar")
async def unstar(visit: Visit) -> Response:
    return await _marked(visit, InboxChange(starred=False), say("No longer starred."), "star")


@pages.post("/inbox/{id}/archive")
async def archive(visit: Visit) -> Response:
    change = InboxChange(archived=True, read=True)
    return await _marked(visit, change, say("Put away."), "unarchive", to=HERE)


@pages.post("/inbox/{id}/unarchive")
async def unarchive(visit: Visit) -> Response:
    return await _marked(visit, InboxChange(archived=False), say("Back in the inbox."), "archive")


@pages.post("/inbox/{id}/snooze")
async def snooze(visit: Visit) -> Response:
    item = await visit.door.messages.item(visit.actor, _id(visit))
    try:
        change = InboxChange(snoozed_until=_until(visit))
        return await _marked(visit, change, say("It comes back later."), "wake", to=HERE)
    except REFUSALS as error:
        return await shown(visit, item, await visit.refused(error), "snooze")


@pages.post("/inbox/{id}/wake")
async def wake(visit: Visit) -> Response:
    change = InboxChange(snoozed_until=Wake())
    return await _marked(visit, change, say("Back in the inbox."), "")


@pages.post("/inbox/test")
async def test_message(visit: Visit) -> Response:
    outcome = await visit.door.messages.send_test(visit.actor, Recipient(channel=Channel.INBOX))
    return visit.done(outcome.words, to=visit.back(HERE), kind=outcome.kind)


@pages.post("/inbox/{id}/reply")
async def reply_to_agent(visit: Visit) -> Response:
    """Refused, the message comes again with the reply as it was typed: the run may have been
    forgotten meanwhile, a quota be used up."""
    item = await visit.door.messages.item(visit.actor, _id(visit))
    if item.run_id is None:
        raise NotFound(say("message {id} not found", id=item.id))
    try:
        run = await visit.door.runs.get(visit.actor, item.run_id)
        new = await reply(
            visit.door.schedules,
            visit.actor,
            run,
            visit.form.raw("text"),
            run_id=reply_id(item.id, visit.form.text("request")[:LONGEST_KEY]),
            language=visit.look.language,
        )
    except (*REFUSALS, NotFound) as error:
        return await shown(visit, item, await visit.refused(error), "reply")
    return visit.done(
        say("The agent was told. Its answer comes to the inbox."), to=f"/ui/runs/{new.id}"
    )


@pages.post("/inbox/read-all")
async def read_all(visit: Visit) -> Response:
    asked = asked_in(dict(visit.form.items()))
    marked = await visit.door.messages.read_all(visit.actor, asked.query(visit.now))
    text = counted("{count} message marked as read.", "{count} messages marked as read.", marked)
    return visit.done(text, to=visit.back(HERE))


async def _marked(
    visit: Visit, change: InboxChange, text: Wording, undone_by: str, *, to: str = ""
) -> Response:
    """On to where the form was; `to` where that was the message itself, which is done with."""
    item = await visit.door.messages.change(visit.actor, _id(visit), change)
    back = visit.back(f"{HERE}/{item.id}")
    if to and back.startswith(f"{HERE}/{item.id}"):
        back = to
    undo = Undo(action=f"{HERE}/{item.id}/{undone_by}") if undone_by else None
    return visit.done(text, to=back, undo=undo)


def _until(visit: Visit) -> datetime:
    """One of those offered, or a moment by the reader's clock."""
    chosen = visit.form.text("later")
    for each in laters(visit.look, visit.now):
        if each.name == chosen:
            return each.until
    text = visit.form.text("until")
    if not text:
        raise InvalidInput(say("say when"), field="until", code="missing")
    return parse_moment(text, visit.look.zone, field="until")


def _id(visit: Visit) -> InboxId:
    return InboxId(visit.path["id"])
