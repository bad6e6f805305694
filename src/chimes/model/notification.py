"""Deliveries of notifications, the outbox, and the inbox.

A delivery is written in the transaction that ends its run. It has its own attempts and never
changes the run.

A recipient with a digest has one extra delivery per period: that one is sent, and the deliveries
of the single runs are completed with it (ADR 32).
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.i18n import freeze
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.fields import MessageText
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.monitor import (
    Monitor,
    MonitorEvent,
    event_reference,
    notify_on_for_event,
)
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.routing import NO_ROUTING, Routing
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule

DELIVERY_NAMESPACE = uuid.UUID("5b9f0c3e-8f0b-5a86-b2b7-6f3d1d0a7c11")
#: Including the first; with the delays below about a day.
MAX_DELIVERY_ATTEMPTS = 32
#: How long a sender has before it counts as lost.
DELIVERY_LEASE = timedelta(minutes=3)
FIRST_RETRY_DELAY = timedelta(seconds=5)
MAX_RETRY_DELAY = timedelta(hours=1)
#: Claims up to which a Retry-After response uses up no attempt.
MAX_RATE_LIMITED_CLAIMS = 200
#: Longest delay between two of those, unless the receiver requests more.
MAX_RATE_LIMITED_DELAY = timedelta(minutes=5)
#: Delay after the end of the period, to include runs that are just being written.
DIGEST_SLACK = timedelta(seconds=5)
#: When a delivery that its digest did not include is handled on its own.
DIGEST_TIMEOUT = timedelta(hours=1)

_FAILED = frozenset({RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN, RunStatus.MISSED})


class DeliveryState(StrEnum):
    #: Waits for its next attempt, or is being sent.
    PENDING = "pending"
    DELIVERED = "delivered"
    #: Dead letter: given up, with the last error.
    DEAD = "dead"
    #: Not sent on purpose: silenced, or an escalation that was not needed; `error` says why.
    SUPPRESSED = "suppressed"


class Delivery(Struct, frozen=True, kw_only=True):
    #: The same for the same run and recipient, so that a repeated write makes no second message.
    id: DeliveryId
    #: None for a digest, a test or a proposal; `monitor:ID:NUMBER` for an event of a monitor.
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str = ""
    owner: Owner
    #: Snapshot, including secrets.
    recipient: Recipient
    #: Why it was written: success, failure, recovery, late; `always` for any other end.
    notify_on: NotifyOn = field(name="occasion")
    state: DeliveryState = DeliveryState.PENDING
    #: Attempts since the last manual retry, without those answered with Retry-After.
    attempts: int = 0
    #: Incremented by every claim; a completion with another fence is rejected.
    fence: int = 0
    #: Parts of the message that were already sent; a retry continues after them.
    progress: int = 0
    created_at: datetime
    #: Earliest next attempt; while being sent, when its sender counts as lost.
    available_at: datetime
    #: When it was delivered or given up.
    finished_at: datetime | None = None
    error: MessageText = ""
    #: Stable code of the failure, e.g. `blocked`.
    code: str = ""
    #: The receiver's id, e.g. of a Telegram message; or the id of the digest that includes this
    #: delivery, or shall do so instead of the first one; or, until it is sent, the id of the
    #: proposal or approval that it is about.
    receipt: str = ""

    def may_be_sending(self, now: datetime) -> bool:
        """Whether it may be being sent; a short wait for a retry looks the same."""
        pending = self.state is DeliveryState.PENDING and self.fence > 0
        return pending and now < self.available_at <= now + DELIVERY_LEASE


class Artifact(Struct, frozen=True, kw_only=True):
    """A file that a run produced, and its URL."""

    name: str
    url: str


class InboxItem(Struct, frozen=True, kw_only=True):
    """A message in the owner's inbox. It has its own text, because it may outlive its run."""

    id: InboxId
    owner: Owner
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str = ""
    title: str
    #: Markdown, not sanitised.
    text: str = ""
    #: The status of the run; `digest`, `test`; empty for other notices.
    status: str = ""
    artifacts: tuple[Artifact, ...] = ()
    created_at: datetime
    read_at: datetime | None = None
    starred: bool = False
    archived_at: datetime | None = None
    snoozed_until: datetime | None = None


