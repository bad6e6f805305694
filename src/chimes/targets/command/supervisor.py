"""The supervisor of one command; started by a worker.

python -m chimes.targets.command.supervisor SOCKET PARENT_PIPE PARENT_PID

The command has a session and a process group of its own. Its orphans become children of this
process, so that all that it started is found and ended, also what left the group. It executes no
user code, so it detects the death of its worker and kills the remaining processes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from chimes.i18n import _
from chimes.targets.command.wire import LOG_LIMITS, Request, ResultMessage
from chimes.targets.process.channel import MAX_LINE, LineSplitter, WorkerSocket
from chimes.targets.process.tree import (
    PR_SET_PDEATHSIG,
    become_subreaper,
    descendants,
    disable_core_dumps,
    kill_descendants,
)

#: How long other processes may hold the output open after the command has exited.
DRAIN_SECONDS = 1.0
#: How long processes may take to exit when the command has ended.
_EXIT_SECONDS = 0.1
#: Between two looks for processes that are left, while they are being stopped.
_POLL_SECONDS = 0.05
_CHUNK = 64 * 1024
#: Lines of the result, and characters of each of them.
LAST_LINES = 20
_LAST_LINE_LENGTH = 500
_REST_BYTES = LAST_LINES * _LAST_LINE_LENGTH
_CUT = " … (cut)"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: SIGXCPU comes at the limit, SIGKILL this many seconds of CPU time later.
_CPU_GRACE = 5


def main(arguments: list[str]) -> None:
    descriptor, parent_pipe, parent = (int(each) for each in arguments)
    os.set_inheritable(parent_pipe, False)
    disable_core_dumps()
    worker = WorkerSocket(descriptor, LOG_LIMITS)
    request = Request.from_line(worker.read_request())
    become_subreaper()
    if os.getppid() != parent:
        # The worker died before its end of the pipe was watched.
        os._exit(1)
    supervisor = Supervisor(request, worker, parent_pipe)
    try:
        result = supervisor.run()
    except NotStarted as error:
        result = ResultMessage(code=error.code, error=error.text)
    except BaseException:
        # For example because the worker is gone and its socket is closed.
        kill_all()
        raise
    with suppress(OSError):
        worker.send(result.to_line())


class NotStarted(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def kill_all() -> int:
    """Kills everything below this process; returns how many processes there were."""
    own = os.getpid()
    found = len(descendants(own))
    until = time.monotonic() + DRAIN_SECONDS
    while descendants(own) and time.monotonic() < until:
        kill_descendants(own)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)
    return found


# --- start ----------------------------------------------------------------------------------------
def start(request: Request) -> subprocess.Popen[bytes]:
    """Starts the command. NotStarted says why it cannot."""
    user = _find_user(request.user)
    home = user.pw_dir if user is not None else request.inherited.get("HOME", "")
    folder = request.cwd or (home if Path(home or "/").is_dir() else "/")
    env = {"PATH": DEFAULT_PATH, **request.inherited}
    identity: dict[str, object] = {}
    if user is not None:
        env |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        env["SHELL"] = user.pw_shell or "/bin/sh"
        if user.pw_uid != os.geteuid():
            groups = os.getgrouplist(user.pw_name, user.pw_gid)
            identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
    env |= request.variables
    try:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return] # noqa: S603
            request.command,
            cwd=folder or "/",
            env=env,
            stdin=subprocess.PIPE if request.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            umask=int(request.umask, 8) if request.umask else -1,
            # This process has one thread.
            preexec_fn=lambda: _apply_limits(request),
            **identity,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _start_error(error, request, folder, env["PATH"]) from None


def _find_user(name: str) -> pwd.struct_passwd | None:
    if not name:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise NotStarted(
            "unknown_user", _("user {name} does not exist on the worker", name=name)
        ) from None
    if os.geteuid() not in (0, user.pw_uid):
        raise NotStarted(
            "user_not_allowed",
            _(
                "the worker does not run as root, so that it cannot run commands as {name}",
                name=name,
            ),
        )
    return user


def _apply_limits(request: Request) -> None:
    """In the new process, before the program."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if request.memory_limit is not None:
        _set_limit(resource.RLIMIT_AS, request.memory_limit, request.memory_limit)
    if request.cpu_limit is not None:
        _set_limit(resource.RLIMIT_CPU, request.cpu_limit, request.cpu_limit + _CPU_GRACE)


