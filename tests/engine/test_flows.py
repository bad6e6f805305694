"""Flows from the queue to their end, on every store."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from chimes.engine.events import RunReleased
from chimes.model.run import AttemptEnd, Origin, Reason, RunStatus
from chimes.targets.flow import FlowBuilder
from tests.builders import ALICE
from tests.engine.flows import FlowRig
from tests.engine.rig import Rig, eventually, until


@pytest.fixture
def flows(rig: Rig) -> FlowRig:
    return FlowRig(rig)


def etl() -> FlowBuilder:
    flow = FlowBuilder("etl")

    @flow.step()
    def extract(source: str, size: int = 3) -> list[int]:
        return list(range(size)) if source == "numbers" else []

    @flow.step(after=[extract])
    async def double(extract: list[int]) -> list[int]:
        return [each * 2 for each in extract]

    @flow.step(after=["extract"])
    def count(extract: list[int]) -> int:
        return len(extract)

    @flow.step(after=["double", "count"])
    def load(double: list[int], count: int, input: dict[str, object]) -> dict[str, object]:
        return {"sum": sum(double), "count": count, "source": input["source"]}

    return flow


async def test_outputs_are_passed_by_name_between_steps(flows: FlowRig) -> None:
    await flows.engine(etl())
    run_id = await flows.start(etl(), source="numbers")
    run = await flows.ended(run_id)
    assert (run.status, run.attempt, run.error) == (RunStatus.SUCCEEDED, 1, "")
    assert run.result == {"value": {"load": {"sum": 6, "count": 3, "source": "numbers"}}}
    steps = await flows.steps(run_id)
    assert steps.keys() == {"extract", "double", "count", "load"}
    for step in steps.values():
        assert (step.status, step.attempt, step.origin) == (RunStatus.SUCCEEDED, 1, Origin.CHILD)
        assert step.parent_id == run_id
    assert steps["load"].created_at >= steps["double"].created_at


# History and last result of the schedule are those of the flow, not of its steps.
async def test_a_scheduled_flow_is_one_run_of_its_schedule(flows: FlowRig) -> None:
    from chimes.model.target import FlowTarget

    flow = FlowBuilder("half")
    flow.step(name="good")(lambda: 1)

    def bad() -> None:
        raise ValueError("no")

    flow.step(after=["good"])(bad)
    flow.step(name="last", run_if="always", after=["bad"])(lambda: 1)
    await flows.engine(flow)
    target = FlowTarget(name="half")
    schedule = await flows.rig.due_now(target=target, owner=ALICE, priority=3)
    (run,) = await flows.rig.ended(schedule)
    after = await flows.rig.schedule(schedule.id)
    assert (after.last_status, after.last_error) == (RunStatus.FAILED, run.error)
    assert after.last_success_at is None
    steps = await flows.steps(run.id)
    assert len(steps) == 3
    for step in steps.values():
        assert (step.schedule_id, step.slot) == (None, None)
        assert (step.owner, step.priority) == (ALICE, 3)
        assert step.schedule_name == schedule.name


async def test_branches_run_concurrently(flows: FlowRig) -> None:
    flow = FlowBuilder("beside")
    both = threading.Barrier(2, timeout=60)
    flow.step(name="left")(lambda: both.wait() >= 0)
    flow.step(name="right")(lambda: both.wait() >= 0)
    await flows.engine(flow)
    run = await flows.ended(await flows.start(flow))
    assert run.result == {"value": {"left": True, "right": True}}


async def test_a_condition_decides_and_is_recorded(flows: FlowRig) -> None:
    flow = FlowBuilder("either")
    flow.step(name="look")(lambda size: size)
    flow.step(name="small", after=["look"], when=lambda look: look < 10)(lambda: "small")
    flow.step(name="large", after=["look"], when=lambda outputs: outputs["look"] >= 10)(
        lambda: "large"
    )
    flow.step(name="beyond", after=["small"])(lambda small: small)
    flow.step(name="say", after=["small", "large"])(lambda small, large: [small, large])
    await flows.engine(flow)
    run_id = await flows.start(flow, size=12)
    run = await flows.ended(run_id)
    assert run.result == {"value": {"beyond": None, "say": [None, "large"]}}
    steps = await flows.steps(run_id)
    reasons = {name: (step.status, step.reason) for name, step in steps.items()}
    assert reasons["small"] == (RunStatus.SKIPPED, "condition")
    assert reasons["beyond"] == (RunStatus.SKIPPED, "upstream_skipped")
    assert reasons["large"] == (RunStatus.SUCCEEDED, "")
    assert steps["small"].attempt == 0


async def test_a_condition_that_raises_fails_its_step(flows: FlowRig) -> None:
    flow = FlowBuilder("wrong")
    flow.step(name="look", when=lambda missing: missing)(lambda: 1)
    await flows.engine(flow)
    run = await flows.ended(await flows.start(flow))
    assert run.status is RunStatus.FAILED
    assert run.error.startswith("step 'look' failed: its condition raised TypeError")


async def test_a_mapped_list_keeps_its_order(flows: FlowRig) -> None:
    flow = FlowBuilder("mapped")
    flow.step(name="numbers")(lambda upto: list(range(upto)))
    flow.step(name="square", after=["numbers"], map="numbers", concurrency=7)(
        lambda item, index, offset=0: [index, item * item + offset]
    )
    flow.step(name="gather", after=["square"])(lambda square: square)
    await flows.engine(flow)
    run_id = await flows.start(flow, upto=40, offset=1)
    run = await flows.ended(run_id)
    assert run.result == {"value": {"gather": [[n, n * n + 1] for n in range(40)]}}
    assert len(await flows.steps(run_id)) == 42


async def test_mapped_elements_respect_their_concurrency(flows: FlowRig) -> None:
    flow, now, most = FlowBuilder("few"), 0, 0
    lock = threading.Lock()

    @flow.step(map="items", concurrency=3)
    async def one(item: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        await asyncio.sleep(0.01)  # the duration of an element
        with lock:
            now -= 1

    await flows.engine(flow)
    run = await flows.ended(await flows.start(flow, items=list(range(20))))
    assert run.status is RunStatus.SUCCEEDED
    assert 1 < most <= 3


async def test_map_over_an_empty_list_returns_an_empty_list(flows: FlowRig) -> None:
    flow = FlowBuilder("empty")
    flow.step(name="each", map="items")(lambda item: item)
    flow.step(name="gather", after=["each"])(lambda each: each)
    await flows.engine(flow)
    run = await flows.ended(await flows.start(flow, items=[]))
    assert run.result == {"value": {"gather": []}}


async def test_a_failed_step_stops_only_its_dependents(flows: FlowRig) -> None:
    flow = FlowBuilder("partly")

    @flow.step()
    def broken() -> None:
        raise ValueError("no such file")

    flow.step(name="good")(lambda: 1)
    flow.step(name="after_broken", after=["broken"])(lambda: 1)
    flow.step(name="later", after=["after_broken", "good"])(lambda: 1)
    flow.step(name="after_good", after=["good"])(lambda: 1)
    flow.step(name="either", after=["broken", "good"], run_if="any")(lambda broken, good: good)
    flow.step(name="sweep", after=["later"], run_if="always")(lambda: "swept")
    await flows.engine(flow)
    run_id = await flows.start(flow)
    run = await flows.ended(run_id)
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert run.error == "step 'broken' failed: ValueError: no such file"
    steps = await flows.steps(run_id)
    statuses = {name: (step.status.value, step.reason) for name, step in steps.items()}
    assert statuses["after_broken"] == ("skipped", "upstream_failed")
    assert statuses["later"] == ("skipped", "upstream_failed")
    for name in ("good", "after_good", "either", "sweep"):
        assert statuses[name] == ("succeeded", ""), name


async def test_a_failed_element_fails_its_step_after_all_have_ended(flows: FlowRig) -> None:
    flow = FlowBuilder("one bad".replace(" ", "_"))

    @flow.step(map="items")
    def half(item: int) -> float:
        return 1 / item

    flow.step(name="gather", after=["half"])(lambda half: half)
    await flows.engine(flow)
    run_id = await flows.start(flow, items=[1, 0, 2])
    run = await flows.ended(run_id)
    assert run.error == "step 'half[1]' failed: ZeroDivisionError: division by zero"
    steps = await flows.steps(run_id)
    assert (steps["half[2]"].status, steps["gather"].status) == (
        RunStatus.SUCCEEDED,
        RunStatus.SKIPPED,
    )


async def test_each_step_has_its_own_retries(flows: FlowRig) -> None:
    flow, tries = FlowBuilder("again"), []

    @flow.step(retries=3, retry_backoff="10ms")
    def shaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    flow.step(name="after", after=["shaky"])(lambda shaky: shaky)
    await flows.engine(flow)
    run_id = await flows.start(flow)
    run = await flows.ended(run_id)
    assert (run.result, run.attempt) == ({"value": {"after": 3}}, 1)
    shaky_run = (await flows.steps(run_id))["shaky"]
    assert (shaky_run.attempt, len(shaky_run.attempts)) == (3, 3)


async def test_a_step_has_its_own_timeout(flows: FlowRig) -> None:
    flow = FlowBuilder("slow")

    @flow.step(timeout=0.1)
    async def hang() -> None:
        await asyncio.Event().wait()

    await flows.engine(flow)
    run = await flows.ended(await flows.start(flow))
    assert run.status is RunStatus.FAILED
    assert run.error.startswith("step 'hang' timed out")


def hanging(flows: FlowRig) -> FlowBuilder:
    flow = FlowBuilder("hanging")

    @flow.step()
    async def hang() -> None:
        flows.seen.append("hangs")
        try:
            await asyncio.Event().wait()
        finally:
            flows.seen.append("stopped")

    flow.step(name="after", after=["hang"])(lambda: 1)
    return flow


async def test_canceling_a_flow_cancels_its_steps(flows: FlowRig) -> None:
    flow = hanging(flows)
    await flows.engine(flow)
    run_id = await flows.start(flow)
    await until(lambda: flows.seen)
    await flows.rig.store.cancel_run(run_id, Reason.CANCELED_BY_HAND)
    run = await flows.ended(run_id)
    assert (run.status, run.reason) == (RunStatus.CANCELED, Reason.CANCELED_BY_HAND)
    step = await flows.step(run_id, "hang", lambda step: step.status.terminal)
    assert (step.status, step.reason) == (RunStatus.CANCELED, Reason.FLOW_ENDED)
    assert flows.seen == ["hangs", "stopped"]
    assert (await flows.steps(run_id)).keys() == {"hang"}


async def test_a_flow_that_takes_too_long_ends_with_its_steps(flows: FlowRig) -> None:
    flow = hanging(flows)
    await flows.engine(flow)
    run_id = await flows.start(flow, limit=timedelta(seconds=0.3))
    run = await flows.ended(run_id)
    assert (run.status, run.attempt) == (RunStatus.TIMEOUT, 1)
    step = await flows.step(run_id, "hang", lambda step: step.status.terminal)
    assert step.status is RunStatus.CANCELED


# A flow is released immediately; its running steps end on this node.
async def test_a_stopping_node_releases_its_flows(flows: FlowRig) -> None:
    flow, gate = FlowBuilder("moving"), threading.Event()
    flow.step(name="first")(lambda: flows.seen.append("first"))

    @flow.step(after=["first"])
    def second() -> str:
        flows.seen.append("second")
        assert gate.wait(60)
        return "done"

    flow.step(name="third", after=["second"])(lambda second: flows.seen.append("third") or second)
    leaving = await flows.engine(flow)
    run_id = await flows.start(flow)
    await until(lambda: "second" in flows.seen)
    drain = asyncio.create_task(leaving.drain(timedelta(seconds=20)))
    await until(lambda: flows.rig.emitted(RunReleased))
    free = await eventually(lambda: flows.rig.run(run_id), lambda run: run.holder is None)
    assert (free.status, free.attempt, free.attempts) == (RunStatus.QUEUED, 0, ())
    staying = await flows.engine(flow)
    await eventually(lambda: flows.rig.run(run_id), lambda run: run.holder == staying.node_id)
    gate.set()
    await drain
    run = await flows.ended(run_id)
    assert (run.status, run.attempt, run.fence) == (RunStatus.SUCCEEDED, 1, 2)
    assert [attempt.end for attempt in run.attempts] == [AttemptEnd.SUCCEEDED]
    assert run.result == {"value": {"third": "done"}}
    assert flows.seen == ["first", "second", "third"], "no step runs twice"
    for step in (await flows.steps(run_id)).values():
        assert step.attempt == 1


async def test_many_flows_with_few_permits_do_not_deadlock(flows: FlowRig) -> None:
    flow = FlowBuilder("many")

    @flow.step()
    async def first(number: int) -> int:
        return number

    @flow.step(after=[first])
    async def second(first: int) -> int:
        return first + 1

    engine = await flows.engine(flow, workers=4)
    started = [await flows.start(flow, number=number) for number in range(200)]
    for number, run_id in enumerate(started):
        run = await flows.ended(run_id)
        assert run.result == {"value": {"second": number + 1}}
    await until(lambda: not engine.running)


async def test_a_missing_input_is_reported(flows: FlowRig) -> None:
    await flows.engine(etl())
    run = await flows.ended(await flows.start(etl()))
    assert run.status is RunStatus.FAILED
    assert "step 'extract' failed" in run.error
    assert "source" in run.error
