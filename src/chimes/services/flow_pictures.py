"""The steps of a flow's run with their states: the published graph and the rows (ADR 82)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.flow_graph import FlowGraph, GraphStep, layers
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from chimes.model.run import Run, RunStatus
from chimes.model.target import FlowTarget
from chimes.model.wait import wait_of
from chimes.services.waits import graph_of_run
from chimes.store.port import Store

#: Of the runs of a mapped step, the status that the step shows.
_WORST_FIRST = (
    RunStatus.FAILED,
    RunStatus.TIMEOUT,
    RunStatus.UNKNOWN,
    RunStatus.CANCELED,
    RunStatus.MISSED,
    RunStatus.RUNNING,
    RunStatus.QUEUED,
    RunStatus.SKIPPED,
    RunStatus.SUCCEEDED,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepState:
    name: str
    after: tuple[str, ...]
    #: Kind of the wait; empty: the step is a task.
    wait: str = ""
    #: None: not begun.
    status: RunStatus | None = None
    reason: str = ""
    #: None if there is no run, or several.
    run_id: RunId | None = None
    runs: int = 0
    ended: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowPicture:
    flow: str
    #: The steps by the length of the longest path to them.
    layers: tuple[tuple[StepState, ...], ...]

    @property
    def steps(self) -> tuple[StepState, ...]:
        return tuple(step for layer in self.layers for step in layer)


class FlowPictures:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, run: Run) -> FlowPicture:
        """Raises NotFound for a run that is not one of a flow."""
        if not isinstance(run.target, FlowTarget):
            raise NotFound(_("run {id} is not a run of a flow", id=run.id))
        page = await self._store.list_runs(RunQuery(parent_id=run.id, descending=False, limit=None))
        graph = await graph_of_run(self._store, run)
        return picture_of(run.target.name, graph, page.items)


def picture_of(flow: str, graph: FlowGraph | None, children: Sequence[Run]) -> FlowPicture:
    """Steps that the graph does not have, such as those of an earlier definition, come first."""
    rows: dict[str, list[Run]] = {}
    for child in children:
        rows.setdefault(child.step.partition("[")[0], []).append(child)
    known = graph or FlowGraph(name=flow, steps=())
    names = {step.name for step in known.steps}
    others = [GraphStep(name=name) for name in rows if name not in names]
    found = [[_state(step, rows.get(step.name, [])) for step in layer] for layer in layers(known)]
    if others:
        first = [_state(step, rows[step.name]) for step in others]
        found[:1] = [first + (found[0] if found else [])]
    return FlowPicture(flow=flow, layers=tuple(tuple(layer) for layer in found))


def _state(step: GraphStep, rows: Sequence[Run]) -> StepState:
    worst = min(rows, key=lambda row: _WORST_FIRST.index(row.status), default=None)
    wait = wait_of(worst) if worst is not None else None
    return StepState(
        name=step.name,
        after=step.after,
        wait=step.wait or ("" if wait is None else wait.kind.value),
        status=None if worst is None else worst.status,
        reason="" if worst is None else worst.shown_reason,
        run_id=rows[0].id if len(rows) == 1 else None,
        runs=len(rows),
        ended=sum(row.status.terminal for row in rows),
    )
