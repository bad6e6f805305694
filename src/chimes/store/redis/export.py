"""Export and import of the whole store.

Redis has no snapshots, so an export is consistent only if nothing else writes meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from chimes.model.access import ApiKey, AuditEntry
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
from chimes.store.port import Item, RunLog
from chimes.store.redis.listing import MOST, Walk
from chimes.store.redis.notifications import RedisMessageStore, delivery_in, inbox_in
from chimes.store.redis.rows import (
    all_fields,
    delivery_fields,
    inbox_fields,
    log_rows,
    new_fields,
    task_row,
)
from chimes.store.redis.runs import RedisRuns, checkpoint_row, decode_checkpoint
from chimes.store.redis.wire import Wire, micros, rows, text, texts, to_json

#: Log entries per read.
LINES = 5000


class RedisExport(RedisMessageStore, RedisRuns):
    async def dump(self) -> AsyncIterator[Item]:
        ever = Walk(facet="schedules:ever", kind="schedule")
        async for schedule in self._walk(ever, self._schedule, None, MOST):
            yield schedule
        ids: list[RunId] = []
        async for run in self._walk(Walk(facet="runs", kind="run"), self._run, None, MOST):
            ids.append(run.id)
            yield run
        async for run_id, length in self._with_logs(ids):
            entries: list[LogEntry] = []
            for first in range(0, length, LINES):
                entries += await self.read_logs(run_id, after=first, limit=LINES)
            yield RunLog(run_id=run_id, entries=tuple(entries))
        async for entry in self._audit_ascending():
            yield entry
        _, (answer,) = await self._ask("values", "keys")
        for each in texts(answer):
            yield key_from_plain(json.loads(each))
        _, (answer,) = await self._ask("pairs", "states")
        pairs = texts(answer)
        for name, row in zip(pairs[::2], pairs[1::2], strict=True):
            yield decode_checkpoint(name, row)
        messages = Walk(facet="deliveries", kind="delivery")
        async for delivery in self._walk(messages, delivery_in, None, MOST):
            yield delivery
        for facet in ("inbox:present", "inbox:archived"):
            async for item in self._walk(Walk(facet=facet, kind="inbox"), inbox_in, None, MOST):
                yield item

    async def _with_logs(self, ids: Sequence[RunId]) -> AsyncIterator[tuple[RunId, int]]:
        for start in range(0, len(ids), MOST):
            _, (answer,) = await self._ask("log_lengths", ids[start : start + MOST])
            for each in rows(answer):
                run_id, length = texts(each)
                yield RunId(run_id), int(length)

    async def _audit_ascending(self) -> AsyncIterator[AuditEntry]:
        lowest = ""
        while True:
            _, (answer, more) = await self._ask(
                "page", "audit", "", lowest, "", "", "", str(MOST), "audit"
            )
            entry = None
            for each in texts(answer):
                entry = audit_from_plain(json.loads(each))
                yield entry
            if more != "1" or entry is None:
                return
            lowest = str(entry.number + 1)

    async def load(self, items: Sequence[Item]) -> int:
        """In batches; can be repeated after an interruption, existing items stay."""
        count = 0
        for start in range(0, len(items), MOST):
            part: list[Wire] = [self._adopted(item) for item in items[start : start + MOST]]
            _, (answer,) = await self._tell("load", part)
            count += int(text(answer))
        self._head = None
        self.wake()
        return count

    def _adopted(self, item: Item) -> Wire:
        match item:
            case Schedule():
                return ["schedule", item.id, all_fields(item)]
            case Run():
                run = release(item) if item.status is RunStatus.RUNNING else item
                fields = new_fields(run, self._runs.body(run))
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
                row = checkpoint_row(item.value, micros(item.changed_at), item.run_id)
                return ["value", "states", item.name, row]
            case Delivery():
                return ["delivery", item.id, delivery_fields(item)]
            case InboxItem():
                return ["inbox", item.id, inbox_fields(item)]
