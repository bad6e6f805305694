"""Deliveries and inboxes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, func, select, text, update

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, InboxId
from chimes.model.listing import DeliveryQuery, InboxQuery, Page
from chimes.model.notification import (
    Delivery,
    DeliveryCompletion,
    InboxItem,
    claim_delivery,
    complete_delivery,
    owns_delivery_fence,
    reopen_delivery,
)
from chimes.model.recipient import Channel
from chimes.model.run import Reason
from chimes.store.sql.database.base import Tx
from chimes.store.sql.listing import delivery_conditions, inbox_conditions, page_of
from chimes.store.sql.records import append_audit, delete_full_buckets
from chimes.store.sql.rows.notifications import (
    delivery_of,
    delivery_values,
    item_of,
    item_values,
    progress_values,
)
from chimes.store.sql.rows.values import maybe_moment, micros
from chimes.store.sql.tables import deliveries, inbox

ENDED_DELIVERIES = (
    select(deliveries.c.id)
    .where(text("finished_at IS NOT NULL"), deliveries.c.finished_at < bindparam("before"))
    .order_by(deliveries.c.finished_at, deliveries.c.id)
    .limit(bindparam("most"))
)
_ITEM = select(inbox).where(inbox.c.id == bindparam("item_id"))
_CHANGE = update(inbox).where(inbox.c.id == bindparam("item_id"))
OLD_ITEMS = (
    select(inbox.c.id)
    .where(inbox.c.created_at < bindparam("before"), inbox.c.starred == 0)
    .order_by(inbox.c.created_at, inbox.c.id)
    .limit(bindparam("most"))
)


def add_delivery(tx: Tx, delivery: Delivery, audit: AuditEntry | None) -> Delivery:
    values = delivery_values(delivery, tx.dialect.keyring)
    if not tx.run(tx.dialect.insert_new(deliveries), values):
        return _load(tx, {delivery.id})[delivery.id]
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return delivery


def anything_pending(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle sender never waits for the writer."""
    earliest = tx.dialect.next_delivery(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


def claim_deliveries(
    tx: Tx, channels: Collection[Channel], limit: int, lease: timedelta, overdue: timedelta
) -> tuple[Delivery, ...]:
    now = tx.now()
    found = tx.dialect.pending(
        tx.connection,
        micros(now),
        micros(now - overdue),
        [channel.value for channel in channels],
        limit,
    )
    found_deliveries = [delivery_of(row) for row in found]
    claimed = [claim_delivery(each, now, lease) for each in found_deliveries]
    accepted = tuple(each for each in claimed if each.code != Reason.UNREADABLE)
    broken = [_give_up(each, now) for each in claimed if each.code == Reason.UNREADABLE]
    _write(tx, [*accepted, *broken])
    return accepted


def finish_deliveries(tx: Tx, completions: Sequence[DeliveryCompletion]) -> tuple[Delivery, ...]:
    now = tx.now()
    current = _load(tx, {completion.delivery_id for completion in completions})
    accepted: list[Delivery] = []
    items: list[InboxItem] = []
    for completion in completions:
        before = current.get(completion.delivery_id)
        if before is None or not owns_delivery_fence(before, completion.fence):
            continue
        after = complete_delivery(before, completion, now)
        current[after.id] = after
        accepted.append(after)
        items += [] if completion.inbox is None else [completion.inbox]
    _write(tx, [current[each] for each in dict.fromkeys(each.id for each in accepted)])
    _insert_items(tx, items)
    tx.wakes = bool(accepted)
    return tuple(accepted)


def retry_delivery(tx: Tx, delivery_id: DeliveryId, audit: AuditEntry | None) -> Delivery | None:
    before = _load(tx, {delivery_id}).get(delivery_id)
    if before is None:
        return None
    after = reopen_delivery(before, tx.now())
    _write(tx, [after])
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return after


def list_deliveries(tx: Tx, query: DeliveryQuery) -> Page[Delivery]:
    return page_of(
        tx,
        select(deliveries).where(*delivery_conditions(query)),
        deliveries.c.created_at,
        deliveries.c.id,
        query,
        lambda rows: [delivery_of(row) for row in rows],
        descending=True,
    )


def next_delivery(tx: Tx) -> datetime | None:
    return maybe_moment(tx.dialect.next_delivery(tx.connection))


def add_inbox(tx: Tx, item: InboxItem) -> InboxItem:
    if tx.run(tx.dialect.insert_new(inbox), item_values(item)):
        return item
    row = tx.first(_ITEM, {"item_id": item.id})
    assert row is not None, "an item whose id is taken can be read"
    return item_of(row)


def list_inbox(tx: Tx, query: InboxQuery) -> Page[InboxItem]:
    return page_of(
        tx,
        select(inbox).where(*inbox_conditions(query)),
        inbox.c.created_at,
        inbox.c.id,
        query,
        lambda rows: [item_of(row) for row in rows],
        descending=True,
    )


def count_unread(tx: Tx, query: InboxQuery) -> int:
    conditions = inbox_conditions(replace(query, unread=True))
    row = tx.first(select(func.count()).select_from(inbox).where(*conditions))
    return 0 if row is None else int(row[0])


def change_inbox(
    tx: Tx, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
) -> InboxItem:
    row = tx.first(tx.for_update(_ITEM, inbox.c.id), {"item_id": item_id})
    if row is None:
        raise NotFound(_("inbox item {id} not found", id=item_id))
    after = change(item_of(row), tx.now())
    tx.run(_CHANGE, {"item_id": item_id, **item_values(after)})
    return after


def forget_inbox(tx: Tx, item_ids: Sequence[InboxId]) -> int:
    condition = tx.dialect.among(inbox.c.id, "ids")
    return tx.run(delete(inbox).where(condition), {"ids": tx.dialect.listed(item_ids)})


def prune_messages(tx: Tx, before: datetime, limit: int) -> int:
    delete_full_buckets(tx)
    parameters = {"before": micros(before), "most": limit}
    ended = [row.id for row in tx.rows(ENDED_DELIVERIES, parameters)]
    old = [row.id for row in tx.rows(OLD_ITEMS, parameters | {"most": limit - len(ended)})]
    for table, ids in ((deliveries, ended), (inbox, old)):
        if ids:
            listed = {"ids": tx.dialect.listed(ids)}
            tx.run(delete(table).where(tx.dialect.among(table.c.id, "ids")), listed)
    return len(ended) + len(old)


def _give_up(delivery: Delivery, now: datetime) -> Delivery:
    completion = DeliveryCompletion(
        delivery_id=delivery.id, fence=delivery.fence, error=delivery.error, code=delivery.code
    )
    return complete_delivery(delivery, completion, now)


def _load(tx: Tx, ids: Collection[DeliveryId]) -> dict[DeliveryId, Delivery]:
    """Loads and locks deliveries."""
    statement = select(deliveries).where(tx.dialect.among(deliveries.c.id, "ids"))
    rows = tx.rows(tx.for_update(statement, deliveries.c.id), {"ids": tx.dialect.listed(ids)})
    return {DeliveryId(row.id): delivery_of(row) for row in rows}


def _write(tx: Tx, changed: Sequence[Delivery]) -> None:
    values = [{"id": each.id, **progress_values(each)} for each in changed]
    tx.update(deliveries, values)


def _insert_items(tx: Tx, items: Sequence[InboxItem]) -> None:
    """Inserts items; existing ones stay unchanged."""
    if items:
        rows = sorted(items, key=lambda item: item.id)
        tx.run(tx.dialect.insert_new(inbox), [item_values(row) for row in rows])
