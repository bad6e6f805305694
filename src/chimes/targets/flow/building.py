"""Declaring a flow, step by step, as an application does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import ParamSpec, TypeVar, overload

from chimes.errors import InvalidInput
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.targets.flow.definition import (
    MAP_WINDOW,
    MOST_ELEMENTS,
    Flow,
    RunIf,
    Step,
    check_flow_name,
    check_step_name,
    checked,
)
from chimes.targets.python_task.registry import DEFAULT_TIMEOUT, is_async
from chimes.triggers.duration import parse_duration
from chimes.wording import say

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", RunIf, Backoff, OnLost)

#: A timedelta, text such as `90s`, or a number of seconds.
Duration = timedelta | str | float

#: How long one run of a step may take where nobody says otherwise.
STEP_TIMEOUT = DEFAULT_TIMEOUT
STEP_BACKOFF = timedelta(seconds=5)


class FlowBuilder:
    """What `app.flow("name")` gives: a place for the steps. `complete()` is called when the
    application has been read, and checks the whole."""

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
        """The function becomes a step and stays what it is: it can be called as before. Without
        options the brackets may be left out.

        `after`: names of steps or their functions; `map`: a step, or a key of the flow's input,
        whose list this step is carried out over, an element at a time.
        """

        def declare(function: Callable[..., object]) -> Callable[..., object]:
            chosen = check_step_name(name or str(getattr(function, "__name__", "")))
            if any(step.name == chosen for step in self._steps):
                raise InvalidInput(
                    say(
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
            # What it takes is read here, so that the error shows this function.
            if when is not None and is_async(when):
                raise InvalidInput(
                    say("step {step!r}: a condition is a plain function, not async", step=chosen)
                )
            _ = step.wants, step.when_wants, step.as_task()
            self._steps.append(step)
            self.declared(step)
            return function

        return declare if function is None else declare(function)

    def declared(self, step: Step) -> None:
        """Called for each new step; for an application that keeps a list of its tasks."""

    def complete(self) -> Flow:
        """Raises InvalidInput, which says what is wrong where."""
        return checked(Flow(name=self.name, steps=tuple(self._steps)))

    def _names(self, after: Iterable[str | Callable[..., object]]) -> tuple[str, ...]:
        if isinstance(after, str) or callable(after):
            raise InvalidInput(
                say("flow {flow!r}: `after` is a list, also of one step", flow=self.name)
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
            say("flow {flow!r}: {step} is not one of its steps", flow=self.name, step=shown)
        )


def _duration(name: str, value: Duration) -> timedelta:
    given = timedelta(seconds=value) if isinstance(value, float | int) else value
    return parse_duration(given, field=name, allow_zero=name == "retry_backoff")


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidInput(
            say(
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
            say(
                "{field} must be one of {known}, not {value!r}",
                field=name,
                known=known,
                value=value,
            ),
            field=name,
        ) from None
