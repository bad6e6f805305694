"""Fires due schedules: locks their cursors, plans, inserts the runs and moves the cursors, in one
transaction.

A process remembers the schedules that it has fired (`KnownRows`): the cursor's row tells whether
its copy is of the current version, so that firing again reads only the narrow row. Runs that the
node can execute itself are inserted already claimed.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, delete, literal_column, select, text

from chimes.failpoints import hit
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    PREFETCH_MINIMUM,
    FireContext,
    FirePlan,
    Planner,
    can_prefetch,
    cancels_only_own_runs,
    may_wait_behind_backlog,
    prefetch_plan,
    run_template,
    runs_to_insert,
    windows_from_text,
    with_maintenance,
)
from chimes.model.run import (
    Origin,
    Reason,
    Run,
    RunStatus,
    claim,
    queue_order,
    request_cancel,
    shared_key,
    take_turns,
)
from chimes.model.schedule import Schedule, stop_with_error
from chimes.store.port import ClaimRequest, FireResult
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import KnownSchedule, Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.locks import admitted_runs, lock_for_completion, lock_keys
from chimes.store.sql.records import get_checkpoint
from chimes.store.sql.rows.access import (
    SELECT_SCHEDULES,
    ExistingRuns,
    cursor_updates,
    decode_schedule,
    insert_runs,
    is_alive,
    load_runs,
    set_definition,
    skip_taken_slots,
    write_changes,
    write_summaries,
)
from chimes.store.sql.rows.schedule import CURSOR, schedule_of, with_cursor
from chimes.store.sql.rows.values import (
    Value,
    Values,
    clean,
    maybe_moment,
    micros,
    number_of,
    stored_text,
)
from chimes.store.sql.tables import (
    BLOCKED,
    DUE,
    cursors,
    fire_batches,
    fire_failures,
    queue,
    runs,
    schedule_rows,
    schedule_stats,
    schedules,
)

_log = logging.getLogger(__name__)

#: The first entry of the index.
NEXT_DUE = (
    select(cursors.c.next_run_at)
    .where(text(DUE))
    .order_by(cursors.c.next_run_at)
    .limit(literal_column("1"))
)
_DEFINITION, _TARGET = (schedules.c.keys().index(name) for name in ("definition", "target"))
_REVISION = len(CURSOR)
#: Upper bound of `engine.prefetch.MAX_LEAD`.
_MAX_PREFETCH_LEAD = timedelta(minutes=1)
#: `last_run_at`, `last_status`, `last_error` and `last_success_at`: a plan does not depend on them.
_NO_STATS = (None, None, "", None)


@cache
def due_cursors(dialect: Dialect, limit: int) -> Select[Any]:
    """The index holds the waiting schedules in due order, so the rows come without a sort and the
    cost depends on how many are due, not on how many there are. Rows that another node has locked
    are skipped. The limit is a literal: as a parameter it would be planned with a guess."""
    columns = [cursors.c[name] for name in (*CURSOR, "revision")]
    statement = (
        select(*columns)
        .where(text(DUE), cursors.c.next_run_at <= bindparam("until"))
        .order_by(cursors.c.next_run_at, cursors.c.schedule)
        .limit(literal_column(str(limit)))
    )
    return dialect.for_update(statement, skip=True) if dialect.locks_rows else statement


def wait_for_running_passes(tx: Tx) -> None:
    """Locks every cursor that a running pass may hold, so it returns after all passes that read the
    previous maintenance windows have committed."""
    until = micros(tx.now() + _MAX_PREFETCH_LEAD)
    statement = (
        select(cursors.c.schedule)
        .where(text(DUE), cursors.c.next_run_at <= bindparam("until"))
        .order_by(cursors.c.schedule)
    )
    tx.tuples(tx.dialect.for_update(statement, skip=False), {"until": until})


def next_due(tx: Tx) -> datetime | None:
    row = tx.first(NEXT_DUE)
    return None if row is None else maybe_moment(row[0])


def anything_due(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle pass never waits for the writer."""
    earliest = next_due(tx)
    return earliest is not None and earliest <= tx.now()


def locked_pause(times: int) -> float:
    """Returns the seconds until the next look for due schedules that others have locked."""
    longest = min(0.002 * 2 ** min(times, 7), 0.2)
    return random.uniform(longest / 2, longest)  # noqa: S311 spreads nodes, hides nothing


