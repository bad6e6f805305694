"""Runs from the queue to their end, and their logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    owns_fence,
    release_or_cancel,
)
from chimes.store.codec.values import USED_INTERVAL
from chimes.store.port import ClaimRequest
from chimes.store.redis.completion import CompletionEffects, take_claimed
from chimes.store.redis.context import AuditTrail, Context
from chimes.store.redis.listing import MOST
from chimes.store.redis.rows import (
    log_entry,
    log_rows,
    outbox_rows,
    rest_of,
    task_row,
    turn_words,
)
from chimes.store.redis.wire import Wire, micros, moment, rows, text, texts


async def add_runs(ctx: Context, runs: Sequence[Run], audit: AuditEntry | None) -> tuple[Run, ...]:
    if not runs and audit is None:
        ctx.wake()
        return ()
    definitions: dict[str, str] = {}
    new = [_new_row(ctx, run, definitions) for run in runs]
    if len(new) == 1 and audit is None:
        now, answer = await ctx.add_run(new[0], definitions)
        answers = [answer]
    else:

        async def attempt(trail: AuditTrail) -> tuple[datetime, list[Wire]] | None:
            now, (answer,) = await ctx.write("add", new, trail.row, definitions=definitions)
            return None if answer == "head" else (now, rows(answer))

        async with ctx.audit_turn(audit):
            (now, answers), _ = await ctx.append_audit(audit, attempt)
    ctx.wake()
    existing = iter(await ctx.decode_runs([each for each in answers if not isinstance(each, str)]))
    return tuple(
        _added(run, answer, now) if isinstance(answer, str) else next(existing)
        for run, answer in zip(runs, answers, strict=True)
    )


def _added(run: Run, answer: str, now: datetime) -> Run:
    if answer == "over":
        return replace(cancel_step(run, now), blocked=False)
    return replace(run, blocked=answer == "blocked")


def _new_row(ctx: Context, run: Run, definitions: dict[str, str]) -> Wire:
    over, key = "", ""
    if run.parent_id is not None and not run.status.terminal:
        over = rest_of(cancel(run, Reason.FLOW_ENDED, run.created_at))
    if run.concurrency_key is not None and not run.status.terminal:
        key = run.concurrency_key
    return [
        run.id,
        ctx.run_rows.new_fields(run, definitions),
        task_row(run),
        run.schedule_id or "",
        micros(run.slot),
        key,
        str(run.concurrency_limit),
        run.parent_id or "",
        over,
        *outbox_rows(run, ctx.keyring, ctx.routing),
    ]


async def add_unless_active(ctx: Context, run: Run, audit: AuditEntry | None) -> tuple[Run, bool]:
    assert run.concurrency_key is not None
    definitions: dict[str, str] = {}
    row = _new_row(ctx, run, definitions)

    async def attempt(trail: AuditTrail) -> Wire | None:
        _, (answer,) = await ctx.write("add_unless_active", row, trail.row, definitions=definitions)
        return None if answer == "head" else answer

    async with ctx.audit_turn(audit):
        answer, _ = await ctx.append_audit(audit, attempt)
    if answer != "new":
        return (await ctx.decode_runs([answer]))[0], False
    ctx.wake()
    return run, True


async def get_run(ctx: Context, run_id: RunId) -> Run | None:
    runs = await ctx.read_runs([run_id])
    return runs[run_id][0] if run_id in runs else None


async def find_slot_runs(
    ctx: Context, schedule_id: ScheduleId, slots: Collection[datetime]
) -> dict[datetime, Run]:
    wanted = list(slots)
    _, (answer,) = await ctx.read("slots", schedule_id, [micros(slot) for slot in wanted])
    records = {slot: each for slot, each in zip(wanted, rows(answer), strict=True) if each}
    return dict(zip(records, await ctx.decode_runs(list(records.values())), strict=True))


async def next_available(ctx: Context) -> datetime | None:
    _, (answer,) = await ctx.read("next_available")
    return moment(text(answer)) if answer else None


async def claim(ctx: Context, request: ClaimRequest) -> tuple[Run, ...]:
    capabilities = sorted(request.capabilities)
    turns = turn_words(ctx.turns.get(request.capabilities))
    _, (answer,) = await ctx.write("claim", request.node_id, str(request.free), capabilities, turns)
    claimed = await take_claimed(ctx, rows(answer))
    ctx.turns.advance(request.capabilities, claimed)
    return claimed


async def start(ctx: Context, run_id: RunId, fence: int) -> bool:
    _, (started,) = await ctx.write("start", run_id, str(fence))
    return started == "1"


async def release(ctx: Context, claims: Sequence[tuple[RunId, int]]) -> None:
    async def attempt() -> None:
        now, runs, children = await ctx.read_runs_with_steps([run_id for run_id, _ in claims])
        effects = CompletionEffects(ctx, now, runs, children)
        for run_id, fence in claims:
            run = effects.runs.get(run_id)
            if run is not None and owns_fence(run, fence):
                effects.apply(release_or_cancel(run, now))
        await ctx.commit(effects.expected, effects.ops, wakes=True)

    await ctx.retry_conflicts(attempt)
    ctx.wake()


async def change_run(
    ctx: Context,
    run_id: RunId,
    change: Callable[[Run, datetime], Run],
    audit: AuditEntry | None,
) -> Run | None:
    async def attempt() -> Run | None:
        now, runs, children = await ctx.read_runs_with_steps([run_id])
        if run_id not in runs:
            return None
        effects = CompletionEffects(ctx, now, runs, children)
        before = effects.runs[run_id]
        after = change(before, now)
        if after is not before:
            effects.apply(after)
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


async def prune_definitions(ctx: Context, before: datetime, limit: int) -> int:
    """Deletes definitions that no run refers to. A definition in use is marked once a day, so the
    runs of an old one were created before `before`: few runs as old are left."""
    unused_since = micros(before - 2 * USED_INTERVAL)
    _, (answer,) = await ctx.read("old_definitions", unused_since, str(limit))
    marks = dict(zip(texts(answer)[::2], texts(answer)[1::2], strict=True))
    highest, created, run_id, more = f"({micros(before)}", "", "", True
    while marks and more:
        _, (answer, next_page) = await ctx.read(
            "page", "runs", "", "", highest, created, run_id, str(MOST), "definition"
        )
        used = [texts(each) for each in rows(answer)]
        for key, *_ in used:
            marks.pop(key, None)
        more = next_page == "1"
        if more:
            _, created, run_id = used[-1]
    if not marks:
        return 0
    _, (count,) = await ctx.write("drop_definitions", [list(each) for each in marks.items()])
    return int(text(count))


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
    entries = (texts(each) for each in rows(answer))
    return {RunId(name): log_entry(row, int(number)) for name, number, row in entries}


async def drop_logs(ctx: Context, run_ids: Sequence[RunId]) -> None:
    await ctx.write("drop_logs", list(run_ids))
