"""State of the JSON file store, and its generations: immutable snapshots for one write."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from chimes.model import replace
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import DeliveryId, InboxId, KeyId, RunId, ScheduleId
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import Schedule
from chimes.store.codec.values import Plain, Reader, drop_empty, maybe_text
from chimes.store.memory.state import State
from chimes.store.port import IdempotencyRecord

# --- archiving of messages

#: Messages that stay in the file, and how many more may accumulate before archiving.
DELIVERED, ITEMS = 500, 200
SLACK = 100


def surplus_deliveries(kept: Mapping[DeliveryId, Delivery]) -> list[Delivery]:
    """The oldest delivered and suppressed ones, if there are too many. Dead letters stay: they may
    be retried."""
    done = (DeliveryState.DELIVERED, DeliveryState.SUPPRESSED)
    ended = [each for each in kept.values() if each.state in done]
    ended.sort(key=lambda each: (each.finished_at or each.created_at, each.id))
    return ended[:-DELIVERED] if len(ended) > DELIVERED + SLACK else []


def surplus_items(kept: Mapping[InboxId, InboxItem]) -> list[InboxItem]:
    if len(kept) <= ITEMS + SLACK:
        return []
    return sorted(kept.values(), key=lambda item: (item.created_at, item.id))[:-ITEMS]


def is_filed(item: InboxItem, archived: InboxItem | None) -> bool:
    """Whether the archive has everything that jobs.json does not keep."""
    return archived is not None and (archived is item or _text(archived) == _text(item))


def _text(item: InboxItem) -> tuple[object, ...]:
    return (
        *(item.title, item.text, item.artifacts, item.status, item.created_at),
        *(item.owner, item.run_id, item.schedule_id, item.schedule_name),
    )


def marks_to_plain(item: InboxItem) -> Plain:
    """The owner's marks: read, starred, archived, snoozed."""
    return drop_empty(
        {
            "id": item.id,
            "read_at": maybe_text(item.read_at),
            "starred": item.starred,
            "archived_at": maybe_text(item.archived_at),
            "snoozed_until": maybe_text(item.snoozed_until),
        }
    )


def apply_marks(data: object, archived: Mapping[InboxId, InboxItem]) -> InboxItem | None:
    """None: not in the archive."""
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


Requests = dict[tuple[str, str], tuple[IdempotencyRecord, datetime]]
#: Order in which retention deletes ended runs.
Mark = tuple[datetime, str]


def age(run: Run) -> Mark:
    return (run.finished_at or run.created_at, run.id)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLogs:
    """The first `length` lines of an append-only log."""

    lines: list[LogEntry]
    length: int

    def entries(self) -> Sequence[LogEntry]:
        return self.lines[: self.length]


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    schedules: dict[ScheduleId, Schedule] = field(default_factory=dict)
    runs: dict[RunId, Run] = field(default_factory=dict)
    logs: dict[RunId, RunLogs] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()
    keys: dict[KeyId, ApiKey] = field(default_factory=dict)
    states: dict[str, Checkpoint] = field(default_factory=dict)
    requests: Requests = field(default_factory=dict)
    deliveries: dict[DeliveryId, Delivery] = field(default_factory=dict)
    inbox: dict[InboxId, InboxItem] = field(default_factory=dict)
    #: Items whose text is archived.
    filed_deliveries: dict[DeliveryId, Delivery] = field(default_factory=dict)
    filed_items: dict[InboxId, InboxItem] = field(default_factory=dict)
    #: Ended runs up to here are deleted, even if an archive still has them.
    pruned_until: Mark | None = None
    #: Archived runs that this generation deletes.
    forgotten: tuple[tuple[Run, list[LogEntry]], ...] = ()
    #: Archived audit entries that this generation deletes.
    forgotten_audit: tuple[AuditEntry, ...] = ()


