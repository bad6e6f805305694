"""How the configured server is spoken to: one pool, one deadline, nothing followed.

Connections are not kept: a prompt takes longer than a handshake, and a kept one that broke
meanwhile would look like a refusal.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
from yarl import URL

from chimes.targets.agent_prompt.config import AgentConfig
from chimes.targets.agent_prompt.trouble import Trouble, trouble_of_error, trouble_of_status
from chimes.wording import say

#: Seconds until somebody has answered the telephone.
CONNECT_SECONDS = 30.0
ERROR_LIMIT = 16 * 1024
DOCUMENT_LIMIT = 2 * 1024 * 1024


class Exchange:
    def __init__(self, *, user_agent: str) -> None:
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            # A bomb unfolds in one step; so nothing that is packed is asked for or unpacked.
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(
        self,
        config: AgentConfig,
        method: str,
        path: str,
        *,
        who: str,
        now: datetime,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of success; Trouble for every other, and for a connection that failed, also
        while the answer is read."""
        assert self._session is not None, "open() comes first"
        sent = {
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
            **(headers or {}),
        }
        base = config.url
        if config.api_key:
            sent["Authorization"] = f"Bearer {config.api_key}"
            base = config.public_url
        data = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            data = json.dumps(body, ensure_ascii=False).encode()
        try:
            async with self._session.request(
                method,
                URL(base + path, encoded=True),
                data=data,
                headers=sent,
                allow_redirects=False,
            ) as response:
                if not 200 <= response.status <= 299:
                    said = await _read(response, ERROR_LIMIT)
                    raise trouble_of_status(
                        response.status,
                        response.headers,
                        said.decode(errors="replace"),
                        who=who,
                        now=now,
                    )
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise trouble_of_error(error, who=who) from None

    async def document(
        self,
        config: AgentConfig,
        method: str,
        path: str,
        *,
        who: str,
        now: datetime,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """An answer that is one JSON object."""
        async with self.ask(
            config, method, path, who=who, now=now, body=body, headers=headers
        ) as response:
            return parsed(await whole(response, who=who), who=who)


async def whole(response: aiohttp.ClientResponse, *, who: str, begun: bytes = b"") -> bytes:
    data = begun + await _read(response, DOCUMENT_LIMIT + 1 - len(begun))
    if len(data) > DOCUMENT_LIMIT:
        raise too_long(who)
    return data


def parsed(data: bytes | str, *, who: str) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise bad_answer(who) from None
    if not isinstance(found, dict):
        raise bad_answer(who)
    return found


def bad_answer(who: str) -> Trouble:
    return Trouble(
        "bad_answer", say("{who} answered with something else than JSON", who=who), retryable=True
    )


def too_long(who: str) -> Trouble:
    return Trouble(
        "answer_too_long", say("{who} answered with more than is read of an answer", who=who)
    )


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    found = bytearray()
    while len(found) < most and (piece := await response.content.read(most - len(found))):
        found += piece
    return bytes(found)
