"""Base of the memory store: state, lock and commit hook."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from chimes.clock import Clock, SystemClock
from chimes.model.access import AuditEntry, gone_pause_entry
from chimes.model.ids import RunId
from chimes.model.notification import plan_deliveries
from chimes.model.run import (
    Completion,
    Run,
    cancel_step,
    claim,
    mark_lost,
    queue_order,
    request_cancel,
)
from chimes.model.schedule import pause_schedule, record_run
from chimes.store.memory.state import State
from chimes.store.port import ClaimRequest
from chimes.store.wakeup import Wakeup


class MemoryBase:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock: AbstractContextManager[object, None] = threading.RLock()
        self._wakeup = Wakeup()
        self._state = State()

    def wake(self) -> None:
        self._wakeup.wake()

    async def _commit(self, *, durable: bool = True) -> None:
        """Called after every change, before the method returns; a persistent subclass returns only
        when the change is durable. Not `durable`: may be written with the next change, because
        losing it with the process does no harm."""

    def _audit(self, entry: AuditEntry | None) -> None:
        if entry is not None:
            self._state.append_audit(entry)

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
            self._audit(gone_pause_entry(schedule.id, str(schedule.owner), note, now))
        self._state.put_schedule(schedule)

    def _post(self, run: Run, now: datetime) -> None:
        """Write the deliveries of a run that has ended."""
        schedule = self._state.schedules.get(run.schedule_id) if run.schedule_id else None
        previous = schedule.last_status if schedule else None
        for delivery in plan_deliveries(run, previous, now):
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
        self._state.put_run(after)
        if not run.status.terminal:
            self._record(after, None, now)
            self._unblock(after)
        return after

    def _lose(self, runs: Sequence[Run], now: datetime) -> tuple[Run, ...]:
        after = tuple(mark_lost(run, now) for run in runs)
        for run in after:
            self._state.put_run(run)
            self._record(run, None, now)
            self._unblock(run)
        return after

    def _hand_out(
        self, claimable: Sequence[Run], request: ClaimRequest, now: datetime
    ) -> dict[RunId, Run]:
        chosen = sorted(claimable, key=queue_order)[: max(0, request.free)]
        taken = {run.id: claim(run, request.node_id, now) for run in chosen}
        for run in taken.values():
            self._state.put_run(run)
        return taken
