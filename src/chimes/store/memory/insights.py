"""Insights by full scans."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    ALL_RUNS,
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
from chimes.store.memory.base import MemoryBase
from chimes.store.selection import (
    bucket_index,
    check_by_node,
    check_newest,
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


class MemoryInsights(MemoryBase):
    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        with self._lock:
            matching = [s for s in self._state.schedules.values() if matches_schedule(s, query)]
            number = None
            if failing:
                doubtful = [each.id for each in matching if may_be_failing(each)]
                number = sum(map(is_failing, self._newest(doubtful).values()))
            return count_schedules(matching, number, self._clock.now())

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        with self._lock:
            found = (
                (bucket_index(run.planned_at, window, step), run.status, 1)
                for run in self._state.runs.values()
                if in_window(run, window, filter_)
            )
            return count_statuses(found, window, step)

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        check_by_node(owner, by_node=by_node)
        filter_ = RunFilter(owner=owner)
        with self._lock:
            runs = [r for r in self._state.runs.values() if in_window(r, window, filter_)]
        found = ((run.planned_at, start_lag(run, by_node=by_node)) for run in runs)
        return lag_buckets(
            ((bucket_index(at, window, step), *each, 1) for at, each in found if each is not None),
            window,
            step,
            by_node=by_node,
        )

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        with self._lock:
            return self._newest(ids, each, owner)

    def _newest(
        self, ids: Iterable[ScheduleId], each: int | None = None, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        wanted: dict[ScheduleId, list[Run]] = {schedule_id: [] for schedule_id in ids}
        if not wanted:
            return {}
        for run in self._state.runs.values():
            if run.schedule_id in wanted and has_owner(owner, run):
                wanted[run.schedule_id].append(run)
        return {
            schedule_id: tuple(
                result_of(run) for run in sorted(runs, key=newest_first, reverse=True)[:each]
            )
            for schedule_id, runs in wanted.items()
            if runs
        }

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        with self._lock:
            now = self._clock.now()
            runs = [
                (run.started_at, run.id, run)
                for run in self._state.active.values()
                if run.status is RunStatus.RUNNING
                and run.started_at is not None
                and run.started_at <= now
                and has_owner(owner, run)
            ]
        return tuple(run for _, _, run in sorted(runs, key=lambda each: each[:2])[:limit])

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        with self._lock:
            now = self._clock.now()
            present = {
                schedule.id: schedule
                for schedule in self._state.schedules.values()
                if schedule.deleted_at is None and has_owner(owner, schedule)
            }
            runs = self._state.runs.values()
            signs = schedule_issues(present.values(), now)
            signs += issues_from(IssueCause.MISSED, find_missed(runs, now))
            signs += self._late(present, now, late)
            results = self._newest(each.id for each in present.values() if may_be_failing(each))
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
        self, present: Mapping[ScheduleId, Schedule], now: datetime, late: timedelta
    ) -> list[ScheduleIssue]:
        enabled = {schedule_id for schedule_id, each in present.items() if each.enabled}
        seen = find_late(self._state.runs.values(), now, late)
        signs = issues_from(IssueCause.LATE, (each for each in seen if each.schedule_id in enabled))
        due = {
            name: at
            for name in enabled
            if (at := present[name].next_run_at) is not None and now - at > late
        }
        return [*signs, *overdue_issues(due, signs, now)]

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        with self._lock:
            return group_errors(find_failures(self._state.runs.values(), window, filter_), limit)

    async def roll_up(self, *, limit: int) -> int:
        return 0
