"""Insights by full scans of the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    HEALTH_RESULTS,
    MAX_SCHEDULES,
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
    is_failing,
    most_severe,
    result_of,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.memory.state import State
from chimes.store.selection import (
    bucket_index,
    count_schedules,
    count_statuses,
    count_streak,
    failing_issue,
    find_failures,
    find_late,
    find_missed,
    group_errors,
    has_owner,
    in_window,
    issues_from,
    lag_buckets,
    matches_schedule,
    may_be_failing,
    newest_first,
    overdue_issues,
    run_statuses,
    schedule_issues,
    start_lag,
)


def schedule_counts(
    state: State, query: ScheduleQuery, now: datetime, *, failing: bool
) -> ScheduleCounts:
    matching = [each for each in state.schedules.values() if matches_schedule(each, query)]
    number = None
    if failing:
        doubtful = [each.id for each in matching if may_be_failing(each)]
        number = sum(map(is_failing, newest_results(state, doubtful).values()))
    return count_schedules(matching, number, now)


def count_runs(
    state: State, window: Window, filter_: RunFilter, step: timedelta | None
) -> tuple[StatusCounts, ...]:
    found = (
        (bucket_index(run.planned_at, window, step), run.status, 1)
        for run in state.runs.values()
        if in_window(run, window, filter_)
    )
    return count_statuses(found, window, step)


def run_lags(
    state: State, window: Window, owner: Owner | None, step: timedelta | None, *, by_node: bool
) -> tuple[LagBucket, ...]:
    filter_ = RunFilter(owner=owner)
    runs = (run for run in state.runs.values() if in_window(run, window, filter_))
    found = ((run.planned_at, start_lag(run, by_node=by_node)) for run in runs)
    return lag_buckets(
        ((bucket_index(at, window, step), *lag, 1) for at, lag in found if lag is not None),
        window,
        step,
        by_node=by_node,
    )


def newest_results(
    state: State,
    schedule_ids: Iterable[ScheduleId],
    limit: int | None = None,
    owner: Owner | None = None,
) -> dict[ScheduleId, tuple[Result, ...]]:
    """At most `limit` of each schedule; None: all."""
    wanted: dict[ScheduleId, list[Run]] = {schedule_id: [] for schedule_id in schedule_ids}
    if not wanted:
        return {}
    for run in state.runs.values():
        if run.schedule_id in wanted and has_owner(owner, run):
            wanted[run.schedule_id].append(run)
    return {
        schedule_id: tuple(
            result_of(run) for run in sorted(runs, key=newest_first, reverse=True)[:limit]
        )
        for schedule_id, runs in wanted.items()
        if runs
    }


def running_now(state: State, owner: Owner | None, now: datetime, limit: int) -> tuple[Run, ...]:
    runs = [
        (run.started_at, run.id, run)
        for run in state.active.values()
        if run.status is RunStatus.RUNNING
        and run.started_at is not None
        and run.started_at <= now
        and has_owner(owner, run)
    ]
    return tuple(run for _, _, run in sorted(runs, key=lambda each: each[:2])[:limit])


def needing_attention(
    state: State, owner: Owner | None, now: datetime, late: timedelta, limit: int
) -> AttentionList:
    present = {
        schedule.id: schedule
        for schedule in state.schedules.values()
        if schedule.deleted_at is None and has_owner(owner, schedule)
    }
    runs = state.runs.values()
    signs = schedule_issues(present.values(), now)
    signs += issues_from(IssueCause.MISSED, find_missed(runs, now))
    signs += _late(present, runs, now, late)
    doubtful = (each.id for each in present.values() if may_be_failing(each))
    results = newest_results(state, doubtful)
    failing = (failing_issue(present[name], each) for name, each in results.items())
    signs += [sign for sign in failing if sign is not None]
    found = most_severe(sign for sign in signs if sign.schedule_id in present)
    items = tuple(
        ScheduleAttention(
            schedule=present[sign.schedule_id],
            sign=count_streak(
                sign, run_statuses(results.get(sign.schedule_id, ())[:HEALTH_RESULTS])
            ),
        )
        for sign in found[: min(limit, MAX_SCHEDULES)]
    )
    return AttentionList(total=len(found), items=items)


def _late(
    present: Mapping[ScheduleId, Schedule], runs: Iterable[Run], now: datetime, late: timedelta
) -> list[ScheduleIssue]:
    enabled = {schedule_id for schedule_id, each in present.items() if each.enabled}
    seen = find_late(runs, now, late)
    signs = issues_from(IssueCause.LATE, (each for each in seen if each.schedule_id in enabled))
    due = {
        name: at
        for name in enabled
        if (at := present[name].next_run_at) is not None and now - at > late
    }
    return [*signs, *overdue_issues(due, signs, now)]


def error_groups(state: State, window: Window, filter_: RunFilter, limit: int) -> ErrorGroups:
    return group_errors(find_failures(state.runs.values(), window, filter_), limit)
