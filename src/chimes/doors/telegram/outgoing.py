"""Answers on their way to Telegram: those of a chat in their order, each chat at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from datetime import timedelta

from chimes.delivery.bot_api import BotApi, BotApiError
from chimes.delivery.splitting import split
from chimes.doors.telegram.replies import Reply

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
