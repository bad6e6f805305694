"""Fires due schedules: plans and inserts their runs, one transaction per batch."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from sqlalchemy import bindparam, delete, literal, select, text

from chimes.failpoints import hit
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.planning import (
    PREFETCH_MINIMUM,
    FireContext,
    FirePlan,
    PolicyPlan,
    SingleSlotPlan,
    can_prefetch,
    cancels_only_own_runs,
    concurrency_key,
    may_wait_behind_backlog,
    prefetch_plan,
    runs_to_insert,
)
from chimes.model.run import Origin, Reason, Run, RunStatus, claim, queue_order, request_cancel
from chimes.model.schedule import Schedule, stop_with_error
from chimes.store.port import ClaimRequest, FireResult, Planner
from chimes.store.sql.completion import CompletionEffects, write_outbox_of_inserted
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Batch, PlainFiring, Rows
from chimes.store.sql.locks import OWN_KEY, is_own_key, lock_for_completion, lock_keys
from chimes.store.sql.rows.access import (
    ExistingRuns,
    insert_runs,
    is_alive,
    load_runs,
    move_cursors,
    skip_taken_slots,
    write_states,
)
from chimes.store.sql.rows.corrupt import decode_schedule
from chimes.store.sql.rows.schedule import schedule_of
from chimes.store.sql.rows.values import (
    TargetTexts,
    Value,
    clean,
    maybe_micros,
    maybe_moment,
    micros,
    stored_text,
)
from chimes.store.sql.tables import BLOCKED, fire_batches, fire_failures, runs, schedules

# Planning context of due schedules: active runs of their keys, and their dependencies.

_DEPENDENCIES = (schedules.c.id, schedules.c.last_success_at)

#: A blocked catch-up slot that ranks behind the on-time slots of its schedule. One lookup in the
#: index per schedule: LIMIT prevents a join over all blocked runs.
_BACKLOG = (
    select(runs.c.id)
    .where(
        runs.c.concurrency_key == literal(OWN_KEY) + schedules.c.id,
        text(BLOCKED),
        runs.c.rank < schedules.c.priority * 2,
        runs.c.catch_up == 1,
        runs.c.origin == Origin.SCHEDULE.value,
    )
    .limit(1)
    .correlate(schedules)
    .scalar_subquery()
)
WITH_BACKLOG = select(schedules.c.id, _BACKLOG.label("waiting"))


def contexts_of(tx: Tx, due: Sequence[Schedule]) -> list[FireContext]:
    """Returns the planning context of each schedule. The schedules are locked."""
    if not due:
        return []
    keys = [concurrency_key(schedule) for schedule in due]
    # Keys of a schedule's own are locked with the schedules.
    lock_keys(tx, {key for key in keys if not is_own_key(key)})
    admitted: dict[str, list[RunId]] = {}
    for row in tx.dialect.admitted(tx.connection, keys):
        admitted.setdefault(row.concurrency_key, []).append(RunId(row.id))
    careful = {key for key, each in zip(keys, due, strict=True) if cancels_only_own_runs(each)}
    owners = _owners(tx, [run_id for key in careful for run_id in admitted.get(key, ())])
    succeeded = _successes(tx, {s.depends_on.schedule_id for s in due if s.depends_on})
    backlog = _with_backlog(
        tx,
        [
            schedule.id
            for key, schedule in zip(keys, due, strict=True)
            if may_wait_behind_backlog(schedule, len(admitted.get(key, ())))
        ],
    )
    return [
        FireContext(
            admitted=tuple(admitted.get(key, ())),
            others=frozenset(
                run_id for run_id in admitted.get(key, ()) if owners[run_id] != schedule.id
            )
            if cancels_only_own_runs(schedule)
            else frozenset(),
            dependency_succeeded_at=succeeded.get(schedule.depends_on.schedule_id)
            if schedule.depends_on
            else None,
            backlog=schedule.id in backlog,
        )
        for key, schedule in zip(keys, due, strict=True)
    ]


def _owners(tx: Tx, ids: Sequence[RunId]) -> dict[RunId, str | None]:
    """Returns the schedule of each run."""
    if not ids:
        return {}
    statement = select(runs.c.id, runs.c.schedule_id).where(tx.dialect.among(runs.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {RunId(row.id): row.schedule_id for row in rows}


def _with_backlog(tx: Tx, ids: Sequence[ScheduleId]) -> frozenset[str]:
    if not ids:
        return frozenset()
    statement = WITH_BACKLOG.where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return frozenset(row.id for row in rows if row.waiting is not None)


def _successes(tx: Tx, ids: set[ScheduleId]) -> dict[str, datetime | None]:
    if not ids:
        return {}
    statement = select(*_DEPENDENCIES).where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {row.id: maybe_moment(row.last_success_at) for row in rows}


# Records what each scheduler pass claimed, when and for how long. There is one row per pass, which
# its runs refer to; a row per schedule would cost as much as the run itself.

#: Distinct ids for passes of several nodes within one microsecond.
_IDS_PER_MICROSECOND = 4096
_DELETE_OLD_BATCHES = delete(fire_batches).where(fire_batches.c.id < bindparam("before"))
_DELETE_OLD_FAILURES = delete(fire_failures).where(fire_failures.c.batch_id < bindparam("before"))


def new_batch_id(now: datetime) -> int:
    """Ids are ordered by time, so that retention needs no other index."""
    return micros(now) * _IDS_PER_MICROSECOND + random.randrange(_IDS_PER_MICROSECOND)  # noqa: S311 spreads, hides nothing


def record_batch(
    tx: Tx,
    batch_id: int,
    node_id: NodeId | None,
    claimed_at: datetime,
) -> None:
    done = tx.now()
    row: dict[str, Value] = {
        "id": batch_id,
        "node_id": node_id or "",
        "claimed_at": micros(claimed_at),
        "enqueued_at": micros(done),
        "duration_ms": (done - claimed_at).total_seconds() * 1000,
    }
    tx.run(tx.dialect.insert_new(fire_batches), row)


def record_failures(tx: Tx, batch_id: int, errors: Mapping[ScheduleId, str]) -> None:
    failures: list[dict[str, Value]] = [
        {"batch_id": batch_id, "schedule_id": schedule_id, "error": clean(error)}
        for schedule_id, error in errors.items()
    ]
    tx.dialect.insert_many(tx.connection, fire_failures, failures)


def delete_old_batches(tx: Tx, before: datetime) -> None:
    parameters = {"before": micros(before) * _IDS_PER_MICROSECOND}
    tx.run(_DELETE_OLD_BATCHES, parameters)
    tx.run(_DELETE_OLD_FAILURES, parameters)


# A schedule whose row this version cannot decode is disabled alone, and listeners are notified as
# for any other broken schedule.


def disable_corrupt(tx: Tx, errors: Mapping[ScheduleId, str]) -> None:
    """Disables the schedules like `stop_with_error`; the other columns stay unchanged."""
    values: list[dict[str, Value]] = [
        {
            "id": schedule_id,
            "next_slot": None,
            "next_run_at": None,
            "last_status": RunStatus.FAILED.value,
            "last_error": stored_text(error),
        }
        for schedule_id, error in errors.items()
    ]
    tx.dialect.move_cursors(tx.connection, values)


def decode_corrupt(rows: Rows, errors: Mapping[ScheduleId, str]) -> list[Schedule]:
    """Returns the schedules for notification. A row that cannot be decoded at all is only
    logged."""
    found: list[Schedule] = []
    for row in rows:
        if row.id in errors:
            with suppress(Exception):
                found.append(stop_with_error(decode_schedule(row), errors[row.id]))
    return found


_log = logging.getLogger(__name__)


def locked_pause(times: int) -> float:
    """Returns the seconds until the next look for due schedules that others have locked."""
    longest = min(0.002 * 2 ** min(times, 7), 0.2)
    return random.uniform(longest / 2, longest)  # noqa: S311 spreads nodes, hides nothing


def anything_due(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle pass never waits for the writer."""
    earliest = tx.dialect.next_due(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


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


def _is_simple(firing: FirePlan) -> bool:
    """Returns whether the plan has one slot and no shared concurrency key."""
    return isinstance(firing, SingleSlotPlan) and firing.before.policy.concurrency_key is None


def _plain(firing: SingleSlotPlan) -> PlainFiring:
    before = firing.before
    assert before.next_run_at is not None
    return PlainFiring(
        before.id,
        firing.run_id,
        maybe_micros(firing.next_slot),
        maybe_micros(firing.next_run_at),
        micros(before.next_run_at),
        before.policy.concurrency_limit,
        before.target.requirement,
        firing.fence,
    )


_Order = tuple[int, datetime, datetime, str]


def _queue_order(firing: SingleSlotPlan) -> _Order:
    """Returns the `queue_order` of its run."""
    due = firing.before.next_run_at
    assert due is not None
    return (-2 * firing.before.priority, due, due, firing.run_id)


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
        #: The run snapshots reuse the texts of their schedules.
        self._texts = TargetTexts()

    def fire(self) -> FireResult | None:
        rows = self._tx.dialect.due(self._tx.connection, micros(self._until), self._limit)
        if not rows:
            return None
        decoded, corrupt = self._decode(rows)
        due = [each for each in decoded if self._can_fire(each)]
        contexts = contexts_of(self._tx, due)
        broken: list[Schedule] = []
        planned: list[tuple[Schedule, FireContext, FirePlan]] = []
        prefetch: list[SingleSlotPlan] = []
        for schedule, context in zip(due, contexts, strict=True):
            if self._is_upcoming(schedule):
                early = self._plan_early(schedule, context)
                prefetch += [early] if early is not None else []
                continue
            try:
                firing = self._plan(schedule, context, self._now)
                if schedule.next_slot is None and isinstance(firing, PolicyPlan):
                    # Resumed by SQL.
                    after = skip_taken_slots(self._tx, schedule, firing.schedule, self._now)
                    firing = replace(firing, schedule=after)
            except Exception as error:
                broken.append(stop_with_error(schedule, f"{type(error).__name__}: {error}"))
            else:
                planned.append((schedule, context, firing))
        if self._until > self._now and not planned and not broken and not corrupt:
            return self._prefetch(prefetch, more=len(rows) == self._limit)
        plain: list[SingleSlotPlan] = []
        if self._tx.dialect.fast and not any(firing.cancel for _, _, firing in planned):
            plain = [f for _, _, f in planned if isinstance(f, SingleSlotPlan) and _is_simple(f)]
            planned = [each for each in planned if not _is_simple(each[2])]
        every = [run for _, _, firing in planned for run in firing.runs]
        slots = ExistingRuns(self._tx, every)
        free = {run.id for run in every if slots.add(run)}
        new: list[Run] = []
        plans: list[tuple[Schedule, FirePlan]] = []
        for before, firing, new_runs in self._plan_in_order(planned, free):
            plans.append((before, firing))
            new.extend(new_runs)
        moved = [firing.schedule for _, firing in plans]
        # A slot that has its row already stops no other run.
        stop = [
            run_id
            for _, firing in plans
            if any(run.id in free for run in firing.runs)
            for run_id in firing.cancel
        ]
        if plain:
            chosen = self._claim_new(new, plain)
            claimed, others = self._write_plain(chosen, plain, new, [*moved, *broken])
        else:
            claimed, others = self._write(new, [*moved, *broken], stop)
            record_batch(self._tx, self._batch_id, self._node_id, self._now)
        failures = {each.id: each.last_error for each in broken} | corrupt
        record_failures(self._tx, self._batch_id, failures)
        self._tx.wakes |= bool(stop) or any(run.claimable for run in others)
        plans += [(firing.before, firing) for firing in plain]
        hit("fire.before_commit")
        return FireResult(
            claimed=tuple(claimed.values()),
            others=tuple(others),
            plans=tuple(plans),
            broken=(*broken, *decode_corrupt(rows, corrupt)),
            more=len(rows) == self._limit,
        )

    def _is_upcoming(self, schedule: Schedule) -> bool:
        return schedule.next_run_at is not None and schedule.next_run_at > self._now

    def _can_fire(self, schedule: Schedule) -> bool:
        return not self._is_upcoming(schedule) or (
            self._request is not None
            and can_prefetch(schedule, self._request.capabilities, self._now)
        )

    def _plan_early(self, schedule: Schedule, context: FireContext) -> SingleSlotPlan | None:
        assert schedule.next_run_at is not None
        try:
            firing = self._plan(schedule, context, schedule.next_run_at)
        except Exception:
            return None  # handled when the schedule is due
        if not isinstance(firing, SingleSlotPlan):
            return None
        return prefetch_plan(firing, self._now)

    def _prefetch(self, prefetch: Sequence[SingleSlotPlan], *, more: bool) -> FireResult:
        """Prefetches as many as there are free permits for."""
        chosen = self._claim_new((), prefetch)
        chosen_plans = [firing for firing in prefetch if firing.run_id in chosen]
        if not chosen_plans:
            return FireResult()
        claimed, _ = self._write_plain(chosen, chosen_plans, [], [])
        hit("fire.before_commit")
        plans = tuple(
            (firing.before, firing) for firing in chosen_plans if firing.run_id in claimed
        )
        return FireResult(claimed=tuple(claimed.values()), plans=plans, more=more)

    def _plan_in_order(
        self, planned: Sequence[tuple[Schedule, FireContext, FirePlan]], free: set[RunId]
    ) -> Iterator[tuple[Schedule, FirePlan, tuple[Run, ...]]]:
        """Schedules that share a concurrency key compete for its capacity: a schedule after another
        one of the same key is planned again with the remaining capacity. Its slots do not depend on
        that."""
        gained: dict[str, tuple[RunId, ...]] = {}
        for schedule, context, first in planned:
            key, firing = concurrency_key(schedule), first
            if gained.get(key):
                context = replace(
                    context,
                    admitted=context.admitted + gained[key],
                    others=context.others | set(gained[key]),
                )
                firing = self._plan(schedule, context, self._now)
            new = runs_to_insert(firing.runs, free)
            gained[key] = gained.get(key, ()) + tuple(run.id for run in new if run.admitted)
            yield schedule, firing, new

    def _decode(self, rows: Rows) -> tuple[list[Schedule], dict[ScheduleId, str]]:
        """Returns the decoded schedules, and the errors of rows that this version cannot decode."""
        found: list[Schedule] = []
        corrupt: dict[ScheduleId, str] = {}
        for row in rows:
            try:
                schedule = schedule_of(row)
            except Exception as error:
                _log.exception("schedule %s cannot be read and is disabled", row.id)
                corrupt[ScheduleId(row.id)] = clean(f"{type(error).__name__}: {error}")
            else:
                self._texts.add(schedule.target, row.target)
                found.append(schedule)
        disable_corrupt(self._tx, corrupt)
        return found, corrupt

    def _write(
        self, new: list[Run], moved: Sequence[Schedule], stop: Sequence[RunId]
    ) -> tuple[dict[RunId, Run], list[Run]]:
        """Returns the runs that were claimed immediately, and the others."""
        if not stop:
            claimed = self._claim_new(new)
            self._insert([claimed.get(run.id, run) for run in new])
            move_cursors(self._tx, moved)
        else:
            # Stopping a run may admit a blocked run of this batch, so the runs are loaded again.
            self._insert(new)
            move_cursors(self._tx, moved)
            self._stop(stop)
            current = load_runs(self._tx, [run.id for run in new])
            new = [current[run.id] for run in new]
            claimed = self._claim_new(new)
            write_states(self._tx, claimed.values())
        return claimed, [run for run in new if run.id not in claimed]

    def _write_plain(
        self,
        claimed: dict[RunId, Run],
        plain: Sequence[SingleSlotPlan],
        new: list[Run],
        moved: Sequence[Schedule],
    ) -> tuple[dict[RunId, Run], list[Run]]:
        """Like `_write`, with no runs to stop; `claimed` are the runs that are claimed
        immediately."""
        self._insert([claimed.get(run.id, run) for run in new])
        move_cursors(self._tx, moved)
        own = [firing for firing in plain if firing.run_id in claimed]
        rest = [firing for firing in plain if firing.run_id not in claimed]
        batch = Batch(
            id=self._batch_id,
            node_id=self._node_id or "",
            now=micros(self._now),
            done=self._tx.clock_override(),
            claimed=len(own),
        )
        inserted = self._tx.dialect.fire_plain(
            self._tx.connection, batch, [_plain(firing) for firing in [*own, *rest]]
        )
        others = [firing.run() for firing in rest if firing.run_id in inserted]
        others += [run for run in new if run.id not in claimed]
        inserted = {*inserted, *(run.id for run in new)}
        return {run_id: run for run_id, run in claimed.items() if run_id in inserted}, others

    def _insert(self, new: Sequence[Run]) -> None:
        insert_runs(self._tx, new, self._texts, self._batch_id)
        write_outbox_of_inserted(self._tx, new, self._now)

    def _stop(self, ids: Sequence[RunId]) -> None:
        # The schedules and their own keys are locked; those of a flow's steps are not.
        lock_for_completion(self._tx, ids)
        before = load_runs(self._tx, ids)
        effects = CompletionEffects(self._tx, self._now, before.values())
        for run_id in ids:
            if not before[run_id].status.terminal:
                effects.apply(request_cancel(before[run_id], Reason.REPLACED, self._now))
        effects.write()

    def _claim_new(
        self, new: Sequence[Run], plain: Sequence[SingleSlotPlan] = ()
    ) -> dict[RunId, Run]:
        request, now = self._request, self._now
        if request is None or request.free <= 0 or not is_alive(self._tx, request.node_id, now):
            return {}
        waiting: list[tuple[_Order, Run | SingleSlotPlan]] = [
            (queue_order(run), run)
            for run in new
            if run.claimable
            and run.available_at <= now
            and run.target.requirement in request.capabilities
        ]
        waiting += [
            (_queue_order(firing), firing)
            for firing in plain
            if firing.before.target.requirement in request.capabilities
        ]
        waiting.sort(key=itemgetter(0))
        node = request.node_id
        chosen = [
            each.run(node) if isinstance(each, SingleSlotPlan) else claim(each, node, now)
            for _, each in waiting[: request.free]
        ]
        return {run.id: run for run in chosen}