@dataclass(slots=True)
class FileState(State):
    """`runs`, `logs` and `audit` include archived rows; only the others go into the file."""

    kept: dict[RunId, Run] = field(default_factory=dict)
    #: Number of the newest archived audit entry.
    archived_audit: int = 0
    pruned_until: Mark | None = None
    #: Archived messages.
    archived_deliveries: dict[DeliveryId, Delivery] = field(default_factory=dict)
    archived_items: dict[InboxId, InboxItem] = field(default_factory=dict)
    #: Deleted archived runs whose deletion is not on disk yet.
    forgotten: list[tuple[Run, list[LogEntry]]] = field(default_factory=list)
    #: The same for audit entries.
    forgotten_audit: list[AuditEntry] = field(default_factory=list)

    def put_run(self, run: Run) -> None:
        State.put_run(self, run)
        self.kept[run.id] = run

    def spared(self, run: Run) -> bool:
        spared = State.spared(self, run)
        if spared:
            # Back into the file: archived runs older than the mark are not read.
            self.kept[run.id] = run
        return spared

    def forget_run(self, run: Run) -> None:
        if run.id not in self.kept:
            self.forgotten.append((run, self.logs.get(run.id, [])))
        State.forget_run(self, run)
        self.kept.pop(run.id, None)
        self.pruned_until = max(self.pruned_until or age(run), age(run))

    def forget_audit(self, upto: int) -> None:
        last = min(upto, self.archived_audit)
        self.forgotten_audit += [entry for entry in self.audit if entry.number <= last]
        State.forget_audit(self, upto)

    def put_archived(self, run: Run, log: Iterable[LogEntry]) -> None:
        State.put_run(self, run)
        if lines := list(log):
            self.logs[run.id] = lines

    def mark_archived(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.kept.pop(run.id, None)

    def generation(self) -> Generation:
        """An immutable snapshot. The caller holds the lock."""
        forgotten, self.forgotten = tuple(self.forgotten), []
        forgotten_audit, self.forgotten_audit = tuple(self.forgotten_audit), []
        first = bisect_right(self.audit, self.archived_audit, key=lambda entry: entry.number)
        old, items = self.archived_deliveries, self.archived_items
        filed = {k: each for k, each in self.deliveries.items() if old.get(k) is each}
        filed_items = {k: item for k, item in self.inbox.items() if is_filed(item, items.get(k))}
        # The archive drops what no generation refers to.
        self.archived_deliveries, self.archived_items = filed, filed_items
        return Generation(
            schedules=dict(self.schedules),
            runs=dict(self.kept),
            logs={
                run_id: RunLogs(lines=lines, length=len(lines))
                for run_id in self.kept
                if (lines := self.logs.get(run_id))
            },
            audit=tuple(self.audit[first:]),
            keys=dict(self.keys),
            states=dict(self.states),
            requests=dict(self.requests),
            deliveries={k: each for k, each in self.deliveries.items() if k not in filed},
            inbox={k: item for k, item in self.inbox.items() if k not in filed_items},
            filed_deliveries=filed,
            filed_items=filed_items,
            pruned_until=self.pruned_until,
            forgotten=forgotten,
            forgotten_audit=forgotten_audit,
        )

    def back_to(self, durable: Generation, failed: Generation | None) -> FileState:
        """Roll back to `durable`. Nodes, pending idempotency records and token buckets belong to
        the process and stay; archives contain only durable rows."""
        before = FileState(
            nodes=self.nodes,
            node_events=self.node_events,
            requests=self.requests,
            buckets=self.buckets,
            archived_audit=self.archived_audit,
            archived_deliveries=durable.filed_deliveries,
            archived_items=durable.filed_items,
            pruned_until=durable.pruned_until,
        )
        for run_id, run in self.runs.items():
            if run_id not in self.kept:
                before.put_archived(run, self.logs.get(run_id, ()))
        for run, lines in (*(failed.forgotten if failed else ()), *self.forgotten):
            before.put_archived(run, lines)
        for schedule in durable.schedules.values():
            before.put_schedule(schedule)
        for run_id, run in durable.runs.items():
            if run_id not in before.runs:
                before.put_run(run)
            if run_id in durable.logs:
                before.logs[run_id] = list(durable.logs[run_id].entries())
        archived = bisect_right(self.audit, self.archived_audit, key=lambda entry: entry.number)
        before.audit = [*(failed.forgotten_audit if failed else ()), *self.forgotten_audit]
        before.audit += self.audit[:archived]
        before.audit += [e for e in durable.audit if e.number > self.archived_audit]
        before.keys = dict(durable.keys)
        before.states = dict(durable.states)
        before.deliveries = durable.filed_deliveries | durable.deliveries
        before.inbox = durable.filed_items | durable.inbox
        return before
