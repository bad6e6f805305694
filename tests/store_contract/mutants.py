"""Memory stores with one planted bug each; the state machine must find every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.model import replace
from chimes.model.access import Quota
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.node import HeartbeatResult, NodeReport
from chimes.model.notification import Delivery, DeliveryCompletion, plan_deliveries
from chimes.model.planning import FirePlan
from chimes.model.run import (
    NO_TURNS,
    Completion,
    LogEntry,
    Run,
    RunStatus,
    Turns,
    mark_lost,
)
from chimes.model.schedule import Schedule
from chimes.store.memory import MemoryStore
from chimes.store.memory.state import State
from chimes.store.port import ClaimRequest, CompletionResult, LastTurns, ScheduleChange


class NoFence(MemoryStore):
    """`finish` ignores the fence."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        runs = self._state.runs
        current = [
            replace(completion, fence=runs[completion.run_id].fence)
            if completion.run_id in runs
            else completion
            for completion in completions
        ]
        return await super().finish(current)


class NoFenceIncrease(MemoryStore):
    """A second claim does not raise the fence."""

    def _hand_out(
        self,
        runs: Iterable[Run],
        request: ClaimRequest,
        now: datetime,
        turns: Turns = NO_TURNS,
    ) -> dict[RunId, Run]:
        taken = super()._hand_out(runs, request, now, turns)
        same = {run.id: replace(run, fence=1) for run in taken.values()}
        for run in same.values():
            self._state.put_run(run)
        return same


class ForgetsTurns(MemoryStore):
    """Every claim begins with the same owner."""

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        self._turns = LastTurns()
        return await super().claim(request)


@dataclass(slots=True)
class _StateWithDuplicates(State):
    def existing(self, run: Run) -> Run | None:
        return None


class NoUnique(MemoryStore):
    """A slot gets a run each time the cursor passes it."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._state = _StateWithDuplicates()


class NoPoison(MemoryStore):
    """There is no crash limit."""

    def _lose(self, runs: Sequence[Run], now: datetime) -> tuple[Run, ...]:
        after = []
        for run in runs:
            forgiven = mark_lost(replace(run, attempts=()), now)
            after.append(replace(forgiven, attempts=(*run.attempts, *forgiven.attempts)))
            self._state.put_run(after[-1])
            self._record(after[-1], None, now)
            self._unblock(after[-1])
        return tuple(after)


class HeartbeatRevives(MemoryStore):
    """A heartbeat after the end of the lease renews it."""

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        node = self._state.nodes.get(node_id)
        if node is not None:
            until = max(node.lease_until, self._clock.now() + lease)
            self._state.nodes[node_id] = replace(node, lease_until=until)
        return await super().heartbeat(node_id, lease, clock=clock, report=report)


class NeverUnblocks(MemoryStore):
    """The next run of a key is never unblocked."""

    def _unblock(self, run: Run) -> bool:
        return False


class StuckCursor(MemoryStore):
    """The cursor does not move if the slot already has a run."""

    def _fire(self, firing: FirePlan, now: datetime) -> list[Run]:
        before = self._state.schedules[firing.schedule.id]
        inserted = super()._fire(firing, now)
        if not inserted:
            self._state.put_schedule(before)
        return inserted


class RejectsRepeatedCompletions(MemoryStore):
    """A repeated completion is rejected."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        runs = self._state.runs
        told = [v for v in completions if v.run_id in runs and v.attempt in runs[v.run_id].attempts]
        finished = await super().finish(
            [completion for completion in completions if completion not in told]
        )
        return replace(finished, refused=(*finished.refused, *(v.run_id for v in told)))


@dataclass(slots=True)
class _StateWithoutQueuedRuns(State):
    def oldest_active(self, key: str) -> Run | None:
        found = State.oldest_active(self, key)
        return found if found is not None and found.status is RunStatus.RUNNING else None


class OnlyRunningIsActive(MemoryStore):
    """A pair with a queued run gets a second one."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._state = _StateWithoutQueuedRuns()


class AuditsExistingRuns(MemoryStore):
    """A request that returns an existing run is audited."""

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        found, created = await super().add_unless_active(run, audit)
        if not created:
            self._audit(audit)
        return found, created


class OpenCheckpoints(MemoryStore):
    """`save_checkpoint` ignores the fence."""

    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        run = self._state.runs.get(run_id)
        return await super().save_checkpoint(run_id, run.fence if run else fence, name, value)


class IgnoresVersions(MemoryStore):
    """`set_checkpoint` overwrites a version other than the expected one."""

    async def set_checkpoint(
        self,
        name: str,
        value: str | None,
        audit: AuditEntry | None = None,
        *,
        expected: int | None = None,
    ) -> Checkpoint | None:
        return await super().set_checkpoint(name, value, audit)


@dataclass(slots=True)
class _StateWithoutLeases(State):
    def alive(self, node_id: NodeId, now: datetime) -> bool:
        return node_id in self.nodes


class NoLease(MemoryStore):
    """A node claims after its lease has expired."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._state = _StateWithoutLeases()


