"""One database server of the tests: start, kill, pause and restart it."""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from tests.servers.kinds import HOST, Kind, Row
from tests.servers.places import DataDirectory

T = TypeVar("T")

START_SECONDS = 120.0
RETRY_SECONDS = 20.0
STOP_SECONDS = 60.0
#: Linux gives clients ports from 32768 on.
PORTS = (12000, 32000)


class ServerDied(Exception):
    """The server exited; the message has the end of its log."""


class Server:
    """Usable from sync and async tests; its methods block for a few seconds at most."""

    def __init__(self, kind: Kind, port: int, pid: int) -> None:
        self.kind = kind
        self.port = port
        self.pid = pid

    @property
    def url(self) -> str:
        """The URL without a database; see `new_database`."""
        return self.kind.url(self.port, "")

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"chimes_{secrets.token_hex(6)}"
        wait_for(self.kind.create_database(self.port, name))
        return self.kind.url(self.port, name)

    def drop_database(self, url: str) -> None:
        wait_for(self.kind.drop_database(self.port, url.rsplit("/", 1)[1]))

    def admin(self, *statements: str) -> list[Row]:
        """Executes statements as superuser and returns the rows of the last."""
        return wait_for(self.kind.admin(self.port, statements))


class PrivateServer(Server):
    """A server that ends with this process at the latest."""

    def __init__(self, kind: Kind, *, durable: bool, settings: dict[str, str]) -> None:
        super().__init__(kind, free_port(), 0)
        self.durable = durable
        self.settings = settings
        user = kind.system_user if os.geteuid() == 0 else None
        self._as_user = (
            ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        )
        self._place = DataDirectory(in_memory=not durable, user=user)
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)
        try:
            kind.set_up(self._place.path, self._as_user)
            self._launch(first=True)
            wait_for(kind.prepare(self.port))
        except BaseException:
            self.stop()
            raise

    @property
    def log(self) -> Path:
        return self._place.path / "log"

    def stop(self) -> None:
        """Shuts it down, if it runs, and removes its data."""
        atexit.unregister(self.stop)
        try:
            self._end(self.kind.stop_signal)
        finally:
            self._place.remove()

    def kill9(self) -> None:
        """Like a power cut, except that the kernel still writes its buffers."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """Shuts it down and keeps the data for `restart`."""
        self._end(self.kind.stop_signal)

    def restart(self, mode: Literal["fast", "crash"] = "fast") -> None:
        """Restarts it on the same port and data and returns when it answers. If it does not run, it
        is only started."""
        self._end(self.kind.stop_signal if mode == "fast" else signal.SIGKILL)
        self._launch()

    def pause(self) -> None:
        """Suspends the server: connections stay open without answers."""
        self._signal_all(signal.SIGSTOP)
        # `kill` returns before the signal arrives, and until then the server may answer.
        deadline = time.monotonic() + STOP_SECONDS
        while not all(map(_is_suspended, (self.pid, *_children(self.pid)))):
            assert time.monotonic() < deadline, "the server was not suspended"
            time.sleep(0.01)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, *, first: bool = False) -> None:
        """Retries for a while: another process may have taken the port before the first start, and
        the children of a killed server may still hold its memory."""
        begun = time.monotonic()
        while True:
            self._process = _spawner().submit(self._spawn).result()
            self.pid = self._process.pid
            try:
                self._wait_until_it_answers(begun + START_SECONDS)
            except ServerDied:
                if time.monotonic() > begun + RETRY_SECONDS:
                    raise
                if first:
                    self.port = free_port()
                time.sleep(0.2)  # the exit of the last child gives no signal
            else:
                return

    def _spawn(self) -> subprocess.Popen[bytes]:
        # The last step before exec, because a change of user resets it.
        orphan = ["setpriv", f"--pdeathsig={self.kind.orphan_signal.name.removeprefix('SIG')}"]
        command = self.kind.command(self._place.path, self.port, self.durable, self.settings)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self._as_user, *orphan, *command],
                cwd=self._place.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_it_answers(self, deadline: float) -> None:
        question = "PING" if self.kind.name == "redis" else "SELECT 1"
        while True:
            try:
                self.admin(question)
            except Exception as error:
                assert self._process is not None
                if self._process.poll() is not None:
                    raise ServerDied(self._log_tail()) from error
                if time.monotonic() > deadline:
                    raise TimeoutError(self._log_tail()) from error
                time.sleep(0.05)  # the server gives no signal when it listens
            else:
                assert self._process is not None
                if self._process.poll() is not None:
                    raise ServerDied(f"another server answers on port {self.port}")
                return

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid)
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        for child in children:
            wait_for_exit(child, STOP_SECONDS)

    def _signal_all(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        for child in _children(self.pid):
            try:
                os.kill(child, number)
            except ProcessLookupError:
                continue


def start(
    kind: Kind, *, durable: bool = False, settings: dict[str, str] | None = None
) -> PrivateServer:
    return PrivateServer(kind, durable=durable, settings=settings or {})


def wait_for_exit(pid: int, seconds: float) -> bool:
    """Waits until a process, of any parent, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def wait_for(answer: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also while an event loop runs in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer).result()


@cache
def _spawner() -> ThreadPoolExecutor:
    """A thread that lives as long as this process. The kernel sends the parent-death signal when
    the thread that started a process ends, and that would end the server."""
    return ThreadPoolExecutor(1, thread_name_prefix="servers")


def _is_suspended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TtZX"


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(after_name[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def free_port() -> int:
    """A free port that no connection takes by chance: outside the range from which the kernel gives
    ports to clients. Servers keep their port while they are restarted."""
    while True:
        port = PORTS[0] + secrets.randbelow(PORTS[1] - PORTS[0])
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
