"""Flows of an application: steps declared with `@flow.step`, started as one run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Generic, cast

from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.policy import Policy
from chimes.model.recipient import Recipient
from chimes.model.target import FlowTarget
from chimes.model.validation import check_target
from chimes.sdk.arguments import Duration, Moment, to_duration
from chimes.sdk.declare import json_input, parse_recipients
from chimes.sdk.handles import RunHandle
from chimes.sdk.tasks import Submit, enqueue_options
from chimes.services.runs import RunRequest
from chimes.services.schedules.rules import FLOW_TIMEOUT
from chimes.targets.flow import FlowBuilder, Step
from chimes.targets.python.registry import DEFAULT_QUEUE, Registry, Task

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar

#: The input of a flow and the outputs of its final steps by name, for example TypedDicts.
I_contra = TypeVar(
    "I_contra", bound=Mapping[str, object], contravariant=True, default=Mapping[str, object]
)
O_co = TypeVar("O_co", bound=Mapping[str, object], covariant=True, default=dict[str, object])


class AppFlow(FlowBuilder, Generic[I_contra, O_co]):
    """A flow of an application: steps are declared with `@flow.step(after=[...])`.

    The types of input and result are those of the variable that it is assigned to:
    `report: Flow[ReportInput, ReportResult] = app.flow("report")`.
    """

    def __init__(
        self,
        name: str,
        *,
        registry: Registry,
        submit: Submit,
        timeout: Duration | None = None,
        priority: int = 0,
        queue: str = DEFAULT_QUEUE,
    ) -> None:
        super().__init__(name)
        self._registry = registry
        self._submit = submit
        self.queue = queue
        self.priority = priority
        self.timeout = FLOW_TIMEOUT if timeout is None else to_duration(timeout, "timeout")

    def declared(self, step: Step) -> None:
        """Registers the step as a task, so that any worker of the application can execute it."""
        policy = step.policy
        self._registry.add(
            Task(
                name=step.task,
                function=step.function,
                retries=policy.max_retries,
                retry_backoff=policy.retry_backoff,
                backoff=policy.backoff,
                timeout=policy.timeout,
                isolation=step.isolation,
                on_lost=policy.on_lost,
                queue=self.queue,
            )
        )

    def read_recipients(
        self, recipients: Iterable[Recipient | Mapping[str, object]]
    ) -> tuple[Recipient, ...]:
        return parse_recipients(recipients)

    def policy(self, base: Policy) -> Policy:
        """`base` with the options of this flow."""
        return replace(base, timeout=self.timeout)

    async def start(
        self,
        input: I_contra | None = None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        priority: int | None = None,
        key: str | None = None,
        owner: Owner | str | None = None,
        connection: object = None,
    ) -> RunHandle[O_co]:
        """Enqueues one run of the flow; the options are those of `task.options`."""
        self.complete()
        target = FlowTarget(name=self.name, input=json_input(input or {}))
        check_target(target)
        request = RunRequest(
            target=target, policy=self.policy(Policy()), name=self.name, priority=self.priority
        )
        options = enqueue_options(
            delay=delay, at=at, priority=priority, key=key, owner=owner, connection=connection
        )
        return cast("RunHandle[O_co]", await self._submit(request, options))
