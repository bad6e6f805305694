"""What a flow is: steps, what each waits for, and which values it is given.

A step is given values by the names of its parameters: the name of a step before it stands for that
step's output, `input` for the flow's whole input, `item` and `index` for its part of a mapped
list, any other name for a key of the flow's input. `context` is the task's own business.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter

from chimes.errors import InvalidInput
from chimes.model.policy import Policy
from chimes.targets.python_task.arguments import parameters_of
from chimes.targets.python_task.registry import Task
from chimes.wording import say

#: Elements of a mapped list (RELIABILITY: everything has a bound).
MOST_ELEMENTS = 10_000
#: Elements of one mapped step that are under way at once where nobody says otherwise.
MAP_WINDOW = 500

INPUT = "input"
ITEM = "item"
INDEX = "index"
CONTEXT = "context"
#: In a condition: all outputs of the steps before it, by name.
OUTPUTS = "outputs"
RESERVED = frozenset({INPUT, ITEM, INDEX, CONTEXT, OUTPUTS})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class RunIf(StrEnum):
    """Which ends of the steps before it let a step run; it waits for all of them in any case."""

    #: None has failed and one at least has succeeded.
    ALL = "all"
    #: One at least has succeeded.
    ANY = "any"
    #: Whatever became of them: for clearing up.
    ALWAYS = "always"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    name: str
    #: The name of its task, `flow/step`.
    task: str
    function: Callable[..., object]
    after: tuple[str, ...] = ()
    #: Asked when the steps before it have ended; False: the step is skipped.
    when: Callable[..., object] | None = None
    #: The step before it, or the key of the input, whose list it is carried out over.
    map: str | None = None
    #: Elements of a mapped list under way at once.
    concurrency: int = MAP_WINDOW
    run_if: RunIf = RunIf.ALL
    #: Retries, back-off and timeout of each of its runs.
    policy: Policy = field(default_factory=Policy)
    #: How its task is kept apart from the node; None: as tasks are by default.
    isolation: str | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """The values that its function asks for; its context is the task's business."""
        parameters = parameters_of(self.function)
        if parameters.rest is not None:
            raise InvalidInput(
                say(
                    "step {step!r} takes '**{rest}': values are given by name, so name each one",
                    step=self.name,
                    rest=parameters.rest.name,
                )
            )
        return tuple(parameters.named)

    @property
    def when_wants(self) -> tuple[str, ...]:
        return _parameters(self.when) if self.when is not None else ()

    def as_task(self) -> Task:
        """What a node registers, so that it can carry the step out."""
        return Task(
            name=self.task,
            function=self.function,
            retries=self.policy.max_retries,
            retry_backoff=self.policy.retry_backoff,
            backoff=self.policy.backoff,
            timeout=self.policy.timeout,
            isolation=self.isolation,
            on_lost=self.policy.on_lost,
        )


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Complete and sound: `checked` has seen it."""

    name: str
    #: In the order in which they were declared.
    steps: tuple[Step, ...]

    @cached_property
    def leaves(self) -> tuple[Step, ...]:
        """Those that no other step comes after: their outputs are the flow's result."""
        followed = {name for step in self.steps for name in step.after}
        return tuple(step for step in self.steps if step.name not in followed)

    @cached_property
    def ordered(self) -> tuple[Step, ...]:
        """Each step behind those that it comes after."""
        by_name = {step.name: step for step in self.steps}
        graph = {step.name: step.after for step in self.steps}
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())


def checked(flow: Flow) -> Flow:
    """Raises InvalidInput, which names the flow, the step and what to do."""
    if not flow.steps:
        raise InvalidInput(
            say("flow {flow!r} has no steps: add one with @flow.step()", flow=flow.name)
        )
    steps: dict[str, Step] = {}
    for step in flow.steps:
        if step.name in steps:
            raise InvalidInput(
                say("flow {flow!r} has two steps named {step!r}", flow=flow.name, step=step.name)
            )
        steps[step.name] = step
    for step in flow.steps:
        _check_after(flow, step, steps)
    _check_cycles(flow)
    for step in flow.steps:
        _check_values(flow, step, steps)
    return flow