class DeliveryCompletion(Struct, frozen=True, kw_only=True):
    """The end of an attempt. Neither `sent`, `suppressed` nor `retry_in`: give up."""

    delivery_id: DeliveryId
    fence: int
    sent: bool = False
    suppressed: bool = False
    retry_in: timedelta | None = None
    #: With `retry_in`: whether the attempt counts towards MAX_DELIVERY_ATTEMPTS.
    counts: bool = True
    progress: int = 0
    error: str = ""
    code: str = ""
    receipt: str = ""
    #: Added to the inbox in the same transaction, unless it exists.
    inbox: InboxItem | None = None


def plan_deliveries(
    run: Run, previous: RunStatus | None, now: datetime, routing: Routing = NO_ROUTING
) -> tuple[Delivery, ...]:
    """The deliveries of a run that has ended. `previous`: status of the previous run of the
    schedule. `routing`: the rules that add recipients. Steps of a flow send no notifications; the
    flow does."""
    recipients = routing.recipients_of(run)
    if not recipients or not run.status.terminal or run.origin is Origin.CHILD:
        return ()
    notify_on = notify_on_for(run.status, previous)
    if notify_on is None:
        return ()
    # One per address: the first recipient that wants the outcome, else the first that wants late.
    chosen: dict[tuple[Channel, str], tuple[Recipient, NotifyOn]] = {}
    for recipient in recipients:
        address = recipient.channel, recipient.to
        if recipient.wants(notify_on):
            if address not in chosen or chosen[address][1] is not notify_on:
                chosen[address] = recipient, notify_on
        elif recipient.wants(NotifyOn.LATE) and is_late(run, recipient.late_after):
            chosen.setdefault(address, (recipient, NotifyOn.LATE))
    found: list[Delivery] = []
    for recipient, why in chosen.values():
        found += _with_digest(_delivery(run, recipient, why, now), now)
    return tuple(found)


def plan_pause_deliveries(schedule: Schedule, run: Run, now: datetime) -> tuple[Delivery, ...]:
    """The deliveries about a schedule that was paused because this and earlier runs failed: to
    every recipient, whatever events it selects, and to the inbox of the owner."""
    recipients = schedule.policy.delivery
    if all(each.channel is not Channel.INBOX for each in recipients):
        recipients = (*recipients, Recipient(channel=Channel.INBOX))
    return tuple(
        replace(
            _delivery(run, recipient, NotifyOn.PAUSED, now),
            id=_id(
                f"paused\0{schedule.id}\0{schedule.version}\0{recipient.channel}\0{recipient.to}"
            ),
        )
        for recipient in dict.fromkeys(recipients)
    )


def plan_monitor_deliveries(
    monitor: Monitor, event: MonitorEvent, now: datetime
) -> tuple[Delivery, ...]:
    """The deliveries of an event of a monitor; the same ids for the same event."""
    notify_on = notify_on_for_event(event)
    reference = event_reference(monitor.id, event.number)
    found: list[Delivery] = []
    for recipient in dict.fromkeys(monitor.delivery):
        if not recipient.wants(notify_on):
            continue
        delivery = Delivery(
            id=_id(f"{reference}\0{recipient.channel}\0{recipient.to}"),
            run_id=reference,
            schedule_id=None,
            schedule_name=monitor.name,
            owner=monitor.owner,
            recipient=recipient,
            notify_on=notify_on,
            created_at=now,
            available_at=recipient.quiet_until(now, notify_on) or now,
        )
        found += _with_digest(delivery, now)
    return tuple(found)


def _with_digest(delivery: Delivery, now: datetime) -> tuple[Delivery, ...]:
    """The delivery, with the digest that includes it if there is one."""
    if not delivery.recipient.goes_into_digest(delivery.notify_on):
        return (delivery,)
    digest = digest_of(delivery, now)
    return (replace(delivery, available_at=digest.available_at + DIGEST_TIMEOUT), digest)


def notify_on_for(status: RunStatus, previous: RunStatus | None) -> NotifyOn | None:
    """None: skipped slots send no notifications."""
    if status is RunStatus.SUCCEEDED:
        return NotifyOn.RECOVERY if previous in _FAILED else NotifyOn.SUCCESS
    if status in _FAILED:
        return NotifyOn.FAILURE
    return NotifyOn.ALWAYS if status is RunStatus.CANCELED else None


