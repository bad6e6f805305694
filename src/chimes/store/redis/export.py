"""Export and import of the whole store.

Redis has no snapshots, and a script that reads everything would stop all nodes. So an export reads
in an order in which writes of nodes do no harm:

1. Schedules with their cursors. A slot that fires later has a run in the export or not; in both
   cases an imported cursor passes it once, under the same run id.
2. Ended runs of the time until then, which never change.
3. Runs that have not ended, at one moment, so that limits of concurrency keys hold; with them
   those that had not ended in step 2.
4. Everything else. A delivery of a later end has the id that the repeated run will give it.

Runs of schedules that were added meanwhile are left out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime

from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId, ScheduleId
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
    began = await ctx.now()
    ever = Scan(facet="schedules:ever", kind="schedule")
    known: set[ScheduleId] = set()
    async for schedule in scan_records(ctx, ever, ctx.decode_schedules):
        known.add(schedule.id)
        yield schedule
    # No cursor was read later. Without an end, a scan could go on with what nodes add.
    read_at = await ctx.now()
    ids: list[RunId] = []
    async for run in _runs(ctx, began, read_at, known):
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
    highest = micros(await ctx.now())
    messages = Scan(facet="deliveries", kind="delivery", highest=highest)
    async for delivery in scan_records(ctx, messages, decode_deliveries):
        yield delivery
    for facet in ("inbox:present", "inbox:archived"):
        items = Scan(facet=facet, kind="inbox", highest=highest)
        async for item in scan_records(ctx, items, decode_inbox):
            yield item


async def _runs(
    ctx: Context, began: datetime, read_at: datetime, known: Collection[ScheduleId]
) -> AsyncIterator[Run]:
    def is_later(run: Run) -> bool:
        added = run.schedule_id is not None and run.schedule_id not in known
        return added and run.created_at >= began

    active: list[RunId] = []
    ended: set[RunId] = set()
    scan = Scan(facet="runs", kind="run", highest=micros(read_at))
    async for run in scan_records(ctx, scan, ctx.decode_runs):
        if not run.status.terminal:
            active.append(run.id)
        elif not is_later(run):
            ended.add(run.id)
            yield run
    _, (answer,) = await ctx.read("active_runs", active)
    for run in await ctx.decode_runs(rows(answer)):
        if run.id not in ended and not is_later(run):
            yield run


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


async def clear(ctx: Context, keep: str) -> None:
    prefix = "".join(
        f"\\{each}" if each in "*?[]\\^" else each for each in ctx.connections.address.prefix
    )
    cursor = "0"
    while True:
        _, (answer,) = await ctx.write("clear", f"{prefix}chimes:*", cursor, keep)
        if text(answer) == "more":
            continue
        cursor = text(answer)
        if cursor == "0":
            break
    ctx.drop_caches()
    ctx.wake()


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
