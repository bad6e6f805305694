"""Processes wake each other through the database, as far as it can do that.

A notice in every commit would slow commits down two to four times, so notices are sent after the
commit, over the connection that listens, and those of a few milliseconds go as one. A notice may
be lost with its connection: polling is what nothing is lost by, notices only make it prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from chimes.store.sql.server import Notices, Server

_log = logging.getLogger(__name__)

#: At most one notice in this time.
GAP_SECONDS = 0.005
_SHORTEST, _LONGEST = 0.1, 5.0


class WakeChannel:
    def __init__(self, server: Server, wake: Callable[[], None]) -> None:
        self._server = server
        self._wake = wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._untold = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._live(), name="chimes wake channel")

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            # Once may not be enough: wait_for, in drivers too, may swallow it.
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    def tell(self) -> None:
        """Soon, from any thread."""
        if self._loop is None or self._untold.is_set():
            return
        with contextlib.suppress(RuntimeError):  # that loop has ended
            self._loop.call_soon_threadsafe(self._untold.set)

    async def _live(self) -> None:
        delay = _SHORTEST
        while True:
            try:
                notices = await self._server.notices(self._wake)
            except Exception as error:
                _log.debug("no wake-ups from other nodes until they can be heard again: %s", error)
                await asyncio.sleep(random.uniform(delay / 2, delay))  # noqa: S311
                delay = min(delay * 2, _LONGEST)
                continue
            if notices is None:
                return
            delay = _SHORTEST
            # Whatever was said meanwhile was not heard.
            self._wake()
            try:
                await self._converse(notices)
            except Exception as error:
                _log.debug("the connection for wake-ups was lost: %s", error)
            finally:
                await notices.close()

    async def _converse(self, notices: Notices) -> None:
        lost = asyncio.ensure_future(notices.lost.wait())
        try:
            while not lost.done():
                told = asyncio.ensure_future(self._untold.wait())
                try:
                    await asyncio.wait((lost, told), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    told.cancel()
                if self._untold.is_set() and not lost.done():
                    self._untold.clear()
                    await notices.tell()
                    await asyncio.sleep(GAP_SECONDS)
        finally:
            lost.cancel()
