"""Child processes that are controlled by lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent


class Child:
    """A program of `bench/` that reads commands and answers each with one line of JSON."""

    def __init__(self, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(BENCH)} | dict(environment or {}),
            cwd=BENCH,
        )
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line of its output. An error after the time limit or if the child ends."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0.0, left))
            if not ready:
                raise TimeoutError(f"{self._process.args!r} did not answer within {seconds:.0f} s")
            read = os.read(descriptor, 1 << 16)
            if not read:
                raise RuntimeError(f"{self._process.args!r} ended, code {self._process.wait()}")
            self._rest += read
        found, _, self._rest = self._rest.partition(b"\n")
        decoded: dict[str, Any] = json.loads(found)
        return decoded

    def close(self) -> None:
        stop(self._process)


def stop(process: subprocess.Popen[Any], *, seconds: float = 20.0) -> None:
    """Sends SIGTERM, and SIGKILL after the time limit."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, with a resolution of nanoseconds."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