def is_late(run: Run, after: timedelta) -> bool:
    """Whether a scheduled run was missed or started later than `after`. Manual runs are never
    late."""
    if run.origin is not Origin.SCHEDULE:
        return False
    if run.status is RunStatus.MISSED:
        return True
    return run.started_at is not None and run.started_at - run.planned_at > after


def _delivery(run: Run, recipient: Recipient, notify_on: NotifyOn, now: datetime) -> Delivery:
    return Delivery(
        id=_id(f"{run.id}\0{recipient.channel}\0{recipient.to}"),
        run_id=run.id,
        schedule_id=run.schedule_id,
        schedule_name=run.schedule_name,
        owner=run.owner,
        recipient=recipient,
        notify_on=notify_on,
        created_at=now,
        available_at=_first_attempt(recipient, notify_on, now),
    )


def _first_attempt(recipient: Recipient, notify_on: NotifyOn, now: datetime) -> datetime:
    due = now if recipient.after is None else now + recipient.after
    return recipient.quiet_until(due, notify_on) or due


def digest_of(delivery: Delivery, now: datetime) -> Delivery:
    """The digest that includes this delivery if written now; the same for the whole period."""
    recipient, owner = delivery.recipient, delivery.owner
    assert recipient.digest is not None
    end = recipient.digest_after(now)
    parts = (owner, recipient.channel, recipient.to, _digest_times(recipient), end.isoformat())
    return Delivery(
        id=_id("\0".join(("digest", *map(str, parts)))),
        run_id=None,
        schedule_id=None,
        owner=owner,
        recipient=recipient,
        notify_on=NotifyOn.DIGEST,
        created_at=now,
        available_at=end + DIGEST_SLACK,
    )


def digest_end(digest: Delivery) -> datetime:
    """Deliveries written before this time belong to the digest."""
    return digest.recipient.digest_after(digest.created_at)


def digest_id_for(member: Delivery) -> DeliveryId:
    """The digest that includes it: that of its period, or the one it was passed on to."""
    return DeliveryId(member.receipt or digest_of(member, member.created_at).id)


def belongs_to_digest(delivery: Delivery, digest: Delivery) -> bool:
    """Whether the digest includes the delivery; exactly one digest does."""
    return (
        delivery.state is DeliveryState.PENDING
        and delivery.recipient.goes_into_digest(delivery.notify_on)
        and (delivery.owner, delivery.recipient.to) == (digest.owner, digest.recipient.to)
        and digest_id_for(delivery) == digest.id
    )


def make_test_delivery(recipient: Recipient, owner: Owner, name: str, now: datetime) -> Delivery:
    """A test message; `name` must be unique per test."""
    return Delivery(
        id=_id(f"test\0{owner}\0{name}"),
        run_id=None,
        schedule_id=None,
        owner=owner,
        recipient=recipient,
        notify_on=NotifyOn.TEST,
        created_at=now,
        available_at=now,
    )


def make_proposal_delivery(
    proposal_id: str, recipient: Recipient, owner: Owner, now: datetime
) -> Delivery:
    return Delivery(
        id=_id("\0".join(("proposal", proposal_id, str(owner), recipient.channel, recipient.to))),
        run_id=None,
        schedule_id=None,
        owner=owner,
        recipient=recipient,
        notify_on=NotifyOn.PROPOSAL,
        created_at=now,
        available_at=now,
        receipt=proposal_id,
    )


def make_approval_delivery(run: Run, recipient: Recipient, owner: Owner) -> Delivery:
    """About a step that waits for a decision. `after` of the recipient delays it: by then the
    decision may have been made."""
    now = run.created_at
    return Delivery(
        id=_id("\0".join(("approval", run.id, str(owner), recipient.channel, recipient.to))),
        run_id=None,
        schedule_id=None,
        owner=owner,
        recipient=recipient,
        notify_on=NotifyOn.APPROVAL,
        created_at=now,
        available_at=now if recipient.after is None else now + recipient.after,
        receipt=run.id,
    )


