"""Notifications: deliveries, test notifications and the inbox."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NoReturn

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound, RateLimited
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.access import Actor, Owner, Role
from chimes.model.audit import entry
from chimes.model.ids import DeliveryId, InboxId, RunId
from chimes.model.listing import DeliveryQuery, InboxQuery, Page
from chimes.model.notification import (
    DELIVERY_LEASE,
    READ,
    Delivery,
    DeliveryState,
    InboxChange,
    InboxItem,
    change_inbox_item,
    make_test_delivery,
)
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.model.validation import check_recipients
from chimes.notifications.message import CHANNELS
from chimes.redaction import mask_url
from chimes.store.port import Store

#: Test notifications of one owner: so many at once, then one per interval.
TEST_BURST = 5
TEST_INTERVAL_SECONDS = 60.0
#: How long `send_test` waits for the result.
TEST_WAIT = timedelta(seconds=10)
#: Minimum seconds between two polls of a test delivery.
_POLL_SECONDS = 0.05
#: Inbox items marked as read in one call.
MAX_MARKED = 1000
_PAGE = 200
DONE = InboxChange(read=True, archived=True)

#: Raises InvalidInput for a recipient that the actor may not notify.
CheckRecipient = Callable[[Actor, Recipient], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SentTest:
    """A test notification and its state after the wait."""

    delivery: Delivery

    @property
    def state(self) -> DeliveryState:
        return self.delivery.state

    @property
    def words(self) -> Message:
        channel = CHANNELS[self.delivery.recipient.channel]
        if self.state is DeliveryState.DELIVERED:
            return _("Test notification delivered ({channel}).", channel=channel)
        if self.state is DeliveryState.DEAD:
            return _(
                "Test notification failed ({channel}): {error}",
                channel=channel,
                error=self.delivery.error,
            )
        if self.delivery.error:
            return _(
                "Test notification not delivered yet ({channel}), retrying: {error}",
                channel=channel,
                error=self.delivery.error,
            )
        return _("Test notification queued ({channel}).", channel=channel)

    @property
    def kind(self) -> Literal["done", "warning", "error"]:
        if self.state is DeliveryState.DELIVERED:
            return "done"
        return "error" if self.state is DeliveryState.DEAD else "warning"


async def check_recipient(actor: Actor, recipient: Recipient) -> None:
    """The checks that need no store."""
    check_recipients([recipient])


class NotificationService:
    """Messages of other owners are NotFound, except for actors that see everything."""

    def __init__(self, store: Store, check: CheckRecipient = check_recipient) -> None:
        """`check`: called with the recipient of a test notification."""
        self._store = store
        self._check = check

    # --- deliveries ---------------------------------------------------------------------------
    async def list_deliveries(self, actor: Actor, query: DeliveryQuery) -> Page[Delivery]:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.list_deliveries(query)

    async def get_delivery(self, actor: Actor, delivery_id: DeliveryId) -> Delivery:
        found = (await self._store.list_deliveries(DeliveryQuery(ids=(delivery_id,)))).items
        if not found or not actor.may_see(found[0].owner):
            raise _no_delivery(delivery_id)
        return found[0]

    async def retry_delivery(self, actor: Actor, delivery_id: DeliveryId) -> Delivery:
        """Retries a dead or waiting delivery now. Conflict while a node may be sending it, because
        it could then be sent twice."""
        delivery = await self.get_delivery(actor, delivery_id)
        if not actor.may_operate(delivery.owner):
            raise NotAllowed()
        if delivery.state is DeliveryState.DELIVERED:
            raise Conflict(_("the notification is already delivered"), code="delivered")
        now = await self._store.now()
        if delivery.may_be_sending(now):
            minutes = DELIVERY_LEASE.seconds // 60
            raise Conflict(
                _(
                    "the notification is being sent; it is retried within {minutes} minutes",
                    minutes=minutes,
                ),
                code="under_way",
            )
        audit = entry(
            actor,
            "retry",
            "delivery",
            delivery_id,
            at=now,
            owner=delivery.owner,
            changes={"run_id": delivery.run_id, "channel": delivery.recipient.channel.value},
        )
        after = await self._store.retry_delivery(delivery_id, audit)
        if after is None:
            raise _no_delivery(delivery_id)
        return after

    async def send_test(
        self,
        actor: Actor,
        recipient: Recipient,
        *,
        schedule: Schedule | None = None,
        wait: timedelta = TEST_WAIT,
    ) -> SentTest:
        """Sends a real message, marked as a test, without quiet hours and digests.

        With `schedule` the recipient must be one of its recipients; otherwise it must be one that
        the actor may save. Waits for the result. Raises InvalidInput, NotFound, RateLimited.
        """
        owner = actor.owner
        if schedule is None:
            if not actor.may_create(owner):
                raise NotAllowed()
            await self._check(actor, recipient)
        else:
            owner = schedule.owner
            if not actor.may_operate(owner):
                raise NotAllowed()
            if recipient not in schedule.policy.delivery:
                raise NotFound(_("the schedule has no such recipient"))
        await self._limit_tests(actor)
        now = await self._store.now()
        test = make_test_delivery(recipient, owner, uuid.uuid4().hex, now)
        if schedule is not None:
            test = replace(test, schedule_id=schedule.id, schedule_name=schedule.name)
        audit = entry(
            actor,
            "test",
            "delivery",
            test.id,
            at=now,
            owner=owner,
            changes={"channel": recipient.channel.value, "to": mask_url(recipient.to)},
        )
        test = await self._store.add_delivery(test, audit)
        return SentTest(delivery=await self._wait_for_result(test, wait))

    async def _limit_tests(self, actor: Actor) -> None:
        taken = await self._store.take_tokens(
            f"test:{actor.owner}", rate=1 / TEST_INTERVAL_SECONDS, burst=TEST_BURST
        )
        if not taken.granted:
            raise RateLimited(
                _("too many test notifications; try again in a minute"), retry_after=taken.wait
            )

    async def _wait_for_result(self, test: Delivery, wait: timedelta) -> Delivery:
        """The delivery once its first attempt has a result, or after `wait`."""
        until = test.created_at + wait
        while True:
            since = self._store.changes()
            found = (await self._store.list_deliveries(DeliveryQuery(ids=(test.id,)))).items
            if not found:
                return test
            test = found[0]
            attempted = test.state is not DeliveryState.PENDING or bool(test.error)
            if attempted or await self._store.now() >= until:
                return test
            await self._store.wait_for_work(since, until)
            await asyncio.sleep(_POLL_SECONDS)

    # --- the inbox ----------------------------------------------------------------------------
    async def list_inbox(self, actor: Actor, query: InboxQuery) -> tuple[Page[InboxItem], int]:
        """A page, and the number of unread items on all pages."""
        query = _inbox_of(actor, query)
        return await self._store.list_inbox(query), await self._store.count_unread(query)

    async def get_inbox_item(self, actor: Actor, item_id: InboxId) -> InboxItem:
        try:
            await self._store.change_inbox(item_id, _raise_item)
        except _Found as found:
            if actor.may_see(found.item.owner):
                return found.item
        except NotFound:
            pass
        raise _no_item(item_id)

    async def change_inbox_item(
        self, actor: Actor, item_id: InboxId, change: InboxChange
    ) -> InboxItem:
        def changed(item: InboxItem, now: datetime) -> InboxItem:
            if not actor.may_see(item.owner):
                raise NotFound
            if not _may_change(actor, item.owner):
                raise NotAllowed()
            until = change.snoozed_until
            if isinstance(until, datetime) and until <= now:
                raise InvalidInput(_("is in the past"), field="snoozed_until", code="in_the_past")
            return change_inbox_item(item, change, now)

        try:
            return await self._store.change_inbox(item_id, changed)
        except NotFound:
            # The same error for an item of another owner and for one that does not exist.
            raise _no_item(item_id) from None

    async def mark_done(self, actors: Sequence[Actor], run_id: RunId) -> None:
        """Archives the inbox items about a run, for a "Done" button in another channel, and adds an
        audit entry to the run."""
        run = await self._store.get_run(run_id)
        for actor in actors:
            query = InboxQuery(owner=actor.owner, run_id=run_id, limit=_PAGE)
            for item in (await self._store.list_inbox(query)).items:
                await self.change_inbox_item(actor, item.id, DONE)
        if run is not None and any(actor.may_see(run.owner) for actor in actors):
            now = await self._store.now()
            audit = entry(actors[0], "done", "run", run_id, at=now, owner=run.owner)
            await self._store.append_audit(audit)

    async def mark_all_read(self, actor: Actor, query: InboxQuery) -> int:
        """Marks the items that the query finds as read, and returns their number."""
        query = _inbox_of(actor, query)
        if not _may_change(actor, query.owner or actor.owner):
            raise NotAllowed()
        query = replace(query, unread=True, after=None, limit=_PAGE)
        marked = 0
        while marked < MAX_MARKED:
            page = await self._store.list_inbox(query)
            for item in page.items:
                await self.change_inbox_item(actor, item.id, READ)
            marked += len(page.items)
            if page.next is None:
                break
            query = replace(query, after=page.next)
        return marked


def _inbox_of(actor: Actor, query: InboxQuery) -> InboxQuery:
    """Limits the query to the actor's own items, unless it names an owner that the actor may see.
    In open mode the actor is the only user, and all items are its own."""
    if actor.key_id is None and actor.administers:
        return query
    named = query.owner is not None and actor.may_see(query.owner)
    return query if named else replace(query, owner=actor.owner)


def _may_change(actor: Actor, owner: Owner) -> bool:
    """An operator may not change the inbox of other owners."""
    return actor.may_operate(owner) and (owner == actor.owner or actor.role is Role.ADMIN)


class _Found(Exception):
    """Raised instead of a change, to read an item without writing it."""

    def __init__(self, item: InboxItem) -> None:
        super().__init__(item.id)
        self.item = item


def _raise_item(item: InboxItem, now: datetime) -> NoReturn:
    raise _Found(item)


def _no_delivery(delivery_id: DeliveryId) -> NotFound:
    return NotFound(_("delivery {id} not found", id=delivery_id))


def _no_item(item_id: InboxId) -> NotFound:
    return NotFound(_("message {id} not found", id=item_id))
