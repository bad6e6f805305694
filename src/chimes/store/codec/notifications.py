"""Encodes deliveries and inbox items."""

from __future__ import annotations

from chimes.errors import InvalidInput
from chimes.i18n import _, from_stored, to_stored
from chimes.model.definition import NotifyOn
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.notification import Artifact, Delivery, DeliveryState, InboxItem
from chimes.store.codec.schedule import (
    owner_from_plain,
    owner_to_plain,
    recipient_from_plain,
    recipient_to_plain,
)
from chimes.store.json_values import Plain, Reader, drop_empty, maybe_text, to_text


def delivery_to_plain(delivery: Delivery) -> Plain:
    return drop_empty(
        {
            "id": delivery.id,
            "run_id": delivery.run_id,
            "schedule_id": delivery.schedule_id,
            "schedule_name": delivery.schedule_name,
            "owner": owner_to_plain(delivery.owner),
            "recipient": recipient_to_plain(delivery.recipient),
            "occasion": delivery.notify_on.value,
            "state": delivery.state.value,
            "attempts": delivery.attempts,
            "fence": delivery.fence,
            "progress": delivery.progress,
            "created_at": to_text(delivery.created_at),
            "available_at": to_text(delivery.available_at),
            "finished_at": maybe_text(delivery.finished_at),
            "error": to_stored(delivery.error),
            "code": delivery.code,
            "receipt": delivery.receipt,
        }
    )


def delivery_from_plain(data: object) -> Delivery:
    read = Reader(data)
    run_id, schedule_id = read.maybe_text("run_id"), read.maybe_text("schedule_id")
    delivery = Delivery(
        id=DeliveryId(read.text("id")),
        run_id=None if run_id is None else RunId(run_id),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        schedule_name=read.text("schedule_name", ""),
        owner=read.read("owner", owner_from_plain),
        recipient=read.read("recipient", recipient_from_plain),
        notify_on=NotifyOn(read.text("occasion")),
        state=DeliveryState(read.text("state", DeliveryState.PENDING)),
        attempts=read.integer("attempts", 0),
        fence=read.integer("fence", 0),
        progress=read.integer("progress", 0),
        created_at=read.time("created_at"),
        available_at=read.time("available_at"),
        finished_at=read.maybe_time("finished_at"),
        error=from_stored(read.text("error", "")),
        code=read.text("code", ""),
        receipt=read.text("receipt", ""),
    )
    read.done()
    return delivery


def inbox_to_plain(item: InboxItem) -> Plain:
    return drop_empty(
        {
            "id": item.id,
            "owner": owner_to_plain(item.owner),
            "run_id": item.run_id,
            "schedule_id": item.schedule_id,
            "schedule_name": item.schedule_name,
            "title": item.title,
            "text": item.text,
            "status": item.status,
            "artifacts": artifacts_to_plain(item.artifacts),
            "created_at": to_text(item.created_at),
            "read_at": maybe_text(item.read_at),
            "starred": item.starred,
            "archived_at": maybe_text(item.archived_at),
            "snoozed_until": maybe_text(item.snoozed_until),
        }
    )


def inbox_from_plain(data: object) -> InboxItem:
    read = Reader(data)
    run_id, schedule_id = read.maybe_text("run_id"), read.maybe_text("schedule_id")
    item = InboxItem(
        id=InboxId(read.text("id")),
        owner=read.read("owner", owner_from_plain),
        run_id=None if run_id is None else RunId(run_id),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        schedule_name=read.text("schedule_name", ""),
        title=read.text("title", ""),
        text=read.text("text", ""),
        status=read.text("status", ""),
        artifacts=artifacts_from_plain(read.items("artifacts")),
        created_at=read.time("created_at"),
        read_at=read.maybe_time("read_at"),
        starred=read.flag("starred", False),
        archived_at=read.maybe_time("archived_at"),
        snoozed_until=read.maybe_time("snoozed_until"),
    )
    read.done()
    return item


def artifacts_to_plain(artifacts: tuple[Artifact, ...]) -> list[Plain]:
    return [{"name": each.name, "url": each.url} for each in artifacts]


def artifacts_from_plain(data: object) -> tuple[Artifact, ...]:
    if not isinstance(data, list):
        raise InvalidInput(_("expected a list, got {type}", type=type(data).__name__))
    return tuple(artifact_from_plain(each) for each in data)


def artifact_from_plain(data: object) -> Artifact:
    read = Reader(data)
    artifact = Artifact(name=read.text("name", ""), url=read.text("url", ""))
    read.done()
    return artifact
