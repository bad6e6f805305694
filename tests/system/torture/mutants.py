"""Planted bugs: `chimes serve` with the defect that CHIMES_TORTURE_MUTANT names, to prove that the
harness detects it.

The product has no code for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from chimes.engine.executor import Executor
from chimes.engine.membership import Membership
from chimes.engine.scheduler import Scheduler
from chimes.failpoints import hit
from chimes.model.planning import FirePlan
from chimes.model.run import Completion, complete
from chimes.store.port import CompletionResult
from chimes.store.sql import completion
from chimes.store.sql.database.base import Tx
from chimes.store.sql.rows.access import load_runs, write_changes


def no_fence() -> None:
    """Accepts completions with any fence."""
    finish = completion.finish

    def finish_any(tx: Tx, completions: Sequence[Completion]) -> CompletionResult:
        answer = finish(tx, completions)
        refused = {each.run_id: each for each in completions if each.run_id in answer.refused}
        changes = [
            (before, complete(before, refused[before.id], tx.now()))
            for before in load_runs(tx, refused.keys()).values()
        ]
        write_changes(tx, changes)
        return CompletionResult(accepted=(*answer.accepted, *(after for _, after in changes)))

    setattr(completion, "finish", finish_any)  # noqa: B010 - mypy rejects the assignment


def not_atomic() -> None:
    """Moves the cursor in one transaction and inserts the runs in the next."""
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

    setattr(Scheduler, "_fire", cursor_then_runs)  # noqa: B010 - mypy rejects the assignment


def no_trust_window() -> None:
    """Ignores the lease before a call and after its end."""
    setattr(Executor, "stop_all", lambda self, why: 0)  # noqa: B010
    Membership.trusted = property(lambda self: True)  # type: ignore[assignment]


def node_clock() -> None:
    """Changes nothing: on SQLite the store's clock is the process's, which the plan shifts."""


MUTANTS: dict[str, Callable[[], None]] = {
    "no_fence": no_fence,
    "not_atomic": not_atomic,
    "no_trust_window": no_trust_window,
    "node_clock": node_clock,
}


def main() -> NoReturn:
    from chimes.cli import main as chimes

    MUTANTS[os.environ["CHIMES_TORTURE_MUTANT"]]()
    chimes()
