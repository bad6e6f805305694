"""footprint: memory and idle CPU of a node with 10 k and 100 k schedules."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from statistics import median

from suite.bench import Bench
from suite.children import cpu_seconds, resident_megabytes
from suite.chimes_tables import ChimesTables
from suite.nodes import Nodes
from suite.report import Line, line

ROW = "footprint"
SIZES = (10_000, 100_000)
FAR = timedelta(days=300)
#: Starting, joining, the first look at everything.
SETTLE_SECONDS = 5.0
WATCHED_SECONDS, WATCHED_LONG_SECONDS = 10.0, 60.0
MOST_MEGABYTES, MOST_MORE, MOST_CPU = 90.0, 5.0, 0.5


def measure(bench: Bench) -> list[Line]:
    seconds = WATCHED_LONG_SECONDS if bench.long else WATCHED_SECONDS
    memory: dict[int, list[float]] = {size: [] for size in SIZES}
    idle: dict[int, list[float]] = {size: [] for size in SIZES}
    nodes: dict[int, Nodes] = {}
    try:
        for size in SIZES:
            tables = ChimesTables(bench.postgres, f"footprint_{size}")
            tables.fill("cron", size, due=tables.now() + FAR)
            tables.settle()
            # The whole node, with its doors, not only a worker.
            nodes[size] = Nodes(tables, 1, verb="serve", workers=100)
        time.sleep(SETTLE_SECONDS)
        for number in range(bench.rounds):
            print(f"  round {number + 1}/{bench.rounds}: idle", file=sys.stderr, flush=True)
            pids = {size: nodes[size].processes[0].pid for size in SIZES}
            before = {size: cpu_seconds(pid) for size, pid in pids.items()}
            time.sleep(seconds / bench.rounds)
            for size, pid in pids.items():
                used = cpu_seconds(pid) - before[size]
                idle[size].append(used / (seconds / bench.rounds) * 100)
                memory[size].append(resident_megabytes(pid))
    finally:
        for each in nodes.values():
            each.close()
    few, many = SIZES
    more = median(memory[many]) - median(memory[few])
    lines = [
        line(
            *(ROW, f"resident, {size:,} schedules", "MB", memory[size]),
            goal=f"< {MOST_MEGABYTES:.0f} MB",
            met=median(memory[size]) < MOST_MEGABYTES,
            how="chimes serve, one process",
        )
        for size in SIZES
    ]
    lines.append(
        line(
            *(ROW, f"more from {few:,} to {many:,}", "MB", [more]),
            goal=f"< {MOST_MORE:.0f} MB",
            met=more < MOST_MORE,
        )
    )
    lines += [
        line(
            *(ROW, f"idle CPU, {size:,} schedules", "%", idle[size]),
            goal=f"< {MOST_CPU} %",
            met=median(idle[size]) < MOST_CPU,
            how=f"of one core, over {seconds:.0f} s",
        )
        for size in SIZES
    ]
    return lines
