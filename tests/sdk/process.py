"""`chimes worker` and `chimes serve` as real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.forking import Forked

CHIMES = str(Path(sys.executable).with_name("chimes"))
DEADLINE = 60.0
T = TypeVar("T")
_LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)/api/v1")


def _executed(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [CHIMES, *arguments],
        env=env,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


class Worker:
    """A process whose output is collected for assertions and failure messages."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        home: Path,
        environment: Mapping[str, str],
        *,
        executed: bool = False,
    ) -> None:
        """`executed`: started by exec rather than by the fork server, with its own command line."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._lines: list[str] = []
        env = {**kept, **environment}
        self._process: Forked | subprocess.Popen[str] = (_executed if executed else Forked)(
            arguments, env=env, cwd=home
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def ready(self) -> Worker:
        """Waits for the banner."""
        wait_until(lambda: "is running" in self.output or self._ended(), "the banner")
        assert self._process.poll() is None, self.output
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        found = wait_until(lambda: _LISTENING.search(self.output), "the port")
        return int(found[1])

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, within: float = DEADLINE) -> int:
        code = self._process.wait(within)
        self._reader.join(5)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()


Start = Callable[..., Worker]


def wait_until(look: Callable[[], T], what: str, within: float = DEADLINE) -> T:
    """Polls until the result is truthy, because processes send no signal."""
    end = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"waited {within} s for {what}"
        time.sleep(0.05)  # the polling interval
