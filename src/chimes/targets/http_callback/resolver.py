"""Names to addresses, in threads of our own: asyncio's default executor has a handful, and names
that never answer would hold all of them (F62)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiohttp.abc import AbstractResolver, ResolveResult

from chimes.model.egress import Denial, Egress
from chimes.model.http_url import literal_address
from chimes.wording import say

MAX_LOOKUPS = 128

#: Blocking: all addresses of a name, or OSError. Replaced in tests by other people's DNS.
Lookup = Callable[[str], Sequence[str]]


class EgressDenied(Exception):
    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.text)


def system_lookup(host: str) -> Sequence[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class CheckedResolver(AbstractResolver):
    """Returns addresses only if every one of them may be dialled (S33)."""

    def __init__(self, rules: Egress, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup
        self._places = asyncio.Semaphore(MAX_LOOKUPS)
        self._flights: dict[str, asyncio.Future[Sequence[str] | OSError]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results: list[ResolveResult] = []
        for text in await self._addresses(host):
            address = literal_address(text)
            if address is None:
                raise OSError(say("{host} resolved to something that is not an address", host=host))
            denial = self._rules.judge(address, port, host=host)
            if denial is not None:
                raise EgressDenied(denial)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=text,
                    port=port,
                    family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                    proto=socket.IPPROTO_TCP,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        if not results:
            raise OSError(say("{host} has no address", host=host))
        return results

    async def close(self) -> None:
        """Threads that still wait for an answer are daemons: they hold nobody up."""

    async def _addresses(self, host: str) -> Sequence[str]:
        """One lookup per name at a time, so that a dead name holds one place, not many."""
        while (flight := self._flights.get(host)) is None:
            await self._places.acquire()
            if host in self._flights:
                self._places.release()
            else:
                self._flights[host] = self._start(host)
        found = await asyncio.shield(flight)
        if isinstance(found, OSError):
            raise found
        return found

    def _start(self, host: str) -> asyncio.Future[Sequence[str] | OSError]:
        loop = asyncio.get_running_loop()
        flight: asyncio.Future[Sequence[str] | OSError] = loop.create_future()

        def land(found: Sequence[str] | OSError) -> None:
            # Only now is the place free: the thread outlives an attempt that gave up waiting.
            self._places.release()
            del self._flights[host]
            flight.set_result(found)

        def look_up() -> None:
            found: Sequence[str] | OSError
            try:
                found = self._lookup(host)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError(say("{host} is not a name that can be looked up", host=host))
            with suppress(RuntimeError):  # the loop ended while we waited
                loop.call_soon_threadsafe(land, found)

        threading.Thread(target=look_up, name=f"dns-{host}", daemon=True).start()
        return flight
