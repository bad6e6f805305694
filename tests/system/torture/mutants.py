"""Planted bugs: `chimes serve` with one thing broken on purpose, to prove that the harness sees it:
the one that CHIMES_TORTURE_MUTANT names.

Nothing in the product knows about them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, NoReturn

import chimes.store.sql.completion as finishing
from chimes.engine.executor import Executor
from chimes.engine.membership import Membership
from chimes.engine.scheduler import Scheduler
from chimes.failpoints import hit
from chimes.model.planning import PolicyPlan


def no_fence() -> None:
    """A verdict is accepted whoever holds the run now."""
    assert hasattr(finishing, "owns_fence")
    setattr(finishing, "owns_fence", lambda run, fence: True)  # noqa: B010 - it exports no such name


def not_atomic() -> None:
    """The cursor moves in one transaction, the runs are inserted in the next."""
    fire = Scheduler._fire

    async def cursor_then_runs(self: Scheduler, *args: Any, **named: Any) -> tuple[bool, int]:
        planner, runs = self._planner, list[Any]()

        def only_the_cursor(*given: Any) -> PolicyPlan:
            plan = planner(*given)
            runs.extend(plan.runs)
            return PolicyPlan(schedule=plan.schedule, runs=(), cancel=plan.cancel)

        self._planner = only_the_cursor
        try:
            answer = await fire(self, *args, **named)
        finally:
            self._planner = planner
        if runs:
            hit("fire.after")
            await asyncio.sleep(0.05)  # as long as a busy store takes
            await self._store.add_runs(tuple(runs))
        return answer

    setattr(Scheduler, "_fire", cursor_then_runs)  # noqa: B010 - mypy has no word for a mutant


def no_trust_window() -> None:
    """Nothing is asked of the lease before an effect, and nothing is stopped when it has ended."""
    setattr(Executor, "stop_all", lambda self, why: 0)  # noqa: B010
    Membership.trusted = property(lambda self: True)  # type: ignore[assignment]


def node_clock() -> None:
    """Nothing to break: on SQLite the store's clock is that of the process. The plan sets it."""


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
