"""Which messages leave the file, and what the file goes on saying of them (see `messages`)."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.model.change import replace
from chimes.model.delivery import Delivery, DeliveryState, InboxItem
from chimes.model.ids import DeliveryId, InboxId
from chimes.store.plain import Plain, Reader, maybe_text, without_empty

#: Messages that stay in the file, and how many more may gather before those beyond are archived.
DELIVERED, ITEMS = 500, 200
SLACK = 100


def surplus_deliveries(kept: Mapping[DeliveryId, Delivery]) -> list[Delivery]:
    """The oldest of those that were delivered, if there are too many. Dead letters stay: they may
    be tried again."""
    ended = [each for each in kept.values() if each.state is DeliveryState.DELIVERED]
    ended.sort(key=lambda each: (each.finished_at or each.created_at, each.id))
    return ended[:-DELIVERED] if len(ended) > DELIVERED + SLACK else []


def surplus_items(kept: Mapping[InboxId, InboxItem]) -> list[InboxItem]:
    if len(kept) <= ITEMS + SLACK:
        return []
    return sorted(kept.values(), key=lambda item: (item.created_at, item.id))[:-ITEMS]


def is_filed(item: InboxItem, archived: InboxItem | None) -> bool:
    """Whether the archive has all of it that jobs.json would not say."""
    return archived is not None and (archived is item or _text(archived) == _text(item))


def _text(item: InboxItem) -> tuple[object, ...]:
    return (
        *(item.title, item.text, item.artifacts, item.status, item.created_at),
        *(item.owner, item.run_id, item.schedule_id, item.schedule_name),
    )


def marks_to_plain(item: InboxItem) -> Plain:
    """What its owner made of it."""
    return without_empty(
        {
            "id": item.id,
            "read_at": maybe_text(item.read_at),
            "starred": item.starred,
            "archived_at": maybe_text(item.archived_at),
            "snoozed_until": maybe_text(item.snoozed_until),
        }
    )


def marked(data: object, archived: Mapping[InboxId, InboxItem]) -> InboxItem | None:
    """None: the archive does not have it."""
    read = Reader(data)
    item = archived.get(InboxId(read.text("id")))
    if item is None:
        return None
    item = replace(
        item,
        read_at=read.maybe_time("read_at"),
        starred=read.flag("starred", False),
        archived_at=read.maybe_time("archived_at"),
        snoozed_until=read.maybe_time("snoozed_until"),
    )
    read.done()
    return item
