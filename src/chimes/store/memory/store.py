"""The memory store: the reference for all other stores.

Each method changes one `State` under one lock without awaiting, so it is atomic. Nothing survives
the process. The contracts stand in `store/port.py`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import islice

from chimes.clock import Clock, SystemClock
from chimes.envelope import IN_MEMORY, Keyring
from chimes.errors import AlreadyExists, NotFound
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import ApiKey, Owner, Quota
from chimes.model.audit import AUDIT_CHECKPOINT, AuditEntry, engine_pause_entry
from chimes.model.checkpoint import Checkpoint, check_version
from chimes.model.ids import DeliveryId, InboxId, KeyId, NodeId, RunId, ScheduleId
from chimes.model.insights import (
    ALL_RUNS,
    AttentionList,
    ErrorGroups,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    StatusCounts,
    Window,
)
from chimes.model.listing import (
    AuditQuery,
    Counts,
    DeliveryQuery,
    InboxQuery,
    Page,
    RunQuery,
    ScheduleQuery,
)
from chimes.model.node import HeartbeatResult, Node, NodeEvent, NodeReport
from chimes.model.notification import (
    Delivery,
    DeliveryCompletion,
    InboxItem,
    claim_delivery,
    complete_delivery,
    owns_delivery_fence,
    plan_deliveries,
    plan_pause_deliveries,
    reopen_delivery,
)
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    FirePlan,
    Planner,
    runs_to_insert,
    windows_from_text,
    with_maintenance,
)
from chimes.model.recipient import Channel
from chimes.model.routing import RoutingCache
from chimes.model.run import (
    CONCLUSIVE_STATUSES,
    NO_TURNS,
    Completion,
    LogEntry,
    Reason,
    Run,
    Turns,
    cancel,
    cancel_step,
    claim,
    complete,
    is_recorded,
    mark_lost,
    mark_started,
    owns_fence,
    queue_order,
    release_or_cancel,
    request_cancel,
    take_turns,
)
from chimes.model.schedule import (
    Schedule,
    count_successes,
    counts_as_success,
    may_pause_after,
    pause_after_failures,
    pause_schedule,
    record_run,
    stop_with_error,
)
from chimes.store.memory import insights
from chimes.store.memory.state import State
from chimes.store.port import (
    ClaimRequest,
    CompletionResult,
    FireResult,
    IdempotencyRecord,
    Item,
    LastTurns,
    ScheduleChange,
    ScheduleEdit,
    StoreStatus,
    TokenGrant,
    Wakeup,
    node_alive,
    node_gone,
)
from chimes.store.selection import (
    check_by_node,
    check_newest,
    group_by_zone,
    matches_audit,
    matches_inbox,
    matches_schedule,
    newest_first,
    select_deliveries,
    select_inbox,
    select_runs,
    select_schedules,
)


class MemoryStore:
    #: Nothing is written down.
    keyring: Keyring = IN_MEMORY

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock: AbstractContextManager[object, None] = threading.RLock()
        self._wakeup = Wakeup()
        self._state = State()
        self._turns = LastTurns()
        self.routing = RoutingCache()

    async def _commit(self, *, durable: bool = True) -> None:
        """Called after every change, before the method returns; a persistent subclass returns only
        when the change is durable. Not `durable`: may be written with the next change, because
        losing it with the process does no harm."""

    # --- lifecycle ----------------------------------------------------------------------------
    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self.wake()

    async def status(self) -> StoreStatus:
        return StoreStatus(kind="memory", location=_("this process"), schema="-")

    async def reseal(self) -> int:
        return 0

    async def size(self) -> int | None:
        return None

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        return self._clock.now()

    def changes(self) -> int:
        return self._wakeup.count

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - self._clock.now()).total_seconds())
        await self._wakeup.wait(since, seconds)

    def wake(self) -> None:
        self._wakeup.wake()

    # --- schedules ----------------------------------------------------------------------------
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        with self._lock:
            if schedule.id in self._state.schedules:
                raise AlreadyExists(_("schedule {id} exists already", id=schedule.id))
            self._state.check_quotas(None, schedule, quotas)
            self._state.put_schedule(schedule)
            self._audit(audit)
        await self._commit()
        self.wake()
        return schedule

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return self._state.schedules.get(schedule_id)

    async def change_schedule(
        self,
        schedule_id: ScheduleId,
        change: ScheduleChange,
        audit: AuditEntry | None = None,
        *,
        runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None,
        quotas: Sequence[Quota] = (),
        deleted: bool = False,
    ) -> Schedule:
        with self._lock:
            now = self._clock.now()
            before = self._state.present_schedule(schedule_id, deleted=deleted)
            after = self._state.skip_taken_slots(before, change(before, now), now)
            self._state.check_quotas(before, after, quotas)
            self._put_changed(after, runs(before, now) if runs else (), now)
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        with self._lock:
            now = self._clock.now()
            found = [(edit, self._state.present_schedule(edit.schedule_id)) for edit in edits]
            # Compute all before the first write: each may raise.
            changed = [
                (
                    edit,
                    self._state.skip_taken_slots(before, edit.change(before, now), now),
                    edit.runs(before, now) if edit.runs else (),
                )
                for edit, before in found
            ]
            for edit, after, new in changed:
                self._put_changed(after, new, now)
                self._audit(edit.audit)
        await self._commit()
        self.wake()
        return tuple(after for _edit, after, _runs in changed)

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        with self._lock:
            return select_schedules(self._state.schedules.values(), query)

    async def count_schedules(self, query: ScheduleQuery) -> int:
        with self._lock:
            every = replace(query, after=None, limit=None)
            return len(select_schedules(self._state.schedules.values(), every).items)

    async def next_due(self) -> datetime | None:
        with self._lock:
            return self._state.next_due()

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        query = ScheduleQuery(owner=owner, enabled=True)
        with self._lock:
            return group_by_zone(
                (each.trigger.zone, each.id)
                for each in self._state.schedules.values()
                if each.next_run_at is not None and matches_schedule(each, query)
            )

    def _put_changed(self, after: Schedule, new: Sequence[Run], now: datetime) -> None:
        for run in new:
            self._insert(run, now)
        self._state.put_schedule(after)
        if after.deleted_at is None:
            return
        for run in self._state.waiting_of(after.id):
            ended = cancel(run, Reason.SCHEDULE_DELETED, now)
            self._state.put_run(ended)
            self._post(ended, now)
            # Runs of other schedules may share its concurrency key.
            self._unblock(ended)
            self._abandon_children(ended, now)

    # --- firing -------------------------------------------------------------------------------
    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = timedelta(0),
    ) -> FireResult:
        with self._lock:
            now = self._clock.now()
            due = self._state.due(now, limit)
            maintenance = self._state.states.get(MAINTENANCE_CHECKPOINT)
            windows = windows_from_text(None if maintenance is None else maintenance.value)
            plan = with_maintenance(plan, windows)
            inserted: list[Run] = []
            plans: list[tuple[Schedule, FirePlan]] = []
            broken: list[Schedule] = []
            stopped = False
            for schedule in due:
                try:
                    firing = plan(schedule, self._state.fire_context(schedule), now)
                except Exception as error:
                    broken.append(stop_with_error(schedule, f"{type(error).__name__}: {error}"))
                    self._state.put_schedule(broken[-1])
                else:
                    inserted.extend(self._fire(firing, now))
                    plans.append((schedule, firing))
                    stopped |= bool(firing.cancel)
            taken: dict[RunId, Run] = {}
            if request is not None:
                current = [self._state.runs[run.id] for run in inserted]
                taken = self._hand_out(current, request, now)
            others = tuple(self._state.runs[r.id] for r in inserted if r.id not in taken)
        if due:
            hit("fire.before_commit")
            await self._commit()
        if stopped or any(run.claimable for run in others):
            self.wake()
        return FireResult(
            claimed=tuple(taken.values()),
            others=others,
            plans=tuple(plans),
            broken=tuple(broken),
            more=len(due) == limit,
        )

    def _fire(self, firing: FirePlan, now: datetime) -> list[Run]:
        free = {run.id for run in firing.runs if self._state.existing(run) is None}
        inserted = [run for run in runs_to_insert(firing.runs, free) if self._insert(run, now)]
        self._state.put_schedule(firing.schedule)
        for run_id in firing.cancel if inserted else ():
            self._cancel(self._state.runs[run_id], Reason.REPLACED, now)
        return inserted

    # --- runs ---------------------------------------------------------------------------------
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        with self._lock:
            now = self._clock.now()
            answer = []
            for run in runs:
                existing = self._state.existing(run)
                if existing is None:
                    existing = self._unless_over(run, now)
                    existing = replace(existing, blocked=self._state.held_back(existing))
                    self._insert(existing, now)
                answer.append(existing)
            self._audit(audit)
        await self._commit()
        self.wake()
        return tuple(answer)

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        assert run.concurrency_key is not None
        with self._lock:
            known = self._state.existing(run) or self._state.oldest_active(run.concurrency_key)
            if known is None:
                self._state.insert_run(run)
                self._audit(audit)
        # Also for an existing run: its insert may not be durable yet.
        await self._commit()
        if known is not None:
            return known, False
        self.wake()
        return run, True

    async def get_run(self, run_id: RunId) -> Run | None:
        return self._state.runs.get(run_id)

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        with self._lock:
            found = {slot: self._state.by_slot.get((schedule_id, slot)) for slot in slots}
            return {slot: self._state.runs[run_id] for slot, run_id in found.items() if run_id}

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        unfinished = query.statuses and not any(status.terminal for status in query.statuses)
        with self._lock:
            rows = self._state.active if unfinished else self._state.runs
            return select_runs(rows.values(), query)

    async def next_available(self) -> datetime | None:
        with self._lock:
            active = self._state.active.values()
            return min((run.available_at for run in active if run.claimable), default=None)

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        with self._lock:
            waiting, turns = self._state.active.values(), self._turns.get(request.capabilities)
            taken = self._hand_out(waiting, request, self._clock.now(), turns)
            self._turns.advance(request.capabilities, taken.values())
        if taken:
            await self._commit()
        return tuple(taken.values())

    async def start(self, run_id: RunId, fence: int) -> bool:
        with self._lock:
            run = self._state.owned_run(run_id, fence)
            if run is None:
                return False
            self._state.put_run(mark_started(run))
        await self._commit()
        return True

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        accepted: list[Run] = []
        refused: list[RunId] = []
        with self._lock:
            now = self._clock.now()
            released_any = False
            for completion in completions:
                run = self._state.runs.get(completion.run_id)
                if run is not None and owns_fence(run, completion.fence):
                    ended = complete(run, completion, now)
                    self._state.append_logs(run.id, completion.logs)
                    released_any |= self._apply(ended, now, completion)
                    released_any |= not ended.status.terminal
                    released_any |= ended.parent_id is not None or ended.resumable
                    accepted.append(ended)
                elif run is not None and is_recorded(run, completion.attempt):
                    accepted.append(run)
                else:
                    refused.append(completion.run_id)
        if accepted:
            await self._commit()
        if released_any:
            self.wake()
        return CompletionResult(accepted=tuple(accepted), refused=tuple(refused))

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        with self._lock:
            now = self._clock.now()
            for run_id, fence in claims:
                run = self._state.owned_run(run_id, fence)
                if run is not None:
                    self._apply(release_or_cancel(run, now), now)
        await self._commit()
        self.wake()

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        return await self.change_run(
            run_id, lambda run, now: request_cancel(run, reason, now), audit
        )

    async def change_run(
        self,
        run_id: RunId,
        change: Callable[[Run, datetime], Run],
        audit: AuditEntry | None = None,
    ) -> Run | None:
        with self._lock:
            run = self._state.runs.get(run_id)
            if run is None:
                return None
            now = self._clock.now()
            after = change(run, now)
            if after is not run:
                self._apply(after, now)
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        with self._lock:
            old = self._state.prunable(before)
            old.sort(key=lambda run: (run.finished_at, run.id))
            for run in old[:limit]:
                self._state.forget_run(run)
        if old:
            await self._commit()
        return len(old[:limit])

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        with self._lock:
            found = [self._state.runs[name] for name in set(run_ids) if name in self._state.runs]
            ended = [run for run in found if run.status.terminal and not self._state.spared(run)]
            for run in ended:
                self._state.forget_run(run)
        if ended:
            await self._commit()
        return len(ended)

    async def prune_unused(self, *, before: datetime, limit: int) -> int:
        with self._lock:
            count = self._state.prune_unused(before, limit)
        if count:
            await self._commit()
        return count

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        with self._lock:
            return min(len(self._state.prunable(before)), most)

    def _unless_over(self, run: Run, now: datetime) -> Run:
        """A step of an ended flow is canceled."""
        parent = self._state.runs.get(run.parent_id) if run.parent_id else None
        if parent is not None and parent.status.terminal:
            return cancel_step(run, now)
        return run

    # --- effects of a changed run -------------------------------------------------------------
    def _insert(self, run: Run, now: datetime) -> bool:
        """False: its id or its slot is taken."""
        inserted = self._state.insert_run(run)
        if inserted:
            self._post(run, now)
        return inserted

    def _apply(self, run: Run, now: datetime, completion: Completion | None = None) -> bool:
        """Write a changed run and its side effects; returns whether other runs were unblocked."""
        self._state.put_run(run)
        self._record(run, completion, now)
        return self._unblock(run)

    def _record(self, run: Run, completion: Completion | None, now: datetime) -> None:
        self._abandon_children(run, now)
        self._post(run, now)
        schedule = self._state.schedules.get(run.schedule_id) if run.schedule_id else None
        if schedule is None or not run.status.terminal:
            return
        schedule = record_run(schedule, run)
        if completion is not None and completion.pause_schedule and schedule.enabled:
            note = completion.pause_schedule
            schedule = pause_schedule(schedule, now, "chimes", note=note)
            self._audit(engine_pause_entry(schedule.id, str(schedule.owner), note, now))
        elif may_pause_after(run):
            schedule = self._pause_after_failures(schedule, run, now)
        elif counts_as_success(run):
            counted = count_successes(schedule, 1, now)
            if schedule.enabled and not counted.enabled:
                owner, note = str(schedule.owner), counted.pause_note
                self._audit(engine_pause_entry(schedule.id, owner, note, now))
            schedule = counted
        self._state.put_schedule(schedule)

    def _pause_after_failures(self, schedule: Schedule, run: Run, now: datetime) -> Schedule:
        runs = [
            each
            for each in self._state.runs.values()
            if each.schedule_id == schedule.id
            and each.created_at >= schedule.updated_at
            and each.status in CONCLUSIVE_STATUSES
        ]
        newest = [each.status for each in sorted(runs, key=newest_first, reverse=True)]
        paused = pause_after_failures(schedule, newest, now)
        if paused is None:
            return schedule
        self._audit(engine_pause_entry(paused.id, str(paused.owner), paused.pause_note, now))
        for delivery in plan_pause_deliveries(paused, run, now):
            self._state.add_delivery(delivery)
        self.wake()
        return paused

    def _post(self, run: Run, now: datetime) -> None:
        """Write the deliveries of a run that has ended."""
        schedule = self._state.schedules.get(run.schedule_id) if run.schedule_id else None
        previous = schedule.last_status if schedule else None
        for delivery in plan_deliveries(run, previous, now, self.routing.current):
            if self._state.add_delivery(delivery):
                self.wake()

    def _abandon_children(self, run: Run, now: datetime) -> None:
        if run.status.terminal and run.resumable:
            for child in self._state.children_of(run.id):
                after = cancel_step(child, now)
                self._state.put_run(after)
                self._unblock(after)

    def _unblock(self, run: Run) -> bool:
        """Unblock runs of the same key up to its limit; returns whether there were any."""
        return run.status.terminal and self._state.unblock(run.concurrency_key)

    def _cancel(self, run: Run, reason: str, now: datetime) -> Run:
        after = request_cancel(run, reason, now)
        if not run.status.terminal:
            self._apply(after, now)
        return after

    def _lose(self, runs: Sequence[Run], now: datetime) -> tuple[Run, ...]:
        after = tuple(mark_lost(run, now) for run in runs)
        for run in after:
            self._apply(run, now)
        return after

    def _hand_out(
        self,
        runs: Iterable[Run],
        request: ClaimRequest,
        now: datetime,
        turns: Turns = NO_TURNS,
    ) -> dict[RunId, Run]:
        """Claim the first claimable ones of `runs`, if the lease of the node is alive."""
        if not self._state.alive(request.node_id, now):
            return {}
        claimable = (
            run
            for run in runs
            if run.claimable
            and run.available_at <= now
            and run.target.requirement in request.capabilities
        )
        chosen = sorted(take_turns(claimable, request.free, turns), key=queue_order)
        taken = {run.id: claim(run, request.node_id, now) for run in chosen}
        for run in taken.values():
            self._state.put_run(run)
        return taken

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        with self._lock:
            run = self._state.owned_run(run_id, fence)
            if run is None:
                return False
            self._state.append_logs(run_id, entries)
        await self._commit()
        return True

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        with self._lock:
            return tuple(self._state.logs.get(run_id, ())[after : after + limit])

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        with self._lock:
            logs = {run_id: self._state.logs.get(run_id) for run_id in run_ids}
            return {run_id: entries[-1] for run_id, entries in logs.items() if entries}

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        with self._lock:
            for run_id in run_ids:
                run = self._state.runs.get(run_id)
                if run is not None and run.status.terminal:
                    self._state.logs.pop(run_id, None)
        await self._commit()

    # --- checkpoints --------------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        with self._lock:
            run = self._state.owned_run(run_id, fence)
            if run is None:
                return False
            now = self._clock.now()
            kept = Checkpoint(name=name, value=value, changed_at=now, run_id=run_id)
            self._state.states[name] = kept
        await self._commit()
        return True

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        return self._state.states.get(name)

    async def set_checkpoint(
        self,
        name: str,
        value: str | None,
        audit: AuditEntry | None = None,
        *,
        expected: int | None = None,
    ) -> Checkpoint | None:
        with self._lock:
            check_version(self._state.states.get(name), expected)
            before = self._state.states.pop(name, None)
            if value is not None:
                now = self._clock.now()
                self._state.states[name] = Checkpoint(name=name, value=value, changed_at=now)
            self._audit(audit)
        await self._commit()
        return before

    async def set_maintenance(
        self, value: str | None, audit: AuditEntry | None = None, *, expected: int | None = None
    ) -> Checkpoint | None:
        # Firing holds the same lock.
        return await self.set_checkpoint(MAINTENANCE_CHECKPOINT, value, audit, expected=expected)

    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        with self._lock:
            now = self._clock.now()
            before = self._state.nodes.get(node.id)
            joined = replace(
                node,
                started_at=now if before is None else before.started_at,
                heartbeat_at=now,
                lease_until=now + lease,
                drain=node.drain if before is None else before.drain,
                report=node.report if before is None else before.report,
            )
            self._state.nodes[node.id] = joined
            if before is None:
                self._state.mark_node(joined, now, joined=True)
        await self._commit(durable=False)
        return joined

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        with self._lock:
            now = self._clock.now()
            if not self._state.alive(node_id, now):
                return HeartbeatResult(alive=False, now=now)
            node = replace(
                self._state.nodes[node_id],
                heartbeat_at=now,
                lease_until=now + lease,
                clock_offset=(clock - now).total_seconds(),
                report=report,
            )
            self._state.nodes[node_id] = node
            held = sorted(self._state.held_by(node_id), key=_age)
        await self._commit(durable=False)
        cancel = tuple(run.id for run in held if run.cancel_requested)
        return HeartbeatResult(alive=True, now=now, cancel=cancel, drain=node.drain)

    async def leave(self, node_id: NodeId) -> None:
        with self._lock:
            node = self._state.nodes.pop(node_id, None)
            if node is not None:
                now = self._clock.now()
                self._lose(self._state.held_by(node_id), now)
                self._state.mark_node(node, now, joined=False)
        await self._commit()
        self.wake()

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        with self._lock:
            now = self._clock.now()
            ended = [node for node in self._state.nodes.values() if node.lease_until <= now]
            held = [run for node in ended for run in self._state.held_by(node.id)]
            orphans = [
                run
                for run in self._state.active.values()
                if run.holder is not None and run.holder not in self._state.nodes
            ]
            rescued = self._lose(sorted(held + orphans, key=_age)[:limit], now)
            for node in ended:
                if not self._state.held_by(node.id):
                    del self._state.nodes[node.id]
                    self._state.mark_node(node, node.lease_until, joined=False)
        if ended or rescued:
            await self._commit()
        if rescued:
            self.wake()
        return rescued

    async def nodes(self) -> tuple[Node, ...]:
        with self._lock:
            return tuple(sorted(self._state.nodes.values(), key=lambda node: node.id))

    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        with self._lock:
            node = self._state.node(node_id)
            if not self._state.alive(node_id, self._clock.now()):
                raise node_gone(node_id)
            asked = replace(node, drain=drain)
            self._state.nodes[node_id] = asked
            self._audit(audit)
        await self._commit()
        self.wake()
        return asked

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        with self._lock:
            node = self._state.node(node_id)
            now = self._clock.now()
            if self._state.alive(node_id, now):
                raise node_alive(node_id)
            del self._state.nodes[node_id]
            self._lose(self._state.held_by(node_id), now)
            self._state.mark_node(node, node.lease_until, joined=False)
            self._audit(audit)
        await self._commit()
        self.wake()
        return node

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        with self._lock:
            found = [mark for mark in self._state.node_events if mark.at >= since]
        found.sort(key=lambda mark: (mark.at, mark.node_id, mark.joined))
        return tuple(found[-limit:])

    # --- audit, keys, requests ----------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        with self._lock:
            appended = self._state.append_audit(entry)
        await self._commit()
        return appended

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
        with self._lock:
            found = (each for each in reversed(self._state.audit) if matches_audit(each, query))
            return tuple(islice(found, query.limit))

    async def prune_audit(
        self, *, upto: int, checkpoint: str, expected: int, audit: AuditEntry
    ) -> None:
        with self._lock:
            check_version(self._state.states.get(AUDIT_CHECKPOINT), expected)
            self._state.states[AUDIT_CHECKPOINT] = Checkpoint(
                name=AUDIT_CHECKPOINT, value=checkpoint, changed_at=self._clock.now()
            )
            # First, because the chain continues from the newest entry.
            self._state.append_audit(audit)
            self._state.forget_audit(upto)
        await self._commit()

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        with self._lock:
            if key.id in self._state.keys:
                raise AlreadyExists(_("key {id} exists already", id=key.id))
            self._state.keys[key.id] = key
            self._audit(audit)
        await self._commit()
        return key

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        return self._state.keys.get(key_id)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        with self._lock:
            return tuple(sorted(self._state.keys.values(), key=lambda k: (k.created_at, k.id)))

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        with self._lock:
            key = self._state.keys.get(key_id)
            if key is None:
                raise NotFound(_("key {id} not found", id=key_id))
            changed = change(key, self._clock.now())
            self._state.keys[key_id] = changed
            self._audit(audit)
        await self._commit()
        return changed

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        with self._lock:
            known = self._state.remember(scope, key, fingerprint, self._clock.now(), keep)
        if known is None:
            # Written together with the change that it guards.
            await self._commit(durable=False)
        return known

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        with self._lock:
            self._state.answer(scope, key, answer)
        await self._commit()

    async def forget_request(self, scope: str, key: str) -> None:
        with self._lock:
            self._state.requests.pop((scope, key), None)
        await self._commit()

    def _audit(self, entry: AuditEntry | None) -> None:
        if entry is not None:
            self._state.append_audit(entry)

    # --- insights -----------------------------------------------------------------------------
    async def counts(self) -> Counts:
        with self._lock:
            return self._state.counts(self._clock.now())

    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        with self._lock:
            return insights.schedule_counts(self._state, query, self._clock.now(), failing=failing)

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        with self._lock:
            return insights.count_runs(self._state, window, filter_, step)

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        check_by_node(owner, by_node=by_node)
        with self._lock:
            return insights.run_lags(self._state, window, owner, step, by_node=by_node)

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        with self._lock:
            return insights.newest_results(self._state, ids, each, owner)

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        with self._lock:
            return insights.running_now(self._state, owner, self._clock.now(), limit)

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        with self._lock:
            now = self._clock.now()
            return insights.needing_attention(self._state, owner, now, late, limit)

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        with self._lock:
            return insights.error_groups(self._state, window, filter_, limit)

    async def roll_up(self, *, limit: int) -> int:
        return 0

    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        with self._lock:
            if not self._state.add_delivery(delivery):
                return self._state.deliveries[delivery.id]
            self._audit(audit)
        await self._commit()
        self.wake()
        return delivery

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        with self._lock:
            now = self._clock.now()
            due = [
                each
                for each in self._state.pending_deliveries()
                if each.available_at <= now
                and (each.recipient.channel in channels or each.available_at <= now - overdue)
            ]
            due.sort(key=lambda each: (each.available_at, each.id))
            taken = tuple(claim_delivery(each, now, lease) for each in due[:limit])
            self._state.deliveries.update((each.id, each) for each in taken)
        if taken:
            await self._commit()
        return taken

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        accepted = []
        with self._lock:
            now = self._clock.now()
            for completion in completions:
                before = self._state.deliveries.get(completion.delivery_id)
                if before is None or not owns_delivery_fence(before, completion.fence):
                    continue
                after = complete_delivery(before, completion, now)
                self._state.deliveries[after.id] = after
                if completion.inbox is not None:
                    self._state.inbox.setdefault(completion.inbox.id, completion.inbox)
                accepted.append(after)
        if accepted:
            await self._commit()
            self.wake()
        return tuple(accepted)

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        with self._lock:
            before = self._state.deliveries.get(delivery_id)
            if before is None:
                return None
            after = reopen_delivery(before, self._clock.now())
            self._state.deliveries[delivery_id] = after
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]:
        with self._lock:
            return select_deliveries(self._state.deliveries.values(), query)

    async def next_delivery(self) -> datetime | None:
        with self._lock:
            return min(
                (each.available_at for each in self._state.pending_deliveries()), default=None
            )

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        with self._lock:
            kept = self._state.inbox.setdefault(item.id, item)
        await self._commit()
        return kept

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]:
        with self._lock:
            return select_inbox(self._state.inbox.values(), query)

    async def count_unread(self, query: InboxQuery) -> int:
        with self._lock:
            unread = replace(query, unread=True)
            return sum(matches_inbox(item, unread) for item in self._state.inbox.values())

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        with self._lock:
            before = self._state.inbox.get(item_id)
            if before is None:
                raise NotFound(_("inbox item {id} not found", id=item_id))
            after = change(before, self._clock.now())
            self._state.inbox[item_id] = after
        await self._commit()
        return after

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        with self._lock:
            gone = [each for each in set(item_ids) if each in self._state.inbox]
            for item_id in gone:
                del self._state.inbox[item_id]
        if gone:
            await self._commit()
        return len(gone)

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        with self._lock:
            ended = [
                (each.finished_at, each.id)
                for each in self._state.deliveries.values()
                if each.finished_at is not None and each.finished_at < before
            ]
            old = [
                (item.created_at, item.id)
                for item in self._state.inbox.values()
                if item.created_at < before and not item.starred
            ]
            gone = sorted(ended)[:limit]
            items = sorted(old)[: limit - len(gone)]
            for _unused, delivery_id in gone:
                del self._state.deliveries[delivery_id]
            for _unused, item_id in items:
                del self._state.inbox[item_id]
        if gone or items:
            await self._commit()
        return len(gone) + len(items)

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        with self._lock:
            return self._state.take_tokens(name, self._clock.now(), rate, burst, count)

    # --- export and import --------------------------------------------------------------------
    async def dump(self) -> AsyncIterator[Item]:
        with self._lock:
            items = self._state.items()
        for item in items:
            yield item

    async def load(self, items: Sequence[Item]) -> int:
        with self._lock:
            count = sum(self._state.adopt(item) for item in items)
        await self._commit()
        self.wake()
        return count

    async def clear(self, *, keep: str = "") -> None:
        with self._lock:
            kept = self._state.states.get(keep)
            self._state = type(self._state)(states={keep: kept} if kept else {})
        await self._commit()
        self.wake()


def _age(run: Run) -> tuple[datetime, str]:
    return (run.created_at, run.id)
