"""The protocol of the programs in this folder: one line of JSON in, one line of JSON out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Yields commands until the benchmark closes the pipe."""
    reply({"ready": True})
    while True:
        text = await asyncio.to_thread(sys.stdin.readline)
        if not text:
            return
        yield json.loads(text)


def reply(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def sleep_until(moment: float) -> None:
    """`moment` is on the monotonic clock, which all processes of a machine share."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
