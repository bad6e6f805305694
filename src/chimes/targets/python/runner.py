"""Carries out one attempt of a Python task."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Generator
from contextvars import Context as Context_inline
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from chimes.clock import SystemClock
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _, counted
from chimes.model.change import fast_constructor, replace
from chimes.model.ids import NodeId
from chimes.model.run import Attempt, AttemptEnd, Outcome, RunStatus, completion_of
from chimes.model.target import TaskTarget
from chimes.targets.base import Call
from chimes.targets.process.channel import LogLine, RunLog
from chimes.targets.process.child import Child, run_shielded
from chimes.targets.process.sanitize import describe_process_exit
from chimes.targets.python.arguments import Bound, bind
from chimes.targets.python.call import Work
from chimes.targets.python.context import Context, TransactionalCompletion, enter, entered, facts_of
from chimes.targets.python.loader import path_of, refuse_inside_task
from chimes.targets.python.outcomes import RESULT_LIMIT, Cancel, TaskError, failed_outcome, outcome_of_value
from chimes.targets.python.registry import Isolation, Registry, Task, is_async
from chimes.targets.python.wire import LOG_LIMITS, Answer, Request, message_of

# @@ Tasks on the event loop itself.

# Not KeyboardInterrupt: that one is meant for the process. `sys.exit()` in a task is not.
RAISED_BY_TASKS = (Exception, SystemExit, Cancel, asyncio.CancelledError)

Called: TypeAlias = Coroutine[Any, Any, object]


async def run_inline(work: Work) -> Outcome:
    """A coroutine is cancelled at its deadline. A sync function cannot be: while it runs, so does
    nothing else here."""
    scope, bound = work.scope, work.bound
    scope.run(enter, work.context)
    try:
        called = scope.run(work.function, *bound.args, **bound.kwargs)
    except RAISED_BY_TASKS as error:
        return work.raised(error)
    if not is_async(work.function):
        return outcome_of_value(called)
    coroutine = called if asyncio.iscoroutine(called) else _awaiting(called)
    try:
        # Up to its first wait it needs no timer, and many never wait.
        waits_for = scope.run(coroutine.send, None)
    except StopIteration as ended:
        return outcome_of_value(ended.value)
    except RAISED_BY_TASKS as error:
        return work.raised(error)
    return await _run_on(work, _Begun(coroutine, waits_for, scope, work.context.cancel))


async def _run_on(work: Work, begun: _Begun) -> Outcome:
    limit = asyncio.timeout(work.context.remaining())
    try:
        async with limit:
            value = await begun
    except asyncio.CancelledError as error:
        if not _told_to_stop():
            # The task's own doing: it awaited something that somebody else cancelled.
            return work.raised(error)
        if not work.overdue:
            raise
        return work.timed_out()
    except RAISED_BY_TASKS as error:
        return work.timed_out() if limit.expired() else work.raised(error)
    # A coroutine may catch its cancellation and go on; it is late all the same.
    return work.timed_out() if limit.expired() else outcome_of_value(value)


class _Begun:
    """The rest of a coroutine that has run up to its first wait."""

    def __init__(
        self,
        coroutine: Called,
        waits_for: object,
        scope: Context_inline,
        stop: Callable[[], None],
    ) -> None:
        """`stop`: called when it is told to, before it hears of it."""
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._scope = scope
        self._stop = stop

    def __await__(self) -> Generator[object, object, object]:
        coroutine, waits_for, run = self._coroutine, self._waits_for, self._scope.run
        while True:
            try:
                answer = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _told_to_stop():
                    self._stop()
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = (
                    run(coroutine.send, answer) if thrown is None else run(coroutine.throw, thrown)
                )
            except StopIteration as ended:
                return ended.value


async def _awaiting(called: Any) -> object:
    return await called


def _told_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# @@ Tasks in threads: sync functions that may block.
#
# Not a `ThreadPoolExecutor`: that one waits for its threads when the interpreter ends, so that
# one task that never returns would keep a node from stopping; and it cannot replace a thread.

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
        self._permits = asyncio.Semaphore(limit)
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
        await self._permits.acquire()
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
        self._permits.release()

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
        self._permits.release()

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
        return failed_outcome("threads_exhausted", error.args[0], retryable=True)
    except TimeoutError:
        work.log.remark("error", _("no thread was free within the time-out"))
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


# @@ Tasks in processes of their own, which can be killed (F18, F66).

MODULE = "chimes.targets.python.child"
#: A message is at most a result, its escapes and its frame.
MAX_MESSAGE = 2 * RESULT_LIMIT


async def run_in_process(app: str, work: Work) -> Outcome:
    if sys.platform == "win32":
        return failed_outcome("not_supported", _("this system has no process groups to isolate a task in"))
    if not app:
        return failed_outcome(
            "no_app",
            _(
                "a process cannot find task {task!r}: make the app a global name of its "
                "module, or name it (--app module:name)",
                task=work.task.name,
            ),
        )
    request = Request(
        app=app,
        path=tuple(sys.path),
        facts=work.context.facts,
        args=work.args,
        error=work.error,
        memory_limit=work.task.memory_limit,
    ).to_line()

    def heard(line: bytes) -> Answer | None:
        message = message_of(line)
        if isinstance(message, LogLine):
            work.log.line(message.level, message.message)
            return None
        return message

    try:
        child = Child.started(MODULE, work.log, heard)
        canceled = await run_shielded(child.connect(request, longest=MAX_MESSAGE))
    except OSError as error:
        return failed_outcome(
            "not_started",
            _("no process could be started: {error}", error=str(error)),
            retryable=True,
        )
    try:
        if canceled:
            raise asyncio.CancelledError
        await child.wait(work.context.remaining())
    except asyncio.CancelledError:
        work.context.cancel()
        await run_shielded(child.end())
        if not work.overdue:
            raise
        return work.timed_out()
    overdue = child.running
    if overdue:
        work.context.cancel()
    await run_shielded(child.end())
    return work.timed_out() if overdue else _outcome(work, child)


def _outcome(work: Work, child: Child[Answer]) -> Outcome:
    if not child.answered.done():
        return failed_outcome("crashed", describe_process_exit(child.status), retryable=True)
    answer = child.answered.result()
    if answer.trace:
        work.log.remark("error", answer.trace)
    return answer.outcome


CLOCK = SystemClock()
#: How long an `on_failure` handler may take.
HANDLER_TIMEOUT = timedelta(seconds=10)

_make_work = fast_constructor(Work)
_NOTHING = Bound((), {})


class PythonTask:
    kind = "task"
    resumable = False
    permits = None

    def __init__(
        self,
        registry: Registry,
        queues: Collection[str] | None = None,
        threads: int = 100,
        app: str = "",
        completing: Callable[[Call], TransactionalCompletion] | None = None,
    ) -> None:
        """`queues`: the only ones to serve. `app`: where a process of its own finds the tasks
        again, as `module:name`; empty: it is looked for among the imported modules.
        `completing`: for tasks that end their run in a transaction of their own."""
        self._registry = registry
        self._queues = None if queues is None else frozenset(queues)
        self._thread_limit = threads
        self._app = app
        self._completing = completing
        #: What is offered, and of how many tasks: more may be declared while the node runs.
        self._offers: frozenset[str] = frozenset()
        self._known = 0
        self._threads: Threads | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def capabilities(self) -> frozenset[str]:
        if self._known != len(self._registry):
            self._known = len(self._registry)
            self._offers = frozenset(
                f"task:{task.name}"
                for task in self._registry
                if self._queues is None or task.queue in self._queues
            )
        return self._offers

    @property
    def abandoned_threads(self) -> int:
        """Threads that were told to stop and have not ended."""
        return 0 if self._threads is None else self._threads.abandoned

    async def open(self) -> None:
        refuse_inside_task()
        self._threads = Threads(self._thread_limit)

    async def close(self) -> None:
        if self._handlers:
            await asyncio.wait(self._handlers)
        if self._threads is not None:
            self._threads.close()

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, TaskTarget)
        try:
            task = self._registry.get(target.name)
        except NotFound as error:
            call.log("error", error.message)
            return failed_outcome("unknown_task", error.message)
        log = RunLog(call.log, LOG_LIMITS)
        began = CLOCK.monotonic()
        timeout = call.run.policy.timeout
        context = self._context(call, task, log, timeout, at=call.triggered_at, began=began)
        scope = contextvars.copy_context()
        outcome: Outcome | None = None
        try:
            # Reading arguments may run code of the application, too.
            bound = scope.run(bind, task, target.args, context)
        except InvalidInput as error:
            log.remark("error", error.message)
            bound, outcome = _NOTHING, failed_outcome("bad_arguments", error.message)
        work = _make_work(
            task, task.function, bound, target.args, context, log, timeout, scope, None
        )
        if outcome is None:
            outcome = await self._carry_out(work)
        if outcome.end is not AttemptEnd.SUCCEEDED:
            if _is_final(call, outcome):
                now = call.triggered_at + timedelta(seconds=CLOCK.monotonic() - began)
                await self._tell(call, work, outcome, now)
        elif context.completion is not None and context.completion.recorded is not None:
            # One that failed after all has probably rolled back: then its word is what counts,
            # and if not, it is refused, because the run is over.
            written = context.completion.recorded
            outcome = replace(outcome, completed=written.attempt, result=written.result)
        log.close()
        return outcome

    def _context(
        self,
        call: Call,
        task: Task,
        log: RunLog,
        timeout: timedelta,
        *,
        at: datetime,
        began: float,
    ) -> Context:
        facts = facts_of(call.run, task.name, started_at=at, began=began, timeout=timeout)
        completing = self._completing
        if completing is None:
            return Context(facts, log.line)
        return Context(facts, log.line, partial(completing, call))

    async def _carry_out(self, work: Work) -> Outcome:
        mode = work.task.mode
        try:
            if mode is Isolation.PROCESS:
                self._app = self._app or path_of(self._registry)
                outcome = await run_in_process(work.task.app_path or self._app, work)
            # A sync handler of an async task must not block the loop.
            elif (mode is Isolation.INLINE and work.error is None) or is_async(work.function):
                outcome = await run_inline(work)
            else:
                assert self._threads is not None, "open() comes first"
                outcome = await run_in_thread(self._threads, work)
        finally:
            work.context.finish_lines()
        if outcome.end is AttemptEnd.CANCELED and work.overdue:
            # The function saw that its time was over before anybody told it.
            return work.timed_out()
        return outcome

    async def _tell(self, call: Call, told: Work, outcome: Outcome, now: datetime) -> None:
        """Calls the task's `on_failure`, which finds what the task has set. The attempt is over:
        being told to stop now ends the wait for the handler, not the handler, and changes nothing
        about the outcome."""
        task, log = told.task, told.log
        if task.on_failure is None:
            return
        error = TaskError(message=outcome.error, code=outcome.code)
        began = CLOCK.monotonic()
        context = self._context(call, task, log, HANDLER_TIMEOUT, at=now, began=began)
        context.completion = told.context.completion
        work = Work(
            task=task,
            function=task.on_failure,
            bound=Bound((context, error), {}),
            args={},
            context=context,
            log=log,
            timeout=HANDLER_TIMEOUT,
            scope=told.scope.copy(),
            error=error,
        )
        handler = asyncio.create_task(self._handle(work), context=told.scope.copy())
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        try:
            await asyncio.wait((handler,))
        except asyncio.CancelledError:
            log.remark("warning", _("on_failure goes on after the end of this log"))

    async def _handle(self, work: Work) -> None:
        outcome = await self._carry_out(work)
        if outcome.end is AttemptEnd.SUCCEEDED:
            return
        work.log.remark("error", _("on_failure failed: {error}", error=outcome.error))
        logger.warning(
            "an on_failure handler failed",
            extra={"task": work.task.name, "run_id": work.context.run_id, "error": outcome.error},
        )


def _is_final(call: Call, outcome: Outcome) -> bool:
    """Whether the run ends with this attempt, and not well; asked of the one who decides it."""
    if outcome.end not in (AttemptEnd.FAILED, AttemptEnd.TIMEOUT):
        return False
    run = call.run
    attempt = Attempt(
        number=run.attempt,
        fence=run.fence,
        node=run.holder or NodeId(""),
        started_at=call.triggered_at,
        finished_at=call.triggered_at,
        end=outcome.end,
    )
    return completion_of(run, outcome, attempt, ()).status in (RunStatus.FAILED, RunStatus.TIMEOUT)
