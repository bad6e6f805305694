"""Capabilities of an application: the tasks and flows that its nodes can execute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chimes.model.policy import Policy, RunDefaults
from chimes.sdk.flows import AppFlow
from chimes.targets.python.registry import Registry, Task, argument_schema

_TASK, _FLOW = "task:", "flow:"


class AppCapabilities(Mapping[str, RunDefaults]):
    """Run defaults by requirement (`task:NAME`, `flow:NAME`).

    A live view rather than a dict: tasks are declared until the node starts, and a lookup is
    cheaper than building all entries.
    """

    def __init__(self, registry: Registry, flows: Mapping[str, AppFlow[Any, Any]]) -> None:
        self._registry = registry
        self._flows = flows
        #: Cached because every started run looks its schema up and building one is slow.
        self._schemas: dict[str, tuple[Task, dict[str, object]]] = {}

    def __getitem__(self, requirement: str) -> RunDefaults:
        if requirement not in self:
            raise KeyError(requirement)
        if requirement.startswith(_TASK):
            task = self._registry.get(requirement.removeprefix(_TASK))
            return RunDefaults(
                policy=task.policy(Policy()), priority=task.priority, arguments=self._schema(task)
            )
        flow = self._flows[requirement.removeprefix(_FLOW)]
        return RunDefaults(policy=flow.policy(Policy()), priority=flow.priority)

    def _schema(self, task: Task) -> dict[str, object]:
        cached = self._schemas.get(task.name)
        if cached is None or cached[0] is not task:
            cached = self._schemas[task.name] = (task, argument_schema(task))
        return cached[1]

    def __contains__(self, requirement: object) -> bool:
        if not isinstance(requirement, str):
            return False
        if requirement.startswith(_TASK):
            return requirement.removeprefix(_TASK) in self._registry
        return requirement.startswith(_FLOW) and requirement.removeprefix(_FLOW) in self._flows

    def __iter__(self) -> Iterator[str]:
        yield from (f"{_TASK}{name}" for name in self._registry.names)
        yield from (f"{_FLOW}{name}" for name in self._flows)

    def __len__(self) -> int:
        return len(self._registry) + len(self._flows)
