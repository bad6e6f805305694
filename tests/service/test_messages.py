"""Messages: what a store may do between two questions, and how much one request marks."""

from __future__ import annotations

import pytest

from chimes.errors import NotFound
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery
from chimes.model.ids import DeliveryId
from chimes.model.listing import InboxQuery
from chimes.service import messages
from chimes.service.messages import MessageService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import a_delivery, an_item


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
        await MessageService(store).retry(Actor(), delivery.id)


async def test_one_request_marks_no_more_than_is_bearable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_MARKED", 2)
    monkeypatch.setattr(messages, "_PAGE", 2)
    store = MemoryStore(SettableClock())
    for _ in range(5):
        await store.add_inbox(an_item())
    service = MessageService(store)
    assert await service.read_all(Actor(), InboxQuery()) == 2
    assert await store.count_unread(InboxQuery()) == 3
