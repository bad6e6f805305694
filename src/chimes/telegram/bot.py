"""Processes updates of the Telegram bot, each once across all nodes, and sends the replies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta

from chimes.errors import StoreError
from chimes.i18n import ENGLISH, Message, in_language
from chimes.notifications.message import split
from chimes.notifications.telegram_api import BotApi, BotApiError
from chimes.store.port import IdempotencyRecord, Store
from chimes.telegram.commands import Reply, language_of
from chimes.telegram.conversation import Conversation, UpdateResult
from chimes.telegram.links import Chat
from chimes.telegram.updates import Incoming, read_update, update_id_of

_log = logging.getLogger("chimes.telegram")
MAX_ATTEMPTS = 3
MAX_RETRY_DELAY = 30.0
#: Limit of the Bot API, in UTF-16 code units.
MAX_MESSAGE_LENGTH = 4096
#: Queued replies per chat; beyond that the oldest is dropped.
MAX_QUEUED = 100
#: Seconds to send queued replies while the process stops.
CLOSE_SECONDS = 3.0

_Work = Callable[[], Coroutine[None, None, bool]]


class Outgoing:
    """Sends replies, in order within a chat and independently between chats."""

    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._queues: dict[str, deque[_Work]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.counts: Counter[str] = Counter()

    def put(self, reply: Reply) -> None:
        self._queue(reply.chat_id, lambda: self.send(reply))

    def press(self, chat_id: str, callback_id: str, notice: str) -> None:
        """Answers a button press; the client shows a spinner until then."""
        params: dict[str, object] = {"callback_query_id": callback_id}
        if notice:
            params["text"] = notice
        self._queue(chat_id, lambda: self._call("answerCallbackQuery", params))

    def _queue(self, chat_id: str, work: _Work) -> None:
        queue = self._queues.setdefault(chat_id, deque())
        if len(queue) >= MAX_QUEUED:
            queue.popleft()
            self.counts["dropped"] += 1
        queue.append(work)
        if chat_id not in self._tasks:
            self._tasks[chat_id] = asyncio.create_task(self._send_queue(chat_id))

    async def _send_queue(self, chat_id: str) -> None:
        queue = self._queues[chat_id]
        try:
            while queue:
                await queue.popleft()()
        finally:
            del self._tasks[chat_id]
            del self._queues[chat_id]

    async def flush(self) -> None:
        while self._tasks:
            await asyncio.wait([*self._tasks.values()])

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.flush()
        for task in [*self._tasks.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def send(self, reply: Reply) -> bool:
        for part in split(reply.text, MAX_MESSAGE_LENGTH):
            params: dict[str, object] = {
                "chat_id": _number(reply.chat_id),
                "text": part,
                "link_preview_options": {"is_disabled": True},
            }
            if not await self._call("sendMessage", params):
                return False
        return True

    async def _call(self, method: str, params: dict[str, object]) -> bool:
        """Calls the Bot API with retries. A failure does not undo the command."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._api.call(method, params)
            except BotApiError as error:
                self.counts["send_errors"] += 1
                retryable = error.status in (0, 429) or error.status >= 500
                if not retryable or attempt == MAX_ATTEMPTS - 1:
                    _log.warning(
                        "reply not sent",
                        extra={"method": method, "status": error.status, "error": str(error)},
                    )
                    return False
                pause = error.retry_after or timedelta(seconds=1 << attempt)
                await asyncio.sleep(min(pause.total_seconds(), MAX_RETRY_DELAY))
            else:
                return True
        return False


def _number(chat_id: str) -> int | str:
    """Chat ids are numbers in the Bot API; names are text."""
    return int(chat_id) if chat_id.removeprefix("-").isdecimal() else chat_id


#: Longer than Telegram keeps updates (one day).
_KEEP = timedelta(days=2)
#: A node that has not completed an update within this time is presumed dead.
TAKE_OVER_AFTER = timedelta(seconds=20)
UPDATES = ("message", "callback_query")


class UpdateInProgress(Exception):
    """Another node is processing this update; it must be sent again."""


