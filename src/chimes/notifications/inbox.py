"""The inbox channel: an inbox item of the owner, stored in the transaction of the completion."""

from __future__ import annotations

import uuid

from chimes.i18n import _, in_language
from chimes.model.ids import InboxId
from chimes.model.notification import DELIVERY_NAMESPACE, InboxItem
from chimes.model.recipient import Channel
from chimes.notifications.base import DeliveryAttempt, Result, Sent
from chimes.notifications.message import CHANNELS
from chimes.redaction import mask_url


class Inbox:
    channel = Channel.INBOX
    capacity = 64

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def send(self, attempt: DeliveryAttempt) -> Result:
        item = inbox_item(attempt)
        return Sent(receipt=item.id, inbox=item)


def inbox_item(attempt: DeliveryAttempt) -> InboxItem:
    """The id derives from the delivery, so that a repeat makes no second item."""
    return _item(attempt, "inbox", attempt.message.title, attempt.message.markdown)


def undelivered(attempt: DeliveryAttempt, error: str) -> InboxItem:
    """Tells the owner about a message that its channel could not deliver, with its text."""
    message, recipient = attempt.message, attempt.recipient
    language = message.language
    title = _(
        "Not delivered ({channel}): {title}",
        channel=CHANNELS[recipient.channel],
        title=message.title,
    )
    why = _(
        "This message could not be delivered to {to}: {error}",
        to=mask_url(recipient.to),
        error=in_language(error, language),
    )
    text = (in_language(why, language), message.markdown)
    return _item(attempt, "undelivered", in_language(title, language), "\n\n".join(text).strip())


def _item(attempt: DeliveryAttempt, kind: str, title: str, text: str) -> InboxItem:
    message = attempt.message
    name = f"{kind}\0{attempt.delivery_id}"
    return InboxItem(
        id=InboxId(str(uuid.uuid5(DELIVERY_NAMESPACE, name))),
        owner=attempt.owner,
        run_id=message.run_id,
        schedule_id=message.schedule_id,
        schedule_name=message.schedule_name,
        title=title,
        text=text,
        status=message.status if message.kind in ("run", "monitor") else message.kind,
        artifacts=message.artifacts,
        created_at=attempt.now,
    )
