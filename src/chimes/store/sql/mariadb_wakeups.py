"""How processes wake each other on MariaDB, which has no LISTEN and NOTIFY.

One row is counted up by whoever has made work for others, and looked at by everybody five times a
second: reading one row by its key takes the server a tenth of a millisecond. Counting is done
after the commit, by the connection that looks, and at most once for each look, so that no
transaction waits for that row and a busy node costs a few more commits a second. What was changed
through the view stands in `sql_changes`, whose last number is looked at in the same statement.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Self

#: How often to look.
LOOK_SECONDS = 0.2
#: F24: a server that does not answer for this long counts as gone.
LONGEST_SECONDS = 10.0

_LOOK = "SELECT (SELECT `count` FROM wakeups WHERE id = 1), (SELECT MAX(id) FROM sql_changes)"
#: LAST_INSERT_ID hands the new number back with the answer.
_COUNT = "UPDATE wakeups SET `count` = LAST_INSERT_ID(`count` + 1) WHERE id = 1"

Seen = tuple[int, int | None]


class MariadbNotices:
    def __init__(self, connection: Any, heard: Callable[[], None], seen: Seen) -> None:
        self.lost = asyncio.Event()
        self._connection = connection
        self._heard = heard
        self._seen = seen
        self._untold = asyncio.Event()
        self._looking = asyncio.create_task(self._look_and_tell(), name="chimes wake-ups")

    @classmethod
    async def over(cls, connection: Any, heard: Callable[[], None]) -> Self:
        try:
            return cls(connection, heard, await _look(connection))
        except BaseException:
            connection.close()
            raise

    async def tell(self) -> None:
        """At once, or with the next look after the last time."""
        self._untold.set()

    async def close(self) -> None:
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking
        self._connection.close()

    async def _look_and_tell(self) -> None:
        try:
            while True:
                # Not wait_for, which may swallow being canceled.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._untold.wait()
                if self._untold.is_set():
                    self._untold.clear()
                    await self._count()
                    await asyncio.sleep(LOOK_SECONDS)
                seen = await _look(self._connection)
                if seen != self._seen:
                    self._seen = seen
                    self._heard()
        except Exception:
            self.lost.set()

    async def _count(self) -> None:
        """Nobody wakes itself by its own count."""
        async with asyncio.timeout(LONGEST_SECONDS), self._connection.cursor() as cursor:
            await cursor.execute(_COUNT)
            number = int(cursor.lastrowid)
        if number == self._seen[0] + 1:
            self._seen = (number, self._seen[1])


async def _look(connection: Any) -> Seen:
    async with asyncio.timeout(LONGEST_SECONDS), connection.cursor() as cursor:
        await cursor.execute(_LOOK)
        count, last = await cursor.fetchone()
    return int(count), last
