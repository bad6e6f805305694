"""Flows that wait for a decision, a time or an event, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import Conflict, NotAllowed
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.planning import retry_run
from chimes.model.recipient import NotifyOn
from chimes.model.run import Run, RunStatus
from chimes.model.wait import ApprovalStatus, Decision
from chimes.services.runs import RunService
from chimes.services.waits import ApprovalService, FlowEvents, graph_of_run
from chimes.targets.flow import FlowBuilder
from chimes.triggers import Every
from tests.engine.flows import FlowRig
from tests.engine.rig import Rig, eventually

ADMIN = Actor()
ANN = Actor(owner=Owner(type=OwnerType.USER, id="ann"), role=Role.MEMBER)


@pytest.fixture
def flows(rig: Rig) -> FlowRig:
    return FlowRig(rig)


def report(flows: FlowRig, **options: Any) -> FlowBuilder:
    flow = FlowBuilder("report")

    @flow.step()
    def build(edition: int = 1) -> int:
        flows.seen.append("build")
        return edition

    approve = flow.wait_for_approval(
        "approve", after=[build], prompt=lambda build: f"Publish {build}?", **options
    )

    @flow.step(after=[approve])
    def publish(approve: dict[str, Any]) -> str:
        flows.seen.append("publish")
        return str(approve["by"])

    return flow


async def suspended(flows: FlowRig, run_id: RunId) -> Run:
    """The flow, once it waits in the queue without a node."""
    return await eventually(
        lambda: flows.rig.run(run_id),
        lambda run: run.status is RunStatus.QUEUED and run.reason.startswith("wait:"),
        within=60,
    )


async def the_approval(flows: FlowRig, run_id: RunId) -> Run:
    await suspended(flows, run_id)
    return (await flows.steps(run_id))["approve"]


async def test_a_flow_continues_after_its_approval(flows: FlowRig) -> None:
    flow = report(flows)
    await flows.engine(flow)
    run_id = await flows.start(flow, edition=7)
    waiting = await suspended(flows, run_id)
    assert (waiting.holder, waiting.reason, waiting.attempt) == (None, "wait:approve", 0)
    approvals = ApprovalService(flows.rig.store)
    (approval,) = await approvals.find(ADMIN, ApprovalStatus.OPEN, limit=10)
    assert (approval.wait.prompt, approval.flow) == ("Publish 7?", "report")
    with pytest.raises(NotAllowed):
        await approvals.decide(
            Actor(role=Role.VIEWER, owner=waiting.owner), approval.id, Decision.APPROVE
        )
    decided = await approvals.decide(ADMIN, approval.id, Decision.APPROVE, reason="looks good")
    assert (decided.status, decided.decided_by) == (ApprovalStatus.APPROVED, ADMIN.name)
    with pytest.raises(Conflict):
        await approvals.decide(ADMIN, approval.id, Decision.REJECT)
    run = await flows.ended(run_id)
    assert run.result == {"value": {"publish": ADMIN.name}}
    assert (run.status, run.reason, run.attempt) == (RunStatus.SUCCEEDED, "", 1)
    assert flows.seen == ["build", "publish"], "no step is repeated"
    (audited,) = await flows.rig.store.list_audit(AuditQuery(verb="approve_step"))
    assert (audited.object_id, audited.reason) == (approval.id, "looks good")
    page = await flows.rig.store.list_deliveries(DeliveryQuery(limit=None))
    found = [each for each in page.items if each.notify_on is NotifyOn.APPROVAL]
    assert [each.receipt for each in found] == [approval.id]


@pytest.mark.parametrize(
    ("on_reject", "status", "step"),
    [
        ("fail", RunStatus.FAILED, ("failed", "rejected")),
        ("skip", RunStatus.SUCCEEDED, ("skipped", "rejected")),
        ("continue", RunStatus.SUCCEEDED, ("succeeded", "")),
    ],
)
async def test_a_rejection_ends_the_step_as_its_option_says(
    flows: FlowRig, on_reject: str, status: RunStatus, step: tuple[str, str]
) -> None:
    flow = report(flows, on_reject=on_reject)
    await flows.engine(flow)
    run_id = await flows.start(flow)
    approval = await the_approval(flows, run_id)
    await ApprovalService(flows.rig.store).decide(
        ADMIN, approval.id, Decision.REJECT, reason="typos"
    )
    run = await flows.ended(run_id)
    assert run.status is status
    ended = (await flows.steps(run_id))["approve"]
    assert (ended.status.value, ended.reason) == step
    assert flows.seen == (["build", "publish"] if on_reject == "continue" else ["build"])
    if on_reject == "fail":
        assert run.error == "step 'approve' failed: rejected by system:default: typos"


@pytest.mark.parametrize("default", ["approve", "reject"])
async def test_an_approval_expires_with_its_default(flows: FlowRig, default: str) -> None:
    flow = report(flows, default=default, expires_in=1)
    await flows.engine(flow)
    run_id = await flows.start(flow)
    run = await flows.ended(run_id)
    step = (await flows.steps(run_id))["approve"]
    assert step.finished_at is not None
    assert step.finished_at >= step.available_at
    approvals = ApprovalService(flows.rig.store)
    approval = await approvals.get(ADMIN, step.id)
    assert approval.status is ApprovalStatus.EXPIRED
    if default == "approve":
        assert (run.status, approval.decision) == (RunStatus.SUCCEEDED, "approved")
        assert flows.seen == ["build", "publish"]
    else:
        assert (run.status, approval.decision) == (RunStatus.FAILED, "rejected")
        assert (step.reason, flows.seen) == ("expired", ["build"])
    with pytest.raises(Conflict):
        await approvals.decide(ADMIN, step.id, Decision.APPROVE)


async def test_who_may_decide(flows: FlowRig) -> None:
    flow = report(flows, role="admin")
    await flows.engine(flow)
    approval = await the_approval(flows, await flows.start(flow))
    approvals = ApprovalService(flows.rig.store)
    with pytest.raises(NotAllowed, match="needs the role admin"):
        await approvals.decide(
            Actor(role=Role.OPERATOR, owner=ANN.owner), approval.id, Decision.APPROVE
        )
    assert await approvals.find(ANN, None, limit=10) == [], "of another owner"
    assert [each.id for each in await approvals.find(ADMIN, None, limit=10)] == [approval.id]


async def test_waits_do_not_count_towards_the_timeout(flows: FlowRig) -> None:
    flow = FlowBuilder("slow")
    pause = flow.sleep("pause", 1.5)
    flow.step(name="end", after=[pause])(lambda pause: pause)
    await flows.engine(flow)
    run_id = await flows.start(flow, limit=timedelta(seconds=1))
    run = await flows.ended(run_id)
    assert (run.status, run.error) == (RunStatus.SUCCEEDED, "")
    step = (await flows.steps(run_id))["pause"]
    assert step.finished_at is not None
    assert step.finished_at - step.created_at >= timedelta(seconds=1.5)


async def test_a_wait_for_a_trigger_and_one_that_is_over(flows: FlowRig) -> None:
    flow = FlowBuilder("times")
    past = flow.wait_until("past", "2001-01-01T00:00:00+00:00")
    flow.wait_until("soon", Every(timedelta(seconds=1)), after=[past])
    flow.wait_until("wrong", lambda: "tomorrow")
    await flows.engine(flow)
    run_id = await flows.start(flow)
    run = await flows.ended(run_id)
    steps = await flows.steps(run_id)
    assert run.status is RunStatus.FAILED
    assert "'tomorrow' is no time" in steps["wrong"].error
    assert steps["past"].result == {"value": "2001-01-01T00:00:00Z"}
    assert steps["soon"].status is RunStatus.SUCCEEDED


async def test_an_event_continues_the_flow_that_waits_for_it(flows: FlowRig) -> None:
    flow = FlowBuilder("order")
    paid = flow.wait_for_event("paid", "payment.received", key=lambda order: order)
    again = flow.wait_for_event("again", "payment.received", after=[paid], expires_in="1h")
    flow.step(name="ship", after=[again])(lambda again: again)
    await flows.engine(flow)
    first = await flows.start(flow, order="A1")
    second = await flows.start(flow, order="A2")
    events = FlowEvents(flows.rig.store)
    await suspended(flows, first)
    await suspended(flows, second)
    event, ended = await events.send(
        ADMIN, "payment.received", key="A1", data={"amount": 5}, event_id="one"
    )
    assert ended == ((await flows.steps(first))["paid"].id,)
    await flows.step(first, "again", lambda run: run.status is RunStatus.QUEUED)
    repeated, ended = await events.send(
        ADMIN, "payment.received", key="A1", data={"amount": 6}, event_id="one"
    )
    assert (repeated, ended) == (event, ()), "a repeated event reaches no later wait"
    _event, ended = await events.send(ADMIN, "payment.received", key="B", data=9)
    assert len(ended) == 1
    run = await flows.ended(first)
    assert run.result == {"value": {"ship": 9}}
    assert (await flows.steps(first))["paid"].result["value"] == {"amount": 5}  # type: ignore[index]
    assert (await flows.rig.run(second)).status is RunStatus.QUEUED


async def test_an_event_that_comes_before_its_wait_is_kept(flows: FlowRig) -> None:
    flow = FlowBuilder("early")

    @flow.step()
    async def ask() -> None:
        await FlowEvents(flows.rig.store).send(ADMIN, "answer", data=1)

    flow.wait_for_event("answer", after=[ask])
    await flows.engine(flow)
    await FlowEvents(flows.rig.store).send(ADMIN, "answer", data="of before")
    run = await flows.ended(await flows.start(flow))
    assert run.result == {"value": {"answer": 1}}


async def test_an_event_that_does_not_come(flows: FlowRig) -> None:
    flow = FlowBuilder("never")
    flow.wait_for_event("fails", expires_in=1)
    flow.wait_for_event("continues", expires_in=1, default={"paid": False})
    await flows.engine(flow)
    run_id = await flows.start(flow)
    run = await flows.ended(run_id)
    assert run.error.startswith("step 'fails' failed: the event 'fails' did not arrive until")
    assert (await flows.steps(run_id))["continues"].result == {"value": {"paid": False}}


async def test_a_canceled_flow_ends_its_approval(flows: FlowRig) -> None:
    flow = report(flows)
    await flows.engine(flow)
    run_id = await flows.start(flow)
    approval = await the_approval(flows, run_id)
    await RunService(flows.rig.store).cancel(ADMIN, run_id)
    approvals = ApprovalService(flows.rig.store)
    assert (await approvals.get(ADMIN, approval.id)).status is ApprovalStatus.CANCELED
    with pytest.raises(Conflict):
        await approvals.decide(ADMIN, approval.id, Decision.APPROVE)


async def test_a_flow_is_repeated_from_a_step(flows: FlowRig) -> None:
    flow, broken = FlowBuilder("etl"), [True]

    def extract() -> int:
        flows.seen.append("extract")
        return 2

    def transform(item: int, extract: int) -> int:
        flows.seen.append(f"transform {item}")
        return item * extract

    def load(transform: list[int]) -> int:
        flows.seen.append("load")
        if broken[0]:
            raise ValueError("disk is full")
        return sum(transform)

    flow.step(extract)
    flow.step(after=[extract], map="items")(transform)
    flow.step(name="other")(lambda: flows.seen.append("other"))
    flow.step(after=[transform])(load)
    await flows.engine(flow)
    run_id = await flows.start(flow, items=[1, 2])
    run = await flows.ended(run_id)
    assert run.status is RunStatus.FAILED
    broken[0] = False
    flows.seen.clear()
    runs = RunService(flows.rig.store)
    retry, _accepted = await runs.retry(ADMIN, run_id, from_step="load")
    again = await flows.ended(retry.id)
    assert (again.status, again.result) == (
        RunStatus.SUCCEEDED,
        {"value": {"other": None, "load": 6}},
    )
    assert flows.seen == ["load"]
    assert (again.retry_of, again.step) == (run_id, "load")
    steps = await flows.steps(retry.id)
    assert steps.keys() == {"extract", "transform[0]", "transform[1]", "other", "load"}
    flows.seen.clear()
    retry, _accepted = await runs.retry(ADMIN, retry.id, from_step="extract")
    assert (await flows.ended(retry.id)).status is RunStatus.SUCCEEDED
    assert sorted(flows.seen) == ["extract", "load", "transform 1", "transform 2"]
    graph = await graph_of_run(flows.rig.store, again)
    assert graph is not None
    assert {step.name: step.after for step in graph.steps}["load"] == ("transform",)
    assert retry_run(again, again.created_at).step == "", "a plain retry begins at the start"
