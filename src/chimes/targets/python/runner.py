"""Executes attempts of Python tasks inline, in a thread or in a child process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias

from chimes.clock import SystemClock
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.run import Attempt, AttemptEnd, Outcome, Run, RunStatus, completion_of
from chimes.model.target import TaskTarget
from chimes.targets.base import EVENT, Call, event_value
from chimes.targets.process.channel import BoundedLog, LogLine
from chimes.targets.process.child import Child, run_shielded
from chimes.targets.process.sanitize import describe_process_exit
from chimes.targets.python.arguments import BoundArguments, bind, parameters_of
from chimes.targets.python.context import (
    Context,
    TransactionalCompletion,
    enter,
    run_info_of,
    use_context,
)
from chimes.targets.python.invocation import Invocation
from chimes.targets.python.loader import ensure_not_inside_task, find_app_path
from chimes.targets.python.outcomes import (
    RESULT_LIMIT,
    Cancel,
    TaskError,
    failed_outcome,
    outcome_of_value,
)
from chimes.targets.python.registry import Isolation, Registry, Task, is_async
from chimes.targets.python.wire import LOG_LIMITS, Request, ResultMessage, message_of
from chimes.telemetry import current_traceparent

# Includes SystemExit: `sys.exit()` in a task must not end the worker. KeyboardInterrupt must.
RAISED_BY_TASKS = (Exception, SystemExit, Cancel, asyncio.CancelledError)

TaskCoroutine: TypeAlias = Coroutine[Any, Any, object]


def begin_inline(invocation: Invocation) -> Outcome | Coroutine[Any, Any, Outcome]:
    """Runs on the event loop. A coroutine is canceled at its deadline; a sync function blocks the
    loop and cannot be stopped. Returns what is left of a coroutine that has to wait."""
    try:
        called = invocation.scope.run(_call_inline, invocation)
    except RAISED_BY_TASKS as error:
        return invocation.exception_outcome(error)
    return called if isinstance(called, Outcome) else _finish_coroutine(invocation, called)


def _call_inline(invocation: Invocation) -> Outcome | _StartedCoroutine:
    """Starts a coroutine without a timer: many end before they first suspend."""
    enter(invocation.context)
    called = invocation.call()
    if not is_async(invocation.function):
        return outcome_of_value(called)
    coroutine = called if isinstance(called, CoroutineType) else _await_object(called)
    try:
        waits_for = coroutine.send(None)
    except StopIteration as ended:
        return outcome_of_value(ended.value)
    scope, stop = invocation.scope, invocation.context.cancel
    return _StartedCoroutine(coroutine, waits_for, scope, stop)


async def _finish_coroutine(invocation: Invocation, begun: _StartedCoroutine) -> Outcome:
    limit = asyncio.timeout(invocation.context.remaining())
    try:
        async with limit:
            value = await begun
    except asyncio.CancelledError as error:
        if not _is_cancelling():
            # Not a cancellation of this attempt: the task awaited something that was canceled.
            return invocation.exception_outcome(error)
        if not invocation.overdue:
            raise
        return invocation.timeout_outcome()
    except RAISED_BY_TASKS as error:
        return (
            invocation.timeout_outcome() if limit.expired() else invocation.exception_outcome(error)
        )
    # A coroutine may catch its cancellation and return; the attempt timed out all the same.
    return invocation.timeout_outcome() if limit.expired() else outcome_of_value(value)


class _StartedCoroutine:
    """Awaits the rest of a coroutine that ran up to its first suspension."""

    def __init__(
        self,
        coroutine: TaskCoroutine,
        waits_for: object,
        scope: contextvars.Context,
        stop: Callable[[], None],
    ) -> None:
        """`stop`: called when the attempt is canceled, before the coroutine is."""
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._scope = scope
        self._stop = stop

    def __await__(self) -> Generator[object, object, object]:
        coroutine, waits_for, run = self._coroutine, self._waits_for, self._scope.run
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelling():
                    self._stop()
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = (
                    run(coroutine.send, value) if thrown is None else run(coroutine.throw, thrown)
                )
            except StopIteration as ended:
                return ended.value


async def _await_object(called: Any) -> object:
    return await called


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


logger = logging.getLogger(__name__)

#: How long a canceled thread may take to end.
GRACE_SECONDS = 1.0
#: Limit of abandoned threads, per thread of the pool.
ABANDONED_PER_THREAD = 10


class TooManyAbandonedThreads(Exception):
    """The limit of abandoned threads is reached"""


class Job:
    """One call in a thread. `done` is resolved on the event loop."""

    __slots__ = ("_context", "_function", "abandoned", "done", "ended", "loop")

    def __init__(self, function: Callable[[], object]) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[object] = self.loop.create_future()
        #: Changed under the lock of the pool only.
        self.abandoned = self.ended = False
        self._function = function
        self._context = contextvars.copy_context()

    def run(self) -> None:
        value: object = None
        error: BaseException | None = None
        try:
            value = self._context.run(self._function)
        except BaseException as raised:
            error = raised
        try:
            self.loop.call_soon_threadsafe(self._resolve, value, error)
        except RuntimeError:
            # The loop is closed: the node has stopped.
            return
        finally:
            # Breaks the reference cycle of exception and frame.
            del value, error

    def _resolve(self, value: object, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(value)
        else:
            # Wrapped: a future rejects StopIteration, and SystemExit would end the loop.
            self.done.set_result(Raised(error))


class Raised:
    """Carries an exception as a value."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ThreadPool:
    """Runs at most `limit` jobs at once; abandoned threads are replaced and counted separately.

    Not a `ThreadPoolExecutor`: that one joins its threads at interpreter exit, so a task that
    never returns would keep the node from stopping, and it cannot replace a thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._permits = asyncio.Semaphore(limit)
        self._idle: list[queue.SimpleQueue[Job | None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._started = 0
        #: Canceled threads that have not ended.
        self.abandoned = 0

    async def start(self, function: Callable[[], object]) -> Job:
        """Waits for a free thread. The caller must `release` or `abandon` the job."""
        if self.abandoned >= self._limit * ABANDONED_PER_THREAD:
            raise TooManyAbandonedThreads(
                counted(
                    "{count} canceled thread has not ended",
                    "{count} canceled threads have not ended",
                    self.abandoned,
                )
            )
        await self._permits.acquire()
        job = Job(function)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            self._started += 1
            threading.Thread(
                target=self._run_jobs,
                args=(inbox,),
                name=f"chimes-task-{self._started}",
                daemon=True,
            ).start()
        inbox.put(job)
        return job

    def release(self, job: Job) -> None:
        """Frees the permit of a finished job."""
        assert job.done.done()
        self._permits.release()

    def abandon(self, job: Job, what: str) -> None:
        """Frees the permit of a job that may still run."""
        with self._lock:
            job.abandoned = not job.ended
            self.abandoned += job.abandoned
        if job.abandoned:
            logger.warning(
                "a task's thread did not end after cancellation and was abandoned",
                extra={"task": what, "abandoned_threads": self.abandoned},
            )
        self._permits.release()

    def close(self) -> None:
        """Ends idle threads now, busy ones after their job or with the process."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _run_jobs(self, inbox: queue.SimpleQueue[Job | None]) -> None:
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


