"""Detects that a store went back in time.

After a fail-over to a standby that lacked the last commits, or after a restore, a store has lost
writes that nodes rely on. It has a counter that only rises: a node that reads a lower value than
before knows that its claims are void.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from chimes.i18n import _

#: Allowed clock difference of two servers; a larger one means that both were used at once.
MAX_CLOCK_DIFFERENCE = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Epoch:
    #: Raised by every read.
    counter: int
    #: Server and timeline (PostgreSQL); empty: unknown.
    history: str = ""
    #: When it was read, and when this history was first seen, by the store's clock; only for
    #: stores whose history forks at a fail-over.
    at: datetime | None = None
    begun: datetime | None = None


@runtime_checkable
class EpochStore(Protocol):
    """A store that can go back in time unnoticed."""

    async def epoch(self) -> Epoch:
        """Raise and return the counter. Call every few seconds and compare
        (`describe_rollback`)."""


def describe_rollback(before: Epoch, after: Epoch) -> str:
    """Why the store went back in time; empty if it did not. A new history alone is no reason: the
    counter continues after a fail-over without loss. But a node that read the old history after
    the new one had begun wrote to an abandoned server."""
    if _used_old_history(before, after):
        return _(
            "the store failed over without this node: {now} had begun while this node still "
            "used {was}",
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


def _used_old_history(before: Epoch, after: Epoch) -> bool:
    if before.history == after.history or before.at is None or after.begun is None:
        return False
    return after.begun + MAX_CLOCK_DIFFERENCE < before.at
