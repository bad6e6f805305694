"""Actions on a node that knows no action service: their runs fail and say what is missing, instead
of waiting for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.base import Call, NotHere
from chimes.wording import say

MISSING = say("no node knows an action service: set CHIMES_ACTION_URL (action_url)")


class NoActionService:
    kind = "action"
    resumable = False
    places = None
    offers = frozenset({"action"})

    def __init__(self, elsewhere: Callable[[], Awaitable[bool]]) -> None:
        """`elsewhere`: whether another node knows one."""
        self._elsewhere = elsewhere

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        if await self._elsewhere():
            raise NotHere
        call.log("error", MISSING)
        return Outcome(end=AttemptEnd.FAILED, error=MISSING, code="no_action_service")
