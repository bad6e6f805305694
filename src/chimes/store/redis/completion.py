"""Completions. For most runs one round trip suffices: the worker sends its copy of the run, and the
script checks the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from chimes.i18n import to_stored
from chimes.model import replace
from chimes.model.audit import AuditEntry, engine_pause_entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.notification import plan_pause_deliveries
from chimes.model.run import (
    CONCLUSIVE_STATUSES,
    FAILED_STATUSES,
    Completion,
    Run,
    RunStatus,
    cancel_step,
    complete,
    fail_unreadable,
    is_recorded,
    owns_fence,
    request_cancel,
)
from chimes.model.schedule import (
    Schedule,
    count_successes,
    counts_as_success,
    may_pause_after,
    pause_after_failures,
    pause_schedule,
)
from chimes.store.port import CompletionResult
from chimes.store.redis.context import Context, WriteConflict
from chimes.store.redis.rows import (
    Revision,
    ScheduleRows,
    changed_fields,
    is_corrupt,
    log_rows,
    new_deliveries,
    outbox_ops,
    rest_of,
)
from chimes.store.redis.wire import Wire, flat, micros, texts


class CompletionEffects:
    """Side effects of changed runs as operations of the `commit` script: schedules, steps,
    unblocking and deliveries. `children`: unfinished steps of flows among the runs."""

    def __init__(
        self,
        ctx: Context,
        now: datetime,
        runs: Mapping[RunId, tuple[Run, str]],
        children: Mapping[RunId, list[RunId]],
    ) -> None:
        self._keyring = ctx.keyring
        self._routing = ctx.routing
        self.now = now
        self.runs = {run_id: run for run_id, (run, _) in runs.items()}
        self._revs = {run_id: rev for run_id, (_, rev) in runs.items()}
        self._children = children
        self._touched: set[RunId] = set()
        self.ops: list[Wire] = []
        self.expected: list[Wire] = []
        #: Schedules that a completion pauses, with audit entries.
        self.audit: list[AuditEntry] = []
        self.pauses: dict[ScheduleId, str] = {}
        #: The last failed run of schedules that may have to be paused for it.
        self.failed: dict[ScheduleId, Run] = {}
        #: Successful runs of schedules that end after some.
        self.succeeded: dict[ScheduleId, int] = {}

    def put(self, after: Run) -> None:
        before = self.runs[after.id]
        if after.id not in self._touched:
            self._touched.add(after.id)
            self.expected.append(["run", after.id, self._revs[after.id]])
        changes = changed_fields(before, after)
        if is_corrupt(before):
            # What was read of it is not what is stored.
            changes["rest"] = rest_of(after)
        if changes:
            self.ops.append(["put", after.id, flat(changes.items())])
        self.runs[after.id] = after

    def apply(self, after: Run, completion: Completion | None = None) -> None:
        """Write the updated run and its side effects."""
        self.put(after)
        if completion is not None and completion.logs:
            self.ops.append(["log", after.id, log_rows(completion.logs)])
        if not after.status.terminal:
            return
        self.abandon_children(after)
        self.post(after)
        if after.schedule_id is not None:
            self.ops.append(
                ["summary", after.schedule_id, after.id, after.status.value, to_stored(after.error)]
            )
            if completion is not None and completion.pause_schedule:
                self.pauses.setdefault(after.schedule_id, completion.pause_schedule)
            elif may_pause_after(after):
                self.failed[after.schedule_id] = after
            elif counts_as_success(after):
                done = self.succeeded.get(after.schedule_id, 0)
                self.succeeded[after.schedule_id] = done + 1
        self.unblock(after)

    def cancel(self, run: Run, reason: str) -> Run:
        after = request_cancel(run, reason, self.now)
        if not run.status.terminal:
            self.apply(after)
        return after

    def abandon_children(self, run: Run) -> None:
        if run.status.terminal and run.resumable:
            for child_id in self._children.get(run.id, ()):
                child = self.runs[child_id]
                if child.status.terminal:
                    continue
                after = cancel_step(child, self.now)
                self.put(after)
                self.unblock(after)

    def post(self, run: Run) -> None:
        """Before the summary, because a recovery depends on the previous status."""
        self.ops += outbox_ops(run, self._keyring, self._routing)

    def unblock(self, run: Run) -> None:
        # Also for a corrupt run: the script knows its key.
        if run.status.terminal:
            self.ops.append(["unblock", run.id])

    def pause(
        self, schedules: Iterable[tuple[Schedule, Revision]], schedule_rows: ScheduleRows
    ) -> None:
        """Pause schedules whose receivers answered 410 Gone."""
        for schedule, revision in schedules:
            note = self.pauses[schedule.id]
            if not schedule.enabled:
                continue
            stopped = pause_schedule(schedule, self.now, "chimes", note=note)
            self.expected.append(["schedule", schedule.id, revision.definition, revision.summary])
            # Before the summaries, which update what this writes.
            self.ops.insert(0, ["schedule", schedule.id, *schedule_rows.fields(stopped)])
            self.audit.append(engine_pause_entry(schedule.id, str(schedule.owner), note, self.now))

    async def pause_failing(self, ctx: Context) -> None:
        """Pause schedules of which too many runs in a row failed. The unit is tried again if
        another run of such a schedule ends meanwhile."""
        await self._count_successes(ctx)
        for schedule_id, run in self.failed.items():
            found = (await ctx.read_schedule(schedule_id))[1]
            if found is None or schedule_id in self.pauses or schedule_id in self.succeeded:
                # With a success in the same batch the failures are not in a row.
                continue
            schedule, revision = found
            limit = schedule.policy.auto_pause_after
            if limit is None or not schedule.enabled:
                continue
            self.expected.append(["schedule", schedule.id, revision.definition, revision.summary])
            ended = [each for each in self.runs.values() if each.status in CONCLUSIVE_STATUSES]
            new = flat((each.id, each.status.value) for each in ended)
            since = micros(schedule.updated_at)
            _now, (answer,) = await ctx.read("newest_ends", schedule.id, str(limit), since, new)
            newest = [RunStatus(each) for each in texts(answer)]
            paused = pause_after_failures(schedule, newest, self.now)
            if paused is None:
                continue
            # Before the summaries, which update what this writes.
            self.ops.insert(0, ["schedule", schedule.id, *ctx.schedule_rows.fields(paused)])
            self.ops += [
                ["post", "", new_deliveries([each], self._keyring), [], []]
                for each in plan_pause_deliveries(paused, run, self.now)
            ]
            owner = str(schedule.owner)
            entry = engine_pause_entry(schedule.id, owner, paused.pause_note, self.now)
            self.audit.append(entry)

    async def _count_successes(self, ctx: Context) -> None:
        for schedule_id, count in self.succeeded.items():
            found = (await ctx.read_schedule(schedule_id))[1]
            if found is None or schedule_id in self.pauses:
                continue
            schedule, revision = found
            counted = count_successes(schedule, count, self.now)
            if counted == schedule:
                continue
            self.expected.append(["schedule", schedule.id, revision.definition, revision.summary])
            # Before the summaries, which update what this writes.
            self.ops.insert(0, ["schedule", schedule.id, *ctx.schedule_rows.fields(counted)])
            if not counted.enabled:
                owner, note = str(schedule.owner), counted.pause_note
                self.audit.append(engine_pause_entry(schedule.id, owner, note, self.now))


async def finish(ctx: Context, completions: Sequence[Completion]) -> CompletionResult:
    ids = {completion.run_id for completion in completions}
    plain: list[Run | None] = []
    if not ctx.routing.depends_on_time:
        plain = [completion.run for completion in completions if _plain(completion)]
    if completions and len(plain) == len(completions) == len(ids):
        try:
            return await _finish_plain(ctx, completions)
        except WriteConflict:
            pass
    return await ctx.retry_conflicts(lambda: _finish(ctx, completions))


async def _finish_plain(ctx: Context, completions: Sequence[Completion]) -> CompletionResult:
    expected: list[Wire] = []
    ops: list[Wire] = []
    wakes = False
    ended: list[Run] = []
    for completion in completions:
        assert completion.run is not None
        # The script rejects the unit if a cancellation was requested.
        run = replace(completion.run, cancel_requested=False)
        # Placeholder: the script sets the server's time.
        after = complete(run, completion, run.created_at)
        ended.append(after)
        expected.append(["claim", run.id, str(run.fence)])
        changes = changed_fields(run, after) | {"finished": "@now", "started": ""}
        ops.append(["put", run.id, flat(changes.items())])
        if completion.logs:
            ops.append(["log", run.id, log_rows(completion.logs)])
        ops += outbox_ops(after, ctx.keyring, ctx.routing)
        if run.schedule_id is not None:
            ops.append(
                ["summary", run.schedule_id, run.id, after.status.value, to_stored(after.error)]
            )
        if run.concurrency_key is not None:
            ops.append(["unblock", run.id])
        wakes |= run.parent_id is not None
    now = await ctx.commit(expected, ops, wakes=wakes, urgent=True)
    return CompletionResult(accepted=tuple(replace(run, finished_at=now) for run in ended))


async def _finish(ctx: Context, completions: Sequence[Completion]) -> CompletionResult:
    accepted: list[Run] = []
    refused: list[RunId] = []
    ids = list(dict.fromkeys(completion.run_id for completion in completions))
    now, runs, children = await ctx.read_runs_with_steps(ids)
    effects = CompletionEffects(ctx, now, runs, children)
    wakes = False
    for completion in completions:
        run = effects.runs.get(completion.run_id)
        if run is not None and owns_fence(run, completion.fence):
            after = complete(run, completion, now)
            effects.apply(after, completion)
            wakes |= not after.status.terminal
            wakes |= after.parent_id is not None or after.resumable
            accepted.append(after)
        elif run is not None and is_recorded(run, completion.attempt):
            accepted.append(run)
        else:
            refused.append(completion.run_id)
    if effects.pauses:
        schedules = [(await ctx.read_schedule(each))[1] for each in effects.pauses]
        effects.pause((each for each in schedules if each is not None), ctx.schedule_rows)
    await effects.pause_failing(ctx)
    if effects.ops:
        async with ctx.audit_turn(effects.audit):
            await ctx.commit(effects.expected, effects.ops, effects.audit, wakes=wakes, urgent=True)
    return CompletionResult(accepted=tuple(accepted), refused=tuple(refused))


async def take_claimed(ctx: Context, records: Sequence[Wire]) -> tuple[Run, ...]:
    """The claimed runs; a corrupt run is ended instead."""
    runs = await ctx.decode_runs(records)
    for run in filter(is_corrupt, runs):
        await ctx.retry_conflicts(partial(_end_corrupt, ctx, run.id))
    return tuple(run for run in runs if not is_corrupt(run))


async def _end_corrupt(ctx: Context, run_id: RunId) -> None:
    now, runs, children = await ctx.read_runs_with_steps([run_id])
    if run_id in runs:
        effects = CompletionEffects(ctx, now, runs, children)
        effects.apply(fail_unreadable(effects.runs[run_id], now))
        await ctx.commit(effects.expected, effects.ops, wakes=True)


def _plain(completion: Completion) -> bool:
    """Whether it ends with no side effects except on its schedule and key."""
    run = completion.run
    if run is None or any(recipient.depends_on_time for recipient in run.policy.delivery):
        # The time of sending depends on the server's time.
        return False
    return (
        owns_fence(run, completion.fence)
        and completion.retry_in is None
        and completion.status is not RunStatus.QUEUED
        and not completion.pause_schedule
        and not (run.policy.auto_pause_after and completion.status in FAILED_STATUSES)
        and run.policy.end_after_successes is None
        and not run.resumable
    )
