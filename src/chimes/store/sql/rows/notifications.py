"""Rows of deliveries and inbox items."""

from __future__ import annotations

import json
import logging
from typing import Any

from sqlalchemy import Row

from chimes.envelope import Keyring
from chimes.errors import InvalidInput, SecretUnreadable, message_of
from chimes.i18n import _, from_stored
from chimes.model.access import SYSTEM_OWNER
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import Reason
from chimes.store.codec.records import artifacts_from_plain, artifacts_to_plain
from chimes.store.codec.values import open_json, recipient_from_plain, recipient_to_plain, seal_json
from chimes.store.sql.rows.values import (
    Value,
    clean,
    encode,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    owner_of,
    stored_text,
)

_log = logging.getLogger(__name__)

_DAMAGE = (ValueError, TypeError, InvalidInput, SecretUnreadable)
_MAX_CODE_LENGTH = 64


def delivery_values(delivery: Delivery, keyring: Keyring) -> dict[str, Value]:
    return {
        "id": delivery.id,
        "run_id": delivery.run_id or "",
        "schedule_id": delivery.schedule_id,
        "schedule_name": delivery.schedule_name,
        "owner_type": delivery.owner.type.value,
        "owner_id": delivery.owner.id,
        "channel": delivery.recipient.channel.value,
        "recipient": seal_json(encode(recipient_to_plain(delivery.recipient)), keyring),
        "occasion": delivery.notify_on.value,
        "created_at": micros(delivery.created_at),
        **progress_values(delivery),
    }


def progress_values(delivery: Delivery) -> dict[str, Value]:
    """The columns that change during the life of a delivery."""
    return {
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "fence": delivery.fence,
        "progress": delivery.progress,
        "available_at": micros(delivery.available_at),
        "finished_at": maybe_micros(delivery.finished_at),
        "error": stored_text(delivery.error),
        "code": clean(delivery.code)[:_MAX_CODE_LENGTH],
        "receipt": clean(delivery.receipt),
    }


def delivery_of(row: Row[Any]) -> Delivery:
    """A corrupt row gets placeholders and the code `unreadable_row`: it must not hide other
    rows."""
    error, code = from_stored(row.error), row.code
    try:
        recipient = recipient_from_plain(json.loads(open_json(row.recipient)))
        notify_on, state = NotifyOn(row.occasion), DeliveryState(row.state)
        owner = owner_of(row.owner_type, row.owner_id)
    except _DAMAGE as damage:
        _log.warning("delivery %s cannot be read: %s", row.id, damage)
        recipient, notify_on = Recipient(channel=Channel.INBOX), NotifyOn.ALWAYS
        state, owner = _state(row.state), SYSTEM_OWNER
        error = _("this delivery cannot be read: {error}", error=message_of(damage))
        code = Reason.UNREADABLE
    return Delivery(
        id=DeliveryId(row.id),
        run_id=RunId(row.run_id) if row.run_id else None,
        schedule_id=None if row.schedule_id is None else ScheduleId(row.schedule_id),
        schedule_name=row.schedule_name,
        owner=owner,
        recipient=recipient,
        notify_on=notify_on,
        state=state,
        attempts=row.attempts,
        fence=row.fence,
        progress=row.progress,
        created_at=moment_of(row.created_at),
        available_at=moment_of(row.available_at),
        finished_at=maybe_moment(row.finished_at),
        error=error,
        code=code,
        receipt=row.receipt,
    )


def _state(word: str) -> DeliveryState:
    return DeliveryState(word) if word in set(DeliveryState) else DeliveryState.DEAD


def item_values(item: InboxItem) -> dict[str, Value]:
    return {
        "id": item.id,
        "owner_type": item.owner.type.value,
        "owner_id": item.owner.id,
        "run_id": item.run_id,
        "schedule_id": item.schedule_id,
        "schedule_name": item.schedule_name,
        "title": clean(item.title),
        "text": clean(item.text),
        "status": item.status,
        "artifacts": encode(artifacts_to_plain(item.artifacts)),
        "created_at": micros(item.created_at),
        "read_at": maybe_micros(item.read_at),
        "starred": int(item.starred),
        "archived_at": maybe_micros(item.archived_at),
        "snoozed_until": maybe_micros(item.snoozed_until),
    }


def item_of(row: Row[Any]) -> InboxItem:
    try:
        artifacts = artifacts_from_plain(json.loads(row.artifacts))
    except _DAMAGE as damage:
        _log.warning("the artifacts of inbox item %s cannot be read: %s", row.id, damage)
        artifacts = ()
    return InboxItem(
        id=InboxId(row.id),
        owner=owner_of(row.owner_type, row.owner_id),
        run_id=None if row.run_id is None else RunId(row.run_id),
        schedule_id=None if row.schedule_id is None else ScheduleId(row.schedule_id),
        schedule_name=row.schedule_name,
        title=row.title,
        text=row.text,
        status=row.status,
        artifacts=artifacts,
        created_at=moment_of(row.created_at),
        read_at=maybe_moment(row.read_at),
        starred=row.starred == 1,
        archived_at=maybe_moment(row.archived_at),
        snoozed_until=maybe_moment(row.snoozed_until),
    )
