"""Duties that bring in work rest while their node drains."""

from __future__ import annotations

from chimes.engine.lifecycle import Duty, Rest, Told
from chimes.engine.membership import Membership


class AtWork:
    """A pass that is under way when the node hears of it may still bring something: the hands give
    that back (`Hands.take`)."""

    def __init__(self, duty: Duty, membership: Membership) -> None:
        self.name = duty.name
        self._duty = duty
        self._membership = membership

    async def once(self) -> Rest:
        if self._membership.draining:
            return Told(event=self._membership.at_work)
        return await self._duty.once()
