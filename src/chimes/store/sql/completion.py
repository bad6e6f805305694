"""Stores completions in batches: checks the fence, updates schedules, writes the outbox, admits
blocked runs.

Most completions have no such effects. Where the dialect supports it, these are stored with one
statement; the others, and those that the statement did not match, are stored one by one in the same
transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, text

from chimes.clock import MICROSECOND
from chimes.model import replace
from chimes.model.audit import gone_pause_entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.notification import Delivery, plan_deliveries
from chimes.model.run import (
    Completion,
    LogEntry,
    Run,
    RunStatus,
    cancel_step,
    complete,
    is_recorded,
    owns_fence,
)
from chimes.model.schedule import pause_schedule, update_summary
from chimes.store.port import CompletionResult
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import (
    LockTarget,
    lock_for_completion,
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
    write_schedule,
    write_states,
)
from chimes.store.sql.rows.corrupt import decode_run
from chimes.store.sql.rows.notifications import delivery_values
from chimes.store.sql.rows.run import attempt_text, result_text
from chimes.store.sql.rows.schedule import summary_values
from chimes.store.sql.rows.values import Value, clean, moment_of, stored_text
from chimes.store.sql.tables import ACTIVE, BLOCKED, deliveries, runs

# Outbox: deliveries are inserted in the transaction that ends the runs.


def write_outbox(tx: Tx, new: Sequence[Delivery]) -> None:
    """Inserts deliveries; existing ones stay unchanged."""
    if new:
        rows = sorted(new, key=lambda delivery: delivery.id)
        tx.run(tx.dialect.insert_new(deliveries), [delivery_values(row) for row in rows])
        tx.wakes = True


def write_outbox_of_inserted(tx: Tx, new: Iterable[Run], now: datetime) -> None:
    """Writes the deliveries of runs that are inserted in a terminal status. Their schedules are
    locked."""
    notified = [run for run in new if run.policy.delivery and run.status.terminal]
    if not notified:
        return
    # Only a success depends on the status before it.
    good = {run.schedule_id for run in notified if run.status is RunStatus.SUCCEEDED}
    summaries = load_summaries(tx, {each for each in good if each is not None})
    found: list[Delivery] = []
    for run in notified:
        summary = summaries.get(run.schedule_id) if run.schedule_id else None
        found.extend(plan_deliveries(run, summary.last_status if summary else None, now))
    write_outbox(tx, found)


# Completion effects: update the schedule, write the outbox, admit the next blocked run of the key.
#
# The changes of a batch are applied in order, as if each were alone, on rows that were loaded
# together, and are then written together.

#: Blocked runs of one key that a batch loads, in addition to one for each run that ends. A key with
#: a higher limit catches up with the next batch.
WINDOW = 200

BLOCKED_OF_KEY = (
    select(runs.c.id, runs.c.concurrency_limit)
    .where(runs.c.concurrency_key == bindparam("key"), text(BLOCKED))
    .order_by(runs.c.rank.desc(), runs.c.available_at, runs.c.planned_at, runs.c.id)
    .limit(bindparam("most"))
)


class CompletionEffects:
    def __init__(
        self, tx: Tx, now: datetime, before: Collection[Run], *, recording: bool = True
    ) -> None:
        """`before` are the runs that will change, in their current state; their schedules and keys
        are locked. Without `recording`, schedules are not updated."""
        self._tx = tx
        self._now = now
        self._children = _children(tx, [run.id for run in before if run.resumable])
        before = [*before, *(run for each in self._children.values() for run in each)]
        self._keys = BlockedKeys(tx, before)
        ids = {run.schedule_id for run in before if run.schedule_id is not None}
        self._summaries = load_summaries(tx, ids) if recording else {}
        self._changed: dict[RunId, Run] = {}
        self._recorded: set[ScheduleId] = set()
        self._paused: dict[ScheduleId, str] = {}
        self._outbox: list[Delivery] = []
        #: Whether a blocked run may have become claimable.
        self.unblocked = False

    def apply(self, run: Run, completion: Completion | None = None) -> None:
        """Adds the new state of a run."""
        self._changed[run.id] = run
        if not run.status.terminal:
            return
        self._post(run)
        self._record(run, completion)
        self.unblocked |= self._keys.end(run)
        for child in self._children.get(run.id, ()):
            self.apply(cancel_step(self._changed.get(child.id, child), self._now))

    def changed(self, run_id: RunId) -> Run | None:
        """Returns the run as changed by this batch."""
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
                schedule, _ = undo_prefetch(self._tx, schedule, self._now)
                write_schedule(self._tx, pause_schedule(schedule, self._now, "chimes", note=note))
                owner = str(schedule.owner)
                append_audit(self._tx, gone_pause_entry(schedule.id, owner, note, self._now))

    def _post(self, run: Run) -> None:
        """Called before `_record`: the message depends on the previous status of the schedule."""
        if run.policy.delivery:
            summary = self._summaries.get(run.schedule_id) if run.schedule_id else None
            previous = summary.last_status if summary else None
            self._outbox.extend(plan_deliveries(run, previous, self._now))

    def _record(self, run: Run, completion: Completion | None) -> None:
        schedule_id = run.schedule_id
        if schedule_id is None or schedule_id not in self._summaries:
            return
        self._summaries[schedule_id] = update_summary(self._summaries[schedule_id], run)
        self._recorded.add(schedule_id)
        if completion is not None and completion.pause_schedule:
            self._paused.setdefault(schedule_id, completion.pause_schedule)


def _children(tx: Tx, flows: Collection[RunId]) -> dict[str, list[Run]]:
    """Returns the unfinished steps of flows, by flow."""
    found: dict[str, list[Run]] = {}
    if flows:
        statement = select(runs).where(text(ACTIVE), tx.dialect.among(runs.c.parent_id, "flows"))
        parameters = {"flows": tx.dialect.listed(flows)}
        for row in tx.rows(tx.for_update(statement, runs.c.id), parameters):
            found.setdefault(row.parent_id, []).append(decode_run(row))
    return found


class BlockedKeys:
    """The concurrency keys of a batch that have blocked runs. All of them are locked."""

    def __init__(self, tx: Tx, runs_: Collection[Run]) -> None:
        self._tx = tx
        keys = [run.concurrency_key for run in runs_ if run.concurrency_key is not None]
        blocked = tx.dialect.blocked_keys(tx.connection, set(keys)) if keys else ()
        self._waiting: dict[str, dict[str, int]] = {}
        for key in blocked:
            parameters = {"key": key, "most": WINDOW + keys.count(key)}
            rows = tx.rows(BLOCKED_OF_KEY, parameters)
            self._waiting[key] = {row.id: row.concurrency_limit for row in rows}
        self._admitted: dict[str, set[str]] = {key: set() for key in blocked}
        for row in tx.dialect.admitted(tx.connection, blocked) if blocked else ():
            self._admitted[row.concurrency_key].add(row.id)
        self.unblocked: list[str] = []

    def restore_active(self, ended: Collection[Run]) -> None:
        """In the store all of them have ended; here they end one after another."""
        for run in ended:
            if run.concurrency_key in self._admitted:
                self._admitted[run.concurrency_key].add(run.id)

    def write(self) -> None:
        unblocked: list[dict[str, Value]] = [
            {"id": run_id, "blocked": 0} for run_id in self.unblocked
        ]
        self._tx.dialect.write_states(self._tx.connection, unblocked)

    def end(self, run: Run) -> bool:
        """Returns whether runs were admitted in its place."""
        key = run.concurrency_key
        if key is None or key not in self._waiting:
            return False
        waiting, admitted = self._waiting[key], self._admitted[key]
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


def finish(tx: Tx, completions: Sequence[Completion]) -> CompletionResult:
    ids = {completion.run_id for completion in completions}
    done: dict[RunId, Run] = {}
    if tx.dialect.fast and tx.schedules_usable:
        done = _store_plain(tx, completions)
    else:
        lock_for_completion(tx, ids)
    left = [completion for completion in completions if completion.run_id not in done]
    if done and left:
        # The remaining ones may be flows, whose steps end with them.
        lock_for_completion(tx, {completion.run_id for completion in left})
    slow = iter(_apply_in_order(tx, left) if left else ())
    answers = [done[v.run_id] if v.run_id in done else next(slow) for v in completions]
    return CompletionResult(
        accepted=tuple(run for run in answers if run is not None),
        refused=tuple(
            completion.run_id
            for completion, run in zip(completions, answers, strict=True)
            if run is None
        ),
    )


def are_standalone(completions: Sequence[Completion]) -> bool:
    """Returns whether the completions have no further effects, whatever the store contains. They
    are then stored with one statement that commits by itself."""
    return len({completion.run_id for completion in completions}) == len(completions) and all(
        (run := completion.run) is not None
        and run.fence == completion.fence
        and run.schedule_id is None
        and run.concurrency_key is None
        and run.parent_id is None
        and not run.resumable
        and not run.policy.delivery
        and not completion.logs
        for completion in completions
    )


def finish_standalone(tx: Tx, completions: Sequence[Completion]) -> CompletionResult | None:
    """Returns None if some of them could not be stored with one statement."""
    values = [_values(completion) for completion in completions]
    if not all(map(_is_storable_unchanged, values)):
        return None
    values.sort()  # runs are locked in the order of their ids
    rows: dict[RunId, Sequence[Any]] = {
        row[0]: row
        for row in tx.dialect.finish_plain(
            tx.connection, tx.clock_override(), values, recording=False
        )
    }
    accepted = tuple(
        _completed_run(completion.run, completion, row)
        for completion in completions
        if completion.run is not None and (row := rows.get(completion.run_id)) is not None
    )
    tx.wakes = any(not run.status.terminal for run in accepted)
    return CompletionResult(accepted=accepted) if len(accepted) == len(completions) else None


def _apply_in_order(tx: Tx, completions: Sequence[Completion]) -> list[Run | None]:
    """Applies the completions in order, as if each were alone. None: rejected."""
    now = tx.now()
    current = load_runs(tx, {completion.run_id for completion in completions})
    effects = CompletionEffects(tx, now, current.values())
    logs: dict[RunId, list[LogEntry]] = {}
    answers: list[Run | None] = []
    for completion in completions:
        run = effects.changed(completion.run_id) or current.get(completion.run_id)
        if run is not None and owns_fence(run, completion.fence):
            run = complete(run, completion, now)
            effects.apply(run, completion)
            logs.setdefault(run.id, []).extend(completion.logs)
            tx.wakes |= not run.status.terminal or run.parent_id is not None or run.resumable
            answers.append(run)
        elif run is not None and is_recorded(run, completion.attempt):
            answers.append(run)
        else:
            answers.append(None)
    effects.write()
    insert_logs(tx, logs)
    tx.wakes |= effects.unblocked
    return answers


def _store_plain(tx: Tx, completions: Sequence[Completion]) -> dict[RunId, Run]:
    """Stores completions with one statement where possible. Returns the new state of those that
    were stored."""
    before = _runs_before(tx, completions)
    _lock_all(tx, before.values())
    times = Counter(completion.run_id for completion in completions)
    to_notify = _runs_to_notify(completions, before)
    plain = {
        v.run_id: v
        for v in completions
        if not v.pause_schedule
        and times[v.run_id] == 1
        and v.run_id in before
        and v.run_id not in to_notify
    }
    if not plain:
        return {}
    schedule_ids = [before[run_id].schedule_id for run_id in plain if before[run_id].schedule_id]
    once = len(set(schedule_ids)) == len(schedule_ids)
    values = [_values(plain[run_id]) for run_id in sorted(plain)]
    rows: dict[RunId, Sequence[Any]] = {
        row[0]: row
        for row in tx.dialect.finish_plain(
            tx.connection, tx.clock_override(), values, recording=once and tx.schedules_usable
        )
    }
    done: dict[RunId, Run] = {}
    logs: dict[RunId, list[LogEntry]] = {}
    with_blocked: list[Run] = []
    for completion in plain.values():
        row = rows.get(completion.run_id)
        if row is None:
            continue
        run = _completed_run(before[completion.run_id], completion, row)
        done[run.id] = run
        if completion.logs:
            logs[run.id] = list(completion.logs)
        if not run.status.terminal:
            tx.wakes = True
        elif row[3]:
            with_blocked.append(run)
    if not once:
        _update_schedules(tx, done.values())
    if with_blocked:
        keys = BlockedKeys(tx, with_blocked)
        keys.restore_active(with_blocked)
        for run in with_blocked:
            tx.wakes |= keys.end(run)
        keys.write()
    insert_logs(tx, logs)
    odd = {each[0] for each in values if not _is_storable_unchanged(each)}
    return done | load_runs(tx, [run_id for run_id in done if run_id in odd])


def _runs_to_notify(
    completions: Sequence[Completion], before: Mapping[RunId, Run]
) -> Collection[RunId]:
    """Returns the runs whose end is notified, and the other runs of their schedules: these may have
    ended earlier in the batch, and the notification depends on that."""
    notified = [
        run
        for v in completions
        if v.retry_in is None and (run := before.get(v.run_id)) and run.policy.delivery
    ]
    if not notified:
        return ()
    schedules = {run.schedule_id for run in notified if run.schedule_id is not None}
    others = {run.id for run in before.values() if run.schedule_id in schedules}
    return others | {run.id for run in notified}


def _runs_before(tx: Tx, completions: Sequence[Completion]) -> dict[RunId, Run]:
    """Returns the runs as their workers have them. Runs that a completion does not include are read
    without a lock: the relevant fields do not change while the fence stays the same."""
    before = {v.run_id: v.run for v in completions if v.run is not None and v.run.fence == v.fence}
    missing = {v.run_id for v in completions} - before.keys()
    if missing:
        found = tx.rows(
            select(runs).where(tx.dialect.among(runs.c.id, "ids")),
            {"ids": tx.dialect.listed(missing)},
        )
        before |= {run.id: run for run in map(decode_run, found)}
    return before


def _lock_all(tx: Tx, before: Collection[Run]) -> None:
    """Locks the schedules and keys of the runs and of the unfinished steps of flows."""
    keys: set[LockTarget] = {(run.schedule_id, run.concurrency_key) for run in before}
    if any(run.resumable for run in before):
        keys |= lock_targets_of(tx, {run.id for run in before})
    lock_schedules_and_keys(tx, keys)


def _update_schedules(tx: Tx, ended: Collection[Run]) -> None:
    """Updates schedules of which several runs have ended, in the order of the completions."""
    recorded = [run for run in ended if run.status.terminal and run.schedule_id is not None]
    summaries = load_summaries(tx, {run.schedule_id for run in recorded if run.schedule_id})
    for run in recorded:
        if run.schedule_id in summaries:
            summaries[run.schedule_id] = update_summary(summaries[run.schedule_id], run)
    changed = [summary_values(each, summaries[each]) for each in sorted(summaries)]
    tx.dialect.move_cursors(tx.connection, changed)


def _completed_run(before: Run, completion: Completion, row: Sequence[Any]) -> Run:
    """Builds the run from a row that `finish_plain` returned."""
    run = complete(before, completion, moment_of(row[1]))
    canceling = row[2] == 1
    return run if canceling == run.cancel_requested else replace(run, cancel_requested=canceling)


def _is_storable_unchanged(values: tuple[Value, ...]) -> bool:
    """Returns whether the texts can be stored unchanged (see `clean`). Otherwise the stored row
    decides."""
    _, attempt, _, _, _, result, error, reason = values
    return (
        (result is None or str(result).isascii())
        and str(error).isascii()
        and str(reason).isascii()
        and str(attempt).isascii()
    )


def _values(completion: Completion) -> tuple[Value, ...]:
    """Returns the values in the order of PLAIN_COMPLETION."""
    again = completion.retry_in
    return (
        completion.run_id,
        attempt_text(completion.attempt),
        completion.fence,
        completion.status.value if again is None else "queued",
        None if again is None else again // MICROSECOND,
        result_text(completion.result),
        stored_text(completion.error),
        clean(completion.reason),
    )
