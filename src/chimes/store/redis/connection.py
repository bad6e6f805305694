"""Connections to the Redis server: a pool per event loop, script calls, and wake-ups.

A call that did not reach the server is retried. A write that was sent without a response may have
been applied: the caller gets an error and can repeat the method, which the port allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis.exceptions as driver
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chimes.clock import SystemClock
from chimes.errors import ConfigError, StoreError, StoreLost, StoreReadOnly, StoreUnavailable
from chimes.i18n import _
from chimes.store.redis.scripts import Script

_log = logging.getLogger(__name__)

# --- address

DEFAULT_PORT = 6379
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS = ("prefix", *_TLS_OPTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    host: str
    port: int = DEFAULT_PORT
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_options: tuple[tuple[str, str], ...] = ()
    #: Prefix of every key; without one the task keys have EventNative's names.
    prefix: str = ""

    @property
    def shown(self) -> str:
        """For messages: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        behind = f"?prefix={self.prefix}" if self.prefix else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{host}:{self.port}/{self.database}{behind}"

    @property
    def channel(self) -> str:
        """The channel of wake-ups. It contains the database number, because channels are global."""
        return f"{self.prefix}chimes:wake:{self.database}"


def parse_address(url: str) -> Address:
    """`redis://[user][:password]@host[:port][/database][?prefix=...]`, `rediss://` for TLS."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ConfigError(_("store: the port of the Redis URL must be 1 to 65535")) from None
    if parts.scheme not in ("redis", "rediss"):
        raise ConfigError(
            _("{scheme}:// is not a Redis URL; write redis://host:6379/0", scheme=parts.scheme)
        )
    options = parse_qsl(parts.query, keep_blank_values=True)
    for name, _unused in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            raise ConfigError(
                _(
                    "store: unknown option {name!r} of a Redis URL; did you mean {near}?",
                    name=name,
                    near=near[0],
                )
                if near
                else _(
                    "store: unknown option {name!r} of a Redis URL; known are {known}",
                    name=name,
                    known=", ".join(_OPTIONS),
                )
            )
    given = dict(options)
    tls = tuple((name, given[name]) for name in _TLS_OPTIONS if name in given)
    if tls and parts.scheme != "rediss":
        raise ConfigError(
            _("store: {option} is an option of rediss://, which uses TLS", option=tls[0][0])
        )
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        database=_database(parts.path),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        tls_options=tls,
        prefix=given.get("prefix", ""),
    )


def _database(path: str) -> int:
    number = path.strip("/")
    if not number:
        return 0
    if not number.isdecimal():
        raise ConfigError(
            _(
                "store: {number!r} is no database of Redis: those have numbers, 0 to 15 mostly;"
                " to share one, give each application its ?prefix=",
                number=number,
            )
        )
    return int(number)


# --- error mapping

#: Error of our scripts when the store has another id.
LOST = "CHIMESLOST"


def map_error(error: Exception, where: str) -> StoreError:
    """Map an error of the driver to a StoreError."""
    said = str(error)
    if said.startswith(LOST) or f" {LOST}" in said:
        return StoreLost(
            _(
                "store_lost: {where} no longer holds what it held: it was emptied or exchanged"
                " (chimes store init --force sets it up anew)",
                where=where,
            ),
            code="store_lost",
        )
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return StoreUnavailable(
            _("{where} does not accept the user or password: {said}", where=where, said=said)
        )
    if isinstance(error, driver.NoPermissionError):
        return StoreUnavailable(
            _("{where}: the user lacks a right: {said}", where=where, said=said)
        )
    if isinstance(error, driver.ReadOnlyError):
        return StoreReadOnly(
            _("store_read_only: {where} takes no writes: {said}", where=where, said=said),
            code="store_read_only",
        )
    if isinstance(error, driver.OutOfMemoryError) or "OOM command" in said:
        return StoreUnavailable(
            _("{where} is out of memory: {said}", where=where, said=said), code="store_full"
        )
    if isinstance(error, driver.RedisError | OSError | TimeoutError):
        return StoreUnavailable(
            _("{where} cannot be used now: {said}", where=where, said=said or type(error).__name__)
        )
    raise error


def is_connection_error(error: BaseException) -> bool:
    """Whether the server or the network caused the error."""
    return isinstance(error, driver.RedisError | OSError | TimeoutError)


#: Timeouts as for the SQL servers: connect, free connection, response.
CONNECT_SECONDS = 3.0
POOL_SECONDS = 5.0
SILENCE_SECONDS = 10.0
#: Pool size of the engine's event loop; other loops (heartbeat, short-lived) get a small one.
SIZE, SMALL = 12, 2
#: A connection idle for longer is checked before use.
STALE_SECONDS = 0.5
READ_TRIES = 3

_elapsed = SystemClock().monotonic


def connection(address: Address) -> Connection:
    """A connection that is not connected yet, without driver retries."""
    given: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": SILENCE_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "chimes",
    }
    if not address.tls:
        return Connection(**given)
    given.update(address.tls_options)
    return SSLConnection(**given)


async def connect(address: Address) -> Connection:
    found = connection(address)
    # The driver's own method has no types.
    connect: Callable[[], Awaitable[None]] = found.connect
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connect()
    except BaseException:
        await _disconnect(found)
        raise
    # From here on one timeout covers a whole exchange; the driver's would create a task per send.
    found.socket_timeout = None
    return found


class _Pool:
    """The pool of one event loop, last used first."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._request = asyncio.Semaphore(size)
        self._free: list[tuple[Connection, float]] = []
        self._closed = False

    async def take(self) -> Connection:
        """A connected connection; the caller must give it back."""
        if self._request.locked():
            try:
                async with asyncio.timeout(POOL_SECONDS):
                    await self._request.acquire()
            except TimeoutError:
                raise StoreUnavailable(_("all connections to the store are in use")) from None
        else:
            # Fast path without a timer.
            await self._request.acquire()
        try:
            return await self._ready()
        except BaseException:
            self._request.release()
            raise

    async def give_back(self, found: Connection) -> None:
        self._request.release()
        if self._closed:
            await _disconnect(found)
        elif found.is_connected:
            self._free.append((found, _elapsed()))

    async def _ready(self) -> Connection:
        while self._free:
            found, since = self._free.pop()
            if _elapsed() - since < STALE_SECONDS:
                return found
            try:
                if not await found.can_read():
                    return found
            except (driver.RedisError, OSError):
                pass
            await _disconnect(found)
        return await connect(self._address)

    async def close(self) -> None:
        self._closed = True
        while self._free:
            await _disconnect(self._free.pop()[0])


