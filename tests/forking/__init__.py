"""`chimes` as a real process that need not import everything anew.

Starting Python and importing the package costs a second of a core, three quarters of what a node
costs that a test starts. One process for each test worker (`keeper.py`) imports it once; each
command is a fork of it, with arguments, environment, folder and standard files of its own, and
ends, is stopped and is killed like any other; none outlives the worker. Only its command line, as
the system shows it, is the keeper's.
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
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

_KEEPER = Path(__file__).with_name("keeper.py")
_MOST = 1 << 16


class Forked:
    """As much of `subprocess.Popen` as tests of nodes need."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        files: tuple[int, int, int] | None = None,
        module: str = "chimes.cli",
    ) -> None:
        """`files`: standard input, output and error; otherwise there is nothing but the error, as
        a pipe. `module`: its `main()` is what runs, with the arguments in `sys.argv`."""
        self.stderr: TextIO | None = None
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        self._status, told = os.pipe()
        asked = {
            "arguments": [*arguments],
            "env": {**env},
            "cwd": str(cwd),
            "module": module,
        }
        if files is not None:
            self.pid = _keeper().fork(asked, *files, told)
        else:
            heard, said = os.pipe()
            with open(os.devnull, "r+b") as nothing:
                self.pid = _keeper().fork(asked, nothing.fileno(), nothing.fileno(), said, told)
            os.close(said)
            self.stderr = os.fdopen(heard, encoding="utf-8", errors="replace")
        os.close(told)

    def poll(self) -> int | None:
        return self._waited(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._waited(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["chimes"], timeout)
        return code

    async def ended(self) -> int:
        """Its exit code, once it has one. Meanwhile nobody else may wait for it."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        if self.returncode is None:
            loop.add_reader(self._status, told.set)
            try:
                await told.wait()
            finally:
                loop.remove_reader(self._status)
        return self.wait()

    def _waited(self, timeout: float | None) -> int | None:
        with self._waiting:
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                code = os.read(self._status, 16)
                os.close(self._status)
                assert code, "the keeper has died"
                self.returncode = int(code)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended, and nobody has said so yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def ran(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    module: str = "chimes.cli",
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with what it said."""
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


class _Keeper:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_KEEPER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # What a terminal tells the tests is not for it: it ends when they have ended.
                start_new_session=True,
            )

    def fork(self, asked: Mapping[str, object], *files: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
            answer = self._socket.recv(_MOST)
        assert answer, "the keeper has died"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)


@cache
def _keeper() -> _Keeper:
    keeper = _Keeper()
    atexit.register(keeper.close)
    return keeper
