"""Example projects as real processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.sdk.conftest import postgres_url as postgres_url

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Seconds, on a busy machine.
LIMIT = 60.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Project:
    """A copy of an example, and the processes that a test starts in it."""

    def __init__(self, name: str, home: Path) -> None:
        self.home = home / name
        shutil.copytree(EXAMPLES / name, self.home)
        self.environment = {
            **{each: os.environ[each] for each in ("PATH", "HOME") if each in os.environ},
            "CHIMES_SECRET_KEY": os.environ["CHIMES_SECRET_KEY"],
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def run(self, *arguments: str) -> str:
        """Runs Python to its end and returns what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.home / f"process-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.home,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append((process, log))
        return process

    @property
    def output(self) -> str:
        return "\n".join(log.read_text(errors="replace") for _process, log in self._started)

    def wait_for(self, url: str) -> httpx2.Response:
        """The first answer of a server that is starting."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                return httpx2.get(url, timeout=LIMIT)
            except httpx2.TransportError:
                alive = all(process.poll() is None for process, _log in self._started)
                assert alive, self.output
                assert time.monotonic() < deadline, self.output
                time.sleep(0.1)

    def stop(self) -> None:
        for process, _log in self._started:
            if process.poll() is None:
                process.terminate()
        for process, _log in self._started:
            try:
                process.wait(LIMIT / 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Callable[[str], Project]]:
    made: list[Project] = []

    def make(name: str) -> Project:
        made.append(Project(name, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.stop()
