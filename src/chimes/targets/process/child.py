"""Starts, reads and stops the child process of one attempt; the worker's side.

Each child has its own session and process group. It is a fresh interpreter that receives its
request over a socket: nothing is forked from the worker, nothing is pickled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from chimes.i18n import _
from chimes.targets.process.channel import MAX_LINE, BoundedLog, LineSplitter
from chimes.targets.process.tree import kill_descendants

#: Credentials of the node that user code must not see.
PRIVATE_VARIABLES = ("CHIMES_STORE", "CHIMES_ADMIN_TOKEN")


def child_environment() -> dict[str, str]:
    """Environment of a process that executes user code."""
    return {name: value for name, value in os.environ.items() if name not in PRIVATE_VARIABLES}


def spawn(
    module: str, channel: int, parent_pipe: int, *, env: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Must be called on the event loop's thread: the kernel sends the parent-death signal when the
    *thread* that started the child ends. `env`: None is the environment of this process."""
    return subprocess.Popen(  # noqa: S603 - runs a Chimes module
        [sys.executable, "-m", module, str(channel), str(parent_pipe), str(os.getpid())],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(channel, parent_pipe),
        start_new_session=True,
    )


def watch_exit(process: subprocess.Popen[bytes], exited: asyncio.Future[None]) -> None:
    """Resolves `exited` when the process has ended. It is not reaped here: as a zombie it keeps
    its pid, which is also its group id, from being reused."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        _watch_in_thread(process, exited, loop)
        return
    descriptor = os.pidfd_open(process.pid)

    def on_exit() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        _resolve(exited)

    loop.add_reader(descriptor, on_exit)


def _watch_in_thread(
    process: subprocess.Popen[bytes],
    exited: asyncio.Future[None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    def wait() -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, exited)

    threading.Thread(target=wait, name=f"chimes-process-{process.pid}", daemon=True).start()


def _resolve(exited: asyncio.Future[None]) -> None:
    if not exited.done():
        exited.set_result(None)


class LineReader(LineSplitter, asyncio.Protocol):
    """Reads lines from a pipe or a socket."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        #: Resolved at the end of the stream.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish()
        if not self.closed.done():
            self.closed.set_result(None)


class OutputReader(LineReader):
    """Writes each line of standard output or standard error to the run's log."""

    def __init__(self, log: BoundedLog, level: str) -> None:
        super().__init__(MAX_LINE)
        self._log = log
        self._level = level

    def accepts_lines(self) -> bool:
        return not self._log.is_full()

    def line_received(self, line: bytes, *, whole: bool) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._log.line(self._level, text)


class MessageReader(LineReader):
    """Passes whole lines of the socket to a callback."""

    def __init__(self, limit: int, on_line: Callable[[bytes], None]) -> None:
        super().__init__(limit)
        self._on_line = on_line

    def line_received(self, line: bytes, *, whole: bool) -> None:
        if whole:
            self._on_line(line)


logger = logging.getLogger(__name__)

A = TypeVar("A")

#: How long a process may run after SIGTERM or after its result; shorter than the time that the
#: engine gives a canceled target.
GRACE_SECONDS = 3.0
#: How long to wait for the pipes of an ended process to close (other processes may hold them),
#: and for killed members of its group to exit.
DRAIN_SECONDS = 1.0


