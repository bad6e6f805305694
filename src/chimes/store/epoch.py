"""Whether a store is still the one it was (F28, F30, F72).

After a fail-over to a standby that lacked the last commits, or after a restore, a store has
forgotten what nodes remember. It holds a counter that only rises; whoever finds it lower than
before knows that the store went back, and that nothing held from before is held any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from chimes.wording import say


@dataclass(frozen=True, slots=True)
class Epoch:
    #: Raised by everyone who asks for it.
    counter: int
    #: Which server this is, and which of its histories (PostgreSQL's timeline); empty: unknown.
    history: str = ""


@runtime_checkable
class WithEpoch(Protocol):
    """A store that can go back behind its users' backs."""

    async def epoch(self) -> Epoch:
        """Raise the counter, and tell it. Ask every few seconds and compare (`regress`)."""


def regress(before: Epoch, after: Epoch) -> str:
    """Why the store is not what it was; empty if it is. A new history alone is no reason: after a
    fail-over that lost nothing the counter goes on."""
    if after.counter > before.counter:
        return ""
    return say(
        "the store went back from epoch {before} to {after} (it was {was}, now {now})",
        before=before.counter,
        after=after.counter,
        was=before.history or say("unknown"),
        now=after.history or say("unknown"),
    )
