"""Flow definitions: steps, dependencies and arguments, and the builder that applications use.

The parameters of a step select its arguments by name: an earlier step's name is that step's
output, `input` the flow's whole input, `item` and `index` the element of a mapped list, any other
name a key of the flow's input. `context` is the task's context.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from typing import ParamSpec, TypeVar, overload

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.targets.python.arguments import parameters_of
from chimes.targets.python.registry import DEFAULT_TIMEOUT, Task, is_async
from chimes.triggers.values import parse_duration

#: Maximum elements of a mapped list.
MOST_ELEMENTS = 10_000
#: Default number of elements of a mapped step in flight.
MAP_WINDOW = 500

INPUT = "input"
ITEM = "item"
INDEX = "index"
CONTEXT = "context"
#: In a condition: outputs of earlier steps by name.
OUTPUTS = "outputs"
RESERVED = frozenset({INPUT, ITEM, INDEX, CONTEXT, OUTPUTS})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class RunIf(StrEnum):
    """Which ends of its dependencies let a step run; it always waits for all of them."""

    #: None failed and at least one succeeded.
    ALL = "all"
    #: At least one succeeded.
    ANY = "any"
    #: Always, for clean-up.
    ALWAYS = "always"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    name: str
    #: The name of its task, `flow/step`.
    task: str
    function: Callable[..., object]
    after: tuple[str, ...] = ()
    #: Evaluated when its dependencies have ended; False skips the step.
    when: Callable[..., object] | None = None
    #: The step or input key whose list it maps over.
    map: str | None = None
    #: Elements of a mapped list in flight.
    concurrency: int = MAP_WINDOW
    run_if: RunIf = RunIf.ALL
    #: Retries, back-off and timeout of each of its runs.
    policy: Policy = field(default_factory=Policy)
    #: Isolation of its task; None: the default.
    isolation: str | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """The arguments of its function without the context."""
        parameters = parameters_of(self.function)
        if parameters.var_keyword is not None:
            raise InvalidInput(
                _(
                    "step {step!r} takes '**{rest}': values are given by name, so name each one",
                    step=self.name,
                    rest=parameters.var_keyword.name,
                )
            )
        return tuple(parameters.named)

    @property
    def when_wants(self) -> tuple[str, ...]:
        return _parameters(self.when) if self.when is not None else ()

    def as_task(self) -> Task:
        """The task that a node registers to execute the step."""
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
    """A complete flow that `checked` has validated."""

    name: str
    #: In declaration order.
    steps: tuple[Step, ...]

    @cached_property
    def leaves(self) -> tuple[Step, ...]:
        """Steps without dependents; their outputs are the flow's result."""
        followed = {name for step in self.steps for name in step.after}
        return tuple(step for step in self.steps if step.name not in followed)

    @cached_property
    def ordered(self) -> tuple[Step, ...]:
        """Steps in dependency order."""
        by_name = {step.name: step for step in self.steps}
        graph = {step.name: step.after for step in self.steps}
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())


