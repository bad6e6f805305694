"""noop: no-op runs per second, from the queue to the stored result."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from statistics import median

from suite import peers
from suite.bench import Bench
from suite.children import Child
from suite.chimes_tables import ChimesTables, micros
from suite.claim_processes import run_claimers
from suite.nodes import Nodes, call_faults
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, ratio

ROW = "no-op runs"
COUNT, COUNT_LONG = 20_000, 100_000
SLOW_COUNT = 2_000
WATCHED_SECONDS = 5.0
AHEAD = timedelta(seconds=2)
LEAST_TIMES = {peers.PGQUEUER: 2.0, peers.PROCRASTINATE: 50.0}
LEAST_PER_SECOND = 15_000
RAW = "the statements alone"


def measure(bench: Bench) -> list[Line]:
    count = COUNT_LONG if bench.long else COUNT
    tables = ChimesTables(bench.postgres, "noop")
    bare_tables = ChimesTables(bench.postgres, "noop_raw")
    bare = Child(["nodes/raw_worker.py", bare_tables.url])
    bare.receive(60)
    nodes = Nodes(tables, 1)
    total = 0

    def queued(where: ChimesTables, ahead: timedelta) -> datetime:
        """Fills empty tables, as the peers have, and returns when the runs become available."""
        where.empty()
        available = where.now() + ahead
        where.queue(count, available=available, first=total)
        where.sql("ANALYZE runs")
        return available

    def chimes() -> float:
        nonlocal total
        available = queued(tables, AHEAD)
        total += count
        nodes.wait_until_done(available, 180)
        last = int(tables.sql("SELECT max(finished_at) FROM runs"))
        return count / (last - micros(available)) * 1_000_000

    def raw() -> float:
        queued(bare_tables, timedelta())
        done = run_claimers([bare], {})
        if done.count != count:
            raise RuntimeError(f"{done.count:,} of {count:,} were completed")
        return done.rate

    def peer(which: peers.Peer, size: int) -> float:
        return peers.measure_peer(which, bench.postgres, "jobs", size, WATCHED_SECONDS).rate

    try:
        found = interleave(
            bench.rounds,
            {
                "Chimes": chimes,
                RAW: raw,
                peers.PGQUEUER.name: partial(peer, peers.PGQUEUER, count),
                peers.PROCRASTINATE.name: partial(peer, peers.PROCRASTINATE, SLOW_COUNT),
            },
        )
    finally:
        bare.close()
        doubles, missing = call_faults(nodes.close(), total)
    ours = median(found["Chimes"])
    lines = [
        line(
            *(ROW, "Chimes, one process", "runs/s", found["Chimes"]),
            goal=f"≥ {LEAST_PER_SECOND:,}/s",
            met=ours >= LEAST_PER_SECOND,
            how=f"{count:,} queued; from due to the last stored result",
        ),
        line(
            *(ROW, RAW, "runs/s", found[RAW]),
            ratio=ratio(found["Chimes"], found[RAW]),
            how="claim and completion on two connections, nothing executed",
        ),
    ]
    for which, least in LEAST_TIMES.items():
        theirs = median(found[which.name])
        lines.append(
            line(
                *(ROW, f"{which.name}, one process", "runs/s", found[which.name]),
                goal=f"Chimes ≥ {least:g} × this",
                ratio=ours / theirs,
                met=ours >= least * theirs,
                how="from the start to the last stored result",
            )
        )
    return [*lines, faults_line(ROW, Faults(duplicates=doubles, missed=missing))]
