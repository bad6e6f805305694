"""The process of one attempt. Started by a worker, never by hand.

python -m chimes.targets.python.child SOCKET LIFELINE PARENT
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
from chimes.targets.process.channel import Channel
from chimes.targets.process.tree import die_with_parent, disable_core_dumps
from chimes.targets.python.arguments import Bound, bind
from chimes.targets.python.context import Context, LineHandler, entered
from chimes.targets.python.loader import mark_inside_task, registry_at
from chimes.targets.python.outcomes import (
    Cancel,
    needs_traceback,
    failed_outcome,
    outcome_of_exception,
    outcome_of_value,
    task_traceback,
)
from chimes.targets.python.registry import Function, is_async
from chimes.targets.python.wire import LOG_LIMITS, Answer, Request


def main(arguments: list[str]) -> None:
    descriptor, parent_pipe, parent = (int(each) for each in arguments)
    die_with_parent(parent, parent_pipe)
    own = os.getpid()
    channel = Channel(descriptor, LOG_LIMITS)
    request = Request.from_line(channel.request())
    _limit(request.memory_limit)
    sys.path[:] = request.path
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Line by line, so that what was printed before a crash is seen.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # Whatever the application logs belongs to the run, at its own level.
    logging.basicConfig(
        level=logging.INFO,
        format="%(name)s: %(message)s",
        handlers=[LineHandler(channel.line)],
    )
    answer = carried_out(request, channel)
    # Not from a fork of it that came back from the function, too.
    if os.getpid() == own:
        channel.send(answer.to_line())


def carried_out(request: Request, channel: Channel) -> Answer:
    context = Context(request.facts, channel.line)
    mark_inside_task()
    try:
        function, bound = _found(request, context)
        with entered(context):
            value = (
                asyncio.run(_awaited(function, bound, context))
                if is_async(function)
                else _called(function, bound, context)
            )
    except _Refused as refused:
        return Answer(refused.outcome)
    except BaseException as error:
        return Answer(outcome_of_exception(error), task_traceback(error) if needs_traceback(error) else "")
    return Answer(outcome_of_value(value))


class _Refused(Exception):
    """The function was not called"""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


def _found(request: Request, context: Context) -> tuple[Function, Bound]:
    try:
        task = registry_at(request.app).get(request.facts.task)
    except NotFound as error:
        raise _Refused(
            failed_outcome(
                "unknown_task",
                _("application {app}: {problem}", app=request.app, problem=error.message),
            )
        ) from error
    except ChimesError as error:
        raise _Refused(failed_outcome("no_app", error.message)) from error
    if request.error is not None:
        assert task.on_failure is not None
        return task.on_failure, Bound((context, request.error), {})
    try:
        return task.function, bind(task, request.args, context)
    except InvalidInput as error:
        raise _Refused(failed_outcome("bad_arguments", error.message)) from error


def _called(function: Function, bound: Bound, context: Context) -> object:
    """SIGTERM is raised as `Cancel` where the function is, so that it can clean up."""

    def stop(number: int, frame: FrameType | None) -> None:
        context.cancel()
        raise Cancel(_("the attempt was told to stop"))

    signal.signal(signal.SIGTERM, stop)
    return function(*bound.args, **bound.kwargs)


async def _awaited(function: Function, bound: Bound, context: Context) -> object:
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


def _limit(memory: int | None) -> None:
    disable_core_dumps()
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if __name__ == "__main__":
    main(sys.argv[1:])
