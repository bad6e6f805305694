"""Handing results over: who is told of which runs, and the outbox in which each message waits.

A delivery is written in the transaction that ends its run, and is then work of its own: it has its
own attempts, and whatever becomes of it never changes the run (R1.11).

A recipient with a digest has, besides those for its runs, one delivery for each period: that one is
sent, and the others are settled with it (ADR 32).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.model.access import Owner
from chimes.model.change import replace
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.recipient import NotifyOn, Recipient
from chimes.model.run import Origin, Run, RunStatus

DELIVERY_NAMESPACE = uuid.UUID("5b9f0c3e-8f0b-5a86-b2b7-6f3d1d0a7c11")
#: In total, the first one included: with the waits below, about a day.
MAX_DELIVERY_ATTEMPTS = 32
#: How long a sender has before it counts as lost.
DELIVERY_LEASE = timedelta(minutes=3)
FIRST_RETRY_DELAY = timedelta(seconds=5)
MAX_RETRY_DELAY = timedelta(hours=1)
#: Claims of a delivery up to which being told to come back later uses up no attempt.
MAX_RATE_LIMITED_CLAIMS = 200
#: Between two of those, unless the other side asks for more.
MAX_RATE_LIMITED_DELAY = timedelta(minutes=5)
#: After the end of its period, so that what is just being written is in it.
DIGEST_SLACK = timedelta(seconds=5)
#: From when on after that what its digest has not taken asks why.
DIGEST_TIMEOUT = timedelta(hours=1)

_FAILED = frozenset({RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN, RunStatus.MISSED})


class DeliveryState(StrEnum):
    #: Waits for its (next) attempt, or is under way.
    PENDING = "pending"
    DELIVERED = "delivered"
    #: The dead letter: given up, with the error that ended it.
    DEAD = "dead"


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    #: The same for the same run and recipient, so that nobody is written to twice by a repeat.
    id: DeliveryId
    #: None: a digest, or a test.
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str = ""
    owner: Owner
    #: A snapshot, with its secrets.
    recipient: Recipient
    #: Why it was written: success, failure, recovery, late; `always` for any other end.
    notify_on: NotifyOn
    state: DeliveryState = DeliveryState.PENDING
    #: Begun so far, since it was last tried again by hand; without those that were told to come
    #: back later.
    attempts: int = 0
    #: Rises with every claim; a verdict carries it.
    fence: int = 0
    #: Parts of the message that the other side has already: a repeat goes on after them.
    progress: int = 0
    created_at: datetime
    #: Not before; while it is under way, when its sender counts as lost.
    available_at: datetime
    #: When it was delivered or given up.
    finished_at: datetime | None = None
    error: str = ""
    #: Stable word for the kind of failure, e.g. `blocked`.
    code: str = ""
    #: What the other side calls it, e.g. the number of a message; the digest that has taken it
    #: along, or is to do so in place of the first one.
    receipt: str = ""

    def may_be_under_way(self, now: datetime) -> bool:
        """Whether somebody may just be sending it; one that only waits, not for long, looks the
        same."""
        pending = self.state is DeliveryState.PENDING and self.fence > 0
        return pending and now < self.available_at <= now + DELIVERY_LEASE


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Something that a run made, and where it can be had."""

    name: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """A message in the owner's inbox. It holds its own text: its run may be forgotten before it,
    a starred one stays for good."""

    id: InboxId
    owner: Owner
    run_id: RunId | None
    schedule_id: ScheduleId | None
    schedule_name: str = ""
    title: str
    #: Markdown, as data: whoever shows it makes it safe.
    text: str = ""
    #: The run's, as a word; `digest`, `test`; empty for a notice of another kind.
    status: str = ""
    artifacts: tuple[Artifact, ...] = ()
    created_at: datetime
    read_at: datetime | None = None
    starred: bool = False
    archived_at: datetime | None = None
    snoozed_until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryCompletion:
    """What became of an attempt. Neither sent nor to be tried again means: give up."""

    delivery_id: DeliveryId
    fence: int
    sent: bool = False
    retry_in: timedelta | None = None
    #: Whether this attempt is one of the MOST_ATTEMPTS; only for those that are tried again.
    counts: bool = True
    progress: int = 0
    error: str = ""
    code: str = ""
    receipt: str = ""
    #: Put into the inbox in the same transaction (an item that is there already stays).
    inbox: InboxItem | None = None


def plan_deliveries(run: Run, previous: RunStatus | None, now: datetime) -> tuple[Delivery, ...]:
    """What is to be delivered because this run has ended. `previous`: how the run of the same
    schedule before it ended. A step of a flow tells nobody: its flow does."""
    recipients = run.policy.delivery
    if not recipients or not run.status.terminal or run.origin is Origin.CHILD:
        return ()
    notify_on = notify_on_for(run.status, previous)
    if notify_on is None:
        return ()
    found: list[Delivery] = []
    for recipient in dict.fromkeys(recipients):
        why = notify_on
        if not recipient.wants(notify_on):
            if not (recipient.wants(NotifyOn.LATE) and is_late(run, recipient.late_after)):
                continue
            why = NotifyOn.LATE
        delivery = _delivery(run, recipient, why, now)
        if recipient.goes_into_digest(why):
            digest = digest_of(delivery, now)
            found.append(replace(delivery, available_at=digest.available_at + DIGEST_TIMEOUT))
            found.append(digest)
        else:
            found.append(delivery)
    return tuple(found)


