"""A store that does not answer, answers late, or loses its answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.engine import reconciler
from chimes.engine.events import CompletionFenced, DutyFailed, DutyRecovered, RunEnded
from chimes.errors import StoreUnavailable
from chimes.model.policy import OnLost, Policy
from chimes.model.run import Outcome, RunStatus
from chimes.targets.base import Call
from tests.builders import a_run, claim_request
from tests.engine.rig import SUCCESS, Faults, Recording, Rig, until

DOWN = StoreUnavailable("not now")


async def test_an_outage_delays_and_loses_nothing(rig: Rig) -> None:
    faults = Faults(rig.store)
    rig.runner.script = [rig.runner.wait, SUCCESS]
    engine = await rig.engine(store=faults.store)
    before = await rig.due_now()
    await until(lambda: rig.runner.calls)
    faults.down = DOWN
    await until(lambda: {e.duty for e in rig.emitted(DutyFailed)} >= {"scheduler", "worker"})
    during = await rig.due_now()
    rig.runner.gate.set()
    await until(lambda: any(e.duty == "recorder" for e in rig.emitted(DutyFailed)))
    assert engine.trusted
    assert (await rig.runs(before))[0].status is RunStatus.RUNNING
    faults.down = None
    for schedule in (before, during):
        (run,) = await rig.ended(schedule)
        assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    await until(lambda: {e.duty for e in rig.emitted(DutyRecovered)} >= {"scheduler", "recorder"})
    firsts = [e for e in rig.emitted(DutyFailed) if e.first and e.duty == "scheduler"]
    assert len(firsts) == 1


# The completion was written and the answer lost: a repetition is recognised.
async def test_a_completion_whose_answer_was_lost_counts_once(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.answer_lost = {"finish": DOWN}
    await rig.engine(store=faults.store)
    schedule = await rig.due_now()
    (run,) = await rig.ended(schedule)
    await until(lambda: rig.emitted(RunEnded))
    assert faults.count["finish"] == 2
    assert rig.emitted(CompletionFenced) == []
    assert len(run.attempts) == 1
    assert rig.engines[0].running == ()


# A live node must not keep a run that it does not know of.
async def test_a_claim_whose_answer_was_lost_is_released(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store)
    await until(lambda: faults.count["next_available"])
    faults.answer_lost = {"claim": DOWN}
    run = a_run(available_at=await rig.now())
    await rig.store.add_runs([run])
    done = await rig.reached(run.id, RunStatus.SUCCEEDED)
    assert (done.attempt, done.fence, len(done.attempts)) == (1, 2, 1)
    assert rig.runner.called(run.id) == [2]


# The server commits a claim after the client has given up and reconciled.
async def test_a_claim_committed_late_is_released(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "IDLE_INTERVAL", 0.3)
    faults = Faults(rig.store)
    engine = await rig.engine(store=faults.store)
    await until(lambda: faults.count["next_available"])
    # So that the node cannot claim the run normally.
    faults.failing = {"next_available": DOWN}
    await until(lambda: rig.emitted(DutyFailed))
    run = a_run(available_at=await rig.now())
    await rig.store.add_runs([run])
    assert await rig.store.claim(claim_request(engine.node_id))
    faults.failing = {}
    done = await rig.reached(run.id, RunStatus.SUCCEEDED)
    assert (done.attempt, done.fence, len(done.attempts)) == (1, 2, 1)
    assert rig.runner.called(run.id) == [2]


async def test_a_fire_whose_answer_was_lost_is_released(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store)
    await until(lambda: faults.count["next_available"] > 1)
    faults.answer_lost = {"fire_due": DOWN}
    schedule = await rig.due_now()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    assert len(rig.runner.called(run.id)) == 1


# The started mark was written and the answer lost: the target was not called.
async def test_a_start_whose_answer_was_lost_is_released(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.answer_lost = {"start": DOWN}
    await rig.engine(store=faults.store)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, run.fence) == (RunStatus.SUCCEEDED, 1, 2)
    assert rig.runner.called(run.id) == [2]


async def test_a_bug_in_a_pass_does_not_end_the_engine(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.failing = {"next_due": KeyError("a bug"), "rescue": ValueError("another")}
    await rig.engine(store=faults.store)
    await until(lambda: {e.duty for e in rig.emitted(DutyFailed)} >= {"scheduler", "maintenance"})
    faults.failing = {}
    schedule = await rig.due_now()
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.SUCCEEDED


async def test_a_result_that_cannot_be_written_fails_its_run_and_no_other(rig: Rig) -> None:
    class Refusing(Faults):
        def __getattr__(self, name: str) -> object:
            verb = super().__getattr__(name)
            if name != "finish":
                return verb

            async def finish(completions: list[object]) -> object:
                if any((v.result or {}).get("odd") for v in completions):
                    raise TypeError("cannot be written")
                return await verb(completions)

            return finish

    async def at_the_gate(call: Call) -> Outcome:
        await rig.runner.gate.wait()
        return Outcome(end=SUCCESS.end, result={"odd": call.run.priority == 1})

    rig.runner.script = [at_the_gate]
    await rig.engine(store=Refusing(rig.store).store)
    now = await rig.now()
    good = [await rig.once_at(now) for _ in range(3)]
    bad = await rig.once_at(now, priority=1)
    await until(lambda: len(rig.runner.calls) == 4)
    rig.runner.gate.set()
    for schedule in good:
        assert (await rig.ended(schedule))[0].status is RunStatus.SUCCEEDED
    (run,) = await rig.ended(bad)
    assert (run.status, run.reason) == (RunStatus.FAILED, "unstorable_result")
    assert run.error == "the result could not be stored: TypeError: cannot be written"


async def test_a_completion_outlives_the_lease_of_an_unclaimed_run(rig: Rig) -> None:
    faults = Faults(rig.store)
    rig.runner.script = [rig.runner.wait]
    engine = await rig.engine(store=faults.store, lease=timedelta(seconds=2))
    schedule = await rig.due_now(policy=Policy())
    await until(lambda: rig.runner.calls)
    faults.down = DOWN
    rig.runner.gate.set()
    await until(lambda: not engine.trusted)
    faults.down = None
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, len(rig.runner.calls)) == (RunStatus.SUCCEEDED, 1, 1)
    await until(lambda: engine.trusted)


async def test_an_unknown_kind_stays_in_the_queue(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(
        store=faults.store, runner=Recording("agent"), poll_interval=timedelta(seconds=0.05)
    )
    schedule = await rig.due_now()
    await until(lambda: faults.count["next_available"] >= 8)
    (run,) = await rig.runs(schedule)
    assert run.status is RunStatus.QUEUED
    # About one claim per poll, not a busy loop.
    assert 2 <= faults.count["claim"] <= 20
    await rig.engine()
    (done,) = await rig.ended(schedule)
    assert done.status is RunStatus.SUCCEEDED
