"""Long polling: asking Telegram for updates where it cannot reach us."""

from __future__ import annotations

from datetime import timedelta

from chimes.delivery.bot_api import BotApi
from chimes.doors.telegram.bot import UPDATES, Bot
from chimes.doors.telegram.updates import update_id_of

HELD_BACK = timedelta(seconds=25)
BATCH = 100


class LongPolling:
    """Several nodes may poll: Telegram gives an update to one of them at a time, and `Bot` sees to
    it that it counts once."""

    def __init__(self, bot: Bot, api: BotApi) -> None:
        self._bot = bot
        self._api = api
        self._offset: int | None = None

    at_once = timedelta()

    async def once(self, *, wait: timedelta = HELD_BACK, limit: int = BATCH) -> int:
        """How many were dealt with. An update is confirmed only after it was."""
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