def _set_limit(kind: int, soft: int, hard: int) -> None:
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def _start_error(error: Exception, request: Request, folder: str, path: str) -> NotStarted:
    program = request.command[0]
    if not Path(folder).is_dir():
        return NotStarted("no_directory", _("directory {folder} does not exist", folder=folder))
    if isinstance(error, FileNotFoundError):
        if "/" in program and Path(folder, program).exists():
            text = _(
                "the interpreter in the first line of {program} does not exist", program=program
            )
        elif "/" in program:
            text = _("program {program} does not exist", program=program)
        else:
            text = _("program {program} is not in PATH ({path})", program=program, path=path)
        return NotStarted("program_not_found", text)
    if isinstance(error, PermissionError):
        if not os.access(folder, os.X_OK):
            return NotStarted(
                "no_directory", _("directory {folder} may not be entered", folder=folder)
            )
        return NotStarted(
            "not_executable", _("program {program} is not executable", program=program)
        )
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return NotStarted(
            "not_executable",
            _("{program} is no program, or its first line is not #!/path", program=program),
        )
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return NotStarted(
        "not_started", _("cannot start the command {command}: {why}", command=program, why=why)
    )


# --- output ---------------------------------------------------------------------------------------
class _OutputLines(LineSplitter):
    """Passes the lines of one stream on until the log is full; then keeps only the last bytes,
    because splitting a flood into lines would slow the command down."""

    def __init__(self, level: str, worker: WorkerSocket, last: deque[str]) -> None:
        super().__init__(MAX_LINE - len(_CUT))
        self._level = level
        self._worker = worker
        self._last = last
        self._rest = b""

    def accepts_lines(self) -> bool:
        return not self._worker.log_is_full

    def data_received(self, data: bytes) -> None:
        if self.accepts_lines():
            super().data_received(data)
        else:
            self._rest = (self._rest + data[-_REST_BYTES:])[-_REST_BYTES:]

    def line_received(self, line: bytes, *, whole: bool) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._worker.line(self._level, text if len(line) < self._limit else text + _CUT)
        self._last.append(text[:_LAST_LINE_LENGTH])

    def finish(self) -> None:
        super().finish()
        for line in self._rest.rstrip(b"\n").split(b"\n")[-LAST_LINES:] if self._rest else ():
            self._last.append(line.decode(errors="replace").rstrip("\r")[:_LAST_LINE_LENGTH])


