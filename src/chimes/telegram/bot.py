"""Updates in, answers out: each update is dealt with once, whichever node gets it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta

from chimes.errors import StoreError
from chimes.i18n import ENGLISH, Message, in_language
from chimes.notifications.telegram_api import BotApi, BotApiError
from chimes.notifications.text import split
from chimes.store.port import IdempotencyRecord, Store
from chimes.telegram.commands import Reply, language_of
from chimes.telegram.conversation import Conversation, UpdateResult
from chimes.telegram.links import Chat
from chimes.telegram.updates import Incoming, read_update, update_id_of

# @@ Answers on their way to Telegram: those of a chat in their order, each chat at its own pace.

_log = logging.getLogger("chimes.telegram")
TRIES = 3
LONGEST_PAUSE = 30.0
#: Of the Bot API, in UTF-16 code units.
LONGEST_MESSAGE = 4096
#: Answers of one chat that wait; the oldest of more is dropped.
MOST_WAITING = 100
#: Seconds that a stopping process has for them.
LAST_ANSWERS = 3.0

_Work = Callable[[], Coroutine[None, None, bool]]


class Outgoing:
    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._waiting: dict[str, deque[_Work]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.counts: Counter[str] = Counter()

    def put(self, reply: Reply) -> None:
        self._queue(reply.chat_id, lambda: self.send(reply))

    def press(self, chat_id: str, callback_id: str, notice: str) -> None:
        """The client of the one who pressed a button shows a clock until then."""
        told: dict[str, object] = {"callback_query_id": callback_id}
        if notice:
            told["text"] = notice
        self._queue(chat_id, lambda: self._tell("answerCallbackQuery", told))

    def _queue(self, chat_id: str, work: _Work) -> None:
        waiting = self._waiting.setdefault(chat_id, deque())
        if len(waiting) >= MOST_WAITING:
            waiting.popleft()
            self.counts["dropped"] += 1
        waiting.append(work)
        if chat_id not in self._tasks:
            self._tasks[chat_id] = asyncio.create_task(self._drain(chat_id))

    async def _drain(self, chat_id: str) -> None:
        waiting = self._waiting[chat_id]
        try:
            while waiting:
                await waiting.popleft()()
        finally:
            del self._tasks[chat_id]
            del self._waiting[chat_id]

    async def empty(self) -> None:
        while self._tasks:
            await asyncio.wait([*self._tasks.values()])

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.empty(), LAST_ANSWERS)
        for task in [*self._tasks.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def send(self, reply: Reply) -> bool:
        for part in split(reply.text, LONGEST_MESSAGE):
            told: dict[str, object] = {
                "chat_id": _number(reply.chat_id),
                "text": part,
                "link_preview_options": {"is_disabled": True},
            }
            if not await self._tell("sendMessage", told):
                return False
        return True

    async def _tell(self, method: str, params: dict[str, object]) -> bool:
        """An answer that cannot be given does not undo what was done."""
        for attempt in range(TRIES):
            try:
                await self._api.call(method, params)
            except BotApiError as error:
                self.counts["send_errors"] += 1
                again = error.status in (0, 429) or error.status >= 500
                if not again or attempt == TRIES - 1:
                    _log.warning(
                        "an answer could not be sent",
                        extra={"method": method, "status": error.status, "error": str(error)},
                    )
                    return False
                pause = error.retry_after or timedelta(seconds=1 << attempt)
                await asyncio.sleep(min(pause.total_seconds(), LONGEST_PAUSE))
            else:
                return True
        return False


def _number(chat_id: str) -> int | str:
    """As Telegram writes it."""
    return int(chat_id) if chat_id.removeprefix("-").isdecimal() else chat_id


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
            self._finish(incoming, await self._conversation.handle(incoming))
            return True
        key = str(incoming.update_id)
        if not await self._is_ours(key):
            self.counts["duplicates"] += 1
            return False
        self._finish(incoming, await self._handled(incoming))
        done = IdempotencyRecord(fingerprint=key, status=200)
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

    async def _handled(self, incoming: Incoming) -> UpdateResult:
        try:
            return await self._conversation.handle(incoming)
        except StoreError:
            raise
        except Exception:
            _log.exception("an update could not be dealt with")
            return UpdateResult(event="broken", ok=False)

    def _finish(self, incoming: Incoming, result: UpdateResult) -> None:
        """The answers go out beside the next updates: one chat that Telegram holds back must not
        hold up the others."""
        self._count(result)
        if incoming.callback_id:
            self._outgoing.press(incoming.chat_id, incoming.callback_id, result.notice)
        for reply in result.replies:
            self._outgoing.put(reply)

    async def flush(self) -> None:
        """Until every answer was sent or given up."""
        await self._outgoing.empty()

    async def close(self) -> None:
        await self._outgoing.close()

    async def send(self, reply: Reply) -> bool:
        """At once; whether Telegram took it."""
        return await self._outgoing.send(reply)

    async def tell(self, chat: Chat, sentence: Message) -> bool:
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
        await self._store.answer_request(self._scope, key, IdempotencyRecord(fingerprint=begun))
        return True

    def _count(self, result: UpdateResult) -> None:
        self.counts["updates"] += 1
        self.counts[result.event] += 1
        if result.command:
            self.counts["failed" if not result.ok else "ok"] += 1


# @@ Long polling: asking Telegram for updates where it cannot reach us.

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
