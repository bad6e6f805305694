"""Group commit: changes that arrive while a write is under way share the next one.

Every caller waits for the write that holds its change. When a write fails, the state goes back to
the last generation on the disk, and everybody whose change was not in it is told; so what callers
were promised and what is on the disk never differ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from chimes.errors import StoreUnavailable, told
from chimes.wording import say

Batch = Future[None]


class StateLock:
    """The lock over the state. It remembers, for each thread, after which roll-back the thread
    last held it: a change that was made before one and reports itself after it is lost."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen = threading.local()
        self.rollbacks = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._seen.rollbacks = self.rollbacks

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    @property
    def seen(self) -> int:
        return int(getattr(self._seen, "rollbacks", self.rollbacks))


class GroupCommit:
    """`write` is called in a thread of its own, without the lock. It calls what it is handed under
    the lock, at the moment that its picture of the state is taken. `undo` is called under the
    lock."""

    def __init__(
        self,
        lock: StateLock,
        write: Callable[[Callable[[], None]], None],
        undo: Callable[[Exception], None],
    ) -> None:
        self._lock = lock
        self._write = write
        self._undo = undo
        self._waiting: Batch | None = None
        self._begun: Batch | None = None
        self._busy = False
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="chimes-jsonfile"
        )

    def join(self) -> Batch:
        """The batch of the caller, who has just left the lock."""
        seen = self._lock.seen
        with self._lock:
            if self._executor is None:
                raise StoreUnavailable(say("the store is closed"))
            if seen != self._lock.rollbacks:
                raise StoreUnavailable(say("the change was lost with a write that failed"))
            if self._waiting is None:
                self._waiting = Batch()
                # A caller that gives up must not take the others' answer away.
                self._waiting.set_running_or_notify_cancel()
            batch = self._waiting
            if not self._busy:
                self._busy = True
                self._executor.submit(self._drain)
        return batch

    def _begin(self) -> None:
        self._begun, self._waiting = self._waiting, None

    def close(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if self._waiting is None:
                    self._busy = False
                    return
            try:
                self._write(self._begin)
            except Exception as error:
                self._fail(error)
            else:
                assert self._begun is not None
                self._begun.set_result(None)
                self._begun = None

    def _fail(self, error: Exception) -> None:
        with self._lock:
            failed = [batch for batch in (self._begun, self._waiting) if batch is not None]
            self._begun = self._waiting = None
            self._undo(error)
            self._lock.rollbacks += 1
        reason = say("the file cannot be written: {error}", error=told(error))
        for batch in failed:
            batch.set_exception(StoreUnavailable(reason))
