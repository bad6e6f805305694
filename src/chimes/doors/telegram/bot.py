"""Updates in, answers out: each update is dealt with once, whichever node gets it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.delivery.bot_api import BotApi, BotApiError
from chimes.delivery.splitting import split
from chimes.doors.telegram.conversation import Conversation
from chimes.doors.telegram.replies import Reply
from chimes.doors.telegram.speaking import Settled
from chimes.doors.telegram.updates import Incoming, read_update, update_id_of
from chimes.store.port import Remembered, Store

_log = logging.getLogger("chimes.telegram")
_SCOPE = "telegram"
#: Telegram keeps updates for a day; nothing older comes again.
_KEEP = timedelta(days=2)
#: Who has begun with an update and not ended within this time is gone.
LOST_AFTER = timedelta(seconds=20)
_TRIES = 3
_LONGEST_PAUSE = 30.0
UPDATES = ("message", "callback_query")
#: Of the Bot API, in UTF-16 code units.
LONGEST_MESSAGE = 4096


class NotYet(Exception):
    """Somebody else has this update in hand; it has to come again."""


class Bot:
    def __init__(self, conversation: Conversation, api: BotApi, store: Store) -> None:
        self._conversation = conversation
        self._api = api
        self._store = store
        self._username = ""
        self.counts: Counter[str] = Counter()

    @property
    def conversation(self) -> Conversation:
        return self._conversation

    async def take(self, update: object) -> bool:
        """Whether it was dealt with now. Raises NotYet, or StoreError: then nothing is lost by
        sending it again."""
        update_id = update_id_of(update)
        if update_id is None:
            return False
        key = str(update_id)
        if not await self._is_ours(key):
            self.counts["duplicates"] += 1
            return False
        incoming = read_update(update)
        settled = await self._conversation.handle(incoming) if incoming else Settled()
        self._count(settled)
        if incoming is not None:
            await self._answer(incoming, settled)
        await self._store.answer_request(_SCOPE, key, Remembered(fingerprint=key, status=200))
        return True

    async def _is_ours(self, key: str) -> bool:
        """False: it has been dealt with. One that somebody began with long ago is taken over: all
        that is done about an update can be done again."""
        now = await self._store.now()
        begun = now.isoformat()
        known = await self._store.remember_request(_SCOPE, key, begun, keep=_KEEP)
        if known is None:
            return True
        if known.status:
            return False
        if now - datetime.fromisoformat(known.fingerprint) < LOST_AFTER:
            raise NotYet
        await self._store.answer_request(_SCOPE, key, Remembered(fingerprint=begun))
        return True

    def _count(self, settled: Settled) -> None:
        self.counts["updates"] += 1
        self.counts[settled.event] += 1
        if settled.command:
            self.counts["failed" if not settled.ok else "ok"] += 1

    async def _answer(self, incoming: Incoming, settled: Settled) -> None:
        if incoming.callback_id:
            # The client of the one who pressed shows a clock until then.
            await self._tell("answerCallbackQuery", {"callback_query_id": incoming.callback_id})
        for reply in settled.replies:
            await self.send(reply)

    async def username(self) -> str:
        """As Telegram knows the bot; empty if it cannot be asked now."""
        if not self._username:
            try:
                me = await self._api.call("getMe", {})
            except BotApiError:
                return ""
            self._username = str(me.get("username", "")) if isinstance(me, dict) else ""
        return self._username

    async def send(self, reply: Reply) -> bool:
        parts: Sequence[str] = split(reply.text, LONGEST_MESSAGE)
        for part in parts:
            told: dict[str, object] = {
                "chat_id": reply.chat_id,
                "text": part,
                "link_preview_options": {"is_disabled": True},
            }
            if not await self._tell("sendMessage", told):
                return False
        return True

    async def _tell(self, method: str, params: dict[str, object]) -> bool:
        """An answer that cannot be given does not undo what was done."""
        for attempt in range(_TRIES):
            try:
                await self._api.call(method, params)
            except BotApiError as error:
                self.counts["send_errors"] += 1
                again = error.status in (0, 429) or error.status >= 500
                if not again or attempt == _TRIES - 1:
                    _log.warning(
                        "an answer could not be sent",
                        extra={"method": method, "status": error.status, "error": str(error)},
                    )
                    return False
                pause = error.retry_after or timedelta(seconds=1 << attempt)
                await asyncio.sleep(min(pause.total_seconds(), _LONGEST_PAUSE))
            else:
                return True
        return False
