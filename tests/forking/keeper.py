"""The process that nodes of tests are forks of: `keeper.py SOCKET`, see `tests.forking`.

A message asks for one, with the ends of its standard error and of a pipe that is told its exit
code; the answer is its pid. It has no thread and no event loop, so there is nothing that a fork
could find half done.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from chimes import failpoints
from chimes.cli import main as chimes

IMPORTED = (
    "chimes.app.listening",
    "chimes.app.node",
    "chimes.app.serving",
    "chimes.cli.root",
    "chimes.cli.serve",
    "chimes.store.jsonfile",
    "chimes.store.redis",
    "chimes.store.sql",
)


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    stderr: int


def forked(asking: socket.socket) -> Command | None:
    """In a fork what it is to do; None in the keeper, when nobody can ask any more."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    telling: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asking.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(telling)
        if asking.fileno() not in ready:
            continue
        message, given, _, _ = socket.recv_fds(asking, 1 << 20, 2)
        if not message:
            return None
        stderr, told = given
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return Command(**json.loads(message), stderr=stderr)
        telling[pid] = told
        os.close(stderr)
        asking.send(str(pid).encode())


def _reap(telling: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = telling.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(told)


def become(command: Command) -> None:
    """What the fork of a process with open files has to do to look like a new one."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in enumerate((nothing, nothing, command.stderr)):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(command.env)
    time.tzset()
    os.chdir(command.cwd)
    script = Path(sys.executable).with_name("chimes")
    sys.path[0] = str(script.parent)
    sys.argv = [str(script), *command.arguments]
    failpoints._armed = failpoints.armed(os.environ)
    failpoints._log = os.environ.get("CHIMES_FAILPOINTS_LOG", "")


def main(number: int) -> None:
    for name in IMPORTED:
        import_module(name)
    with socket.socket(fileno=number) as asking:
        command = forked(asking)
    if command is not None:
        become(command)
        chimes()


if __name__ == "__main__":
    main(int(sys.argv[1]))