class Bot:
    def __init__(
        self, conversation: Conversation, api: BotApi, store: Store, *, bot_id: str = ""
    ) -> None:
        """`bot_id`: update ids are unique per bot."""
        self._conversation = conversation
        self._api = api
        self._store = store
        self._scope = f"telegram:{bot_id}"
        self._outgoing = Outgoing(api)
        self.counts: Counter[str] = self._outgoing.counts

    @property
    def conversation(self) -> Conversation:
        return self._conversation

    async def process(self, update: object) -> bool:
        """Processes an update; False for a duplicate or an ignored one. After UpdateInProgress or
        StoreError the update can be sent again."""
        incoming = self._read(update)
        if incoming is None:
            return False
        if not self._conversation.is_allowed(incoming.chat_id):
            # No idempotency record for chats that are not allowed.
            self._finish(incoming, await self._conversation.handle(incoming))
            return True
        key = str(incoming.update_id)
        if not await self._claim(key):
            self.counts["duplicates"] += 1
            return False
        self._finish(incoming, await self._handle(incoming))
        done = IdempotencyRecord(fingerprint=key, status=200)
        await self._store.answer_request(self._scope, key, done)
        return True

    def _read(self, update: object) -> Incoming | None:
        try:
            return read_update(update)
        except Exception:
            # A malformed update must not block those after it.
            _log.exception("malformed update")
            self.counts["unreadable"] += 1
            return None

    async def _handle(self, incoming: Incoming) -> UpdateResult:
        try:
            return await self._conversation.handle(incoming)
        except StoreError:
            raise
        except Exception:
            _log.exception("update failed")
            return UpdateResult(event="broken", ok=False)

    def _finish(self, incoming: Incoming, result: UpdateResult) -> None:
        """Queues the replies: a chat that Telegram throttles must not delay the others."""
        self._count(result)
        if incoming.callback_id:
            self._outgoing.press(incoming.chat_id, incoming.callback_id, result.notice)
        for reply in result.replies:
            self._outgoing.put(reply)

    async def flush(self) -> None:
        """Waits until every reply was sent or has failed."""
        await self._outgoing.flush()

    async def close(self) -> None:
        await self._outgoing.close()

    async def send(self, reply: Reply) -> bool:
        """Sends a reply at once; whether Telegram accepted it."""
        return await self._outgoing.send(reply)

    async def send_message(self, chat: Chat, sentence: Message) -> bool:
        """Sends a message in the language of the chat; whether Telegram accepted it."""
        text = in_language(sentence, language_of(chat.language) or ENGLISH)
        return await self.send(Reply(chat_id=chat.id, text=text))

    async def _claim(self, key: str) -> bool:
        """Claims an update; False if it was processed. Takes over an update of a dead node, because
        processing is idempotent."""
        now = await self._store.now()
        started = now.isoformat()
        known = await self._store.remember_request(self._scope, key, started, keep=_KEEP)
        if known is None:
            return True
        if known.status:
            return False
        if now - datetime.fromisoformat(known.fingerprint) < TAKE_OVER_AFTER:
            raise UpdateInProgress
        await self._store.answer_request(self._scope, key, IdempotencyRecord(fingerprint=started))
        return True

    def _count(self, result: UpdateResult) -> None:
        self.counts["updates"] += 1
        self.counts[result.event] += 1
        if result.command:
            self.counts["failed" if not result.ok else "ok"] += 1


POLL_WAIT = timedelta(seconds=25)
NO_WAIT = timedelta()
BATCH = 100
#: Seconds that one of several nodes polls: Telegram allows one poller at a time.
TURN_SECONDS = 10.0
_SCOPE = "telegram:turn"


class LongPolling:
    """Long polling for bots without a webhook. Nodes take turns; `Bot` ignores duplicates."""

    def __init__(self, bot: Bot, api: BotApi, store: Store) -> None:
        self._bot = bot
        self._api = api
        self._store = store
        self._offset: int | None = None
        self._lock = asyncio.Lock()
        self._turn = -1

    async def poll_once(self, *, wait: timedelta = POLL_WAIT, limit: int = BATCH) -> int:
        """Polls once; returns the number of processed updates. Confirms them after processing."""
        async with self._lock:
            return await self._poll(wait, limit)

    async def poll_in_turn(self) -> bool:
        """`once`, limited to this node's turn; False if it is the turn of another node."""
        rest = await self._rest_of_turn()
        if rest is not None:
            await self.poll_once(wait=min(POLL_WAIT, rest))
        return rest is not None

    async def _rest_of_turn(self) -> timedelta | None:
        """The rest of this node's turn; None if it is the turn of another node."""
        now = await self._store.now()
        alive = [node for node in await self._store.nodes() if node.lease_until > now]
        if len(alive) <= 1:
            return POLL_WAIT
        turn = int(now.timestamp() // TURN_SECONDS)
        if turn != self._turn:
            keep = timedelta(seconds=3 * TURN_SECONDS)
            if await self._store.remember_request(_SCOPE, str(turn), "", keep=keep) is not None:
                return None
            self._turn = turn
        ends = datetime.fromtimestamp((turn + 1) * TURN_SECONDS, now.tzinfo)
        return max(NO_WAIT, ends - now)

    async def _poll(self, wait: timedelta, limit: int) -> int:
        params: dict[str, object] = {
            "timeout": int(wait.total_seconds()),
            "limit": limit,
            "allowed_updates": list(UPDATES),
        }
        if self._offset is not None:
            params["offset"] = self._offset
        found = await self._api.call("getUpdates", params, wait=wait)
        handled = 0
        for update in found if isinstance(found, list) else ():
            handled += await self._bot.process(update)
            update_id = update_id_of(update)
            if update_id is not None:
                self._offset = max(self._offset or 0, update_id + 1)
        return handled
