"""`chimes serve` as a real process, driven over HTTP and by signals."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.forking import Forked

CHIMES = str(Path(sys.executable).with_name("chimes"))
#: Generous: many processes may start at once on two cores.
DEADLINE = 60.0
KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH")
T = TypeVar("T")
_LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)/api/v1")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Node:
    """One process on a free port; its output is kept for failure messages."""

    #: Whose `main` it runs.
    module = "chimes.cli"

    def __init__(self, store: str, home: Path, **environment: str) -> None:
        self._store = store
        self._home = home
        self._environment = environment
        self._process: Forked | None = None
        self._lines: list[str] = []
        self._reader: threading.Thread | None = None
        self.port = 0

    def start(self) -> Node:
        self._home.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment = kept | {"CHIMES_STORE": self._store, "CHIMES_PORT": "0"} | self._environment
        self._lines = []
        self._process = Forked(["serve"], env=environment, cwd=self._home, module=self.module)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        found = wait_until(
            lambda: _LISTENING.search(self.output) or self._hit_failpoint() or self._exited(),
            "the banner",
        )
        assert not isinstance(found, str), found
        if not isinstance(found, bool):
            self.port = int(found[1])
            wait_until(lambda: self.try_get("/ready", 2.0) or self._hit_failpoint(), "readiness")
        return self

    def _hit_failpoint(self) -> bool:
        """Whether a failpoint has ended or stopped it before it was ready."""
        return "CHIMES_FAILPOINTS" in self._environment and (bool(self._exited()) or self.suspended)

    @property
    def suspended(self) -> bool:
        """Whether the process is stopped."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._lines.append(line)

    def _exited(self) -> str:
        assert self._process is not None
        code = self._process.poll()
        return "" if code is None else f"exited with {code}:\n{self.output}"

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL and waits for the exit."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self, within: float = DEADLINE) -> int:
        assert self._process is not None
        code = self._process.wait(within)
        assert self._reader is not None
        self._reader.join(5)
        return code

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self.wait()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        within: float = DEADLINE,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=data,
            method=method,
            headers=({"Content-Type": "application/json"} if data is not None else {})
            | (headers or {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=within) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read().decode())

    def try_get(self, path: str, within: float = DEADLINE) -> Answer | None:
        try:
            answer = self.call("GET", path, within=within)
        except OSError:
            return None
        return answer if answer.status == 200 else None

    def get(self, path: str) -> Any:
        answer = self.call("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def create(self, **given: Any) -> dict[str, Any]:
        answer = self.call("POST", "/api/v1/schedules", given)
        assert answer.status == 201, answer
        found: dict[str, Any] = answer.json
        return found

    def runs(self, schedule_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/api/v1/schedules/{schedule_id}/runs?limit=200")[
            "items"
        ]
        return found

    def ended(self, schedule_id: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until this many runs of the schedule have ended; newest first."""

        def look() -> list[dict[str, Any]]:
            done = [r for r in self.runs(schedule_id) if r["status"] not in ("queued", "running")]
            return done if len(done) >= count else []

        return wait_until(look, f"{count} ended runs of {schedule_id}")


def wait_until(look: Callable[[], T], what: str, within: float = DEADLINE) -> T:
    """Polls `look` until it is truthy: other processes send no signal."""
    end = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"waited {within} s for {what}"
        time.sleep(0.05)