@dataclass(frozen=True, slots=True)
class Upcoming:
    #: The earliest due time, and whether it has passed.
    first: datetime | None
    due: bool
    #: Whether nothing is due now, and enough is due soon to start a prefetch.
    is_batch: bool


def look_ahead(tx: Tx, prefetch: timedelta) -> Upcoming:
    now = tx.now()
    times = tx.dialect.due_times(tx.connection, micros(now + prefetch), PREFETCH_MINIMUM)
    first = maybe_moment(times[0] if times else None)
    due = first is not None and first <= now
    return Upcoming(first, due, not due and len(times) == PREFETCH_MINIMUM)


def fire_due(
    tx: Tx,
    plan: Planner,
    limit: int,
    request: ClaimRequest | None,
    node_id: NodeId | None,
    prefetch: timedelta,
) -> FireResult | None:
    """Returns None if nothing is due or other transactions have locked all of it."""
    return _Pass(tx, plan, limit, request, node_id, prefetch).fire()


@dataclass(slots=True)
class _Due:
    """A due schedule and what becomes of it."""

    key: int
    known: KnownSchedule
    #: With its current cursor.
    schedule: Schedule
    context: FireContext
    #: Set by planning.
    plan: FirePlan = field(init=False)


class _Pass:
    def __init__(
        self,
        tx: Tx,
        plan: Planner,
        limit: int,
        request: ClaimRequest | None,
        node_id: NodeId | None,
        prefetch: timedelta,
    ) -> None:
        self._tx = tx
        self._plan = plan
        self._limit = limit
        self._request = request
        self._node_id = node_id
        self._now = tx.now()
        self._until = self._now + prefetch
        self._batch_id = new_batch_id(self._now)

    def fire(self) -> FireResult | None:
        statement = due_cursors(self._tx.dialect, self._limit)
        found = self._tx.tuples(statement, {"until": micros(self._until)})
        if not found:
            return None
        # Read after the cursors are locked: `set_maintenance` waits for these locks.
        maintenance = get_checkpoint(self._tx, MAINTENANCE_CHECKPOINT)
        if maintenance is not None:
            windows = windows_from_text(maintenance.value)
            self._plan = with_maintenance(self._plan, windows)
        loaded, corrupt = self._load(found)
        due, upcoming = self._divide(loaded)
        set_contexts(self._tx, [*due, *upcoming])
        planned, broken = self._plan_all(due)
        more = len(found) == self._limit
        if not planned and not broken and not corrupt and upcoming:
            return self._prefetch(upcoming, more=more)
        result = self._write(planned, broken)
        failures = {each.id: each.last_error for each in broken.values()} | corrupt
        record_batch(self._tx, self._batch_id, self._node_id, self._now)
        record_failures(self._tx, self._batch_id, failures)
        hit("fire.before_commit")
        return replace(
            result,
            broken=(*broken.values(), *self._decode_corrupt(found, corrupt)),
            more=more,
        )

    # --- reading ------------------------------------------------------------------------------
    def _load(self, found: Sequence[Sequence[Any]]) -> tuple[list[_Due], dict[ScheduleId, str]]:
        """Returns the schedules, and the errors of rows that this version cannot decode."""
        remembered = self._tx.known.schedules
        loaded: dict[int, _Due | None] = {}
        missing: dict[int, Sequence[Any]] = {}
        for row in found:
            key = row[0]
            known = remembered.get(key)
            if known is not None and known.revision == row[_REVISION]:
                schedule = with_cursor(known.value, row[:_REVISION])
                loaded[key] = _Due(key, known, schedule, known.context)
            else:
                # Keeps its place in the order of due times.
                loaded[key] = None
                missing[key] = row
        corrupt = self._read(missing, loaded) if missing else {}
        due = [each for each in loaded.values() if each is not None]
        if any(each.known.shared_key is not None for each in due):
            # A known order for equal times: schedules compete for the capacity of a key.
            due.sort(key=lambda each: (each.schedule.next_run_at, each.schedule.id))
        return due, corrupt

    def _read(
        self, found: Mapping[int, Sequence[Any]], loaded: dict[int, _Due | None]
    ) -> dict[ScheduleId, str]:
        """Adds the schedules of these cursors, by key; returns the errors of rows that cannot be
        decoded."""
        statement = _definitions_by_key(self._tx.dialect)
        corrupt: dict[int, tuple[ScheduleId, str]] = {}
        for row in self._tx.tuples(statement, {"keys": self._tx.dialect.listed(found.keys())}):
            key = row[0]
            cursor = found[key]
            try:
                schedule = schedule_of((*row, *cursor[1:_REVISION], *_NO_STATS))
            except Exception as error:
                _log.exception("schedule %s cannot be read and is disabled", row[1])
                reason = clean(f"{type(error).__name__}: {error}")
                corrupt[key] = (ScheduleId(row[1]), reason)
                continue
            definition = row[_DEFINITION] or set_definition(self._tx, key, schedule)
            known = _known(key, schedule, definition, cursor[_REVISION])
            loaded[key] = _Due(key, known, schedule, known.context)
            if row[_DEFINITION]:
                self._tx.known.schedules.put(key, known, len(row[_TARGET]))
        disable_corrupt(self._tx, {key: error for key, (_, error) in corrupt.items()})
        return dict(corrupt.values())

    def _decode_corrupt(
        self, found: Sequence[Sequence[Any]], errors: Mapping[ScheduleId, str]
    ) -> list[Schedule]:
        """Returns the schedules for notification. A row that cannot be decoded at all is only
        logged."""
        if not errors:
            return []
        keys = [row[0] for row in found]
        decoded: list[Schedule] = []
        statement = _schedules_by_key(self._tx.dialect)
        for row in self._tx.tuples(statement, {"keys": self._tx.dialect.listed(keys)}):
            if row[1] in errors:
                with suppress(Exception):
                    decoded.append(stop_with_error(decode_schedule(row), errors[row[1]]))
        return decoded

    # --- planning -----------------------------------------------------------------------------
    def _divide(self, loaded: Sequence[_Due]) -> tuple[Sequence[_Due], Sequence[_Due]]:
        """Returns the schedules that are due, and those that can be prefetched."""
        now = self._now
        if self._until == now:
            return loaded, ()
        due: list[_Due] = []
        upcoming: list[_Due] = []
        for each in loaded:
            time = each.schedule.next_run_at
            if time is None or time <= now:
                due.append(each)
            elif self._request and can_prefetch(each.schedule, self._request.capabilities, now):
                upcoming.append(each)
        return due, upcoming

    def _plan_all(self, due: Sequence[_Due]) -> tuple[list[_Due], dict[int, Schedule]]:
        """Returns the planned schedules and those that cannot be planned, by key."""
        plan, now = self._plan, self._now
        planned: list[_Due] = []
        broken: dict[int, Schedule] = {}
        for each in due:
            schedule = each.schedule
            try:
                firing = plan(schedule, each.context, now)
                if schedule.next_slot is None and not firing.on_time:
                    # Resumed by SQL.
                    after = skip_taken_slots(self._tx, schedule, firing.schedule, now)
                    firing = replace(firing, schedule=after)
            except Exception as error:
                stopped = stop_with_error(schedule, f"{type(error).__name__}: {error}")
                broken[each.key] = stopped
            else:
                each.plan = firing
                planned.append(each)
        return planned, broken

    def _plan_in_order(
        self, planned: Sequence[_Due], free: set[RunId]
    ) -> dict[int, tuple[Run, ...]]:
        """Schedules that share a concurrency key compete for its capacity: a schedule after another
        one of the same key is planned again with the remaining capacity. Its slots do not depend on
        that. Returns the runs to insert, by schedule."""
        gained: dict[str, tuple[RunId, ...]] = {}
        new: dict[int, tuple[Run, ...]] = {}
        for each in planned:
            key = each.known.shared_key
            if key is not None and gained.get(key):
                context = replace(
                    each.context,
                    admitted=each.context.admitted + gained[key],
                    others=each.context.others | set(gained[key]),
                )
                each.plan = self._plan(each.schedule, context, self._now)
            added = runs_to_insert(each.plan.runs, free)
            if key is not None:
                gained[key] = gained.get(key, ()) + tuple(run.id for run in added if run.admitted)
            new[each.key] = added
        return new

    # --- writing ------------------------------------------------------------------------------
    def _write(self, planned: Sequence[_Due], broken: dict[int, Schedule]) -> FireResult:
        new, stop = self._select_new(planned)
        self._write_summaries(planned, broken)
        claimed = {} if stop else self._claim_new(new)
        inserted = self._insert_and_advance(
            planned, [claimed.get(run.id, run) for run in new], broken
        )
        if stop:
            # Stopping a run may admit a blocked run of this batch, so the runs are loaded again.
            self._stop(stop)
            current = load_runs(self._tx, [run.id for run in inserted])
            inserted = [current[run.id] for run in inserted]
            claimed = self._claim_new(inserted)
            write_changes(self._tx, [(current[run.id], run) for run in claimed.values()])
        others = [run for run in inserted if run.id not in claimed]
        if len(inserted) < len(new):
            ids = {run.id for run in inserted}
            claimed = {run_id: run for run_id, run in claimed.items() if run_id in ids}
        self._tx.wakes |= bool(stop) or any(run.claimable for run in others)
        return FireResult(
            claimed=tuple(claimed.values()),
            others=tuple(others),
            plans=tuple([(each.schedule, each.plan) for each in planned]),
        )

    def _select_new(self, planned: Sequence[_Due]) -> tuple[list[Run], list[RunId]]:
        """Returns the runs to insert and the runs to cancel."""
        # A single run may turn out to exist when it is inserted; several depend on each other.
        others = [each for each in planned if not _is_alone(each)]
        if not others:
            return [each.plan.runs[0] for each in planned], []
        every = [run for each in others for run in each.plan.runs]
        existing = ExistingRuns(self._tx, every)
        free = {run.id for run in every if existing.add(run)}
        new: list[Run] = []
        dependent = self._plan_in_order(others, free)
        for each in planned:
            new += each.plan.runs if _is_alone(each) else dependent[each.key]
        # A slot that has its row already stops no other run.
        stop = [
            run_id
            for each in others
            if any(run.id in free for run in each.plan.runs)
            for run_id in each.plan.cancel
        ]
        return new, stop

    def _prefetch(self, upcoming: Sequence[_Due], *, more: bool) -> FireResult:
        """Prefetches as many as there are free permits for."""
        planned: list[_Due] = []
        for each in upcoming:
            assert each.schedule.next_run_at is not None
            with suppress(Exception):  # handled when the schedule is due
                firing = self._plan(each.schedule, each.context, each.schedule.next_run_at)
                if firing.on_time:
                    each.plan = prefetch_plan(firing, self._now)
                    planned.append(each)
        claimed = self._claim_new([each.plan.runs[0] for each in planned], early=True)
        chosen = [each for each in planned if each.plan.runs[0].id in claimed]
        if not chosen:
            return FireResult()
        inserted = self._insert_and_advance(chosen, list(claimed.values()), {})
        record_batch(self._tx, self._batch_id, self._node_id, self._now)
        hit("fire.before_commit")
        ids = {run.id for run in inserted}
        plans = [(each.schedule, each.plan) for each in chosen]
        return FireResult(
            claimed=tuple(inserted),
            plans=tuple((before, firing) for before, firing in plans if firing.runs[0].id in ids),
            more=more,
        )

    def _write_summaries(self, planned: Sequence[_Due], broken: Mapping[int, Schedule]) -> None:
        """A slot that is skipped or missed is the last run of its schedule."""
        changed = {
            each.key: each.plan.schedule
            for each in planned
            if not each.plan.on_time and any(run.status.terminal for run in each.plan.runs)
        }
        if changed:
            stored = _statuses(self._tx, changed)
            changed = {key: replace(each, **stored.get(key, {})) for key, each in changed.items()}
        write_summaries(self._tx, _merge_broken(self._tx, changed, broken))

    def _insert_and_advance(
        self, planned: Sequence[_Due], new: Sequence[Run], broken: dict[int, Schedule]
    ) -> list[Run]:
        """Moves the cursors and inserts the runs."""
        known: dict[str, KnownSchedule] = {each.schedule.id: each.known for each in planned}
        moved = {each.key: each.plan.schedule for each in planned}
        inserted = insert_runs(
            self._tx,
            new,
            batch_id=self._batch_id,
            known=known,
            # Only a cursor that was set back meets a slot that has a run.
            likely_free=True,
            extra_writes=[cursor_updates(moved | broken if broken else moved)],
        )
        write_outbox_of_inserted(self._tx, inserted, self._now)
        return inserted

    def _stop(self, ids: Sequence[RunId]) -> None:
        # The schedules and their own keys are locked; those of a flow's steps are not.
        lock_for_completion(self._tx, ids)
        before = load_runs(self._tx, ids)
        effects = CompletionEffects(self._tx, self._now, before.values())
        for run_id in ids:
            if run_id in before and not before[run_id].status.terminal:
                effects.apply(request_cancel(before[run_id], Reason.REPLACED, self._now))
        effects.write()

    def _claim_new(self, new: Sequence[Run], *, early: bool = False) -> dict[RunId, Run]:
        request, now = self._request, self._now
        if request is None or request.free <= 0 or not is_alive(self._tx, request.node_id, now):
            return {}
        waiting = [
            run
            for run in new
            if run.claimable
            and (early or run.available_at <= now)
            and run.target.requirement in request.capabilities
        ]
        # They come in the order of their due times, which is that of the queue for equal ranks.
        if chosen := len(waiting) > request.free:
            waiting = take_turns(waiting, request.free)
        if chosen or len({run.rank for run in waiting}) > 1:
            waiting.sort(key=queue_order)
        return {run.id: claim(run, request.node_id, now) for run in waiting}