class RetriesAtOnce(MemoryStore):
    """Retries have no delay."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        at_once = [
            completion
            if completion.retry_in is None
            else replace(completion, retry_in=timedelta(0))
            for completion in completions
        ]
        return await super().finish(at_once)


@dataclass(slots=True)
class _StateWithoutRunsToCancel(State):
    def waiting_of(self, schedule_id: ScheduleId) -> list[Run]:
        return []


class DeleteKeepsRuns(MemoryStore):
    """Deleting a schedule keeps its queued runs."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._state = _StateWithoutRunsToCancel()


class OpenLogs(MemoryStore):
    """`append_logs` ignores the fence."""

    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        run = self._state.runs.get(run_id)
        return await super().append_logs(run_id, run.fence if run else fence, entries)


class IgnoresOnLostStop(MemoryStore):
    """`on_lost: stop` is ignored: a lost started run is queued again."""

    async def start(self, run_id: RunId, fence: int) -> bool:
        before = self._state.runs.get(run_id)
        owned = await super().start(run_id, fence)
        if owned and before is not None:
            self._state.put_run(before)
        return owned


class ClaimsBlocked(MemoryStore):
    """Fired runs are not blocked by the limit of their key."""

    def _fire(self, firing: FirePlan, now: datetime) -> list[Run]:
        free = tuple(replace(run, blocked=False) for run in firing.runs)
        return super()._fire(replace(firing, runs=free), now)


class TornChange(MemoryStore):
    """`change_schedule` does not insert the runs of a change."""

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
        return await super().change_schedule(
            schedule_id, change, audit, quotas=quotas, deleted=deleted
        )


class ForgetsPurge(MemoryStore):
    """Pruning does not raise `purged_until`, so an old slot can fire again."""

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        marks = {each.id: each.purged_until for each in self._state.schedules.values()}
        pruned = await super().prune_runs(before=before, limit=limit)
        for schedule in list(self._state.schedules.values()):
            self._state.schedules[schedule.id] = replace(schedule, purged_until=marks[schedule.id])
        return pruned


class CancelsEndedRuns(MemoryStore):
    """Cancelling an ended run changes its status."""

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        run = self._state.runs.get(run_id)
        after = await super().cancel_run(run_id, reason, audit)
        if run is not None and after is not None and run.status.terminal:
            after = replace(after, status=RunStatus.CANCELED)
            self._state.put_run(after)
        return after


class NotifiesTwice(MemoryStore):
    """A repeated completion writes its deliveries again."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        finished = await super().finish(completions)
        for run in finished.accepted:
            for delivery in plan_deliveries(run, None, self._clock.now()):
                self._state.deliveries[delivery.id] = delivery
        return finished


class IgnoresPreviousStatus(MemoryStore):
    """Recoveries are not detected: the previous status is ignored."""

    def _post(self, run: Run, now: datetime) -> None:
        for delivery in plan_deliveries(run, None, now):
            self._state.add_delivery(delivery)


class OpenDeliveries(MemoryStore):
    """`finish_deliveries` ignores the fence."""

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        known = self._state.deliveries
        current = [
            replace(completion, fence=known[completion.delivery_id].fence)
            for completion in completions
            if completion.delivery_id in known
        ]
        return await super().finish_deliveries(current)


MUTANTS: tuple[type[MemoryStore], ...] = (
    NoFence,
    NoFenceIncrease,
    ForgetsTurns,
    NoUnique,
    NoPoison,
    HeartbeatRevives,
    NeverUnblocks,
    StuckCursor,
    RejectsRepeatedCompletions,
    NoLease,
    RetriesAtOnce,
    DeleteKeepsRuns,
    OpenLogs,
    IgnoresOnLostStop,
    ClaimsBlocked,
    TornChange,
    ForgetsPurge,
    CancelsEndedRuns,
    OnlyRunningIsActive,
    AuditsExistingRuns,
    OpenCheckpoints,
    IgnoresVersions,
    NotifiesTwice,
    IgnoresPreviousStatus,
    OpenDeliveries,
)
