"""Nodes as processes: `chimes worker` or `chimes serve` with the no-op application."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from chimes.store.sql.tables import DUE
from suite.children import BENCH, stop
from suite.chimes_tables import ChimesTables, micros

CHIMES = str(Path(sys.executable).with_name("chimes"))
START_SECONDS = 30.0
POLL_SECONDS = 0.25


class Nodes:
    """Nodes that share one store; they report their calls when they stop."""

    def __init__(
        self, tables: ChimesTables, count: int, *, verb: str = "worker", workers: int = 500
    ) -> None:
        self._tables = tables
        self._folder = Path(tempfile.mkdtemp(prefix="chimes-bench-nodes-"))
        self.processes: list[subprocess.Popen[bytes]] = []
        before = tables.count("nodes")
        for number in range(count):
            environment = os.environ | {
                # Empty: nodes keep their bytecode, like an installed package.
                "PYTHONDONTWRITEBYTECODE": "",
                "CHIMES_STORE": tables.url,
                "CHIMES_WORKERS": str(workers),
                "CHIMES_PORT": "0",
                "CHIMES_DATA_DIR": str(self._folder),
                "CHIMES_LOG_LEVEL": "warning",
                "PYTHONPATH": str(BENCH / "nodes"),
                "BENCH_CALLS": str(self._calls_file(number)),
            }
            process = subprocess.Popen(
                [CHIMES, verb, "--app", "noop_app:app"],
                env=environment,
                cwd=BENCH / "nodes",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=(self._folder / f"log-{number}").open("wb"),
            )
            self.processes.append(process)
        try:
            self._await_joined(before + count)
        except BaseException:
            self.close()
            raise

    def wait_until_done(self, since: datetime, seconds: float) -> None:
        """Waits until nothing that was due at `since` is left. Polls after that time only, through
        indexes and one connection, to take little CPU from the nodes."""
        unfinished = (
            f"SELECT coalesce((SELECT min(next_run_at) FROM cursors WHERE {DUE})"
            f" <= {micros(since)}, false)"
            " OR EXISTS (SELECT 1 FROM queue) OR EXISTS (SELECT 1 FROM claims)"
        )
        deadline = time.monotonic() + seconds
        with self._tables.psql_session() as psql:
            late = psql.query(
                "SET enable_seqscan = off;"
                f" SELECT extract(epoch FROM clock_timestamp()) - {since.timestamp()!r}"
            )
            time.sleep(max(0.0, POLL_SECONDS - float(late)))
            while psql.query(unfinished) == "t":
                self._check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the nodes did not finish within {seconds:.0f} s")
                time.sleep(POLL_SECONDS)

    def close(self) -> list[tuple[int, float]]:
        """Stops the nodes and returns every call of the task as (number, moment)."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            stop(process, seconds=40)
        calls: list[tuple[int, float]] = []
        for number in range(len(self.processes)):
            if self._calls_file(number).exists():
                lines = self._calls_file(number).read_text(encoding="ascii").splitlines()
                calls += [(int(n), float(at)) for n, at in (each.split() for each in lines)]
        shutil.rmtree(self._folder, ignore_errors=True)
        return calls

    def _calls_file(self, number: int) -> Path:
        return self._folder / f"calls-{number}"

    def _await_joined(self, wanted: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self._tables.count("nodes") < wanted:
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the nodes did not join within {START_SECONDS:.0f} s")
            time.sleep(0.1)

    def _check(self) -> None:
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                log = (self._folder / f"log-{number}").read_text(errors="replace")
                raise RuntimeError(f"a node exited with {process.returncode}:\n{log[-2000:]}")


def call_faults(calls: Sequence[tuple[int, float]], wanted: int) -> tuple[int, int]:
    """(duplicates, missing) where each of `wanted` numbers should have been called once."""
    distinct = len({number for number, _ in calls})
    return len(calls) - distinct, wanted - distinct
