"""Fixtures: the command line in process (fast) or as a process (exact), and a server."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chimes.cli.command import run
from tests.forking import Forked, run_chimes

#: Starts a new interpreter, which takes a second; `spawn` and `Server` fork instead.
CHIMES = [sys.executable, "-m", "chimes.cli"]
URL = re.compile(r"http://127\.0\.0\.1:\d+")


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of Chimes."""
    names = (
        "PORT",
        "DATA_DIR",
        "WORKERS",
        "LOG_LEVEL",
        "KSANA_DATA",
        "NO_COLOR",
        "TZ",
        "COLUMNS",
        "LINES",
        "LC_MESSAGES",
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CHIMES_") and name not in names
    }
    return kept | {"TZ": "UTC", "LC_ALL": "C.UTF-8"} | more


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


Cli = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process, in a temporary directory, without a terminal."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name not in environment():
            monkeypatch.delenv(name)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    # No server listens on port 1, so commands do not reach a server of another test.
    monkeypatch.setenv("CHIMES_PORT", "1")

    def call(*arguments: str, **variables: str) -> Result:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = run(arguments)
        seen = capsys.readouterr()
        return Result(code, seen.out, seen.err)

    return call


def spawn(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> Result:
    """Runs a command as a process."""
    done = run_chimes(arguments, cwd=cwd, env=environment(**(env or {})), stdin=stdin)
    return Result(done.returncode, done.stdout, done.stderr)


class Server:
    """A real `chimes serve` on a free port."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        port: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        with self.log.open("wb") as stream, open(os.devnull, "r+b") as nothing:
            self.process = Forked(
                ["serve", "--port", str(port), *arguments],
                cwd=directory,
                env=environment(**(env or {})),
                files=(nothing.fileno(), nothing.fileno(), stream.fileno()),
            )
        self.url = self._wait_for_url()

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = self.log.read_text()
            if "Press Ctrl-C" in text and (found := URL.search(text)):
                return found[0]
            assert self.process.poll() is None, text
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server"))
    yield started
    assert started.stop() == 0


class Sink(BaseHTTPRequestHandler):
    """Responds with 200 or the status in its path; `/hold/NAME` waits for `release(NAME)`."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = int(self.path.strip("/")) if self.path.strip("/").isdecimal() else 200
        if self.path.startswith("/hold/"):
            HELD[self.path].wait(30)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


HELD: defaultdict[str, threading.Event] = defaultdict(threading.Event)


def release(path: str) -> None:
    HELD[path].set()


@pytest.fixture(scope="session")
def sink() -> Iterator[str]:
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    thread = threading.Thread(target=receiver.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{receiver.server_address[1]}"
    for held in HELD.values():
        held.set()
    receiver.shutdown()
    receiver.server_close()
    thread.join()
