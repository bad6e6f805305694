"""Flow definitions: steps, dependencies and arguments, and the builder that applications use.

The parameters of a step select its arguments by name: an earlier step's name is that step's
output, `input` the flow's whole input, `item` and `index` the element of a mapped list, any other
name a key of the flow's input. `context` is the task's context.

A step can also be a wait (`chimes.model.wait`): it executes nothing, and its function only computes
what it waits for.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from typing import ParamSpec, TypeVar, overload

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import Role
from chimes.model.flow_graph import FlowGraph, GraphStep
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.model.recipient import Recipient
from chimes.model.wait import (
    DEFAULT_EXPIRY,
    MAX_WAIT,
    MIN_WAIT,
    Decision,
    OnReject,
    Wait,
    WaitKind,
    check_event_name,
)
from chimes.targets.python.arguments import parameters_of
from chimes.targets.python.registry import DEFAULT_TIMEOUT, Task, is_async
from chimes.triggers import Trigger
from chimes.triggers.base import TriggerBase
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
class StepWait:
    """What a step waits for; its function computes the question, the time or the key."""

    wait: Wait
    #: Until its deadline; the time of a wait for a time is computed instead.
    expires_in: timedelta = DEFAULT_EXPIRY
    #: Of an approval, besides the users that may decide.
    recipients: tuple[Recipient, ...] = ()


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
    #: None: the step executes its function as a task.
    wait: StepWait | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """The arguments of its function without the context."""
        if self.wait is not None:
            return _parameters(self.function)
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

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What a node registers to execute the steps."""
        return tuple(step.as_task() for step in self.steps if step.wait is None)

    @cached_property
    def graph(self) -> FlowGraph:
        """The steps for people, without their functions."""
        return FlowGraph(
            name=self.name,
            steps=tuple(
                GraphStep(
                    name=step.name,
                    after=step.after,
                    wait="" if step.wait is None else step.wait.wait.kind.value,
                    mapped=step.map is not None,
                    conditional=step.when is not None,
                )
                for step in self.ordered
            ),
        )

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
    if step.wait is not None and {ITEM, INDEX, CONTEXT} & {*step.wants}:
        raise InvalidInput(
            _(
                "{step}: what it waits for is computed once, without an item or a context",
                step=where,
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
E = TypeVar("E", RunIf, Backoff, OnLost, Decision, OnReject, Role)

#: A timedelta, text such as `90s`, or a number of seconds.
Duration = timedelta | str | float

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
#: What a wait for a time accepts.
Until = datetime | str | timedelta | Trigger


class _Fail:
    def __repr__(self) -> str:
        return "FAIL"


#: As `default` of a wait for an event: the step fails at its deadline.
FAIL = _Fail()

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

    # --- waits --------------------------------------------------------------------------------
    def wait_for_approval(
        self,
        name: str,
        *,
        prompt: str | Callable[..., str] = "",
        after: Iterable[str | Callable[..., object]] = (),
        when: Callable[..., object] | None = None,
        run_if: str = RunIf.ALL,
        expires_in: Duration = DEFAULT_EXPIRY,
        default: str = Decision.REJECT,
        on_reject: str = OnReject.FAIL,
        role: str | None = None,
        recipients: Iterable[Recipient | Mapping[str, object]] = (),
    ) -> str:
        """Adds a step that waits until a person approves or rejects, and returns its name.

        `prompt`: the question, or a function of earlier outputs that returns it. `default`: the
        decision (`approve` or `reject`) when `expires_in` is over. `on_reject`: the step fails
        (`fail`), is skipped with the steps after it (`skip`), or succeeds (`continue`). `role`: the
        least role that may decide. Its output has `approved`, `decision`, `by`, `reason`, `at` and
        `expired`.
        """
        wait = Wait(
            kind=WaitKind.APPROVAL,
            default=_one_of(Decision, "default", default),
            on_reject=_one_of(OnReject, "on_reject", on_reject),
            role=None if role is None else _one_of(Role, "role", role),
        )
        spec = StepWait(
            wait=wait, expires_in=_expiry(expires_in), recipients=self.read_recipients(recipients)
        )
        return self._add_wait(name, spec, prompt, after=after, when=when, run_if=run_if)

    def wait_until(
        self,
        name: str,
        until: Until | Callable[..., Until],
        *,
        after: Iterable[str | Callable[..., object]] = (),
        when: Callable[..., object] | None = None,
        run_if: str = RunIf.ALL,
    ) -> str:
        """Adds a step that waits until a time, and returns its name.

        `until`: a datetime with a zone, its ISO 8601 text, a trigger (`Cron("0 9 * * 1-5", ...)`:
        its next time), or a function of earlier outputs that returns one of these. A time that has
        passed ends the wait at once. Its output is the time.
        """
        spec = StepWait(wait=Wait(kind=WaitKind.TIME))
        return self._add_wait(name, spec, until, after=after, when=when, run_if=run_if)

    def sleep(
        self,
        name: str,
        duration: Duration,
        *,
        after: Iterable[str | Callable[..., object]] = (),
        when: Callable[..., object] | None = None,
        run_if: str = RunIf.ALL,
    ) -> str:
        """Adds a step that waits for so long, and returns its name."""
        length = _expiry(duration, "duration")
        return self.wait_until(name, lambda: length, after=after, when=when, run_if=run_if)

    def wait_for_event(
        self,
        name: str,
        event: str | None = None,
        *,
        key: str | Callable[..., str] = "",
        after: Iterable[str | Callable[..., object]] = (),
        when: Callable[..., object] | None = None,
        run_if: str = RunIf.ALL,
        expires_in: Duration = DEFAULT_EXPIRY,
        default: object = FAIL,
    ) -> str:
        """Adds a step that waits for an event (`app.send_event`), and returns its name.

        `event`: the name of the event; default: that of the step. `key`: only an event with this
        key, or a function of earlier outputs that returns it; empty: any. An event that was sent
        after the flow was started counts, also if the step had not begun. `default`: the output
        when `expires_in` is over; without it the step fails. Its output is the data of the event.
        """
        continues = default is not FAIL
        wait = Wait(
            kind=WaitKind.EVENT,
            event=check_event_name(name if event is None else event),
            continues=continues,
            fallback=default if continues else None,
        )
        spec = StepWait(wait=wait, expires_in=_expiry(expires_in))
        return self._add_wait(name, spec, key, after=after, when=when, run_if=run_if)

    def _add_wait(
        self,
        name: str,
        spec: StepWait,
        subject: object,
        *,
        after: Iterable[str | Callable[..., object]],
        when: Callable[..., object] | None,
        run_if: str,
    ) -> str:
        chosen = check_step_name(name)
        if any(step.name == chosen for step in self._steps):
            raise InvalidInput(
                _("flow {flow!r} has two steps named {step!r}", flow=self.name, step=chosen)
            )
        function = subject if callable(subject) else _constant(subject)
        for each in (function, when):
            if each is not None and is_async(each):
                raise InvalidInput(
                    _("step {step!r}: a condition is a plain function, not async", step=chosen)
                )
        step = Step(
            name=chosen,
            task=f"{self.name}/{chosen}",
            function=function,
            after=self._names(after),
            when=when,
            run_if=_one_of(RunIf, "run_if", run_if),
            wait=spec,
        )
        # Parsed here so that errors point to the caller.
        _unused = step.wants, step.when_wants
        if spec.wait.kind is WaitKind.TIME and not callable(subject):
            wait_deadline(subject, _ANY_TIME)
        self._steps.append(step)
        return chosen

    def read_recipients(
        self, recipients: Iterable[Recipient | Mapping[str, object]]
    ) -> tuple[Recipient, ...]:
        """Recipients as values; applications may give them in the form of the API."""
        return tuple(each for each in recipients if isinstance(each, Recipient))

    def declared(self, step: Step) -> None:
        """Called for each new step that is a task."""

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


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


def _expiry(value: Duration, name: str = "expires_in") -> timedelta:
    found = _duration(name, value)
    if not MIN_WAIT <= found <= MAX_WAIT:
        raise InvalidInput(
            _("{field} must be from one second to {days} days", field=name, days=MAX_WAIT.days),
            field=name,
        )
    return found


def wait_deadline(value: object, now: datetime) -> datetime:
    """The time that `until` of a wait names. Raises InvalidInput."""
    match value:
        case datetime() if value.tzinfo is not None:
            found = value.astimezone(UTC)
        case datetime():
            raise InvalidInput(_("a time needs a zone: {value}", value=str(value)))
        case timedelta():
            found = now + value
        case str():
            try:
                parsed = datetime.fromisoformat(value)
            except ValueError:
                raise InvalidInput(
                    _("{value!r} is no time in the form of ISO 8601", value=value)
                ) from None
            return wait_deadline(parsed, now)
        case TriggerBase():
            following = value.anchored(now).next_after(now)
            if following is None:
                raise InvalidInput(_("the trigger has no time after now"))
            found = following
        case _:
            raise InvalidInput(
                _(
                    "a wait needs a time, a duration or a trigger, not {kind}",
                    kind=type(value).__name__,
                )
            )
    return found


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
