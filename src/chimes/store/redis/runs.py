"""Runs from the queue to their end, and their logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import (
    LogEntry,
    Reason,
    Run,
    cancel,
    cancel_step,
    mark_started,
    owns_fence,
    release_or_cancel,
)
from chimes.store.port import ClaimRequest
from chimes.store.redis.completion import CompletionEffects, take_claimed
from chimes.store.redis.context import AuditTrail, Context
from chimes.store.redis.rows import log_entry, log_rows, new_fields, outbox_rows, rest_of, task_row
from chimes.store.redis.wire import Wire, micros, moment, rows, text, texts


async def add_runs(ctx: Context, runs: Sequence[Run], audit: AuditEntry | None) -> tuple[Run, ...]:
    if not runs and audit is None:
        ctx.wake()
        return ()
    given = list(runs)
    if len(given) == 1 and audit is None:
        now, answer = await ctx.add_run(_new_row(ctx, given[0]))
        ctx.wake()
        return (_added(ctx, given[0], answer, now),)
    asked = [_new_row(ctx, run) for run in given]

    async def attempt(trail: AuditTrail) -> tuple[datetime, list[Wire]] | None:
        now, (answer,) = await ctx.write("add", asked, trail.row)
        return None if answer == "head" else (now, rows(answer))

    async with ctx.audit_turn(audit):
        (now, answers), _ = await ctx.append_audit(audit, attempt)
    ctx.wake()
    return tuple(_added(ctx, run, answer, now) for run, answer in zip(given, answers, strict=True))


def _added(ctx: Context, run: Run, answer: Wire, now: datetime) -> Run:
    if answer == "over":
        return replace(cancel_step(run, now), blocked=False)
    if isinstance(answer, str):
        return replace(run, blocked=answer == "blocked")
    return ctx.decode_run(answer)


def _new_row(ctx: Context, run: Run) -> Wire:
    body = ctx.run_rows.body(run)
    over, key = "", ""
    if run.parent_id is not None and not run.status.terminal:
        over = rest_of(cancel(run, Reason.FLOW_ENDED, run.created_at))
    if run.concurrency_key is not None and not run.status.terminal:
        key = run.concurrency_key
    return [
        run.id,
        new_fields(run, body),
        task_row(run),
        run.schedule_id or "",
        micros(run.slot),
        key,
        str(run.concurrency_limit),
        run.parent_id or "",
        over,
        *outbox_rows(run),
    ]


async def add_unless_active(ctx: Context, run: Run, audit: AuditEntry | None) -> tuple[Run, bool]:
    assert run.concurrency_key is not None
    row = _new_row(ctx, run)

    async def attempt(trail: AuditTrail) -> Wire | None:
        _, (answer,) = await ctx.write("add_unless_active", row, trail.row)
        return None if answer == "head" else answer

    async with ctx.audit_turn(audit):
        answer, _ = await ctx.append_audit(audit, attempt)
    if answer != "new":
        return ctx.decode_run(answer), False
    ctx.wake()
    return run, True


async def get_run(ctx: Context, run_id: RunId) -> Run | None:
    found = await ctx.read_runs([run_id])
    return found[run_id][0] if run_id in found else None


async def find_slot_runs(
    ctx: Context, schedule_id: ScheduleId, slots: Collection[datetime]
) -> dict[datetime, Run]:
    wanted = list(slots)
    _, (answer,) = await ctx.read("slots", schedule_id, [micros(slot) for slot in wanted])
    found = zip(wanted, rows(answer), strict=True)
    return {slot: ctx.decode_run(record) for slot, record in found if record}


async def next_available(ctx: Context) -> datetime | None:
    _, (answer,) = await ctx.read("next_available")
    return moment(text(answer)) if answer else None


async def claim(ctx: Context, request: ClaimRequest) -> tuple[Run, ...]:
    capabilities = sorted(request.capabilities)
    _, (answer,) = await ctx.write("claim", request.node_id, str(request.free), capabilities)
    return await take_claimed(ctx, rows(answer))


async def start(ctx: Context, run_id: RunId, fence: int) -> bool:
    held = ctx.in_flight.pop(run_id, None)
    _, (rev,) = await ctx.write("start", run_id, str(fence))
    if held is not None and rev == str(int(held[1]) + 1):
        ctx.hold(mark_started(held[0]), text(rev))
    return bool(rev)


async def release(ctx: Context, claims: Sequence[tuple[RunId, int]]) -> None:
    async def attempt() -> None:
        now, found, children = await ctx.read_runs_with_steps([run_id for run_id, _ in claims])
        effects = CompletionEffects(now, found, children)
        for run_id, fence in claims:
            run = effects.runs.get(run_id)
            if run is not None and owns_fence(run, fence):
                effects.apply(release_or_cancel(run, now))
        await ctx.commit(effects.expected, effects.ops, wakes=True)

    for run_id, _ in claims:
        ctx.in_flight.pop(run_id, None)
    await ctx.retry_conflicts(attempt)
    ctx.wake()


async def cancel_run(
    ctx: Context, run_id: RunId, reason: str, audit: AuditEntry | None
) -> Run | None:
    async def attempt() -> Run | None:
        now, found, children = await ctx.read_runs_with_steps([run_id])
        if run_id not in found:
            return None
        effects = CompletionEffects(now, found, children)
        after = effects.cancel(effects.runs[run_id], reason)
        await ctx.commit(effects.expected, effects.ops, audit, wakes=True)
        return after

    after = await ctx.retry_conflicts(attempt, audit)
    if after is not None:
        ctx.wake()
    return after


async def prune_runs(ctx: Context, before: datetime, limit: int) -> int:
    _, (answer,) = await ctx.write("prune", micros(before), str(limit))
    return int(text(answer))


async def forget_runs(ctx: Context, run_ids: Sequence[RunId]) -> int:
    _, (answer,) = await ctx.write("forget_runs", list(run_ids))
    return int(text(answer))


async def count_prunable(ctx: Context, before: datetime, most: int) -> int:
    _, (answer,) = await ctx.read("prunable", micros(before), str(most))
    return int(text(answer))


# --- logs


async def append_logs(ctx: Context, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
    _, (answer,) = await ctx.write("append_logs", run_id, str(fence), log_rows(entries))
    return answer == "1"


async def read_logs(ctx: Context, run_id: RunId, after: int, limit: int) -> tuple[LogEntry, ...]:
    if limit <= 0:
        return ()
    first, last = max(0, after), max(0, after) + limit - 1
    _, (answer,) = await ctx.read("logs", run_id, str(first), str(last))
    return tuple(log_entry(row, first + n) for n, row in enumerate(texts(answer), 1))


async def last_logs(ctx: Context, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
    if not run_ids:
        return {}
    _, (answer,) = await ctx.read("last_logs", list(run_ids))
    found = (texts(each) for each in rows(answer))
    return {RunId(name): log_entry(row, int(number)) for name, number, row in found}


async def drop_logs(ctx: Context, run_ids: Sequence[RunId]) -> None:
    await ctx.write("drop_logs", list(run_ids))
