"""Turns the result of a delivery attempt into its completion (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    MAX_RATE_LIMITED_CLAIMS,
    Delivery,
    DeliveryCompletion,
    delivery_retry_delay,
    rate_limited_delay,
)
from chimes.model.recipient import Channel
from chimes.notifications.base import DeliveryAttempt, Result, Retry, Sent, Suppressed
from chimes.notifications.inbox import undelivered


def digest_completions(
    members: Iterable[Delivery], digest: Delivery
) -> tuple[DeliveryCompletion, ...]:
    """Completions of the deliveries in a digest that was sent."""
    return tuple(
        DeliveryCompletion(delivery_id=each.id, fence=each.fence, sent=True, receipt=digest.id)
        for each in members
    )


def suppressed_completion(delivery: Delivery, why: Suppressed) -> DeliveryCompletion:
    return DeliveryCompletion(
        delivery_id=delivery.id,
        fence=delivery.fence,
        suppressed=True,
        error=why.error,
        code=why.code,
    )


def completion_of(
    delivery: Delivery, attempt: DeliveryAttempt, result: Result
) -> DeliveryCompletion:
    progress = attempt.progress.parts
    if isinstance(result, Sent):
        return DeliveryCompletion(
            delivery_id=delivery.id,
            fence=delivery.fence,
            sent=True,
            progress=progress,
            receipt=result.receipt,
            inbox=result.inbox,
        )
    if isinstance(result, Suppressed):
        return suppressed_completion(delivery, result)
    retry_in, counts = None, True
    if isinstance(result, Retry):
        counts = not result.rate_limited or delivery.fence > MAX_RATE_LIMITED_CLAIMS
        if not counts:
            retry_in = rate_limited_delay(delivery.fence, result.after)
        elif delivery.attempts < MAX_DELIVERY_ATTEMPTS:
            retry_in = delivery_retry_delay(delivery.attempts, result.after)
    notice = None
    in_digest = delivery.recipient.goes_into_digest(delivery.notify_on)
    if retry_in is None and delivery.recipient.channel is not Channel.INBOX and not in_digest:
        # The owner reads an undelivered message in the inbox. A digest has its own notice.
        notice = undelivered(attempt, result.error)
    return DeliveryCompletion(
        delivery_id=delivery.id,
        fence=delivery.fence,
        retry_in=retry_in,
        counts=counts,
        progress=progress,
        error=result.error,
        code=result.code,
        receipt=result.digest if isinstance(result, Retry) else "",
        inbox=notice,
    )
