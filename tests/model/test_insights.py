"""Windows, rates, streaks, medians and lag histograms."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.ids import NodeId, ScheduleId
from chimes.model.insights import (
    BOUNDS,
    MAX_BUCKETS,
    QUARTER,
    UNKNOWN_NODE,
    IssueCause,
    LagHistogram,
    Result,
    ScheduleIssue,
    StatusCounts,
    Streak,
    Window,
    assess_health,
    bracket_lag,
    bracket_of,
    first_node,
    is_failing,
    median_duration,
    merge_lags,
    most_severe,
    quarter_start,
    result_of,
    stopped_by_error,
    sum_counts,
)
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import pause_schedule, stop_with_error
from chimes.triggers import Cron, Once
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_run, a_schedule
from tests.ended_runs import ended

OK, FAILED, SKIPPED = RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.SKIPPED
MICRO = timedelta(microseconds=1)


# --- windows ------------------------------------------------------------------------------------
def test_window_is_rounded_to_quarter_hours() -> None:
    now = NOW + 7 * MINUTE + SECOND
    day = Window.last(timedelta(days=1), now)
    assert (day.since, day.until) == (NOW - timedelta(days=1), NOW + QUARTER)
    assert Window.around(NOW + MICRO, NOW + HOUR) == Window(since=NOW, until=NOW + HOUR)
    assert Window.around(NOW, NOW + MICRO) == Window(since=NOW, until=NOW + QUARTER)
    assert Window.last(QUARTER, NOW).until == NOW + QUARTER


def test_buckets_of_a_window() -> None:
    window = Window(since=NOW, until=NOW + HOUR)
    assert window.starts(None) == (NOW,)
    assert window.starts(2 * QUARTER) == (NOW, NOW + 2 * QUARTER)
    assert window.starts(3 * QUARTER) == (NOW, NOW + 3 * QUARTER)
    assert window.starts(timedelta(days=1)) == (NOW,)
    longest = Window(since=NOW, until=NOW + MAX_BUCKETS * QUARTER)
    assert len(longest.starts(QUARTER)) == MAX_BUCKETS
    with pytest.raises(InvalidInput, match="3001"):
        Window(since=NOW, until=NOW + (MAX_BUCKETS + 1) * QUARTER).starts(QUARTER)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu", "Australia/Eucla", "UTC"])
def test_hours_of_every_zone_start_at_a_quarter_hour(zone: str) -> None:
    """Also with offsets of half and quarter hours."""
    for hours in range(48):
        local = (NOW + hours * HOUR).astimezone(ZoneInfo(zone))
        begins = local.replace(minute=0, second=0, microsecond=0)
        assert quarter_start(begins) == begins


# --- counts -------------------------------------------------------------------------------------
def test_success_rate_and_sums_of_counts() -> None:
    assert StatusCounts(at=NOW).success_rate is None
    assert StatusCounts(at=NOW, statuses={SKIPPED: 3}).success_rate is None
    missed = StatusCounts(at=NOW, statuses={OK: 3, RunStatus.MISSED: 1})
    assert missed.success_rate == 0.75, "a missed run is not a success"
    counts = {OK: 3, FAILED: 1, RunStatus.TIMEOUT: 1, RunStatus.UNKNOWN: 1, SKIPPED: 9}
    tally = StatusCounts(at=NOW, statuses=counts)
    assert (tally.success_rate, tally.bad, tally.total) == (0.5, 3, 15)
    assert tally[OK] == 3
    assert tally[RunStatus.CANCELED] == 0
    whole = sum_counts(
        [tally, StatusCounts(at=NOW, statuses={OK: 1}), StatusCounts(at=NOW)], NOW - HOUR
    )
    assert whole == StatusCounts(at=NOW - HOUR, statuses=counts | {OK: 4})


# --- lags ---------------------------------------------------------------------------------------
@given(st.integers(min_value=1000, max_value=30 * 86_400_000_000))
def test_lag_bracket_error_is_below_ten_percent(micros: int) -> None:
    lag = timedelta(microseconds=micros)
    read = bracket_lag(bracket_of(lag))
    assert abs(read - lag) <= lag * 0.1


@given(st.lists(st.integers(min_value=1000, max_value=10**10), min_size=1, max_size=200))
def test_lag_quantile_error_is_below_ten_percent(micros: list[int]) -> None:
    lags = LagHistogram()
    for each in micros:
        lags = merge_lags([lags, LagHistogram({bracket_of(timedelta(microseconds=each)): 1})])
    ordered = sorted(micros)
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
        read = lags.quantile(share)
        assert read is not None
        assert abs(read / MICRO - exact) <= exact * 0.1 + 1


def test_smallest_and_largest_lag_brackets() -> None:
    assert (bracket_of(timedelta(0)), bracket_of(-SECOND)) == (0, 0)
    assert bracket_of(timedelta(microseconds=999)) == 0
    assert bracket_lag(0) == timedelta(0)
    assert bracket_lag(bracket_of(timedelta(days=400))) == BOUNDS[-1] * MICRO
    assert (len(BOUNDS), BOUNDS[:3], BOUNDS[-1]) == (121, (1000, 1200, 1440), BOUNDS[-1])
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_quantile_of_an_empty_histogram_is_none() -> None:
    assert LagHistogram().quantile(0.5) is None
    for share in (0.0, -1.0, 1.1):
        with pytest.raises(InvalidInput):
            LagHistogram({1: 1}).quantile(share)


def test_first_node_of_a_run() -> None:
    assert first_node(a_run()) == UNKNOWN_NODE
    assert first_node(a_run(holder=NodeId("n"))) == "n"
    assert first_node(ended(NOW, node="first")) == "first"


# --- health -------------------------------------------------------------------------------------
def results(*statuses: RunStatus) -> list[Result]:
    """Newest first; the newest took a second, each older one a second longer."""
    return [
        result_of(ended(NOW - n * MINUTE, status, took=(n + 1) * SECOND))
        for n, status in enumerate(statuses)
    ]


def test_streak_of_results() -> None:
    assert assess_health([]).streak is None
    assert assess_health(results(SKIPPED)).streak is None
    assert assess_health(results(OK, OK)).streak == Streak(good=True, count=2, open=False)
    assert assess_health(results(*[OK] * 30)).streak == Streak(good=True, count=30, open=True)
    assert assess_health(results(SKIPPED, OK, SKIPPED, OK, FAILED)).streak == Streak(
        good=True, count=2, open=False
    )
    assert assess_health(results(FAILED, RunStatus.TIMEOUT, OK)).streak == Streak(
        good=False, count=2, open=False
    )


def test_two_failures_in_a_row_are_failing() -> None:
    assert not is_failing(results(FAILED))
    assert not is_failing(results(FAILED, OK, FAILED))
    assert is_failing(results(FAILED, FAILED, OK))
    assert is_failing(results(SKIPPED, FAILED, RunStatus.CANCELED, RunStatus.UNKNOWN))


def test_median_duration_of_the_newest_successes() -> None:
    assert median_duration([]) is None
    assert median_duration(results(FAILED, SKIPPED)) is None
    assert median_duration(results(OK, FAILED, OK)) == 2 * SECOND
    assert median_duration(results(*[OK] * 30)) == 10.5 * SECOND
    health = assess_health(results(FAILED, OK, OK))
    assert health.last_good == health.results[1]
    assert health.median == 2.5 * SECOND


def test_result_of_a_run_in_progress() -> None:
    going = result_of(a_run(origin=Origin.SCHEDULE, started_at=NOW + SECOND))
    assert (going.duration, going.lag) == (None, SECOND)
    assert result_of(a_run(started_at=NOW + SECOND)).lag is None
    assert result_of(a_run(origin=Origin.SCHEDULE)).lag is None


# --- attention ----------------------------------------------------------------------------------
def test_most_severe_issue_per_schedule() -> None:
    def sign(name: str, cause: IssueCause, at: timedelta = timedelta(0)) -> ScheduleIssue:
        return ScheduleIssue(schedule_id=ScheduleId(name), cause=cause, at=NOW + at)

    signs = [
        sign("a", IssueCause.LATE, HOUR),
        sign("a", IssueCause.FAILING),
        sign("b", IssueCause.FAILING, MINUTE),
        sign("c", IssueCause.STOPPED, -HOUR),
        sign("d", IssueCause.FAILING),
    ]
    assert most_severe(signs) == [signs[3], signs[2], signs[1], signs[4]]


def test_schedules_stopped_by_an_error_are_detected() -> None:
    once = a_schedule(trigger=Once(NOW + HOUR))
    assert stopped_by_error(stop_with_error(a_schedule(), "broken"))
    assert stopped_by_error(stop_with_error(once, "broken"))
    assert not stopped_by_error(replace(stop_with_error(once, "failed"), last_slot=NOW + HOUR))
    assert not stopped_by_error(a_schedule())
    assert not stopped_by_error(replace(stop_with_error(a_schedule(), "x"), last_status=OK))
    assert not stopped_by_error(replace(stop_with_error(a_schedule(), "x"), last_error=""))
    limited = a_schedule(trigger=Cron("0 9 * * *", max_runs=1), fired_count=1)
    assert not stopped_by_error(stop_with_error(limited, "failed"))
    assert stopped_by_error(pause_schedule(a_schedule(), NOW, "chimes", note="gone"))
    assert not stopped_by_error(pause_schedule(a_schedule(), NOW, "chimes"))
    assert not stopped_by_error(
        pause_schedule(a_schedule(), NOW, "chimes", note="x", until=NOW + HOUR)
    )
    assert not stopped_by_error(pause_schedule(a_schedule(), NOW, "user:alice", note="holidays"))


def test_schedule_with_a_failing_trigger_counts_as_stopped() -> None:
    class Broken(Once):
        def next_after(self, moment: object) -> None:
            raise ValueError("no such zone")

    assert stopped_by_error(
        stop_with_error(a_schedule(trigger=Broken(NOW), enabled=True, next_slot=NOW), "x")
    )
