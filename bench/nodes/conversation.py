"""How the programs in this folder talk to the benchmark: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Until the benchmark closes the pipe."""
    say({"ready": True})
    while True:
        text = await asyncio.to_thread(sys.stdin.readline)
        if not text:
            return
        yield json.loads(text)


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def until(moment: float) -> None:
    """By the monotonic clock, which all processes of a machine share: all begin together."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
