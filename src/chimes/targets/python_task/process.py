"""Tasks in processes of their own, which can be killed (F18, F66)."""

from __future__ import annotations

import asyncio
import sys

from chimes.model.run import Outcome
from chimes.targets.processes.channel import LogLine
from chimes.targets.processes.child import Child, surely
from chimes.targets.processes.traces import process_ended
from chimes.targets.python_task.verdicts import RESULT_LIMIT, failed
from chimes.targets.python_task.wire import Answer, Request, message_of
from chimes.targets.python_task.work import Work
from chimes.wording import say

MODULE = "chimes.targets.python_task.child"
#: A message is at most a result, its escapes and its frame.
MAX_MESSAGE = 2 * RESULT_LIMIT


async def run_in_process(app: str, work: Work) -> Outcome:
    if sys.platform == "win32":
        return failed(
            "not_supported", say("this system has no process groups to isolate a task in")
        )
    if not app:
        return failed(
            "no_app",
            say(
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
        canceled = await surely(child.connect(request, longest=MAX_MESSAGE))
    except OSError as error:
        return failed(
            "not_started",
            say("no process could be started: {error}", error=str(error)),
            retryable=True,
        )
    try:
        if canceled:
            raise asyncio.CancelledError
        await child.wait(work.context.remaining())
    except asyncio.CancelledError:
        work.context.cancel()
        await surely(child.end())
        if not work.overdue:
            raise
        return work.timed_out()
    overdue = child.running
    if overdue:
        work.context.cancel()
    await surely(child.end())
    return work.timed_out() if overdue else _outcome(work, child)


def _outcome(work: Work, child: Child[Answer]) -> Outcome:
    if not child.answered.done():
        return failed("crashed", process_ended(child.status), retryable=True)
    answer = child.answered.result()
    if answer.trace:
        work.log.remark("error", answer.trace)
    return answer.outcome
