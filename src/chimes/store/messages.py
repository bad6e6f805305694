"""The part of the store port that is about messages: deliveries, the inbox, and the limits that
nodes share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, DeliveryVerdict, InboxItem
from chimes.model.ids import DeliveryId, InboxId
from chimes.model.listing import DeliveryQuery, InboxQuery, Page
from chimes.model.recipient import Channel


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What came of asking for tokens."""

    #: None, or as many as were asked for.
    granted: int
    #: Whole tokens that are left.
    remaining: int
    #: When as many as were asked for will be there; zero if they were granted.
    wait: timedelta


class Messages(Protocol):
    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        """One that no run has written; one whose id exists is answered with the existing one, and
        `audit` is not appended. Wakes."""

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, hold: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        """Hand out up to `limit` pending deliveries with available_at <= now, oldest available_at
        first, then id; each comes back `delivery_begun`. Those of other channels only if they have
        been available for more than `overdue`: nobody who can send them has come. Two callers
        never get the same one before `hold` is over."""

    async def finish_deliveries(self, verdicts: Sequence[DeliveryVerdict]) -> tuple[Delivery, ...]:
        """`delivery_settled`, each only under its current fence, with the inbox items they bring;
        those that were accepted, as they are now."""

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        """`delivery_reopened`; None: no such delivery. Wakes."""

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]: ...

    async def next_delivery(self) -> datetime | None:
        """The earliest available_at of what is pending; cheap, from an index."""

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        """One whose id exists is answered with the existing one."""

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]: ...

    async def count_unread(self, query: InboxQuery) -> int:
        """How many unread ones the query matches on all its pages."""

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        """As change_schedule; NotFound if there is none."""

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        """Those of these, at most a thousand, that there are, starred or not; how many."""

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        """Forget deliveries that finished before `before`, and then inbox items created before it
        that are not starred, each the oldest first (their time, id); how many. Buckets of tokens
        that are full by now may go with them."""

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(self, name: str, *, rate: float, burst: int, count: int = 1) -> Taken:
        """A bucket that all nodes share, by the store's clock: `rate` tokens come in a second, at
        most `burst` lie in it, and it begins full. All of `count` or none. It may be forgotten
        when it is full, and need not survive a crash."""
