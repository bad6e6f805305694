"""Long polling: asking Telegram for updates where it cannot reach us."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from chimes.delivery.bot_api import BotApi
from chimes.doors.telegram.bot import UPDATES, Bot
from chimes.doors.telegram.updates import update_id_of
from chimes.store.port import Store

HELD_BACK = timedelta(seconds=25)
AT_ONCE = timedelta()
BATCH = 100
#: Seconds for which one of several nodes has the turn: Telegram lets only one ask at a time.
TURN = 10.0
_SCOPE = "telegram:turn"


class LongPolling:
    """Nodes take turns; if two ask all the same, `Bot` sees to it that an update counts once."""

    def __init__(self, bot: Bot, api: BotApi, store: Store) -> None:
        self._bot = bot
        self._api = api
        self._store = store
        self._offset: int | None = None
        self._asking = asyncio.Lock()
        self._turn = -1

    async def once(self, *, wait: timedelta = HELD_BACK, limit: int = BATCH) -> int:
        """How many were dealt with. An update is confirmed only after it was."""
        async with self._asking:
            return await self._ask(wait, limit)

    async def in_turn(self) -> bool:
        """`once`, if it is this node's turn, and no longer than that; False: it is not."""
        left = await self._left()
        if left is not None:
            await self.once(wait=min(HELD_BACK, left))
        return left is not None

    async def _left(self) -> timedelta | None:
        """How long this node may ask from now on; None: another one has the turn."""
        now = await self._store.now()
        alive = [node for node in await self._store.nodes() if node.lease_until > now]
        if len(alive) <= 1:
            return HELD_BACK
        turn = int(now.timestamp() // TURN)
        if turn != self._turn:
            keep = timedelta(seconds=3 * TURN)
            if await self._store.remember_request(_SCOPE, str(turn), "", keep=keep) is not None:
                return None
            self._turn = turn
        ends = datetime.fromtimestamp((turn + 1) * TURN, now.tzinfo)
        return max(AT_ONCE, ends - now)

    async def _ask(self, wait: timedelta, limit: int) -> int:
        asked: dict[str, object] = {
            "timeout": int(wait.total_seconds()),
            "limit": limit,
            "allowed_updates": list(UPDATES),
        }
        if self._offset is not None:
            asked["offset"] = self._offset
        found = await self._api.call("getUpdates", asked, wait=wait)
        handled = 0
        for update in found if isinstance(found, list) else ():
            handled += await self._bot.take(update)
            update_id = update_id_of(update)
            if update_id is not None:
                self._offset = max(self._offset or 0, update_id + 1)
        return handled
