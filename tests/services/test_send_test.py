"""Test notifications."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import InvalidInput, NotAllowed, NotFound, RateLimited
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import KeyId
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.notification import DeliveryCompletion, DeliveryState
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.services.notifications import TEST_BURST, TEST_INTERVAL_SECONDS, NotificationService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, a_schedule

HOOK = Recipient(channel=Channel.WEBHOOK, to="https://example.com/h?token=abcdefgh")
NO_WAIT = timedelta()


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> MemoryStore:
    return MemoryStore(clock)


def member(role: Role = Role.MEMBER) -> Actor:
    return Actor(owner=ALICE, role=role, key_id=KeyId("k"))


async def complete_delivery_with(store: MemoryStore, **given: Any) -> None:
    """Completes the pending delivery, as the deliverer does."""
    async with asyncio.timeout(60):
        while not (found := (await store.list_deliveries(DeliveryQuery())).items):
            await store.wait_for_work(store.changes(), None)
    completion = DeliveryCompletion(delivery_id=found[0].id, fence=found[0].fence, **given)
    await store.finish_deliveries([completion])


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"sent": True}, "done", "Test notification delivered (webhook)."),
        ({"error": "HTTP 410"}, "error", "Test notification failed (webhook): HTTP 410"),
        (
            {"error": "HTTP 500", "retry_in": timedelta(hours=1)},
            "warning",
            "Test notification not delivered yet (webhook), retrying: HTTP 500",
        ),
    ],
)
async def test_result_of_a_test_notification(
    store: MemoryStore, given: dict[str, object], kind: str, words: str
) -> None:
    sending = NotificationService(store).send_test(member(), HOOK)
    outcome, _ = await asyncio.gather(sending, complete_delivery_with(store, **given))
    assert (outcome.kind, str(outcome.words)) == (kind, words)
    assert (outcome.delivery.notify_on, outcome.delivery.owner) == (NotifyOn.TEST, ALICE)
    (note,) = await store.list_audit(AuditQuery())
    assert (note.verb, note.object_kind, note.object_id) == (
        "test",
        "delivery",
        outcome.delivery.id,
    )
    assert "abcdefgh" not in str(note.changes)


async def test_send_test_waits_for_a_limited_time(store: MemoryStore) -> None:
    outcome = await NotificationService(store).send_test(member(), HOOK, wait=NO_WAIT)
    assert (outcome.state, outcome.kind) == (DeliveryState.PENDING, "warning")
    assert str(outcome.words) == "Test notification queued (webhook)."


async def test_test_notifications_are_rate_limited(
    store: MemoryStore, clock: SettableClock
) -> None:
    service = NotificationService(store)
    for _ in range(TEST_BURST):
        await service.send_test(member(), HOOK, wait=NO_WAIT)
    with pytest.raises(RateLimited) as refused:
        await service.send_test(member(), HOOK, wait=NO_WAIT)
    assert refused.value.retry_after <= timedelta(seconds=TEST_INTERVAL_SECONDS)
    assert len((await store.list_deliveries(DeliveryQuery())).items) == TEST_BURST
    clock.advance(timedelta(seconds=TEST_INTERVAL_SECONDS))
    await service.send_test(member(), HOOK, wait=NO_WAIT)


# Recipients that cannot be saved get no test.
async def test_test_requires_a_valid_recipient_and_permission(store: MemoryStore) -> None:
    service = NotificationService(store)
    with pytest.raises(InvalidInput):
        await service.send_test(member(), replace(HOOK, to="ftp://x"), wait=NO_WAIT)
    with pytest.raises(NotAllowed):
        await service.send_test(member(Role.VIEWER), HOOK, wait=NO_WAIT)
    assert (await store.list_deliveries(DeliveryQuery())).items == ()


async def test_test_for_a_schedule_uses_its_owner(store: MemoryStore) -> None:
    service = NotificationService(store)
    theirs = a_schedule(owner=BOB, policy=Policy(delivery=(HOOK,)), name="Nightly")
    admin = member(Role.ADMIN)
    outcome = await service.send_test(admin, HOOK, schedule=theirs, wait=NO_WAIT)
    assert (outcome.delivery.owner, outcome.delivery.schedule_name) == (BOB, "Nightly")
    with pytest.raises(NotAllowed):
        await service.send_test(member(), HOOK, schedule=theirs, wait=NO_WAIT)
    other = replace(HOOK, to="https://example.com/other")
    with pytest.raises(NotFound):
        await service.send_test(admin, other, schedule=theirs, wait=NO_WAIT)
