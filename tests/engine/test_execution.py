"""Execution of attempts: priorities, retries, timeouts, cancels."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from chimes.engine import executor as executor
from chimes.engine import in_flight
from chimes.engine.events import RunReleased, RunRetrying, TargetRaised, TargetStuck
from chimes.engine.in_flight import DEFAULT_LOG_LIMITS
from chimes.errors import StoreUnavailable
from chimes.model.planning import manual_run
from chimes.model.policy import Backoff, Policy
from chimes.model.run import AttemptEnd, Outcome, Reason, RunStatus
from chimes.model.target import TaskTarget
from chimes.targets.base import Call, WrongNode
from tests.builders import a_run
from tests.engine.rig import FAILURE, SUCCESS, Faults, Recording, Rig, eventually, until


async def test_a_manual_run_does_not_change_its_schedule(rig: Rig) -> None:
    schedule = await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.engine()
    run = manual_run(schedule, await rig.now())
    await rig.store.add_runs([run])
    done = await rig.reached(run.id, RunStatus.SUCCEEDED)
    assert (done.slot, done.result) == (None, {"status": 200})
    after = await rig.schedule(schedule.id)
    assert (after.next_slot, after.next_run_at) == (schedule.next_slot, schedule.next_run_at)


# At most as many runs as permits, the higher rank first.
async def test_priorities_decide_which_run_gets_the_next_permit(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait, SUCCESS]
    await rig.engine(workers=1)
    now = await rig.now()
    first = a_run(available_at=now, created_at=now)
    await rig.store.add_runs([first])
    await until(lambda: rig.runner.calls)
    waiting = [a_run(priority=p, available_at=now, created_at=now) for p in (0, 9, -3, 5)]
    late = a_run(priority=5, catch_up=True, available_at=now, created_at=now)
    await rig.store.add_runs([*waiting, late])
    assert len(rig.runner.calls) == 1
    rig.runner.gate.set()
    await until(lambda: len(rig.runner.calls) == 6)
    order = [(call.run.priority, call.run.catch_up) for call in rig.runner.calls[1:]]
    assert order == [(9, False), (5, False), (5, True), (0, False), (-3, False)]


# An effect without a stored completion is repeated if the process dies.
async def test_effects_without_completion_are_at_most_twice_the_permits(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.failing = {"finish": StoreUnavailable("not now")}
    rig.runner.script = [SUCCESS]
    now = await rig.now()
    await rig.store.add_runs([a_run(available_at=now, created_at=now) for _ in range(20)])
    await rig.engine(workers=3, store=faults.store)
    await until(lambda: len(rig.runner.calls) == 6)
    tried = faults.count["finish"]
    await until(lambda: faults.count["finish"] >= tried + 3)
    assert len(rig.runner.calls) == 6
    faults.failing = {}
    await until(lambda: len(rig.runner.calls) == 20)


async def test_a_fired_slot_does_not_overtake_a_higher_rank(
    rig: Rig,
) -> None:
    faults = Faults(rig.store)
    faults.failing = {"claim": StoreUnavailable("not now")}
    important = a_run(priority=9, available_at=await rig.now())
    await rig.store.add_runs([important])
    await rig.engine(workers=1, store=faults.store)
    schedule = await rig.due_now()
    await eventually(lambda: rig.runs(schedule, RunStatus.QUEUED), bool)
    faults.failing = {}
    await rig.ended(schedule)
    assert rig.runner.calls[0].run.id == important.id


# The same id, with rising attempt and fence.
@pytest.mark.parametrize("backoff", list(Backoff))
async def test_retries_keep_the_run_id(rig: Rig, backoff: Backoff) -> None:
    rig.runner.script = [FAILURE, FAILURE, SUCCESS]
    base = timedelta(seconds=0.15)
    schedule = await rig.due_now(policy=Policy(max_retries=2, retry_backoff=base, backoff=backoff))
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, run.fence) == (RunStatus.SUCCEEDED, 3, 3)
    assert [(a.number, a.fence, a.end) for a in run.attempts] == [
        (1, 1, AttemptEnd.FAILED),
        (2, 2, AttemptEnd.FAILED),
        (3, 3, AttemptEnd.SUCCEEDED),
    ]
    assert {call.run.id for call in rig.runner.calls} == {run.id}
    assert [call.run.attempt for call in rig.runner.calls] == [1, 2, 3]
    gaps = [later.started_at - earlier.finished_at for earlier, later in pairwise(run.attempts)]
    # The start time is an estimate of the store's time, off by half a round trip.
    wrong = timedelta(seconds=0.05)
    assert gaps[0] >= base - wrong
    assert gaps[1] >= (base if backoff is Backoff.FIXED else base * 2) - wrong
    assert len(rig.emitted(RunRetrying)) == 2


# max_retries counts the extra attempts.
async def test_a_run_fails_after_its_last_retry(rig: Rig) -> None:
    rig.runner.script = [FAILURE]
    schedule = await rig.due_now(
        policy=Policy(max_retries=1, retry_backoff=timedelta(seconds=0.01))
    )
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.FAILED, 2)
    assert (run.error, run.reason) == ("it did not work", "http_500")
    assert (await rig.schedule(schedule.id)).last_error == "it did not work"


async def test_a_permanent_failure_is_not_retried(rig: Rig) -> None:
    rig.runner.script = [Outcome(end=AttemptEnd.FAILED, error="404")]
    schedule = await rig.due_now(policy=Policy(max_retries=5))
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.FAILED, 1)


async def test_a_target_beyond_its_deadline_is_stopped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "TIMEOUT_SLACK", 0.05)
    rig.runner.script = [rig.runner.wait]
    schedule = await rig.due_now(policy=Policy(timeout=timedelta(seconds=0.1)))
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempts[0].end) == (RunStatus.TIMEOUT, AttemptEnd.TIMEOUT)
    assert run.error == "no answer within 0.1 s"
    assert rig.runner.stopped == [run.id]


async def test_a_timeout_is_retried(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "TIMEOUT_SLACK", 0.05)
    rig.runner.script = [rig.runner.wait, SUCCESS]
    schedule = await rig.due_now(
        policy=Policy(
            timeout=timedelta(seconds=0.1), max_retries=1, retry_backoff=timedelta(seconds=0.01)
        )
    )
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)


async def test_target_that_ignores_cancellation_is_stuck_and_frees_its_permit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "TIMEOUT_SLACK", 0.05)
    monkeypatch.setattr(executor, "STUCK_AFTER", 0.1)

    async def ignores_cancellation(call: Call) -> Outcome:
        while not rig.runner.gate.is_set():
            try:
                await rig.runner.gate.wait()
            except asyncio.CancelledError:
                continue
        return SUCCESS

    rig.runner.script = [ignores_cancellation, SUCCESS]
    await rig.engine(workers=1)
    schedule = await rig.due_now(policy=Policy(timeout=timedelta(seconds=0.05)))
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.TIMEOUT
    assert [event.run.id for event in rig.emitted(TargetStuck)] == [run.id]
    after = await rig.due_now()
    await rig.ended(after)
    rig.runner.gate.set()
    assert (await rig.run(run.id)).status is RunStatus.TIMEOUT


async def test_a_target_that_raises_fails_its_run_only(rig: Rig) -> None:
    async def broken(call: Call) -> Outcome:
        raise ZeroDivisionError("by nought")

    rig.runner.script = [broken, SUCCESS]
    schedule = await rig.due_now()
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.error) == (RunStatus.FAILED, "ZeroDivisionError: by nought")
    assert isinstance(rig.emitted(TargetRaised)[0].error, ZeroDivisionError)
    other = await rig.due_now()
    assert (await rig.ended(other))[0].status is RunStatus.SUCCEEDED


async def test_a_waiting_run_is_canceled_and_never_called(rig: Rig) -> None:
    now = await rig.now()
    run = a_run(available_at=now + timedelta(seconds=0.3), created_at=now)
    await rig.store.add_runs([run])
    await rig.engine()
    await rig.store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    later = a_run(available_at=now + timedelta(seconds=0.5), created_at=now)
    await rig.store.add_runs([later])
    await rig.reached(later.id, RunStatus.SUCCEEDED)
    assert (await rig.run(run.id)).status is RunStatus.CANCELED
    assert rig.runner.called(run.id) == []


async def test_a_running_run_is_stopped_when_canceled(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait]
    schedule = await rig.due_now(policy=Policy(max_retries=3))
    await rig.engine(poll_interval=timedelta(seconds=30))
    await until(lambda: rig.runner.calls)
    run_id = rig.runner.calls[0].run.id
    await rig.store.cancel_run(run_id, Reason.CANCELED_BY_HAND)
    (run,) = await rig.ended(schedule)
    assert (run.status, run.reason) == (RunStatus.CANCELED, Reason.CANCELED_BY_HAND)
    assert [a.end for a in run.attempts] == [AttemptEnd.CANCELED]
    assert rig.runner.stopped == [run_id]


# The target gets the store's time.
async def test_log_lines_of_an_attempt_are_limited(rig: Rig) -> None:
    async def logs_many_lines(call: Call) -> Outcome:
        for number in range(DEFAULT_LOG_LIMITS.lines + 50):
            call.log("info", f"line {number}")
        return SUCCESS

    rig.runner.script = [logs_many_lines]
    schedule = await rig.due_now()
    await rig.engine()
    (run,) = await rig.ended(schedule)
    lines = await rig.store.read_logs(run.id, limit=10_000)
    assert len(lines) == DEFAULT_LOG_LIMITS.lines + 1
    assert (lines[0].message, lines[0].level) == ("line 0", "info")
    assert lines[-1].level == "warning"
    assert abs(rig.runner.calls[0].triggered_at - await rig.now()) < timedelta(seconds=5)


async def test_a_permit_is_free_as_soon_as_the_attempt_ends(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.hanging = {"finish"}
    engine = await rig.engine(store=faults.store, workers=1)
    now = await rig.now()
    first, second = (a_run(available_at=now) for _ in range(2))
    await rig.store.add_runs([first, second])
    await until(lambda: len(rig.runner.calls) == 2)
    assert set(engine.running) == {first.id, second.id}, "in flight until the completion is written"
    assert (await rig.run(first.id)).status is RunStatus.RUNNING
    faults.freed.set()


async def test_the_next_claim_is_sent_before_the_first_call(rig: Rig) -> None:
    faults = Faults(rig.store)
    claims: list[int] = []

    async def look(call: Call) -> Outcome:
        claims.append(faults.count["claim"])
        return SUCCESS

    rig.runner.script = [look]
    now = await rig.now()
    await rig.store.add_runs([a_run(available_at=now) for _ in range(12)])
    await rig.engine(store=faults.store, workers=4)
    await until(lambda: len(claims) == 12)
    assert claims[0] == 2


# An outage of completions only: the number of unwritten ones is bounded.
async def test_nothing_is_claimed_while_too_many_completions_wait(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.failing = {"finish": StoreUnavailable("not now")}
    await rig.engine(store=faults.store, workers=1)
    now = await rig.now()
    runs = [a_run(available_at=now) for _ in range(6)]
    await rig.store.add_runs(runs)
    await until(lambda: faults.count["finish"] >= 3 and len(rig.runner.calls) >= 2)
    assert len(rig.runner.calls) == 2
    faults.failing = {}
    for run in runs:
        await rig.reached(run.id, RunStatus.SUCCEEDED)


# A node with an older configuration file claims a run that it cannot execute.
async def test_a_run_for_another_node_is_released(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "YIELD_SECONDS", 600.0)

    async def not_here(call: Call) -> Outcome:
        raise WrongNode

    rig.runner.script = [not_here]
    now = await rig.now()
    run = a_run(available_at=now, created_at=now)
    task = TaskTarget(name="other")
    tasks = Recording("task")
    tasks.capabilities = frozenset({task.requirement})
    await rig.engine(runners=[tasks])
    await rig.store.add_runs([run])
    await until(lambda: rig.emitted(RunReleased))
    await eventually(lambda: rig.run(run.id), lambda found: found.status is RunStatus.QUEUED)
    # The node that cannot execute it claims other runs, but not this one again.
    await rig.store.add_runs([a_run(target=task, available_at=now)])
    await until(lambda: tasks.calls)
    assert len(rig.runner.calls) == 1
    other = Recording()
    await rig.engine(runner=other)
    done = await rig.reached(run.id, RunStatus.SUCCEEDED)
    assert [attempt.end for attempt in done.attempts] == [AttemptEnd.SUCCEEDED]
    assert len(other.calls) == 1
    assert not rig.emitted(TargetRaised)


async def test_a_yielded_requirement_is_claimed_again_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "YIELD_SECONDS", 0.05)

    async def not_here(call: Call) -> Outcome:
        raise WrongNode

    rig.runner.script = [not_here, not_here, SUCCESS]
    now = await rig.now()
    run = a_run(available_at=now, created_at=now)
    await rig.engine()
    await rig.store.add_runs([run])
    await rig.reached(run.id, RunStatus.SUCCEEDED)
    assert len(rig.runner.calls) == 3
