"""Runs `chimes` as real processes without importing the package for each of them.

Starting Python and importing the package costs a second of a core, three quarters of the cost of a
node that lives for seconds. So one process, the fork server, imports the package once, and each
command is a fork of it. A fork has its own arguments, environment, working directory and standard
files, and it exits, is suspended and is killed like any other process. No fork outlives the process
that requested it. Its command line in `/proc` is that of the fork server.

A client is a Unix socket. A message requests a fork and carries its standard files and a pipe to
which the server writes the exit code; the reply is the pid. The server has no threads and no event
loop, so a fork inherits a consistent state.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryFile
from typing import NoReturn, TextIO

import chimes
from chimes import failpoints

#: Modules besides the package itself that commands import only when they need them.
_IMPORTED = ("uvloop",)
#: Modules that need a web framework or pytest.
_FOR_APPLICATIONS = ("chimes.integrations.", "chimes.pytest_plugin")
#: Modules with side effects on import.
_NOT_IMPORTED = ("__main__",)
#: Forks get a signal when the server, their parent, dies.
_PR_SET_PDEATHSIG = 1
_MAX_MESSAGE = 1 << 20
_MAX_REPLY = 1 << 16


# --- client ---------------------------------------------------------------------------------------
class Connection:
    """A connection to the fork server. When it closes, the forks of this process are killed."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._lock = threading.Lock()

    def fork(self, command: Mapping[str, object], *files: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(command).encode()], files)
            reply = self._socket.recv(_MAX_REPLY)
        if not reply:
            raise RuntimeError("the fork server has ended")
        return int(reply)

    def close(self) -> None:
        self._socket.close()


class ForkServer(Connection):
    """A fork server of this process alone; it ends with the connection."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        super().__init__(ours)

    def close(self) -> None:
        super().close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Process:
    """The part of `subprocess.Popen` that callers need."""

    def __init__(
        self,
        connection: Connection,
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
            self.pid = connection.fork(command, *files, status)
        else:
            reading, writing = os.pipe()
            with open(os.devnull, "r+b") as nothing:
                null = nothing.fileno()
                self.pid = connection.fork(command, null, null, writing, status)
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
                if not code:
                    raise RuntimeError("the fork server has ended")
                self.returncode = int(code)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended without its exit code being known yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_to_end(
    connection: Connection,
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
        process = Process(
            connection,
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


# --- server ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Command:
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    module: str
    files: tuple[int, ...]


class Forks:
    """The loop of the fork server."""

    def __init__(
        self,
        clients: Iterable[socket.socket] = (),
        *,
        listener: socket.socket | None = None,
        until: int | None = None,
    ) -> None:
        """Forks until the file descriptor `until` is readable; without it until the last client
        has disconnected."""
        self._until = until
        self._listener = listener
        self._clients = {client.fileno(): client for client in clients}
        #: The pipe for the exit code and the client, by the pid of a fork.
        self._forks: dict[int, tuple[int, int]] = {}
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> Command | None:
        """Returns a command in a fork, and None in the server when it is to end."""
        while self._clients or self._until is not None:
            waiting = [self._woken, *self._clients]
            if self._until is not None:
                waiting.append(self._until)
            if self._listener is not None:
                waiting.append(self._listener.fileno())
            ready, _, _ = select.select(waiting, [], [])
            if self._until in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._listener is not None and self._listener.fileno() in ready:
                client, _ = self._listener.accept()
                self._clients[client.fileno()] = client
            for number in self._clients.keys() & set(ready):
                command = self._answer(number)
                if command is not None:
                    return command
        return None

    def _answer(self, number: int) -> Command | None:
        client = self._clients[number]
        message, given, _, _ = socket.recv_fds(client, _MAX_MESSAGE, 4)
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
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError("prctl failed")
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
            sys.stderr.write(f"{ended.code}\n")
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
        if not found.name.endswith(_NOT_IMPORTED) and not found.name.startswith(_FOR_APPLICATIONS):
            # The driver of a store may not be installed.
            with contextlib.suppress(ModuleNotFoundError):
                import_module(found.name)
    for name in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    # Otherwise garbage collection in each fork would copy all shared pages.
    gc.freeze()


def main(descriptor: int) -> None:
    import_everything()
    command = Forks([socket.socket(fileno=descriptor)]).run()
    if command is not None:
        become(command)
        execute(import_module(command.module).main)


if __name__ == "__main__":
    main(int(sys.argv[1]))
