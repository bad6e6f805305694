"""noop: no-op runs per second, from the queue to the stored result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

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
#: The goal beside each peer, and what is aimed for.
LEAST_TIMES: dict[peers.Peer, tuple[float, ...]] = {
    peers.PGQUEUER: (1.5, 2.0),
    peers.PROCRASTINATE: (40.0,),
    peers.AWA: (),
}
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
        where.analyze()
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

    contestants: dict[str, Callable[[], float]] = {
        "Chimes": chimes,
        RAW: raw,
        peers.PGQUEUER.name: partial(peer, peers.PGQUEUER, count),
        peers.AWA.name: partial(peer, peers.AWA, count),
        peers.PROCRASTINATE.name: partial(peer, peers.PROCRASTINATE, SLOW_COUNT),
    }
    try:
        found = interleave(bench.rounds, contestants)
    finally:
        bare.close()
        doubles, missing = call_faults(nodes.close(), total)
    lines = [
        line(
            *(ROW, "Chimes, one process", "runs/s", found["Chimes"]),
            how=f"{count:,} queued; from due to the last stored result",
        ),
        line(
            *(ROW, RAW, "runs/s", found[RAW]),
            ratio=ratio(found["Chimes"], found[RAW]),
            how="claim and completion on two connections, nothing executed",
        ),
    ]
    for which, goals in LEAST_TIMES.items():
        times = ratio(found["Chimes"], found[which.name])
        columns = (ROW, f"{which.name}, one process", "runs/s", found[which.name])
        how = "from the start to the last stored result"
        if not goals:
            lines.append(line(*columns, ratio=times, how=how))
        for least, kind in zip(goals, ("goal", "stretch goal"), strict=False):
            lines.append(
                line(
                    *columns,
                    goal=f"Chimes ≥ {least:g} × this ({kind})",
                    ratio=times,
                    met=times >= least,
                    how=how,
                )
            )
    return [*lines, faults_line(ROW, Faults(duplicates=doubles, missed=missing))]