async def run_in_thread(threads: ThreadPool, invocation: Invocation) -> Outcome:
    """A thread cannot be killed: past the deadline, or when canceled, the attempt ends and abandons
    it."""
    try:
        with use_context(invocation.context):
            async with asyncio.timeout(invocation.context.remaining()):
                job = await threads.start(invocation.call)
    except TooManyAbandonedThreads as error:
        return failed_outcome("threads_exhausted", error.args[0], retryable=True)
    except TimeoutError:
        invocation.log.system_line("error", _("no thread was free before the timeout"))
        return invocation.timeout_outcome()
    try:
        await asyncio.wait((job.done,), timeout=invocation.context.remaining())
    except asyncio.CancelledError:
        await _abandon(threads, job, invocation)
        if not invocation.overdue:
            raise
        return invocation.timeout_outcome()
    if not job.done.done():
        await _abandon(threads, job, invocation)
        return invocation.timeout_outcome()
    threads.release(job)
    value = job.done.result()
    return (
        invocation.exception_outcome(value.error)
        if isinstance(value, Raised)
        else outcome_of_value(value)
    )


async def _abandon(threads: ThreadPool, job: Job, invocation: Invocation) -> None:
    invocation.context.cancel()
    try:
        await asyncio.wait((job.done,), timeout=GRACE_SECONDS)
    except asyncio.CancelledError:
        # Canceled again: skip the grace period.
        pass
    finally:
        threads.abandon(job, invocation.task.name)


MODULE = "chimes.targets.python.child"
#: Bytes of a message: the largest result plus JSON escapes and framing.
MAX_MESSAGE = 2 * RESULT_LIMIT


