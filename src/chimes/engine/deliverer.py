"""The deliverer's duty: hand over what lies in the outbox, each channel at its own pace.

A delivery is work of its own, with its own attempts; whatever becomes of it, its run stays as it
is (R1.11). It is sent at least once: who dies after sending has it sent again by another (F09).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import NamedTuple

from chimes.clock import Clock
from chimes.config import Settings
from chimes.engine.events import (
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    Event,
    Listener,
    RunEnded,
    RunRescued,
    SchedulesFired,
    SenderRaised,
)
from chimes.engine.membership import StoreClock
from chimes.engine.poller import PollNow, NextPoll, PollOnEvent
from chimes.errors import StoreUnavailable
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import DeliveryId, RunId, ScheduleId
from chimes.model.listing import DeliveryQuery, RunQuery
from chimes.model.notification import (
    DIGEST_TIMEOUT,
    DELIVERY_LEASE,
    MAX_DELIVERY_ATTEMPTS,
    Delivery,
    DeliveryState,
    DeliveryCompletion,
    belongs_to_digest,
    digest_id_for,
    digest_of,
)
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import Run
from chimes.notifications.base import Letter, Progress, Refused, Result, Retry, Sender, Sent
from chimes.notifications.digest import Gathered, digest_message
from chimes.notifications.message import (
    USUAL,
    NotificationMessage,
    bare_message,
    message_of,
    trial_message,
)
from chimes.notifications.outcomes import taken_along, verdict_of
from chimes.services.preferences import Preferences, PreferenceService
from chimes.services.validation import LINKED_CHAT
from chimes.store.port import Store
from chimes.triggers import Cron, Once

# @@ What digests take along, and what they leave behind (ADR 32).

#: PollOnEvent of, and settled in one transaction with their digest; the others are only settled.
MOST_GATHERED = 10_000
#: What no digest took along in so many of its periods, and two days, is given up.
MOST_PERIODS = 3
_SPARE = timedelta(days=2)
_PAGE = 500


async def gathered(store: Store, digest: Delivery) -> Gathered:
    """Nothing is changed: they are settled when the digest has been sent. How long that may take
    is for the caller to say."""
    found: list[Delivery] = []
    async with aclosing(_members(store, digest)) as pages:
        async for members in pages:
            found += members
            if len(found) > MOST_GATHERED:
                break
    return Gathered(members=tuple(found[:MOST_GATHERED]), more=len(found) > MOST_GATHERED)


async def settle_others(store: Store, digest: Delivery, told: Gathered) -> None:
    """Those of a digest that was sent for which it had no room: it has said that there are more.
    What is not reached goes with the next one."""
    known = {each.id for each in told.members}
    async for members in _members(store, digest):
        others = [each for each in members if each.id not in known]
        verdicts = taken_along(others, digest)
        if verdicts:
            accepted = {each.id for each in await store.finish_deliveries(verdicts)}
            await settle_missed(
                store, [each for each in verdicts if each.delivery_id not in accepted]
            )


async def settle_missed(store: Store, missed: Sequence[DeliveryCompletion]) -> None:
    """Those of a digest that was sent which somebody has taken in hand meanwhile, only to find out
    that they wait for it: nobody else tells them, so the fence is no matter."""
    for start in range(0, len(missed), _PAGE):
        some = {each.delivery_id: each for each in missed[start : start + _PAGE]}
        query = DeliveryQuery(ids=tuple(some), states=(DeliveryState.PENDING,), limit=None)
        found = (await store.list_deliveries(query)).items
        if found:
            await store.finish_deliveries(
                [replace(some[each.id], fence=each.fence) for each in found]
            )


async def _members(store: Store, digest: Delivery) -> AsyncGenerator[list[Delivery], None]:
    """All that it is to take along, by pages."""
    query = DeliveryQuery(
        owner=digest.owner,
        channel=digest.recipient.channel,
        states=(DeliveryState.PENDING,),
        limit=_PAGE,
    )
    while True:
        page = await store.list_deliveries(query)
        yield [each for each in page.items if belongs_to_digest(each, digest)]
        if page.next is None:
            return
        query = replace(query, after=page.next)


async def runs_of(store: Store, ids: set[RunId]) -> dict[RunId, Run]:
    if not ids:
        return {}
    page = await store.list_runs(RunQuery(ids=tuple(sorted(ids)), limit=None))
    return {run.id: run for run in page.items}


async def left_behind(store: Store, member: Delivery, now: datetime) -> Result:
    """About one that was to be part of a digest and is still there: it waits for that digest if it
    is still to come; if not, for the next one, which is seen to be there."""
    known = (await store.list_deliveries(DeliveryQuery(ids=(digest_id_for(member),)))).items
    if known and known[0].state is DeliveryState.PENDING:
        return _waits(DIGEST_TIMEOUT)
    digest = member.recipient.digest
    assert digest is not None
    if now - member.created_at > MOST_PERIODS * digest.length + _SPARE:
        return Refused(error=_("no digest could be delivered that has it"), code="digest")
    following = await store.add_delivery(digest_of(member, now))
    wait = max(following.available_at - now, timedelta()) + DIGEST_TIMEOUT
    return replace(_waits(wait), digest=following.id)


def _waits(wait: timedelta) -> Retry:
    error = _("waits for the next digest")
    return Retry(error=error, code="digest", after=wait, holds_back=True)


# @@ What became of deliveries, on its way into the store in small batches; kept through outages,
# because the fence makes a late one harmless and dropping it would send a message again.

BATCH = 100
#: In one transaction, with those that go along; a single one that brings more goes alone.
MOST_VERDICTS = 2_000


class _Waiting(NamedTuple):
    verdict: DeliveryCompletion
    delivery: Delivery
    seconds: float
    along: tuple[DeliveryCompletion, ...]


class DeliveryRecorder:
    name = "delivery recorder"

    def __init__(
        self,
        store: Store,
        tell: Listener,
        settled: Callable[[Delivery], None] = lambda _unused: None,
    ) -> None:
        """`settled` gets each delivery as it is now."""
        self._store = store
        self._tell = tell
        self._settled = settled
        self._pending: dict[tuple[DeliveryId, int], _Waiting] = {}
        self._arrived = asyncio.Event()

    def put(
        self,
        verdict: DeliveryCompletion,
        delivery: Delivery,
        seconds: float,
        along: tuple[DeliveryCompletion, ...] = (),
    ) -> None:
        """`along`: those that are settled with it, in the same transaction."""
        key = (verdict.delivery_id, verdict.fence)
        self._pending[key] = _Waiting(verdict, delivery, seconds, along)
        self._arrived.set()

    @property
    def waiting(self) -> int:
        return len(self._pending)

    async def once(self) -> NextPoll:
        # The store answers by id, so a batch holds no two attempts of one delivery.
        batch: dict[DeliveryId, _Waiting] = {}
        verdicts = 0
        for each in islice(self._pending.values(), BATCH):
            verdicts += 1 + len(each.along)
            if batch and verdicts > MOST_VERDICTS:
                break
            batch[each.delivery.id] = each
        if batch:
            await self._write(list(batch.values()))
        if self._pending:
            return PollNow()
        self._arrived.clear()
        return PollOnEvent(event=self._arrived)

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            verdicts = [one for each in batch for one in (each.verdict, *each.along)]
            accepted = await self._store.finish_deliveries(verdicts)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                # It cannot be written at all: when its hold is over it is tried again.
                self._drop(batch[0])
                raise
            await self._write_singly(batch)
            return
        now = {each.id: each for each in accepted}
        for each in batch:
            self._drop(each)
            self._settle(each, now.get(each.delivery.id))
        for each in batch:
            if each.verdict.sent and each.delivery.id in now:
                # Accepted may be the word of whoever has taken it in hand, in the same batch.
                missed = [one for one in each.along if not _is_over(now.get(one.delivery_id))]
                await settle_missed(self._store, missed)

    async def _write_singly(self, batch: list[_Waiting]) -> None:
        """One that cannot be written must not hold up the others."""
        failed: Exception | None = None
        for each in batch:
            try:
                await self._write([each])
            except StoreUnavailable:
                raise
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed

    def _drop(self, each: _Waiting) -> None:
        del self._pending[each.verdict.delivery_id, each.verdict.fence]

    def _settle(self, each: _Waiting, now: Delivery | None) -> None:
        if now is None:
            self._tell(DeliveryFenced(delivery=each.delivery))
        elif now.state is DeliveryState.PENDING:
            self._settled(now)
            self._tell(DeliveryRetrying(delivery=now, seconds=each.seconds))
        else:
            self._tell(DeliveryEnded(delivery=now, seconds=each.seconds))


def _is_over(delivery: Delivery | None) -> bool:
    return delivery is not None and delivery.state is not DeliveryState.PENDING


# @@ Who will read a message: in which language, by which clock, and whether it may be sent there.


class RecipientPreferences:
    """One object serves one batch, and asks for each reader once."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._preferences = PreferenceService(store)
        self._settings = settings
        self._owners: dict[Owner, Preferences] = {}
        self._chats: dict[str, Mapping[str, object]] = {}
        self._zones: dict[ScheduleId, str] = {}

    async def of(self, delivery: Delivery) -> tuple[str, str]:
        """Language and zone: the recipient's own, else the chat's, else the owner's; for want of
        any other the zone is the schedule's."""
        recipient, owner = delivery.recipient, delivery.owner
        chat: Mapping[str, object] = {}
        if recipient.channel is Channel.TELEGRAM:
            chat = await self._chat(recipient.to)
        if owner not in self._owners:
            self._owners[owner] = await self._preferences.of(owner)
        liked = self._owners[owner]
        language = recipient.language or _text(chat, "language") or liked.language or USUAL
        zone = _text(chat, "timezone") or liked.timezone
        if not zone and recipient.digest is not None:
            zone = recipient.digest.zone
        return language, zone or await self._zone(delivery.schedule_id, self._usual_zone(owner))

    async def refusal(self, delivery: Delivery) -> Refused | None:
        """Whether nothing may go there, whoever saved it when: what is allowed may have changed
        since (S05)."""
        recipient = delivery.recipient
        match recipient.channel:
            case Channel.TELEGRAM:
                return await self._refused_chat(recipient.to, delivery.owner)
            case Channel.EMAIL:
                return _refused_address(recipient.to, self._settings.smtp_allowed)
            case _:
                return None

    async def _refused_chat(self, to: str, owner: Owner) -> Refused | None:
        """What a chat made goes to it as long as it is allowed to make it; what a user made, as
        long as the chat is the user's. What the system's own keys made goes where they said."""
        if owner == Owner(type=OwnerType.CHAT, id=to):
            if to in self._settings.telegram_allowed_chats:
                return None
            error = _("chat {chat} is not allowed any more: CHIMES_TELEGRAM_ALLOWED_CHATS", chat=to)
            return Refused(error=error, code="not_allowed")
        if owner.type is not OwnerType.USER:
            return None
        chat = await self._chat(to)
        linked, left = _text(chat, "owner"), _text(chat, "left")
        if (linked and linked != str(owner)) or (not linked and left == str(owner)):
            error = _(
                "chat {chat} is not linked to {owner} any more: link it again", chat=to, owner=owner
            )
            return Refused(error=error, code="not_linked")
        return None

    def _usual_zone(self, owner: Owner) -> str:
        in_chat = owner.type is OwnerType.CHAT
        settings = self._settings
        return settings.softnix_default_timezone if in_chat else settings.default_timezone

    async def _zone(self, schedule_id: ScheduleId | None, usual: str) -> str:
        if schedule_id is None:
            return usual
        if schedule_id not in self._zones:
            schedule = await self._store.get_schedule(schedule_id)
            trigger = None if schedule is None else schedule.trigger
            # The others go by no wall clock.
            self._zones[schedule_id] = (
                trigger.with_default_zone(usual).zone if isinstance(trigger, Cron | Once) else usual
            )
        return self._zones[schedule_id]

    async def _chat(self, chat: str) -> Mapping[str, object]:
        if chat not in self._chats:
            kept = await self._store.read_state(LINKED_CHAT + chat)
            self._chats[chat] = {} if kept is None else _read(kept.value)
        return self._chats[chat]


