"""Runs from the queue to their completion, logs and checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from chimes.model.access import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Page, RunQuery
from chimes.model.run import (
    Completion,
    LogEntry,
    Run,
    cancel_step,
    complete,
    mark_started,
    owns_fence,
    release_or_cancel,
)
from chimes.store.memory.base import MemoryBase
from chimes.store.port import ClaimRequest, CompletionResult
from chimes.store.selection import select_runs


class MemoryRuns(MemoryBase):
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        with self._lock:
            answer = []
            for run in runs:
                existing = self._state.existing(run)
                if existing is None:
                    existing = self._unless_over(run)
                    existing = replace(existing, blocked=self._state.held_back(existing))
                    self._state.insert_run(existing)
                    self._post(existing, self._clock.now())
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

    def _unless_over(self, run: Run) -> Run:
        parent = self._state.runs.get(run.parent_id) if run.parent_id else None
        if parent is not None and parent.status.terminal:
            return cancel_step(run, self._clock.now())
        return run

    async def get_run(self, run_id: RunId) -> Run | None:
        return self._state.runs.get(run_id)

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        with self._lock:
            found = {slot: self._state.by_slot.get((schedule_id, slot)) for slot in slots}
            return {slot: self._state.runs[run_id] for slot, run_id in found.items() if run_id}

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        with self._lock:
            return select_runs(self._state.runs.values(), query)

    async def next_available(self) -> datetime | None:
        with self._lock:
            active = self._state.active.values()
            return min((run.available_at for run in active if run.claimable), default=None)

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        with self._lock:
            now = self._clock.now()
            if not self._state.alive(request.node_id, now):
                return ()
            claimable = [
                run
                for run in self._state.active.values()
                if run.claimable
                and run.available_at <= now
                and run.target.requirement in request.capabilities
            ]
            taken = self._hand_out(claimable, request, now)
        if taken:
            await self._commit()
        return tuple(taken.values())

    async def start(self, run_id: RunId, fence: int) -> bool:
        with self._lock:
            run = self._state.runs.get(run_id)
            if run is None or not owns_fence(run, fence):
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
                    self._state.put_run(ended)
                    self._state.append_logs(run.id, completion.logs)
                    self._record(ended, completion, now)
                    released_any |= self._unblock(ended) or not ended.status.terminal
                    released_any |= ended.parent_id is not None or ended.resumable
                    accepted.append(ended)
                elif run is not None and completion.attempt in run.attempts:
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
                run = self._state.runs.get(run_id)
                if run is not None and owns_fence(run, fence):
                    after = release_or_cancel(run, now)
                    self._state.put_run(after)
                    self._record(after, None, now)
                    self._unblock(after)
        await self._commit()
        self.wake()

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        with self._lock:
            run = self._state.runs.get(run_id)
            if run is None:
                return None
            after = self._cancel(run, reason, self._clock.now())
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        with self._lock:
            old = [
                run
                for run in self._state.runs.values()
                if run.finished_at is not None
                and run.finished_at < before
                and not self._state.spared(run)
            ]
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

    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        with self._lock:
            run = self._state.runs.get(run_id)
            if run is None or not owns_fence(run, fence):
                return False
            self._state.append_logs(run_id, entries)
        await self._commit()
        return True

    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        with self._lock:
            run = self._state.runs.get(run_id)
            if run is None or not owns_fence(run, fence):
                return False
            now = self._clock.now()
            kept = Checkpoint(name=name, value=value, changed_at=now, run_id=run_id)
            self._state.states[name] = kept
        await self._commit()
        return True

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        return self._state.states.get(name)

    async def set_checkpoint(
        self, name: str, value: str | None, audit: AuditEntry | None = None
    ) -> Checkpoint | None:
        with self._lock:
            before = self._state.states.pop(name, None)
            if value is not None:
                now = self._clock.now()
                self._state.states[name] = Checkpoint(name=name, value=value, changed_at=now)
            self._audit(audit)
        await self._commit()
        return before

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
