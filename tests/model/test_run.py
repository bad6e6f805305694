"""State transitions of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.model.run import (
    CRASH_LIMIT,
    Attempt,
    AttemptEnd,
    Completion,
    LogEntry,
    Outcome,
    Reason,
    Run,
    RunStatus,
    cancel,
    claim,
    complete,
    completion_of,
    mark_lost,
    mark_started,
    owns_fence,
    queue_order,
    release,
    request_cancel,
    unblock,
)
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_completion, a_retry, a_run, an_attempt

NODE = NodeId("node-1")


def running(**given: Any) -> Run:
    return claim(a_run(**given), NODE, NOW)


def test_terminal_states() -> None:
    open_ones = {status for status in RunStatus if not status.terminal}
    assert open_ones == {RunStatus.QUEUED, RunStatus.RUNNING}


def test_claim_increments_attempt_and_fence() -> None:
    before = a_run(started=True)
    run = claim(before, NODE, NOW)
    assert run == replace(
        before,
        status=RunStatus.RUNNING,
        attempt=1,
        fence=1,
        holder=NODE,
        started=False,
        claimed_at=NOW,
        started_at=NOW,
    )
    again = claim(replace(run, status=RunStatus.QUEUED), NodeId("other"), NOW + MINUTE)
    assert (again.attempt, again.fence, again.holder) == (2, 2, "other")
    # The run started when its first attempt did.
    assert (again.claimed_at, again.started_at) == (NOW + MINUTE, NOW)


def test_mark_started_sets_the_mark() -> None:
    run = running()
    assert mark_started(run) == replace(run, started=True)


def test_release_undoes_a_claim_except_for_the_fence() -> None:
    before = a_run()
    assert release(claim(before, NODE, NOW)) == replace(before, fence=1)
    waiting = replace(before, attempt=1, fence=1, started_at=NOW - MINUTE)
    assert release(claim(waiting, NODE, NOW)) == replace(waiting, fence=2)


def test_release_clears_the_started_mark() -> None:
    assert not release(mark_started(running())).started


def test_only_the_holder_of_the_current_fence_owns_a_run() -> None:
    run = running()
    assert owns_fence(run, 1)
    assert not owns_fence(run, 0)
    assert not owns_fence(run, 2)
    assert not owns_fence(replace(run, status=RunStatus.QUEUED), 1)
    assert not owns_fence(replace(run, status=RunStatus.SUCCEEDED), 1)


# --- properties of a run ----------------------------------------------------------------------
def test_rank_is_priority_with_catch_up_behind() -> None:
    ranks = [
        a_run(priority=priority, catch_up=late).rank
        for priority in (2, 1, 0, -1)
        for late in (False, True)
    ]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == len(ranks)


def test_queue_is_ordered_by_rank_available_time_planned_time_and_id() -> None:
    expected = [
        a_run(id="f", priority=1, available_at=NOW + HOUR, planned_at=NOW + HOUR),
        a_run(id="e", available_at=NOW - SECOND, planned_at=NOW + HOUR),
        a_run(id="d", planned_at=NOW - SECOND),
        a_run(id="a"),
        a_run(id="b"),
        a_run(id="c", catch_up=True, available_at=NOW - HOUR),
    ]
    by_id = sorted(expected, key=lambda run: run.id)
    assert sorted(by_id, key=queue_order) == expected


def test_claimable_and_admitted_runs() -> None:
    queued, blocked = a_run(), a_run(blocked=True)
    ended = a_run(status=RunStatus.FAILED)
    assert [run.claimable for run in (queued, blocked, running(), ended)] == [
        True,
        False,
        False,
        False,
    ]
    assert [run.admitted for run in (queued, blocked, running(), ended)] == [
        True,
        False,
        True,
        False,
    ]
    assert not unblock(blocked).blocked


def test_failures_and_crashes_are_counted_separately() -> None:
    run = running()
    attempts = tuple(an_attempt(run, NOW, end) for end in AttemptEnd)
    run = replace(run, attempts=attempts)
    assert (run.failures, run.crashes) == (2, 1)


# --- from outcome to completion ---------------------------------------------------------------
def completion_for(run: Run, **outcome: Any) -> Completion:
    made = Outcome(**({"end": AttemptEnd.FAILED} | outcome))
    return completion_of(
        run, made, an_attempt(run, NOW, made.end), (LogEntry(at=NOW, message="x"),)
    )


def test_completion_of_a_success() -> None:
    run = running()
    completion = completion_for(run, end=AttemptEnd.SUCCEEDED, result={"status": 200})
    assert completion == Completion(
        run_id=run.id,
        fence=1,
        attempt=an_attempt(run, NOW, AttemptEnd.SUCCEEDED),
        status=RunStatus.SUCCEEDED,
        result={"status": 200},
        logs=(LogEntry(at=NOW, message="x"),),
        run=run,
    )


@pytest.mark.parametrize("end", [AttemptEnd.FAILED, AttemptEnd.TIMEOUT])
def test_retryable_failure_is_retried_max_retries_times(end: AttemptEnd) -> None:
    run = a_run(policy=Policy(max_retries=2, retry_backoff=7 * SECOND))
    statuses = []
    for _ in range(3):
        run = claim(run, NODE, NOW)
        completion = completion_for(run, end=end, retryable=True, error="no", code="http_503")
        statuses.append((completion.status, completion.retry_in))
        assert (completion.error, completion.reason) == ("no", "http_503")
        run = complete(run, completion, NOW)
    ended = RunStatus(end.value)
    assert statuses == [(RunStatus.QUEUED, 7 * SECOND)] * 2 + [(ended, None)]
    assert (run.status, run.attempt) == (ended, 3)


def test_permanent_failure_is_not_retried() -> None:
    completion = completion_for(running(policy=Policy(max_retries=9)), error="404")
    assert (completion.status, completion.retry_in) == (RunStatus.FAILED, None)


def test_lost_attempts_do_not_count_as_retries() -> None:
    run = mark_lost(running(policy=Policy(max_retries=1)), NOW)
    completion = completion_for(claim(run, NODE, NOW), retryable=True)
    assert completion.status is RunStatus.QUEUED


def test_backoff_grows_with_the_failures() -> None:
    policy = Policy(max_retries=5, retry_backoff=SECOND, backoff=Backoff.EXPONENTIAL)
    run = a_run(policy=policy)
    waits = []
    for _ in range(4):
        run = claim(run, NODE, NOW)
        completion = completion_for(run, retryable=True)
        assert completion.retry_in is not None
        waits.append(completion.retry_in / SECOND)
        run = complete(run, completion, NOW)
    assert [round(wait // 1) for wait in waits] == [1, 2, 4, 8]


def test_retry_after_lengthens_the_wait() -> None:
    run = running(policy=Policy(max_retries=1))
    assert completion_for(run, retryable=True, retry_after=MINUTE).retry_in == MINUTE


def test_retry_in_of_a_task_replaces_the_backoff() -> None:
    """Also if the backoff is longer."""
    run = running(policy=Policy(max_retries=1))
    assert completion_for(run, retryable=True, retry_in=SECOND / 10).retry_in == SECOND / 10
    assert completion_for(run, retryable=True, retry_in=MINUTE).retry_in == MINUTE
    assert completion_for(run, retryable=True, retry_in=0 * SECOND).retry_in == timedelta()
    for_ever = completion_for(run, retryable=True, retry_in=timedelta.max).retry_in
    assert for_ever == timedelta(days=365)


def test_gone_pauses_the_schedule_if_the_policy_allows_it() -> None:
    gone = {"gone": True, "code": "gone"}
    assert completion_for(running(), **gone).pause_schedule == "gone"
    assert completion_for(running(policy=Policy(pause_on_gone=False)), **gone).pause_schedule == ""
    assert completion_for(running(), code="gone").pause_schedule == ""


# --- from completion to state -----------------------------------------------------------------
@pytest.mark.parametrize(
    "end", [AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED]
)
def test_completion_ends_the_run(end: AttemptEnd) -> None:
    run = mark_started(running())
    completion = a_completion(run, NOW, end, reason="why")
    assert complete(run, completion, NOW + SECOND) == replace(
        run,
        status=RunStatus(end.value),
        holder=None,
        started=False,
        result=completion.result,
        error=completion.error,
        reason="why",
        finished_at=NOW + SECOND,
        attempts=(completion.attempt,),
    )


def test_retry_is_queued_with_its_delay() -> None:
    run = running()
    completion = a_retry(run, NOW, MINUTE)
    waiting = complete(run, completion, NOW + SECOND)
    assert waiting == replace(
        run,
        status=RunStatus.QUEUED,
        holder=None,
        error=completion.error,
        available_at=NOW + SECOND + MINUTE,
        attempts=(completion.attempt,),
    )
    assert waiting.finished_at is None


def test_cancel_takes_precedence_over_a_retry_but_not_over_a_result() -> None:
    run = request_cancel(running(), "by hand", NOW)
    ended = complete(run, a_retry(run, NOW, MINUTE), NOW)
    assert (ended.status, ended.reason) == (RunStatus.CANCELED, "by hand")
    assert ended.finished_at == NOW
    assert complete(run, a_completion(run, NOW), NOW).status is RunStatus.SUCCEEDED


# --- cancelling -------------------------------------------------------------------------------
def test_cancel_of_a_queued_run_ends_it() -> None:
    for run in (a_run(), a_run(blocked=True)):
        assert request_cancel(run, "why", NOW) == cancel(run, "why", NOW)
        assert cancel(run, "why", NOW) == replace(
            run, status=RunStatus.CANCELED, reason="why", blocked=False, finished_at=NOW
        )


def test_cancel_of_a_running_run_is_requested() -> None:
    run = running()
    assert request_cancel(run, "why", NOW) == replace(run, cancel_requested=True, reason="why")


@pytest.mark.parametrize("status", [status for status in RunStatus if status.terminal])
def test_cancel_of_an_ended_run_changes_nothing(status: RunStatus) -> None:
    run = a_run(status=status)
    assert request_cancel(run, "why", NOW) is run


# --- lost leases ----------------------------------------------------------------
def lost_attempt(run: Run) -> Attempt:
    return Attempt(
        number=run.attempt,
        fence=run.fence,
        node=NODE,
        started_at=NOW,
        finished_at=NOW + HOUR,
        end=AttemptEnd.LOST,
        error="the node of this run stopped sending heartbeats",
    )


def test_lost_run_is_queued_immediately() -> None:
    run = running()
    assert mark_lost(run, NOW + HOUR) == replace(
        run,
        status=RunStatus.QUEUED,
        holder=None,
        available_at=NOW + HOUR,
        attempts=(lost_attempt(run),),
    )


def test_run_lost_after_its_start_is_retried_by_default() -> None:
    after = mark_lost(mark_started(running()), NOW)
    assert (after.status, after.started) == (RunStatus.QUEUED, False)


def test_run_lost_after_its_start_is_unknown_with_on_lost_stop() -> None:
    run = running(policy=Policy(on_lost=OnLost.STOP))
    assert mark_lost(run, NOW).status is RunStatus.QUEUED
    after = mark_lost(mark_started(run), NOW + HOUR)
    assert (after.status, after.reason) == (RunStatus.UNKNOWN, Reason.LOST_AFTER_START)
    assert (after.finished_at, after.holder) == (NOW + HOUR, None)
    assert after.error == lost_attempt(run).error


def test_lost_run_with_a_requested_cancel_is_canceled() -> None:
    after = mark_lost(request_cancel(running(), "by hand", NOW), NOW)
    assert (after.status, after.reason, after.finished_at) == (RunStatus.CANCELED, "by hand", NOW)
    assert after.crashes == 1


def test_run_lost_crash_limit_times_fails() -> None:
    run = a_run()
    for number in range(1, CRASH_LIMIT + 1):
        assert run.status is RunStatus.QUEUED
        run = mark_lost(claim(run, NODE, NOW), NOW + number * SECOND)
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.CRASH_LIMIT)
    assert (run.crashes, run.finished_at) == (CRASH_LIMIT, NOW + CRASH_LIMIT * SECOND)
    assert run.error


def test_failures_between_crashes_do_not_count_as_crashes() -> None:
    run = a_run()
    for _ in range(CRASH_LIMIT - 1):
        run = mark_lost(claim(run, NODE, NOW), NOW)
        run = claim(run, NODE, NOW)
        run = complete(run, a_retry(run, NOW, timedelta(0)), NOW)
    assert run.status is RunStatus.QUEUED


def test_lost_run_without_a_claim_time_uses_the_current_time() -> None:
    after = mark_lost(replace(running(), claimed_at=None), NOW + HOUR)
    assert after.attempts[0].started_at == NOW + HOUR
