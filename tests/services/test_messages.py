"""Messages: what a store may do between two questions, and how much one request marks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.model.access import Actor, Role
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, KeyId
from chimes.model.listing import InboxQuery
from chimes.model.notification import (
    DELIVERY_LEASE,
    READ,
    Delivery,
    DeliveryCompletion,
    DeliveryState,
)
from chimes.services import notifications as messages
from chimes.services.notifications import NotificationService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, a_delivery, an_item


class Forgetful(MemoryStore):
    """Forgets a delivery as soon as it was looked at."""

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        return None


async def test_a_delivery_that_is_forgotten_meanwhile_is_not_found() -> None:
    store = Forgetful(SettableClock())
    delivery = a_delivery()
    await store.load([delivery])
    with pytest.raises(NotFound, match=delivery.id):
        await NotificationService(store).retry_delivery(Actor(), delivery.id)


# Tried again while somebody sends it, it would arrive twice
async def test_what_is_being_sent_is_not_tried_again_by_hand() -> None:
    clock = SettableClock()
    store = MemoryStore(clock)
    service = NotificationService(store)
    now = clock.now()
    delivery = a_delivery(created_at=now, available_at=now)
    await store.load([delivery])
    assert (await service.retry_delivery(Actor(), delivery.id)).state is DeliveryState.PENDING
    channels = [delivery.recipient.channel]
    (begun,) = await store.claim_deliveries(
        channels, limit=1, lease=DELIVERY_LEASE, overdue=DELIVERY_LEASE
    )
    with pytest.raises(Conflict) as refused:
        await service.retry_delivery(Actor(), delivery.id)
    assert refused.value.details["code"] == "under_way"
    (later,) = await store.finish_deliveries(
        [
            DeliveryCompletion(
                delivery_id=begun.id, fence=begun.fence, retry_in=timedelta(hours=1), error="no"
            )
        ]
    )
    assert (await service.retry_delivery(Actor(), later.id)).available_at == clock.now()


async def test_one_request_marks_no_more_than_is_bearable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MARKED", 2)
    monkeypatch.setattr(messages, "_PAGE", 2)
    store = MemoryStore(SettableClock())
    for _ in range(5):
        await store.add_inbox(an_item())
    service = NotificationService(store)
    assert await service.mark_all_read(Actor(), InboxQuery()) == 2
    assert await store.count_unread(InboxQuery()) == 3


# S04: to see everything is not to have everybody's inbox
@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
async def test_an_inbox_is_ones_own_unless_another_is_named(role: Role) -> None:
    store = MemoryStore(SettableClock())
    service = NotificationService(store)
    theirs = await store.add_inbox(an_item(owner=ALICE))
    own = await store.add_inbox(an_item(owner=BOB))
    caller = Actor(owner=BOB, role=role, key_id=KeyId("k"))
    page, unread = await service.list_inbox(caller, InboxQuery())
    assert ([item.id for item in page.items], unread) == ([own.id], 1)
    page, _ = await service.list_inbox(caller, InboxQuery(owner=ALICE))
    assert [item.id for item in page.items] == [theirs.id]
    assert await service.mark_all_read(caller, InboxQuery()) == 1
    assert await store.count_unread(InboxQuery(owner=ALICE)) == 1


async def test_a_message_is_changed_by_its_owner_or_an_admin() -> None:
    store = MemoryStore(SettableClock())
    service = NotificationService(store)
    theirs = await store.add_inbox(an_item(owner=ALICE))
    operator = Actor(owner=BOB, role=Role.OPERATOR, key_id=KeyId("k"))
    with pytest.raises(NotAllowed):
        await service.change_inbox_item(operator, theirs.id, READ)
    with pytest.raises(NotAllowed):
        await service.mark_all_read(operator, InboxQuery(owner=ALICE))
    own = await store.add_inbox(an_item(owner=BOB))
    await service.change_inbox_item(operator, own.id, READ)
    admin = Actor(owner=BOB, key_id=KeyId("a"))
    assert (await service.change_inbox_item(admin, theirs.id, READ)).read_at is not None
