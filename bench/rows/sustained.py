"""sustained: 2,000 no-op runs offered per second, the first fifth of the time beside the last."""

from __future__ import annotations

import sys
from functools import partial

from suite import load, peers
from suite.bench import Bench
from suite.load import LoadResult
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave

CHIMES = "Chimes"
#: The end compared with the start: throughput at least this much of it, lateness at most its
#: reciprocal.
LEAST = 0.5
#: For each run one dead row in `queue`, one in `claims` and one in `runs`.
MOST_DEAD = 3.0


def measure(bench: Bench) -> list[Line]:
    return measure_load(bench, "sustained", pinned=False)


def measure_load(bench: Bench, row: str, *, pinned: bool) -> list[Line]:
    """Once, whatever the number of rounds: the end is compared with the start of the same run."""
    seconds = load.SECONDS_LONG if bench.long else load.SECONDS
    contestants = {CHIMES: partial(load.measure_chimes, bench.postgres, seconds, pinned=pinned)}
    for peer in (peers.PGQUEUER, peers.AWA):
        contestants[peer.name] = partial(
            load.measure_peer, peer, bench.postgres, seconds, pinned=pinned
        )
    found = interleave(1, contestants)
    lines: list[Line] = []
    for name, (result,) in found.items():
        lines += _lines(row, name, result, seconds)
        print(f"  {name}: dead rows {result.dead}", file=sys.stderr, flush=True)
    ours = found[CHIMES][0]
    faults = Faults(duplicates=ours.duplicates, missed=ours.missed)
    return [*lines, faults_line(row, faults)]


def _lines(row: str, name: str, result: LoadResult, seconds: float) -> list[Line]:
    first, last = result.first, result.last
    count = load.offered_count(seconds)
    times, later = last.rate / first.rate, last.p99 / first.p99
    dead = sum(result.dead.values()) / count
    own = name == CHIMES
    how = f"{load.RATE:,}/s offered for {seconds:.0f} s"
    if not own and (result.missed or result.duplicates):
        how += f"; {result.missed:,} not executed, {result.duplicates:,} twice"
    return [
        line(row, f"{name}, first fifth", "runs/s", [first.rate], how=how),
        line(
            *(row, f"{name}, last fifth", "runs/s", [last.rate]),
            goal=f"≥ {LEAST} × the first" if own else "",
            ratio=times,
            met=times >= LEAST if own else None,
        ),
        line(row, f"{name}, first fifth, lateness p99", "ms", [first.p99]),
        line(
            *(row, f"{name}, last fifth, lateness p99", "ms", [last.p99]),
            goal=f"≤ {1 / LEAST:g} × the first" if own else "",
            ratio=later,
            met=later <= 1 / LEAST if own else None,
        ),
        line(
            *(row, f"{name}, dead rows at the end", "per run", [dead]),
            goal=f"≤ {MOST_DEAD:g}" if own else "",
            met=dead <= MOST_DEAD if own else None,
            how=", ".join(f"{table} {number:,}" for table, number in sorted(result.dead.items())),
        ),
    ]
