"""Updates in, answers out: each update is dealt with once, whichever node gets it."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime, timedelta

from chimes.delivery.bot_api import BotApi
from chimes.doors.telegram.conversation import Conversation
from chimes.doors.telegram.links import Chat
from chimes.doors.telegram.outgoing import Outgoing
from chimes.doors.telegram.replies import Reply
from chimes.doors.telegram.speaking import Settled
from chimes.doors.telegram.texts import language_of
from chimes.doors.telegram.updates import Incoming, read_update
from chimes.errors import StoreError
from chimes.store.port import Remembered, Store
from chimes.wording import ENGLISH, Wording, in_language

_log = logging.getLogger("chimes.telegram")
#: Telegram keeps updates for a day; nothing older comes again.
_KEEP = timedelta(days=2)
#: Who has begun with an update and not ended within this time is gone.
LOST_AFTER = timedelta(seconds=20)
UPDATES = ("message", "callback_query")


class NotYet(Exception):
    """Somebody else has this update in hand; it has to come again."""


class Bot:
    def __init__(
        self, conversation: Conversation, api: BotApi, store: Store, *, bot_id: str = ""
    ) -> None:
        """`bot_id`: updates are numbered for each bot by itself."""
        self._conversation = conversation
        self._api = api
        self._store = store
        self._scope = f"telegram:{bot_id}"
        self._outgoing = Outgoing(api)
        self.counts: Counter[str] = self._outgoing.counts

    @property
    def conversation(self) -> Conversation:
        return self._conversation

    async def take(self, update: object) -> bool:
        """Whether it was dealt with now. Raises NotYet, or StoreError: then nothing is lost by
        sending it again."""
        incoming = self._read(update)
        if incoming is None:
            return False
        if not self._conversation.knows(incoming.chat_id):
            # Strangers cost no record of their updates.
            self._settle(incoming, await self._conversation.handle(incoming))
            return True
        key = str(incoming.update_id)
        if not await self._is_ours(key):
            self.counts["duplicates"] += 1
            return False
        self._settle(incoming, await self._handled(incoming))
        done = Remembered(fingerprint=key, status=200)
        await self._store.answer_request(self._scope, key, done)
        return True

    def _read(self, update: object) -> Incoming | None:
        try:
            return read_update(update)
        except Exception:
            # Whatever is wrong with it, those behind it are waiting.
            _log.exception("an update cannot be read")
            self.counts["unreadable"] += 1
            return None

    async def _handled(self, incoming: Incoming) -> Settled:
        try:
            return await self._conversation.handle(incoming)
        except StoreError:
            raise
        except Exception:
            _log.exception("an update could not be dealt with")
            return Settled(event="broken", ok=False)

    def _settle(self, incoming: Incoming, settled: Settled) -> None:
        """The answers go out beside the next updates: one chat that Telegram holds back must not
        hold up the others."""
        self._count(settled)
        if incoming.callback_id:
            self._outgoing.press(incoming.chat_id, incoming.callback_id, settled.notice)
        for reply in settled.replies:
            self._outgoing.put(reply)

    async def flush(self) -> None:
        """Until every answer was sent or given up."""
        await self._outgoing.empty()

    async def close(self) -> None:
        await self._outgoing.close()

    async def send(self, reply: Reply) -> bool:
        """At once; whether Telegram took it."""
        return await self._outgoing.send(reply)

    async def tell(self, chat: Chat, sentence: Wording) -> bool:
        """The same for one sentence, in the language of the chat."""
        text = in_language(sentence, language_of(chat.language) or ENGLISH)
        return await self.send(Reply(chat_id=chat.id, text=text))

    async def _is_ours(self, key: str) -> bool:
        """False: it has been dealt with. One that somebody began with long ago is taken over: all
        that is done about an update can be done again."""
        now = await self._store.now()
        begun = now.isoformat()
        known = await self._store.remember_request(self._scope, key, begun, keep=_KEEP)
        if known is None:
            return True
        if known.status:
            return False
        if now - datetime.fromisoformat(known.fingerprint) < LOST_AFTER:
            raise NotYet
        await self._store.answer_request(self._scope, key, Remembered(fingerprint=begun))
        return True

    def _count(self, settled: Settled) -> None:
        self.counts["updates"] += 1
        self.counts[settled.event] += 1
        if settled.command:
            self.counts["failed" if not settled.ok else "ok"] += 1
