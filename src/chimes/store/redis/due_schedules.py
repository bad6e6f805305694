"""Firing due schedules: reserve, plan, write.

Two round trips per batch. The first reserves the schedules, so that other nodes skip them for a
moment; the second writes each schedule if nothing that the plan depends on has changed. A conflict
takes two more round trips.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from chimes.failpoints import hit
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    FireContext,
    FirePlan,
    MaintenanceWindow,
    Planner,
    cancels_only_own_runs,
    concurrency_key,
    may_wait_behind_backlog,
    runs_to_insert,
    windows_from_text,
    with_maintenance,
)
from chimes.model.run import Reason, Run
from chimes.model.schedule import Schedule, stop_with_error
from chimes.store.port import ClaimRequest, FireResult
from chimes.store.redis.completion import CompletionEffects, take_claimed
from chimes.store.redis.context import Context
from chimes.store.redis.records import decode_checkpoint
from chimes.store.redis.rows import (
    Revision,
    cursor_fields,
    outbox_ops,
    outcome_fields,
    rank_of,
    record_id,
    task_row,
)
from chimes.store.redis.wire import Wire, flat, items, maybe_moment, micros, rows, text, texts

#: How long other nodes skip a reserved schedule; it fires that much later if the node dies.
RESERVED_MICROS = 2_000_000
#: Retries of a schedule with conflicts before it is left for the next pass.
TRIES = 8


@dataclass(frozen=True, slots=True)
class _Due:
    schedule: Schedule
    revision: Revision
    admitted: tuple[RunId, ...]
    others: frozenset[RunId]
    succeeded_at: datetime | None
    #: Rank of the last catch-up slot that is blocked under the schedule's own key.
    backlog: int | None


@dataclass(slots=True)
class _Unit:
    """The planned write of one schedule."""

    schedule: Schedule
    expected: list[Wire]
    inserted: list[Run] = field(default_factory=list)
    plan: tuple[Schedule, FirePlan] | None = None
    broken: bool = False
    #: A slot was skipped or missed, which changes the summary.
    outcome: bool = False
    cancel: tuple[RunId, ...] = ()
    more: list[Wire] = field(default_factory=list)
    #: Another schedule of the batch shares its key: plan after that one is written.
    postponed: bool = False


@dataclass(slots=True)
class _Pass:
    """The result of the pass so far."""

    inserted: list[Run] = field(default_factory=list)
    claimed: tuple[Run, ...] = ()
    #: Inserted runs that were not claimed: whether they are blocked.
    others: dict[RunId, bool] = field(default_factory=dict)
    plans: list[tuple[Schedule, FirePlan]] = field(default_factory=list)
    broken: list[Schedule] = field(default_factory=list)
    stopped: bool = False
    #: A skipped or missed slot has deliveries.
    notified: bool = False


async def fire_due(
    ctx: Context,
    plan: Planner,
    limit: int,
    request: ClaimRequest | None,
) -> FireResult:
    now, (answer, maintenance) = await ctx.write("take_due", str(limit), str(RESERVED_MICROS))
    stored = text(maintenance)
    due = await _read_due(ctx, rows(answer))
    more = len(rows(answer)) == limit
    left = due
    done = _Pass()
    for tries in range(TRIES if due else 0):
        if tries:
            _, (maintenance,) = await ctx.read("value", "states", MAINTENANCE_CHECKPOINT)
            stored = text(maintenance)
            now, left = await _due_again(ctx, left)
        units = await _planned(ctx, plan, left, now, stored, careful=tries > 0)
        answers = await _write(ctx, units, request, done, last=tries == TRIES - 1)
        left = [each for each, word in zip(left, answers, strict=True) if word != "done"]
        if not left:
            break
    order = {each.schedule.id: place for place, each in enumerate(due)}
    done.inserted.sort(key=lambda run: order[run.schedule_id or ScheduleId("")])
    others = [
        replace(run, blocked=done.others[run.id]) for run in done.inserted if run.id in done.others
    ]
    if done.stopped or done.notified or any(run.claimable for run in others):
        ctx.wake()
    return FireResult(
        claimed=done.claimed,
        others=tuple(others),
        plans=tuple(done.plans),
        broken=tuple(done.broken),
        more=more,
    )


async def _read_due(ctx: Context, cursors: list[Wire]) -> list[_Due]:
    """Reads the schedules that this process does not remember, or that were edited since."""
    due = {
        record_id(row[0]): _due(ctx, row) if ctx.schedule_rows.knows(row[0]) else None
        for row in cursors
    }
    unknown = [schedule_id for schedule_id, known in due.items() if known is None]
    if unknown:
        _, (answer,) = await ctx.read("schedules", unknown, "1")
        due |= {record_id(row[0]): _due(ctx, row) for row in rows(answer)}
    return [each for each in due.values() if each is not None]


def _due(ctx: Context, row: Wire) -> _Due:
    record, admitted, others, succeeded, backlog = items(row)
    schedule, revision = ctx.schedule_rows.schedule(record)
    return _Due(
        schedule,
        revision,
        tuple(RunId(each) for each in texts(admitted)),
        frozenset(RunId(each) for each in texts(others)),
        maybe_moment(text(succeeded)),
        rank_of(text(backlog)),
    )


async def _due_again(ctx: Context, left: Sequence[_Due]) -> tuple[datetime, list[_Due]]:
    """Read again; returns those still due."""
    ids: list[Wire] = [each.schedule.id for each in left]
    now, (answer,) = await ctx.read("schedules", ids, "1")
    again = [_due(ctx, row) for row in rows(answer)]
    return now, [each for each in again if _is_due(each.schedule, now)]


async def _planned(
    ctx: Context,
    plan: Planner,
    due: Sequence[_Due],
    now: datetime,
    maintenance: str,
    *,
    careful: bool,
) -> list[_Unit]:
    """`maintenance`: the stored row, which must not have changed when the plans are written.
    `careful`: check which slots already have runs."""
    plan = with_maintenance(plan, _windows(maintenance))
    request: dict[str, list[Run | RunId]] = {}
    unsettled: set[str] = set()
    units: list[_Unit] = []
    for each in due:
        key = concurrency_key(each.schedule)
        held = request.setdefault(key, list(each.admitted))
        unit = _Unit(
            each.schedule,
            [
                ["schedule", each.schedule.id, each.revision.definition, ""],
                ["admitted", key, "\n".join(each.admitted)],
                ["value", "states", MAINTENANCE_CHECKPOINT, maintenance],
            ],
            postponed=key in unsettled,
        )
        units.append(unit)
        if unit.postponed:
            continue
        if each.revision.damaged:
            _stop_schedule(unit, each.schedule.last_error)
            continue
        try:
            firing = plan(each.schedule, _context(each, held), now)
        except Exception as error:
            _stop_schedule(unit, f"{type(error).__name__}: {error}")
            continue
        unit.plan = each.schedule, firing
        await _planned_unit(ctx, unit, firing, careful=careful)
        held.extend(run for run in unit.inserted if run.admitted and run.concurrency_key == key)
        if unit.cancel:
            await _cancel(ctx, unit, now)
            unsettled.add(key)
    return units


def _windows(row: str) -> tuple[MaintenanceWindow, ...]:
    return windows_from_text(decode_checkpoint(MAINTENANCE_CHECKPOINT, row).value if row else None)


async def _planned_unit(ctx: Context, unit: _Unit, firing: FirePlan, *, careful: bool) -> None:
    free: Collection[RunId] = {run.id for run in firing.runs}
    if careful and firing.runs:
        asked: list[Wire] = [_identity(run) for run in firing.runs]
        _, (answer,) = await ctx.read("taken", asked)
        taken = zip(firing.runs, rows(answer), strict=True)
        free = {run.id for run, by in taken if by == ""}
    unit.schedule = firing.schedule
    unit.inserted = list(runs_to_insert(firing.runs, free))
    unit.outcome = any(run.status.terminal for run in firing.runs)
    unit.cancel = firing.cancel if unit.inserted else ()
    unit.expected += [["absent", *_identity(run)] for run in unit.inserted]


async def _cancel(ctx: Context, unit: _Unit, now: datetime) -> None:
    _, runs, children = await ctx.read_runs_with_steps(unit.cancel)
    effects = CompletionEffects(ctx, now, runs, children)
    for run_id in unit.cancel:
        if run_id in effects.runs:
            effects.cancel(effects.runs[run_id], Reason.REPLACED)
    unit.expected += effects.expected
    unit.more += effects.ops


async def _write(
    ctx: Context, units: Sequence[_Unit], request: ClaimRequest | None, done: _Pass, *, last: bool
) -> list[str]:
    """Returns `done` or the conflict of each unit."""
    hit("fire.before_commit")
    definitions: dict[str, str] = {}
    _, (answer, taken, rest) = await ctx.write(
        "fire",
        [_unit_row(ctx, unit, definitions) for unit in units if not unit.postponed],
        request.node_id if request else "",
        str(max(0, request.free)) if request else "0",
        sorted(request.capabilities) if request else [],
        [run.id for run in done.inserted],
        "now" if last else "later" if any(unit.postponed for unit in units) else "",
        definitions=definitions,
    )
    done.claimed += await take_claimed(ctx, rows(taken))
    done.others = {RunId(text(each[0])): each[1] == "1" for each in rows(rest)}
    written = iter(texts(answer))
    answers = ["postponed" if unit.postponed else next(written) for unit in units]
    for unit, word in zip(units, answers, strict=True):
        if word == "done":
            done.inserted += unit.inserted
            done.stopped |= bool(unit.cancel)
            done.notified |= any(outbox_ops(run, ctx.keyring, ctx.routing) for run in unit.inserted)
            if unit.broken:
                done.broken.append(unit.schedule)
            elif unit.plan is not None:
                done.plans.append(unit.plan)
    return answers


def _unit_row(ctx: Context, unit: _Unit, definitions: dict[str, str]) -> Wire:
    ops: list[Wire] = [
        ["insert", run.id, ctx.run_rows.new_fields(run, definitions), task_row(run)]
        for run in unit.inserted
    ]
    ops += [op for run in unit.inserted for op in outbox_ops(run, ctx.keyring, ctx.routing)]
    fields = cursor_fields(unit.schedule)
    if unit.outcome:
        fields |= outcome_fields(unit.schedule)
    ops.append(["cursor", unit.schedule.id, flat(fields.items())])
    ops += unit.more
    return [unit.expected, ops]


def _context(due: _Due, held: Sequence[Run | RunId]) -> FireContext:
    """The context, including runs planned earlier in this batch (`held`)."""
    others = set(due.others)
    admitted: list[RunId] = []
    for each in held:
        if isinstance(each, Run):
            admitted.append(each.id)
            if each.schedule_id != due.schedule.id:
                others.add(each.id)
        else:
            admitted.append(each)
    return FireContext(
        admitted=tuple(admitted),
        others=frozenset(others if cancels_only_own_runs(due.schedule) else ()),
        dependency_succeeded_at=due.succeeded_at,
        backlog=due.backlog is not None
        and due.backlog < due.schedule.priority * 2
        and may_wait_behind_backlog(due.schedule, len(admitted)),
    )


def _stop_schedule(unit: _Unit, error: str) -> None:
    unit.schedule = stop_with_error(unit.schedule, error)
    unit.broken = unit.outcome = True


def _identity(run: Run) -> list[Wire]:
    return [run.id, run.schedule_id or "", micros(run.slot)]


def _is_due(schedule: Schedule, now: datetime) -> bool:
    return (
        schedule.enabled
        and schedule.deleted_at is None
        and schedule.next_run_at is not None
        and schedule.next_run_at <= now
    )