def _is_alone(due: _Due) -> bool:
    """Whether the plan is one run that depends on no other run of the pass."""
    return due.plan.on_time and due.known.shared_key is None


def _known(key: int, schedule: Schedule, definition: int, revision: int) -> KnownSchedule:
    shared = shared_key(schedule.policy, schedule.target, schedule.owner)
    return KnownSchedule(
        key=key,
        value=schedule,
        definition=definition,
        shared_key=shared,
        concurrency=-key if shared is None else number_of(shared),
        revision=revision,
        context=FireContext(template=run_template(schedule)),
        independent=shared is None and schedule.depends_on is None,
    )


@cache
def _definitions_by_key(dialect: Dialect) -> Select[Any]:
    """What people wrote, without the cursor, which is locked and known, and the last run."""
    return select(schedules).where(dialect.among(schedules.c.key, "keys"))


@cache
def _schedules_by_key(dialect: Dialect) -> Select[Any]:
    return SELECT_SCHEDULES.where(dialect.among(schedules.c.key, "keys"))


# --- context of a plan ----------------------------------------------------------------------------
#: Schedules with a blocked catch-up slot, which ranks behind their on-time slots. One lookup for
#: each: the index has the blocked runs of a key in the order of their ranks.
_BACKLOG = (
    select(queue.c.run_id)
    .join(runs, runs.c.id == queue.c.run_id)
    .where(
        queue.c.concurrency == -schedules.c.key,
        text(BLOCKED),
        queue.c.rank < schedules.c.priority * 2,
        runs.c.catch_up == 1,
        runs.c.origin == Origin.SCHEDULE.value,
    )
    .limit(literal_column("1"))
    .correlate(schedules)
    .scalar_subquery()
)
WITH_BACKLOG = select(schedules.c.key).where(_BACKLOG.is_not(None))


