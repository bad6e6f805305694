"""The name by which people call the bot."""

from __future__ import annotations

from chimes.delivery.bot_api import BotApi, BotApiError


class Username:
    """Asked for once; empty while Telegram does not say."""

    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._known = ""

    async def __call__(self) -> str:
        if not self._known:
            try:
                me = await self._api.call("getMe", {})
            except BotApiError:
                return ""
            self._known = str(me.get("username", "")) if isinstance(me, dict) else ""
        return self._known
