"""Whether a store is still the one it was (F28, F30, F72).

After a fail-over to a standby that lacked the last commits, or after a restore, a store has
forgotten what nodes remember. It holds a counter that only rises; whoever finds it lower than
before knows that the store went back, and that nothing held from before is held any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from chimes.i18n import _

#: So far two servers' clocks may be apart before a quick fail-over looks like two of them at once;
#: whoever is really left behind looks again later than that.
MAX_CLOCK_DIFFERENCE = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Epoch:
    #: Raised by everyone who asks for it.
    counter: int
    #: Which server this is, and which of its histories (PostgreSQL's timeline); empty: unknown.
    history: str = ""
    #: When it was asked for, and when anybody first saw this history, by the store's clock; only of
    #: stores whose history forks at a fail-over.
    at: datetime | None = None
    begun: datetime | None = None


@runtime_checkable
class EpochStore(Protocol):
    """A store that can go back behind its users' backs."""

    async def epoch(self) -> Epoch:
        """Raise the counter, and tell it. Ask every few seconds and compare (`describe_rollback`)."""


def describe_rollback(before: Epoch, after: Epoch) -> str:
    """Why the store is not what it was; empty if it is. A new history alone is no reason: after a
    fail-over that lost nothing the counter goes on. But who looked at the old history when the
    new one had begun already wrote to a server that nobody follows any more (F30)."""
    if _left_behind(before, after):
        return _(
            "the store went on without this node: {now} had begun while it still asked {was}",
            was=before.history,
            now=after.history,
        )
    if after.counter > before.counter:
        return ""
    return _(
        "the store went back from epoch {before} to {after} (it was {was}, now {now})",
        before=before.counter,
        after=after.counter,
        was=before.history or _("unknown"),
        now=after.history or _("unknown"),
    )


def _left_behind(before: Epoch, after: Epoch) -> bool:
    if before.history == after.history or before.at is None or after.begun is None:
        return False
    return after.begun + MAX_CLOCK_DIFFERENCE < before.at
