"""Insights, computed by scanning the smallest sorted set that contains the matching runs. There are
no rollups: scripts count the runs of a window (ADR 30)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from chimes.clock import MICROSECOND
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import NodeId, RunId, ScheduleId, canonical_namespace
from chimes.model.insights import (
    BOUNDS,
    FAILING_STREAK,
    HEALTH_RESULTS,
    LATE_WITHIN,
    MAX_ERRORS,
    MAX_PLANNING_LEAD,
    MAX_SCHEDULES,
    MISSED_WITHIN,
    AttentionList,
    ErrorGroups,
    IssueCause,
    LagBucket,
    Result,
    RunFilter,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleIssue,
    StatusCounts,
    Window,
    matches_filter,
    most_severe,
)
from chimes.model.listing import Counts, ScheduleQuery
from chimes.model.notification import DeliveryState
from chimes.model.run import FAILED_STATUSES, Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.redis.context import Context
from chimes.store.redis.listing import MOST, Scan, list_schedules, scan_records
from chimes.store.redis.wire import Wire, flag, maybe_moment, micros, moment, rows, text, texts
from chimes.store.selection import (
    Failure,
    count_schedules,
    count_statuses,
    count_streak,
    find_failures,
    find_late,
    find_missed,
    group_errors,
    issues_from,
    lag_buckets,
    may_be_failing,
    overdue_issues,
    run_statuses,
    schedule_issues,
)

#: Runs counted per script call; some milliseconds.
AT_ONCE = 2000
_STATUSES = {status.value: status for status in RunStatus}
_ORIGINS = {origin.value: origin for origin in Origin}


async def counts(ctx: Context) -> Counts:
    statuses, states = list(RunStatus), list(DeliveryState)
    _, (answer,) = await ctx.read("counts", list(statuses), list(states))
    schedules, enabled, due, *numbers = (int(each) for each in texts(answer))
    of_runs, of_deliveries = numbers[: len(statuses)], numbers[len(statuses) :]
    return Counts(
        schedules=schedules,
        enabled=enabled,
        due=due,
        runs={each: number for each, number in zip(statuses, of_runs, strict=True) if number},
        deliveries={
            each: number for each, number in zip(states, of_deliveries, strict=True) if number
        },
    )


async def schedule_counts(ctx: Context, query: ScheduleQuery, *, failing: bool) -> ScheduleCounts:
    matching = await _every_schedule(ctx, query)
    number = None
    if failing:
        doubtful = [each.id for each in matching if may_be_failing(each)]
        number = len(await _failing(ctx, doubtful))
    return count_schedules(matching, number, await ctx.now())


async def count_runs(
    ctx: Context, window: Window, filter_: RunFilter, step: timedelta | None
) -> tuple[StatusCounts, ...]:
    found: list[tuple[int, RunStatus, int]] = []
    async for name, number in _counted(ctx, window, filter_, step):
        place, status = name
        found.append((int(place), _STATUSES[status], number))
    return count_statuses(found, window, step)


async def run_lags(
    ctx: Context,
    window: Window,
    owner: Owner | None,
    step: timedelta | None,
    *,
    by_node: bool,
) -> tuple[LagBucket, ...]:
    found: list[tuple[int, NodeId | None, int, int]] = []
    of: list[Wire] = [[str(bound) for bound in BOUNDS], flag(by_node)]
    async for name, number in _counted(ctx, window, RunFilter(owner=owner), step, *of):
        place, node, bracket = name
        found.append((int(place), NodeId(node) if by_node else None, int(bracket), number))
    return lag_buckets(found, window, step, by_node=by_node)


async def _counted(
    ctx: Context, window: Window, filter_: RunFilter, step: timedelta | None, *more: Wire
) -> AsyncIterator[tuple[list[str], int]]:
    """In batches, so that the server is not blocked for long."""
    owner, name = filter_.owner, filter_.schedule_id
    wanted = (
        *((owner.type.value, owner.id) if owner is not None else ("", "")),
        canonical_namespace(filter_.namespace or ""),
        filter_.kind or "",
        filter_.origin or "",
    )
    length = (step if step is not None else window.until - window.since) // MICROSECOND
    asked: list[Wire] = [
        "runs:planned" if name is None else f"runs:planned:schedule:{name}",
        micros(window.since),
        micros(window.until),
        str(length),
        str(AT_ONCE),
        list(wanted),
    ]
    made = "" if name is None else micros(window.since - MAX_PLANNING_LEAD)
    at, seen = "", ""
    while True:
        _, (answer, at_, seen_) = await ctx.read("window", *asked, at, seen, made, *more)
        counts = iter(texts(answer))
        for each in counts:
            yield each.split("\n"), int(next(counts))
        at, seen = text(at_), text(seen_)
        if not seen:
            return


def _planned_in(ctx: Context, window: Window) -> AsyncIterator[Run]:
    highest = f"({micros(window.until)}"
    scan = Scan(facet="runs:planned", kind="run", lowest=micros(window.since), highest=highest)
    return scan_records(ctx, scan, ctx.decode_runs)


async def newest_results(
    ctx: Context, schedule_ids: Sequence[ScheduleId], each: int, owner: Owner | None = None
) -> dict[ScheduleId, tuple[Result, ...]]:
    whose = (owner.type.value, owner.id) if owner is not None else ("", "")
    _, (answer,) = await ctx.read("newest", list(schedule_ids), str(each), *whose)
    found: dict[ScheduleId, list[Result]] = {}
    for row in rows(answer):
        schedule_id, result = _result(texts(row))
        found.setdefault(schedule_id, []).append(result)
    return {schedule_id: tuple(results) for schedule_id, results in found.items()}


async def running_now(ctx: Context, owner: Owner | None, limit: int) -> tuple[Run, ...]:
    now = await ctx.now()
    scan = Scan(facet=f"runs:status:{RunStatus.RUNNING}", kind="run")
    found = [
        (run.started_at, run.id, run)
        async for run in scan_records(ctx, scan, ctx.decode_runs)
        if run.started_at is not None and run.started_at <= now and owner in (None, run.owner)
    ]
    return tuple(run for _, _, run in sorted(found, key=lambda each: each[:2])[:limit])


# --- attention


async def needing_attention(
    ctx: Context, owner: Owner | None, late: timedelta, limit: int
) -> AttentionList:
    limit = min(limit, MAX_SCHEDULES)
    now = await ctx.now()
    schedules = await _every_schedule(ctx, ScheduleQuery(owner=owner))
    present = {schedule.id: schedule for schedule in schedules}
    doubtful = [each.id for each in schedules if each.enabled and may_be_failing(each)]
    signs = schedule_issues(schedules, now)
    signs += [
        ScheduleIssue(schedule_id=name, cause=IssueCause.FAILING, at=at, count=FAILING_STREAK)
        for name, at in (await _failing(ctx, doubtful)).items()
    ]
    missed = await _of_status(ctx, RunStatus.MISSED, now - MISSED_WITHIN)
    signs += issues_from(IssueCause.MISSED, find_missed(missed, now))
    signs += await _late(ctx, present, now, late)
    found = most_severe(sign for sign in signs if sign.schedule_id in present)
    chosen = found[:limit]
    failed = [sign.schedule_id for sign in chosen if sign.cause is IssueCause.FAILING]
    results = await newest_results(ctx, failed, HEALTH_RESULTS) if failed else {}
    items = tuple(
        ScheduleAttention(
            schedule=present[sign.schedule_id],
            sign=count_streak(sign, run_statuses(results.get(sign.schedule_id, ()))),
        )
        for sign in chosen
    )
    return AttentionList(total=len(found), items=items)


async def _late(
    ctx: Context, present: dict[ScheduleId, Schedule], now: datetime, late: timedelta
) -> list[ScheduleIssue]:
    enabled = {schedule_id for schedule_id, each in present.items() if each.enabled}
    recent = [run async for run in _planned_in(ctx, Window.last(LATE_WITHIN, now))]
    waiting = await _of_status(ctx, RunStatus.QUEUED)
    runs = {run.id: run for run in (*recent, *waiting) if run.schedule_id in enabled}
    signs = issues_from(IssueCause.LATE, find_late(runs.values(), now, late))
    due = {
        name: at
        for name in enabled
        if (at := present[name].next_run_at) is not None and now - at > late
    }
    return [*signs, *overdue_issues(due, signs, now)]


async def _failing(ctx: Context, ids: Sequence[ScheduleId]) -> dict[ScheduleId, datetime]:
    """When the newest failure was planned."""
    found: dict[ScheduleId, datetime] = {}
    for start in range(0, len(ids), MOST):
        part = ids[start : start + MOST]
        _, (answer,) = await ctx.read("failing", list(part), str(FAILING_STREAK))
        pairs = zip(part, texts(answer), strict=True)
        found |= {name: moment(planned) for name, planned in pairs if planned}
    return found


async def _of_status(ctx: Context, status: RunStatus, since: datetime | None = None) -> list[Run]:
    scan = Scan(facet=f"runs:status:{status}", kind="run", lowest=micros(since))
    return [run async for run in scan_records(ctx, scan, ctx.decode_runs)]


async def _every_schedule(ctx: Context, query: ScheduleQuery) -> Sequence[Schedule]:
    return (await list_schedules(ctx, replace(query, after=None, limit=None))).items


# --- errors


async def error_groups(ctx: Context, window: Window, filter_: RunFilter, limit: int) -> ErrorGroups:
    found: list[Failure] = []
    for status in sorted(FAILED_STATUSES):
        scan = Scan(
            facet=f"runs:status:{status}",
            kind="run",
            descending=True,
            lowest=micros(window.since - MAX_PLANNING_LEAD),
        )
        runs = []
        async for run in scan_records(ctx, scan, ctx.decode_runs):
            if matches_filter(run, filter_, window):
                runs.append(run)
            if len(runs) > MAX_ERRORS:
                break
        found += find_failures(runs, window, filter_)
    return group_errors(found, limit)


def _result(row: Sequence[str]) -> tuple[ScheduleId, Result]:
    schedule_id, run_id, status, origin, created, planned, first, finished = row
    return ScheduleId(schedule_id), Result(
        run_id=RunId(run_id),
        status=_STATUSES[status],
        origin=_ORIGINS.get(origin, Origin.MANUAL),
        created_at=moment(created),
        planned_at=moment(planned),
        started_at=maybe_moment(first),
        finished_at=maybe_moment(finished),
    )
