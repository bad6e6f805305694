"""Artifacts as files: fetched within a deadline and a size, from where that is allowed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urljoin

import aiohttp

from chimes.delivery.plain_text import one_line
from chimes.errors import InvalidInput
from chimes.model.delivery import Artifact
from chimes.model.egress import Egress
from chimes.model.http_url import parse_http_url
from chimes.targets.http_callback.connector import GuardedConnector
from chimes.targets.http_callback.request import wire_url
from chimes.targets.http_callback.resolver import (
    CheckedResolver,
    EgressDenied,
    Lookup,
    system_lookup,
)

MOST_BYTES = 10 * 1024 * 1024
SECONDS = 20.0
#: Fetched at once: each is held in memory until it is sent.
AT_ONCE = 4
CONNECTIONS = 8
PIECE = 64 * 1024
LONGEST_FILE_NAME = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    name: str
    content: bytes
    content_type: str


class Fetcher:
    """The pipeline that made the artifacts is a place that the operator chose; any other one is
    called under the rules for callbacks (S33)."""

    def __init__(
        self,
        *,
        egress: Egress,
        user_agent: str,
        agent_url: str = "",
        agent_key: str = "",
        lookup: Lookup = system_lookup,
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._egress = egress
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._agent_url = agent_url.rstrip("/") + "/" if agent_url else ""
        self._agent_key = agent_key
        self._lookup = lookup
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._places = asyncio.Semaphore(AT_ONCE)
        self._agents: aiohttp.ClientSession | None = None
        self._others: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._agents = self._session(aiohttp.TCPConnector(limit=CONNECTIONS))
        self._others = self._session(
            GuardedConnector(
                rules=self._egress,
                resolver=CheckedResolver(self._egress, self._lookup),
                limit=CONNECTIONS,
                tls=None,
            )
        )

    async def close(self) -> None:
        for session in (self._agents, self._others):
            if session is not None:
                await session.close()

    def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=self._seconds),
        )

    async def fetch(self, artifact: Artifact) -> File | None:
        """None: it cannot be had, is not to be had, or is too large."""
        with suppress(
            aiohttp.ClientError, EgressDenied, OSError, TimeoutError, InvalidInput, ValueError
        ):
            async with self._places:
                return await self._fetch(artifact)
        return None

    async def _fetch(self, artifact: Artifact) -> File | None:
        destination = parse_http_url(urljoin(self._agent_url, artifact.url))
        headers = dict(self._headers)
        session = self._others
        if self._agent_url and destination.origin == parse_http_url(self._agent_url).origin:
            session = self._agents
            if self._agent_key:
                headers["Authorization"] = f"Bearer {self._agent_key}"
        assert session is not None, "open() comes first"
        url = wire_url(destination, destination.tail)
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            encoded = answer.headers.get("Content-Encoding", "identity")
            if answer.status != 200 or encoded != "identity":
                return None
            content = await self._content(answer)
        if not content:
            return None
        return File(
            name=_file_name(artifact.name),
            content=content,
            content_type=answer.content_type or "application/octet-stream",
        )

    async def _content(self, answer: aiohttp.ClientResponse) -> bytes:
        """Nothing, if it is more than is allowed."""
        if (answer.content_length or 0) > self._most_bytes:
            return b""
        found = bytearray()
        async for piece in answer.content.iter_chunked(PIECE):
            found += piece
            if len(found) > self._most_bytes:
                return b""
        return bytes(found)


def _file_name(name: str) -> str:
    """A name, never a way to a place."""
    last = one_line(name).replace("\\", "/").rpartition("/")[2].strip(". ")
    return last[-LONGEST_FILE_NAME:] or "file"