class Supervisor:
    """Runs one command to its end."""

    def __init__(self, request: Request, worker: WorkerSocket, parent_pipe: int) -> None:
        self._request = request
        self._worker = worker
        self._parent_pipe = parent_pipe
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._received = 0
        self._flooded = False
        self._stop_requested = False
        self._open_pipes = 0
        self._selector = selectors.DefaultSelector()
        #: When it is killed; None: it is not being stopped.
        self._kill_at: float | None = None
        self._killed = False
        self._exited_at: float | None = None

    def run(self) -> ResultMessage:
        wakes, wake = os.pipe()
        os.set_blocking(wakes, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # Installed before the command starts, so that no signal is lost.
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._process = start(self._request)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        splitters = tuple(
            _OutputLines(each, self._worker, self._last) for each in ("info", "error")
        )
        with self._selector as selector:
            selector.register(wakes, selectors.EVENT_READ, lambda: os.read(wakes, _CHUNK))
            selector.register(self._parent_pipe, selectors.EVENT_READ, self._worker_died)
            pipes = (self._process.stdout, self._process.stderr)
            for pipe, splitter in zip(pipes, splitters, strict=True):
                self._open_pipes += 1
                selector.register(pipe, selectors.EVENT_READ, self._reader(pipe, splitter))
            if self._process.stdin is not None:
                self._feed(self._process.stdin)
            while not self._is_over():
                for key, _events in selector.select(self._seconds_to_wait()):
                    key.data()
                self._advance()
        left_behind = self._kill_leftovers()
        for splitter in splitters:
            splitter.finish()
        return ResultMessage(
            status=self._process.returncode,
            output="\n".join(self._last),
            flooded=self._flooded,
            left_behind=left_behind,
        )

    def _on_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def _worker_died(self) -> None:
        self._signal_all(signal.SIGKILL)
        kill_all()
        os._exit(1)

    def _reader(self, pipe: IO[bytes], splitter: _OutputLines) -> Callable[[], None]:
        def read() -> None:
            chunk = os.read(pipe.fileno(), _CHUNK)
            if not chunk:
                self._selector.unregister(pipe)
                self._open_pipes -= 1
                return
            self._received += len(chunk)
            limit = self._request.output_limit
            if limit is not None and self._received > limit:
                chunk = chunk[: max(0, len(chunk) - (self._received - limit))]
                self._flooded = True
            splitter.data_received(chunk)

        return read

    def _feed(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        left = memoryview(self._request.stdin.encode())

        def write() -> None:
            nonlocal left
            try:
                left = left[os.write(pipe.fileno(), left[:_CHUNK]) :]
            except BlockingIOError:
                return
            except OSError:
                # The command does not read its input.
                left = left[:0]
            if not left:
                self._selector.unregister(pipe)
                pipe.close()

        self._selector.register(pipe, selectors.EVENT_WRITE, write)

    # --- end ----------------------------------------------------------------------------------
    def _kill_leftovers(self) -> int:
        """Kills what the command has left behind; returns how many processes. Those that are about
        to exit, such as the first of a pipeline, are waited for."""
        until = time.monotonic() + _EXIT_SECONDS
        while descendants(os.getpid()) and time.monotonic() < until:
            time.sleep(_EXIT_SECONDS / 20)
            self._reap()
        return kill_all()

    def _advance(self) -> None:
        self._reap()
        now = time.monotonic()
        if (self._stop_requested or self._flooded) and self._kill_at is None:
            self._kill_at = now + self._request.kill_after
            self._signal_all(signal.SIGTERM)
            # A stopped process receives the signal when it continues.
            self._signal_all(signal.SIGCONT)
        if self._kill_at is not None and now >= self._kill_at and not self._killed:
            self._killed = True
            self._signal_all(signal.SIGKILL)
            kill_descendants(os.getpid())

    def _reap(self) -> None:
        """Also orphans, which are children of this process now."""
        with suppress(ChildProcessError):
            while (
                found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            ) is not None:
                if found.si_pid == self._process.pid:
                    self._process.poll()
                    self._exited_at = time.monotonic()
                else:
                    os.waitpid(found.si_pid, 0)

    def _signal_all(self, number: signal.Signals) -> None:
        found = descendants(os.getpid())
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if not found and self._process.returncode is None:
            # Without /proc, as on macOS, only the group of the command is known.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _is_over(self) -> bool:
        if self._exited_at is None:
            return False
        if self._kill_at is not None and not self._killed and descendants(os.getpid()):
            # Others have the same time to end as the command itself.
            return False
        return not self._open_pipes or time.monotonic() - self._exited_at > DRAIN_SECONDS

    def _seconds_to_wait(self) -> float | None:
        if self._exited_at is not None or self._flooded:
            return _POLL_SECONDS
        if self._kill_at is None or self._killed:
            return None
        return max(0.0, self._kill_at - time.monotonic())


if __name__ == "__main__":
    main(sys.argv[1:])