async def run_in_process(app: str, invocation: Invocation) -> Outcome:
    if sys.platform == "win32":
        return failed_outcome("not_supported", _("process isolation is not supported on Windows"))
    if not app:
        return failed_outcome(
            "no_app",
            _(
                "the child process cannot import task {task!r}: make the app a global variable of "
                "its module, or set --app module:name",
                task=invocation.task.name,
            ),
        )
    request = Request(
        app=app,
        path=tuple(sys.path),
        info=invocation.context.info,
        args=invocation.args,
        error=invocation.error,
        memory_limit=invocation.task.memory_limit,
        trace=current_traceparent(),
    ).to_line()

    def on_message(line: bytes) -> ResultMessage | None:
        message = message_of(line)
        if isinstance(message, LogLine):
            invocation.log.line(message.level, message.message)
            return None
        return message

    try:
        child = Child.start(MODULE, invocation.log, on_message)
        canceled = await run_shielded(child.connect(request, max_line=MAX_MESSAGE))
    except OSError as error:
        return failed_outcome(
            "not_started",
            _("cannot start a process: {error}", error=str(error)),
            retryable=True,
        )
    try:
        if canceled:
            raise asyncio.CancelledError
        await child.wait(invocation.context.remaining())
    except asyncio.CancelledError:
        invocation.context.cancel()
        await run_shielded(child.end())
        if not invocation.overdue:
            raise
        return invocation.timeout_outcome()
    overdue = child.running
    if overdue:
        invocation.context.cancel()
    await run_shielded(child.end())
    return invocation.timeout_outcome() if overdue else _outcome(invocation, child)


def _outcome(invocation: Invocation, child: Child[ResultMessage]) -> Outcome:
    if not child.result_message.done():
        return failed_outcome("crashed", describe_process_exit(child.status), retryable=True)
    message = child.result_message.result()
    if message.trace:
        invocation.log.system_line("error", message.trace)
    return message.outcome


CLOCK = SystemClock()
#: Timeout of an `on_failure` handler.
HANDLER_TIMEOUT = timedelta(seconds=10)

