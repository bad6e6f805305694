"""Fetches artifacts as attachments, within a deadline, a size and the egress rules.

Files stay in memory until they are sent, in an e-mail several copies of them. A delivery attempt
with files therefore holds a permit from the first fetch until it is sent; there are few permits,
and the size of each attempt is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp

from chimes.egress import Egress, parse_http_url
from chimes.errors import InvalidInput
from chimes.model.notification import Artifact
from chimes.notifications.message import one_line
from chimes.targets.http.connection import EgressDenied, GuardedConnector, Lookup, system_lookup
from chimes.targets.http.request import wire_url

#: Of all files of a message together; the limit of common mail servers.
MAX_BYTES = 10 * 1024 * 1024
#: For all files of a message together, including the wait for a permit. Late files become links.
SECONDS = 30.0
#: Delivery attempts with files at once.
CAPACITY = 2
CONNECTIONS = 8
CHUNK = 64 * 1024
MAX_FILE_NAME = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    name: str
    content: bytes
    content_type: str


class AttachmentFetcher:
    """The agent pipeline is configured by the operator and trusted; any other host is called under
    the egress rules of callbacks."""

    def __init__(
        self,
        *,
        egress: Egress,
        user_agent: str,
        agent_url: str = "",
        agent_key: str = "",
        lookup: Lookup = system_lookup,
        seconds: float = SECONDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._egress = egress
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._agent_url, self._agent_login = _without_login(agent_url)
        self._agent_key = agent_key
        self._lookup = lookup
        self._seconds = seconds
        self._most_bytes = max_bytes
        self._permits = asyncio.Semaphore(CAPACITY)
        self._agents: aiohttp.ClientSession | None = None
        self._others: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._agents = self._session(aiohttp.TCPConnector(limit=CONNECTIONS))
        self._others = self._session(
            GuardedConnector(rules=self._egress, limit=CONNECTIONS, lookup=self._lookup)
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

    @asynccontextmanager
    async def budget(self, count: int) -> AsyncIterator[FetchBudget]:
        """Holds a permit and a budget for one message with this many files until it is sent."""
        if not count:
            yield FetchBudget(self, bytes_left=0, seconds_left=0)
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._seconds):
                await self._permits.acquire()
        except TimeoutError:
            yield FetchBudget(self, bytes_left=0, seconds_left=0)
            return
        try:
            left = self._seconds - (loop.time() - began)
            yield FetchBudget(self, bytes_left=self._most_bytes, seconds_left=left)
        finally:
            self._permits.release()

    async def get(self, artifact: Artifact, max_bytes: int) -> File | None:
        destination = parse_http_url(urljoin(self._agent_url, artifact.url))
        headers = dict(self._headers)
        session = self._others
        if self._agent_url and destination.origin == parse_http_url(self._agent_url).origin:
            session = self._agents
            if self._agent_key or self._agent_login:
                bearer = f"Bearer {self._agent_key}"
                headers["Authorization"] = bearer if self._agent_key else self._agent_login
        assert session is not None, "open() was not called"
        url = wire_url(destination, destination.tail)
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            encoded = answer.headers.get("Content-Encoding", "identity")
            if answer.status != 200 or encoded != "identity":
                return None
            content = await _content(answer, max_bytes)
        if not content:
            return None
        return File(
            name=_file_name(artifact.name),
            content=content,
            content_type=answer.content_type or "application/octet-stream",
        )


class FetchBudget:
    """The bytes and seconds left for the files of one message."""

    def __init__(self, fetcher: AttachmentFetcher, *, bytes_left: int, seconds_left: float) -> None:
        self._fetcher = fetcher
        self._bytes_left = bytes_left
        self._seconds_left = seconds_left

    async def fetch(self, artifact: Artifact) -> File | None:
        """None: the file is unavailable, not allowed, late or too large."""
        if self._bytes_left <= 0 or self._seconds_left <= 0:
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        file = None
        with suppress(
            aiohttp.ClientError, EgressDenied, OSError, TimeoutError, InvalidInput, ValueError
        ):
            async with asyncio.timeout(self._seconds_left):
                file = await self._fetcher.get(artifact, self._bytes_left)
        self._seconds_left -= loop.time() - began
        self._bytes_left -= len(file.content) if file is not None else 0
        return file


async def _content(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Empty if it is larger than `max_bytes`."""
    if (answer.content_length or 0) > max_bytes:
        return b""
    content = bytearray()
    async for chunk in answer.content.iter_chunked(CHUNK):
        content += chunk
        if len(content) > max_bytes:
            return b""
    return bytes(content)


def _without_login(url: str) -> tuple[str, str]:
    """The URL without credentials and with a trailing slash, and its Authorization header."""
    if not url:
        return "", ""
    parts = urlsplit(url.rstrip("/") + "/")
    if parts.username is None:
        return parts.geturl(), ""
    user, password = unquote(parts.username), unquote(parts.password or "")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return bare.geturl(), aiohttp.encode_basic_auth(user, password)


def _file_name(name: str) -> str:
    """The file name without directories."""
    last = one_line(name).replace("\\", "/").rpartition("/")[2].strip(". ")
    return last[-MAX_FILE_NAME:] or "file"