def set_contexts(tx: Tx, due: Sequence[_Due]) -> None:
    """Sets the planning context of each schedule. The schedules are locked."""
    if not due:
        return
    # Keys of a schedule's own are locked with the schedules.
    lock_keys(tx, {key for each in due if (key := each.known.shared_key) is not None})
    admitted = admitted_runs(tx, {each.known.concurrency for each in due})
    if admitted:
        special = [
            each for each in due if not each.known.independent or each.known.concurrency in admitted
        ]
    else:
        special = [each for each in due if not each.known.independent]
    if special:
        _set_special_contexts(tx, special, admitted)


def _set_special_contexts(
    tx: Tx, due: Sequence[_Due], admitted: Mapping[int, Sequence[RunId]]
) -> None:
    """Of schedules that have active runs, share a key or depend on another schedule."""
    own_only = [each for each in due if cancels_only_own_runs(each.schedule)]
    owners = _owners(
        tx, [run_id for each in own_only for run_id in admitted.get(each.known.concurrency, ())]
    )
    dependencies = [each.schedule.depends_on for each in due]
    succeeded = _successes(tx, {each.schedule_id for each in dependencies if each is not None})
    backlog = _with_backlog(
        tx,
        [
            each.key
            for each in due
            if may_wait_behind_backlog(each.schedule, len(admitted.get(each.known.concurrency, ())))
        ],
    )
    for each, depends_on in zip(due, dependencies, strict=True):
        active = admitted.get(each.known.concurrency, ())
        others: frozenset[RunId] = frozenset()
        if cancels_only_own_runs(each.schedule):
            others = frozenset(run_id for run_id in active if owners.get(run_id) != each.key)
        each.context = replace(
            each.context,
            admitted=tuple(active),
            others=others,
            dependency_succeeded_at=succeeded.get(depends_on.schedule_id) if depends_on else None,
            backlog=each.key in backlog,
        )


