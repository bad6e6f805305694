"""The fork server, which forks a process per command of a test: `server.py MAIN_PID RECORD`.

A client (`tests.forking`) connects to a Unix socket. A message requests a fork and carries its
standard files and a pipe to which the server writes the exit code; the reply is the pid. The server
has no threads and no event loop, so a fork inherits a consistent state.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NoReturn

import chimes
from chimes import failpoints
from chimes.web.dashboard.site import prepare_pages

ROOT = Path(__file__).parents[2]
#: Modules besides the package itself that commands import only when they need them.
IMPORTED = ("rich.table", "uvloop")
#: Modules with side effects on import.
NOT_IMPORTED = ("__main__",)
#: Forks get a signal when the server, their parent, dies.
PR_SET_PDEATHSIG = 1
MAX_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    module: str
    files: tuple[int, ...]


class Server:
    """Forks until the main process of the session ends."""

    def __init__(self, main_pid: int, listener: socket.socket) -> None:
        self._session = os.pidfd_open(main_pid)
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}
        #: The pipe for the exit code and the client, by the pid of a fork.
        self._forks: dict[int, tuple[int, int]] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> Command | None:
        """Returns a command in a fork, and None in the server when the session has ended."""
        while True:
            waiting = [self._session, self._woken, self._listener.fileno(), *self._clients]
            ready, _, _ = select.select(waiting, [], [])
            if self._session in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._listener.fileno() in ready:
                client, _ = self._listener.accept()
                self._clients[client.fileno()] = client
            for number in self._clients.keys() & set(ready):
                command = self._answer(number)
                if command is not None:
                    return command

    def _answer(self, number: int) -> Command | None:
        client = self._clients[number]
        message, given, _, _ = socket.recv_fds(client, MAX_MESSAGE, 4)
        if not message:
            self._drop(number)
            return None
        *files, status = given
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return Command(**json.loads(message), files=tuple(files))
        self._forks[pid] = status, number
        for file in files:
            os.close(file)
        client.send(str(pid).encode())
        return None

    def _drop(self, number: int) -> None:
        """Kills the forks of a client that has disconnected."""
        self._clients.pop(number).close()
        for pid, (_, client) in self._forks.items():
            if client == number:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, code = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                status, _ = self._forks.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
                os.close(status)


def become(command: Command) -> None:
    """Makes the fork look like a new process."""
    assert ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    for number, file in enumerate(command.files):
        os.dup2(file, number)
    # Only open ones: the limit may be a billion.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            with contextlib.suppress(OSError):
                os.close(number)
    os.environ.clear()
    os.environ.update(command.env)
    time.tzset()
    os.chdir(command.cwd)
    script = Path(sys.executable).with_name("chimes")
    sys.path[0] = str(script.parent)
    sys.argv = [str(script), *command.arguments]
    if not command.module.startswith("chimes."):
        sys.path.append(str(ROOT))
    failpoints._armed = failpoints.parse_failpoints(os.environ)
    failpoints._log = os.environ.get("CHIMES_FAILPOINTS_LOG", "")


def execute(main: Callable[[], object]) -> NoReturn:
    """Exits like Python after a script, but skips interpreter shutdown, which would copy the pages
    shared with the server."""
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def import_everything() -> None:
    """Imports once instead of in each fork, because imports dominate the start of a node."""
    for found in walk_packages(chimes.__path__, "chimes."):
        if not found.name.endswith(NOT_IMPORTED):
            import_module(found.name)
    for name in IMPORTED:
        import_module(name)


def main(main_pid: int, record: Path) -> None:
    import_everything()
    # Compiling the templates costs more than a browser test spends on a page.
    prepare_pages()
    # Otherwise garbage collection in each fork would copy all shared pages.
    gc.freeze()
    path = record.with_suffix(".socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        new = record.with_suffix(".new")
        new.write_text(json.dumps({"keeper": os.getpid(), "socket": str(path)}))
        new.rename(record)
        command = Server(main_pid, listener).run()
    if command is None:
        shutil.rmtree(record.parent, ignore_errors=True)
    else:
        become(command)
        execute(import_module(command.module).main)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
