"""Steady load: jobs offered at a fixed rate by one process and executed by another.

A job counts as offered at the time of its batch, also if the offering process was late, so a
program that slows down the insertion of its jobs gains nothing by that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.children import BENCH, stop
from suite.chimes_tables import ChimesTables
from suite.nodes import Nodes
from suite.peers import Peer, PeerError, peer_python
from suite.postgres import Postgres
from suite.rounds import percentile

RATE = 2_000
SECONDS, SECONDS_LONG = 60.0, 300.0
#: The harness of the peers and `nodes/producer.py` add a batch this often.
BATCH_SECONDS = 0.05
#: Between the start of the offering process and the first batch.
AHEAD_SECONDS = 3.0
#: After the last batch; what has not been executed by then is missed.
DRAIN_SECONDS = 60.0
#: The first and the last fifth are compared.
SHARE = 0.2
TABLES = ("queue", "claims", "cursors", "runs")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time."""

    #: Executed per second.
    rate: float
    #: Lateness p99 of the jobs offered in this part, in milliseconds.
    p99: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    first: Part
    last: Part
    duplicates: int
    missed: int
    #: Dead row versions at the end, by table; of peers the sum over all tables.
    dead: dict[str, int]


def offered_count(seconds: float) -> int:
    return round(RATE * seconds)


def measure_chimes(postgres: Postgres, seconds: float, *, pinned: bool) -> LoadResult:
    tables = ChimesTables(postgres, "load")
    count = offered_count(seconds)
    nodes = Nodes(tables, 1)
    try:
        with _pin(postgres, "load", pinned):
            begin = time.time() + AHEAD_SECONDS
            arguments = [tables.url, str(count), str(seconds), repr(begin)]
            producer = subprocess.Popen(
                [sys.executable, str(BENCH / "nodes" / "producer.py"), *arguments],
                env=os.environ | {"PYTHONPATH": str(BENCH)},
                cwd=BENCH,
            )
            _wait(producer, seconds)
            with contextlib.suppress(TimeoutError):
                nodes.wait_until_done(tables.now(), DRAIN_SECONDS)
            # Statistics are reported with a delay of up to a second.
            time.sleep(2)
            dead = tables.dead_rows(TABLES)
    finally:
        calls = nodes.close()
    return _result(calls, count, begin, seconds, dead)


def measure_peer(peer: Peer, postgres: Postgres, seconds: float, *, pinned: bool) -> LoadResult:
    url = postgres.fresh_database("peer")
    count = offered_count(seconds)
    script = [str(peer_python(peer)), str(BENCH / "peers" / peer.script)]
    with tempfile.TemporaryDirectory(prefix="chimes-bench-load-") as folder:
        path = Path(folder) / "calls"
        limit = seconds + AHEAD_SECONDS + DRAIN_SECONDS
        worker = subprocess.Popen(
            [*script, "work", url, str(count), str(limit)],
            env=os.environ | {"BENCH_CALLS": str(path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                raise PeerError(f"{peer.name} did not start")
            with _pin(postgres, "peer", pinned):
                begin = time.time() + AHEAD_SECONDS
                arguments = ["offer", url, str(count), str(seconds), "--begin", repr(begin)]
                _wait(subprocess.Popen([*script, *arguments]), seconds)
                worker.wait(DRAIN_SECONDS * 2)
                time.sleep(2)
                dead = postgres.sql("SELECT sum(n_dead_tup) FROM pg_stat_user_tables", "peer")
        finally:
            stop(worker)
        lines = path.read_text(encoding="ascii").splitlines()
    calls = [(int(number), float(at)) for number, at in (each.split() for each in lines)]
    return _result(calls, count, begin, seconds, {"all tables": int(dead)})


@contextlib.contextmanager
def _pin(postgres: Postgres, database: str, pinned: bool) -> Iterator[None]:
    """Holds a transaction open whose snapshot keeps vacuum from removing dead rows."""
    if not pinned:
        yield
        return
    with postgres.psql_session(database) as psql:
        psql.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        yield
        psql.query("SELECT count(*) FROM pg_class; COMMIT")


def _wait(producer: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        if producer.wait(seconds + AHEAD_SECONDS + DRAIN_SECONDS):
            raise RuntimeError(f"{producer.args!r} exited with {producer.returncode}")
    finally:
        stop(producer)


def _result(
    calls: Sequence[tuple[int, float]],
    count: int,
    begin: float,
    seconds: float,
    dead: dict[str, int],
) -> LoadResult:
    size = count // round(seconds / BATCH_SECONDS)
    first_calls = dict(reversed(calls))

    def part(start: float, end: float) -> Part:
        executed = sum(start <= moment - begin < end for _, moment in calls)
        numbers = range(round(start / BATCH_SECONDS) * size, round(end / BATCH_SECONDS) * size)
        lateness = [
            # What was not executed is as late as could be observed.
            first_calls.get(number, begin + seconds + DRAIN_SECONDS)
            - (begin + number // size * BATCH_SECONDS)
            for number in numbers
        ]
        return Part(executed / (end - start), percentile(lateness, 0.99) * 1000)

    distinct = len(first_calls)
    return LoadResult(
        first=part(0.0, seconds * SHARE),
        last=part(seconds * (1 - SHARE), seconds),
        duplicates=len(calls) - distinct,
        missed=count - distinct,
        dead=dead,
    )