def _id(name: str) -> DeliveryId:
    return DeliveryId(str(uuid.uuid5(DELIVERY_NAMESPACE, name)))


def _digest_times(recipient: Recipient) -> str:
    """The settings that decide when a digest is sent."""
    digest, quiet = recipient.digest, recipient.quiet_for(NotifyOn.DIGEST)
    assert digest is not None
    rhythm = f"{digest.every} {digest.at} {digest.weekday} {digest.zone}"
    return rhythm if quiet is None else f"{rhythm} {quiet.start} {quiet.end} {quiet.zone}"


def claim_delivery(delivery: Delivery, now: datetime, lease: timedelta) -> Delivery:
    """Hand the delivery to a sender for the length of the lease."""
    return replace(
        delivery,
        attempts=delivery.attempts + 1,
        fence=delivery.fence + 1,
        available_at=now + lease,
    )


def owns_delivery_fence(delivery: Delivery, fence: int) -> bool:
    return delivery.state is DeliveryState.PENDING and delivery.fence == fence


def complete_delivery(
    delivery: Delivery, completion: DeliveryCompletion, now: datetime
) -> Delivery:
    after = replace(
        delivery,
        progress=max(delivery.progress, completion.progress),
        error=freeze(completion.error),
        code=completion.code,
        receipt=completion.receipt or delivery.receipt,
    )
    if completion.sent:
        return replace(after, state=DeliveryState.DELIVERED, finished_at=now)
    if completion.suppressed:
        return replace(after, state=DeliveryState.SUPPRESSED, finished_at=now)
    if completion.retry_in is not None and not completion.counts:
        begun = max(0, delivery.attempts - 1)
        return replace(after, attempts=begun, available_at=now + completion.retry_in)
    if completion.retry_in is not None and delivery.attempts < MAX_DELIVERY_ATTEMPTS:
        return replace(after, available_at=now + completion.retry_in)
    return replace(after, state=DeliveryState.DEAD, finished_at=now)


def reopen_delivery(delivery: Delivery, now: datetime) -> Delivery:
    """Manual retry of a dead, suppressed or pending delivery."""
    if delivery.state is DeliveryState.DELIVERED:
        return delivery
    return replace(
        delivery, state=DeliveryState.PENDING, attempts=0, available_at=now, finished_at=None
    )


def delivery_retry_delay(attempts: int, retry_after: timedelta | None = None) -> timedelta:
    """Exponential back-off; the receiver may request more."""
    doubled = 1 << max(0, min(attempts - 1, 20))
    wait = min(FIRST_RETRY_DELAY * doubled, MAX_RETRY_DELAY)
    return wait if retry_after is None else max(wait, min(retry_after, timedelta(days=1)))


def rate_limited_delay(claims: int, retry_after: timedelta | None = None) -> timedelta:
    """Delay after a Retry-After response: capped at minutes, so that a busy chat does not wait for
    hours."""
    own = min(delivery_retry_delay(claims), MAX_RATE_LIMITED_DELAY)
    return own if retry_after is None else max(own, min(retry_after, timedelta(days=1)))


# --- changes of inbox items


class Unsnooze(Struct, frozen=True, kw_only=True):
    """Ends a snooze."""


class InboxChange(Struct, frozen=True, kw_only=True):
    """None: unchanged."""

    read: bool | None = None
    starred: bool | None = None
    archived: bool | None = None
    snoozed_until: datetime | Unsnooze | None = None


READ = InboxChange(read=True)


def change_inbox_item(item: InboxItem, change: InboxChange, now: datetime) -> InboxItem:
    """Marking again keeps the time of the first mark."""
    if change.read is not None:
        item = replace(item, read_at=_since(item.read_at, change.read, now))
    if change.starred is not None:
        item = replace(item, starred=change.starred)
    if change.archived is not None:
        item = replace(item, archived_at=_since(item.archived_at, change.archived, now))
    if isinstance(change.snoozed_until, Unsnooze):
        item = replace(item, snoozed_until=None)
    elif change.snoozed_until is not None:
        item = replace(item, snoozed_until=change.snoozed_until)
    return item


def _since(before: datetime | None, marked: bool, now: datetime) -> datetime | None:
    return (before or now) if marked else None
