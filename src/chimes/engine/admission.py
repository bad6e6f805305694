"""Whether what a node has taken from the outbox is sent at all, and by it."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.delivery.base import Refused, Result, Retry
from chimes.engine.digests import left_behind
from chimes.engine.readers import Readers
from chimes.engine.storetime import StoreTime
from chimes.model.delivery import MOST_ATTEMPTS, Delivery
from chimes.model.recipient import Channel
from chimes.store.port import Store
from chimes.wording import say

#: What no node can send is given up after that; nodes may be away for a while, one by one.
OVERDUE = timedelta(hours=1)
#: Seconds between two words to the others that a channel which is not everywhere is here.
SAY_EVERY = 600.0
#: That one owner's runs may send.
EMAILS_AN_HOUR = 100
SETTING_OF = {
    Channel.TELEGRAM: "CHIMES_TELEGRAM_TOKEN",
    Channel.EMAIL: say("CHIMES_SMTP_URL and CHIMES_SMTP_FROM"),
}
#: The kept state of a channel: when a node that has it last said so.
SENT_HERE = "sends:"


class Admission:
    def __init__(
        self, store: Store, senders: Collection[Channel], *, time: StoreTime, clock: Clock
    ) -> None:
        """`senders`: the channels that this node has."""
        self._store = store
        self._senders = senders
        self._time = time
        self._clock = clock
        self._say_from = -math.inf

    async def answer(self, delivery: Delivery, readers: Readers) -> Result | None:
        """What is to be said of the delivery without sending it; None: it is to be sent.

        One whose senders all died is not sent for ever."""
        if delivery.attempts > MOST_ATTEMPTS:
            return Refused(
                error=say(
                    "begun {times} times, and no sender lived to say what became of it",
                    times=MOST_ATTEMPTS,
                ),
                code="lost",
            )
        recipient = delivery.recipient
        if recipient.collects(delivery.occasion):
            return await left_behind(self._store, delivery, await self._time.ask())
        if (waiting := await self._quiet(delivery)) is not None:
            return waiting
        channel = recipient.channel
        if channel not in self._senders:
            return await self._not_here(channel)
        refusal = await readers.refusal(delivery)
        if refusal is not None or channel is not Channel.EMAIL:
            return refusal
        return await self._too_many(delivery)

    async def _quiet(self, delivery: Delivery) -> Retry | None:
        """What came before the quiet hours, and could not be sent until then."""
        if delivery.recipient.quiet is None:
            return None
        now = await self._time.ask()
        until = delivery.recipient.quiet_until(now, delivery.occasion)
        if until is None:
            return None
        error = say("waits for the end of the quiet hours")
        return Retry(error=error, code="quiet", after=until - now, holds_back=True)

    async def _too_many(self, delivery: Delivery) -> Retry | None:
        """Nobody's schedules make a mail relay of us."""
        taken = await self._store.take_tokens(
            f"email:{delivery.owner}", rate=EMAILS_AN_HOUR / 3600, burst=EMAILS_AN_HOUR
        )
        if taken.granted:
            return None
        return Retry(
            error=say(
                "more than {most} e-mails an hour: it waits for its turn",
                most=EMAILS_AN_HOUR,
            ),
            code="rate_limited",
            after=taken.wait,
            holds_back=True,
        )

    async def _not_here(self, channel: Channel) -> Result:
        if await self._is_elsewhere(channel):
            error = say("waits for a node that can send by {channel}", channel=channel.value)
            return Retry(error=error, code="waits", after=OVERDUE / 6, holds_back=True)
        setting = SETTING_OF.get(channel, channel.value)
        return Refused(
            error=say(
                "no node can send by {channel}: set {setting}",
                channel=channel.value,
                setting=setting,
            ),
            code="not_configured",
        )

    async def say_what_is_here(self) -> None:
        """So that nobody who has it not gives up what waits for us: a channel may be slow."""
        now = self._clock.monotonic()
        rare = [channel for channel in SETTING_OF if channel in self._senders]
        if not rare or now < self._say_from:
            return
        at = (await self._time.ask()).isoformat()
        for channel in rare:
            await self._store.set_state(SENT_HERE + channel.value, at)
        self._say_from = now + SAY_EVERY

    async def _is_elsewhere(self, channel: Channel) -> bool:
        said = await self._store.read_state(SENT_HERE + channel.value)
        if said is None:
            return False
        return await self._time.ask() - datetime.fromisoformat(said.value) < OVERDUE