def checked(flow: Flow) -> Flow:
    """Raises InvalidInput that names the flow, the step and the fix."""
    if not flow.steps:
        raise InvalidInput(
            _("flow {flow!r} has no steps: add one with @flow.step()", flow=flow.name)
        )
    steps: dict[str, Step] = {}
    for step in flow.steps:
        if step.name in steps:
            raise InvalidInput(
                _("flow {flow!r} has two steps named {step!r}", flow=flow.name, step=step.name)
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
        raise InvalidInput(_("{name!r} cannot be the name of a flow: {why}", name=name, why=why))
    return name


def check_step_name(name: str) -> str:
    why = _unfit(name)
    if why:
        raise InvalidInput(_("{name!r} cannot be the name of a step: {why}", name=name, why=why))
    return name


def _unfit(name: str) -> str:
    """Why the name is invalid; empty if it is valid."""
    if not _NAME.fullmatch(name):
        return _("a letter, then letters, digits, '_', '-' or '.', at most 100 in all")
    if name in RESERVED:
        return _("it has a meaning of its own")
    return ""


def _check_after(flow: Flow, step: Step, steps: Mapping[str, Step]) -> None:
    for name in step.after:
        if name not in steps:
            raise InvalidInput(
                _with_nearest(
                    _(
                        "{step}: there is no step {name!r} to come after",
                        step=_shown(flow, step),
                        name=name,
                    ),
                    name,
                    steps.keys() - {step.name},
                )
            )
    if len(set(step.after)) < len(step.after):
        raise InvalidInput(_("{step}: `after` names a step twice", step=_shown(flow, step)))


def _check_cycles(flow: Flow) -> None:
    try:
        TopologicalSorter({step.name: step.after for step in flow.steps}).prepare()
    except CycleError as error:
        # graphlib lists each step before its dependent, and the first again at the end.
        around = " -> ".join(error.args[1])
        raise InvalidInput(
            _("flow {flow!r} goes round in a circle: {around}", flow=flow.name, around=around)
        ) from None


def _check_values(flow: Flow, step: Step, steps: Mapping[str, Step]) -> None:
    where = _shown(flow, step)
    unknown = steps.keys() - {*step.after}
    for name in step.wants:
        if name in unknown:
            raise InvalidInput(
                _(
                    "{step}: its function takes the output of step {name!r}, which it does not"
                    " wait for: add {name!r} to `after`",
                    step=where,
                    name=name,
                )
            )
    for name in step.when_wants:
        if name in unknown:
            raise InvalidInput(
                _(
                    "{step}: its condition takes the output of step {name!r}, which it does not"
                    " wait for: add {name!r} to `after`",
                    step=where,
                    name=name,
                )
            )
    if step.map in unknown:
        raise InvalidInput(
            _(
                "{step}: it is mapped over the output of step {name!r}, which it does not"
                " wait for: add {name!r} to `after`",
                step=where,
                name=step.map,
            )
        )
    if OUTPUTS in step.wants:
        raise InvalidInput(
            _(
                "{step}: `{outputs}` is for conditions; name each step instead",
                step=where,
                outputs=OUTPUTS,
            )
        )
    only_mapped = {ITEM, INDEX} & {*step.wants}
    if step.map is None and only_mapped:
        name = sorted(only_mapped)[-1]
        raise InvalidInput(
            _(
                "{step}: `{name}` is for a mapped step: say map=... over what",
                step=where,
                name=name,
            )
        )
    if step.map is not None and not only_mapped:
        raise InvalidInput(
            _(
                "{step}: a mapped step takes `{item}` (or `{index}`)",
                step=where,
                item=ITEM,
                index=INDEX,
            )
        )
    if {ITEM, INDEX, CONTEXT} & {*step.when_wants}:
        raise InvalidInput(
            _("{step}: its condition is asked once, without an item or a context", step=where)
        )


@cache
def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InvalidInput(
            _("the parameters of {function} cannot be read", function=_called(function))
        ) from None
    for each in parameters:
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise InvalidInput(
                _(
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
    return _("step {step!r} of flow {flow!r}", step=step.name, flow=flow.name)


def _with_nearest(problem: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return _("{problem}; did you mean {name!r}?", problem=problem, name=near[0])
    if known:
        return _("{problem} (there are: {known})", problem=problem, known=", ".join(sorted(known)))
    return problem


# Builder.

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", RunIf, Backoff, OnLost)

#: A timedelta, text such as `90s`, or a number of seconds.
Duration = timedelta | str | float

#: Default timeout of a step.
STEP_TIMEOUT = DEFAULT_TIMEOUT
STEP_BACKOFF = timedelta(seconds=5)


class FlowBuilder:
    """Collects the steps of `app.flow("name")`. `complete()` validates the whole flow."""

    def __init__(self, name: str) -> None:
        self.name = check_flow_name(name)
        self._steps: list[Step] = []

    def __repr__(self) -> str:
        return f"<flow {self.name!r}: {', '.join(step.name for step in self._steps)}>"

    @overload
    def step(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def step(
        self,
        function: None = None,
        /,
        *,
        name: str | None = ...,
        after: Iterable[str | Callable[..., object]] = ...,
        when: Callable[..., object] | None = ...,
        map: str | Callable[..., object] | None = ...,
        concurrency: int = ...,
        run_if: str = ...,
        retries: int = ...,
        retry_backoff: Duration = ...,
        backoff: str = ...,
        timeout: Duration = ...,
        isolation: str | None = ...,
        on_lost: str = ...,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def step(
        self,
        function: Callable[..., object] | None = None,
        /,
        *,
        name: str | None = None,
        after: Iterable[str | Callable[..., object]] = (),
        when: Callable[..., object] | None = None,
        map: str | Callable[..., object] | None = None,
        concurrency: int = MAP_WINDOW,
        run_if: str = RunIf.ALL,
        retries: int = 0,
        retry_backoff: Duration = STEP_BACKOFF,
        backoff: str = Backoff.FIXED,
        timeout: Duration = STEP_TIMEOUT,
        isolation: str | None = None,
        on_lost: str = OnLost.RETRY,
    ) -> object:
        """Registers the function as a step and returns it unchanged; works with and without
        brackets.

        `after`: names of steps or their functions; `map`: a step or input key whose list this
        step maps over.
        """

        def declare(function: Callable[..., object]) -> Callable[..., object]:
            chosen = check_step_name(name or str(getattr(function, "__name__", "")))
            if any(step.name == chosen for step in self._steps):
                raise InvalidInput(
                    _(
                        "flow {flow!r} has two steps named {step!r}",
                        flow=self.name,
                        step=chosen,
                    )
                )
            step = Step(
                name=chosen,
                task=f"{self.name}/{chosen}",
                function=function,
                after=self._names(after),
                when=when,
                map=None if map is None else self._name(map),
                concurrency=_within("concurrency", concurrency, 1, MOST_ELEMENTS),
                run_if=_one_of(RunIf, "run_if", run_if),
                policy=Policy(
                    max_retries=_within("retries", retries, 0, 1000),
                    retry_backoff=_duration("retry_backoff", retry_backoff),
                    backoff=_one_of(Backoff, "backoff", backoff),
                    timeout=_duration("timeout", timeout),
                    on_lost=_one_of(OnLost, "on_lost", on_lost),
                ),
                isolation=isolation,
            )
            # Parsed here so that errors point to this function.
            if when is not None and is_async(when):
                raise InvalidInput(
                    _("step {step!r}: a condition is a plain function, not async", step=chosen)
                )
            _unused = step.wants, step.when_wants, step.as_task()
            self._steps.append(step)
            self.declared(step)
            return function

        return declare if function is None else declare(function)

    def declared(self, step: Step) -> None:
        """Called for each new step."""

    def complete(self) -> Flow:
        """Raises InvalidInput that names the place and the problem."""
        return checked(Flow(name=self.name, steps=tuple(self._steps)))

    def _names(self, after: Iterable[str | Callable[..., object]]) -> tuple[str, ...]:
        if isinstance(after, str) or callable(after):
            raise InvalidInput(
                _("flow {flow!r}: `after` is a list, also of one step", flow=self.name)
            )
        return tuple(self._name(each) for each in after)

    def _name(self, wanted: str | Callable[..., object]) -> str:
        if isinstance(wanted, str):
            return wanted
        for step in self._steps:
            if step.function is wanted:
                return step.name
        shown = getattr(wanted, "__name__", repr(wanted))
        raise InvalidInput(
            _("flow {flow!r}: {step} is not one of its steps", flow=self.name, step=shown)
        )


def _duration(name: str, value: Duration) -> timedelta:
    given = timedelta(seconds=value) if isinstance(value, float | int) else value
    return parse_duration(given, field=name, allow_zero=name == "retry_backoff")


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidInput(
            _(
                "{field} must be from {least} to {most}, not {value}",
                field=name,
                least=least,
                most=most,
                value=value,
            ),
            field=name,
        )
    return value


def _one_of(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise InvalidInput(
            _(
                "{field} must be one of {known}, not {value!r}",
                field=name,
                known=known,
                value=value,
            ),
            field=name,
        ) from None
