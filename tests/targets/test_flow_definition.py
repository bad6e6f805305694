"""Declaration of flows, and the messages of rejected ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model.policy import Backoff, OnLost
from chimes.targets.flow import FlowBuilder, FlowRunner, RunIf
from chimes.targets.python import Context, Isolation
from tests.tables import each_row


def plain() -> int:
    return 1


def test_a_step_is_a_task_with_its_own_policy() -> None:
    flow = FlowBuilder("etl")

    @flow.step(
        retries=4,
        retry_backoff="2s",
        backoff="exponential",
        timeout=90,
        isolation="process",
        on_lost="stop",
    )
    def load(rows: list[int], context: Context) -> int:
        return len(rows)

    assert load([1, 2], None) == 2, "the decorator returns the function"
    (step,) = flow.complete().steps
    task = step.as_task()
    assert (step.task, step.wants, step.run_if) == ("etl/load", ("rows",), RunIf.ALL)
    assert (task.name, task.function, task.mode) == ("etl/load", load, Isolation.PROCESS)
    for policy in (step.policy, task.policy(step.policy)):
        assert (policy.max_retries, policy.retry_backoff) == (4, timedelta(seconds=2))
        assert (policy.backoff, policy.timeout) == (Backoff.EXPONENTIAL, timedelta(seconds=90))
        assert policy.on_lost is OnLost.STOP


def test_after_accepts_functions_and_names_in_any_order() -> None:
    flow = FlowBuilder("order")
    flow.step(name="last", after=["middle"])(plain)

    @flow.step()
    def first() -> None: ...

    flow.step(name="middle", after=[first])(plain)
    complete = flow.complete()
    assert [step.name for step in complete.steps] == ["last", "first", "middle"]
    assert [step.name for step in complete.ordered] == ["first", "middle", "last"]
    assert [step.name for step in complete.leaves] == ["last"]
    assert FlowRunner([complete]).capabilities == frozenset({"flow:order"})


def test_step_decorator_without_options_needs_no_parentheses() -> None:
    flow = FlowBuilder("short")

    @flow.step
    def first() -> int:
        return 1

    flow.step(after=[first])(plain)
    assert first() == 1, "the decorator returns the function"
    assert [step.name for step in flow.complete().ordered] == ["first", "plain"]
    no_function: Any = "second"
    with pytest.raises(InvalidInput, match="cannot be the name of a step"):
        flow.step(no_function)


Declare = Callable[[FlowBuilder], object]


@each_row(
    ("declare", "words"),
    [
        (lambda flow: None, "flow 'f' has no steps"),
        (
            lambda flow: flow.step(name="b", after=["aa"])(plain),
            "step 'b' of flow 'f': there is no step 'aa' to come after; did you mean 'a'",
        ),
        (
            lambda flow: flow.step(name="b", after=["b", "zzz"])(plain),
            "there is no step 'zzz' to come after (there are: a)",
        ),
        (lambda flow: flow.step(name="b", after=["b"])(plain), "in a circle: b -> b"),
        (lambda flow: flow.step(name="a")(plain), "has two steps named 'a'"),
        (lambda flow: flow.step(name="b", after=["a", "a"])(plain), "names a step twice"),
        (lambda flow: flow.step(name="b", after="a")(plain), "`after` is a list"),
        (lambda flow: flow.step(name="b", after=[_asked])(plain), "_asked is not one of its steps"),
        (
            lambda flow: flow.step(name="b")(lambda a: a),
            "its function takes the output of step 'a', which it does not wait for: add 'a' to",
        ),
        (
            lambda flow: flow.step(name="b", when=lambda a: a)(plain),
            "its condition takes the output of step 'a'",
        ),
        (
            lambda flow: flow.step(name="b", map="a")(lambda item: item),
            "it is mapped over the output of step 'a'",
        ),
        (lambda flow: flow.step(name="b")(lambda item: item), "`item` is for a mapped step"),
        (lambda flow: flow.step(name="b", map="x")(plain), "a mapped step takes `item`"),
        (lambda flow: flow.step(name="b")(lambda outputs: 1), "`outputs` is for conditions"),
        (
            lambda flow: flow.step(name="b", map="x", when=lambda item: 1)(lambda item: 1),
            "asked once, without an item",
        ),
        (lambda flow: flow.step(name="b")(lambda **rest: 1), "takes '**rest'"),
        (lambda flow: flow.step(name="b", when=lambda *x: 1)(plain), "takes '*x'"),
        (lambda flow: flow.step(name="b", when=_asked)(plain), "a plain function, not async"),
        (lambda flow: flow.step(name="b c")(plain), "'b c' cannot be the name of a step"),
        (lambda flow: flow.step(name="b/c")(plain), "'b/c' cannot be the name of a step"),
        (lambda flow: flow.step(name="input")(plain), "it has a meaning of its own"),
        (lambda flow: flow.step()(lambda: 1), "'<lambda>' cannot be the name of a step"),
        (lambda flow: flow.step(run_if="some")(plain), "run_if must be one of all, any, always"),
        (lambda flow: flow.step(retries=-1)(plain), "retries must be from 0 to 1000, not -1"),
        (lambda flow: flow.step(concurrency=0)(plain), "concurrency must be from 1 to 10000"),
        (lambda flow: flow.step(timeout="soon")(plain), "timeout 'soon' is not a duration"),
        (lambda flow: flow.step(timeout=0)(plain), "timeout must be longer than zero"),
        (lambda flow: flow.step(isolation="moon")(plain), "isolation must be"),
    ],
)
def test_invalid_declarations_are_rejected_with_a_message(declare: Declare, words: str) -> None:
    flow = FlowBuilder("f")
    if "no steps" not in words:
        flow.step(name="a")(plain)

    def read() -> None:
        declare(flow)
        flow.complete()

    with pytest.raises(InvalidInput) as caught:
        read()
    assert words in str(caught.value)


async def _asked() -> bool:
    return True


def test_cycle_of_several_steps_is_named() -> None:
    flow = FlowBuilder("round")
    flow.step(name="a", after=["c"])(plain)
    flow.step(name="b", after=["a"])(plain)
    flow.step(name="c", after=["b"])(plain)
    with pytest.raises(InvalidInput, match="in a circle") as caught:
        flow.complete()
    around = str(caught.value).rpartition(": ")[2].split(" -> ")
    assert around[0] == around[-1]
    assert set(around) == {"a", "b", "c"}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "1st", "x" * 101])
def test_invalid_flow_names_are_rejected(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a flow"):
        FlowBuilder(name)