class Child(Generic[A]):
    """The process of one attempt, from its start until its process group is gone."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        parent_pipe: int,
        log: BoundedLog,
        on_message: Callable[[bytes], A | None],
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._out, self._err, self._channel = process.stdout, process.stderr, channel
        #: Write end of a pipe that only this worker holds. When it closes, also by the worker's
        #: death, the kernel kills the child's process group.
        self._parent_pipe = parent_pipe
        self._log = log
        self._on_message = on_message
        self._pipes: list[asyncio.BaseTransport] = []
        self._readers: list[LineReader] = []
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.result_message: asyncio.Future[A] = loop.create_future()
        #: `end` was called.
        self.ended = False

    @classmethod
    def start(
        cls,
        module: str,
        log: BoundedLog,
        on_message: Callable[[bytes], A | None],
        *,
        env: Mapping[str, str] | None = None,
    ) -> Child[A]:
        """Raises OSError if no process can be started. `on_message` receives each line of the
        socket and returns the result message, or None for other messages. It may raise
        ValueError, KeyError, TypeError or AttributeError for malformed lines, which are ignored:
        user code may have written to the socket."""
        ours, theirs = socket.socketpair()
        other_end, parent_pipe = os.pipe()
        try:
            process = spawn(module, theirs.fileno(), other_end, env=env)
        except BaseException:
            ours.close()
            os.close(parent_pipe)
            raise
        finally:
            theirs.close()
            os.close(other_end)
        return cls(process, ours, parent_pipe, log, on_message)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, or the negative number of the signal that ended it."""
        return self._process.returncode

    @property
    def running(self) -> bool:
        return not self.exited.done() and not self.result_message.done()

    async def connect(self, request: bytes, *, max_line: int) -> None:
        """Sends the request. Messages of more than `max_line` bytes are ignored. Kills the process
        and raises OSError if this worker has no file descriptor left."""
        try:
            await self._connect(request, max_line)
        except OSError:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._close()
            for end in (self._out, self._err, self._channel):
                end.close()
            raise

    async def wait(self, seconds: float, *others: asyncio.Future[None]) -> None:
        """Returns on a result, the exit, the end of the time, or when one of `others` is done."""
        ends: list[asyncio.Future[A] | asyncio.Future[None]] = [
            self.result_message,
            self.exited,
            *others,
        ]
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def end(self, *, grace: float = GRACE_SECONDS, whole_tree: bool = False) -> None:
        """Stops the whole process group and reads the rest of its output. `whole_tree`: also
        descendants that left the group, while the process itself is alive."""
        self.ended = True
        terminated = self.running
        if terminated:
            self._signal(signal.SIGTERM)
        await asyncio.wait((self.exited,), timeout=grace)
        if not terminated and not self.exited.done():
            self._log.system_line(
                "warning", _("the process did not exit after its result and was killed")
            )
        if whole_tree and not self.exited.done():
            kill_descendants(self._process.pid)
        # Also after its exit: processes that it started may still run.
        self._signal(signal.SIGKILL)
        await asyncio.wait((self.exited,), timeout=GRACE_SECONDS)
        if self.exited.done():
            # Reaped only now, so that no signal above could hit a reused pid.
            self._process.wait()
            await self._wait_for_group()
        else:
            # SIGKILL has no effect on a process that hangs in the kernel, e.g. on a dead disk.
            logger.error("a task's process cannot be killed", extra={"pid": self._process.pid})
        await asyncio.wait([reader.closed for reader in self._readers], timeout=DRAIN_SECONDS)
        self._close()

    async def _wait_for_group(self) -> None:
        """Waits a moment for killed processes to exit, not longer: without an init process that
        reaps orphans, as in some containers, they stay zombies."""
        for _unused in range(20):
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return
            except PermissionError:
                pass
            await asyncio.sleep(DRAIN_SECONDS / 20)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _connect(self, request: bytes, max_line: int) -> None:
        loop = asyncio.get_running_loop()
        watch_exit(self._process, self.exited)
        for pipe, level in ((self._out, "info"), (self._err, "error")):
            reader = OutputReader(self._log, level)
            transport, _unused = await loop.connect_read_pipe(partial(_return_reader, reader), pipe)
            self._pipes.append(transport)
            self._readers.append(reader)
        messages = MessageReader(max_line, self._message_received)
        channel, _unused = await loop.create_unix_connection(lambda: messages, sock=self._channel)
        self._pipes.append(channel)
        self._readers.append(messages)
        channel.write(request)

    def _close(self) -> None:
        for transport in self._pipes:
            transport.close()
        os.close(self._parent_pipe)

    def _message_received(self, line: bytes) -> None:
        try:
            answer = self._on_message(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if answer is not None and not self.result_message.done():
            self.result_message.set_result(answer)


def _return_reader(reader: LineReader) -> LineReader:
    return reader


async def run_shielded(work: Coroutine[object, object, None]) -> bool:
    """Awaits `work` to its end even if the caller is canceled meanwhile, and returns whether it
    was. For bounded work that must not be left half done."""
    task = asyncio.ensure_future(work)
    canceled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            canceled = True
    task.result()
    return canceled
