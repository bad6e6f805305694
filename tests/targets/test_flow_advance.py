"""Where a flow stands: from its child runs to the next ones, without a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chimes.model.ids import RunId, step_run_id
from chimes.model.run import AttemptEnd, Origin, Outcome, Run, RunStatus
from chimes.model.target import FlowTarget, TaskTarget
from chimes.targets.flow import Flow, FlowBuilder, RunIf
from chimes.targets.flow.advance import BATCH, Elements, advance, ids_of
from chimes.targets.flow.definition import MOST_ELEMENTS
from tests.builders import ALICE, NOW, SECOND, a_run

Act = Callable[[str, Mapping[str, object]], Any]


class Fails(Exception):
    pass


class Playing:
    """Carries a flow out in memory: `act` says what each step returns, or raises."""

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
        """What a node says that has watched all the time, and one that takes over."""
        ids = ids_of(self.run.id)
        watching = advance(self.flow, self.run, self.children, NOW, ids, self.mapped)
        if any(step.map for step in self.flow.ordered):
            assert watching == advance(self.flow, self.run, self.children, NOW, ids)
        return watching

    def add(self) -> list[str]:
        """The steps that are next."""
        added = self.next().add
        self.children.update((run.id, run) for run in added)
        return [run.step for run in added]

    def end(self, run: Run) -> None:
        from dataclasses import replace

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


def test_a_child_has_what_its_flow_has() -> None:
    playing = Playing(diamond(), echo, key=1)
    (child,) = playing.next().add
    assert child.id == step_run_id(playing.run.id, "top")
    assert (child.origin, child.parent_id, child.step) == (Origin.CHILD, playing.run.id, "top")
    assert (child.owner, child.namespace, child.priority) == (ALICE, "ns", 2)
    assert child.target == TaskTarget(name="diamond/top", args={})
    assert (child.schedule_id, child.slot, child.concurrency_key) == (None, None, None)
    assert (child.created_at, child.available_at) == (NOW, NOW - SECOND)


# Whoever looks again, or at the same time, asks for the same rows
def test_asking_again_changes_nothing() -> None:
    playing = Playing(diamond(), echo)
    assert playing.next() == playing.next()
    playing.add()
    assert playing.next().add == ()
    assert playing.next().waiting == (playing.row("top").id,)


def test_branches_are_added_together() -> None:
    playing = Playing(diamond(), echo)
    assert playing.add() == ["top"]
    playing.end(playing.row("top"))
    assert playing.add() == ["left", "right"]
    playing.end(playing.row("right"))
    assert playing.add() == []
    playing.end(playing.row("left"))
    assert playing.add() == ["end"]
    assert playing.row("end").target.args == {"left": {"top": {}}, "right": {"top": {}}}
    assert playing.play().result == {"value": {"end": playing.row("end").target.args}}


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
def test_failures_before_a_step(run_if: RunIf, broken: list[str], ran: bool, reason: str) -> None:
    playing = Playing(diamond(run_if=run_if), failing(*broken))
    outcome = playing.play()
    assert ("end" in playing.order, playing.row("end").reason) == (ran, reason)
    assert outcome.end is (AttemptEnd.FAILED if broken else AttemptEnd.SUCCEEDED)
    assert not outcome.retryable
    if broken:
        steps = "step" if len(broken) == 2 else "steps"
        more = f" (and {len(broken) - 1} more {steps})" if len(broken) > 1 else ""
        assert outcome.error == f"step {broken[0]!r} failed: {broken[0]} broke{more}"
        assert outcome.code == "step_failed"


@pytest.mark.parametrize("run_if", list(RunIf))
def test_skipped_steps_before_a_step(run_if: RunIf) -> None:
    flow = FlowBuilder("f")
    flow.step(name="no", when=lambda: False)(lambda: 1)
    flow.step(name="yes")(lambda: 1)
    flow.step(name="some", after=["no", "yes"], run_if=run_if)(lambda no, yes: 1)
    flow.step(name="none", after=["no"], run_if=run_if)(lambda no: 1)
    playing = Playing(flow.complete(), echo)
    assert playing.play().end is AttemptEnd.SUCCEEDED
    assert playing.row("some").target.args == {"no": None, "yes": {}}
    none = playing.row("none")
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
def test_every_bad_end_of_a_step_fails_the_flow(status: RunStatus, words: str) -> None:
    from dataclasses import replace

    flow = FlowBuilder("f")
    flow.step(name="only")(lambda: 1)
    playing = Playing(flow.complete(), echo)
    playing.add()
    row = playing.row("only")
    playing.children[row.id] = replace(row, status=status, finished_at=NOW)
    assert playing.play().error == words


def test_a_condition_is_asked_once() -> None:
    asked: list[object] = []
    flow = FlowBuilder("f")
    flow.step(name="a")(lambda: 1)

    def when(a: object, outputs: dict[str, object], input: dict[str, object], key: int) -> bool:
        asked.append((a, outputs, input, key))
        return True

    flow.step(name="b", after=["a"], when=when)(lambda: 1)
    playing = Playing(flow.complete(), failing(), key=7)
    playing.play()
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
def test_what_cannot_be_mapped_fails_its_step(input: dict[str, object], words: str) -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items")(lambda item: item)
    playing = Playing(flow.complete(), echo, **input)
    assert playing.play().end is AttemptEnd.FAILED
    row = playing.row("each")
    assert (row.status, row.reason) == (RunStatus.FAILED, "invalid_map")
    assert words in row.error


def test_a_list_that_was_skipped_skips_what_is_mapped_over_it() -> None:
    flow = FlowBuilder("f")
    flow.step(name="source", when=lambda: False)(lambda: [1])
    flow.step(name="other")(lambda: 1)
    flow.step(name="each", after=["source", "other"], map="source")(lambda item: item)
    playing = Playing(flow.complete(), echo)
    playing.play()
    assert playing.row("each").reason == "upstream_skipped"


def test_a_long_list_is_added_in_parts_and_gathered_in_order() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=MOST_ELEMENTS)(lambda item, index: item)
    flow.step(name="gather", after=["each"])(lambda each: each)
    length = BATCH * 2 + 7
    playing = Playing(flow.complete(), lambda step, args: args.get("item", step))
    playing.run = a_run(target=FlowTarget(name="f", input={"items": list(range(length))}))
    parts = [len(playing.add()), len(playing.add()), len(playing.add()), len(playing.add())]
    assert parts == [BATCH, BATCH, 7, 0]
    for run in playing.open:
        playing.end(run)
    assert playing.add() == ["gather"]
    assert playing.row("gather").target.args == {"each": list(range(length))}


@pytest.mark.parametrize("failing", [None, 0, 17])
def test_a_long_list_goes_through_its_window(failing: int | None) -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=3)(lambda item: item)
    flow.step(name="last", after=["each"], run_if=RunIf.ALWAYS)(lambda: 1)

    def act(step: str, args: Mapping[str, object]) -> object:
        if args.get("item") == failing and failing is not None:
            raise Fails("no")
        return args.get("item")

    playing = Playing(flow.complete(), act, items=list(range(20)))
    outcome = playing.play()
    assert outcome.end is (AttemptEnd.SUCCEEDED if failing is None else AttemptEnd.FAILED)
    assert playing.order == [*(f"each[{index}]" for index in range(20)), "last"]


def test_a_long_list_is_not_walked_through_for_each_element() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items", concurrency=20)(lambda item: item)
    playing = Playing(flow.complete(), lambda step, args: 1)
    length = 1000
    playing.run = a_run(target=FlowTarget(name="f", input={"items": list(range(length))}))
    asked: list[int | None] = []
    known = ids_of(playing.run.id)

    def ids(step: str, index: int | None) -> RunId:
        asked.append(index)
        return known(step, index)

    for _ in range(length // 2):
        step = advance(playing.flow, playing.run, playing.children, NOW, ids, playing.mapped)
        playing.children.update((run.id, run) for run in step.add)
        playing.end(playing.children[known("each", len(playing.order))])
    asked.clear()
    advance(playing.flow, playing.run, playing.children, NOW, ids, playing.mapped)
    assert len(asked) < 60


def test_elements_are_told_apart() -> None:
    flow = FlowBuilder("f")
    flow.step(name="each", map="items")(lambda item, index, key: 1)
    playing = Playing(flow.complete(), echo, items=["a", "b"], key=1)
    assert playing.add() == ["each[0]", "each[1]"]
    args = [run.target.args for run in playing.children.values()]
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


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_every_flow_ends_with_a_record_of_each_step(drawn: tuple[Flow, frozenset[str]]) -> None:
    flow, broken = drawn
    playing = Playing(flow, failing(*broken))
    outcome = playing.play()
    rows = {run.step: run for run in playing.children.values()}
    assert rows.keys() == {step.name for step in flow.steps}
    assert len(playing.order) == len(set(playing.order)), "no step twice"
    failed = {name for name, run in rows.items() if run.status is RunStatus.FAILED}
    assert (outcome.end is AttemptEnd.FAILED) == bool(failed)
    for step in flow.steps:
        bad = [rows[name].status is RunStatus.FAILED for name in step.after]
        if any(bad) and step.run_if is RunIf.ALL:
            assert rows[step.name].reason == "upstream_failed"
        if step.name in playing.order:
            places = [playing.order.index(name) for name in step.after if name in playing.order]
            assert all(place < playing.order.index(step.name) for place in places)
