"""Tasks on the event loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeAlias

from chimes.model.run import Outcome
from chimes.targets.python_task.context import enter
from chimes.targets.python_task.exceptions import Cancel
from chimes.targets.python_task.registry import is_async
from chimes.targets.python_task.verdicts import outcome_of_value
from chimes.targets.python_task.work import Work

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
        scope: Context,
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
