"""Creating and changing schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from chimes.errors import AlreadyExists, Conflict, NotFound
from chimes.i18n import _
from chimes.model.access import Quota
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId, canonical_namespace
from chimes.model.run import Reason, Run, cancel
from chimes.model.schedule import (
    Schedule,
    counts_against,
    pass_slot,
    quota_exceeded,
    returned_slot,
)
from chimes.store.port import ScheduleEdit
from chimes.store.redis.completion import CompletionEffects
from chimes.store.redis.context import Context, WriteConflict
from chimes.store.redis.rows import corrupt_parts, outbox_rows, record_id, task_row
from chimes.store.redis.wire import Wire, flag, micros, moment, rows, text, texts


async def add_schedule(
    ctx: Context, schedule: Schedule, audit: AuditEntry | None, quotas: Sequence[Quota]
) -> Schedule:
    expected: list[Wire] = [["schedule", schedule.id, "", ""]]
    expected += _counted(None, schedule, quotas)
    ops: list[Wire] = [["schedule", schedule.id, *ctx.schedule_rows.fields(schedule)]]
    try:
        async with ctx.audit_turn(audit):
            await ctx.commit(expected, ops, audit, wakes=True)
    except WriteConflict as conflict:
        if quota := _exceeded(conflict, quotas):
            raise quota_exceeded(schedule.owner, quota) from None
        raise AlreadyExists(_("schedule {id} exists already", id=schedule.id)) from None
    ctx.wake()
    return schedule


async def get_schedule(ctx: Context, schedule_id: ScheduleId) -> Schedule | None:
    _unused, stored = await ctx.read_schedule(schedule_id)
    return stored[0] if stored else None


async def change_schedules(
    ctx: Context,
    edits: Sequence[ScheduleEdit],
    quotas: Sequence[Quota] = (),
    *,
    deleted: bool = False,
) -> tuple[Schedule, ...]:
    """`quotas` and `deleted` are for a single edit."""
    audit = [edit.audit for edit in edits if edit.audit is not None]

    async def attempt() -> tuple[Schedule, ...]:
        now, (answer,) = await ctx.read("schedules", [edit.schedule_id for edit in edits], "")
        records = {record_id(row[0]): row[0] for row in rows(answer)}
        expected: list[Wire] = []
        ops: list[Wire] = []
        definitions: dict[str, str] = {}
        changed: list[Schedule] = []
        for edit in edits:
            record = records.get(edit.schedule_id)
            if record is None:
                raise _missing(edit.schedule_id)
            before, revision = ctx.schedule_rows.schedule(record)
            if before.deleted_at is not None and not deleted:
                raise _missing(edit.schedule_id)
            after = edit.change(before, now)
            while slot := returned_slot(before, after, now):
                if not await _is_taken(ctx, after.id, slot):
                    break
                after = pass_slot(after)
            if revision.damaged and after.deleted_at is None:
                _check_corrupt(text(record[-1]), before, after)
            expected.append(["schedule", before.id, revision.definition, revision.summary])
            expected += _counted(before, after, quotas)
            new = edit.runs(before, now) if edit.runs else ()
            ops += [_insert_new(ctx, run, definitions) for run in new]
            ops.append(["schedule", before.id, *ctx.schedule_rows.fields(after)])
            changed.append(after)
        gone = [each.id for each in changed if each.deleted_at is not None]
        if gone:
            ending = await _end_waiting(ctx, gone, now)
            expected += ending.expected
            ops += ending.ops
        try:
            await ctx.commit(expected, ops, audit, definitions=definitions, wakes=True)
        except WriteConflict as conflict:
            if quota := _exceeded(conflict, quotas):
                raise quota_exceeded(changed[0].owner, quota) from None
            raise
        return tuple(changed)

    after = await ctx.retry_conflicts(attempt, audit)
    ctx.wake()
    return after


async def _is_taken(ctx: Context, schedule_id: ScheduleId, slot: datetime) -> bool:
    _unused, (answer,) = await ctx.read("taken", [["", schedule_id, micros(slot)]])
    return rows(answer)[0] != ""


def _insert_new(ctx: Context, run: Run, definitions: dict[str, str]) -> Wire:
    fields = ctx.run_rows.new_fields(run, definitions)
    key: list[Wire] = [run.schedule_id or "", micros(run.slot)]
    return [
        "insert_new",
        run.id,
        fields,
        task_row(run),
        *key,
        *outbox_rows(run, ctx.keyring, ctx.routing),
    ]


async def _end_waiting(
    ctx: Context, schedule_ids: Sequence[ScheduleId], now: datetime
) -> CompletionEffects:
    """Cancel the queued runs of deleted schedules."""
    waiting: list[RunId] = []
    for schedule_id in schedule_ids:
        _unused, (answer,) = await ctx.read("waiting", schedule_id)
        waiting += [RunId(each) for each in texts(answer)]
    runs: dict[RunId, tuple[Run, str]] = {}
    children: dict[RunId, list[RunId]] = {}
    if waiting:
        _unused, runs, children = await ctx.read_runs_with_steps(waiting)
    effects = CompletionEffects(ctx, now, runs, children)
    for run_id in waiting:
        run = effects.runs.get(run_id)
        if run is None or run.status.terminal or run.holder is not None:
            raise WriteConflict(_("a run was claimed meanwhile"))
        ended = cancel(run, Reason.SCHEDULE_DELETED, now)
        effects.put(ended)
        effects.post(ended)
        # Runs of other schedules may share its concurrency key.
        effects.unblock(ended)
        effects.abandon_children(ended)
    return effects


async def next_due(ctx: Context) -> datetime | None:
    _unused, (answer,) = await ctx.read("next_due")
    return moment(text(answer)) if answer else None


def _missing(schedule_id: ScheduleId) -> NotFound:
    return NotFound(_("schedule {id} not found", id=schedule_id))


def _counted(before: Schedule | None, after: Schedule, quotas: Sequence[Quota]) -> list[Wire]:
    """For each quota that the schedule newly counts against: index, limit, whether only active ones
    count, and the sets to count. The writing script counts, so the check is atomic."""
    checks: list[Wire] = []
    for number, quota in enumerate(quotas):
        if not counts_against(after, quota) or (before and counts_against(before, quota)):
            continue
        sets = [f"schedules:owner:{after.owner}"]
        if quota.namespace is not None:
            sets.append(f"schedules:namespace:{canonical_namespace(quota.namespace)}")
        checks.append(["quota", str(number), str(quota.limit), flag(quota.active), *sets])
    return checks


def _exceeded(conflict: WriteConflict, quotas: Sequence[Quota]) -> Quota | None:
    word, _unused, number = str(conflict).partition(":")
    return quotas[int(number)] if word == "quota" else None


def _check_corrupt(body: str, before: Schedule, after: Schedule) -> None:
    """A placeholder must not overwrite corrupt data that may still be repaired."""
    for part in sorted(corrupt_parts(body)):
        if part == "body" or getattr(after, part, None) == getattr(before, part, None):
            raise Conflict(
                _(
                    "schedule {id} cannot be read: replace the {part}, or delete it",
                    id=before.id,
                    part=part,
                ),
                code="unreadable",
            )


async def purge_schedules(ctx: Context, before: datetime, limit: int) -> int:
    _unused, (answer,) = await ctx.write("purge_schedules", micros(before), str(limit))
    return int(text(answer))
