"""sqlite: 10,000 HTTP callbacks due at one instant on SQLite, compared with the bare client.

A node fires the schedules, calls the receiver and stores the results in one file; the bare client
only sends the same requests to the same receiver."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from suite.bench import Bench
from suite.children import BENCH, cpu_seconds, stop
from suite.chimes_tables import micros, open_store
from suite.nodes import CHIMES
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, ratio
from suite.sqlite_tables import fill_schedules

from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.sql.tables import DUE
from chimes.triggers import Every
from rows.http import BARE, BODY, IN_FLIGHT, bare_rates, serve

ROW = "SQLite"
COUNT = 10_000
LEAST = 0.9
#: Permits of the worker, as in the row `noop`: the more, the larger the batches of the store.
WORKERS = 500
AHEAD = timedelta(seconds=8)
LIMIT_SECONDS = 120.0
POLL_SECONDS = 0.25
STORED, CALLED = "Chimes, to the last stored result", "Chimes, to the end of the last call"
CPU = "CPU time of the node per callback"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Site:
    """A `chimes worker` with its file."""

    def __init__(self, folder: Path, url: str) -> None:
        self.faults = Faults()
        #: Calls per second to the end of the last call, per round.
        self.called: list[float] = []
        #: Microseconds of the node's CPU time per call, per round.
        self.cpu: list[float] = []
        self._path = folder / "chimes.db"
        asyncio.run(_create(self._path))
        fill_schedules(self._path, [_schedule(number, url) for number in range(COUNT)])
        self._log = folder / "log"
        self._process = subprocess.Popen(
            [CHIMES, "worker", "--app", "noop_app:app", "--workers", str(WORKERS)],
            env=os.environ
            | {
                "CHIMES_STORE": f"sqlite:///{self._path}",
                "CHIMES_DATA_DIR": str(folder),
                "CHIMES_LOG_LEVEL": "warning",
                "PYTHONPATH": str(BENCH / "nodes"),
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log.open("wb"),
        )

    def fire(self) -> float:
        """Makes all schedules due at one instant; returns calls per second."""
        due = (datetime.now(UTC) + AHEAD).replace(microsecond=0)
        moment = micros(due)
        connection = sqlite3.connect(self._path, timeout=30.0)
        try:
            with connection:
                connection.execute(
                    "UPDATE cursors SET next_slot = ?, next_run_at = ?", [moment] * 2
                )
            time.sleep(AHEAD.total_seconds())
            before = cpu_seconds(self._process.pid)
            self._wait(connection, moment)
            self.cpu.append((cpu_seconds(self._process.pid) - before) / COUNT * 1_000_000)
            every, good, stored, called = connection.execute(
                "SELECT count(*), count(DISTINCT CASE status WHEN 'succeeded' THEN schedule END),"
                " max(finished_at), max(attempt_finished_at) FROM runs WHERE slot = ?",
                [moment],
            ).fetchone()
        finally:
            connection.close()
        self.faults += Faults(duplicates=max(0, every - COUNT), missed=COUNT - good)
        self.called.append(COUNT / (called - moment) * 1_000_000)
        return COUNT / (int(stored) - moment) * 1_000_000

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        stop(self._process, seconds=40)

    def _wait(self, connection: sqlite3.Connection, moment: int) -> None:
        unfinished = (
            f"SELECT EXISTS (SELECT 1 FROM cursors WHERE {DUE} AND next_run_at <= {moment})"
            " OR EXISTS (SELECT 1 FROM queue) OR EXISTS (SELECT 1 FROM claims)"
        )
        deadline = time.monotonic() + LIMIT_SECONDS
        while connection.execute(unfinished).fetchone()[0]:
            if self._process.poll() is not None:
                text = self._log.read_text(errors="replace")
                raise RuntimeError(f"the node exited:\n{text[-2000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the node did not finish within {LIMIT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)


async def _create(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    await store.open()
    await store.close()


def _schedule(number: int, url: str) -> Schedule:
    return Schedule(
        id=ScheduleId(f"0193b2c4-0000-7000-8000-{number:012d}"),
        name=f"bench {number}",
        trigger=Every("1h", anchor=LONG_AGO),
        target=HttpTarget(url=url, body=BODY),
        created_at=LONG_AGO,
        updated_at=LONG_AGO,
    )


def measure(bench: Bench) -> list[Line]:
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    receiver.start()
    url = f"http://127.0.0.1:{ours.recv()}/hook"
    try:
        with tempfile.TemporaryDirectory(prefix="chimes-bench-sqlite-") as folder:
            site = Site(Path(folder), url)
            bare_cpu: list[float] = []

            def bare() -> float:
                found, by_cpu = asyncio.run(bare_rates(url, COUNT, IN_FLIGHT))
                bare_cpu.append(1_000_000 / by_cpu)
                return found

            contestants: dict[str, Callable[[], float]] = {BARE: bare, STORED: site.fire}
            try:
                found = interleave(bench.rounds, contestants)
            finally:
                site.close()
    finally:
        receiver.terminate()
        receiver.join()
    share = ratio(found[STORED], found[BARE])
    return [
        line(ROW, BARE, "calls/s", found[BARE], how=f"{COUNT:,} calls, {IN_FLIGHT} in flight"),
        line(
            *(ROW, STORED, "calls/s", found[STORED]),
            goal=f"≥ {LEAST} × the bare client",
            ratio=share,
            met=share >= LEAST,
            how=f"{COUNT:,} schedules due at one instant, one worker",
        ),
        line(ROW, CALLED, "calls/s", site.called, ratio=ratio(site.called, found[BARE])),
        line(ROW, CPU, "µs", site.cpu, how=f"the bare client {median(bare_cpu):.0f} µs"),
        faults_line(ROW, site.faults),
    ]
