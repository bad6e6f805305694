"""What an attempt to deliver means for the delivery (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    MAX_RATE_LIMITED_CLAIMS,
    Delivery,
    DeliveryCompletion,
    rate_limited_delay,
    delivery_retry_delay,
)
from chimes.model.recipient import Channel
from chimes.notifications.base import Letter, Result, Retry, Sent
from chimes.notifications.inbox import undelivered


def taken_along(members: Iterable[Delivery], digest: Delivery) -> tuple[DeliveryCompletion, ...]:
    """What becomes of those in a digest that was sent. Each is as it was when the digest was
    written."""
    return tuple(
        DeliveryCompletion(delivery_id=each.id, fence=each.fence, sent=True, receipt=digest.id)
        for each in members
    )


def verdict_of(delivery: Delivery, letter: Letter, result: Result) -> DeliveryCompletion:
    progress = letter.progress.parts
    if isinstance(result, Sent):
        return DeliveryCompletion(
            delivery_id=delivery.id,
            fence=delivery.fence,
            sent=True,
            progress=progress,
            receipt=result.receipt,
            inbox=result.inbox,
        )
    retry_in, counts = None, True
    if isinstance(result, Retry):
        counts = not result.holds_back or delivery.fence > MAX_RATE_LIMITED_CLAIMS
        if not counts:
            retry_in = rate_limited_delay(delivery.fence, result.after)
        elif delivery.attempts < MAX_DELIVERY_ATTEMPTS:
            retry_in = delivery_retry_delay(delivery.attempts, result.after)
    notice = None
    told_otherwise = delivery.recipient.collects(delivery.occasion)
    if retry_in is None and delivery.recipient.channel is not Channel.INBOX and not told_otherwise:
        # A dead letter is read where its owner can read it (F75); of those in a digest, its own.
        notice = undelivered(letter, result.error)
    return DeliveryCompletion(
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
