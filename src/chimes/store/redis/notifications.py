"""Deliveries, inbox and token buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from chimes.clock import MICROSECOND
from chimes.errors import Conflict, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, InboxId
from chimes.model.listing import DeliveryQuery, InboxQuery, Page
from chimes.model.notification import (
    Delivery,
    DeliveryCompletion,
    InboxItem,
    complete_delivery,
    owns_delivery_fence,
    reopen_delivery,
)
from chimes.model.recipient import Channel
from chimes.model.run import Reason
from chimes.store.port import TokenGrant, take_from
from chimes.store.redis.context import Context
from chimes.store.redis.listing import Scan, matching_records, smallest_group
from chimes.store.redis.rows import (
    DeliveryRow,
    changed_delivery,
    delivery_fields,
    delivery_of,
    inbox_fields,
    inbox_of,
)
from chimes.store.redis.wire import Wire, micros, moment, rows, text
from chimes.store.selection import matches_delivery, matches_inbox, select_deliveries, select_inbox

# --- deliveries


async def add_delivery(ctx: Context, delivery: Delivery, audit: AuditEntry | None) -> Delivery:
    async def attempt() -> Delivery:
        _unused, found = await _read_deliveries(ctx, [delivery.id])
        if delivery.id in found:
            return found[delivery.id].delivery
        expected: list[Wire] = [["delivery", delivery.id, ""]]
        ops: list[Wire] = [["delivery", delivery.id, delivery_fields(delivery, ctx.keyring)]]
        await ctx.commit(expected, ops, audit, wakes=True)
        return delivery

    added = await ctx.retry_conflicts(attempt, audit)
    ctx.wake()
    return added


async def claim_deliveries(
    ctx: Context, channels: Collection[Channel], limit: int, lease: timedelta, overdue: timedelta
) -> tuple[Delivery, ...]:
    if limit <= 0:
        return ()
    now, (answer,) = await ctx.write(
        "claim_deliveries",
        [each for each in Channel if each in channels],
        [each for each in Channel if each not in channels],
        str(limit),
        str(lease // MICROSECOND),
        str(overdue // MICROSECOND),
    )
    found = [delivery_of(record) for record in rows(answer)]
    damaged = [row for row in found if row.damaged]
    if damaged:
        await _give_up(ctx, damaged, now)
    return tuple(row.delivery for row in found if not row.damaged)


async def _give_up(ctx: Context, damaged: Sequence[DeliveryRow], now: datetime) -> None:
    """Give up corrupt deliveries. A conflict is left to the next claim."""
    units: list[Wire] = []
    for row in damaged:
        word = DeliveryCompletion(
            delivery_id=row.delivery.id,
            fence=row.delivery.fence,
            error=row.delivery.error,
            code=row.delivery.code,
        )
        units.append(_unit(row, complete_delivery(row.delivery, word, now)))
    await ctx.commit_units(units, urgent=True)


async def finish_deliveries(
    ctx: Context, completions: Sequence[DeliveryCompletion]
) -> tuple[Delivery, ...]:
    accepted = await ctx.retry_conflicts(lambda: _finish_deliveries(ctx, completions))
    if accepted:
        ctx.wake()
    return accepted


async def _finish_deliveries(
    ctx: Context, completions: Sequence[DeliveryCompletion]
) -> tuple[Delivery, ...]:
    ids = list(dict.fromkeys(completion.delivery_id for completion in completions))
    now, found = await _read_deliveries(ctx, ids)
    current = {delivery_id: row.delivery for delivery_id, row in found.items()}
    accepted: list[Delivery] = []
    ops: list[Wire] = []
    for completion in completions:
        before = current.get(completion.delivery_id)
        if before is None or not owns_delivery_fence(before, completion.fence):
            continue
        after = current[before.id] = complete_delivery(before, completion, now)
        ops.append(["delivery", after.id, changed_delivery(after)])
        if completion.inbox is not None:
            ops.append(["inbox_new", completion.inbox.id, inbox_fields(completion.inbox)])
        accepted.append(after)
    if accepted:
        changed = dict.fromkeys(each.id for each in accepted)
        expected: list[Wire] = [["delivery", each, found[each].rev] for each in changed]
        await ctx.commit(expected, ops, wakes=True, urgent=True)
    return tuple(accepted)


async def retry_delivery(
    ctx: Context, delivery_id: DeliveryId, audit: AuditEntry | None
) -> Delivery | None:
    async def attempt() -> Delivery | None:
        now, found = await _read_deliveries(ctx, [delivery_id])
        if delivery_id not in found:
            return None
        row = found[delivery_id]
        after = reopen_delivery(row.delivery, now)
        expected, ops = _unit(row, after)
        await ctx.commit(list(expected), list(ops), audit, wakes=True)
        return after

    after = await ctx.retry_conflicts(attempt, audit)
    if after is not None:
        ctx.wake()
    return after


async def _read_deliveries(
    ctx: Context, ids: Sequence[DeliveryId]
) -> tuple[datetime, dict[DeliveryId, DeliveryRow]]:
    now, (answer,) = await ctx.read("deliveries", list(ids))
    found = [delivery_of(record) for record in rows(answer)]
    return now, {row.delivery.id: row for row in found}


async def list_deliveries(ctx: Context, query: DeliveryQuery) -> Page[Delivery]:
    if query.ids is not None:
        _unused, by_id = await _read_deliveries(ctx, query.ids)
        return select_deliveries([row.delivery for row in by_id.values()], query)
    found: list[Delivery] = []
    for facet in await smallest_group(ctx, _delivery_facets(query)):
        found += await matching_records(
            ctx,
            Scan(facet=facet, kind="delivery", descending=True),
            decode_deliveries,
            query.after,
            query.limit,
            lambda delivery: matches_delivery(delivery, query),
        )
    # A delivery that changed its state between two scans appears twice.
    return select_deliveries({each.id: each for each in found}.values(), query)


async def next_delivery(ctx: Context) -> datetime | None:
    _unused, (answer,) = await ctx.read("next_delivery", list(Channel))
    return moment(text(answer)) if answer else None


# --- inbox


async def add_inbox(ctx: Context, item: InboxItem) -> InboxItem:
    async def attempt() -> InboxItem:
        _unused, found = await _read_inbox(ctx, item.id)
        if found is not None:
            return found[0]
        await ctx.commit([["inbox", item.id, ""]], [["inbox", item.id, inbox_fields(item)]])
        return item

    return await ctx.retry_conflicts(attempt)


async def list_inbox(ctx: Context, query: InboxQuery) -> Page[InboxItem]:
    found: list[InboxItem] = []
    for facet in await smallest_group(ctx, _inbox_facets(query)):
        found += await matching_records(
            ctx,
            Scan(facet=facet, kind="inbox", descending=True),
            decode_inbox,
            query.after,
            query.limit,
            lambda item: matches_inbox(item, query),
        )
    return select_inbox({item.id: item for item in found}.values(), query)


async def count_unread(ctx: Context, query: InboxQuery) -> int:
    every = replace(query, unread=True, after=None, limit=None)
    asked = InboxQuery(owner=every.owner, awake_at=every.awake_at, unread=True, limit=None)
    if every != asked:
        return len((await list_inbox(ctx, every)).items)
    _unused, (answer,) = await ctx.read("unread", _whose(query), micros(query.awake_at))
    return int(text(answer))


async def change_inbox(
    ctx: Context, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
) -> InboxItem:
    async def attempt() -> InboxItem:
        now, found = await _read_inbox(ctx, item_id)
        if found is None:
            raise NotFound(_("inbox item {id} not found", id=item_id))
        before, rev = found
        if before.status == Reason.UNREADABLE:
            raise Conflict(_("inbox item {id} cannot be read", id=item_id), code="unreadable")
        after = change(before, now)
        await ctx.commit([["inbox", item_id, rev]], [["inbox", item_id, inbox_fields(after)]])
        return after

    return await ctx.retry_conflicts(attempt)


async def _read_inbox(
    ctx: Context, item_id: InboxId
) -> tuple[datetime, tuple[InboxItem, str] | None]:
    now, (answer,) = await ctx.read("inbox", item_id)
    return now, inbox_of(answer) if answer else None


async def forget_inbox(ctx: Context, item_ids: Sequence[InboxId]) -> int:
    _unused, (answer,) = await ctx.write("forget_inbox", list(item_ids))
    return int(text(answer))


async def prune_messages(ctx: Context, before: datetime, limit: int) -> int:
    if limit <= 0:
        return 0
    _unused, (answer,) = await ctx.write("prune_messages", micros(before), str(limit))
    return int(text(answer))


# --- shared limits


async def take_tokens(ctx: Context, name: str, rate: float, burst: int, count: int) -> TokenGrant:
    # Names have any length and characters.
    key = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    _unused, (there,) = await ctx.write(
        "take_tokens", key, repr(float(rate)), str(burst), str(count), urgent=True
    )
    return take_from(float(text(there)), 0.0, rate=rate, burst=burst, count=count)[1]


def _unit(row: DeliveryRow, after: Delivery) -> tuple[list[Wire], list[Wire]]:
    """Expected revision and operations of one delivery change."""
    return [["delivery", after.id, row.rev]], [["delivery", after.id, changed_delivery(after)]]


async def decode_deliveries(records: Sequence[Wire]) -> list[Delivery]:
    return [delivery_of(record).delivery for record in records]


async def decode_inbox(records: Sequence[Wire]) -> list[InboxItem]:
    return [inbox_of(record)[0] for record in records]


def _delivery_facets(query: DeliveryQuery) -> list[list[str]]:
    """Groups of sets; each group together contains every match."""
    groups: list[list[str]] = []
    if query.run_id is not None:
        groups.append([f"deliveries:run:{query.run_id}"])
    if query.run_ids is not None:
        groups.append([f"deliveries:run:{each}" for each in dict.fromkeys(query.run_ids)])
    if query.schedule_id is not None:
        groups.append([f"deliveries:schedule:{query.schedule_id}"])
    if query.owner is not None:
        groups.append([f"deliveries:owner:{query.owner}"])
    if query.states:
        groups.append([f"deliveries:state:{state}" for state in dict.fromkeys(query.states)])
    if query.channel is not None:
        groups.append([f"deliveries:channel:{query.channel}"])
    return groups or [["deliveries"]]


def _inbox_facets(query: InboxQuery) -> list[list[str]]:
    whose = _whose(query)
    here, there = f"inbox:present{whose}", f"inbox:archived{whose}"
    groups = {None: [here, there], False: [here], True: [there]}
    found = [groups[query.archived]]
    if query.unread and query.archived is False:
        found = [[f"inbox:unread{whose}"]]
    if query.starred:
        found.append([f"inbox:starred{whose}"])
    if query.run_id is not None:
        found.append([f"inbox:run:{query.run_id}"])
    if query.schedule_id is not None:
        found.append([f"inbox:schedule:{query.schedule_id}"])
    return found


def _whose(query: InboxQuery) -> str:
    return "" if query.owner is None else f":owner:{query.owner}"
