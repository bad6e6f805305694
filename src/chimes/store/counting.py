"""Counting in Python, for stores that hold their rows in memory; the reference for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.errors import InvalidInput
from chimes.model.access import Owner
from chimes.model.attention import (
    LATE_WITHIN,
    MISSED_WITHIN,
    Cause,
    Sign,
    stopped_by_error,
)
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.insights import (
    BAD,
    ERROR_ROOM,
    FAILING,
    MADE_BEFORE,
    MOST_ERRORS,
    MOST_OF_ONE,
    MOST_RESULTS,
    MOST_SCHEDULES,
    ErrorGroup,
    ErrorGroups,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    Tally,
    Window,
    first_node,
    glance_at,
    is_failing,
    lag_of,
    within,
)
from chimes.model.lags import NO_LAGS, Lags, bracket_of
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.wording import say

HOUR = timedelta(hours=1)


def counted_schedules(matching: Sequence[Schedule], failing: int, now: datetime) -> ScheduleCounts:
    return ScheduleCounts(
        total=len(matching),
        enabled=sum(each.enabled for each in matching),
        due_soon=sum(
            each.enabled and each.next_run_at is not None and each.next_run_at <= now + HOUR
            for each in matching
        ),
        never_ran=sum(each.last_run_at is None for each in matching),
        failing=failing,
    )


def may_be_failing(schedule: Schedule) -> bool:
    """Whether its runs have to be looked at to know."""
    return schedule.last_status not in (None, RunStatus.SUCCEEDED)


def in_window(run: Run, window: Window, filter_: RunFilter) -> bool:
    made = filter_.schedule_id is None or run.created_at >= window.since - MADE_BEFORE
    return made and within(run, filter_, window)


def tallied(
    found: Iterable[tuple[datetime, RunStatus, int]], window: Window, step: timedelta | None
) -> tuple[Tally, ...]:
    """`found`: when planned, how it stands, how many."""
    starts = window.starts(step)
    numbers: list[Counter[RunStatus]] = [Counter() for _ in starts]
    for planned_at, status, number in found:
        numbers[_place(planned_at, window, step)][status] += number
    return tuple(
        Tally(at=at, statuses={status: n for status, n in counts.items() if n})
        for at, counts in zip(starts, numbers, strict=True)
    )


def lag_buckets(
    found: Iterable[tuple[datetime, NodeId | None, int, int]],
    window: Window,
    step: timedelta | None,
) -> tuple[LagBucket, ...]:
    """`found`: when planned, by whom begun (None where that does not matter), bracket, how many.
    Buckets without any are left out where it matters by whom."""
    starts = window.starts(step)
    numbers: dict[tuple[int, NodeId | None], Counter[int]] = {}
    for planned_at, node, bracket, number in found:
        place = _place(planned_at, window, step)
        numbers.setdefault((place, node), Counter())[bracket] += number
    kept = {
        key: Lags({bracket: n for bracket, n in counts.items() if n})
        for key, counts in numbers.items()
        if any(counts.values())
    }
    if all(node is None for _, node in kept):
        kept |= {
            (place, None): NO_LAGS for place in range(len(starts)) if (place, None) not in kept
        }
    return tuple(
        LagBucket(at=starts[place], node=node, lags=lags)
        for (place, node), lags in sorted(
            kept.items(), key=lambda item: (item[0][0], item[0][1] or "")
        )
    )


def _place(moment: datetime, window: Window, step: timedelta | None) -> int:
    return 0 if step is None else (moment - window.since) // step


def begun(run: Run, *, by_node: bool) -> tuple[datetime, NodeId | None, int, int] | None:
    lag = lag_of(run)
    if lag is None:
        return None
    node = first_node(run) or NodeId("") if by_node else None
    return run.planned_at, node, bracket_of(lag), 1


def check_newest(schedule_ids: Iterable[ScheduleId], each: int) -> list[ScheduleId]:
    """Each of them once."""
    ids = list(dict.fromkeys(schedule_ids))
    if len(ids) > MOST_SCHEDULES or each > MOST_OF_ONE or len(ids) * each > MOST_RESULTS:
        raise InvalidInput(
            say(
                "{each} results of {number} schedules are too many to ask for at once",
                each=each,
                number=len(ids),
            )
        )
    return ids


def newest_first(run: Run | Result) -> tuple[datetime, str]:
    """To be sorted by in reverse."""
    return run.created_at, run.run_id if isinstance(run, Result) else run.id


# --- attention ----------------------------------------------------------------------------------
def missed_signs(runs: Iterable[Run], now: datetime) -> list[Sign]:
    found: dict[ScheduleId, list[Run]] = {}
    for run in runs:
        recent = now - MISSED_WITHIN <= run.created_at
        if run.status is RunStatus.MISSED and run.schedule_id is not None and recent:
            found.setdefault(run.schedule_id, []).append(run)
    return [
        _sign(schedule_id, Cause.MISSED, missed, sum(max(1, run.missed_count) for run in missed))
        for schedule_id, missed in found.items()
    ]


def late_signs(
    runs: Iterable[Run], schedules: Iterable[Schedule], now: datetime, late: timedelta
) -> list[Sign]:
    found: dict[ScheduleId, list[tuple[Run, timedelta]]] = {}
    for run in runs:
        lag = _late_by(run, now)
        if run.schedule_id is not None and lag is not None and lag > late:
            found.setdefault(run.schedule_id, []).append((run, lag))
    signs = [
        _sign(name, Cause.LATE, [run for run, _ in each], len(each), max(lag for _, lag in each))
        for name, each in found.items()
    ]
    for schedule in schedules:
        due = schedule.next_run_at
        if schedule.enabled and due is not None and now - due > late and schedule.id not in found:
            signs.append(Sign(schedule_id=schedule.id, cause=Cause.LATE, at=due, lag=now - due))
    return signs


def _late_by(run: Run, now: datetime) -> timedelta | None:
    if run.origin is not Origin.SCHEDULE:
        return None
    if run.started_at is None:
        return now - run.planned_at if run.claimable else None
    return lag_of(run) if now - LATE_WITHIN <= run.planned_at <= now else None


def _sign(
    schedule_id: ScheduleId,
    cause: Cause,
    runs: Sequence[Run],
    count: int,
    lag: timedelta | None = None,
) -> Sign:
    newest = max(runs, key=lambda run: (run.planned_at, run.id))
    return Sign(
        schedule_id=schedule_id,
        cause=cause,
        at=newest.planned_at,
        count=count,
        lag=lag,
        run_id=newest.id,
    )


def own_signs(schedules: Iterable[Schedule], now: datetime) -> list[Sign]:
    """What a schedule says of itself."""
    signs = []
    for each in schedules:
        if stopped_by_error(each):
            signs.append(Sign(schedule_id=each.id, cause=Cause.STOPPED, at=each.updated_at))
        elif not each.enabled and each.pause_until is not None and each.pause_until <= now:
            signs.append(Sign(schedule_id=each.id, cause=Cause.PAUSE_OVER, at=each.pause_until))
    return signs


def failing_sign(schedule: Schedule, results: Sequence[Result]) -> Sign | None:
    """By the newest results of it."""
    if not schedule.enabled or not is_failing(results):
        return None
    return Sign(
        schedule_id=schedule.id,
        cause=Cause.FAILING,
        at=next(result.planned_at for result in results if result.status in BAD),
        count=FAILING,
    )


def counted_in_a_row(sign: Sign, results: Sequence[Result]) -> Sign:
    """FAILING with how many failures in a row the results show, and the newest of them."""
    streak = glance_at(results).streak
    if sign.cause is not Cause.FAILING or streak is None or streak.good:
        return sign
    newest = next(result.run_id for result in results if result.status in BAD)
    return replace(sign, count=max(FAILING, streak.count), run_id=newest)


# --- errors -------------------------------------------------------------------------------------
def grouped_errors(
    runs: Iterable[Run], window: Window, filter_: RunFilter, limit: int
) -> ErrorGroups:
    bad = [
        run
        for run in runs
        if run.status in BAD
        and run.created_at >= window.since - MADE_BEFORE
        and within(run, filter_, window)
    ]
    bad.sort(key=newest_first, reverse=True)
    found: dict[str, list[Run]] = {}
    for run in bad[:MOST_ERRORS]:
        found.setdefault(run.error[:ERROR_ROOM], []).append(run)
    groups = [
        ErrorGroup(
            error=error,
            count=len(each),
            first=min(run.planned_at for run in each),
            last=max(run.planned_at for run in each),
            example=each[0].id,
        )
        for error, each in found.items()
    ]
    return ErrorGroups(
        groups=tuple(sorted_groups(groups)[:limit]),
        failures=min(len(bad), MOST_ERRORS),
        more=len(bad) > MOST_ERRORS,
    )


def sorted_groups(groups: Iterable[ErrorGroup]) -> list[ErrorGroup]:
    by_text = sorted(groups, key=lambda group: group.error)
    return sorted(by_text, key=lambda group: (group.count, group.last), reverse=True)


def of_owner(owner: Owner | None, row: Run | Schedule) -> bool:
    return owner in (None, row.owner)
