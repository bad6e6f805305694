"""`chimes` as a real process that need not import everything anew.

Starting Python and importing the package costs a second of a core, three quarters of what a node
costs that a test starts. One process for each test worker (`keeper.py`) imports it once; each
command is a fork of it, with arguments, environment, folder and standard error of its own, and
ends, is stopped and is killed like any other. Only its command line, as the system shows it, is
the keeper's.
"""

from __future__ import annotations

import atexit
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
from typing import TextIO

_KEEPER = Path(__file__).with_name("keeper.py")
_MOST = 1 << 16


class Forked:
    """As much of `subprocess.Popen` as tests of nodes need."""

    def __init__(self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        asked = {"arguments": [*arguments], "env": {**env}, "cwd": str(cwd)}
        heard, said = os.pipe()
        self._status, told = os.pipe()
        try:
            self.pid = _keeper().fork(asked, said, told)
        finally:
            os.close(said)
            os.close(told)
        self.stderr: TextIO = os.fdopen(heard, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        return self._waited(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._waited(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["chimes"], timeout)
        return code

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
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Keeper:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_KEEPER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, asked: Mapping[str, object], said: int, told: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [said, told])
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
