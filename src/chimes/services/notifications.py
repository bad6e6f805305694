"""What was delivered to whom, and what lies in the inbox."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NoReturn

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound, RateLimited
from chimes.i18n import Message, _
from chimes.model.access import Actor, Owner, Role
from chimes.model.change import replace as replace_trials
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
from chimes.services.audit import entry
from chimes.store.port import Store

# @@ A message to see whether messages arrive, by the way that all of them go (UX A.3, A.4, A.8).

#: One owner's: so many at once, then one in so many seconds.
MOST_AT_ONCE = 5
ANOTHER_AFTER = 60.0
PATIENCE = timedelta(seconds=10)
#: Seconds between two looks, however much happens meanwhile.
_PAUSE = 0.05

#: Raises InvalidInput: what may not be saved as a recipient is sent no test either.
CheckRecipient = Callable[[Actor, Recipient], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialOutcome:
    delivery: Delivery

    @property
    def state(self) -> DeliveryState:
        return self.delivery.state

    @property
    def words(self) -> Message:
        channel = CHANNELS[self.delivery.recipient.channel]
        if self.state is DeliveryState.DELIVERED:
            return _("The test by {channel} has arrived.", channel=channel)
        if self.state is DeliveryState.DEAD:
            return _(
                "The test by {channel} did not arrive: {error}",
                channel=channel,
                error=self.delivery.error,
            )
        if self.delivery.error:
            return _(
                "The test by {channel} has not arrived yet, and is tried again: {error}",
                channel=channel,
                error=self.delivery.error,
            )
        return _("The test by {channel} is on its way.", channel=channel)

    @property
    def kind(self) -> Literal["done", "warning", "error"]:
        if self.state is DeliveryState.DELIVERED:
            return "done"
        return "error" if self.state is DeliveryState.DEAD else "warning"


class Trials:
    def __init__(self, store: Store, check: CheckRecipient) -> None:
        self._store = store
        self._check = check

    async def send(
        self, actor: Actor, recipient: Recipient, schedule: Schedule | None, patience: timedelta
    ) -> TrialOutcome:
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
        await self._not_too_many(actor)
        now = await self._store.now()
        test = make_test_delivery(recipient, owner, uuid.uuid4().hex, now)
        if schedule is not None:
            test = replace_trials(test, schedule_id=schedule.id, schedule_name=schedule.name)
        note = entry(
            actor,
            "test",
            "delivery",
            test.id,
            at=now,
            owner=owner,
            changes={"channel": recipient.channel.value, "to": mask_url(recipient.to)},
        )
        test = await self._store.add_delivery(test, note)
        return TrialOutcome(delivery=await self._settled(test, patience))

    async def _settled(self, test: Delivery, patience: timedelta) -> Delivery:
        """As it is when something is known about it, or nobody wants to wait any longer."""
        until = test.created_at + patience
        while True:
            since = self._store.changes()
            found = (await self._store.list_deliveries(DeliveryQuery(ids=(test.id,)))).items
            if not found:
                return test
            test = found[0]
            known = test.state is not DeliveryState.PENDING or bool(test.error)
            if known or await self._store.now() >= until:
                return test
            await self._store.wait_for_work(since, until)
            await asyncio.sleep(_PAUSE)

    async def _not_too_many(self, actor: Actor) -> None:
        taken = await self._store.take_tokens(
            f"test:{actor.owner}", rate=1 / ANOTHER_AFTER, burst=MOST_AT_ONCE
        )
        if not taken.granted:
            raise RateLimited(
                _("so many tests at once are enough; try again in a minute"),
                retry_after=taken.wait,
            )


#: Items that are marked as read in one request; the rest is for the next one.
MOST_MARKED = 1000
_PAGE = 200
DEALT_WITH = InboxChange(read=True, archived=True)


async def check_recipient(actor: Actor, recipient: Recipient) -> None:
    """All that can be said without a store."""
    check_recipients([recipient])


class NotificationService:
    """Other owners' messages do not exist, except for those who see everything."""

    def __init__(self, store: Store, check: CheckRecipient = check_recipient) -> None:
        """`check`: what a recipient must be like to be sent a test."""
        self._store = store
        self._trials = Trials(store, check)

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
        """A dead letter, or one that waits, is tried again from now on; but not one that somebody
        may be sending: it would be sent twice."""
        delivery = await self.get_delivery(actor, delivery_id)
        if not actor.may_operate(delivery.owner):
            raise NotAllowed()
        if delivery.state is DeliveryState.DELIVERED:
            raise Conflict(_("it was delivered already"), code="delivered")
        now = await self._store.now()
        if delivery.may_be_under_way(now):
            minutes = DELIVERY_LEASE.seconds // 60
            raise Conflict(
                _(
                    "it is being sent, or will be by itself within {minutes} minutes",
                    minutes=minutes,
                ),
                code="under_way",
            )
        note = entry(
            actor,
            "retry",
            "delivery",
            delivery_id,
            at=now,
            owner=delivery.owner,
            changes={"run_id": delivery.run_id, "channel": delivery.recipient.channel.value},
        )
        after = await self._store.retry_delivery(delivery_id, note)
        if after is None:
            raise _no_delivery(delivery_id)
        return after

    async def send_test(
        self,
        actor: Actor,
        recipient: Recipient,
        *,
        schedule: Schedule | None = None,
        patience: timedelta = PATIENCE,
    ) -> TrialOutcome:
        """A real message, marked as a test, at once: neither quiet hours nor a digest hold it up.
        To one of the schedule's recipients in its owner's name, or to anybody whom the caller may
        name in its own. Raises what saving such a recipient would, NotFound if the schedule has
        not got it, RateLimited. Waits for `patience` to see what becomes of it."""
        return await self._trials.send(actor, recipient, schedule, patience)

    # --- the inbox ----------------------------------------------------------------------------
    async def list_inbox(self, actor: Actor, query: InboxQuery) -> tuple[Page[InboxItem], int]:
        """A page, and how many unread ones there are on all pages."""
        query = _inbox_of(actor, query)
        return await self._store.list_inbox(query), await self._store.count_unread(query)

    async def get_inbox_item(self, actor: Actor, item_id: InboxId) -> InboxItem:
        try:
            await self._store.change_inbox(item_id, _only_looked_at)
        except _Seen as seen:
            if actor.may_see(seen.item.owner):
                return seen.item
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
                raise InvalidInput(_("lies in the past"), field="snoozed_until", code="in_the_past")
            return change_inbox_item(item, change, now)

        try:
            return await self._store.change_inbox(item_id, changed)
        except NotFound:
            # In the same words, whether it is somebody else's or nobody's (S04).
            raise _no_item(item_id) from None

    async def mark_done(self, actors: Sequence[Actor], run_id: RunId) -> None:
        """Whoever pressed that under a message elsewhere need not read it in the inbox: what it
        holds about the run is put away. It stands in the audit of the run, as every press does."""
        run = await self._store.get_run(run_id)
        for actor in actors:
            query = InboxQuery(owner=actor.owner, run_id=run_id, limit=_PAGE)
            for item in (await self._store.list_inbox(query)).items:
                await self.change_inbox_item(actor, item.id, DEALT_WITH)
        if run is not None and any(actor.may_see(run.owner) for actor in actors):
            now = await self._store.now()
            note = entry(actors[0], "done", "run", run_id, at=now, owner=run.owner)
            await self._store.append_audit(note)

    async def mark_all_read(self, actor: Actor, query: InboxQuery) -> int:
        """Marks what the question finds as read; how many."""
        query = _inbox_of(actor, query)
        if not _may_change(actor, query.owner or actor.owner):
            raise NotAllowed()
        query = replace(query, unread=True, after=None, limit=_PAGE)
        marked = 0
        while marked < MOST_MARKED:
            page = await self._store.list_inbox(query)
            for item in page.items:
                await self.change_inbox_item(actor, item.id, READ)
            marked += len(page.items)
            if page.next is None:
                break
            query = replace(query, after=page.next)
        return marked


def _inbox_of(actor: Actor, query: InboxQuery) -> InboxQuery:
    """The caller's own, unless it names somebody whose messages it may see. Where there are no keys
    the caller is the one user of this machine, and all of them are its own."""
    if actor.key_id is None and actor.administers:
        return query
    named = query.owner is not None and actor.may_see(query.owner)
    return query if named else replace(query, owner=actor.owner)


def _may_change(actor: Actor, owner: Owner) -> bool:
    """What somebody has read is no part of what an operator does for others."""
    return actor.may_operate(owner) and (owner == actor.owner or actor.role is Role.ADMIN)


class _Seen(Exception):
    """Raised instead of a change, so that nothing is written."""

    def __init__(self, item: InboxItem) -> None:
        super().__init__(item.id)
        self.item = item


def _only_looked_at(item: InboxItem, now: datetime) -> NoReturn:
    raise _Seen(item)


def _no_delivery(delivery_id: DeliveryId) -> NotFound:
    return NotFound(_("delivery {id} not found", id=delivery_id))


def _no_item(item_id: InboxId) -> NotFound:
    return NotFound(_("message {id} not found", id=item_id))