def check_flow_name(name: str) -> str:
    why = _unfit(name)
    if why:
        raise InvalidInput(say("{name!r} cannot be the name of a flow: {why}", name=name, why=why))
    return name


def check_step_name(name: str) -> str:
    why = _unfit(name)
    if why:
        raise InvalidInput(say("{name!r} cannot be the name of a step: {why}", name=name, why=why))
    return name


def _unfit(name: str) -> str:
    """Why it can be the name of neither; empty: it can."""
    if not _NAME.fullmatch(name):
        return say("a letter, then letters, digits, '_', '-' or '.', at most 100 in all")
    if name in RESERVED:
        return say("it has a meaning of its own")
    return ""


def _check_after(flow: Flow, step: Step, steps: Mapping[str, Step]) -> None:
    for name in step.after:
        if name not in steps:
            raise InvalidInput(
                _with_nearest(
                    say(
                        "{step}: there is no step {name!r} to come after",
                        step=_shown(flow, step),
                        name=name,
                    ),
                    name,
                    steps.keys() - {step.name},
                )
            )
    if len(set(step.after)) < len(step.after):
        raise InvalidInput(say("{step}: `after` names a step twice", step=_shown(flow, step)))


def _check_cycles(flow: Flow) -> None:
    try:
        TopologicalSorter({step.name: step.after for step in flow.steps}).prepare()
    except CycleError as error:
        # graphlib names each step before the one that waits for it, the first again at the end.
        around = " -> ".join(error.args[1])
        raise InvalidInput(
            say("flow {flow!r} goes round in a circle: {around}", flow=flow.name, around=around)
        ) from None


def _check_values(flow: Flow, step: Step, steps: Mapping[str, Step]) -> None:
    where = _shown(flow, step)
    unknown = steps.keys() - {*step.after}
    for name in step.wants:
        if name in unknown:
            raise InvalidInput(
                say(
                    "{step}: its function takes the output of step {name!r}, which it does not"
                    " wait for: add {name!r} to `after`",
                    step=where,
                    name=name,
                )
            )
    for name in step.when_wants:
        if name in unknown:
            raise InvalidInput(
                say(
                    "{step}: its condition takes the output of step {name!r}, which it does not"
                    " wait for: add {name!r} to `after`",
                    step=where,
                    name=name,
                )
            )
    if step.map in unknown:
        raise InvalidInput(
            say(
                "{step}: it is mapped over the output of step {name!r}, which it does not"
                " wait for: add {name!r} to `after`",
                step=where,
                name=step.map,
            )
        )
    if OUTPUTS in step.wants:
        raise InvalidInput(
            say(
                "{step}: `{outputs}` is for conditions; name each step instead",
                step=where,
                outputs=OUTPUTS,
            )
        )
    only_mapped = {ITEM, INDEX} & {*step.wants}
    if step.map is None and only_mapped:
        name = sorted(only_mapped)[-1]
        raise InvalidInput(
            say(
                "{step}: `{name}` is for a mapped step: say map=... over what",
                step=where,
                name=name,
            )
        )
    if step.map is not None and not only_mapped:
        raise InvalidInput(
            say(
                "{step}: a mapped step takes `{item}` (or `{index}`)",
                step=where,
                item=ITEM,
                index=INDEX,
            )
        )
    if {ITEM, INDEX, CONTEXT} & {*step.when_wants}:
        raise InvalidInput(
            say("{step}: its condition is asked once, without an item or a context", step=where)
        )


@cache
def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InvalidInput(
            say("the parameters of {function} cannot be read", function=_called(function))
        ) from None
    for each in parameters:
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise InvalidInput(
                say(
                    "the condition {function} takes {parameter!r}: values are given by"
                    " name, so name each one",
                    function=_called(function),
                    parameter=str(each),
                )
            )
    return tuple(each.name for each in parameters)


def _called(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", repr(function)))


def _shown(flow: Flow, step: Step) -> str:
    return say("step {step!r} of flow {flow!r}", step=step.name, flow=flow.name)


def _with_nearest(problem: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return say("{problem}; did you mean {name!r}?", problem=problem, name=near[0])
    if known:
        return say(
            "{problem} (there are: {known})", problem=problem, known=", ".join(sorted(known))
        )
    return problem
