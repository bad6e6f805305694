"""A draining node starts nothing, loses nothing and repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest

from chimes.engine import engine as engine_module
from chimes.engine import recorder
from chimes.engine.events import DrainEnded, DrainStarted
from chimes.errors import StoreUnavailable
from chimes.model.policy import OnLost, Policy
from chimes.model.run import AttemptEnd, Completion, Outcome, RunStatus
from chimes.store.port import CompletionResult
from chimes.targets.base import Call
from tests.builders import a_run
from tests.engine.rig import SUCCESS, Faults, Recording, Rig, eventually, until


async def test_running_runs_finish_within_the_grace(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait]
    engine = await rig.engine()
    schedule = await rig.due_now()
    await until(lambda: rig.runner.calls)
    drain = asyncio.create_task(engine.drain())
    await until(lambda: rig.emitted(DrainStarted))
    # A pass under way at that moment may still fire what is due.
    await asyncio.gather(*(poller.stop() for poller in engine._claiming))
    later = await rig.due_now()
    manual = a_run(available_at=await rig.now())
    await rig.store.add_runs([manual])
    rig.runner.gate.set()
    await drain
    (run,) = await rig.runs(schedule)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    assert await rig.runs(later) == []
    assert (await rig.run(manual.id)).status is RunStatus.QUEUED
    assert len(rig.runner.calls) == 1
    assert await rig.store.nodes() == ()
    assert rig.runner.closed
    assert rig.emitted(DrainEnded)[0].given_up == 0


async def test_unstarted_runs_are_released(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.hanging = {"start"}
    engine = await rig.engine(store=faults.store)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await eventually(lambda: rig.runs(schedule, RunStatus.RUNNING), bool)
    await asyncio.wait_for(engine.drain(timedelta(hours=1)), 60)
    (run,) = await rig.runs(schedule)
    assert (run.status, run.attempt, run.attempts) == (RunStatus.QUEUED, 0, ())
    assert rig.runner.calls == []
    await rig.engine()
    (done,) = await rig.ended(schedule)
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 1)


async def test_marked_but_unstarted_runs_are_released(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.unanswered = {"start"}
    engine = await rig.engine(store=faults.store)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await eventually(lambda: rig.runs(schedule), lambda runs: [run for run in runs if run.started])
    await asyncio.wait_for(engine.drain(timedelta(hours=1)), 60)
    (run,) = await rig.runs(schedule)
    assert (run.status, run.attempt, run.attempts) == (RunStatus.QUEUED, 0, ())
    await rig.engine()
    (done,) = await rig.ended(schedule)
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 1)


async def test_a_run_that_outlasts_the_grace_runs_again_on_another_node(rig: Rig) -> None:
    stopping = Recording()
    stopping.script = [stopping.wait]
    engine = await rig.engine(runner=stopping)
    schedule = await rig.due_now()
    await until(lambda: stopping.calls)
    await engine.drain(timedelta(seconds=0.05))
    assert stopping.stopped
    assert rig.emitted(DrainEnded)[0].given_up == 1
    (run,) = await rig.runs(schedule)
    assert (run.status, run.attempts[0].end) == (RunStatus.QUEUED, AttemptEnd.LOST)
    await rig.engine()
    (done,) = await rig.ended(schedule)
    assert (done.status, done.attempt, done.fence) == (RunStatus.SUCCEEDED, 2, 2)


# One completion that cannot be written blocks neither the others nor the drain.
async def test_every_completion_is_written_before_the_node_leaves(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "BATCH", 2)
    monkeypatch.setattr(engine_module, "FINAL_WRITE_TIMEOUT", 2.0)
    faults = Faults(rig.store)
    faults.failing = {"finish": StoreUnavailable("not now")}
    engine = await rig.engine(store=faults.store, workers=9)
    now = await rig.now()
    runs = [a_run(available_at=now) for _ in range(5)]
    await rig.store.add_runs(runs)
    await until(lambda: len(rig.runner.calls) == 5)
    finish, refused = rig.store.finish, runs[2].id

    async def choosy(completions: Sequence[Completion]) -> CompletionResult:
        if any(v.run_id == refused and v.status is RunStatus.SUCCEEDED for v in completions):
            raise TypeError("cannot be written")
        return await finish(completions)

    drain = asyncio.create_task(engine.drain(timedelta(0)))
    await until(lambda: rig.emitted(DrainStarted))
    # The store is available again only for the drain itself.
    for poller in engine._recording:
        await poller.stop()
    monkeypatch.setattr(rig.store, "finish", choosy)
    faults.failing = {}
    await asyncio.wait_for(drain, 60)
    rows = [await rig.run(run.id) for run in runs]
    assert [(run.attempt, run.status) for run in rows if run.id != refused] == [
        (1, RunStatus.SUCCEEDED)
    ] * 4
    assert (await rig.run(refused)).reason == "unstorable_result"
    assert await rig.store.nodes() == ()
    assert rig.runner.closed


async def test_a_second_drain_call_ends_the_grace(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait]
    engine = await rig.engine()
    await rig.due_now()
    await until(lambda: rig.runner.calls)
    drain = asyncio.create_task(engine.drain(timedelta(hours=1)))
    await until(lambda: rig.emitted(DrainStarted))
    assert engine.draining
    await asyncio.wait_for(engine.drain(), 60)
    await drain
    assert len(rig.runner.stopped) == 1


# A rolling restart under load, with runs shorter than the grace period.
async def test_rolling_restarts_repeat_no_short_run(rig: Rig) -> None:
    async def brief(call: Call) -> Outcome:
        await asyncio.sleep(0.02)  # the duration of the run
        return SUCCESS

    rig.runner.script = [brief]
    now = await rig.now()
    schedules = [
        await rig.every(0.1, now, policy=Policy(misfire_grace=timedelta(minutes=1)))
        for _ in range(5)
    ]
    for _ in range(4):
        engine = await rig.engine()
        seen = len(rig.runner.calls)
        await until(lambda seen=seen: len(rig.runner.calls) > seen + 5)
        await engine.drain()
    for schedule in schedules:
        runs = await rig.runs(schedule)
        assert all(run.attempt <= 1 for run in runs)
        slots = [run.slot for run in runs]
        assert len(set(slots)) == len(slots)
        steps = {(b - a).total_seconds() for a, b in pairwise(slots) if a and b}
        assert steps <= {0.1}
    fences = [(call.run.id, call.run.fence) for call in rig.runner.calls]
    assert len(set(fences)) == len(fences)
    assert len({run_id for run_id, _ in fences}) == len(fences)
