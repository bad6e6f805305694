"""How many runs an owner may ask for, where keys are on (RELIABILITY 8, S24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chimes.errors import QuotaExceeded
from chimes.model.access import Actor, Owner, Role
from chimes.model.listing import RunQuery
from chimes.model.run import RunStatus
from chimes.store.port import Store
from chimes.wording import say

_DAY = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """0: no limit."""

    running: int = 0
    #: Those asked for by hand; slots of schedules have the shortest interval.
    in_a_day: int = 0


NO_RUN_LIMITS = RunLimits()


class RunQuotas:
    """Asked before a run is added, not in its transaction: several that come at the same instant
    may all find room for one (ADR 26)."""

    def __init__(self, store: Store, limits: Callable[[], RunLimits]) -> None:
        self._store = store
        self._limits = limits

    async def check(self, actor: Actor, owner: Owner, *, count: int = 1) -> None:
        """Raises QuotaExceeded. What an admin asks for is not counted."""
        limits = self._limits()
        if actor.role is Role.ADMIN:
            return
        if limits.running and await self._running(owner, limits.running) >= limits.running:
            raise QuotaExceeded(
                say(
                    "{owner} already has {limit} runs under way, as many as are allowed",
                    owner=owner,
                    limit=limits.running,
                ),
                quota="running",
                limit=limits.running,
            )
        if limits.in_a_day:
            taken = await self._store.take_tokens(
                f"runs:{owner}", rate=limits.in_a_day / _DAY, burst=limits.in_a_day, count=count
            )
            if not taken.granted:
                raise QuotaExceeded(
                    say(
                        "{owner} may ask for {limit} runs a day",
                        owner=owner,
                        limit=limits.in_a_day,
                    ),
                    quota="runs_per_day",
                    limit=limits.in_a_day,
                )

    async def _running(self, owner: Owner, most: int) -> int:
        query = RunQuery(owner=owner, statuses=(RunStatus.RUNNING,), limit=most)
        return len((await self._store.list_runs(query)).items)
