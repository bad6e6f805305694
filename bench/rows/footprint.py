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
#: A node with and without the HTTP server.
VERBS = ("serve", "worker")
Which = tuple[str, int]
Samples = dict[Which, list[float]]
ALL: tuple[Which, ...] = tuple((verb, size) for verb in VERBS for size in SIZES)
FAR = timedelta(days=300)
#: Start, join and first poll.
SETTLE_SECONDS = 5.0
WATCHED_SECONDS, WATCHED_LONG_SECONDS = 10.0, 60.0
MOST_MEGABYTES = {"serve": 80.0, "worker": 65.0}
MOST_MORE, MOST_CPU = 5.0, 0.5


def measure(bench: Bench) -> list[Line]:
    seconds = WATCHED_LONG_SECONDS if bench.long else WATCHED_SECONDS
    memory: dict[Which, list[float]] = {which: [] for which in ALL}
    idle: dict[Which, list[float]] = {which: [] for which in ALL}
    nodes: dict[Which, Nodes] = {}
    try:
        for size in SIZES:
            tables = ChimesTables(bench.postgres, f"footprint_{size}")
            tables.fill("cron", size, due=tables.now() + FAR)
            tables.settle()
            if not nodes:
                # Compiles what has no bytecode yet, which takes 5 MB that later starts do not.
                Nodes(tables, 1, verb="serve").close()
            for verb in VERBS:
                nodes[verb, size] = Nodes(tables, 1, verb=verb, workers=100)
        time.sleep(SETTLE_SECONDS)
        for number in range(bench.rounds):
            print(f"  round {number + 1}/{bench.rounds}: idle", file=sys.stderr, flush=True)
            pids = {which: each.processes[0].pid for which, each in nodes.items()}
            before = {which: cpu_seconds(pid) for which, pid in pids.items()}
            time.sleep(seconds / bench.rounds)
            for which, pid in pids.items():
                used = cpu_seconds(pid) - before[which]
                idle[which].append(used / (seconds / bench.rounds) * 100)
                memory[which].append(resident_megabytes(pid))
    finally:
        for each in nodes.values():
            each.close()
    return _lines(memory, idle, f"of one core, over {seconds:.0f} s")


def _lines(memory: Samples, idle: Samples, how: str) -> list[Line]:
    lines = []
    for verb, size in ALL:
        found, most = memory[verb, size], MOST_MEGABYTES[verb]
        lines.append(
            line(
                *(ROW, f"chimes {verb}, {size:,} schedules, resident", "MB", found),
                goal=f"< {most:.0f} MB",
                met=median(found) < most,
            )
        )
    few, many = SIZES
    for verb in VERBS:
        more = median(memory[verb, many]) - median(memory[verb, few])
        lines.append(
            line(
                *(ROW, f"chimes {verb}, more from {few:,} to {many:,}", "MB", [more]),
                goal=f"< {MOST_MORE:.0f} MB",
                met=more < MOST_MORE,
            )
        )
    for verb, size in ALL:
        found = idle[verb, size]
        lines.append(
            line(
                *(ROW, f"chimes {verb}, {size:,} schedules, idle CPU", "%", found),
                goal=f"< {MOST_CPU} %",
                met=median(found) < MOST_CPU,
                how=how,
            )
        )
    return lines