def _owners(tx: Tx, ids: Sequence[RunId]) -> dict[RunId, int | None]:
    """Returns the key of the schedule of each run."""
    if not ids:
        return {}
    statement = select(runs.c.id, runs.c.schedule).where(tx.dialect.among(runs.c.id, "ids"))
    rows = tx.tuples(statement, {"ids": tx.dialect.listed(ids)})
    return {RunId(row[0]): row[1] for row in rows}


def _with_backlog(tx: Tx, keys: Sequence[int]) -> frozenset[int]:
    if not keys:
        return frozenset()
    statement = WITH_BACKLOG.where(tx.dialect.among(schedules.c.key, "keys"))
    rows = tx.tuples(statement, {"keys": tx.dialect.listed(keys)})
    return frozenset(row[0] for row in rows)


def _successes(tx: Tx, ids: set[ScheduleId]) -> dict[str, datetime | None]:
    if not ids:
        return {}
    statement = (
        select(schedules.c.id, schedule_stats.c.last_success_at)
        .select_from(schedule_rows)
        .where(tx.dialect.among(schedules.c.id, "ids"))
    )
    rows = tx.tuples(statement, {"ids": tx.dialect.listed(ids)})
    return {row[0]: maybe_moment(row[1]) for row in rows}


def _statuses(tx: Tx, keys: Iterable[int]) -> dict[int, dict[str, Any]]:
    """What a slot that is skipped or missed leaves unchanged in the last run of its schedule."""
    columns = schedule_stats.c
    statement = select(columns.schedule, columns.last_run_at, columns.last_success_at)
    statement = statement.where(tx.dialect.among(columns.schedule, "keys"))
    rows = tx.tuples(statement, {"keys": tx.dialect.listed(list(keys))})
    return {
        row[0]: {"last_run_at": maybe_moment(row[1]), "last_success_at": maybe_moment(row[2])}
        for row in rows
    }


