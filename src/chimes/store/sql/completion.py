"""Stores completions in batches: takes the claims, ends or requeues the runs, updates the last run
of their schedules, writes the outbox, admits blocked runs.

A worker sends its copy of the run with the completion, so a run is not read again. The
transaction that deletes the claim decides the next state of the run (`take_claims`), so a fenced
worker changes nothing. Runs that affect nothing else end in one statement, where the database has
it (`end`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, text

from chimes.model import replace
from chimes.model.audit import engine_pause_entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.notification import Delivery, plan_deliveries, plan_pause_deliveries
from chimes.model.routing import RoutingCache
from chimes.model.run import (
    CONCLUSIVE_STATUSES,
    Completion,
    LogEntry,
    Run,
    RunStatus,
    cancel_step,
    complete,
    is_recorded,
    owns_fence,
)
from chimes.model.schedule import (
    LastRunSummary,
    Schedule,
    count_successes,
    counts_as_success,
    may_pause_after,
    pause_after_failures,
    pause_schedule,
    update_summary,
)
from chimes.store.port import CompletionResult
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import (
    LockTarget,
    admitted_runs,
    lock_schedules_and_keys,
    lock_targets_of,
)
from chimes.store.sql.prefetch import undo_prefetch
from chimes.store.sql.records import append_audit
from chimes.store.sql.rows.access import (
    insert_logs,
    load_runs,
    load_schedules,
    load_summaries,
    read_runs,
    unblock_runs,
    write_changes,
    write_schedule,
    write_summaries,
)
from chimes.store.sql.rows.notifications import delivery_values
from chimes.store.sql.rows.run import CLAIMS, ending_values
from chimes.store.sql.rows.values import STATUSES, clean, micros, moment_of, schedule_number
from chimes.store.sql.tables import BLOCKED, deliveries, queue, runs

_FENCE, _CLAIMED_AT, _CANCEL, _NUMBER = (
    CLAIMS.index(name) for name in ("fence", "claimed_at", "cancel_requested", "concurrency")
)


# --- outbox: deliveries are inserted in the transaction that ends the runs ------------------------
def write_outbox(tx: Tx, new: Sequence[Delivery]) -> None:
    """Inserts deliveries; existing ones stay unchanged."""
    if new:
        rows = sorted(new, key=lambda delivery: delivery.id)
        tx.run(
            tx.dialect.insert_new(deliveries),
            [delivery_values(row, tx.dialect.keyring) for row in rows],
        )
        tx.wakes = True


def write_outbox_of_inserted(tx: Tx, new: Iterable[Run], now: datetime) -> None:
    """Writes the deliveries of runs that are inserted in a terminal status. Their schedules are
    locked."""
    routing = tx.dialect.routing
    notified = [run for run in new if run.status.terminal and routing.recipients_of(run)]
    if not notified:
        return
    # Only a success depends on the status before it.
    good = {run.schedule_id for run in notified if run.status is RunStatus.SUCCEEDED} - {None}
    summaries = _Summaries(tx, {each for each in good if each is not None})
    found: list[Delivery] = []
    for run in notified:
        summary = summaries.get(run)
        previous = summary.last_status if summary else None
        found.extend(plan_deliveries(run, previous, now, routing.current))
    write_outbox(tx, found)


# --- effects --------------------------------------------------------------------------------------
class _Summaries:
    """The last runs of schedules, which are locked."""

    def __init__(self, tx: Tx, ids: Collection[ScheduleId]) -> None:
        self._tx = tx
        self._values = load_summaries(tx, {schedule_number(each) for each in ids})
        self._changed: set[int] = set()

    def get(self, run: Run) -> LastRunSummary | None:
        return self._values.get(schedule_number(run.schedule_id or ""))

    def record(self, run: Run) -> bool:
        schedule_id = run.definition.schedule_id
        if schedule_id is None or not self._values:
            return False
        key = schedule_number(schedule_id)
        if key not in self._values:
            return False
        self._values[key] = update_summary(self._values[key], run)
        self._changed.add(key)
        return True

    def write(self) -> None:
        write_summaries(self._tx, {key: self._values[key] for key in self._changed})


class CompletionEffects:
    """The changes of a batch are applied in order, as if each were alone, and then written
    together: the runs, the last runs of their schedules, the outbox, and for each run that ends
    the next blocked run of its key."""

    def __init__(
        self,
        tx: Tx,
        now: datetime,
        before: Collection[Run],
        *,
        recording: bool = True,
        taken: Collection[str] = (),
    ) -> None:
        """`before` are the runs that will change, in their current state; their schedules and keys
        are locked. Without `recording`, schedules are not updated. `taken`: runs whose claim is
        deleted already."""
        self._tx = tx
        self._now = now
        self._children = _children(tx, [run.id for run in before if run.resumable])
        if self._children:
            before = [*before, *(run for each in self._children.values() for run in each)]
        self._before = {run.id: run for run in before}
        self._taken = taken
        self._keys = BlockedKeys(tx, before, taken)
        ids = {run.definition.schedule_id for run in before} if recording else set()
        self._summaries = _Summaries(tx, {each for each in ids if each is not None})
        self._changed: dict[RunId, Run] = {}
        self._paused: dict[ScheduleId, str] = {}
        #: The last failed run of schedules that may have to be paused for it.
        self._failed: dict[ScheduleId, Run] = {}
        #: Successful runs of schedules that end after some.
        self._succeeded: dict[ScheduleId, int] = {}
        self._outbox: list[Delivery] = []
        #: Whether a blocked run may have become claimable.
        self.unblocked = False

    def apply(self, run: Run, completion: Completion | None = None) -> None:
        """Adds the new state of a run."""
        self._changed[run.id] = run
        if not run.status.terminal:
            return
        routing = self._tx.dialect.routing
        if routing.recipients_of(run):
            # Before the run is recorded: the message depends on the previous status.
            summary = self._summaries.get(run)
            previous = summary.last_status if summary else None
            self._outbox.extend(plan_deliveries(run, previous, self._now, routing.current))
        recorded = self._summaries.record(run)
        if recorded and completion is not None and completion.pause_schedule and run.schedule_id:
            self._paused.setdefault(run.schedule_id, completion.pause_schedule)
        if recorded and may_pause_after(run) and run.schedule_id:
            self._failed[run.schedule_id] = run
        if recorded and counts_as_success(run) and run.schedule_id:
            self._succeeded[run.schedule_id] = self._succeeded.get(run.schedule_id, 0) + 1
        self.unblocked |= self._keys.end(run)
        if self._children:
            for child in self._children.get(run.id, ()):
                self.apply(cancel_step(self._changed.get(child.id, child), self._now))

    def changed(self, run_id: RunId) -> Run | None:
        """Returns the run as changed by this batch."""
        return self._changed.get(run_id)

    def write(self) -> None:
        changes = [(self._before[run.id], run) for run in self._changed.values()]
        write_changes(self._tx, changes, self._taken)
        unblock_runs(self._tx, self._keys.unblocked)
        self._summaries.write()
        write_outbox(self._tx, self._outbox)
        if self._succeeded:
            self._count_successes()
        if self._paused or self._failed:
            self._pause()

    def _count_successes(self) -> None:
        tx, now = self._tx, self._now
        for schedule in load_schedules(tx, {*self._succeeded}).values():
            counted = count_successes(schedule, self._succeeded[schedule.id], now)
            if counted == schedule:
                continue
            if not counted.enabled:
                schedule, _ = undo_prefetch(tx, schedule, now)
                counted = count_successes(schedule, self._succeeded[schedule.id], now)
                owner, note = str(schedule.owner), counted.pause_note
                append_audit(tx, engine_pause_entry(schedule.id, owner, note, now))
            write_schedule(tx, counted)

    def _pause(self) -> None:
        """Pauses schedules because of 410 Gone, or because too many of their runs failed."""
        tx, now = self._tx, self._now
        for schedule in load_schedules(tx, {*self._paused, *self._failed}).values():
            if not schedule.enabled:
                continue
            note, run = self._paused.get(schedule.id), self._failed.get(schedule.id)
            if note is None:
                ends = _newest_ends(tx, schedule)
                paused = pause_after_failures(schedule, ends, now)
                if paused is None or run is None:
                    continue
                note = paused.pause_note
                write_outbox(tx, plan_pause_deliveries(paused, run, now))
            schedule, _ = undo_prefetch(tx, schedule, now)
            write_schedule(tx, pause_schedule(schedule, now, "chimes", note=note))
            append_audit(tx, engine_pause_entry(schedule.id, str(schedule.owner), note, now))


_NEWEST_ENDS = (
    select(runs.c.status)
    .where(
        runs.c.schedule == bindparam("key"),
        runs.c.created_at >= bindparam("since"),
        runs.c.status.in_(sorted(each.value for each in CONCLUSIVE_STATUSES)),
    )
    .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    .limit(bindparam("most"))
)


def _newest_ends(tx: Tx, schedule: Schedule) -> list[RunStatus]:
    """Returns what `pause_after_failures` needs. The schedule is locked."""
    limit = schedule.policy.auto_pause_after
    if limit is None:
        return []
    values = {
        "key": schedule_number(schedule.id),
        "since": micros(schedule.updated_at),
        "most": limit,
    }
    return [STATUSES[row[0]] for row in tx.tuples(_NEWEST_ENDS, values)]


def _children(tx: Tx, flows: Collection[RunId]) -> dict[str, list[Run]]:
    """Returns the unfinished steps of flows, by flow."""
    found: dict[str, list[Run]] = {}
    if flows:
        steps = select(runs.c.id).where(
            tx.dialect.among(runs.c.parent_id, "flows"), runs.c.finished_at.is_(None)
        )
        ids = [row[0] for row in tx.tuples(steps, {"flows": tx.dialect.listed(flows)})]
        for run in load_runs(tx, sorted(ids)).values():
            if not run.status.terminal and run.parent_id is not None:
                found.setdefault(run.parent_id, []).append(run)
    return found


# --- concurrency keys -----------------------------------------------------------------------------
#: Blocked runs of one key that a batch loads, in addition to one for each run that ends. A key with
#: a higher limit catches up with the next batch.
WINDOW = 200

BLOCKED_OF_KEY = (
    select(queue.c.run_id, queue.c.concurrency_limit)
    .where(queue.c.concurrency == bindparam("number"), text(BLOCKED))
    .order_by(queue.c.rank.desc(), queue.c.available_at, queue.c.planned_at, queue.c.run_id)
    .limit(bindparam("most"))
)


class BlockedKeys:
    """The concurrency keys of a batch that have blocked runs. All of them are locked."""

    def __init__(self, tx: Tx, ending: Collection[Run], taken: Collection[str] = ()) -> None:
        """`taken`: runs whose claim is deleted already."""
        self._tx = tx
        known = tx.concurrency
        numbers = [number for run in ending if (number := known.get(run.id)) is not None]
        self._waiting: dict[int, dict[str, int]] = {}
        self._admitted: dict[int, set[str]] = {}
        self.unblocked: list[str] = []
        if not numbers:
            return
        blocked = tx.dialect.blocked_keys(tx.connection, set(numbers))
        if not blocked:
            return
        active = admitted_runs(tx, blocked)
        for number in blocked:
            most = WINDOW + numbers.count(number)
            rows = tx.tuples(BLOCKED_OF_KEY, {"number": number, "most": most})
            self._waiting[number] = {row[0]: row[1] for row in rows}
            self._admitted[number] = set(active.get(number, ()))
        # In the store their claims are gone; here they end one after another.
        for run in ending:
            number = tx.concurrency.get(run.id)
            if run.id in taken and number in self._admitted:
                self._admitted[number].add(run.id)

    def end(self, run: Run) -> bool:
        """Returns whether runs were admitted in its place."""
        if not self._waiting:
            return False
        number = self._tx.concurrency.get(run.id)
        if number is None or number not in self._waiting:
            return False
        waiting, admitted = self._waiting[number], self._admitted[number]
        admitted.discard(run.id)
        waiting.pop(run.id, None)
        unblocked = []
        for run_id, limit in list(waiting.items()):
            if len(admitted) < limit:
                del waiting[run_id]
                admitted.add(run_id)
                unblocked.append(run_id)
        self.unblocked.extend(unblocked)
        return bool(unblocked)


# --- runs that end without side effects -----------------------------------------------------------
def plain_ends(completions: Sequence[Completion], routing: RoutingCache) -> dict[RunId, Completion]:
    """The completions of the batch that end a run and affect nothing else: without schedule,
    concurrency key, steps, notifications or logs."""
    found: dict[RunId, Completion] = {}
    for each in completions:
        run = each.run
        if (
            run is not None
            and owns_fence(run, each.fence)
            and run.definition.schedule_id is None
            and run.concurrency_key is None
            and each.retry_in is None
            and not each.logs
            and not routing.current.rules
            and not run.definition.policy.delivery
            and not run.resumable
            and not run.cancel_requested
            and _is_storable(each.error, each.reason, each.attempt.error, each.result)
        ):
            found[run.id] = each
    # Several completions of one run are decided one after another.
    return found if len({each.run_id for each in completions}) == len(completions) else {}


def end(tx: Tx, ending: Mapping[RunId, Completion]) -> dict[RunId, Run]:
    """Ends runs in one statement. Returns those that were owned and not to be canceled."""
    rows = [
        ending_values(run, each)
        for _run_id, each in sorted(ending.items())
        if (run := each.run) is not None
    ]
    ids, finished_at = tx.dialect.end_claimed(tx.connection, tx.clock_override(), rows)
    now = moment_of(finished_at)
    ended: dict[RunId, Run] = {}
    for run_id in map(RunId, ids):
        completion = ending[run_id]
        assert completion.run is not None
        ended[run_id] = run = complete(completion.run, completion, now)
        tx.wakes |= run.parent_id is not None
    return ended


def merged(
    completions: Sequence[Completion], ended: Mapping[RunId, Run], others: CompletionResult
) -> CompletionResult:
    """One result for a batch whose runs in `ended` were ended by `end`."""
    accepted = {run.id: run for run in others.accepted} | dict(ended)
    found = (accepted.get(each.run_id) for each in completions)
    return CompletionResult(
        accepted=tuple(run for run in found if run is not None), refused=others.refused
    )


# --- completions ----------------------------------------------------------------------------------
def finish(tx: Tx, completions: Sequence[Completion]) -> CompletionResult:
    before = _runs_before(tx, completions)
    _lock(tx, before.values())
    taken = _take(tx, completions, before)
    # The others are repeated or fenced.
    others = read_runs(tx, {each.run_id for each in completions} - taken.keys())
    now = tx.now()
    effects = CompletionEffects(tx, now, taken.values(), taken=taken.keys())
    logs: dict[RunId, list[LogEntry]] = {}
    accepted: list[Run] = []
    refused: list[RunId] = []
    for completion in completions:
        run_id = completion.run_id
        current = effects.changed(run_id) or taken.get(run_id) or others.get(run_id)
        if current is not None and run_id in taken and owns_fence(current, completion.fence):
            run = complete(current, completion, now)
            effects.apply(run, completion)
            if completion.logs:
                logs.setdefault(run_id, []).extend(completion.logs)
            tx.wakes |= not run.status.terminal or run.parent_id is not None or run.resumable
            accepted.append(run)
        elif current is not None and is_recorded(current, completion.attempt):
            accepted.append(current)
        else:
            refused.append(run_id)
    effects.write()
    insert_logs(tx, logs)
    tx.wakes |= effects.unblocked
    return CompletionResult(accepted=tuple(_as_stored(tx, accepted)), refused=tuple(refused))


#: A run under one of its claims: id and fence.
_Held = tuple[RunId, int]


def _runs_before(tx: Tx, completions: Sequence[Completion]) -> dict[_Held, Run]:
    """Returns the runs as their workers have them. Runs that a completion does not include are read
    without a lock: the relevant fields do not change while the fence stays the same. A batch may
    have completions of one run under several fences, of which one at most is current."""
    before: dict[_Held, Run] = {}
    missing: set[RunId] = set()
    for each in completions:
        if each.run is not None and each.run.fence == each.fence:
            before[each.run_id, each.fence] = each.run
        else:
            missing.add(each.run_id)
    if missing:
        before |= {(run.id, run.fence): run for run in read_runs(tx, missing).values()}
    return before


def _lock(tx: Tx, before: Collection[Run]) -> None:
    """Locks the schedules and keys of the runs and of the unfinished steps of flows."""
    targets: set[LockTarget] = {(run.definition.schedule_id, run.concurrency_key) for run in before}
    if any(run.resumable for run in before):
        targets |= lock_targets_of(tx, {run.id for run in before})
    targets.discard((None, None))
    if targets and tx.locking:
        lock_schedules_and_keys(tx, targets)


def _take(tx: Tx, completions: Sequence[Completion], before: dict[_Held, Run]) -> dict[RunId, Run]:
    """Deletes the claims of the completed runs; returns these runs as they were. Fences that are
    not current take nothing."""
    fences = {held for each in completions if (held := (each.run_id, each.fence)) in before}
    if not fences:
        return {}
    rows: Sequence[Sequence[Any]] = tx.dialect.take_claims(tx.connection, sorted(fences))
    taken: dict[RunId, Run] = {}
    canceled: list[RunId] = []
    for row in rows:
        run = before[row[0], row[_FENCE]]
        tx.concurrency[run.id] = row[_NUMBER]
        if row[_CANCEL]:
            canceled.append(run.id)
        claimed_at = moment_of(row[_CLAIMED_AT])
        if run.claimed_at != claimed_at:
            run = replace(run, claimed_at=claimed_at)
        taken[run.id] = run
    if canceled:
        # The reason of the request is in the run's row.
        reasons = select(runs.c.id, runs.c.reason).where(tx.dialect.among(runs.c.id, "ids"))
        for run_id, reason in tx.tuples(reasons, {"ids": tx.dialect.listed(canceled)}):
            taken[run_id] = replace(taken[run_id], cancel_requested=True, reason=reason or "")
    return taken


def _as_stored(tx: Tx, accepted: Sequence[Run]) -> Iterable[Run]:
    """Texts with characters that cannot be stored are returned as they were stored."""
    odd = [
        run.id
        for run in accepted
        if not _is_storable(
            run.error, run.reason, run.attempts[-1].error if run.attempts else "", run.result
        )
    ]
    if not odd:
        return accepted
    stored = read_runs(tx, odd)
    return [stored.get(run.id, run) for run in accepted]


def _is_storable(
    error: str, reason: str, attempt_error: str, result: Mapping[str, object] | None
) -> bool:
    for words in (error, reason, attempt_error):
        if words and clean(words) != words:
            return False
    return result is None or result == _NOTHING or str(result).isascii()


#: What a task returns that returns nothing, as most do.
_NOTHING = {"value": None}
