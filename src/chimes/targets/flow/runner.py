"""Executes flows: adds the next child runs and waits for one to end.

All state is in the child runs, so another node can take over at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import FlowTarget
from chimes.targets.base import Call
from chimes.targets.flow.advance import Elements, advance, ids_of
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
        children = {child.id: child for child in await steps.children()}
        while True:
            next_ = advance(flow, run, children, steps.now(), ids, mapped)
            if next_.outcome is not None:
                return next_.outcome
            news = await (steps.add(next_.add) if next_.add else steps.ended())
            children.update((child.id, child) for child in news)
