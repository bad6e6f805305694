"""Executes flows: adds the next child runs and waits for one to end.

All state is in the child runs, so another node can take over at any time. A flow that only waits
goes back to the queue (ADR 81): it is executed again when a wait ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chimes.i18n import _
from chimes.model.ids import RunId
from chimes.model.run import AttemptEnd, Outcome, Run
from chimes.model.target import FlowTarget
from chimes.targets.base import Call
from chimes.targets.flow.advance import Elements, advance, ids_of, kept_steps
from chimes.targets.flow.definition import Flow


class FlowRunner:
    kind = "flow"
    resumable = True
    #: A flow costs little more than the rows of its steps.
    permits = 1000

    def __init__(self, flows: Iterable[Flow]) -> None:
        self._flows = {flow.name: flow for flow in flows}
        self._offers = frozenset(FlowTarget(name=name).requirement for name in self._flows)

    @property
    def capabilities(self) -> frozenset[str]:
        return self._offers

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        """Has no deadline: the engine enforces the flow's timeout from its first start."""
        run, steps = call.run, call.steps
        assert isinstance(run.target, FlowTarget)
        assert steps is not None, "the engine gives a resumable target its steps"
        flow = self._flows.get(run.target.name)
        if flow is None:
            return Outcome(
                end=AttemptEnd.FAILED,
                error=_("there is no flow {name!r} on this node", name=run.target.name),
                code="unknown_flow",
            )
        ids = ids_of(run.id)
        mapped: dict[str, Elements] = {}
        await steps.publish(flow.graph)
        recipients = {
            ids(step.name, None): step.wait.recipients
            for step in flow.steps
            if step.wait is not None
        }
        rows = await steps.children()
        if not rows and run.step and run.retry_of is not None:
            earlier = {row.id: row for row in await steps.children_of(run.retry_of)}
            problem = _unfit_for_retry(flow, run, earlier)
            if problem:
                return Outcome(end=AttemptEnd.FAILED, error=problem, code="unknown_step")
            rows = await steps.add(kept_steps(flow, run, earlier, run.retry_of, ids))
        children: dict[RunId, Run] = {}
        while True:
            for row in rows:
                if row.id in recipients and not row.status.terminal:
                    row = await steps.begin_wait(row, recipients[row.id])
                children[row.id] = row
            next_ = advance(flow, run, children, steps.now(), ids, mapped)
            if next_.outcome is not None:
                return next_.outcome
            if next_.add:
                rows = await steps.add(next_.add)
            elif next_.expired:
                rows = [await steps.expire_wait(run_id) for run_id in next_.expired]
            else:
                rows = await steps.ended(next_.until)


def _unfit_for_retry(flow: Flow, run: Run, earlier: Mapping[RunId, Run]) -> str:
    """Why a flow cannot be repeated from its step; empty if it can."""
    if all(step.name != run.step for step in flow.steps):
        return _("the flow {flow!r} has no step {step!r} any more", flow=flow.name, step=run.step)
    if not earlier:
        return _("the steps of the run {id} are not stored any more", id=run.retry_of)
    return ""
