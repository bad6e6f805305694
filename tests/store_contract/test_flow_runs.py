"""Runs of flows and their steps in the store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.policy import OnLost, Policy
from chimes.model.run import AttemptEnd, Origin, Reason, Run, RunStatus
from chimes.model.schedule import delete_schedule
from chimes.model.target import FlowTarget, TaskTarget
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import LEASE, NOW, SECOND, a_completion, a_run, a_schedule, claim_request
from tests.store_contract.scenes import joined

FLOW = FlowTarget(name="etl", input={"day": 1})
STEP = TaskTarget(name="etl/load", args={"rows": [1, 2]})
CAPABILITIES = frozenset({FLOW.requirement, STEP.requirement})


def a_step(flow: Run, **given: object) -> Run:
    return a_run(
        **{"origin": Origin.CHILD, "parent_id": flow.id, "step": "load", "target": STEP} | given
    )


async def a_claimed_flow(store: Store, node: str = "node-1", **given: object) -> Run:
    """A flow claimed by node-1."""
    await joined(store, node)
    await store.add_runs([a_run(**{"target": FLOW} | given)])
    (flow,) = await store.claim(claim_request(node, capabilities=frozenset({FLOW.requirement})))
    return flow


async def get_run(store: Store, run_id: RunId) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    return run


# A flow has no side effects of its own, so a lost node does not count as an attempt.
async def test_lost_flow_is_queued_again_without_counting_an_attempt(
    store: Store, clock: SettableClock
) -> None:
    flow = await a_claimed_flow(store, policy=Policy(on_lost=OnLost.STOP))
    for turn in range(1, 6):
        clock.advance(LEASE + SECOND)
        (rescued,) = await store.rescue(limit=10)
        assert (rescued.status, rescued.attempt, rescued.attempts) == (RunStatus.QUEUED, 0, ())
        assert rescued.started_at == flow.started_at, "started_at is kept"
        await joined(store, f"node-{turn + 1}")
        (again,) = await store.claim(claim_request(f"node-{turn + 1}", capabilities=CAPABILITIES))
        assert (again.id, again.attempt, again.fence) == (flow.id, 1, turn + 1)


async def test_released_flow_keeps_its_started_at(store: Store) -> None:
    flow = await a_claimed_flow(store)
    await store.release([(flow.id, flow.fence)])
    after = await get_run(store, flow.id)
    assert (after.status, after.attempt, after.attempts) == (RunStatus.QUEUED, 0, ())
    assert after.started_at == flow.started_at


@pytest.mark.parametrize("end", [AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED])
async def test_end_of_a_flow_cancels_its_steps(store: Store, end: AttemptEnd) -> None:
    flow = await a_claimed_flow(store)
    done, running, waiting = (a_step(flow) for _ in range(3))
    other = a_step(a_run(target=FLOW))
    await store.add_runs([done, running])
    first, second = await store.claim(claim_request(free=2, capabilities=CAPABILITIES))
    await store.finish([a_completion(first, NOW)])
    await store.add_runs([waiting, other])
    await store.finish([a_completion(flow, NOW, end)])
    assert (await get_run(store, first.id)).status is RunStatus.SUCCEEDED
    asked = await get_run(store, second.id)
    assert (asked.status, asked.cancel_requested) == (RunStatus.RUNNING, True)
    canceled = await get_run(store, waiting.id)
    assert (canceled.status, canceled.reason) == (RunStatus.CANCELED, Reason.FLOW_ENDED)
    assert (await get_run(store, other.id)).status is RunStatus.QUEUED


async def test_failed_step_of_an_ended_flow_is_not_retried(store: Store) -> None:
    flow = await a_claimed_flow(store)
    await store.add_runs([a_step(flow)])
    (step,) = await store.claim(claim_request(capabilities=CAPABILITIES))
    failed = a_completion(
        step, NOW, AttemptEnd.FAILED, status=RunStatus.QUEUED, retry_in=timedelta(seconds=1)
    )
    await store.finish([a_completion(flow, NOW, AttemptEnd.CANCELED), failed])
    assert (await get_run(store, step.id)).status is RunStatus.CANCELED


async def test_canceling_a_queued_flow_cancels_its_steps(store: Store) -> None:
    flow = await a_claimed_flow(store)
    step = a_step(flow)
    await store.add_runs([step])
    await store.release([(flow.id, flow.fence)])
    await store.cancel_run(flow.id, Reason.CANCELED_BY_HAND)
    assert (await get_run(store, step.id)).status is RunStatus.CANCELED


async def test_lost_flow_with_requested_cancel_cancels_its_steps(
    store: Store, clock: SettableClock
) -> None:
    flow = await a_claimed_flow(store)
    step = a_step(flow)
    await store.add_runs([step])
    await store.cancel_run(flow.id, Reason.CANCELED_BY_HAND)
    assert (await get_run(store, step.id)).status is RunStatus.QUEUED
    clock.advance(LEASE + SECOND)
    (rescued,) = await store.rescue(limit=10)
    assert rescued.status is RunStatus.CANCELED
    assert (await get_run(store, step.id)).status is RunStatus.CANCELED


async def test_deleting_the_schedule_of_a_flow_cancels_its_steps(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule(target=FLOW))
    await joined(store)
    await store.add_runs([a_run(schedule, target=FLOW)])
    (flow,) = await store.claim(claim_request(capabilities=CAPABILITIES))
    step = a_step(flow)
    await store.add_runs([step])
    await store.release([(flow.id, flow.fence)])
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "user:alice"))
    assert (await get_run(store, flow.id)).status is RunStatus.CANCELED
    assert (await get_run(store, step.id)).status is RunStatus.CANCELED


async def test_canceled_steps_unblock_runs_of_their_key(store: Store) -> None:
    flow = await a_claimed_flow(store)
    first = a_step(flow, concurrency_key="one at a time", concurrency_limit=1)
    other = a_run(target=STEP, concurrency_key="one at a time", concurrency_limit=1)
    await store.add_runs([first, other])
    assert (await get_run(store, other.id)).blocked
    await store.finish([a_completion(flow, NOW, AttemptEnd.CANCELED)])
    assert not (await get_run(store, other.id)).blocked


async def test_step_added_after_the_end_of_its_flow_is_canceled(store: Store) -> None:
    flow = await a_claimed_flow(store)
    await store.finish([a_completion(flow, NOW, AttemptEnd.CANCELED)])
    late = a_step(flow, concurrency_key="one at a time", concurrency_limit=1)
    decided = replace(a_step(flow), status=RunStatus.SKIPPED, finished_at=NOW)
    (added, skipped) = await store.add_runs([late, decided])
    assert (added.status, added.reason) == (RunStatus.CANCELED, Reason.FLOW_ENDED)
    assert skipped == decided
    assert await get_run(store, late.id) == added
    assert await store.claim(claim_request(capabilities=CAPABILITIES)) == ()


async def test_end_of_a_step_signals_a_change(store: Store) -> None:
    flow = await a_claimed_flow(store)
    await store.add_runs([a_step(flow)])
    (step,) = await store.claim(claim_request(capabilities=CAPABILITIES))
    before = store.changes()
    await store.finish([a_completion(step, NOW)])
    assert store.changes() > before


async def test_runs_are_filtered_by_id_and_holder(store: Store) -> None:
    flow = await a_claimed_flow(store)
    await store.add_runs([a_step(flow), a_step(flow)])
    (mine,) = await store.claim(claim_request(free=1, capabilities=CAPABILITIES))
    await joined(store, "node-2")
    (theirs,) = await store.claim(claim_request("node-2", free=1, capabilities=CAPABILITIES))

    async def found(query: RunQuery) -> set[str]:
        return {run.id for run in (await store.list_runs(query)).items}

    assert await found(RunQuery(holder=mine.holder)) == {flow.id, mine.id}
    assert await found(RunQuery(holder=theirs.holder)) == {theirs.id}
    assert await found(RunQuery(ids=(mine.id, theirs.id, RunId("nobody")))) == {mine.id, theirs.id}
    assert await found(RunQuery(ids=())) == set()
    running = RunQuery(ids=(mine.id, flow.id), statuses=(RunStatus.RUNNING,))
    assert await found(running) == {mine.id, flow.id}
