"""What nodes of an application can carry out, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chimes.app.flows import AppFlow
from chimes.model.defaults import RunDefaults
from chimes.model.policy import Policy
from chimes.targets.python_task.registry import Registry, Task
from chimes.targets.python_task.schema import schema_of

_TASK, _FLOW = "task:", "flow:"


class AppOffers(Mapping[str, RunDefaults]):
    """By `target.needs`. Looked up anew each time: tasks are declared until the node starts, and
    one answer is cheaper than all of them."""

    def __init__(self, registry: Registry, flows: Mapping[str, AppFlow]) -> None:
        self._registry = registry
        self._flows = flows
        #: Asked for with every run that is started, and it takes its time to be made.
        self._schemas: dict[str, tuple[Task, dict[str, object]]] = {}

    def __getitem__(self, needs: str) -> RunDefaults:
        if needs not in self:
            raise KeyError(needs)
        if needs.startswith(_TASK):
            task = self._registry.get(needs.removeprefix(_TASK))
            return RunDefaults(
                policy=task.policy(Policy()), priority=task.priority, arguments=self._schema(task)
            )
        flow = self._flows[needs.removeprefix(_FLOW)]
        return RunDefaults(policy=flow.policy(Policy()), priority=flow.priority)

    def _schema(self, task: Task) -> dict[str, object]:
        known = self._schemas.get(task.name)
        if known is None or known[0] is not task:
            known = self._schemas[task.name] = (task, schema_of(task))
        return known[1]

    def __contains__(self, needs: object) -> bool:
        if not isinstance(needs, str):
            return False
        if needs.startswith(_TASK):
            return needs.removeprefix(_TASK) in self._registry
        return needs.startswith(_FLOW) and needs.removeprefix(_FLOW) in self._flows

    def __iter__(self) -> Iterator[str]:
        yield from (f"{_TASK}{name}" for name in self._registry.names)
        yield from (f"{_FLOW}{name}" for name in self._flows)

    def __len__(self) -> int:
        return len(self._registry) + len(self._flows)
