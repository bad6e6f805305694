"""claimers: 50 concurrent claimers and 1,000 due schedules (R2.31)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from suite.bench import Bench
from suite.chimes_tables import ChimesTables
from suite.claiming import Claimed, started, together
from suite.report import Faults, Line, faultless, line
from suite.rounds import interleaved, percentile, ratio

ROW = "50 claimers"
PROCESSES = 2
EACH = 25
DUE = 1000
BATCH = 20
SEED_MS, GOAL_MS = 100.0, 40.0


@dataclass(frozen=True, slots=True)
class Sample:
    p99: float
    rate: float


def _sample(claimed: Claimed) -> Sample:
    return Sample(percentile(claimed.waits(), 0.99) * 1000, claimed.rate)


def measure(bench: Bench) -> list[Line]:
    tables = ChimesTables(bench.postgres, "claimers")
    stores = started("nodes/claimer.py", tables.url, EACH, PROCESSES)
    raw = started("nodes/raw_claimer.py", tables.url, EACH, PROCESSES)
    faults = Faults()

    def make_due() -> None:
        tables.empty()
        tables.fill("every", DUE, due=tables.now() - timedelta(milliseconds=1))
        tables.settle()

    def chimes() -> Sample:
        nonlocal faults
        make_due()
        claimed = together(stores, {"limit": BATCH, "stores": EACH})
        faults += tables.faults(DUE)
        return _sample(claimed)

    def statement() -> Sample:
        make_due()
        return _sample(together(raw, {"statement": tables.raw_statement(BATCH)}))

    try:
        # A round is short; three times as many make the median worth something.
        found = interleaved(bench.rounds * 3, {"statement": statement, "chimes": chimes})
    finally:
        for child in stores + raw:
            child.close()
    waits = [sample.p99 for sample in found["chimes"]]
    rates = [sample.rate for sample in found["chimes"]]
    raw_waits = [sample.p99 for sample in found["statement"]]
    raw_rates = [sample.rate for sample in found["statement"]]
    how = f"{EACH} stores in each of {PROCESSES} processes, batch {BATCH}"
    middle = line(ROW, "", "", waits).value
    return [
        line(ROW, "bare statement, p99", "ms", raw_waits, how="50 asyncpg connections, batch 20"),
        line(ROW, "bare statement", "claims/s", raw_rates),
        line(
            *(ROW, "Chimes, p99 until committed", "ms", waits),
            goal=f"< {SEED_MS:.0f} ms (seed)",
            ratio=ratio(waits, raw_waits),
            met=middle < SEED_MS,
            how=how,
        ),
        line(
            *(ROW, "Chimes, p99 until committed", "ms", waits),
            goal=f"< {GOAL_MS:.0f} ms (goal)",
            ratio=ratio(waits, raw_waits),
            met=middle < GOAL_MS,
        ),
        line(ROW, "Chimes", "claims/s", rates, ratio=ratio(rates, raw_rates), how=how),
        faultless(ROW, faults),
    ]
