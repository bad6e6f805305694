"""size: cost of a claim with 10 k, 100 k and 1 M schedules in the table."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from suite.bench import Bench
from suite.chimes_tables import ChimesTables
from suite.claim_processes import run_claimers, start_claimers
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, ratio

ROW = "table size"
SIZES = (10_000, 100_000, 1_000_000)
DUE = 1_000
BATCH = 500
MOST_TIMES = 1.3
FAR = timedelta(days=300)


class Sized:
    def __init__(self, bench: Bench, size: int) -> None:
        self.tables = ChimesTables(bench.postgres, f"size_{size}")
        self.tables.fill("every", size, due=self.tables.now() + FAR)
        self.tables.settle()
        self.children = start_claimers("nodes/claimer.py", self.tables.url, 1, 1)
        self.faults = Faults()
        self._size = size
        self._turn = 0

    def claim(self) -> float:
        """Makes the next 1,000 schedules due and claims them; returns milliseconds."""
        first = self._turn * DUE % self._size
        self._turn += 1
        self.tables.empty_runs()
        self.tables.make_due(DUE, first=first)
        claimed = run_claimers(self.children, {"limit": BATCH, "stores": 1})
        self.faults += self.tables.faults(DUE, first=first)
        return claimed.seconds * 1000


def measure(bench: Bench) -> list[Line]:
    sites = {size: Sized(bench, size) for size in SIZES}
    try:
        # The first claim of a process compiles its statements.
        for each in sites.values():
            each.claim()
        found = interleave(
            bench.rounds * 3,
            {f"{size:,} schedules": partial(each.claim) for size, each in sites.items()},
        )
    finally:
        for each in sites.values():
            for child in each.children:
                child.close()
    smallest = found[f"{SIZES[0]:,} schedules"]
    lines = []
    for size in SIZES:
        name = f"{size:,} schedules"
        share = ratio(found[name], smallest)
        goal = f"≤ {MOST_TIMES} × that of {SIZES[0]:,}" if size == SIZES[-1] else ""
        lines.append(
            line(
                *(ROW, f"{DUE:,} due of {name}", "ms", found[name]),
                goal=goal,
                ratio=share,
                met=share <= MOST_TIMES if goal else None,
                how=f"one node, batch {BATCH}",
            )
        )
    faults = sum((each.faults for each in sites.values()), Faults())
    return [*lines, faults_line(ROW, faults)]
