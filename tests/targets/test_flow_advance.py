"""`advance`: the next steps of a flow from its child runs, without a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.model.ids import RunId, step_run_id
from chimes.model.run import AttemptEnd, Origin, Outcome, Run, RunStatus
from chimes.model.target import FlowTarget, TaskTarget
from chimes.targets.flow import Flow, FlowBuilder, RunIf
from chimes.targets.flow.advance import BATCH, Elements, advance, ids_of
from chimes.targets.flow.definition import MOST_ELEMENTS
from tests.builders import ALICE, NOW, SECOND, a_run
from tests.examples import examples

Act = Callable[[str, Mapping[str, object]], Any]


class Fails(Exception):
    pass


class FlowSimulation:
    """Executes a flow in memory; `act` returns the output of a step or raises."""

    def __init__(self, flow: Flow, act: Act, **input: object) -> None:
        self.flow = flow
        self.act = act
        self.run = a_run(
            target=FlowTarget(name=flow.name, input=input),
            owner=ALICE,
            namespace="ns",
            priority=2,
            available_at=NOW - SECOND,
        )
        self.children: dict[RunId, Run] = {}
        self.order: list[str] = []
        self.mapped: dict[str, Elements] = {}

    def next(self) -> Any:
        """Result of `advance`, the same with and without the cache of mapped steps."""
        ids = ids_of(self.run.id)
        watching = advance(self.flow, self.run, self.children, NOW, ids, self.mapped)
        if any(step.map for step in self.flow.ordered):
            assert watching == advance(self.flow, self.run, self.children, NOW, ids)
        return watching

    def add(self) -> list[str]:
        """Adds the next steps and returns their names."""
        added = self.next().add
        self.children.update((run.id, run) for run in added)
        return [run.step for run in added]

    def end(self, run: Run) -> None:
        from chimes.model import replace

        assert isinstance(run.target, TaskTarget)
        self.order.append(run.step)
        try:
            value = self.act(run.step, run.target.args)
            ended = replace(run, status=RunStatus.SUCCEEDED, result={"value": value})
        except Fails as error:
            ended = replace(run, status=RunStatus.FAILED, error=str(error))
        at = NOW + timedelta(seconds=len(self.order))
        self.children[run.id] = replace(ended, finished_at=at)

    @property
    def open(self) -> list[Run]:
        return [run for run in self.children.values() if not run.status.terminal]

    def play(self) -> Outcome:
        while True:
            step = self.next()
            if step.outcome is not None:
                outcome: Outcome = step.outcome
                return outcome
            self.children.update((run.id, run) for run in step.add)
            if not step.add:
                assert {run.id for run in self.open} == set(step.waiting)
                self.end(self.open[0])

    def row(self, step: str) -> Run:
        return self.children[step_run_id(self.run.id, step)]


def echo(step: str, args: Mapping[str, object]) -> object:
    return dict(args)


def diamond(**last: Any) -> Flow:
    flow = FlowBuilder("diamond")
    flow.step(name="top")(lambda: 1)
    flow.step(name="left", after=["top"])(lambda top: 1)
    flow.step(name="right", after=["top"])(lambda top: 1)
    flow.step(name="end", after=["left", "right"], **last)(lambda left, right: 1)
    return flow.complete()


def failing(*names: str) -> Act:
    def act(step: str, args: Mapping[str, object]) -> object:
        if step in names:
            raise Fails(f"{step} broke")
        return step

    return act


def test_child_run_inherits_from_its_flow() -> None:
    simulation = FlowSimulation(diamond(), echo, key=1)
    (child,) = simulation.next().add
    assert child.id == step_run_id(simulation.run.id, "top")
    assert (child.origin, child.parent_id, child.step) == (Origin.CHILD, simulation.run.id, "top")
    assert (child.owner, child.namespace, child.priority) == (ALICE, "ns", 2)
    assert child.target == TaskTarget(name="diamond/top", args={})
    assert (child.schedule_id, child.slot, child.concurrency_key) == (None, None, None)
    assert (child.created_at, child.available_at) == (NOW, NOW - SECOND)


def test_advance_is_idempotent() -> None:
    simulation = FlowSimulation(diamond(), echo)
    assert simulation.next() == simulation.next()
    simulation.add()
    assert simulation.next().add == ()
    assert simulation.next().waiting == (simulation.row("top").id,)


def test_parallel_branches_are_added_together() -> None:
    simulation = FlowSimulation(diamond(), echo)
    assert simulation.add() == ["top"]
    simulation.end(simulation.row("top"))
    assert simulation.add() == ["left", "right"]
    simulation.end(simulation.row("right"))
    assert simulation.add() == []
    simulation.end(simulation.row("left"))
    assert simulation.add() == ["end"]
    assert simulation.row("end").target.args == {"left": {"top": {}}, "right": {"top": {}}}
    assert simulation.play().result == {"value": {"end": simulation.row("end").target.args}}


@pytest.mark.parametrize(
    ("run_if", "broken", "ran", "reason"),
    [
        (RunIf.ALL, [], True, ""),
        (RunIf.ALL, ["left"], False, "upstream_failed"),
        (RunIf.ANY, ["left"], True, ""),
        (RunIf.ANY, ["left", "right"], False, "upstream_failed"),
        (RunIf.ANY, ["top"], False, "upstream_failed"),
        (RunIf.ALWAYS, ["left", "right"], True, ""),
        (RunIf.ALWAYS, ["top"], True, ""),
    ],
)
def test_run_if_after_failed_steps(
    run_if: RunIf, broken: list[str], ran: bool, reason: str
) -> None:
    simulation = FlowSimulation(diamond(run_if=run_if), failing(*broken))
    outcome = simulation.play()
    assert ("end" in simulation.order, simulation.row("end").reason) == (ran, reason)
    assert outcome.end is (AttemptEnd.FAILED if broken else AttemptEnd.SUCCEEDED)
    assert not outcome.retryable
    if broken:
        steps = "step" if len(broken) == 2 else "steps"
        more = f" (and {len(broken) - 1} more {steps})" if len(broken) > 1 else ""
        assert outcome.error == f"step {broken[0]!r} failed: {broken[0]} broke{more}"
        assert outcome.code == "step_failed"


@pytest.mark.parametrize("run_if", list(RunIf))
def test_run_if_after_skipped_steps(run_if: RunIf) -> None:
    flow = FlowBuilder("f")
    flow.step(name="no", when=lambda: False)(lambda: 1)
    flow.step(name="yes")(lambda: 1)
    flow.step(name="some", after=["no", "yes"], run_if=run_if)(lambda no, yes: 1)
    flow.step(name="none", after=["no"], run_if=run_if)(lambda no: 1)
    simulation = FlowSimulation(flow.complete(), echo)
    assert simulation.play().end is AttemptEnd.SUCCEEDED
    assert simulation.row("some").target.args == {"no": None, "yes": {}}
    none = simulation.row("none")
    if run_if is RunIf.ALWAYS:
        assert none.status is RunStatus.SUCCEEDED
    else:
        assert (none.status, none.reason) == (RunStatus.SKIPPED, "upstream_skipped")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (RunStatus.TIMEOUT, "step 'only' timed out"),
        (RunStatus.CANCELED, "step 'only' was canceled"),
        (RunStatus.UNKNOWN, "step 'only' ended unknown"),
    ],
)
def test_step_that_does_not_succeed_fails_the_flow(status: RunStatus, words: str) -> None:
    from chimes.model import replace

    flow = FlowBuilder("f")
    flow.step(name="only")(lambda: 1)
    simulation = FlowSimulation(flow.complete(), echo)
    simulation.add()
    row = simulation.row("only")
    simulation.children[row.id] = replace(row, status=status, finished_at=NOW)
    assert simulation.play().error == words


def test_condition_is_evaluated_once() -> None:
    asked: list[object] = []
    flow = FlowBuilder("f")
    flow.step(name="a")(lambda: 1)

    def when(a: object, outputs: dict[str, object], input: dict[str, object], key: int) -> bool:
        asked.append((a, outputs, input, key))
        return True

    flow.step(name="b", after=["a"], when=when)(lambda: 1)
    simulation = FlowSimulation(flow.complete(), failing(), key=7)
    simulation.play()
    assert asked == [("a", {"a": "a"}, {"key": 7}, 7)]


@pytest.mark.parametrize(
    ("input", "words"),
    [
        ({}, "is not in the flow's input"),
        ({"items": {"a": 1}}, "is not a list but an object"),
        ({"items": "abc"}, "is not a list but text"),
        ({"items": None}, "is not a list but nothing"),
        ({"items": [0] * (MOST_ELEMENTS + 1)}, f"has {MOST_ELEMENTS + 1} elements"),
    ],
)
def test_invalid_map_input_fails_its_step(input: dict[str, object], words: str) -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items")(lambda item: item)
    simulation = FlowSimulation(flow.complete(), echo, **input)
    assert simulation.play().end is AttemptEnd.FAILED
    row = simulation.row("each")
    assert (row.status, row.reason) == (RunStatus.FAILED, "invalid_map")
    assert words in row.error


def test_step_mapped_over_a_skipped_step_is_skipped() -> None:
    flow = FlowBuilder("f")
    flow.step(name="source", when=lambda: False)(lambda: [1])
    flow.step(name="other")(lambda: 1)
    flow.step(name="each", after=["source", "other"], map="source")(lambda item: item)
    simulation = FlowSimulation(flow.complete(), echo)
    simulation.play()
    assert simulation.row("each").reason == "upstream_skipped"


def test_long_map_is_added_in_batches_and_gathered_in_order() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=MOST_ELEMENTS)(lambda item, index: item)
    flow.step(name="gather", after=["each"])(lambda each: each)
    length = BATCH * 2 + 7
    simulation = FlowSimulation(flow.complete(), lambda step, args: args.get("item", step))
    simulation.run = a_run(target=FlowTarget(name="f", input={"items": list(range(length))}))
    parts = [
        len(simulation.add()),
        len(simulation.add()),
        len(simulation.add()),
        len(simulation.add()),
    ]
    assert parts == [BATCH, BATCH, 7, 0]
    for run in simulation.open:
        simulation.end(run)
    assert simulation.add() == ["gather"]
    assert simulation.row("gather").target.args == {"each": list(range(length))}


@pytest.mark.parametrize("failing", [None, 0, 17])
def test_map_runs_all_elements_within_its_concurrency(failing: int | None) -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=3)(lambda item: item)
    flow.step(name="last", after=["each"], run_if=RunIf.ALWAYS)(lambda: 1)

    def act(step: str, args: Mapping[str, object]) -> object:
        if args.get("item") == failing and failing is not None:
            raise Fails("no")
        return args.get("item")

    simulation = FlowSimulation(flow.complete(), act, items=list(range(20)))
    outcome = simulation.play()
    assert outcome.end is (AttemptEnd.SUCCEEDED if failing is None else AttemptEnd.FAILED)
    assert simulation.order == [*(f"each[{index}]" for index in range(20)), "last"]


def test_advance_does_not_scan_all_elements_of_a_map() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=20)(lambda item: item)
    simulation = FlowSimulation(flow.complete(), lambda step, args: 1)
    length = 1000
    simulation.run = a_run(target=FlowTarget(name="f", input={"items": list(range(length))}))
    asked: list[int | None] = []
    known = ids_of(simulation.run.id)

    def ids(step: str, index: int | None) -> RunId:
        asked.append(index)
        return known(step, index)

    for _ in range(length // 2):
        step = advance(
            simulation.flow, simulation.run, simulation.children, NOW, ids, simulation.mapped
        )
        simulation.children.update((run.id, run) for run in step.add)
        simulation.end(simulation.children[known("each", len(simulation.order))])
    asked.clear()
    advance(simulation.flow, simulation.run, simulation.children, NOW, ids, simulation.mapped)
    assert len(asked) < 60


def test_map_elements_get_their_item_and_index() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items")(lambda item, index, key: 1)
    simulation = FlowSimulation(flow.complete(), echo, items=["a", "b"], key=1)
    assert simulation.add() == ["each[0]", "each[1]"]
    args = [run.target.args for run in simulation.children.values()]
    assert args == [{"item": "a", "index": 0, "key": 1}, {"item": "b", "index": 1, "key": 1}]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Flow, frozenset[str]]:
    """Any acyclic flow, and the steps of it that fail."""
    flow = FlowBuilder("any")
    names: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        after = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
        answer = draw(st.sampled_from([None, True, False]))
        flow.step(
            name=f"s{number}",
            after=after,
            run_if=draw(st.sampled_from(list(RunIf))),
            when=None if answer is None else (lambda answer=answer: answer),
        )(lambda: 1)
        names.append(f"s{number}")
    return flow.complete(), draw(st.frozensets(st.sampled_from(names)))


@examples(200)
@given(graphs())
def test_every_flow_ends_with_one_record_per_step(drawn: tuple[Flow, frozenset[str]]) -> None:
    flow, broken = drawn
    simulation = FlowSimulation(flow, failing(*broken))
    outcome = simulation.play()
    rows = {run.step: run for run in simulation.children.values()}
    assert rows.keys() == {step.name for step in flow.steps}
    assert len(simulation.order) == len(set(simulation.order)), "no step runs twice"
    failed = {name for name, run in rows.items() if run.status is RunStatus.FAILED}
    assert (outcome.end is AttemptEnd.FAILED) == bool(failed)
    for step in flow.steps:
        bad = [rows[name].status is RunStatus.FAILED for name in step.after]
        if any(bad) and step.run_if is RunIf.ALL:
            assert rows[step.name].reason == "upstream_failed"
        if step.name in simulation.order:
            places = [
                simulation.order.index(name) for name in step.after if name in simulation.order
            ]
            assert all(place < simulation.order.index(step.name) for place in places)
