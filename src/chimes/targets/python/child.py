"""Entry point of the child process of one Python task attempt; started by a worker.

python -m chimes.targets.python.child SOCKET PARENT_PIPE PARENT_PID
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable
from types import FrameType

from chimes.errors import ChimesError, InvalidInput, NotFound
from chimes.i18n import _
from chimes.model.run import Outcome
from chimes.targets.process.channel import WorkerSocket
from chimes.targets.process.tree import die_with_parent, disable_core_dumps
from chimes.targets.python.arguments import BoundArguments, bind
from chimes.targets.python.context import Context, LineHandler, use_context
from chimes.targets.python.loader import load_registry, mark_inside_task
from chimes.targets.python.outcomes import (
    Cancel,
    failed_outcome,
    needs_traceback,
    outcome_of_exception,
    outcome_of_value,
    task_traceback,
)
from chimes.targets.python.registry import Function, is_async
from chimes.targets.python.wire import LOG_LIMITS, Request, ResultMessage
from chimes.telemetry import configure as configure_tracing
from chimes.telemetry import use_traceparent


def main(arguments: list[str]) -> None:
    descriptor, parent_pipe, parent = (int(each) for each in arguments)
    die_with_parent(parent, parent_pipe)
    own = os.getpid()
    worker = WorkerSocket(descriptor, LOG_LIMITS)
    request = Request.from_line(worker.read_request())
    _limit_resources(request.memory_limit)
    sys.path[:] = request.path
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Line buffered, so that output before a crash is not lost.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # Log records of the application go to the run's log.
    logging.basicConfig(
        level=logging.INFO,
        format="%(name)s: %(message)s",
        handlers=[LineHandler(worker.line)],
    )
    message = execute_traced(request, worker) if request.trace else execute(request, worker)
    # A process that the function forked may return here as well; it must not send.
    if os.getpid() == own:
        worker.send(message.to_line())


def execute_traced(request: Request, worker: WorkerSocket) -> ResultMessage:
    """Spans of the function become children of the attempt."""
    flush = configure_tracing(metrics=False)
    try:
        with use_traceparent(request.trace):
            return execute(request, worker)
    finally:
        if flush is not None:
            flush()


def execute(request: Request, worker: WorkerSocket) -> ResultMessage:
    context = Context(request.info, worker.line)
    mark_inside_task()
    try:
        function, bound = _find_function(request, context)
        with use_context(context):
            value = (
                asyncio.run(_call_async(function, bound, context))
                if is_async(function)
                else _call_sync(function, bound, context)
            )
    except _NotCalled as not_called:
        return ResultMessage(not_called.outcome)
    except BaseException as error:
        return ResultMessage(
            outcome_of_exception(error), task_traceback(error) if needs_traceback(error) else ""
        )
    return ResultMessage(outcome_of_value(value))


class _NotCalled(Exception):
    """The function was not called."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


def _find_function(request: Request, context: Context) -> tuple[Function, BoundArguments]:
    try:
        task = load_registry(request.app).get(request.info.task)
    except NotFound as error:
        raise _NotCalled(
            failed_outcome(
                "unknown_task",
                _("application {app}: {problem}", app=request.app, problem=error.message),
            )
        ) from error
    except ChimesError as error:
        raise _NotCalled(failed_outcome("no_app", error.message)) from error
    if request.error is not None:
        assert task.on_failure is not None
        return task.on_failure, BoundArguments((context, request.error), {})
    try:
        return task.function, bind(task, request.args, context)
    except InvalidInput as error:
        raise _NotCalled(failed_outcome("bad_arguments", error.message)) from error


def _call_sync(function: Function, bound: BoundArguments, context: Context) -> object:
    """SIGTERM raises `Cancel` inside the function, so that it can clean up."""

    def stop(number: int, frame: FrameType | None) -> None:
        context.cancel()
        raise Cancel(_("the attempt was canceled"))

    signal.signal(signal.SIGTERM, stop)
    return function(*bound.args, **bound.kwargs)


async def _call_async(function: Function, bound: BoundArguments, context: Context) -> object:
    """SIGTERM cancels the coroutine."""
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        context.cancel()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    called = function(*bound.args, **bound.kwargs)
    assert isinstance(called, Awaitable)
    value: object = await called
    return value


def _limit_resources(memory: int | None) -> None:
    disable_core_dumps()
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if __name__ == "__main__":
    main(sys.argv[1:])