async def _disconnect(found: Connection) -> None:
    with contextlib.suppress(driver.RedisError, OSError):
        await found.disconnect()


class Connections:
    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, tuple[_Pool, asyncio.Task[None]]] = {}
        self._main: asyncio.AbstractEventLoop | None = None
        self._open = False
        #: Counters: retried calls after a lost connection, and writes without a response.
        self.lost = 0
        self.ambiguous = 0

    def open(self) -> None:
        """Give this event loop the large pool."""
        self._main = asyncio.get_running_loop()
        self._open = True

    async def close(self) -> None:
        self._open = False
        with self._lock:
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, (_unused, guard) in pools.items():
            if loop is here:
                guard.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await guard
            else:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(guard.cancel)

    async def read(self, script: Script, *arguments: str | bytes) -> bytes:
        """Read-only call; retried when the connection was lost."""
        for left in reversed(range(READ_TRIES)):
            try:
                return await self._called(script, arguments)
            except _Unsent as unsent:
                if not left or not _is_lost_connection(unsent.error):
                    raise self._ours(unsent.error) from unsent.error
                self.lost += 1
            except Exception as error:
                if not is_connection_error(error):
                    raise
                if not left or not _is_lost_connection(error) or _timed_out(error):
                    raise self._ours(error) from error
                self.lost += 1
        raise AssertionError("the last try answers or raises")

    async def write(self, script: Script, *arguments: str | bytes) -> bytes:
        """Writing call; retried only if it was not sent."""
        for left in reversed(range(READ_TRIES)):
            try:
                return await self._called(script, arguments)
            except _Unsent as unsent:
                if not left or not _is_lost_connection(unsent.error):
                    raise self._ours(unsent.error) from unsent.error
                self.lost += 1
            except Exception as error:
                if not is_connection_error(error):
                    raise
                if _is_lost_connection(error):
                    self.ambiguous += 1
                    raise StoreUnavailable(
                        _(
                            "the answer to a change was lost: it may have happened or not;"
                            " repeat it"
                        ),
                        code="commit_unknown",
                    ) from error
                raise self._ours(error) from error
        raise AssertionError("the last try answers or raises")

    async def command(self, *words: str | int) -> object:
        """A read-only command."""
        try:
            pool = self._here()
            found = await pool.take()
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await found.send_command(*words)
                    return await found.read_response()
            finally:
                await pool.give_back(found)
        except Exception as error:
            if not is_connection_error(error):
                raise
            raise self._ours(error) from error

    async def _called(self, script: Script, arguments: tuple[str | bytes, ...]) -> bytes:
        pool = self._here()
        try:
            found = await pool.take()
        except Exception as error:
            if not is_connection_error(error):
                raise
            raise _Unsent(error) from error
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                try:
                    return await _evaluate(found, "EVALSHA", script.sha, arguments)
                except driver.NoScriptError:
                    # Restarted server or flushed scripts: nothing was executed.
                    return await _evaluate(found, "EVAL", script.text, arguments)
        finally:
            await pool.give_back(found)

    def _ours(self, error: Exception) -> Exception:
        return map_error(error, _("Redis at {address}", address=self.address.shown))

    def _here(self) -> _Pool:
        if not self._open:
            raise StoreUnavailable(_("the store is not open"))
        loop = asyncio.get_running_loop()
        known = self._pools.get(loop)
        if known is None:
            pool = _Pool(self.address, SIZE if loop is self._main else SMALL)
            guard = loop.create_task(self._guard(pool), name="chimes redis pool")
            known = pool, guard
            with self._lock:
                self._pools[loop] = known
        return known[0]

    async def _guard(self, pool: _Pool) -> None:
        """Closes the connections when the event loop cancels its tasks at its end."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            with self._lock:
                self._pools.pop(loop, None)
            await pool.close()


class _Unsent(Exception):
    """The call was not sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _timed_out(error: Exception) -> bool:
    """A timeout is reported, not retried."""
    return isinstance(error, driver.TimeoutError | TimeoutError)


