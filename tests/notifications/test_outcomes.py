"""Retries of deliveries: number of attempts, delays, rate limits, permanent failures."""

from __future__ import annotations

from datetime import timedelta

from chimes.model import replace
from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    MAX_RATE_LIMITED_CLAIMS,
    Delivery,
    DeliveryState,
    claim_delivery,
    complete_delivery,
)
from chimes.notifications.base import Refused, Result, Retry, Sent
from chimes.notifications.outcomes import completion_of
from tests.builders import NOW, a_delivery
from tests.notifications.attempts import a_recipient, an_attempt

HOLD = timedelta(minutes=3)
DOWN = Retry(error="unreachable", code="unreachable")
BUSY = Retry(error="429", code="rate_limited", after=timedelta(seconds=7), rate_limited=True)


def attempt(delivery: Delivery, result: Result) -> Delivery:
    """Executes one attempt as soon as it is due."""
    now = delivery.available_at
    claimed = claim_delivery(delivery, now, HOLD)
    return complete_delivery(claimed, completion_of(claimed, an_attempt(), result), now)


def a_pending_delivery() -> Delivery:
    return a_delivery(recipient=a_recipient(), created_at=NOW, available_at=NOW)


def test_an_outage_of_hours_loses_no_message() -> None:
    delivery = a_pending_delivery()
    while delivery.available_at - NOW < timedelta(hours=20):
        delivery = attempt(delivery, DOWN)
        assert delivery.state is DeliveryState.PENDING
    assert attempt(delivery, Sent()).state is DeliveryState.DELIVERED


def test_delivery_is_dead_after_about_a_day() -> None:
    delivery, tries = a_pending_delivery(), 0
    while delivery.state is DeliveryState.PENDING:
        delivery, tries = attempt(delivery, DOWN), tries + 1
    assert tries == delivery.attempts == MAX_DELIVERY_ATTEMPTS
    assert delivery.available_at - NOW < timedelta(hours=25)


def test_rate_limiting_uses_no_attempt() -> None:
    delivery = a_pending_delivery()
    for _ in range(100):
        delivery = attempt(delivery, BUSY)
    assert (delivery.state, delivery.attempts) == (DeliveryState.PENDING, 0)
    again = attempt(delivery, BUSY)
    assert timedelta(seconds=7) <= again.available_at - delivery.available_at <= HOLD * 2
    assert attempt(again, DOWN).attempts == 1


def test_rate_limited_claims_are_limited() -> None:
    delivery, tries = a_pending_delivery(), 0
    while delivery.state is DeliveryState.PENDING:
        delivery, tries = attempt(delivery, BUSY), tries + 1
    assert tries == MAX_RATE_LIMITED_CLAIMS + MAX_DELIVERY_ATTEMPTS


def test_permanent_failure_is_dead_after_one_attempt() -> None:
    dead = attempt(a_pending_delivery(), Refused(error="no", code="blocked"))
    assert (dead.state, dead.attempts) == (DeliveryState.DEAD, 1)
    claimed = claim_delivery(replace(dead, state=DeliveryState.PENDING), NOW, HOLD)
    assert completion_of(claimed, an_attempt(), Refused(error="no", code="x")).inbox is not None
