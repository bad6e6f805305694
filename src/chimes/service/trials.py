"""A message to see whether messages arrive, by the way that all of them go (UX A.3, A.4, A.8)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from chimes.delivery.words import CHANNELS
from chimes.errors import NotAllowed, NotFound, RateLimited
from chimes.model.access import Actor
from chimes.model.change import replace
from chimes.model.delivery import Delivery, DeliveryState, trial_delivery
from chimes.model.listing import DeliveryQuery
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.redaction import masked_url
from chimes.service.audit import entry
from chimes.store.port import Store
from chimes.wording import Wording, say

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
    def words(self) -> Wording:
        channel = CHANNELS[self.delivery.recipient.channel]
        if self.state is DeliveryState.DELIVERED:
            return say("The test by {channel} has arrived.", channel=channel)
        if self.state is DeliveryState.DEAD:
            return say(
                "The test by {channel} did not arrive: {error}",
                channel=channel,
                error=self.delivery.error,
            )
        if self.delivery.error:
            return say(
                "The test by {channel} has not arrived yet, and is tried again: {error}",
                channel=channel,
                error=self.delivery.error,
            )
        return say("The test by {channel} is on its way.", channel=channel)

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
                raise NotFound(say("the schedule has no such recipient"))
        await self._not_too_many(actor)
        now = await self._store.now()
        test = trial_delivery(recipient, owner, uuid.uuid4().hex, now)
        if schedule is not None:
            test = replace(test, schedule_id=schedule.id, schedule_name=schedule.name)
        note = entry(
            actor,
            "test",
            "delivery",
            test.id,
            at=now,
            owner=owner,
            changes={"channel": recipient.channel.value, "to": masked_url(recipient.to)},
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
                say("so many tests at once are enough; try again in a minute"),
                retry_after=taken.wait,
            )
