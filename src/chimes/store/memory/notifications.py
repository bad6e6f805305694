"""Deliveries, inbox and token buckets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.access import AuditEntry
from chimes.model.definition import Channel
from chimes.model.ids import DeliveryId, InboxId
from chimes.model.listing import DeliveryQuery, InboxQuery, Page
from chimes.model.notification import (
    Delivery,
    DeliveryCompletion,
    DeliveryState,
    InboxItem,
    claim_delivery,
    complete_delivery,
    owns_delivery_fence,
    reopen_delivery,
)
from chimes.store.memory.base import MemoryBase
from chimes.store.port import TokenGrant
from chimes.store.selection import matches_inbox, select_deliveries, select_inbox
from chimes.store.token_bucket import refilled_until, take_from

MOST_BUCKETS = 10_000


class MemoryMessageStore(MemoryBase):
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        with self._lock:
            if not self._state.add_delivery(delivery):
                return self._state.deliveries[delivery.id]
            self._audit(audit)
        await self._commit()
        self.wake()
        return delivery

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        with self._lock:
            now = self._clock.now()
            due = [
                each
                for each in self._pending()
                if each.available_at <= now
                and (each.recipient.channel in channels or each.available_at <= now - overdue)
            ]
            due.sort(key=lambda each: (each.available_at, each.id))
            taken = tuple(claim_delivery(each, now, lease) for each in due[:limit])
            self._state.deliveries.update((each.id, each) for each in taken)
        if taken:
            await self._commit()
        return taken

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        accepted = []
        with self._lock:
            now = self._clock.now()
            for completion in completions:
                before = self._state.deliveries.get(completion.delivery_id)
                if before is None or not owns_delivery_fence(before, completion.fence):
                    continue
                after = complete_delivery(before, completion, now)
                self._state.deliveries[after.id] = after
                if completion.inbox is not None:
                    self._state.inbox.setdefault(completion.inbox.id, completion.inbox)
                accepted.append(after)
        if accepted:
            await self._commit()
            self.wake()
        return tuple(accepted)

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        with self._lock:
            before = self._state.deliveries.get(delivery_id)
            if before is None:
                return None
            after = reopen_delivery(before, self._clock.now())
            self._state.deliveries[delivery_id] = after
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]:
        with self._lock:
            return select_deliveries(self._state.deliveries.values(), query)

    async def next_delivery(self) -> datetime | None:
        with self._lock:
            return min((each.available_at for each in self._pending()), default=None)

    def _pending(self) -> list[Delivery]:
        every = self._state.deliveries.values()
        return [each for each in every if each.state is DeliveryState.PENDING]

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        with self._lock:
            kept = self._state.inbox.setdefault(item.id, item)
        await self._commit()
        return kept

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]:
        with self._lock:
            return select_inbox(self._state.inbox.values(), query)

    async def count_unread(self, query: InboxQuery) -> int:
        with self._lock:
            unread = replace(query, unread=True)
            return sum(matches_inbox(item, unread) for item in self._state.inbox.values())

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        with self._lock:
            before = self._state.inbox.get(item_id)
            if before is None:
                raise NotFound(_("inbox item {id} not found", id=item_id))
            after = change(before, self._clock.now())
            self._state.inbox[item_id] = after
        await self._commit()
        return after

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        with self._lock:
            gone = [each for each in set(item_ids) if each in self._state.inbox]
            for item_id in gone:
                del self._state.inbox[item_id]
        if gone:
            await self._commit()
        return len(gone)

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        with self._lock:
            ended = [
                (each.finished_at, each.id)
                for each in self._state.deliveries.values()
                if each.finished_at is not None and each.finished_at < before
            ]
            old = [
                (item.created_at, item.id)
                for item in self._state.inbox.values()
                if item.created_at < before and not item.starred
            ]
            gone = sorted(ended)[:limit]
            items = sorted(old)[: limit - len(gone)]
            for _unused, delivery_id in gone:
                del self._state.deliveries[delivery_id]
            for _unused, item_id in items:
                del self._state.inbox[item_id]
        if gone or items:
            await self._commit()
        return len(gone) + len(items)

    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        with self._lock:
            now = self._clock.now()
            tokens, at = self._state.buckets.get(name, (float(burst), now))
            tokens, taken = take_from(
                tokens, (now - at).total_seconds(), rate=rate, burst=burst, count=count
            )
            self._state.buckets.pop(name, None)
            self._state.buckets[name] = (tokens, refilled_until(at, now))
            if len(self._state.buckets) > MOST_BUCKETS:
                del self._state.buckets[next(iter(self._state.buckets))]
        return taken
