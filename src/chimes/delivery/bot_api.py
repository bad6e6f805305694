"""Calls of the Telegram Bot API. The token stands in every URL, so no URL is ever told (S61)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta

import aiohttp

from chimes.delivery.fetching import File
from chimes.wording import say

_LARGEST_ANSWER = 8 * 1024 * 1024
_LONGEST_WAIT = 7 * 24 * 3600


class BotApiError(Exception):
    """What Telegram says is wrong, or that it could not be reached (`status` 0)."""

    def __init__(
        self,
        description: str,
        *,
        status: int = 0,
        retry_after: timedelta | None = None,
        moved_to: str = "",
        unreached: str = "",
    ) -> None:
        super().__init__(description)
        #: Why it did not answer at all.
        self.unreached = unreached
        self.status = status
        self.retry_after = retry_after
        #: The group has become another chat, with this number.
        self.moved_to = moved_to

    @property
    def description(self) -> str:
        found: str = self.args[0]
        return found


class BotApi:
    """Opened lazily, on the event loop that first calls it."""

    def __init__(self, *, token: str, url: str, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._token = token
        self._base = f"{url.rstrip('/')}/bot{token}/"
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, params: Mapping[str, object], *, wait: timedelta = timedelta()
    ) -> object:
        """The `result`. `wait`: how long the other side holds the answer back on purpose."""
        return await self._post(method, self._timeout + wait, json=params)

    async def upload(
        self,
        method: str,
        params: Mapping[str, str],
        field: str,
        file: File,
        *,
        wait: timedelta = timedelta(),
    ) -> object:
        """The same with a file; `wait`: how much longer that may take."""
        form = aiohttp.FormData()
        for name, value in params.items():
            form.add_field(name, value)
        form.add_field(field, file.content, filename=file.name, content_type=file.content_type)
        return await self._post(method, self._timeout + wait, data=form)

    async def _post(
        self,
        method: str,
        within: timedelta,
        *,
        json: Mapping[str, object] | None = None,
        data: aiohttp.FormData | None = None,
    ) -> object:
        try:
            async with self._opened().post(
                self._base + method,
                json=json,
                data=data,
                timeout=aiohttp.ClientTimeout(total=within.total_seconds()),
                allow_redirects=False,
            ) as answer:
                return self._result(answer.status, await _body(answer))
        except TimeoutError:
            late = say("no answer in time")
            raise BotApiError(late, unreached=late) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its text may hold the URL.
            kind = type(error).__name__
            raise BotApiError(say("not reached: {type}", type=kind), unreached=kind) from None

    def _result(self, status: int, body: bytes) -> object:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise BotApiError(say("an answer that is not the Bot API's"), status=status)
        if answer.get("ok") is True:
            return answer.get("result")
        parameters = answer.get("parameters")
        given = parameters if isinstance(parameters, dict) else {}
        seconds = given.get("retry_after")
        code = answer.get("error_code")
        description = str(answer.get("description", ""))[:300].replace(self._token, "***")
        raise BotApiError(
            description or say("refused"),
            status=code if isinstance(code, int) else status,
            retry_after=_wait(seconds),
            moved_to=str(given.get("migrate_to_chat_id", "")),
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # No ambient proxy, no cookies: what is configured is what is called.
            self._session = aiohttp.ClientSession(
                trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # aiohttp closes its sockets on the next turns of the loop.
            await asyncio.sleep(0)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """All of it, unless it is more than any answer of Telegram's."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > _LARGEST_ANSWER:
            break
    return bytes(body)


def _wait(seconds: object) -> timedelta | None:
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_WAIT:
        return None
    return timedelta(seconds=seconds)
