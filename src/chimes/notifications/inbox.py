"""The inbox: a message becomes an item of its owner's, in the transaction of the verdict."""

from __future__ import annotations

import uuid

from chimes.i18n import _, in_language
from chimes.model.ids import InboxId
from chimes.model.notification import DELIVERY_NAMESPACE, InboxItem
from chimes.model.recipient import Channel
from chimes.notifications.base import Letter, Result, Sent
from chimes.notifications.message import CHANNELS
from chimes.redaction import masked_url
from chimes.retelling import retold


class Inbox:
    channel = Channel.INBOX
    places = 64

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def send(self, letter: Letter) -> Result:
        item = inbox_item(letter)
        return Sent(receipt=item.id, inbox=item)


def inbox_item(letter: Letter) -> InboxItem:
    """One for each delivery, however often it is made (I8)."""
    return _item(letter, "inbox", letter.message.title, letter.message.markdown)


def undelivered(letter: Letter, error: str) -> InboxItem:
    """What the owner reads instead of a message that no other channel takes (F75)."""
    message, recipient = letter.message, letter.recipient
    language = message.language
    title = _(
        "Not delivered by {channel}: {title}",
        channel=CHANNELS[recipient.channel],
        title=message.title,
    )
    why = _(
        "This message could not be delivered to {to}: {error}",
        to=masked_url(recipient.to),
        error=retold(error, language),
    )
    text = (in_language(why, language), message.markdown)
    return _item(letter, "undelivered", in_language(title, language), "\n\n".join(text).strip())


def _item(letter: Letter, kind: str, title: str, text: str) -> InboxItem:
    message = letter.message
    name = f"{kind}\0{letter.delivery_id}"
    return InboxItem(
        id=InboxId(str(uuid.uuid5(DELIVERY_NAMESPACE, name))),
        owner=letter.owner,
        run_id=message.run_id,
        schedule_id=message.schedule_id,
        schedule_name=message.schedule_name,
        title=title,
        text=text,
        status=message.status if message.kind == "run" else message.kind,
        artifacts=message.artifacts,
        created_at=letter.now,
    )
