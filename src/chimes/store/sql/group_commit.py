"""The one writer of a process: small writes that arrive together are committed together.

A commit on SQLite waits for the disk (`synchronous=FULL`), a few milliseconds in which nothing
else can be written. Works that arrive meanwhile are collected and become one transaction, each
in a SAVEPOINT of its own, so that one that raises undoes only itself; every caller is answered
after the common COMMIT. Callers may be on any thread and any event loop, which is how heartbeats
of another thread go through: urgent ones are put in front, so they wait for at most the group
that is under way.

The write lock is taken with BEGIN IMMEDIATE and retried after a random 0-4 ms: SQLite's own busy
handler backs off further and further, and lets one of several processes starve (F39).
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection

from chimes.clock import Clock, SystemClock
from chimes.errors import StoreUnavailable
from chimes.store.sql.database import Tx, Work
from chimes.store.sql.dialects.sqlite import SqliteDialect, is_busy
from chimes.wording import say

T = TypeVar("T")

#: F38: longer than this no caller waits for the lock.
LOCK_SECONDS = 5.0
#: How often to look for commits of other processes while there is nothing to write.
LOOK_SECONDS = 0.2
LARGEST_GROUP = 256


class _Job:
    __slots__ = ("answer", "deadline", "error", "result", "work")

    def __init__(self, work: Work[Any], deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.answer: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class GroupCommit:
    def __init__(
        self,
        connection: Connection,
        dialect: SqliteDialect,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._driver = driver_of(connection)
        self._dialect = dialect
        self._clock = clock
        self._wake = wake
        # Waiting for a lock takes real time, also under a clock that a test sets.
        self._elapsed = SystemClock()
        self._queue: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seen_version = self._version()
        self._others_write = False
        self._thread = threading.Thread(target=self._live, name="chimes-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """What was handed in before is still written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        job = _Job(work, self._elapsed.monotonic() + LOCK_SECONDS)
        with self._changed:
            if self._closing:
                raise StoreUnavailable(say("the store is closed"))
            if urgent:
                self._queue.appendleft(job)
            else:
                self._queue.append(job)
            self._changed.notify()
        answer: T = await asyncio.wrap_future(job.answer)
        return answer

    # --- in the writer thread -----------------------------------------------------------------
    def _live(self) -> None:
        try:
            while self._wait_for_jobs():
                self._write_group()
        finally:
            with self._changed:
                self._closing = True
            self._refuse(StoreUnavailable(say("the store is closed")))
            self._connection.close()

    def _wait_for_jobs(self) -> bool:
        """False: the end."""
        while True:
            with self._changed:
                if not self._queue and not self._closing:
                    self._changed.wait(LOOK_SECONDS)
                if self._queue:
                    return True
                if self._closing:
                    return False
            self._look_for_others()

    def _look_for_others(self) -> None:
        """The number stays as it is when this connection commits, so only the commits of others
        wake us. Reading it is a look into shared memory."""
        try:
            version = self._version()
        except sqlite3.Error:
            return
        self._others_write = version != self._seen_version
        if self._others_write:
            self._seen_version = version
            self._wake()

    def _version(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])

    def _write_group(self) -> None:
        if not self._lock_database():
            return
        self._look_for_others()
        jobs = self._take()
        wakes = False
        try:
            for job in jobs:
                tx = Tx(self._connection, self._dialect, self._clock)
                self._carry_out(job, tx)
                wakes |= tx.wakes and job.error is None
            self._driver.execute("COMMIT")
        except sqlite3.Error as error:
            # The transaction as a whole is gone, and with it every work of the group.
            wakes = False
            for job in jobs:
                job.error = StoreUnavailable(say("cannot write: {reason}", reason=str(error)))
            if self._driver.in_transaction:
                self._driver.execute("ROLLBACK")
        if wakes:
            self._wake()
        for job in jobs:
            job.settle()

    def _lock_database(self) -> bool:
        """False: there is nobody left to write for."""
        if self._others_write:
            # Right after our own commit nobody else stands a chance unless we hold back a little.
            self._back_off()
        while True:
            try:
                self._driver.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    self._refuse(self._translated(error))
                    return False
                message = say(
                    "the database has been locked for {seconds:.0f} s", seconds=LOCK_SECONDS
                )
                self._refuse(StoreUnavailable(message), until=self._elapsed.monotonic())
                if not self._queue:
                    return False
                self._back_off()
            else:
                return True

    @staticmethod
    def _back_off() -> None:
        time.sleep(random.uniform(0, 0.004))  # noqa: S311 spreads processes, hides nothing

    def _take(self) -> list[_Job]:
        with self._changed:
            count = min(len(self._queue), LARGEST_GROUP)
            jobs = [self._queue.popleft() for _ in range(count)]
        return [job for job in jobs if job.answer.set_running_or_notify_cancel()]

    def _refuse(self, error: Exception, until: float | None = None) -> None:
        """Those whose time is up (None: all) get the error."""
        with self._changed:
            refused = [job for job in self._queue if until is None or job.deadline <= until]
            for job in refused:
                self._queue.remove(job)
        for job in refused:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(error)

    def _carry_out(self, job: _Job, tx: Tx) -> None:
        self._driver.execute("SAVEPOINT job")
        try:
            job.result = job.work(tx)
        except Exception as error:
            if not self._driver.in_transaction:
                raise sqlite3.OperationalError(str(getattr(error, "orig", error))) from error
            job.error = self._translated(error)
            self._driver.execute("ROLLBACK TO job")
        self._driver.execute("RELEASE job")

    def _translated(self, error: Exception) -> Exception:
        reason = self._dialect.unavailable(error)
        return (
            error
            if reason is None
            else StoreUnavailable(say("cannot write: {reason}", reason=reason))
        )


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Transactions are steered on the driver itself: SQLAlchemy sees autocommit."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
