"""Export and import of the whole store.

Redis has no snapshots, so an export is consistent only if nothing else writes meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import LogEntry, Run, RunStatus, release
from chimes.model.schedule import Schedule
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    key_from_plain,
    key_to_plain,
)
from chimes.store.codec.values import seal_text
from chimes.store.port import Item, RunLog
from chimes.store.redis.context import Context
from chimes.store.redis.listing import MOST, Scan, scan_records
from chimes.store.redis.notifications import decode_deliveries, decode_inbox
from chimes.store.redis.records import checkpoint_row, decode_checkpoint
from chimes.store.redis.rows import (
    delivery_fields,
    inbox_fields,
    log_rows,
    task_row,
)
from chimes.store.redis.runs import read_logs
from chimes.store.redis.wire import Wire, micros, rows, text, texts, to_json

#: Log entries per read.
LINES = 5000


async def dump(ctx: Context) -> AsyncIterator[Item]:
    ever = Scan(facet="schedules:ever", kind="schedule")
    async for schedule in scan_records(ctx, ever, ctx.decode_schedules):
        yield schedule
    ids: list[RunId] = []
    async for run in scan_records(ctx, Scan(facet="runs", kind="run"), ctx.decode_runs):
        ids.append(run.id)
        yield run
    async for run_id, length in _with_logs(ctx, ids):
        entries: list[LogEntry] = []
        for first in range(0, length, LINES):
            entries += await read_logs(ctx, run_id, first, LINES)
        yield RunLog(run_id=run_id, entries=tuple(entries))
    async for entry in _audit_ascending(ctx):
        yield entry
    _, (answer,) = await ctx.read("values", "keys")
    for each in texts(answer):
        yield key_from_plain(json.loads(each))
    _, (answer,) = await ctx.read("pairs", "states")
    pairs = texts(answer)
    for name, row in zip(pairs[::2], pairs[1::2], strict=True):
        yield decode_checkpoint(name, row)
    messages = Scan(facet="deliveries", kind="delivery")
    async for delivery in scan_records(ctx, messages, decode_deliveries):
        yield delivery
    for facet in ("inbox:present", "inbox:archived"):
        async for item in scan_records(ctx, Scan(facet=facet, kind="inbox"), decode_inbox):
            yield item


async def _with_logs(ctx: Context, ids: Sequence[RunId]) -> AsyncIterator[tuple[RunId, int]]:
    for start in range(0, len(ids), MOST):
        _, (answer,) = await ctx.read("log_lengths", ids[start : start + MOST])
        for each in rows(answer):
            run_id, length = texts(each)
            yield RunId(run_id), int(length)


async def _audit_ascending(ctx: Context) -> AsyncIterator[AuditEntry]:
    lowest = ""
    while True:
        _, (answer, more) = await ctx.read(
            "page", "audit", "", lowest, "", "", "", str(MOST), "audit"
        )
        entry = None
        for each in texts(answer):
            entry = audit_from_plain(json.loads(each))
            yield entry
        if more != "1" or entry is None:
            return
        lowest = str(entry.number + 1)


async def load(ctx: Context, items: Sequence[Item]) -> int:
    """In batches; can be repeated after an interruption, existing items stay."""
    count = 0
    for start in range(0, len(items), MOST):
        definitions: dict[str, str] = {}
        part = [_adopted(ctx, item, definitions) for item in items[start : start + MOST]]
        _, (answer,) = await ctx.write("load", part, definitions=definitions)
        count += int(text(answer))
    ctx.audit_head = None
    ctx.wake()
    return count


def _adopted(ctx: Context, item: Item, definitions: dict[str, str]) -> Wire:
    match item:
        case Schedule():
            return ["schedule", item.id, *ctx.schedule_rows.fields(item)]
        case Run():
            run = release(item) if item.status is RunStatus.RUNNING else item
            fields = ctx.run_rows.new_fields(run, definitions)
            slot = micros(run.slot)
            return ["run", run.id, fields, task_row(run), run.schedule_id or "", slot]
        case RunLog():
            return ["log", item.run_id, log_rows(item.entries)]
        case AuditEntry():
            line = to_json(audit_to_plain(item))
            return ["audit", str(item.number), item.hash, line]
        case ApiKey():
            return ["value", "keys", item.id, to_json(key_to_plain(item))]
        case Checkpoint():
            value = seal_text(item.value, item.name, ctx.keyring)
            row = checkpoint_row(value, micros(item.changed_at), item.run_id)
            return ["value", "states", item.name, row]
        case Delivery():
            return ["delivery", item.id, delivery_fields(item, ctx.keyring)]
        case InboxItem():
            return ["inbox", item.id, inbox_fields(item)]
