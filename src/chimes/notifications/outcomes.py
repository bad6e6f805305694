"""What an attempt to deliver means for the delivery (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from chimes.model.notification import (
    MOST_ATTEMPTS,
    MOST_HELD_BACK,
    Delivery,
    DeliveryVerdict,
    held_back_wait,
    retry_wait,
)
from chimes.model.recipient import Channel
from chimes.notifications.base import Letter, Result, Retry, Sent
from chimes.notifications.inbox import undelivered


def taken_along(members: Iterable[Delivery], digest: Delivery) -> tuple[DeliveryVerdict, ...]:
    """What becomes of those in a digest that was sent. Each is as it was when the digest was
    written."""
    return tuple(
        DeliveryVerdict(delivery_id=each.id, fence=each.fence, sent=True, receipt=digest.id)
        for each in members
    )


def verdict_of(delivery: Delivery, letter: Letter, result: Result) -> DeliveryVerdict:
    progress = letter.progress.parts
    if isinstance(result, Sent):
        return DeliveryVerdict(
            delivery_id=delivery.id,
            fence=delivery.fence,
            sent=True,
            progress=progress,
            receipt=result.receipt,
            inbox=result.inbox,
        )
    retry_in, counts = None, True
    if isinstance(result, Retry):
        counts = not result.holds_back or delivery.fence > MOST_HELD_BACK
        if not counts:
            retry_in = held_back_wait(delivery.fence, result.after)
        elif delivery.attempts < MOST_ATTEMPTS:
            retry_in = retry_wait(delivery.attempts, result.after)
    notice = None
    told_otherwise = delivery.recipient.collects(delivery.occasion)
    if retry_in is None and delivery.recipient.channel is not Channel.INBOX and not told_otherwise:
        # A dead letter is read where its owner can read it (F75); of those in a digest, its own.
        notice = undelivered(letter, result.error)
    return DeliveryVerdict(
        delivery_id=delivery.id,
        fence=delivery.fence,
        retry_in=retry_in,
        counts=counts,
        progress=progress,
        error=str(result.error),
        code=result.code,
        receipt=result.digest if isinstance(result, Retry) else "",
        inbox=notice,
    )
