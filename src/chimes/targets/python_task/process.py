"""Tasks in processes of their own, which can be killed (F18, F66).

Each attempt has a session, and so a process group, of its own. Nothing is forked from the worker
and nothing is pickled: the process is started afresh and told over a socket what to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial

from chimes.model.run import Outcome
from chimes.targets.python_task.lines import RunLog
from chimes.targets.python_task.reading import LineReader, Messages, Output
from chimes.targets.python_task.spawning import spawned, watch_exit
from chimes.targets.python_task.verdicts import RESULT_LIMIT, failed
from chimes.targets.python_task.wire import Answer, LogLine, Request, message_of
from chimes.targets.python_task.work import Work

logger = logging.getLogger(__name__)

#: How long a process may go on after SIGTERM, or after its answer. Less than the engine's patience
#: with a target that was told to stop.
GRACE = 3.0
#: How long the pipes of a process that has ended may stay open, if somebody else has them, and
#: how long those that were killed with it may take to end.
DRAIN = 1.0
#: A message is at most a result, its escapes and its frame.
MAX_MESSAGE = 2 * RESULT_LIMIT


async def run_in_process(app: str, work: Work) -> Outcome:
    if sys.platform == "win32":
        return failed("not_supported", "this system has no process groups to isolate a task in")
    if not app:
        return failed(
            "no_app",
            f"a process cannot find task {work.task.name!r}: make the app a global name of its "
            "module, or name it (--app module:name)",
        )
    request = Request(
        app=app,
        path=tuple(sys.path),
        facts=work.context.facts,
        args=work.args,
        error=work.error,
        memory_limit=work.task.memory_limit,
    ).to_line()
    try:
        child = Child.started(work.log)
        canceled = await _surely(child.connect(request))
    except OSError as error:
        return failed("not_started", f"no process could be started: {error}", retryable=True)
    try:
        if canceled:
            raise asyncio.CancelledError
        await child.wait(work.context.remaining())
    except asyncio.CancelledError:
        work.context.cancel()
        await _surely(child.end())
        if not work.overdue:
            raise
        return work.timed_out()
    overdue = child.running
    if overdue:
        work.context.cancel()
    await _surely(child.end())
    return work.timed_out() if overdue else _outcome(work, child)


class Child:
    """The process of one attempt, from its start until nothing is left of it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        lifeline: int,
        log: RunLog,
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._out, self._err, self._channel = process.stdout, process.stderr, channel
        #: The end of a pipe that only this worker has: closed, also by the worker's own death, it
        #: has the kernel kill the group.
        self._lifeline = lifeline
        self._log = log
        self._pipes: list[asyncio.BaseTransport] = []
        self._readers: list[LineReader] = []
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.answered: asyncio.Future[Answer] = loop.create_future()

    @classmethod
    def started(cls, log: RunLog) -> Child:
        """Raises OSError if the machine gives no process."""
        ours, theirs = socket.socketpair()
        other_end, lifeline = os.pipe()
        try:
            process = spawned(theirs.fileno(), other_end)
        except BaseException:
            ours.close()
            os.close(lifeline)
            raise
        finally:
            theirs.close()
            os.close(other_end)
        return cls(process, ours, lifeline, log)

    @property
    def status(self) -> int | None:
        """Exit status, or minus the signal that ended it."""
        return self._process.returncode

    @property
    def running(self) -> bool:
        return not self.exited.done() and not self.answered.done()

    async def connect(self, request: bytes) -> None:
        """Tells it what to do. Raises OSError, and ends it, if this worker has too much open."""
        try:
            await self._connect(request)
        except OSError:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._close()
            for end in (self._out, self._err, self._channel):
                end.close()
            raise

    async def wait(self, seconds: float) -> None:
        """Until it has answered or ended, or the time is over."""
        await asyncio.wait(
            (self.answered, self.exited), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )

    async def end(self) -> None:
        """Nothing of the process group is left after this, and all that it said has been read."""
        told = self.running
        if told:
            self._signal(signal.SIGTERM)
        await asyncio.wait((self.exited,), timeout=GRACE)
        if not told and not self.exited.done():
            self._log.remark("warning", "the process did not end after its result: killed")
        # Also when it has ended: those that it started have not (F66).
        self._signal(signal.SIGKILL)
        await asyncio.wait((self.exited,), timeout=GRACE)
        if self.exited.done():
            # Only now is its number free for others: no signal above can have hit them.
            self._process.wait()
            await self._group_gone()
        else:
            # Not even SIGKILL ends what hangs in the kernel, on a dead disk for instance.
            logger.error("a task's process cannot be killed", extra={"pid": self._process.pid})
        await asyncio.wait([reader.closed for reader in self._readers], timeout=DRAIN)
        self._close()

    async def _group_gone(self) -> None:
        """A process ends a moment after it was killed. Not waited for longer than that: where
        nobody reaps orphans, as in a container without an init, they stay as zombies."""
        for _ in range(20):
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return
            except PermissionError:
                pass
            await asyncio.sleep(DRAIN / 20)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _connect(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        watch_exit(self._process, self.exited)
        for pipe, level in ((self._out, "info"), (self._err, "error")):
            reader = Output(self._log, level)
            transport, _ = await loop.connect_read_pipe(partial(_same, reader), pipe)
            self._pipes.append(transport)
            self._readers.append(reader)
        messages = Messages(MAX_MESSAGE, self._take)
        channel, _ = await loop.create_unix_connection(lambda: messages, sock=self._channel)
        self._pipes.append(channel)
        self._readers.append(messages)
        channel.write(request)

    def _close(self) -> None:
        for transport in self._pipes:
            transport.close()
        os.close(self._lifeline)

    def _take(self, line: bytes) -> None:
        try:
            message = message_of(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if isinstance(message, LogLine):
            self._log.line(message.level, message.message)
        elif not self.answered.done():
            self.answered.set_result(message)


def _outcome(work: Work, child: Child) -> Outcome:
    if not child.answered.done():
        return failed(
            "crashed", f"the process {_how(child.status)} without a result", retryable=True
        )
    answer = child.answered.result()
    if answer.trace:
        work.log.remark("error", answer.trace)
    return answer.outcome


def _same(reader: LineReader) -> LineReader:
    return reader


def _how(status: int | None) -> str:
    if status is None or status >= 0:
        return f"ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-status}{name}"


async def _surely(work: Coroutine[object, object, None]) -> bool:
    """Done to its end, also if the caller is cancelled meanwhile; whether it was. For what is
    bounded and would leave something behind if it were not done."""
    task = asyncio.ensure_future(work)
    canceled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            canceled = True
    task.result()
    return canceled
