"""Nodes of a torture run: real `chimes serve` processes, none of which outlives the harness."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from pathlib import Path

from chimes.torture.processes import Connection, Process
from chimes.torture.proxy import Proxy

LISTENING = re.compile(rb"http://127\.0\.0\.1:(\d+)/api/v1")
BOOT_SECONDS = 60.0
#: Lease, heartbeat and poll interval of the nodes.
TIMES = {"CHIMES_LEASE": "3s", "CHIMES_HEARTBEAT": "1s", "CHIMES_POLL_INTERVAL": "200ms"}
LEASE = 3.0
#: Exit code of `serve` when it cannot reach its store.
STORE_AWAY = 7


class Node:
    def __init__(
        self,
        index: int,
        store: str,
        directory: Path,
        forks: Connection,
        *,
        proxy: Proxy | None,
        bug: str = "",
    ) -> None:
        self.index = index
        self.proxy = proxy
        self._store = store
        self._directory = directory
        self._forks = forks
        self._bug = bug
        self._process: Process | None = None
        self._log: Path | None = None
        self._starts = 0
        #: 0 while unknown.
        self.port = 0
        #: Exit codes of unexpected exits.
        self.exits: list[int] = []
        #: Held while the node is started or has a fault.
        self.lock = asyncio.Lock()
        #: Whether a failpoint may end it.
        self.armed = False
        #: Pids of processes that were requested to exit.
        self._asked: set[int] = set()
        self._watching: asyncio.Task[int] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, *, failpoints: str = "", clock: float = 0.0) -> None:
        """Starts the process; `ready` waits until it serves."""
        self._starts += 1
        self.port = 0
        self.armed = "kill" in failpoints
        self._log = self._directory / "nodes" / f"{self.index}-{self._starts:03}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "CHIMES_STORE": self._store,
            "CHIMES_PORT": "0",
            "CHIMES_LOG_FORMAT": "json",
            "CHIMES_SHUTDOWN_GRACE": "10s",
            "CHIMES_WORKERS": "25",
            "CHIMES_TEST": "1",
            "CHIMES_FAILPOINTS": failpoints,
            "CHIMES_FAILPOINTS_LOG": str(self._directory / "failpoints"),
            "CHIMES_TEST_CLOCK": str(clock),
            "CHIMES_TORTURE_BUG": self._bug,
            **TIMES,
            # Passwords and certificates of the driver.
            **{name: value for name, value in os.environ.items() if name.startswith("PG")},
        }
        nothing = os.open(os.devnull, os.O_RDWR)
        with self._log.open("wb") as log:
            self._process = Process(
                self._forks,
                ["serve"],
                env=environment,
                cwd=self._directory,
                files=(nothing, nothing, log.fileno()),
                module="chimes.torture.planted_bugs" if self._bug else "chimes.cli",
            )
        os.close(nothing)
        if self.armed:
            self._asked.add(self.pid)
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: Process) -> int:
        code = await process.ended()
        # A node started without its store exits and is restarted.
        waits = code == STORE_AWAY and not self.port
        if process.pid not in self._asked and not waits:
            self.exits.append(code)
        if self._process is process:
            self.port = 0
        return code

    async def ready(self, within: float = BOOT_SECONDS) -> bool:
        """Waits until it serves; False if it has exited."""
        deadline = time.monotonic() + within
        while self.running:
            if self._log is not None and (found := LISTENING.search(self._log.read_bytes())):
                self.port = int(found[1])
                return True
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {self.index} did not come up:\n{self.log_tail()}")
            await asyncio.sleep(0.05)  # the port is only in the log
        return False

    async def exits_within(self, within: float) -> bool:
        """Whether it exits within `within` seconds."""
        try:
            await self._wait_for_exit(within)
        except TimeoutError:
            return False
        return True

    def send(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        self._expect_exit()
        self.send(signal.SIGKILL)
        await self._wait_for_exit(10)

    async def terminate(self, within: float = 30.0) -> int | None:
        """Sends SIGTERM; returns the exit code, or None if it had to be killed."""
        self._expect_exit()
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            return await self._wait_for_exit(within)
        except TimeoutError:
            await self.kill()
            return None

    def _expect_exit(self) -> None:
        if self._process is not None:
            self._asked.add(self.pid)

    async def _wait_for_exit(self, within: float) -> int | None:
        if self._watching is None:
            return None
        async with asyncio.timeout(within):
            return await asyncio.shield(self._watching)

    def log_tail(self) -> str:
        return "" if self._log is None else self._log.read_text(errors="replace")[-2000:]

    def usage(self) -> tuple[float, int] | None:
        """Resident memory in MiB and number of open files."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            files = len(os.listdir(f"/proc/{self.pid}/fd"))
        except (OSError, AssertionError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files
