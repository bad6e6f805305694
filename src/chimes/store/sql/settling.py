"""Runs that end: their schedules and their recipients hear of it, and blocked runs of their key
are let go.

The changes of a batch are applied one after another, as if each were alone, on rows that were
loaded together; then they are written together.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import bindparam, select, text

from chimes.model.audit import paused_by_receiver
from chimes.model.delivery import Delivery, outbox
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Run, Verdict, abandoned
from chimes.model.schedule import paused, summarized
from chimes.store.sql.ahead import without_ahead
from chimes.store.sql.base import (
    append_audit,
    load_schedules,
    load_summaries,
    write_schedule,
    write_states,
)
from chimes.store.sql.database import Tx
from chimes.store.sql.outbox import write_outbox
from chimes.store.sql.rows.mending import readable_run
from chimes.store.sql.rows.parts import Value
from chimes.store.sql.rows.schedule import summary_values
from chimes.store.sql.tables import ACTIVE, BLOCKED, runs

#: Blocked runs of one key that a batch looks at, besides one for each run that ends. A key with
#: a higher limit catches up with the next batch.
WINDOW = 200

WAITING_OF_KEY = (
    select(runs.c.id, runs.c.concurrency_limit)
    .where(runs.c.concurrency_key == bindparam("key"), text(BLOCKED))
    .order_by(runs.c.rank.desc(), runs.c.available_at, runs.c.planned_at, runs.c.id)
    .limit(bindparam("most"))
)


class Settling:
    def __init__(
        self, tx: Tx, now: datetime, before: Collection[Run], *, recording: bool = True
    ) -> None:
        """`before` are the runs that are going to change, as they are now; their schedules and
        keys are held (`locking`). Without `recording` the schedules do not hear of it."""
        self._tx = tx
        self._now = now
        self._children = _children(tx, [run.id for run in before if run.resumable])
        before = [*before, *(run for each in self._children.values() for run in each)]
        self._keys = Keys(tx, before)
        ids = {run.schedule_id for run in before if run.schedule_id is not None}
        self._summaries = load_summaries(tx, ids) if recording else {}
        self._changed: dict[RunId, Run] = {}
        self._recorded: set[ScheduleId] = set()
        self._paused: dict[ScheduleId, str] = {}
        self._outbox: list[Delivery] = []
        #: Whether some blocked run may go now.
        self.let_go = False

    def apply(self, run: Run, verdict: Verdict | None = None) -> None:
        """The run as it is from now on."""
        self._changed[run.id] = run
        if not run.status.terminal:
            return
        self._post(run)
        self._record(run, verdict)
        self.let_go |= self._keys.end(run)
        for child in self._children.get(run.id, ()):
            self.apply(abandoned(self._changed.get(child.id, child), self._now))

    def changed(self, run_id: RunId) -> Run | None:
        """The run as a change of this batch left it."""
        return self._changed.get(run_id)

    def write(self) -> None:
        write_states(self._tx, self._changed.values())
        self._keys.write()
        summaries = [summary_values(each, self._summaries[each]) for each in self._recorded]
        self._tx.dialect.move_cursors(self._tx.connection, summaries)
        write_outbox(self._tx, self._outbox)
        for schedule in load_schedules(self._tx, self._paused.keys()).values():
            if schedule.enabled:
                note = self._paused[schedule.id]
                schedule, _ = without_ahead(self._tx, schedule, self._now)
                write_schedule(self._tx, paused(schedule, self._now, "chimes", note=note))
                owner = str(schedule.owner)
                append_audit(self._tx, paused_by_receiver(schedule.id, owner, note, self._now))

    def _post(self, run: Run) -> None:
        """Before its schedule hears of it: what it told of until then is what was before."""
        if run.policy.delivery:
            summary = self._summaries.get(run.schedule_id) if run.schedule_id else None
            previous = summary.last_status if summary else None
            self._outbox.extend(outbox(run, previous, self._now))

    def _record(self, run: Run, verdict: Verdict | None) -> None:
        schedule_id = run.schedule_id
        if schedule_id is None or schedule_id not in self._summaries:
            return
        self._summaries[schedule_id] = summarized(self._summaries[schedule_id], run)
        self._recorded.add(schedule_id)
        if verdict is not None and verdict.pause_schedule:
            self._paused.setdefault(schedule_id, verdict.pause_schedule)


def _children(tx: Tx, flows: Collection[RunId]) -> dict[str, list[Run]]:
    """Unfinished steps of flows, by flow."""
    found: dict[str, list[Run]] = {}
    if flows:
        statement = select(runs).where(text(ACTIVE), tx.dialect.among(runs.c.parent_id, "flows"))
        given = {"flows": tx.dialect.listed(flows)}
        for row in tx.rows(tx.held(statement, runs.c.id), given):
            found.setdefault(row.parent_id, []).append(readable_run(row))
    return found


class Keys:
    """The concurrency keys of a batch that have blocked runs; all of them are held."""

    def __init__(self, tx: Tx, runs_: Collection[Run]) -> None:
        self._tx = tx
        keys = [run.concurrency_key for run in runs_ if run.concurrency_key is not None]
        blocked = tx.dialect.blocked_keys(tx.connection, set(keys)) if keys else ()
        self._waiting: dict[str, dict[str, int]] = {}
        for key in blocked:
            given = {"key": key, "most": WINDOW + keys.count(key)}
            rows = tx.rows(WAITING_OF_KEY, given)
            self._waiting[key] = {row.id: row.concurrency_limit for row in rows}
        self._admitted: dict[str, set[str]] = {key: set() for key in blocked}
        for row in tx.dialect.admitted(tx.connection, blocked) if blocked else ():
            self._admitted[row.concurrency_key].add(row.id)
        self.let_go: list[str] = []

    def count_again(self, ended: Collection[Run]) -> None:
        """They have all ended in the store; here they do so one after another, as everywhere."""
        for run in ended:
            if run.concurrency_key in self._admitted:
                self._admitted[run.concurrency_key].add(run.id)

    def write(self) -> None:
        unblocked: list[dict[str, Value]] = [{"id": run_id, "blocked": 0} for run_id in self.let_go]
        self._tx.dialect.write_states(self._tx.connection, unblocked)

    def end(self, run: Run) -> bool:
        """Whether runs were let go in its place."""
        key = run.concurrency_key
        if key is None or key not in self._waiting:
            return False
        waiting, admitted = self._waiting[key], self._admitted[key]
        admitted.discard(run.id)
        waiting.pop(run.id, None)
        going = []
        for run_id, limit in list(waiting.items()):
            if len(admitted) < limit:
                del waiting[run_id]
                admitted.add(run_id)
                going.append(run_id)
        self.let_go.extend(going)
        return bool(going)
