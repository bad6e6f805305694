"""Tasks on the event loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from chimes.model.run import Outcome
from chimes.targets.python_task.context import entered
from chimes.targets.python_task.exceptions import Cancel
from chimes.targets.python_task.registry import is_async
from chimes.targets.python_task.verdicts import outcome_of_value
from chimes.targets.python_task.work import Work

# Not KeyboardInterrupt: that one is meant for the process. `sys.exit()` in a task is not.
RAISED_BY_TASKS = (Exception, SystemExit, Cancel, asyncio.CancelledError)


async def run_inline(work: Work) -> Outcome:
    """A coroutine is cancelled at its deadline. A sync function cannot be: while it runs, so does
    nothing else here."""
    with entered(work.context):
        if is_async(work.function):
            return await _run_async(work)
        try:
            return outcome_of_value(work.call())
        except RAISED_BY_TASKS as error:
            return work.raised(error)


async def _run_async(work: Work) -> Outcome:
    limit = asyncio.timeout(work.context.remaining())
    try:
        async with limit:
            called = work.call()
            assert isinstance(called, Awaitable)
            value: object = await called
    except asyncio.CancelledError as error:
        if not _told_to_stop():
            # The task's own doing: it awaited something that somebody else cancelled.
            return work.raised(error)
        work.context.cancel()
        if not work.overdue:
            raise
        return work.timed_out()
    except RAISED_BY_TASKS as error:
        return work.timed_out() if limit.expired() else work.raised(error)
    # A coroutine may catch its cancellation and go on; it is late all the same.
    return work.timed_out() if limit.expired() else outcome_of_value(value)


def _told_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
