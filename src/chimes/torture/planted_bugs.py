"""Planted bugs: `chimes serve` with the defect that CHIMES_TORTURE_BUG names, to prove that a
torture run detects it.

Only processes that the harness starts through `main`, and the simulation, have them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast
from unittest.mock import patch

from chimes.engine.executor import Executor
from chimes.engine.in_flight import Claim
from chimes.engine.membership import Membership
from chimes.engine.recorder import Recorder
from chimes.engine.scheduler import Scheduler
from chimes.errors import StoreUnavailable
from chimes.failpoints import hit
from chimes.model import replace
from chimes.model.planning import FirePlan
from chimes.model.run import Completion, RunStatus
from chimes.store.port import CompletionResult, Store
from chimes.torture.faults import Fault
from chimes.torture.nodes import LEASE

Patch = tuple[object, str, object]


class _AnyFence:
    """A store that accepts completions of attempts whose run was taken over."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        result = await self._store.finish(completions)
        again = []
        for each in completions:
            if each.run_id in result.refused:
                run = await self._store.get_run(each.run_id)
                if run is not None and run.status is RunStatus.RUNNING:
                    again.append(replace(each, fence=run.fence))
        if not again:
            return result
        late = await self._store.finish(again)
        unknown = {each.run_id for each in again}
        refused = (*(each for each in result.refused if each not in unknown), *late.refused)
        return CompletionResult(accepted=(*result.accepted, *late.accepted), refused=refused)


def _no_fence() -> Iterator[Patch]:
    init = Recorder.__init__

    def with_any_fence(self: Recorder, store: Store, *args: Any, **named: Any) -> None:
        init(self, cast(Store, _AnyFence(store)), *args, **named)

    yield Recorder, "__init__", with_any_fence


def _not_atomic() -> Iterator[Patch]:
    fire = Scheduler._fire

    async def cursor_then_runs(self: Scheduler, *args: Any, **named: Any) -> tuple[bool, int]:
        planner, runs = self._planner, list[Any]()

        def only_the_cursor(*given: Any) -> FirePlan:
            plan = planner(*given)
            runs.extend(plan.runs)
            return FirePlan(schedule=plan.schedule, runs=(), cancel=plan.cancel)

        self._planner = only_the_cursor
        try:
            answer = await fire(self, *args, **named)
        finally:
            self._planner = planner
        if runs:
            hit("fire.after")
            await asyncio.sleep(0.05)  # the latency of a busy store
            await self._store.add_runs(tuple(runs))
        return answer

    yield Scheduler, "_fire", cursor_then_runs


def _no_trust_window() -> Iterator[Patch]:
    yield Executor, "stop_all", lambda self, why: 0
    yield Membership, "is_trusted_at", lambda self, moment: True


def _dropped_completions() -> Iterator[Patch]:
    write = Recorder._write

    async def write_or_drop(self: Recorder, batch: Sequence[tuple[Claim, Completion]]) -> None:
        try:
            await write(self, batch)
        except StoreUnavailable:
            for claim, _completion in batch:
                self._pending.pop(claim, None)
            raise

    yield Recorder, "_write", write_or_drop


def _node_clock() -> Iterator[Patch]:
    """Changes nothing: the store's clock of a file is the process's, which the plan shifts."""
    return iter(())


@dataclass(frozen=True, kw_only=True)
class PlantedBug:
    #: What is wrong, in one sentence.
    about: str
    patches: Callable[[], Iterator[Patch]]
    #: Faults of a short run that reach it.
    plan: tuple[Fault, ...]
    #: Kinds of violations that show it; one of them is enough.
    shown_by: frozenset[str]
    #: Nodes that it needs.
    nodes: int = 2
    #: The kinds of stores on which it can be planted; empty: all.
    stores: tuple[str, ...] = ()
    #: Calls take this many milliseconds; 0: the usual mix.
    slow: int = 0


#: Longer than a lease, and shorter than a takeover with a slow call.
_STALL = f"{1.5 * LEASE:.1f}"
BUGS: dict[str, PlantedBug] = {
    "no_fence": PlantedBug(
        about="accepts the completion of an attempt whose run was taken over",
        patches=_no_fence,
        plan=(
            Fault(0.5, "failpoint", 0, 0.1, f"run.before_record@4:stop:{_STALL}"),
            Fault(7.0, "failpoint", 1, 0.1, f"run.before_record@4:stop:{_STALL}"),
        ),
        shown_by=frozenset({"stale_write", "completion_changed"}),
        slow=2500,
    ),
    "not_atomic": PlantedBug(
        about="moves the cursor in one transaction and inserts the runs in the next",
        patches=_not_atomic,
        plan=(
            Fault(0.5, "failpoint", 0, 0.1, "fire.after@3:kill"),
            Fault(1.0, "failpoint", 1, 0.1, "fire.after@5:kill"),
            Fault(5.0, "failpoint", 0, 0.1, "fire.after@4:kill"),
        ),
        shown_by=frozenset({"slot_lost"}),
        nodes=1,
    ),
    "no_trust_window": PlantedBug(
        about="starts calls after the end of its lease",
        patches=_no_trust_window,
        plan=(
            Fault(0.5, "failpoint", 0, 0.1, f"run.before_effect@4:stop:{_STALL}"),
            Fault(7.0, "failpoint", 1, 0.1, f"run.before_effect@4:stop:{_STALL}"),
        ),
        shown_by=frozenset({"late_effect"}),
    ),
    "dropped_completions": PlantedBug(
        about="forgets results that could not be stored at once",
        patches=_dropped_completions,
        plan=tuple(Fault(0.5 + 2.0 * turn, "cut", turn % 2, 0.8) for turn in range(5)),
        shown_by=frozenset({"run_without_end", "history_mismatch"}),
        stores=("postgresql", "mariadb", "redis"),
    ),
    "node_clock": PlantedBug(
        about="decides by the clock of the node what is due",
        patches=_node_clock,
        plan=(Fault(0.5, "clock", 0, 0.1, "5"), Fault(6.0, "clock", 0, 0.1, "7")),
        shown_by=frozenset({"early"}),
        nodes=1,
        stores=("sqlite", "json"),
    ),
}


def bugs_for(store: str, nodes: int) -> dict[str, PlantedBug]:
    """The bugs that can be planted on this kind of store."""
    return {
        name: bug
        for name, bug in BUGS.items()
        if bug.nodes <= nodes and (not bug.stores or store in bug.stores)
    }


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants a bug in this process; an empty name plants none."""
    patches = [patch.object(*each) for each in (BUGS[name].patches() if name else ())]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def main() -> NoReturn:
    from importlib import import_module

    with planted(os.environ["CHIMES_TORTURE_BUG"]):
        # Not imported above: the command line imports this package.
        import_module("chimes.cli").main()
    raise AssertionError("main() exits")
