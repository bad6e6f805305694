"""Calls of the Telegram Bot API. The token stands in every URL, so no URL is ever told (S61)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta

import aiohttp

_LARGEST_ANSWER = 8 * 1024 * 1024


class BotApiError(Exception):
    """What Telegram says is wrong, or that it could not be reached (`status` 0)."""

    def __init__(
        self, description: str, *, status: int = 0, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(description)
        self.status = status
        self.retry_after = retry_after

    @property
    def description(self) -> str:
        return str(self.args[0])


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
        limit = aiohttp.ClientTimeout(total=(self._timeout + wait).total_seconds())
        try:
            async with self._opened().post(
                self._base + method,
                json=params,
                timeout=limit,
                allow_redirects=False,
            ) as answer:
                body = await answer.content.read(_LARGEST_ANSWER)
                return self._result(answer.status, body)
        except TimeoutError:
            raise BotApiError("no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            # Its text may hold the URL.
            raise BotApiError(f"not reached: {type(error).__name__}") from None

    def _result(self, status: int, body: bytes) -> object:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise BotApiError("an answer that is not the Bot API's", status=status)
        if answer.get("ok") is True:
            return answer.get("result")
        given = answer.get("parameters")
        seconds = given.get("retry_after") if isinstance(given, dict) else None
        code = answer.get("error_code")
        description = str(answer.get("description", ""))[:300].replace(self._token, "***")
        raise BotApiError(
            description or "refused",
            status=code if isinstance(code, int) else status,
            retry_after=timedelta(seconds=seconds) if isinstance(seconds, int | float) else None,
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
