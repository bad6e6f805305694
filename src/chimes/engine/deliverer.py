"""The deliverer sends notifications: claims them from the outbox, applies policy, sends, records.

A delivery has its own attempts, and its result never changes its run. It is sent at least once: if
a node dies after sending, another node sends again.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
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
from chimes.engine.notification_rules import Suppressions
from chimes.engine.poller import NextPoll, PollNow, PollOnEvent
from chimes.errors import StoreUnavailable
from chimes.failpoints import hit
from chimes.i18n import ENGLISH, _
from chimes.model import replace
from chimes.model.access import Owner, OwnerType, secret_names
from chimes.model.ids import DeliveryId, RunId, ScheduleId
from chimes.model.listing import DeliveryQuery, RunQuery
from chimes.model.monitor import parse_event_reference
from chimes.model.notification import (
    DELIVERY_LEASE,
    DIGEST_TIMEOUT,
    MAX_DELIVERY_ATTEMPTS,
    Delivery,
    DeliveryCompletion,
    DeliveryState,
    belongs_to_digest,
    digest_id_for,
    digest_of,
)
from chimes.model.proposal import Proposal, ProposalStatus
from chimes.model.recipient import (
    CHANNEL_SETTINGS,
    Channel,
    NotifyOn,
    Recipient,
    channel_not_configured,
)
from chimes.model.run import Run
from chimes.model.wait import Approval, ApprovalStatus, approval_of
from chimes.notifications.base import (
    DeliveryAttempt,
    Progress,
    Refused,
    Result,
    Retry,
    Sender,
    Sent,
    Suppressed,
)
from chimes.notifications.digest import DigestMembers, build_digest_message
from chimes.notifications.message import (
    NotificationMessage,
    build_approval_message,
    build_fallback_message,
    build_message,
    build_proposal_message,
    build_test_message,
)
from chimes.notifications.monitor import build_monitor_message
from chimes.notifications.outcomes import (
    completion_of,
    digest_completions,
    suppressed_completion,
)
from chimes.notifications.templates import (
    MessageTemplate,
    apply_template,
    choose_template,
    template_values,
)
from chimes.services.message_templates import MessageTemplateService
from chimes.services.monitors import MonitorDocuments
from chimes.services.preferences import Preferences, PreferenceService
from chimes.services.schedules.rules import LINKED_CHAT
from chimes.services.secrets import ResolvedSecrets, resolve_secrets
from chimes.store.port import Store
from chimes.triggers import Every

#: Seconds that one attempt may take.
SEND_TIMEOUT = 150.0
#: How long a claimed delivery belongs to its node.
LEASE = DELIVERY_LEASE
#: Seconds for completing the members that do not fit into a digest; with SEND_TIMEOUT less than
#: LEASE.
DIGEST_COMPLETION_TIMEOUT = 15.0
NEVER = timedelta(days=36500)
#: Seconds between two queries without a sign of a due delivery.
QUERY_INTERVAL = 15.0
#: Seconds until the next query if only other nodes can send what is due.
EMPTY_CLAIM_PAUSE = 5.0
#: Longer results are rendered in a thread.
LONG_TEXT = 4000

_NO_MEMBERS = DigestMembers(members=())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reader:
    """How the recipient reads: language and time zone."""

    preferences: RecipientPreferences
    suppressions: Suppressions
    language: str
    zone: str = ""


@dataclass(slots=True)
class _Sending:
    """Progress of one attempt, also when it fails."""

    delivery: Delivery
    attempt: DeliveryAttempt | None = None
    members: DigestMembers = _NO_MEMBERS
    #: Members of the digest that are not reported.
    suppressed: tuple[DeliveryCompletion, ...] = ()


class Deliverer:
    """A duty, and an event listener that wakes it when a run ends here."""

    name = "deliverer"

    def __init__(
        self,
        store: Store,
        senders: Iterable[Sender],
        *,
        settings: Settings,
        clock: Clock,
        time: StoreClock,
        emit: Listener,
    ) -> None:
        self._store = store
        self._senders = {sender.channel: sender for sender in senders}
        self._settings = settings
        self._clock = clock
        self._time = time
        self._emit = emit
        self._poll = settings.poll_interval
        self.recorder = DeliveryRecorder(store, emit, self._retry_later)
        self._changed = asyncio.Event()
        #: A run with recipients has ended here.
        self._notified = False
        self._next_query = -math.inf
        self._checked: int | None = None
        self._claimed: tuple[Delivery, ...] = ()
        self._claimed_at = -math.inf
        self._busy: Counter[Channel] = Counter()
        self._retry_after = RetryAfterCache(clock)
        self._policy = DeliveryPolicy(store, self._senders, time=time, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self.idle = asyncio.Event()
        self.idle.set()

    event_types = (RunEnded, RunRescued, SchedulesFired)

    def __call__(self, event: Event) -> None:
        match event:
            case RunEnded(run=run) | RunRescued(run=run):
                if self._store.routing.recipients_of(run):
                    self._notify()
            case SchedulesFired(runs=runs):
                recipients_of = self._store.routing.recipients_of
                if any(run.status.terminal and recipients_of(run) for run in runs):
                    self._notify()
            case _:
                pass

    @property
    def capabilities(self) -> frozenset[str]:
        """The channels that other nodes may lack."""
        return frozenset(each.capability for each in CHANNEL_SETTINGS if each in self._senders)

    @property
    def sending(self) -> int:
        """Messages being sent, and unwritten completions; safe from any thread."""
        return len(self._tasks) + self.recorder.queued

    async def open(self) -> None:
        for sender in self._senders.values():
            await sender.open()

    def stop_sending(self) -> None:
        """Cancels attempts under way: their leases expire, and another node sends again."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop_sending()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for sender in self._senders.values():
            await sender.close()

    # --- claim --------------------------------------------------------------------------------
    async def run_once(self) -> NextPoll:
        self._changed.clear()
        await self._policy.announce_channels()
        if self._claimed:
            await self._start_sending()
        open_channels = [c for c, sender in self._senders.items() if self._free(sender) > 0]
        if not open_channels:
            return PollOnEvent(event=self._changed)
        changes, notified = self._store.changes(), self._notified
        if not notified and changes == self._checked and self._clock.monotonic() < self._next_query:
            return self._next_poll()
        self._checked, self._notified = changes, False
        if not await self._is_due():
            return self._next_poll()
        limit = min(self._free(self._senders[channel]) for channel in open_channels)
        # While a channel of this node is full, overdue deliveries are most likely that channel's.
        is_full = len(open_channels) < len(self._senders)
        self._claimed_at = self._clock.monotonic()
        # Deliveries that no live node can send are claimed to record why.
        claimable = [*open_channels, *await self._policy.orphaned_channels()]
        self._claimed = await self._store.claim_deliveries(
            claimable, limit=limit, lease=LEASE, overdue=NEVER if is_full else OVERDUE
        )
        if not self._claimed:
            self._next_query = self._clock.monotonic() + EMPTY_CLAIM_PAUSE
            return self._next_poll()
        self._next_query = -math.inf
        await self._start_sending()
        return PollNow()

    def _free(self, sender: Sender) -> int:
        return sender.capacity - self._busy[sender.channel]

    async def _is_due(self) -> bool:
        """Whether a delivery is due; otherwise sets the time of the next query."""
        due = await self._store.next_delivery()
        now = await self._time.recent()
        if due is not None and due <= now:
            now = await self._time.fetch_now()
            if due <= now:
                return True
        wait = QUERY_INTERVAL if due is None else min(QUERY_INTERVAL, (due - now).total_seconds())
        self._next_query = self._clock.monotonic() + wait
        return False

    def _next_poll(self) -> NextPoll:
        """Checks the change counter at every poll tick, which costs the store nothing."""
        left = self._next_query - self._clock.monotonic()
        poll = self._time.seconds_to_tick(self._poll)
        return PollOnEvent(event=self._changed, seconds=max(0.0, min(poll, left)))

    def _notify(self) -> None:
        self._notified = True
        self._changed.set()

    def _retry_later(self, delivery: Delivery) -> None:
        wait = self._time.seconds_until(delivery.available_at)
        self._next_query = min(self._next_query, self._clock.monotonic() + wait)
        self._changed.set()

    # --- send ---------------------------------------------------------------------------------
    async def _start_sending(self) -> None:
        """Raises if the store does not answer; claimed deliveries stay for the next pass."""
        if self._clock.monotonic() - self._claimed_at > LEASE.total_seconds() / 2:
            # Too late: the leases may end while sending.
            self._claimed = ()
            return
        ids = {
            each.run_id
            for each in self._claimed
            if each.run_id is not None and parse_event_reference(each.run_id) is None
        }
        runs = await load_runs(self._store, ids)
        preferences = RecipientPreferences(self._store, self._settings)
        suppressions = Suppressions(self._store)
        ready = []
        for each in self._claimed:
            run = None if each.run_id is None else runs.get(each.run_id)
            ready.append((each, *await self._prepare(each, run, preferences, suppressions)))
        self._claimed = ()
        for delivery, reader, decision in ready:
            channel = delivery.recipient.channel
            self._busy[channel] += 1
            self.idle.clear()
            run = None if delivery.run_id is None else runs.get(delivery.run_id)
            task = asyncio.create_task(self._deliver(delivery, run, reader, decision))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, channel))

    async def _prepare(
        self,
        delivery: Delivery,
        run: Run | None,
        preferences: RecipientPreferences,
        suppressions: Suppressions,
    ) -> tuple[_Reader, Result | None]:
        """An error here must not delay the other deliveries."""
        reader = _Reader(
            preferences=preferences,
            suppressions=suppressions,
            language=delivery.recipient.language or ENGLISH,
        )
        try:
            now = self._time.now()
            if not delivery.recipient.goes_into_digest(delivery.notify_on):
                # Members of a digest are checked with it.
                suppressed = await suppressions.check(delivery, run, now)
                if suppressed is not None:
                    return reader, suppressed
            language, zone = await preferences.language_and_zone(delivery)
            reader = replace(reader, language=language, zone=zone)
            return reader, await self._policy.decide(delivery, preferences)
        except StoreUnavailable:
            raise
        except Exception as error:
            return reader, self._on_error(delivery, error)

    def _on_error(self, delivery: Delivery, error: Exception) -> Retry:
        self._emit(SenderRaised(delivery=delivery, error=error))
        text = _("internal error in the channel: {type}", type=type(error).__name__)
        return Retry(error=text, code="broken")

    def _done(self, channel: Channel, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy[channel] -= 1
        if not self._tasks:
            self.idle.set()
        self._changed.set()

    async def _deliver(
        self, delivery: Delivery, run: Run | None, reader: _Reader, decision: Result | None
    ) -> None:
        """`decision`: the result without sending; None: send."""
        began = self._clock.monotonic()
        sending = _Sending(delivery=delivery)
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                result = await self._attempt(sending, run, reader, decision)
        except TimeoutError:
            error = _("timed out after {seconds:g} s", seconds=SEND_TIMEOUT)
            result = Retry(error=error, code="timeout")
        except StoreUnavailable:
            error = _("the store did not answer")
            result = Retry(error=error, code="store_unavailable", rate_limited=True)
        except Exception as error:
            result = self._on_error(delivery, error)
        # A failed delivery is reported to its owner even without a message.
        attempt = sending.attempt or self._attempt_of(
            delivery, build_fallback_message(delivery, reader.language)
        )
        completion = completion_of(delivery, attempt, result)
        members: tuple[DeliveryCompletion, ...] = ()
        if completion.sent:
            members = digest_completions(sending.members.members, delivery) + sending.suppressed
        seconds = self._clock.monotonic() - began
        if completion.sent and sending.members.more:
            # Before the completion of the digest, while its members still wait for it.
            await self._complete_others(delivery, sending.members)
        self.recorder.record(completion, delivery, seconds, members)

    async def _attempt(
        self, sending: _Sending, run: Run | None, reader: _Reader, decision: Result | None
    ) -> Result:
        delivery = sending.delivery
        if decision is None and delivery.notify_on is NotifyOn.DIGEST:
            await self._gather_members(sending, reader)
            members = sending.members
            if members.members:
                # With the language and keys of the newest member.
                delivery = replace(delivery, recipient=members.newest.recipient)
                language, zone = await reader.preferences.language_and_zone(delivery)
                reader = replace(reader, language=language, zone=zone)
            else:
                # All members were completed in another way.
                decision = Sent()
        proposal = None
        if decision is None and delivery.notify_on is NotifyOn.PROPOSAL:
            from chimes.services.proposals import read_proposal

            proposal = await read_proposal(self._store, delivery.receipt)
            now = await self._time.fetch_now()
            if proposal is None or proposal.status_at(now) is not ProposalStatus.OPEN:
                # It was decided meanwhile: there is nothing to say any more.
                decision = Sent()
        approval = None
        if decision is None and delivery.notify_on is NotifyOn.APPROVAL:
            waiting = await self._store.get_run(RunId(delivery.receipt))
            now = await self._time.fetch_now()
            approval = None if waiting is None else approval_of(waiting, now)
            if approval is None or approval.status is not ApprovalStatus.OPEN:
                decision = Sent()
        attempt = sending.attempt = await self._build_attempt(
            delivery, run, reader, sending.members, proposal, approval
        )
        decision = decision or self._retry_after.check(delivery.recipient)
        return decision or await self._send(attempt)

    async def _gather_members(self, sending: _Sending, reader: _Reader) -> None:
        """Reads the members of a digest; silenced ones are left out."""
        found = await gather_members(self._store, sending.delivery)
        kept: list[Delivery] = []
        suppressed: list[DeliveryCompletion] = []
        for each in found.members:
            # For what happened within a silence, not for what is sent within one.
            why = await reader.suppressions.check(each, None, each.created_at)
            if why is None:
                kept.append(each)
            else:
                suppressed.append(suppressed_completion(each, why))
        sending.members = replace(found, members=tuple(kept))
        sending.suppressed = tuple(suppressed)

    async def _complete_others(self, digest: Delivery, members: DigestMembers) -> None:
        """Members that it does not complete are sent with the next digest."""
        try:
            async with asyncio.timeout(DIGEST_COMPLETION_TIMEOUT):
                await complete_others(self._store, digest, members)
        except (TimeoutError, StoreUnavailable):
            pass
        except Exception as error:
            self._emit(SenderRaised(delivery=digest, error=error))

    async def _build_attempt(
        self,
        delivery: Delivery,
        run: Run | None,
        reader: _Reader,
        members: DigestMembers,
        proposal: Proposal | None,
        approval: Approval | None = None,
    ) -> DeliveryAttempt:
        language, zone, preferences = reader.language, reader.zone, reader.preferences
        url = self._settings.public_url.rstrip("/")
        if proposal is not None:
            message = build_proposal_message(
                delivery, proposal, language=language, zone=zone, public_url=url
            )
            return self._attempt_of(delivery, message)
        if approval is not None:
            message = build_approval_message(
                delivery, approval, language=language, zone=zone, public_url=url
            )
            return self._attempt_of(delivery, message)
        if delivery.notify_on in (NotifyOn.PROPOSAL, NotifyOn.APPROVAL):
            return self._attempt_of(delivery, build_fallback_message(delivery, language))
        if delivery.notify_on is NotifyOn.TEST:
            test = build_test_message(delivery, language=language, zone=zone, public_url=url)
            return self._attempt_of(delivery, test)
        if delivery.notify_on is NotifyOn.DIGEST:
            runs = await load_runs(self._store, members.runs)
            digest = build_digest_message(
                delivery, members, runs, language=language, zone=zone, public_url=url
            )
            return self._attempt_of(delivery, digest)

        if (event := parse_event_reference(delivery.run_id)) is not None:
            monitor = await MonitorDocuments(self._store).read(event[0])
            about = build_monitor_message(
                delivery, monitor, event[1], language=language, zone=zone, public_url=url
            )
            return self._attempt_of(delivery, about)
        templates = await preferences.templates(delivery.owner)
        template = choose_template(templates, language, delivery.notify_on)

        def make() -> DeliveryAttempt:
            message = build_message(delivery, run, language=language, zone=zone, public_url=url)
            if template is not None:
                values = template_values(message, delivery, run, zone)
                message = apply_template(message, template, values)
            if delivery.recipient.channel is not Channel.INBOX:
                message.text  # noqa: B018 - rendered in this thread, and cached
            return self._attempt_of(delivery, message)

        return await asyncio.to_thread(make) if _is_long(run) else make()

    def _attempt_of(self, delivery: Delivery, message: NotificationMessage) -> DeliveryAttempt:
        return DeliveryAttempt(
            delivery_id=delivery.id,
            recipient=delivery.recipient,
            owner=delivery.owner,
            message=message,
            now=self._time.now(),
            progress=Progress(delivery.progress),
        )

    async def _send(self, attempt: DeliveryAttempt) -> Result:
        channel = attempt.recipient.channel
        sender = self._senders[channel]
        names = secret_names(attempt.recipient)
        secrets = await resolve_secrets(self._store, attempt.owner, names)
        if (problem := secrets.problem) is not None:
            failure = Retry if problem.retryable else Refused
            return failure(error=problem.message, code=problem.code)
        hit("deliver.before_send")
        result = await sender.send(replace(attempt, secrets=secrets.values))
        hit("deliver.after_send")
        if secrets.forms:
            result = _masked(result, secrets)
        self._retry_after.record(attempt.recipient, result)
        return result


def _masked(result: Result, secrets: ResolvedSecrets) -> Result:
    match result:
        case Sent():
            return replace(result, receipt=secrets.mask(result.receipt))
        case Retry() | Refused() | Suppressed():
            return replace(result, error=secrets.mask(result.error))


def _is_long(run: Run | None) -> bool:
    values = run.result.values() if run is not None and run.result else ()
    return any(not isinstance(value, str) or len(value) > LONG_TEXT for value in values)


#: How long a delivery waits for a node with its channel that was here and left, e.g. to restart.
OVERDUE = timedelta(hours=1)
#: How long it waits if there was no such node.
CHANNEL_WAIT = timedelta(minutes=1)
#: How soon it is tried again, so that a node that comes back need not wait for it.
CHANNEL_RETRY = timedelta(minutes=2)
#: Seconds for which the channels of live nodes are cached.
CHANNEL_CACHE = 10.0
#: Seconds between two announcements of the channels that need configuration.
ANNOUNCE_INTERVAL = 600.0
#: Limit for one owner.
EMAILS_PER_HOUR = 100
#: State name of a channel: when a node last announced it.
CHANNEL_STATE = "sends:"


class DeliveryPolicy:
    """Decides whether a claimed delivery is sent now, later or never."""

    def __init__(
        self, store: Store, senders: Collection[Channel], *, time: StoreClock, clock: Clock
    ) -> None:
        """`senders`: the channels of this node."""
        self._store = store
        self._senders = senders
        self._time = time
        self._clock = clock
        self._next_announcement = -math.inf
        self._orphaned: tuple[Channel, ...] = ()
        self._next_check = -math.inf

    async def decide(self, delivery: Delivery, preferences: RecipientPreferences) -> Result | None:
        """The result without sending; None: send."""
        if delivery.attempts > MAX_DELIVERY_ATTEMPTS:
            return Refused(
                error=_(
                    "{times} attempts started, and no sending node recorded a result",
                    times=MAX_DELIVERY_ATTEMPTS,
                ),
                code="lost",
            )
        recipient = delivery.recipient
        if recipient.goes_into_digest(delivery.notify_on):
            return await defer_to_digest(self._store, delivery, await self._time.fetch_now())
        if (waiting := await self._quiet_hours(delivery)) is not None:
            return waiting
        channel = recipient.channel
        if channel not in self._senders:
            return await self._without_sender(delivery)
        refusal = await preferences.refusal(delivery)
        if refusal is not None or channel is not Channel.EMAIL:
            return refusal
        return await self._rate_limit(delivery)

    async def _quiet_hours(self, delivery: Delivery) -> Retry | None:
        """For a delivery that was created before the quiet hours and is still unsent."""
        if delivery.recipient.quiet is None:
            return None
        now = await self._time.fetch_now()
        until = delivery.recipient.quiet_until(now, delivery.notify_on)
        if until is None:
            return None
        error = _("waiting for the end of the quiet hours")
        return Retry(error=error, code="quiet", after=until - now, rate_limited=True)

    async def _rate_limit(self, delivery: Delivery) -> Retry | None:
        """Limits the e-mails of one owner."""
        taken = await self._store.take_tokens(
            f"email:{delivery.owner}", rate=EMAILS_PER_HOUR / 3600, burst=EMAILS_PER_HOUR
        )
        if taken.granted:
            return None
        return Retry(
            error=_(
                "more than {limit} e-mails per hour: waiting",
                limit=EMAILS_PER_HOUR,
            ),
            code="rate_limited",
            after=taken.wait,
            rate_limited=True,
        )

    async def orphaned_channels(self) -> tuple[Channel, ...]:
        """Channels that neither this nor another live node has."""
        now = self._clock.monotonic()
        if now >= self._next_check:
            here = [each for each in CHANNEL_SETTINGS if each not in self._senders]
            offered = await self._offered_elsewhere() if here else frozenset()
            self._orphaned = tuple(each for each in here if each.capability not in offered)
            self._next_check = now + CHANNEL_CACHE
        return self._orphaned

    async def _offered_elsewhere(self) -> frozenset[str]:
        now = await self._time.fetch_now()
        alive = [node for node in await self._store.nodes() if node.lease_until > now]
        return frozenset(name for node in alive for name in node.capabilities)

    async def _without_sender(self, delivery: Delivery) -> Result:
        """Waits while a live node has the channel, for an hour after the last one left, and
        otherwise for a minute (ADR 49)."""
        channel = delivery.recipient.channel
        missing = channel_not_configured(channel)
        if channel.capability in await self._offered_elsewhere():
            error = _("waiting for a node with the channel {channel}", channel=channel.value)
            return Retry(error=error, code="waits", after=OVERDUE / 6, rate_limited=True)
        if await self._is_announced(channel):
            return Retry(error=missing, code="waits", after=CHANNEL_RETRY, rate_limited=True)
        age = await self._time.fetch_now() - delivery.created_at
        if age < CHANNEL_WAIT and delivery.notify_on is not NotifyOn.TEST:
            after = CHANNEL_WAIT - age
            return Retry(error=missing, code="waits", after=after, rate_limited=True)
        return Refused(error=missing, code="not_configured")

    async def announce_channels(self) -> None:
        """Other nodes then do not give up deliveries that wait for a channel of this node."""
        now = self._clock.monotonic()
        configured = [channel for channel in CHANNEL_SETTINGS if channel in self._senders]
        if not configured or now < self._next_announcement:
            return
        at = (await self._time.fetch_now()).isoformat()
        for channel in configured:
            await self._store.set_checkpoint(CHANNEL_STATE + channel.value, at)
        self._next_announcement = now + ANNOUNCE_INTERVAL

    async def _is_announced(self, channel: Channel) -> bool:
        announced = await self._store.get_checkpoint(CHANNEL_STATE + channel.value)
        if announced is None:
            return False
        return await self._time.fetch_now() - datetime.fromisoformat(announced.value) < OVERDUE


class RecipientPreferences:
    """Language, time zone and permission to send; caches what it reads for one batch."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._preferences = PreferenceService(store)
        self._settings = settings
        self._owners: dict[Owner, Preferences] = {}
        self._templates: dict[Owner | None, Sequence[MessageTemplate]] = {}
        self._chats: dict[str, Mapping[str, object]] = {}
        self._zones: dict[ScheduleId, str] = {}

    async def language_and_zone(self, delivery: Delivery) -> tuple[str, str]:
        """Those of the recipient, else of the chat, else of the owner; the zone falls back to that
        of the schedule."""
        recipient, owner = delivery.recipient, delivery.owner
        chat: Mapping[str, object] = {}
        if recipient.channel is Channel.TELEGRAM:
            chat = await self._chat(recipient.to)
        if owner not in self._owners:
            self._owners[owner] = await self._preferences.get(owner)
        defaults = self._owners[owner]
        language = recipient.language or _text(chat, "language") or defaults.language or ENGLISH
        zone = _text(chat, "timezone") or defaults.timezone
        if not zone and recipient.digest is not None:
            zone = recipient.digest.zone
        return language, zone or await self._zone(delivery.schedule_id, self._default_zone(owner))

    async def templates(self, owner: Owner) -> tuple[Sequence[MessageTemplate], ...]:
        """Message templates of the owner, then of the instance."""
        for each in (owner, None):
            if each not in self._templates:
                self._templates[each] = await MessageTemplateService(self._store).get(each)
        return self._templates[owner], self._templates[None]

    async def refusal(self, delivery: Delivery) -> Refused | None:
        """Why nothing may be sent there; permissions may have changed since it was saved."""
        recipient = delivery.recipient
        match recipient.channel:
            case Channel.TELEGRAM:
                return await self._check_chat(recipient.to, delivery.owner)
            case Channel.EMAIL:
                return _check_address(recipient.to, self._settings.smtp_allowed)
            case _:
                return None

    async def _check_chat(self, to: str, owner: Owner) -> Refused | None:
        """A chat's own schedules are sent to it while the chat is allowed, a user's schedules while
        the chat is linked to the user, and the system's schedules always."""
        if owner == Owner(type=OwnerType.CHAT, id=to):
            if to in self._settings.telegram_allowed_chats:
                return None
            error = _("chat {chat} is no longer allowed: CHIMES_TELEGRAM_ALLOWED_CHATS", chat=to)
            return Refused(error=error, code="not_allowed")
        if owner.type is not OwnerType.USER:
            return None
        chat = await self._chat(to)
        linked, left = _text(chat, "owner"), _text(chat, "left")
        if (linked and linked != str(owner)) or (not linked and left == str(owner)):
            error = _(
                "chat {chat} is no longer linked to {owner}: link it again", chat=to, owner=owner
            )
            return Refused(error=error, code="not_linked")
        return None

    def _default_zone(self, owner: Owner) -> str:
        in_chat = owner.type is OwnerType.CHAT
        settings = self._settings
        return settings.softnix_default_timezone if in_chat else settings.default_timezone

    async def _zone(self, schedule_id: ScheduleId | None, default: str) -> str:
        if schedule_id is None:
            return default
        if schedule_id not in self._zones:
            schedule = await self._store.get_schedule(schedule_id)
            trigger = None if schedule is None else schedule.trigger
            # Other triggers have no time zone.
            self._zones[schedule_id] = (
                trigger.with_default_zone(default).zone
                if trigger is not None and not isinstance(trigger, Every) and not trigger.on_event
                else default
            )
        return self._zones[schedule_id]

    async def _chat(self, chat: str) -> Mapping[str, object]:
        if chat not in self._chats:
            state = await self._store.get_checkpoint(LINKED_CHAT + chat)
            self._chats[chat] = {} if state is None else _decode(state.value)
        return self._chats[chat]


def _check_address(to: str, allowed: tuple[str, ...]) -> Refused | None:
    domain = to.rpartition("@")[2].lower()
    if not allowed or domain in {each.lower().removeprefix("@") for each in allowed}:
        return None
    error = _("the e-mail domain {domain} is not allowed: CHIMES_SMTP_ALLOWED", domain=domain)
    return Refused(error=error, code="not_allowed")


def _decode(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


#: Further recipients are not cached, and answer themselves.
MAX_ENTRIES = 10_000


class RetryAfterCache:
    """Recipients in Retry-After back-off: nothing is sent to them until it ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[Channel, str], float] = {}

    def record(self, recipient: Recipient, result: Result) -> None:
        if not isinstance(result, Retry) or not result.rate_limited or result.after is None:
            return
        now = self._clock.monotonic()
        if len(self._until) >= MAX_ENTRIES:
            self._until = {key: until for key, until in self._until.items() if until > now}
        if len(self._until) < MAX_ENTRIES:
            until = now + result.after.total_seconds()
            key = (recipient.channel, recipient.to)
            self._until[key] = max(until, self._until.get(key, until))

    def check(self, recipient: Recipient) -> Retry | None:
        """The answer that the recipient would give now, if it is in back-off."""
        key = (recipient.channel, recipient.to)
        left = self._until.get(key, 0.0) - self._clock.monotonic()
        if key not in self._until:
            return None
        if left <= 0:
            del self._until[key]
            return None
        return Retry(
            error=_("rate limited by the recipient: waiting"),
            code="rate_limited",
            after=timedelta(seconds=left),
            rate_limited=True,
        )


#: Members shown in a digest and completed in its transaction; further ones are only completed.
MAX_DIGEST_MEMBERS = 10_000
#: A member that no digest included within so many periods and the grace is given up.
MAX_DIGEST_PERIODS = 3
DIGEST_GRACE = timedelta(days=2)
_PAGE = 500


async def gather_members(store: Store, digest: Delivery) -> DigestMembers:
    """Reads the members of a digest; they are completed after it was sent."""
    found: list[Delivery] = []
    async with aclosing(_member_pages(store, digest)) as pages:
        async for members in pages:
            found += members
            if len(found) > MAX_DIGEST_MEMBERS:
                break
    return DigestMembers(
        members=tuple(found[:MAX_DIGEST_MEMBERS]), more=len(found) > MAX_DIGEST_MEMBERS
    )


async def complete_others(store: Store, digest: Delivery, shown: DigestMembers) -> None:
    """Completes the members of a sent digest that did not fit into it."""
    known = {each.id for each in shown.members}
    async for members in _member_pages(store, digest):
        others = [each for each in members if each.id not in known]
        completions = digest_completions(others, digest)
        if completions:
            accepted = {each.id for each in await store.finish_deliveries(completions)}
            await complete_missed(
                store, [each for each in completions if each.delivery_id not in accepted]
            )


async def complete_missed(store: Store, missed: Sequence[DeliveryCompletion]) -> None:
    """Completes members of a sent digest that another node claimed meanwhile. That node can only
    find that they wait for the digest, so their fence may be ignored."""
    for start in range(0, len(missed), _PAGE):
        some = {each.delivery_id: each for each in missed[start : start + _PAGE]}
        query = DeliveryQuery(ids=tuple(some), states=(DeliveryState.PENDING,), limit=None)
        found = (await store.list_deliveries(query)).items
        if found:
            await store.finish_deliveries(
                [replace(some[each.id], fence=each.fence) for each in found]
            )


async def _member_pages(store: Store, digest: Delivery) -> AsyncGenerator[list[Delivery], None]:
    """The pending members of a digest, by pages."""
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


async def load_runs(store: Store, ids: set[RunId]) -> dict[RunId, Run]:
    if not ids:
        return {}
    page = await store.list_runs(RunQuery(ids=tuple(sorted(ids)), limit=None))
    return {run.id: run for run in page.items}


async def defer_to_digest(store: Store, member: Delivery, now: datetime) -> Result:
    """For a member that is due although it belongs to a digest: it waits for that digest while it
    is pending, otherwise for the next one, which is created."""
    known = (await store.list_deliveries(DeliveryQuery(ids=(digest_id_for(member),)))).items
    if known and known[0].state is DeliveryState.PENDING:
        return _retry_in(DIGEST_TIMEOUT)
    digest = member.recipient.digest
    assert digest is not None
    if now - member.created_at > MAX_DIGEST_PERIODS * digest.length + DIGEST_GRACE:
        return Refused(
            error=_("no digest with this notification could be delivered"), code="digest"
        )
    following = await store.add_delivery(digest_of(member, now))
    wait = max(following.available_at - now, timedelta()) + DIGEST_TIMEOUT
    return replace(_retry_in(wait), digest=following.id)


def _retry_in(wait: timedelta) -> Retry:
    error = _("waiting for the next digest")
    return Retry(error=error, code="digest", after=wait, rate_limited=True)


#: Deliveries in one transaction, and completions including digest members; a larger digest is
#: written alone.
BATCH = 100
MAX_COMPLETIONS = 2_000


class _Entry(NamedTuple):
    completion: DeliveryCompletion
    delivery: Delivery
    seconds: float
    members: tuple[DeliveryCompletion, ...]


class DeliveryRecorder:
    """Writes delivery completions in small batches. They are kept through outages: the fence makes
    a late one harmless, and dropping it would send a message again."""

    name = "delivery recorder"

    def __init__(
        self,
        store: Store,
        emit: Listener,
        on_retry: Callable[[Delivery], None] = lambda _delivery: None,
    ) -> None:
        """`on_retry` gets each delivery that will be tried again."""
        self._store = store
        self._emit = emit
        self._on_retry = on_retry
        self._pending: dict[tuple[DeliveryId, int], _Entry] = {}
        self._arrived = asyncio.Event()

    def record(
        self,
        completion: DeliveryCompletion,
        delivery: Delivery,
        seconds: float,
        members: tuple[DeliveryCompletion, ...] = (),
    ) -> None:
        """`members`: completions that are written in the same transaction."""
        key = (completion.delivery_id, completion.fence)
        self._pending[key] = _Entry(completion, delivery, seconds, members)
        self._arrived.set()

    @property
    def queued(self) -> int:
        return len(self._pending)

    async def run_once(self) -> NextPoll:
        # The store answers by id, so a batch has no two attempts of one delivery.
        batch: dict[DeliveryId, _Entry] = {}
        completions = 0
        for each in islice(self._pending.values(), BATCH):
            completions += 1 + len(each.members)
            if batch and completions > MAX_COMPLETIONS:
                break
            batch[each.delivery.id] = each
        if batch:
            await self._write(list(batch.values()))
        if self._pending:
            return PollNow()
        self._arrived.clear()
        return PollOnEvent(event=self._arrived)

    async def _write(self, batch: list[_Entry]) -> None:
        try:
            completions = [one for each in batch for one in (each.completion, *each.members)]
            accepted = await self._store.finish_deliveries(completions)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                # It cannot be written: after its lease the delivery is tried again.
                self._remove(batch[0])
                raise
            await self._write_singly(batch)
            return
        now = {each.id: each for each in accepted}
        for each in batch:
            self._remove(each)
            self._report(each, now.get(each.delivery.id))
        for each in batch:
            if each.completion.sent and each.delivery.id in now:
                # For a member, the accepted completion may be the retry of another claim.
                missed = [one for one in each.members if not _is_ended(now.get(one.delivery_id))]
                await complete_missed(self._store, missed)

    async def _write_singly(self, batch: list[_Entry]) -> None:
        """One completion that cannot be written must not delay the others."""
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

    def _remove(self, each: _Entry) -> None:
        del self._pending[each.completion.delivery_id, each.completion.fence]

    def _report(self, each: _Entry, now: Delivery | None) -> None:
        if now is None:
            self._emit(DeliveryFenced(delivery=each.delivery))
        elif now.state is DeliveryState.PENDING:
            self._on_retry(now)
            self._emit(DeliveryRetrying(delivery=now, seconds=each.seconds))
        else:
            self._emit(DeliveryEnded(delivery=now, seconds=each.seconds))


def _is_ended(delivery: Delivery | None) -> bool:
    return delivery is not None and delivery.state is not DeliveryState.PENDING
