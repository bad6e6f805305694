"""The Redis store: each method is one script, or a read and a script that checks revisions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import redis.exceptions as driver
from redis.asyncio.connection import Connection

from chimes.clock import Clock
from chimes.errors import StoreLost
from chimes.i18n import _
from chimes.model.listing import Counts
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.store.epoch import Epoch
from chimes.store.port import StoreStatus
from chimes.store.redis.connection import Address, Connections, connect
from chimes.store.redis.export import RedisExport
from chimes.store.redis.insights import RedisInsights
from chimes.store.redis.records import RedisNodeStore
from chimes.store.redis.schedules import RedisSchedules
from chimes.store.redis.server import (
    LAYOUT,
    Marker,
    check_server,
    open_store,
    read_identity,
    reinitialize,
    replaced_error,
)
from chimes.store.redis.wire import text, texts

# Wake-ups of other processes: the scripts publish them, one connection subscribes. A wake-up may be
# lost with its connection; polling finds the work anyway.

_log = logging.getLogger(__name__)

_SHORTEST, _LONGEST = 0.1, 5.0
#: Seconds without a message after which the server is pinged.
QUIET_SECONDS = 15.0
ANSWER_SECONDS = 10.0


class Listener:
    def __init__(self, address: Address, me: str, wake: Callable[[], None]) -> None:
        self._address = address
        self._me = me.encode()
        self._wake = wake
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live(), name="chimes listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            # The driver may swallow a cancellation.
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    async def _live(self) -> None:
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
                await self._hear(found)
            except (driver.RedisError, OSError, TimeoutError) as error:
                _log.debug("lost the connection for wake-ups, reconnecting: %s", error)
            finally:
                if found is not None:
                    with contextlib.suppress(driver.RedisError, OSError):
                        await found.disconnect(nowait=True)
            await asyncio.sleep(random.uniform(delay / 2, delay))  # noqa: S311
            delay = min(delay * 2, _LONGEST)

    async def _hear(self, found: Connection) -> None:
        asked = False
        while True:
            said = await found.read_response(timeout=ANSWER_SECONDS if asked else QUIET_SECONDS)
            if said is None:
                if asked:
                    raise TimeoutError(_("the server does not respond"))
                await found.send_command("PING")
                asked = True
                continue
            asked = False
            if isinstance(said, list) and said[0] == b"message" and said[2] != self._me:
                self._wake()


#: Maximum age of the cached server time for sleeping.
RECENT_SECONDS = 30.0


class RedisStore(RedisSchedules, RedisNodeStore, RedisExport, RedisInsights):
    def __init__(
        self,
        address: Address,
        *,
        clock: Clock | None = None,
        allow_volatile: bool = False,
        marker: Path | None = None,
    ) -> None:
        super().__init__(Connections(address), clock)
        self._allow_volatile = allow_volatile
        self._marker = Marker(marker, address)
        self._listener: Listener | None = None
        self._note = ""
        #: The id of a store that replaced ours, once logged.
        self._strange_id = ""
        #: Last server time, with our monotonic time.
        self._last_now: tuple[datetime, float] | None = None

    async def open(self) -> None:
        self._connections.open()
        try:
            self._note = await check_server(self._connections, allow_volatile=self._allow_volatile)
            self._store_id = (await open_store(self._connections, self._marker)).id
        except BaseException:
            await self._connections.close()
            raise
        if self._note:
            _log.warning("Redis at %s: %s", self._connections.address.shown, self._note)
        self._listener = Listener(self._connections.address, self._me, self.wake)
        self._listener.start()

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        await self._connections.close()
        self.wake()

    async def init(self) -> str:
        """Used instead of `open`: give the store a new identity and return its id."""
        self._connections.open()
        try:
            await check_server(self._connections, allow_volatile=self._allow_volatile)
            return (await reinitialize(self._connections, self._marker)).id
        finally:
            await self._connections.close()

    async def status(self) -> StoreStatus:
        return StoreStatus(
            kind="redis",
            location=self._connections.address.shown,
            schema=LAYOUT,
            degraded=self._note,
        )

    async def epoch(self) -> Epoch:
        """Only here another store is accepted, if it was set up by `store init --force`; not one
        that a node created on an empty server. Its counter starts lower, so watching nodes drop
        their
        claims."""
        try:
            _unused, (counter,) = await self._tell("epoch")
        except StoreLost:
            found = await read_identity(self._connections)
            if found is None:
                raise
            if not found.forced:
                lost = replaced_error(self._connections.address)
                if self._strange_id != found.id:
                    self._strange_id = found.id
                    _log.critical("%s", lost, extra={"event": "store_lost"})
                raise lost from None
            _log.error("the store was replaced: it was set up again")
            self._store_id = found.id
            self._head = None
            self._in_hand.clear()
            self._marker.keep(found.id)
            return Epoch(0, self._store_id)
        return Epoch(int(text(counter)), self._store_id)

    def counters(self) -> Mapping[str, int]:
        """Counters of recovered errors, by name."""
        return {
            "conflicts": self._conflicts,
            "lost": self._connections.lost,
            "ambiguous": self._connections.ambiguous,
        }

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        before = self._elapsed.monotonic()
        now = await self._now()
        self._last_now = (now, (before + self._elapsed.monotonic()) / 2)
        return now

    def changes(self) -> int:
        return self._wakeup.count

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - await self._about_now()).total_seconds())
        await self._wakeup.wait(since, seconds)

    async def _about_now(self) -> datetime:
        if self._clock is None and self._last_now is not None:
            now, at = self._last_now
            passed = self._elapsed.monotonic() - at
            if passed < RECENT_SECONDS:
                return now + timedelta(seconds=passed)
        return await self.now()

    async def counts(self) -> Counts:
        statuses, states = list(RunStatus), list(DeliveryState)
        _unused, (answer,) = await self._ask("counts", list(statuses), list(states))
        schedules, enabled, due, *numbers = (int(each) for each in texts(answer))
        of_runs, of_deliveries = numbers[: len(statuses)], numbers[len(statuses) :]
        return Counts(
            schedules=schedules,
            enabled=enabled,
            due=due,
            runs={each: number for each, number in zip(statuses, of_runs, strict=True) if number},
            deliveries={
                each: number for each, number in zip(states, of_deliveries, strict=True) if number
            },
        )
