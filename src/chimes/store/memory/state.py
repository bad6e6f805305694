"""The contents of a memory store, and the indexes over them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import ApiKey, Quota, unused_keys
from chimes.model.audit import AuditEntry, chain_entry
from chimes.model.checkpoint import (
    Checkpoint,
    run_checkpoint_names,
    schedule_checkpoint_names,
)
from chimes.model.ids import DeliveryId, InboxId, KeyId, NodeId, RunId, ScheduleId
from chimes.model.listing import Counts
from chimes.model.node import Node, NodeEvent
from chimes.model.notification import Delivery, DeliveryState, InboxItem
from chimes.model.planning import (
    FireContext,
    cancels_only_own_runs,
    concurrency_key,
    may_wait_behind_backlog,
)
from chimes.model.run import (
    LogEntry,
    Origin,
    Run,
    RunStatus,
    owns_fence,
    queue_order,
    release,
    unblock,
)
from chimes.model.schedule import (
    Schedule,
    counts_against,
    is_purgeable,
    pass_slot,
    quota_exceeded,
    returned_slot,
)
from chimes.store.port import (
    NODE_EVENT_RETENTION,
    IdempotencyRecord,
    Item,
    RunLog,
    TokenGrant,
    node_not_found,
    refilled_until,
    take_from,
)

Name = TypeVar("Name")
Row = TypeVar("Row")

MOST_BUCKETS = 10_000


@dataclass(slots=True)
class State:
    schedules: dict[ScheduleId, Schedule] = field(default_factory=dict)
    runs: dict[RunId, Run] = field(default_factory=dict)
    logs: dict[RunId, list[LogEntry]] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    node_events: list[NodeEvent] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    keys: dict[KeyId, ApiKey] = field(default_factory=dict)
    states: dict[str, Checkpoint] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[IdempotencyRecord, datetime]] = field(
        default_factory=dict
    )
    deliveries: dict[DeliveryId, Delivery] = field(default_factory=dict)
    inbox: dict[InboxId, InboxItem] = field(default_factory=dict)
    #: Tokens in each bucket, and the time of that.
    buckets: dict[str, tuple[float, datetime]] = field(default_factory=dict)

    # Indexes; derived from the above by put_schedule and put_run.
    by_slot: dict[tuple[ScheduleId, datetime], RunId] = field(default_factory=dict)
    active: dict[RunId, Run] = field(default_factory=dict)
    by_key: dict[str, dict[RunId, None]] = field(default_factory=dict)
    #: Heap of (next_run_at, id); stale entries are dropped on read.
    due_heap: list[tuple[datetime, ScheduleId]] = field(default_factory=list)

    # --- schedules ----------------------------------------------------------------------------
    def put_schedule(self, schedule: Schedule) -> None:
        self.schedules[schedule.id] = schedule
        if self._waits(schedule) and schedule.next_run_at is not None:
            heapq.heappush(self.due_heap, (schedule.next_run_at, schedule.id))

    @staticmethod
    def _waits(schedule: Schedule) -> bool:
        return schedule.enabled and schedule.deleted_at is None and schedule.next_run_at is not None

    def next_due(self) -> datetime | None:
        while self.due_heap:
            at, schedule_id = self.due_heap[0]
            schedule = self.schedules.get(schedule_id)
            if schedule and self._waits(schedule) and schedule.next_run_at == at:
                return at
            heapq.heappop(self.due_heap)
        return None

    def due(self, now: datetime, limit: int) -> list[Schedule]:
        found: dict[ScheduleId, Schedule] = {}
        while len(found) < limit:
            at = self.next_due()
            if at is None or at > now:
                break
            _, schedule_id = heapq.heappop(self.due_heap)
            found[schedule_id] = self.schedules[schedule_id]
        return list(found.values())

    def present_schedule(self, schedule_id: ScheduleId, *, deleted: bool = False) -> Schedule:
        found = self.schedules.get(schedule_id)
        if found is None or (found.deleted_at is not None and not deleted):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        return found

    def check_quotas(
        self, before: Schedule | None, after: Schedule, quotas: Sequence[Quota]
    ) -> None:
        every = self.schedules.values()
        for quota in quotas:
            if counts_against(after, quota) and not (before and counts_against(before, quota)):
                owned = sum(s.owner == after.owner and counts_against(s, quota) for s in every)
                if owned >= quota.limit:
                    raise quota_exceeded(after.owner, quota)

    def skip_taken_slots(self, before: Schedule, after: Schedule, now: datetime) -> Schedule:
        while (slot := returned_slot(before, after, now)) and (after.id, slot) in self.by_slot:
            after = pass_slot(after)
        return after

    def fire_context(self, schedule: Schedule) -> FireContext:
        depends_on = schedule.depends_on
        other = self.schedules.get(depends_on.schedule_id) if depends_on else None
        admitted = self.admitted(concurrency_key(schedule))
        others = [r.id for r in admitted if r.schedule_id != schedule.id]
        return FireContext(
            admitted=tuple(run.id for run in admitted),
            others=frozenset(others if cancels_only_own_runs(schedule) else ()),
            dependency_succeeded_at=other.last_success_at if other else None,
            backlog=may_wait_behind_backlog(schedule, len(admitted))
            and self._has_backlog(schedule),
        )

    def _has_backlog(self, schedule: Schedule) -> bool:
        runs = (self.active[run_id] for run_id in self.by_key.get(concurrency_key(schedule), ()))
        return any(
            run.blocked
            and run.catch_up
            and run.origin is Origin.SCHEDULE
            and run.rank < schedule.priority * 2
            for run in runs
        )

    # --- runs ---------------------------------------------------------------------------------
    def existing(self, run: Run) -> Run | None:
        run_id = run.id
        if run_id not in self.runs and run.schedule_id is not None and run.slot is not None:
            run_id = self.by_slot.get((run.schedule_id, run.slot), run_id)
        return self.runs.get(run_id)

    def insert_run(self, run: Run) -> bool:
        """False: its id or its slot is taken."""
        if self.existing(run) is not None:
            return False
        self.put_run(run)
        return True

    def put_run(self, run: Run) -> None:
        self.runs[run.id] = run
        if run.schedule_id is not None and run.slot is not None:
            self.by_slot[run.schedule_id, run.slot] = run.id
        key = run.concurrency_key
        if run.status.terminal:
            self.active.pop(run.id, None)
            if key is not None and key in self.by_key:
                self.by_key[key].pop(run.id, None)
                if not self.by_key[key]:
                    del self.by_key[key]
            return
        self.active[run.id] = run
        if key is not None:
            self.by_key.setdefault(key, {})[run.id] = None

    def owned_run(self, run_id: RunId, fence: int) -> Run | None:
        """The run, if it is running under this fence."""
        run = self.runs.get(run_id)
        return run if run is not None and owns_fence(run, fence) else None

    def prunable(self, before: datetime) -> list[Run]:
        """Ended runs that retention may delete."""
        return [
            run
            for run in self.runs.values()
            if run.finished_at is not None and run.finished_at < before and not self.spared(run)
        ]

    def spared(self, run: Run) -> bool:
        """Whether it is a step of an unfinished flow, which retention keeps."""
        return run.parent_id is not None and run.parent_id in self.active

    def forget_run(self, run: Run) -> None:
        del self.runs[run.id]
        self.logs.pop(run.id, None)
        for name in run_checkpoint_names(run.id):
            self.states.pop(name, None)
        if run.schedule_id is None or run.slot is None:
            return
        self.by_slot.pop((run.schedule_id, run.slot), None)
        schedule = self.schedules.get(run.schedule_id)
        mark = run.missed_until or run.slot
        if schedule is not None and (schedule.purged_until or mark) <= mark:
            self.schedules[schedule.id] = replace(schedule, purged_until=mark)

    def prune_unused(self, before: datetime, limit: int) -> int:
        used = {run.schedule_id for run in self.runs.values()}
        purged = [
            schedule
            for schedule in self.schedules.values()
            if schedule.id not in used and is_purgeable(schedule, before)
        ]
        purged.sort(key=lambda schedule: (schedule.deleted_at, schedule.id))
        keys = unused_keys(self.keys.values(), before)
        for schedule in purged[:limit]:
            del self.schedules[schedule.id]
            for name in schedule_checkpoint_names(schedule.id):
                self.states.pop(name, None)
        for key in keys[:limit]:
            del self.keys[key.id]
        return len(purged[:limit]) + len(keys[:limit])

    def admitted(self, key: str) -> list[Run]:
        """Oldest first."""
        runs = (self.active[run_id] for run_id in self.by_key.get(key, ()))
        return sorted((r for r in runs if r.admitted), key=lambda r: (r.created_at, r.id))

    def oldest_active(self, key: str) -> Run | None:
        runs = (self.active[run_id] for run_id in self.by_key.get(key, ()))
        return min(runs, key=lambda run: (run.created_at, run.id), default=None)

    def held_back(self, run: Run) -> bool:
        """Whether a new run is blocked because its key is at its limit."""
        if run.concurrency_key is None or run.status.terminal:
            return False
        return len(self.admitted(run.concurrency_key)) >= run.concurrency_limit

    def unblock(self, key: str | None) -> bool:
        if key is None:
            return False
        active = [self.active[run_id] for run_id in self.by_key.get(key, ())]
        waiting = sorted((run for run in active if run.blocked), key=queue_order)
        before = admitted = sum(run.admitted for run in active)
        for run in waiting:
            if admitted < run.concurrency_limit:
                self.put_run(unblock(run))
                admitted += 1
        return admitted > before

    def waiting_of(self, schedule_id: ScheduleId) -> list[Run]:
        return [
            run
            for run in self.active.values()
            if run.schedule_id == schedule_id and run.status is RunStatus.QUEUED
        ]

    def children_of(self, run_id: RunId) -> list[Run]:
        """Unfinished steps of a flow."""
        return [run for run in self.active.values() if run.parent_id == run_id]

    def append_logs(self, run_id: RunId, entries: Sequence[LogEntry]) -> None:
        if entries:
            log = self.logs.setdefault(run_id, [])
            log.extend(replace(e, number=n) for n, e in enumerate(entries, len(log) + 1))

    # --- records ------------------------------------------------------------------------------
    def alive(self, node_id: NodeId, now: datetime) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.lease_until > now

    def node(self, node_id: NodeId) -> Node:
        node = self.nodes.get(node_id)
        if node is None:
            raise node_not_found(node_id)
        return node

    def mark_node(self, node: Node, at: datetime, *, joined: bool) -> None:
        mark = NodeEvent(at=at, node_id=node.id, version=node.version, joined=joined)
        kept = [each for each in self.node_events if each.at >= at - NODE_EVENT_RETENTION]
        self.node_events = [*kept, mark]

    def held_by(self, node_id: NodeId) -> list[Run]:
        return [run for run in self.active.values() if run.holder == node_id]

    def append_audit(self, entry: AuditEntry) -> AuditEntry:
        last = self.audit[-1] if self.audit else None
        entry = chain_entry(
            entry,
            number=last.number + 1 if last else 1,
            previous_hash=last.hash if last else "",
        )
        self.audit.append(entry)
        return entry

    def forget_audit(self, upto: int) -> None:
        self.audit = [entry for entry in self.audit if entry.number > upto]

    def remember(
        self, scope: str, key: str, fingerprint: str, now: datetime, keep: timedelta
    ) -> IdempotencyRecord | None:
        known = self.requests.get((scope, key))
        if known is not None and known[1] > now:
            return known[0]
        self.requests = {name: kept for name, kept in self.requests.items() if kept[1] > now}
        self.requests[scope, key] = (IdempotencyRecord(fingerprint=fingerprint), now + keep)
        return None

    def answer(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        known = self.requests.get((scope, key))
        if known is not None:
            self.requests[scope, key] = (answer, known[1])

    def take_tokens(
        self, name: str, now: datetime, rate: float, burst: int, count: int
    ) -> TokenGrant:
        tokens, at = self.buckets.get(name, (float(burst), now))
        elapsed = (now - at).total_seconds()
        tokens, taken = take_from(tokens, elapsed, rate=rate, burst=burst, count=count)
        self.buckets.pop(name, None)
        self.buckets[name] = (tokens, refilled_until(at, now))
        if len(self.buckets) > MOST_BUCKETS:
            del self.buckets[next(iter(self.buckets))]
        return taken

    def counts(self, now: datetime) -> Counts:
        present = [s for s in self.schedules.values() if s.deleted_at is None]
        statuses: dict[RunStatus, int] = {}
        for run in self.runs.values():
            statuses[run.status] = statuses.get(run.status, 0) + 1
        states: dict[DeliveryState, int] = {}
        for delivery in self.deliveries.values():
            states[delivery.state] = states.get(delivery.state, 0) + 1
        return Counts(
            deliveries=states,
            schedules=len(present),
            enabled=sum(s.enabled for s in present),
            due=sum(1 for s in present if self._waits(s) and (s.next_run_at or now) <= now),
            runs=statuses,
        )

    def items(self) -> list[Item]:
        logs = [RunLog(run_id=run_id, entries=tuple(log)) for run_id, log in self.logs.items()]
        return [
            *self.schedules.values(),
            *self.runs.values(),
            *logs,
            *self.audit,
            *self.keys.values(),
            *self.states.values(),
            *self.deliveries.values(),
            *self.inbox.values(),
        ]

    def adopt(self, item: Item) -> bool:
        match item:
            case Run():
                return self.insert_run(release(item) if item.status is RunStatus.RUNNING else item)
            case Schedule():
                if item.id in self.schedules:
                    return False
                self.put_schedule(item)
            case RunLog():
                if item.run_id in self.logs:
                    return False
                self.logs[item.run_id] = list(item.entries)
            case AuditEntry():
                if self.audit and self.audit[-1].number >= item.number:
                    return False
                self.audit.append(item)
            case _:
                return self._adopt_record(item)
        return True

    def _adopt_record(self, item: ApiKey | Checkpoint | Delivery | InboxItem) -> bool:
        match item:
            case ApiKey():
                return _add_new(self.keys, item.id, item)
            case Checkpoint():
                return _add_new(self.states, item.name, item)
            case Delivery():
                return self.add_delivery(item)
            case InboxItem():
                return _add_new(self.inbox, item.id, item)

    def add_delivery(self, delivery: Delivery) -> bool:
        return _add_new(self.deliveries, delivery.id, delivery)

    def pending_deliveries(self) -> list[Delivery]:
        return [each for each in self.deliveries.values() if each.state is DeliveryState.PENDING]


def _add_new(rows: dict[Name, Row], name: Name, row: Row) -> bool:
    """False: it exists already."""
    if name in rows:
        return False
    rows[name] = row
    return True
