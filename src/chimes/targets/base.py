"""The port of a target: carry out one attempt, say what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from chimes.model.run import Outcome, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One attempt. The run carries target, policy, attempt number and fence."""

    run: Run
    #: Store time at which the attempt begins; outgoing timestamps are made from it (F50).
    triggered_at: datetime
    #: Adds a line to the run's log: (level, message).
    log: Callable[[str, str], None]


class TargetRunner(Protocol):
    kind: str

    @property
    def offers(self) -> frozenset[str]:
        """The `target.needs` that it can carry out; fixed once the node has started."""

    async def open(self) -> None:
        """Make pools and the like; called once, on the worker's event loop."""

    async def close(self) -> None: ...

    async def execute(self, call: Call) -> Outcome:
        """One attempt, within `call.run.policy.timeout` as a total deadline. Never raises for
        what the other side does; being cancelled (asyncio) means: stop now."""
