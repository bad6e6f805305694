"""Deliveries and the inbox: concurrent deletion, retries, limits, permissions."""

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


class DeletingStore(MemoryStore):
    """Deletes a delivery after it was read."""

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        return None


async def test_retry_of_a_delivery_deleted_meanwhile_is_not_found() -> None:
    store = DeletingStore(SettableClock())
    delivery = a_delivery()
    await store.load([delivery])
    with pytest.raises(NotFound, match=delivery.id):
        await NotificationService(store).retry_delivery(Actor(), delivery.id)


# It could arrive twice.
async def test_retry_of_a_delivery_being_sent_is_a_conflict() -> None:
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


async def test_mark_all_read_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MARKED", 2)
    monkeypatch.setattr(messages, "_PAGE", 2)
    store = MemoryStore(SettableClock())
    for _ in range(5):
        await store.add_inbox(an_item())
    service = NotificationService(store)
    assert await service.mark_all_read(Actor(), InboxQuery()) == 2
    assert await store.count_unread(InboxQuery()) == 3


# An operator sees all messages but has its own inbox.
@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
async def test_inbox_of_the_actor_unless_an_owner_is_named(role: Role) -> None:
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


async def test_only_owner_and_admin_change_an_item() -> None:
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