def _refused_address(to: str, allowed: tuple[str, ...]) -> Refused | None:
    domain = to.rpartition("@")[2].lower()
    if not allowed or domain in {each.lower().removeprefix("@") for each in allowed}:
        return None
    error = _("nothing may be sent to addresses of {domain}: CHIMES_SMTP_ALLOWED", domain=domain)
    return Refused(error=error, code="not_allowed")


def _read(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


# @@ Whether what a node has taken from the outbox is sent at all, and by it.

#: What no node can send is given up after that; nodes may be away for a while, one by one.
OVERDUE = timedelta(hours=1)
#: Seconds between two words to the others that a channel which is not everywhere is here.
SAY_EVERY = 600.0
#: That one owner's runs may send.
EMAILS_AN_HOUR = 100
SETTING_OF = {
    Channel.TELEGRAM: "CHIMES_TELEGRAM_TOKEN",
    Channel.EMAIL: _("CHIMES_SMTP_URL and CHIMES_SMTP_FROM"),
}
#: The kept state of a channel: when a node that has it last said so.
SENT_HERE = "sends:"


class DeliveryPolicy:
    def __init__(
        self, store: Store, senders: Collection[Channel], *, time: StoreClock, clock: Clock
    ) -> None:
        """`senders`: the channels that this node has."""
        self._store = store
        self._senders = senders
        self._time = time
        self._clock = clock
        self._say_from = -math.inf

    async def answer(self, delivery: Delivery, readers: RecipientPreferences) -> Result | None:
        """What is to be said of the delivery without sending it; None: it is to be sent.

        One whose senders all died is not sent for ever."""
        if delivery.attempts > MAX_DELIVERY_ATTEMPTS:
            return Refused(
                error=_(
                    "begun {times} times, and no sender lived to say what became of it",
                    times=MAX_DELIVERY_ATTEMPTS,
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
        error = _("waits for the end of the quiet hours")
        return Retry(error=error, code="quiet", after=until - now, holds_back=True)

    async def _too_many(self, delivery: Delivery) -> Retry | None:
        """Nobody's schedules make a mail relay of us."""
        taken = await self._store.take_tokens(
            f"email:{delivery.owner}", rate=EMAILS_AN_HOUR / 3600, burst=EMAILS_AN_HOUR
        )
        if taken.granted:
            return None
        return Retry(
            error=_(
                "more than {most} e-mails an hour: it waits for its turn",
                most=EMAILS_AN_HOUR,
            ),
            code="rate_limited",
            after=taken.wait,
            holds_back=True,
        )

    async def _not_here(self, channel: Channel) -> Result:
        if await self._is_elsewhere(channel):
            error = _("waits for a node that can send by {channel}", channel=channel.value)
            return Retry(error=error, code="waits", after=OVERDUE / 6, holds_back=True)
        setting = SETTING_OF.get(channel, channel.value)
        return Refused(
            error=_(
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


# @@ Those who asked this node to come back later: nothing is sent to them before (F75).

#: More than these are not kept in mind; each is asked itself then.
MOST = 10_000


class RetryAfterCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[Channel, str], float] = {}

    def note(self, recipient: Recipient, result: Result) -> None:
        if not isinstance(result, Retry) or not result.holds_back or result.after is None:
            return
        now = self._clock.monotonic()
        if len(self._until) >= MOST:
            self._until = {key: until for key, until in self._until.items() if until > now}
        if len(self._until) < MOST:
            until = now + result.after.total_seconds()
            key = (recipient.channel, recipient.to)
            self._until[key] = max(until, self._until.get(key, until))

    def answer(self, recipient: Recipient) -> Retry | None:
        """What the recipient would say now, if that is known."""
        key = (recipient.channel, recipient.to)
        left = self._until.get(key, 0.0) - self._clock.monotonic()
        if key not in self._until:
            return None
        if left <= 0:
            del self._until[key]
            return None
        return Retry(
            error=_("held back: the other side has asked to be left alone for a while"),
            code="rate_limited",
            after=timedelta(seconds=left),
            holds_back=True,
        )


#: Seconds that one attempt may take, and how long its sender has before it counts as lost.
LONGEST_SENDING = 150.0
HOLD = DELIVERY_LEASE
#: Seconds after that for those that a digest has no room for; both together are less than HOLD.
LONGEST_SETTLING = 15.0
NEVER = timedelta(days=36500)
#: Seconds between two looks while nothing says that there is anything.
LOOK_EVERY = 15.0
#: Seconds until the next look if what is due is for others.
IN_VAIN = 5.0
#: From this length on a text is prepared beside the event loop.
LONG_TEXT = 4000


_NOTHING = Gathered(members=())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reader:
    asked: RecipientPreferences
    language: str
    zone: str = ""


@dataclass(slots=True)
class _Sending:
    """How far an attempt has come."""

    delivery: Delivery
    letter: Letter | None = None
    along: Gathered = _NOTHING


class Deliverer:
    """A duty, and a listener of the engine: what ends here is looked for at once."""

    name = "deliverer"

    def __init__(
        self,
        store: Store,
        senders: Iterable[Sender],
        *,
        settings: Settings,
        clock: Clock,
        time: StoreClock,
        tell: Listener,
    ) -> None:
        self._store = store
        self._senders = {sender.channel: sender for sender in senders}
        self._settings = settings
        self._clock = clock
        self._time = time
        self._tell = tell
        self._poll = settings.poll_interval
        self.recorder = DeliveryRecorder(store, tell, self._again_later)
        #: Set when there may be something to do.
        self._stirred = asyncio.Event()
        #: Whether a run has ended here that somebody is to be told of.
        self._told = False
        self._look_from = -math.inf
        self._seen: int | None = None
        self._taken: tuple[Delivery, ...] = ()
        self._taken_at = -math.inf
        self._busy: Counter[Channel] = Counter()
        self._held_back = RetryAfterCache(clock)
        self._admission = DeliveryPolicy(store, self._senders, time=time, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self.idle = asyncio.Event()
        self.idle.set()

    event_types = (RunEnded, RunRescued, SchedulesFired)

    def __call__(self, event: Event) -> None:
        match event:
            case RunEnded(run=run) | RunRescued(run=run):
                if run.policy.delivery:
                    self._stir()
            case SchedulesFired(runs=runs):
                if any(run.policy.delivery and run.status.terminal for run in runs):
                    self._stir()
            case _:
                pass

    @property
    def sending(self) -> int:
        """Messages under way, and what became of others as long as it is not written; safe from any
        thread."""
        return len(self._tasks) + self.recorder.waiting

    async def open(self) -> None:
        for sender in self._senders.values():
            await sender.open()

    def stop_sending(self) -> None:
        """What is still being sent is left: its hold ends, and somebody repeats it."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop_sending()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for sender in self._senders.values():
            await sender.close()

    # --- the duty -----------------------------------------------------------------------------
    async def once(self) -> NextPoll:
        self._stirred.clear()
        await self._admission.say_what_is_here()
        if self._taken:
            await self._begin()
        open_channels = [c for c, sender in self._senders.items() if self._free(sender) > 0]
        if not open_channels:
            return PollOnEvent(event=self._stirred)
        changes, told = self._store.changes(), self._told
        if not told and changes == self._seen and self._clock.monotonic() < self._look_from:
            return self._rest()
        self._seen, self._told = changes, False
        if not await self._due():
            return self._rest()
        limit = min(self._free(self._senders[channel]) for channel in open_channels)
        # While one of our own channels is full, what has waited long is most likely its own.
        jammed = len(open_channels) < len(self._senders)
        self._taken_at = self._clock.monotonic()
        self._taken = await self._store.claim_deliveries(
            open_channels, limit=limit, hold=HOLD, overdue=NEVER if jammed else OVERDUE
        )
        if not self._taken:
            self._look_from = self._clock.monotonic() + IN_VAIN
            return self._rest()
        self._look_from = -math.inf
        await self._begin()
        return PollNow()

    def _free(self, sender: Sender) -> int:
        return sender.places - self._busy[sender.channel]

    async def _due(self) -> bool:
        """Whether anything is; if not, when to look again."""
        due = await self._store.next_delivery()
        now = await self._time.recent()
        if due is not None and due <= now:
            now = await self._time.ask()
            if due <= now:
                return True
        wait = LOOK_EVERY if due is None else min(LOOK_EVERY, (due - now).total_seconds())
        self._look_from = self._clock.monotonic() + wait
        return False

    def _rest(self) -> NextPoll:
        """Looks at the counter of changes once a poll, which costs the store nothing."""
        left = self._look_from - self._clock.monotonic()
        poll = self._time.seconds_to_tick(self._poll)
        return PollOnEvent(event=self._stirred, seconds=max(0.0, min(poll, left)))

    def _stir(self) -> None:
        self._told = True
        self._stirred.set()

    def _again_later(self, delivery: Delivery) -> None:
        wait = self._time.seconds_until(delivery.available_at)
        self._look_from = min(self._look_from, self._clock.monotonic() + wait)
        self._stirred.set()

    # --- what was taken -----------------------------------------------------------------------
    async def _begin(self) -> None:
        """Raises if the store does not answer; what was taken is kept for the next pass."""
        if self._clock.monotonic() - self._taken_at > HOLD.total_seconds() / 2:
            # Too late to be sure that it is still ours.
            self._taken = ()
            return
        ids = {each.run_id for each in self._taken if each.run_id is not None}
        runs = await runs_of(self._store, ids)
        readers = RecipientPreferences(self._store, self._settings)
        ready = [(each, *await self._known(each, readers)) for each in self._taken]
        self._taken = ()
        for delivery, reader, answer in ready:
            channel = delivery.recipient.channel
            self._busy[channel] += 1
            self.idle.clear()
            run = None if delivery.run_id is None else runs.get(delivery.run_id)
            task = asyncio.create_task(self._deliver(delivery, run, reader, answer))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, channel))

    async def _known(
        self, delivery: Delivery, readers: RecipientPreferences
    ) -> tuple[_Reader, Result | None]:
        """One about which nothing can be found out must not hold up the others."""
        reader = _Reader(asked=readers, language=delivery.recipient.language or USUAL)
        try:
            language, zone = await readers.of(delivery)
            reader = replace(reader, language=language, zone=zone)
            return reader, await self._admission.answer(delivery, readers)
        except StoreUnavailable:
            raise
        except Exception as error:
            return reader, self._broken(delivery, error)

    def _broken(self, delivery: Delivery, error: Exception) -> Retry:
        self._tell(SenderRaised(delivery=delivery, error=error))
        text = _("{type} in the channel itself", type=type(error).__name__)
        return Retry(error=text, code="broken")

    def _done(self, channel: Channel, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy[channel] -= 1
        if not self._tasks:
            self.idle.set()
        self._stirred.set()

    async def _deliver(
        self, delivery: Delivery, run: Run | None, reader: _Reader, answer: Result | None
    ) -> None:
        """`answer`: what is known without sending it."""
        began = self._clock.monotonic()
        sending = _Sending(delivery=delivery)
        try:
            async with asyncio.timeout(LONGEST_SENDING):
                result = await self._attempt(sending, run, reader, answer)
        except TimeoutError:
            error = _("timed out after {seconds:g} s", seconds=LONGEST_SENDING)
            result = Retry(error=error, code="timeout")
        except StoreUnavailable:
            error = _("the store did not answer")
            result = Retry(error=error, code="store_unavailable", holds_back=True)
        except Exception as error:
            result = self._broken(delivery, error)
        # Given up, its owner is to read so in any case (F75).
        letter = sending.letter or self._envelope(delivery, bare_message(delivery, reader.language))
        verdict = verdict_of(delivery, letter, result)
        told = taken_along(sending.along.members, delivery) if verdict.sent else ()
        seconds = self._clock.monotonic() - began
        if verdict.sent and sending.along.more:
            # Before that of the digest: as long as it is under way, they wait for it.
            await self._settle_others(delivery, sending.along)
        self.recorder.put(verdict, delivery, seconds, told)

    async def _attempt(
        self, sending: _Sending, run: Run | None, reader: _Reader, answer: Result | None
    ) -> Result:
        delivery = sending.delivery
        if answer is None and delivery.occasion is NotifyOn.DIGEST:
            along = sending.along = await gathered(self._store, delivery)
            if along.members:
                # In the language and with the keys that were wanted last.
                delivery = replace(delivery, recipient=along.newest.recipient)
                language, zone = await reader.asked.of(delivery)
                reader = replace(reader, language=language, zone=zone)
            else:
                # What it was to tell has gone another way.
                answer = Sent()
        letter = await self._letter(delivery, run, reader.language, reader.zone, sending.along)
        sending.letter = letter
        answer = answer or self._held_back.answer(delivery.recipient)
        return answer or await self._sent(letter)

    async def _settle_others(self, digest: Delivery, along: Gathered) -> None:
        """What it does not reach goes with the next digest."""
        try:
            async with asyncio.timeout(LONGEST_SETTLING):
                await settle_others(self._store, digest, along)
        except (TimeoutError, StoreUnavailable):
            pass
        except Exception as error:
            self._tell(SenderRaised(delivery=digest, error=error))

    async def _letter(
        self, delivery: Delivery, run: Run | None, language: str, zone: str, along: Gathered
    ) -> Letter:
        url = self._settings.public_url.rstrip("/")
        if delivery.occasion is NotifyOn.TEST:
            test = trial_message(delivery, language=language, zone=zone, public_url=url)
            return self._envelope(delivery, test)
        if delivery.occasion is NotifyOn.DIGEST:
            runs = await runs_of(self._store, along.runs)
            digest = digest_message(
                delivery, along, runs, language=language, zone=zone, public_url=url
            )
            return self._envelope(delivery, digest)

        def make() -> Letter:
            message = message_of(delivery, run, language=language, zone=zone, public_url=url)
            if delivery.recipient.channel is not Channel.INBOX:
                _unused = message.text  # made here, beside the event loop, and kept
            return self._envelope(delivery, message)

        return await asyncio.to_thread(make) if _is_long(run) else make()

    def _envelope(self, delivery: Delivery, message: NotificationMessage) -> Letter:
        return Letter(
            delivery_id=delivery.id,
            recipient=delivery.recipient,
            owner=delivery.owner,
            message=message,
            now=self._time.now(),
            progress=Progress(delivery.progress),
        )

    async def _sent(self, letter: Letter) -> Result:
        channel = letter.recipient.channel
        sender = self._senders[channel]
        hit("deliver.before_send")
        result = await sender.send(letter)
        hit("deliver.after_send")
        self._held_back.note(letter.recipient, result)
        return result


def _is_long(run: Run | None) -> bool:
    values = run.result.values() if run is not None and run.result else ()
    return any(not isinstance(value, str) or len(value) > LONG_TEXT for value in values)
