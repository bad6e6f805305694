"""What follows when runs change: schedules, children and those that wait, as one list of changes.

The rules are those of the model; this only says them in the words of the `commit` script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from chimes.model.audit import AuditEntry, paused_by_receiver
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Run, Verdict, abandoned, cancel_asked
from chimes.model.schedule import Schedule, paused
from chimes.store.redis.message_rows import post_ops
from chimes.store.redis.run_rows import changed_fields, log_rows
from chimes.store.redis.schedule_rows import Revision, all_fields
from chimes.store.redis.wire import Wire, flat


class Settling:
    """Of runs that were read, with their revisions. `children`: of the flows among them, those
    that have not ended."""

    def __init__(
        self,
        now: datetime,
        found: Mapping[RunId, tuple[Run, str]],
        children: Mapping[RunId, list[RunId]],
    ) -> None:
        self.now = now
        self.runs = {run_id: run for run_id, (run, _) in found.items()}
        self._revs = {run_id: rev for run_id, (_, rev) in found.items()}
        self._children = children
        self._touched: set[RunId] = set()
        self.ops: list[Wire] = []
        self.expected: list[Wire] = []
        #: Schedules that a verdict pauses, with the audit entries of it.
        self.audit: list[AuditEntry] = []
        self.pauses: dict[ScheduleId, str] = {}

    def put(self, after: Run) -> None:
        before = self.runs[after.id]
        if after.id not in self._touched:
            self._touched.add(after.id)
            self.expected.append(["run", after.id, self._revs[after.id]])
        changes = changed_fields(before, after)
        if changes:
            self.ops.append(["put", after.id, flat(changes.items())])
        self.runs[after.id] = after

    def settle(self, after: Run, verdict: Verdict | None = None) -> None:
        """The run as it is now, and what follows from that."""
        self.put(after)
        if verdict is not None and verdict.logs:
            self.ops.append(["log", after.id, log_rows(verdict.logs)])
        if not after.status.terminal:
            return
        self.abandon_children(after)
        self.post(after)
        if after.schedule_id is not None:
            self.ops.append(
                ["summary", after.schedule_id, after.id, after.status.value, after.error]
            )
            if verdict is not None and verdict.pause_schedule:
                self.pauses.setdefault(after.schedule_id, verdict.pause_schedule)
        self.unblock(after)

    def cancel(self, run: Run, reason: str) -> Run:
        after = cancel_asked(run, reason, self.now)
        if not run.status.terminal:
            self.settle(after)
        return after

    def abandon_children(self, run: Run) -> None:
        if run.status.terminal and run.resumable:
            for child_id in self._children.get(run.id, ()):
                child = self.runs[child_id]
                if child.status.terminal:
                    continue
                after = abandoned(child, self.now)
                self.put(after)
                self.unblock(after)

    def post(self, run: Run) -> None:
        """Ahead of the summary: whether this is a recovery is seen from the run before it."""
        self.ops += post_ops(run)

    def unblock(self, run: Run) -> None:
        # Also of one whose key cannot be read any more: the script knows it.
        if run.status.terminal:
            self.ops.append(["unblock", run.id])

    def pause(self, schedules: Iterable[tuple[Schedule, Revision]]) -> None:
        """The receivers of these want no more calls (410)."""
        for schedule, revision in schedules:
            note = self.pauses[schedule.id]
            if not schedule.enabled:
                continue
            stopped = paused(schedule, self.now, "chimes", note=note)
            self.expected.append(["schedule", schedule.id, revision.definition, revision.summary])
            # Ahead of the summaries, which then stand in what this writes.
            self.ops.insert(0, ["schedule", schedule.id, all_fields(stopped)])
            self.audit.append(paused_by_receiver(schedule.id, str(schedule.owner), note, self.now))