_NOTHING = BoundArguments((), {})


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
        completion_factory: Callable[[Call], TransactionalCompletion] | None = None,
    ) -> None:
        """`queues`: the queues to serve; None: all. `app`: where child processes import the tasks,
        as `module:name`; empty: searched among the imported modules. `completion_factory`: for
        tasks that complete their run in their own transaction."""
        self._registry = registry
        self._queues = None if queues is None else frozenset(queues)
        self._thread_limit = threads
        self._app = app
        self._completion_factory = completion_factory
        #: Cached with the number of tasks: tasks may be declared while the node runs.
        self._capabilities: frozenset[str] = frozenset()
        self._task_count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPool | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    @property
    def capabilities(self) -> frozenset[str]:
        if self._task_count != len(self._registry):
            self._task_count = len(self._registry)
            self._capabilities = frozenset(
                f"task:{task.name}"
                for task in self._registry
                if self._queues is None or task.queue in self._queues
            )
        return self._capabilities

    @property
    def abandoned_threads(self) -> int:
        """Canceled threads that have not ended."""
        return 0 if self._threads is None else self._threads.abandoned

    async def open(self) -> None:
        ensure_not_inside_task()
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool(self._thread_limit)

    async def close(self) -> None:
        if self._handlers:
            await asyncio.wait(self._handlers)
        if self._threads is not None:
            self._threads.close()

    async def execute(self, call: Call) -> Outcome:
        begun = self.begin(call)
        return begun if isinstance(begun, Outcome) else await begun

    def begin(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        definition = call.run.definition
        target, timeout = definition.target, definition.policy.timeout
        assert isinstance(target, TaskTarget)
        try:
            task = self._registry.get(target.name)
        except NotFound as error:
            call.log("error", error.message)
            return failed_outcome("unknown_task", error.message)
        log = BoundedLog(call.log, LOG_LIMITS, loop=self._loop)
        began = CLOCK.monotonic()
        context = self._context(call, task, log, timeout, at=call.triggered_at, began=began)
        scope = contextvars.copy_context()
        called: Outcome | Coroutine[Any, Any, Outcome] | None = None
        args: Mapping[str, object] = target.args
        try:
            # Validation of arguments may run application code.
            args = with_event(task, target.args, call.run)
            bound = scope.run(bind, task, args, context)
        except InvalidInput as error:
            log.system_line("error", error.message)
            bound, called = _NOTHING, failed_outcome("bad_arguments", error.message)
        invocation = Invocation(
            task=task,
            function=task.function,
            bound=bound,
            args=args,
            context=context,
            log=log,
            timeout=timeout,
            scope=scope,
            error=None,
        )
        if called is None:
            called = self._call_function(invocation)
        if not isinstance(called, Outcome) or called.end is not AttemptEnd.SUCCEEDED:
            return self._finish(call, invocation, called, began)
        return _close(invocation, called)

    async def _finish(
        self,
        call: Call,
        invocation: Invocation,
        called: Outcome | Coroutine[Any, Any, Outcome],
        began: float,
    ) -> Outcome:
        outcome = called if isinstance(called, Outcome) else await called
        if outcome.end is not AttemptEnd.SUCCEEDED and _is_final(call, outcome):
            now = call.triggered_at + timedelta(seconds=CLOCK.monotonic() - began)
            await self._call_on_failure(call, invocation, outcome, now)
        return _close(invocation, outcome)

    def _context(
        self,
        call: Call,
        task: Task,
        log: BoundedLog,
        timeout: timedelta,
        *,
        at: datetime,
        began: float,
    ) -> Context:
        info = run_info_of(call.run, task.name, started_at=at, began=began, timeout=timeout)
        completion_factory = self._completion_factory
        if completion_factory is None:
            return Context(info, log.line)
        return Context(info, log.line, partial(completion_factory, call))

    def _call_function(self, invocation: Invocation) -> Outcome | Coroutine[Any, Any, Outcome]:
        """Returns what is left of a call that has to wait."""
        mode = invocation.task.mode
        if mode is Isolation.PROCESS:
            self._app = self._app or find_app_path(self._registry)
            called = run_in_process(invocation.task.app_path or self._app, invocation)
        # A sync handler of an async task must not block the loop.
        elif (mode is Isolation.INLINE and invocation.error is None) or is_async(
            invocation.function
        ):
            begun = begin_inline(invocation)
            if isinstance(begun, Outcome):
                return _flush(invocation, begun)
            called = begun
        else:
            assert self._threads is not None, "open() comes first"
            called = run_in_thread(self._threads, invocation)
        return self._wait(invocation, called)

    async def _wait(self, invocation: Invocation, called: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            outcome = await called
        except BaseException:
            invocation.context.flush_output()
            raise
        return _flush(invocation, outcome)

    async def _call_on_failure(
        self, call: Call, failed: Invocation, outcome: Outcome, now: datetime
    ) -> None:
        """Calls the task's `on_failure` in the context variables of the task. The attempt has
        ended: a cancellation stops the wait for the handler, not the handler, and does not change
        the outcome."""
        task, log = failed.task, failed.log
        if task.on_failure is None:
            return
        error = TaskError(message=outcome.error, code=outcome.code)
        began = CLOCK.monotonic()
        context = self._context(call, task, log, HANDLER_TIMEOUT, at=now, began=began)
        context.completion = failed.context.completion
        invocation = Invocation(
            task=task,
            function=task.on_failure,
            bound=BoundArguments((context, error), {}),
            args={},
            context=context,
            log=log,
            timeout=HANDLER_TIMEOUT,
            scope=failed.scope.copy(),
            error=error,
        )
        handler = asyncio.create_task(self._run_handler(invocation), context=failed.scope.copy())
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        try:
            await asyncio.wait((handler,))
        except asyncio.CancelledError:
            log.system_line(
                "warning", _("on_failure is still running; its output is not logged here")
            )

    async def _run_handler(self, invocation: Invocation) -> None:
        called = self._call_function(invocation)
        outcome = called if isinstance(called, Outcome) else await called
        if outcome.end is AttemptEnd.SUCCEEDED:
            return
        invocation.log.system_line("error", _("on_failure failed: {error}", error=outcome.error))
        logger.warning(
            "an on_failure handler failed",
            extra={
                "task": invocation.task.name,
                "run_id": invocation.context.run_id,
                "error": outcome.error,
            },
        )


def _flush(invocation: Invocation, outcome: Outcome) -> Outcome:
    invocation.context.flush_output()
    if outcome.end is AttemptEnd.CANCELED and invocation.overdue:
        # The function noticed its deadline before the worker did.
        return invocation.timeout_outcome()
    return outcome


def _close(invocation: Invocation, outcome: Outcome) -> Outcome:
    completion = invocation.context.completion
    if (
        completion is not None
        and completion.recorded is not None
        and outcome.end is AttemptEnd.SUCCEEDED
    ):
        # Only on success: a failed task has probably rolled back its transaction. If not, the
        # store rejects the completion, because the run has ended.
        written = completion.recorded
        outcome = replace(outcome, completed=written.attempt, result=written.result)
    invocation.log.close()
    return outcome


def _is_final(call: Call, outcome: Outcome) -> bool:
    """Whether the run fails with this attempt, without another retry."""
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


def with_event(task: Task, args: Mapping[str, object], run: Run) -> Mapping[str, object]:
    """The arguments, with the payload of the event that started the run if the task has a
    parameter `event` and no argument for it."""
    if run.definition.cause is None or EVENT in args:
        return args
    parameters = parameters_of(task.function)
    if EVENT not in parameters.named:
        return args
    return {**args, EVENT: event_value(run)}
