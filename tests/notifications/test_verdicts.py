"""How often and how long it is tried to hand a message over (F75)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    MAX_RATE_LIMITED_CLAIMS,
    Delivery,
    DeliveryState,
    claim_delivery,
    complete_delivery,
)
from chimes.notifications.base import Refused, Result, Retry, Sent
from chimes.notifications.outcomes import verdict_of
from tests.builders import NOW, a_delivery
from tests.notifications.letters import a_letter, a_recipient

HOLD = timedelta(minutes=3)
DOWN = Retry(error="unreachable", code="unreachable")
BUSY = Retry(error="429", code="rate_limited", after=timedelta(seconds=7), holds_back=True)


def tried(delivery: Delivery, result: Result) -> Delivery:
    """One attempt, as soon as it is due."""
    now = delivery.available_at
    begun = claim_delivery(delivery, now, HOLD)
    return complete_delivery(begun, verdict_of(begun, a_letter(), result), now)


def a_pending_one() -> Delivery:
    return a_delivery(recipient=a_recipient(), created_at=NOW, available_at=NOW)


# A mail server that was away for a night loses nothing
def test_an_outage_of_hours_loses_nothing() -> None:
    delivery = a_pending_one()
    while delivery.available_at - NOW < timedelta(hours=20):
        delivery = tried(delivery, DOWN)
        assert delivery.state is DeliveryState.PENDING
    assert tried(delivery, Sent()).state is DeliveryState.DELIVERED


def test_it_is_given_up_after_about_a_day() -> None:
    delivery, tries = a_pending_one(), 0
    while delivery.state is DeliveryState.PENDING:
        delivery, tries = tried(delivery, DOWN), tries + 1
    assert tries == delivery.attempts == MAX_DELIVERY_ATTEMPTS
    assert delivery.available_at - NOW < timedelta(hours=25)


def test_being_told_to_come_back_later_uses_up_no_attempt() -> None:
    delivery = a_pending_one()
    for _ in range(100):
        delivery = tried(delivery, BUSY)
    assert (delivery.state, delivery.attempts) == (DeliveryState.PENDING, 0)
    again = tried(delivery, BUSY)
    assert timedelta(seconds=7) <= again.available_at - delivery.available_at <= HOLD * 2
    assert tried(again, DOWN).attempts == 1


def test_nobody_is_asked_for_ever() -> None:
    delivery, tries = a_pending_one(), 0
    while delivery.state is DeliveryState.PENDING:
        delivery, tries = tried(delivery, BUSY), tries + 1
    assert tries == MAX_RATE_LIMITED_CLAIMS + MAX_DELIVERY_ATTEMPTS


def test_what_is_refused_is_given_up_at_once() -> None:
    dead = tried(a_pending_one(), Refused(error="no", code="blocked"))
    assert (dead.state, dead.attempts) == (DeliveryState.DEAD, 1)
    begun = claim_delivery(replace(dead, state=DeliveryState.PENDING), NOW, HOLD)
    assert verdict_of(begun, a_letter(), Refused(error="no", code="x")).inbox is not None
