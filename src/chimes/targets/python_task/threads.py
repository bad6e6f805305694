"""Tasks in threads: sync functions that may block.

Not a `ThreadPoolExecutor`: that one waits for its threads when the interpreter ends, so that one
task that never returns would keep a node from stopping; and it cannot replace a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable

from chimes.model.run import Outcome
from chimes.targets.python_task.context import entered
from chimes.targets.python_task.verdicts import failed, outcome_of_value
from chimes.targets.python_task.work import Work
from chimes.wording import counted, say

logger = logging.getLogger(__name__)

#: How long a thread that was told to stop is waited for.
GRACE = 1.0
#: Threads that did not end when told, for each thread that may be at work.
ABANDONED_PER_THREAD = 10


class TooManyAbandoned(Exception):
    """So many threads never ended that no further one is started"""


class Job:
    """One call in a thread. `done` is resolved on the event loop."""

    __slots__ = ("_context", "_work", "abandoned", "done", "ended", "loop")

    def __init__(self, work: Callable[[], object]) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[object] = self.loop.create_future()
        #: Changed under the lock of the threads only.
        self.abandoned = self.ended = False
        self._work = work
        self._context = contextvars.copy_context()

    def run(self) -> None:
        value: object = None
        error: BaseException | None = None
        try:
            value = self._context.run(self._work)
        except BaseException as raised:
            error = raised
        try:
            self.loop.call_soon_threadsafe(self._resolve, value, error)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return
        finally:
            # An exception refers to the frame that refers to it.
            del value, error

    def _resolve(self, value: object, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(value)
        else:
            # Wrapped: a future refuses StopIteration and raises SystemExit through the loop.
            self.done.set_result(Raised(error))


class Raised:
    """An exception as a value."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Threads:
    """At most `limit` at work; those given up on are counted apart and replaced."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places = asyncio.Semaphore(limit)
        self._idle: list[queue.SimpleQueue[Job | None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._started = 0
        #: Threads that were told to stop and have not ended.
        self.abandoned = 0

    async def start(self, work: Callable[[], object]) -> Job:
        """Waits for a free thread. Whoever starts a job must `release` or `abandon` it."""
        if self.abandoned >= self._limit * ABANDONED_PER_THREAD:
            raise TooManyAbandoned(
                counted("{count} thread never ended", "{count} threads never ended", self.abandoned)
            )
        await self._places.acquire()
        job = Job(work)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            self._started += 1
            threading.Thread(
                target=self._work, args=(inbox,), name=f"chimes-task-{self._started}", daemon=True
            ).start()
        inbox.put(job)
        return job

    def release(self, job: Job) -> None:
        """The job is done."""
        assert job.done.done()
        self._places.release()

    def abandon(self, job: Job, what: str) -> None:
        """Nobody waits for the job any more; its place is free for another thread."""
        with self._lock:
            job.abandoned = not job.ended
            self.abandoned += job.abandoned
        if job.abandoned:
            logger.warning(
                "a task's thread did not end when it was told to; it is left to itself",
                extra={"task": what, "abandoned_threads": self.abandoned},
            )
        self._places.release()

    def close(self) -> None:
        """Idle threads end now, busy ones with their job, or with the process."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _work(self, inbox: queue.SimpleQueue[Job | None]) -> None:
        while (job := inbox.get()) is not None:
            job.run()
            with self._lock:
                job.ended = True
                if job.abandoned:
                    self.abandoned -= 1
                if self._closed or len(self._idle) >= self._limit:
                    return
                self._idle.append(inbox)
            del job


async def run_in_thread(threads: Threads, work: Work) -> Outcome:
    """A thread cannot be stopped, only told to: past the deadline, or canceled, the attempt ends
    without it."""
    try:
        with entered(work.context):
            async with asyncio.timeout(work.context.remaining()):
                job = await threads.start(work.call)
    except TooManyAbandoned as error:
        return failed("threads_exhausted", error.args[0], retryable=True)
    except TimeoutError:
        work.log.remark("error", say("no thread was free within the time-out"))
        return work.timed_out()
    try:
        await asyncio.wait((job.done,), timeout=work.context.remaining())
    except asyncio.CancelledError:
        await _give_up(threads, job, work)
        if not work.overdue:
            raise
        return work.timed_out()
    if not job.done.done():
        await _give_up(threads, job, work)
        return work.timed_out()
    threads.release(job)
    value = job.done.result()
    return work.raised(value.error) if isinstance(value, Raised) else outcome_of_value(value)


async def _give_up(threads: Threads, job: Job, work: Work) -> None:
    work.context.cancel()
    try:
        await asyncio.wait((job.done,), timeout=GRACE)
    except asyncio.CancelledError:
        # Told twice: there is no time left for the grace.
        pass
    finally:
        threads.abandon(job, work.task.name)
