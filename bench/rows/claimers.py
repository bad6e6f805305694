"""claimers: 50 concurrent claimers and 1,000 due schedules.

Measured as 50 stores that each claim for themselves, and as Chimes runs 50 workers: two nodes with
one claim loop each, which distributes the runs in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median

from suite.bench import Bench
from suite.chimes_tables import ChimesTables
from suite.claim_processes import ClaimResult, run_claimers, start_claimers
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, percentile, ratio

ROW = "50 claimers"
PROCESSES = 2
EACH = 25
DUE = 1000
BATCH = 20
NODE_BATCH = 250
GOAL_MS, STRETCH_GOAL_MS = 100.0, 40.0

BARE, STORES, NODES = "bare statement", "50 claiming stores", "50 workers on 2 nodes"
HOW = {
    BARE: f"{EACH} connections in each of {PROCESSES} processes, batch {BATCH}",
    STORES: f"{EACH} stores in each of {PROCESSES} processes, batch {BATCH}",
    NODES: f"one claim loop in each of {PROCESSES} processes, batch {NODE_BATCH}",
}


@dataclass(frozen=True, slots=True)
class Sample:
    p99: float
    rate: float


def _sample(claimed: ClaimResult) -> Sample:
    return Sample(percentile(claimed.waits(), 0.99) * 1000, claimed.rate)


def measure(bench: Bench) -> list[Line]:
    tables = ChimesTables(bench.postgres, "claimers")
    stores = start_claimers("nodes/claimer.py", tables.url, EACH, PROCESSES)
    raw = start_claimers("nodes/raw_claimer.py", tables.url, EACH, PROCESSES)
    faults = Faults()

    def make_due() -> None:
        tables.empty()
        tables.fill("every", DUE, due=tables.now() - timedelta(milliseconds=1))
        tables.settle()

    def chimes(each: int, limit: int) -> Sample:
        nonlocal faults
        make_due()
        claimed = run_claimers(stores, {"limit": limit, "stores": each})
        faults += tables.faults(DUE)
        return _sample(claimed)

    def statement() -> Sample:
        make_due()
        return _sample(run_claimers(raw, {"statement": tables.raw_statement(BATCH)}))

    contestants: dict[str, Callable[[], Sample]] = {
        BARE: statement,
        STORES: partial(chimes, EACH, BATCH),
        NODES: partial(chimes, 1, NODE_BATCH),
    }
    try:
        # A round is short: three times as many give a stable median.
        found = interleave(bench.rounds * 3, contestants)
    finally:
        for child in stores + raw:
            child.close()
    return [*_lines(found), faults_line(ROW, faults)]


def _lines(found: dict[str, list[Sample]]) -> list[Line]:
    waits = {name: [sample.p99 for sample in samples] for name, samples in found.items()}
    rates = {name: [sample.rate for sample in samples] for name, samples in found.items()}
    lines = []
    for name, how in HOW.items():
        bare = name == BARE
        p99 = f"{name}, p99 until committed"
        share = None if bare else ratio(waits[name], waits[BARE])
        if bare:
            lines.append(line(ROW, p99, "ms", waits[name], how=how))
        for most, kind in () if bare else ((GOAL_MS, "goal"), (STRETCH_GOAL_MS, "stretch goal")):
            goal, met = f"< {most:.0f} ms ({kind})", median(waits[name]) < most
            columns = (ROW, p99, "ms", waits[name])
            lines.append(line(*columns, goal=goal, ratio=share, met=met, how=how))
        share = None if bare else ratio(rates[name], rates[BARE])
        lines.append(line(ROW, name, "claims/s", rates[name], ratio=share))
    return lines