def _merge_broken(
    tx: Tx, changed: Mapping[int, Schedule], broken: Mapping[int, Schedule]
) -> dict[int, Schedule]:
    if not broken:
        return dict(changed)
    stored = _statuses(tx, broken)
    return dict(changed) | {
        key: replace(each, **stored.get(key, {})) for key, each in broken.items()
    }


# --- batches --------------------------------------------------------------------------------------
# Records what each scheduler pass claimed, when and for how long. There is one row per pass, which
# its runs refer to; a row per schedule would cost as much as the run itself.

#: Distinct ids for passes of several nodes within one microsecond.
_IDS_PER_MICROSECOND = 4096
_DELETE_OLD_BATCHES = delete(fire_batches).where(fire_batches.c.id < bindparam("before"))
_DELETE_OLD_FAILURES = delete(fire_failures).where(fire_failures.c.batch_id < bindparam("before"))


def new_batch_id(now: datetime) -> int:
    """In the order of time."""
    return micros(now) * _IDS_PER_MICROSECOND + secrets.randbelow(_IDS_PER_MICROSECOND)


def record_batch(tx: Tx, batch_id: int, node_id: NodeId | None, claimed_at: datetime) -> None:
    enqueued_at = tx.now()
    values: dict[str, Value] = {
        "id": batch_id,
        "node_id": node_id or "",
        "claimed_at": micros(claimed_at),
        "enqueued_at": micros(enqueued_at),
        "duration_ms": (enqueued_at - claimed_at).total_seconds() * 1000,
    }
    tx.run(tx.dialect.insert_new(fire_batches), values)


def record_failures(tx: Tx, batch_id: int, errors: Mapping[ScheduleId, str]) -> None:
    tx.insert(
        fire_failures,
        [
            {"batch_id": batch_id, "schedule_id": schedule_id, "error": clean(error)}
            for schedule_id, error in errors.items()
        ],
    )


def delete_old_batches(tx: Tx, before: datetime) -> None:
    parameters = {"before": micros(before) * _IDS_PER_MICROSECOND}
    tx.run(_DELETE_OLD_BATCHES, parameters)
    tx.run(_DELETE_OLD_FAILURES, parameters)


def disable_corrupt(tx: Tx, errors: Mapping[int, str]) -> None:
    """Disables the schedules like `stop_with_error`; the other columns stay unchanged."""
    stopped: list[Values] = [(key, None, None) for key in sorted(errors)]
    names = ("schedule", "next_slot", "next_run_at")
    tx.dialect.update_many(tx.connection, cursors, names, stopped)
    failed: list[Values] = [
        (key, RunStatus.FAILED.value, stored_text(errors[key])) for key in sorted(errors)
    ]
    names = ("schedule", "last_status", "last_error")
    tx.dialect.update_many(tx.connection, schedule_stats, names, failed)
