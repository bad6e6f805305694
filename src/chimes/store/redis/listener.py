"""Hears the wake-ups of other processes. The scripts send them; one connection listens.

A notice may be lost with its connection: polling is what nothing is lost by, notices only make it
prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

import redis.exceptions as driver
from redis.asyncio.connection import Connection

from chimes.store.redis.address import Address
from chimes.store.redis.connections import connected
from chimes.wording import say

_log = logging.getLogger(__name__)

_SHORTEST, _LONGEST = 0.1, 5.0
#: After so long without a word the server is asked whether it is still there.
QUIET_SECONDS = 15.0
ANSWER_SECONDS = 10.0


class Listener:
    def __init__(self, address: Address, me: str, wake: Callable[[], None]) -> None:
        self._address = address
        self._me = me.encode()
        self._wake = wake
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live(), name="chimes listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            # Once may not be enough: drivers may swallow it.
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    async def _live(self) -> None:
        delay = _SHORTEST
        while True:
            found = None
            try:
                found = await connected(self._address)
                await found.send_command("SUBSCRIBE", self._address.channel)
                await found.read_response()
                delay = _SHORTEST
                # Whatever was said meanwhile was not heard.
                self._wake()
                await self._hear(found)
            except (driver.RedisError, OSError, TimeoutError) as error:
                _log.debug("no wake-ups from other nodes until they can be heard again: %s", error)
            finally:
                if found is not None:
                    with contextlib.suppress(driver.RedisError, OSError):
                        await found.disconnect(nowait=True)
            await asyncio.sleep(random.uniform(delay / 2, delay))  # noqa: S311
            delay = min(delay * 2, _LONGEST)

    async def _hear(self, found: Connection) -> None:
        asked = False
        while True:
            said = await found.read_response(timeout=ANSWER_SECONDS if asked else QUIET_SECONDS)
            if said is None:
                if asked:
                    raise TimeoutError(say("the server says nothing any more"))
                await found.send_command("PING")
                asked = True
                continue
            asked = False
            if isinstance(said, list) and said[0] == b"message" and said[2] != self._me:
                self._wake()