def _is_lost_connection(error: Exception) -> bool:
    """The connection was lost; the call was not rejected."""
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return False
    if isinstance(error, driver.BusyLoadingError):
        return False
    return isinstance(error, driver.ConnectionError | driver.TimeoutError | OSError)


async def _evaluate(
    found: Connection, how: str, what: str, arguments: tuple[str | bytes, ...]
) -> bytes:
    await found.send_command(how, what, 0, *arguments)
    answer = await found.read_response()
    assert isinstance(answer, bytes)
    return answer


# --- wake-ups of other processes: scripts publish them, one connection subscribes. A wake-up may be
# lost with its connection; polling finds the work anyway.

_SHORTEST, _LONGEST = 0.1, 5.0
#: Seconds without a message after which the server is pinged.
QUIET_SECONDS = 15.0
ANSWER_SECONDS = 10.0


class Listener:
    def __init__(self, address: Address, sender: str, wake: Callable[[], None]) -> None:
        """`sender`: our id, to ignore own messages."""
        self._address = address
        self._sender = sender.encode()
        self._wake = wake
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="chimes listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            # The driver may swallow a cancellation.
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    async def _listen(self) -> None:
        delay = _SHORTEST
        while True:
            found = None
            try:
                found = await connect(self._address)
                await found.send_command("SUBSCRIBE", self._address.channel)
                await found.read_response()
                delay = _SHORTEST
                # Messages may have been missed.
                self._wake()
                await self._receive(found)
            except (driver.RedisError, OSError, TimeoutError) as error:
                _log.debug("lost the connection for wake-ups, reconnecting: %s", error)
            finally:
                if found is not None:
                    with contextlib.suppress(driver.RedisError, OSError):
                        await found.disconnect(nowait=True)
            await asyncio.sleep(random.uniform(delay / 2, delay))  # noqa: S311
            delay = min(delay * 2, _LONGEST)

    async def _receive(self, found: Connection) -> None:
        pinged = False
        while True:
            message = await found.read_response(timeout=ANSWER_SECONDS if pinged else QUIET_SECONDS)
            if message is None:
                if pinged:
                    raise TimeoutError(_("the server does not respond"))
                await found.send_command("PING")
                pinged = True
                continue
            pinged = False
            if (
                isinstance(message, list)
                and message[0] == b"message"
                and message[2] != self._sender
            ):
                self._wake()