def notify_on_for(status: RunStatus, previous: RunStatus | None) -> NotifyOn | None:
    """None: nobody is told of slots that were skipped on purpose."""
    if status is RunStatus.SUCCEEDED:
        return NotifyOn.RECOVERY if previous in _FAILED else NotifyOn.SUCCESS
    if status in _FAILED:
        return NotifyOn.FAILURE
    return NotifyOn.ALWAYS if status is RunStatus.CANCELED else None


def is_late(run: Run, after: timedelta) -> bool:
    """Whether a run of the plan began later than that behind its time, or was missed. What was
    asked for by hand has no time to be behind."""
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
        available_at=recipient.quiet_until(now, notify_on) or now,
    )


def digest_of(delivery: Delivery, now: datetime) -> Delivery:
    """The one that takes this delivery along, if it is written at that time; the same for all of
    its period."""
    recipient, owner = delivery.recipient, delivery.owner
    assert recipient.digest is not None
    end = recipient.digest_after(now)
    parts = (owner, recipient.channel, recipient.to, _kept(recipient), end.isoformat())
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
    """What was written before then belongs to it."""
    return digest.recipient.digest_after(digest.created_at)


def digest_id_for(member: Delivery) -> DeliveryId:
    """The one digest that is to take it along: that of its period, unless that one has left it
    behind for another."""
    return DeliveryId(member.receipt or digest_of(member, member.created_at).id)


def belongs_to_digest(delivery: Delivery, digest: Delivery) -> bool:
    """Whether the digest takes it along; of several that are due together only one does."""
    return (
        delivery.state is DeliveryState.PENDING
        and delivery.recipient.goes_into_digest(delivery.notify_on)
        and (delivery.owner, delivery.recipient.to) == (digest.owner, digest.recipient.to)
        and digest_id_for(delivery) == digest.id
    )


def make_test_delivery(recipient: Recipient, owner: Owner, name: str, now: datetime) -> Delivery:
    """Of somebody who wants to see a message arrive; `name`: unlike that of any other test."""
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


def _id(name: str) -> DeliveryId:
    return DeliveryId(str(uuid.uuid5(DELIVERY_NAMESPACE, name)))


def _kept(recipient: Recipient) -> str:
    """What decides when a digest is sent."""
    digest, quiet = recipient.digest, recipient.quiet_for(NotifyOn.DIGEST)
    assert digest is not None
    rhythm = f"{digest.every} {digest.at} {digest.weekday} {digest.zone}"
    return rhythm if quiet is None else f"{rhythm} {quiet.start} {quiet.end} {quiet.zone}"


def claim_delivery(delivery: Delivery, now: datetime, lease: timedelta) -> Delivery:
    """In the hands of a sender, who has this long before it counts as lost."""
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
        error=str(completion.error),
        code=completion.code,
        receipt=completion.receipt or delivery.receipt,
    )
    if completion.sent:
        return replace(after, state=DeliveryState.DELIVERED, finished_at=now)
    if completion.retry_in is not None and not completion.counts:
        begun = max(0, delivery.attempts - 1)
        return replace(after, attempts=begun, available_at=now + completion.retry_in)
    if completion.retry_in is not None and delivery.attempts < MAX_DELIVERY_ATTEMPTS:
        return replace(after, available_at=now + completion.retry_in)
    return replace(after, state=DeliveryState.DEAD, finished_at=now)


def reopen_delivery(delivery: Delivery, now: datetime) -> Delivery:
    """By hand: a dead letter (or one that waits) is tried again from now on."""
    if delivery.state is DeliveryState.DELIVERED:
        return delivery
    return replace(
        delivery, state=DeliveryState.PENDING, attempts=0, available_at=now, finished_at=None
    )


def delivery_retry_delay(attempts: int, asked: timedelta | None = None) -> timedelta:
    """How long to wait after this many attempts; the other side may ask for more."""
    doubled = 1 << max(0, min(attempts - 1, 20))
    wait = min(FIRST_RETRY_DELAY * doubled, MAX_RETRY_DELAY)
    return wait if asked is None else max(wait, min(asked, timedelta(days=1)))


def rate_limited_delay(claims: int, asked: timedelta | None = None) -> timedelta:
    """The same for one that was told to come back later, after this many claims: its turn comes
    within minutes, so that a busy chat is not left for hours."""
    own = min(delivery_retry_delay(claims), MAX_RATE_LIMITED_DELAY)
    return own if asked is None else max(own, min(asked, timedelta(days=1)))


# @@ What can be done with a message of the inbox (pure).


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsnooze:
    """Ends a snooze."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxChange:
    """None: that stays as it is."""

    read: bool | None = None
    starred: bool | None = None
    archived: bool | None = None
    snoozed_until: datetime | Unsnooze | None = None


READ = InboxChange(read=True)


def change_inbox_item(item: InboxItem, change: InboxChange, now: datetime) -> InboxItem:
    """What is marked again keeps the time of the first mark."""
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
