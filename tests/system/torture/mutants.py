"""Planted bugs: `chimes serve` with one thing broken on purpose, to prove that the harness sees it.

    CHIMES_TORTURE_MUTANT=NAME python -m tests.system.torture.mutants serve

Nothing in the product knows about them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import chimes.store.sql.finishing as finishing
from chimes.engine.hands import Hands
from chimes.engine.membership import Membership
from chimes.engine.scheduler import Scheduler
from chimes.failpoints import hit
from chimes.model.planning import Firing


def no_fence() -> None:
    """A verdict is accepted whoever holds the run now."""
    assert hasattr(finishing, "accepts")
    setattr(finishing, "accepts", lambda run, fence: True)  # noqa: B010 - it exports no such name


def not_atomic() -> None:
    """The cursor moves in one transaction, the runs are inserted in the next."""
    plan, fire = Scheduler._plan, Scheduler._fire
    left: list[Any] = []

    def only_the_cursor(self: Scheduler, *args: Any) -> Firing:
        firing = plan(self, *args)
        left.extend(firing.runs)
        return replace(firing, runs=())

    async def then_the_runs(self: Scheduler, limit: int) -> tuple[bool, bool]:
        left.clear()
        answer = await fire(self, limit)
        if left:
            hit("fire.after")
            await asyncio.sleep(0.05)  # as long as a busy store takes
            await self._store.add_runs(tuple(left))
        return answer

    setattr(Scheduler, "_plan", only_the_cursor)  # noqa: B010 - mypy has no word for a mutant
    setattr(Scheduler, "_fire", then_the_runs)  # noqa: B010


def no_trust_window() -> None:
    """Nothing is asked of the lease before an effect, and nothing is stopped when it has ended."""
    setattr(Hands, "stop_all", lambda self, why: 0)  # noqa: B010
    Membership.trusted = property(lambda self: True)  # type: ignore[assignment]


def node_clock() -> None:
    """Nothing to break: on SQLite the store's clock is that of the process. The plan sets it."""


MUTANTS: dict[str, Callable[[], None]] = {
    "no_fence": no_fence,
    "not_atomic": not_atomic,
    "no_trust_window": no_trust_window,
    "node_clock": node_clock,
}


if __name__ == "__main__":
    from chimes.cli import main

    MUTANTS[os.environ["CHIMES_TORTURE_MUTANT"]]()
    sys.exit(main())
