"""Carries out one attempt of a Python task."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

from chimes.clock import SystemClock
from chimes.errors import InvalidInput, NotFound
from chimes.model.change import maker, replace
from chimes.model.ids import NodeId
from chimes.model.run import Attempt, AttemptEnd, Outcome, RunStatus, judged
from chimes.model.target import TaskTarget
from chimes.targets.base import Call
from chimes.targets.processes.lines import RunLog
from chimes.targets.python_task.arguments import Bound, bind
from chimes.targets.python_task.context import Completion, Context, facts_of
from chimes.targets.python_task.importing import path_of, refuse_inside_task
from chimes.targets.python_task.inline import run_inline
from chimes.targets.python_task.process import run_in_process
from chimes.targets.python_task.registry import Isolation, Registry, Task, is_async
from chimes.targets.python_task.threads import Threads, run_in_thread
from chimes.targets.python_task.verdicts import TaskError, failed
from chimes.targets.python_task.wire import LOG_LIMITS
from chimes.targets.python_task.work import Work
from chimes.wording import say

logger = logging.getLogger(__name__)

CLOCK = SystemClock()
#: How long an `on_failure` handler may take.
HANDLER_TIMEOUT = timedelta(seconds=10)

_make_work = maker(Work)
_NOTHING = Bound((), {})


class PythonTask:
    kind = "task"
    resumable = False
    places = None

    def __init__(
        self,
        registry: Registry,
        queues: Collection[str] | None = None,
        threads: int = 100,
        app: str = "",
        completing: Callable[[Call], Completion] | None = None,
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
    def offers(self) -> frozenset[str]:
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
            return failed("unknown_task", error.message)
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
            bound, outcome = _NOTHING, failed("bad_arguments", error.message)
        work = _make_work(
            task, task.function, bound, target.args, context, log, timeout, scope, None
        )
        if outcome is None:
            outcome = await self._carry_out(work)
        if outcome.end is not AttemptEnd.SUCCEEDED:
            if _is_final(call, outcome):
                now = call.triggered_at + timedelta(seconds=CLOCK.monotonic() - began)
                await self._tell(call, work, outcome, now)
        elif context.completion is not None and context.completion.verdict is not None:
            # One that failed after all has probably rolled back: then its word is what counts,
            # and if not, it is refused, because the run is over.
            written = context.completion.verdict
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
            log.remark("warning", say("on_failure goes on after the end of this log"))

    async def _handle(self, work: Work) -> None:
        outcome = await self._carry_out(work)
        if outcome.end is AttemptEnd.SUCCEEDED:
            return
        work.log.remark("error", say("on_failure failed: {error}", error=outcome.error))
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
    return judged(run, outcome, attempt, ()).status in (RunStatus.FAILED, RunStatus.TIMEOUT)
