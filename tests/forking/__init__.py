"""Runs `chimes` as a real process without importing the package again.

Starting Python and importing the package costs a second of a core, three quarters of the cost of a
node in a test. So one process of the test session, the fork server (`server.py`), imports the
package once, and each command is a fork of it. A fork has its own arguments, environment, working
directory and standard files, and it exits, is suspended and is killed like any other process. No
fork outlives the worker that requested it. Its command line in `/proc` is that of the fork server.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

from tests.servers import session

_SERVER = Path(__file__).with_name("server.py")
_MAX_REPLY = 1 << 16


class Forked:
    """The part of `subprocess.Popen` that tests of nodes need."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        files: tuple[int, int, int] | None = None,
        module: str = "chimes.cli",
    ) -> None:
        """`files`: standard input, output and error. Without them only the error output is
        readable, as a pipe. `module`: runs its `main()`, with the arguments in `sys.argv`."""
        self.stderr: TextIO | None = None
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        self._status, status = os.pipe()
        command = {
            "arguments": [*arguments],
            "env": {**env},
            "cwd": str(cwd),
            "module": module,
        }
        if files is not None:
            self.pid = _connection().fork(command, *files, status)
        else:
            reading, writing = os.pipe()
            with open(os.devnull, "r+b") as nothing:
                null = nothing.fileno()
                self.pid = _connection().fork(command, null, null, writing, status)
            os.close(writing)
            self.stderr = os.fdopen(reading, encoding="utf-8", errors="replace")
        os.close(status)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["chimes"], timeout)
        return code

    async def ended(self) -> int:
        """Returns the exit code. Only one caller at a time may wait."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        if self.returncode is None:
            loop.add_reader(self._status, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(self._status)
        return self.wait()

    def _wait(self, timeout: float | None) -> int | None:
        with self._waiting:
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                code = os.read(self._status, 16)
                os.close(self._status)
                assert code, "the fork server has died"
                self.returncode = int(code)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended without its exit code being known yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_chimes(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    module: str = "chimes.cli",
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns its output."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(stdin)
        given.flush()
        given.seek(0)
        process = Forked(
            arguments,
            env=os.environ if env is None else env,
            cwd=cwd,
            files=(given.fileno(), out.fileno(), err.fileno()),
            module=module,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        for each in (out, err):
            each.seek(0)
        return subprocess.CompletedProcess([*arguments], code, out.read(), err.read())


class _Connection:
    """The connection to the fork server. When it closes, the forks of this process are killed."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)
        self._lock = threading.Lock()

    def fork(self, command: Mapping[str, object], *files: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(command).encode()], files)
            reply = self._socket.recv(_MAX_REPLY)
        assert reply, "the fork server has died"
        return int(reply)

    def close(self) -> None:
        self._socket.close()


@cache
def _connection() -> _Connection:
    if not session.has_begun():  # outside of pytest
        session.begin()
        atexit.register(session.stop_all)
    known = session.shared_process("forking", [str(_SERVER)])
    connection = _Connection(known["socket"])
    atexit.register(connection.close)
    return connection
