"""Prompts on a node that has no pipeline: their runs fail and say what is missing, instead of
waiting for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.base import Call, NotHere
from chimes.wording import say

MISSING = say(
    "no node has a pipeline for prompts: set CHIMES_AGENT_PIPELINE (openai or runs) and "
    "CHIMES_AGENT_URL"
)


class NoPipeline:
    kind = "agent"
    resumable = False
    places = None
    offers = frozenset({"agent"})

    def __init__(self, elsewhere: Callable[[], Awaitable[bool]]) -> None:
        """`elsewhere`: whether another node has one."""
        self._elsewhere = elsewhere

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        if await self._elsewhere():
            raise NotHere
        call.log("error", MISSING)
        return Outcome(end=AttemptEnd.FAILED, error=MISSING, code="no_pipeline")
