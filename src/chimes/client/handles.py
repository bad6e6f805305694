"""One run on a server, to wait for and to ask about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from chimes.client.requests import Duration
from chimes.client.values import LogLine, RunInfo
from chimes.errors import Conflict

if TYPE_CHECKING:
    from chimes.client.client import AsyncClient, Client


class RunHandle:
    """One run on a server."""

    __slots__ = ("_client", "id")

    def __init__(self, run_id: str, client: Client) -> None:
        self.id = run_id
        self._client = client

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r})"

    def run(self) -> RunInfo:
        return self._client.run(self.id)

    def status(self) -> str:
        return self.run().status

    def result(self, timeout: Duration | None = None) -> object:
        """What the task returned, once it has ended; see `Client.result`."""
        return self._client.result(self.id, timeout)

    def logs(self) -> list[LogLine]:
        return self._client.logs(self.id)

    def follow_logs(self, *, after: int = 0) -> Iterator[LogLine]:
        """Its lines as they are written; see `Client.follow_logs`."""
        return self._client.follow_logs(self.id, after=after)

    def cancel(self) -> bool:
        """Ask it to stop: True if it was still waiting or running."""
        try:
            self._client.cancel(self.id)
        except Conflict:
            return False
        return True


class AsyncRunHandle:
    """One run on a server, for `await`."""

    __slots__ = ("_client", "id")

    def __init__(self, run_id: str, client: AsyncClient) -> None:
        self.id = run_id
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncRunHandle({self.id!r})"

    async def run(self) -> RunInfo:
        return await self._client.run(self.id)

    async def status(self) -> str:
        return (await self.run()).status

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109
        return await self._client.result(self.id, timeout)

    async def logs(self) -> list[LogLine]:
        return await self._client.logs(self.id)

    def follow_logs(self, *, after: int = 0) -> AsyncIterator[LogLine]:
        return self._client.follow_logs(self.id, after=after)

    async def cancel(self) -> bool:
        try:
            await self._client.cancel(self.id)
        except Conflict:
            return False
        return True
