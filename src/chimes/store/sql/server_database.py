"""A database server as a Database: many nodes write at once, each verb one short transaction.

Connections belong to an event loop, so each loop has its own small pool. The engine's loop has
the larger one; every other loop, which is to say the heartbeat's thread, has a connection of its
own that is opened with its first call and shared with nobody (F31).

A unit that surely did not commit is tried again as a whole (F22, F26). When the answer to COMMIT
is lost nobody knows, and the unit is not repeated here: the caller is told, and repeats the verb,
which every verb of the port allows (F23).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util import greenlet_spawn

from chimes.clock import Clock, SystemClock
from chimes.errors import StoreError, StoreReadOnly, StoreUnavailable
from chimes.store.sql.counters import Counters
from chimes.store.sql.database import Reader, Tx, Work
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.loop_pools import LoopPools
from chimes.store.sql.server import Server, Trouble
from chimes.store.sql.server_schema import check_or_set_up, migrate
from chimes.store.sql.wake_channel import WakeChannel
from chimes.store.wakeup import Wakeup
from chimes.wording import say

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: F26.
CONFLICT_TRIES = 6
LOST_TRIES = 3
#: Longer than this nothing is begun again.
RETRY_SECONDS = 8.0
#: A unit that takes longer is given up: nobody hangs on a server that does not answer.
UNIT_SECONDS = 20.0
#: How old an answer of the server's clock may be that somebody sleeps by.
RECENT_SECONDS = 30.0


class Doing(Enum):
    """What a unit of work was at when its server failed."""

    OPENING = auto()
    READING = auto()
    WRITING = auto()


class ServerDatabase:
    one_writer = False

    def __init__(self, server: Server, clock: Clock | None = None) -> None:
        """Without a clock the server's own decides (C21); a clock is for tests."""
        self._server = server
        self._clock = clock
        self._elapsed = SystemClock()
        self._wakeup = Wakeup()
        self._pools = LoopPools(server)
        self._channel: WakeChannel | None = None
        self._open = False
        #: What the server's clock said last, and when that was on ours.
        self._last_now: tuple[datetime, float] | None = None
        self.counters = Counters()

    async def open(self) -> None:
        self._pools.main = asyncio.get_running_loop()
        self._open = True
        try:
            await self._attempted(Doing.OPENING, self._check_schema)
        except BaseException:
            self._open = False
            await self._pools.close()
            raise
        self._channel = WakeChannel(self._server, self.wake)
        self._channel.start()

    async def _check_schema(self) -> None:
        server = self._server
        warning = await self._connected(
            self._pools.here().engine,
            lambda connection: check_or_set_up(connection, server),
            bounded=False,
        )
        if warning:
            _log.warning(warning)

    async def migrate(self) -> tuple[str | None, str]:
        """From which revision to which. Safe while nodes are at work, and safe to repeat."""
        self._pools.main = asyncio.get_running_loop()
        self._open = True
        try:
            return await migrate(self._pools.here().engine, self._server)
        except StoreError:
            raise
        except Exception as error:
            raise self._translated(error) from error
        finally:
            self._open = False
            await self._pools.close()

    async def close(self) -> None:
        self._open = False
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.stop()
        await self._pools.close()
        self.wake()

    @property
    def dialect(self) -> Dialect:
        return self._server.dialect

    @property
    def location(self) -> str:
        return self._server.location

    @property
    def degraded(self) -> str:
        return ""

    def identity(self, connection: Connection) -> str:
        return self._server.identity(connection)

    def troubles(self) -> Mapping[str, int]:
        return asdict(self.counters)

    # --- waking -------------------------------------------------------------------------------
    def changes(self) -> int:
        return self._wakeup.count

    def wake(self) -> None:
        self._wakeup.wake()

    async def wait(self, since: int, seconds: float | None) -> None:
        await self._wakeup.wait(since, seconds)

    # --- transactions -------------------------------------------------------------------------
    async def now(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        before = self._elapsed.monotonic()
        now = await self.look(Tx.now)
        self._last_now = (now, (before + self._elapsed.monotonic()) / 2)
        return now

    async def about_now(self) -> datetime:
        if self._clock is None and self._last_now is not None:
            now, at = self._last_now
            passed = self._elapsed.monotonic() - at
            if passed < RECENT_SECONDS:
                return now + timedelta(seconds=passed)
        return await self.now()

    async def look(self, work: Work[T]) -> T:
        return await self._attempted(Doing.READING, lambda: self._read(work, alone=True))

    async def read(self, work: Work[T]) -> T:
        return await self._attempted(Doing.READING, lambda: self._read(work))

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        return await self._written(_Unit(work, self.dialect, self._clock))

    async def write_alone(self, work: Work[T]) -> T:
        return await self._written(_Unit(work, self.dialect, self._clock, alone=True))

    async def _written(self, unit: _Unit[T]) -> T:
        answer = await self._attempted(Doing.WRITING, lambda: self._write(unit))
        if unit.wakes:
            self.wake()
            if self._channel is not None:
                self._channel.tell()
        return answer

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        return self._snapshot()

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Reader]:
        connection = await self._greenlet(self._pools.here().reading.connect)

        async def read(work: Work[T]) -> T:
            try:
                return await greenlet_spawn(self._look, connection, work)
            except Exception as error:
                raise self._translated(error) from error

        try:
            yield read
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(UNIT_SECONDS):
                    await greenlet_spawn(connection.close)

    async def _read(self, work: Work[T], *, alone: bool = False) -> T:
        pool = self._pools.here()
        engine = pool.looking if alone else pool.reading
        return await self._connected(engine, lambda connection: self._look(connection, work))

    def _look(self, connection: Connection, work: Work[T]) -> T:
        return work(Tx(connection, self.dialect, self._clock, reading=True))

    async def _write(self, unit: _Unit[T]) -> T:
        unit.committing = False
        pool = self._pools.here()
        engine = pool.looking if unit.alone else pool.engine
        try:
            return await self._connected(engine, unit.carry_out)
        except Exception as error:
            if unit.committing and self._unanswered(error):
                self.counters.ambiguous += 1
                raise StoreUnavailable(
                    say("the answer to a commit was lost: it may have happened or not; repeat it"),
                    code="commit_unknown",
                ) from error
            raise

    def _unanswered(self, error: Exception) -> bool:
        """Whether COMMIT was sent and nobody said what became of it."""
        if isinstance(error, TimeoutError):
            return True
        return self._server.trouble(error) is Trouble.LOST and not self._server.unsent(error)

    async def _connected(
        self,
        engine: Engine,
        use: Callable[[Connection], T],
        *,
        bounded: bool = True,
    ) -> T:
        """One greenlet for all of it: SQLAlchemy's asyncio extension makes one for each step, and
        brings its ORM along."""

        def unit() -> T:
            connection = engine.connect()
            try:
                return use(connection)
            finally:
                # Nothing is lost with a connection that cannot be given back.
                with contextlib.suppress(Exception):
                    connection.close()

        async with asyncio.timeout(UNIT_SECONDS if bounded else None):
            return await self._greenlet(unit)

    async def _greenlet(self, work: Callable[[], T]) -> T:
        if not self._open:
            raise StoreUnavailable(say("the store is not open"))
        try:
            return await greenlet_spawn(work)
        except PoolTimeout as error:
            self.counters.no_connection += 1
            raise StoreUnavailable(say("all connections to the store are in use")) from error

    async def _attempted(self, doing: Doing, attempt: Callable[[], Awaitable[T]]) -> T:
        """The whole unit, again from the start where it surely did not happen."""
        begun = self._elapsed.monotonic()
        conflicts = losses = 0
        while True:
            try:
                return await attempt()
            except StoreError:
                raise
            except Exception as error:
                trouble = self._server.trouble(error)
                late = self._elapsed.monotonic() - begun > RETRY_SECONDS
                if trouble is Trouble.CONFLICT and conflicts < CONFLICT_TRIES - 1 and not late:
                    conflicts += 1
                    self.counters.conflicts += 1
                elif trouble is Trouble.LOST and losses < LOST_TRIES - 1 and not late:
                    losses += 1
                    self.counters.lost += 1
                elif trouble is None:
                    raise
                else:
                    raise self._translated(error, doing) from error
            await asyncio.sleep(random.uniform(0, 0.01) * 2 ** (conflicts + losses))  # noqa: S311

    def _translated(self, error: Exception, doing: Doing = Doing.READING) -> Exception:
        trouble = self._server.trouble(error)
        if trouble is None:
            return error
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        if trouble is Trouble.READ_ONLY:
            return StoreReadOnly(
                say("store_read_only: the store takes no writes: {reason}", reason=reason),
                code="store_read_only",
            )
        return StoreUnavailable(_unavailable(doing, reason))


def _unavailable(doing: Doing, reason: str) -> str:
    match doing:
        case Doing.OPENING:
            return say("cannot open: {reason}", reason=reason)
        case Doing.READING:
            return say("cannot read: {reason}", reason=reason)
        case Doing.WRITING:
            return say("cannot write: {reason}", reason=reason)


class _Unit(Generic[T]):
    """One verb's transaction. May be carried out several times, until it is committed."""

    def __init__(
        self, work: Work[T], dialect: Dialect, clock: Clock | None, *, alone: bool = False
    ) -> None:
        """`alone`: its only statement is its COMMIT, too."""
        self._work = work
        self._dialect = dialect
        self._clock = clock
        self.alone = alone
        self.committing = False
        self.wakes = False

    def carry_out(self, connection: Connection) -> T:
        tx = Tx(connection, self._dialect, self._clock)
        self.committing = self.alone
        answer = self._work(tx)
        self.committing = True
        connection.commit()
        self.wakes = tx.wakes
        return answer
