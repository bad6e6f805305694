"""Runs of a kind that no node is set up for: they fail and say what is missing, instead of waiting
for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.base import Call, NotHere
from chimes.wording import Wording, say

NO_PIPELINE = say(
    "no node has a pipeline for prompts: set CHIMES_AGENT_PIPELINE (openai or runs) and "
    "CHIMES_AGENT_URL"
)
NO_ACTION_SERVICE = say("no node knows an action service: set CHIMES_ACTION_URL (action_url)")


class NotConfigured:
    resumable = False
    places = None

    def __init__(
        self, kind: str, code: str, missing: Wording, elsewhere: Callable[[], Awaitable[bool]]
    ) -> None:
        """`elsewhere`: whether another node is set up for it."""
        self.kind = kind
        self.offers = frozenset({kind})
        self._code = code
        self._missing = missing
        self._elsewhere = elsewhere

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        if await self._elsewhere():
            raise NotHere
        call.log("error", self._missing)
        return Outcome(end=AttemptEnd.FAILED, error=self._missing, code=self._code)
