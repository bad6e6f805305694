"""Deliveries and inbox items as hashes: `body` is what scripts do not look at, the fields beside it
are what they judge, change, or find a record by."""

from __future__ import annotations

import json
from dataclasses import dataclass

from chimes.model.change import replace
from chimes.model.delivery import Delivery, InboxItem, occasion_of, outbox
from chimes.model.recipient import Occasion
from chimes.model.run import Run, RunStatus
from chimes.store.codec.messages import (
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
)
from chimes.store.plain import EPOCH, Plain, to_text
from chimes.store.redis.damage import mended_delivery, mended_inbox
from chimes.store.redis.wire import (
    Wire,
    encoded,
    flag,
    flat,
    maybe_moment,
    micros,
    moment,
    texts,
)

#: What scripts show of a delivery and of an inbox item, in their order.
DELIVERY = (
    "body",
    "rest",
    "state",
    "attempts",
    "fence",
    "progress",
    "created",
    "available",
    "finished",
    "run",
    "schedule",
    "owner",
    "channel",
    "rev",
    "id",
)
INBOX = ("body", "owner", "created", "rev", "id")
#: In fields of their own, or in `rest`.
_BESIDE = (
    "id",
    "state",
    "attempts",
    "fence",
    "progress",
    "created_at",
    "available_at",
    "finished_at",
    "error",
    "code",
    "receipt",
)
_ANY_TIMES = {"created_at": to_text(EPOCH), "available_at": to_text(EPOCH)}
#: How the run before a success has to have ended for it to be a recovery.
_RECOVERED_FROM = [
    status.value
    for status in RunStatus
    if occasion_of(RunStatus.SUCCEEDED, status) is Occasion.RECOVERY
]


def posted(run: Run) -> list[Wire]:
    """What a script posts because this run has ended: who is told, who is told instead if the run
    of its schedule before it ended as one of these words. The script knows when that is, and how
    that one ended."""
    # For what waits; what goes out at once has the moment of the script.
    now = run.finished_at or run.created_at
    usual = outbox(run, None, now)
    if run.status is not RunStatus.SUCCEEDED or not run.policy.delivery:
        return [_new(usual), [], []]
    return [_new(usual), _new(outbox(run, RunStatus.FAILED, now)), _RECOVERED_FROM]


def post_ops(run: Run) -> list[Wire]:
    """As an operation of a commit; none if there is nothing to tell."""
    rows = posted(run)
    return [["post", run.schedule_id or "", *rows]] if any(rows[:2]) else []


def _new(deliveries: tuple[Delivery, ...]) -> list[Wire]:
    return [[each.id, flat((_delivery_fields(each) | _times(each)).items())] for each in deliveries]


def _times(delivery: Delivery) -> dict[str, str]:
    """What waits does so for a time that was made from that of its writing: both stay."""
    waits = delivery.available_at > delivery.created_at
    return {} if waits else {"created": "@now", "available": "@now"}


def delivery_fields(delivery: Delivery) -> list[str]:
    return flat(_delivery_fields(delivery).items())


def _delivery_fields(delivery: Delivery) -> dict[str, str]:
    plain = delivery_to_plain(delivery)
    for name in _BESIDE:
        plain.pop(name, None)
    return {
        "body": encoded(plain),
        "run": delivery.run_id or "",
        "schedule": delivery.schedule_id or "",
        "owner": str(delivery.owner),
        "channel": delivery.recipient.channel.value,
        "created": micros(delivery.created_at),
    } | _state_fields(delivery)


def changed_delivery(delivery: Delivery) -> list[str]:
    """What changes in the life of a delivery."""
    return flat(_state_fields(delivery).items())


def _state_fields(delivery: Delivery) -> dict[str, str]:
    rest = [delivery.error, delivery.code, delivery.receipt]
    return {
        "state": delivery.state.value,
        "attempts": str(delivery.attempts),
        "fence": str(delivery.fence),
        "progress": str(delivery.progress),
        "available": micros(delivery.available_at),
        "finished": micros(delivery.finished_at),
        "rest": encoded(rest) if any(rest) else "",
    }


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    delivery: Delivery
    rev: str
    #: Parts of it are placeholders.
    damaged: bool = False


def delivery_of(record: Wire) -> DeliveryRow:
    fields = dict(zip(DELIVERY, texts(record), strict=True))
    try:
        return DeliveryRow(_delivery(fields), fields["rev"])
    except Exception as error:
        return DeliveryRow(mended_delivery(fields, error), fields["rev"], damaged=True)


def _delivery(fields: dict[str, str]) -> Delivery:
    plain: Plain = json.loads(fields["body"])
    error, code, receipt = json.loads(fields["rest"]) if fields["rest"] else ("", "", "")
    base = delivery_from_plain(plain | {"id": fields["id"], "state": fields["state"]} | _ANY_TIMES)
    return replace(
        base,
        attempts=int(fields["attempts"]),
        fence=int(fields["fence"]),
        progress=int(fields["progress"]),
        created_at=moment(fields["created"]),
        available_at=moment(fields["available"]),
        finished_at=maybe_moment(fields["finished"]),
        error=str(error),
        code=str(code),
        receipt=str(receipt),
    )


def inbox_fields(item: InboxItem) -> list[str]:
    return flat(
        {
            "body": encoded(inbox_to_plain(item)),
            "owner": str(item.owner),
            "run": item.run_id or "",
            "schedule": item.schedule_id or "",
            "created": micros(item.created_at),
            "read": micros(item.read_at),
            "starred": flag(item.starred),
            "archived": micros(item.archived_at),
            "snoozed": micros(item.snoozed_until),
        }.items()
    )


def inbox_of(record: Wire) -> tuple[InboxItem, str]:
    """The item and its revision; one that cannot be read is a notice that says so."""
    fields = dict(zip(INBOX, texts(record), strict=True))
    try:
        return inbox_from_plain(json.loads(fields["body"])), fields["rev"]
    except Exception as error:
        return mended_inbox(fields, error), fields["rev"]
