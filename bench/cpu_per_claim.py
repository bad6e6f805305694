"""CPU time of firing a due schedule in the process and in PostgreSQL, and of the lean statement.

    python bench/cpu_per_claim.py [--count 20000] [--rounds 3] [--compare SRC]

CPU time is comparable on a busy machine; rates are not. On two cores, all nodes together fire at
most 2,000,000 / (process + server microseconds) schedules per second. `--compare` names the `src`
folder of another version, which takes turns with this one.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from statistics import median

from rows.claims import LEAN_STATEMENT, LEAN_TABLES
from suite.children import BENCH, Child, cpu_seconds
from suite.chimes_tables import ChimesTables
from suite.claim_processes import run_claimers
from suite.postgres import Postgres, program

BATCH = 500
KINDS = ("every", "cron")
Cost = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    found: dict[str, list[Cost]] = {}
    with Postgres() as postgres:
        sides = [Side(postgres, "this", None)]
        if options.compare:
            sides.insert(0, Side(postgres, "other", options.compare.resolve()))
        for _ in range(options.rounds):
            found.setdefault("lean statement", []).append((0.0, lean(sides[-1], options.count)))
            for kind in KINDS:
                for side in sides:
                    for name, cost in side.fire(kind, options.count):
                        found.setdefault(name, []).append(cost)
        for side in sides:
            side.child.close()
    print(f"{'':32}{'process':>10}{'server':>10}{'sum, µs':>10}{'lean / sum':>12}")
    lean_server = median(server for _, server in found["lean statement"])
    for name, costs in found.items():
        process, server = (median(each) for each in zip(*costs, strict=True))
        total = process + server
        print(f"{name:32}{process:10.1f}{server:10.1f}{total:10.1f}{lean_server / total:12.2f}")


class Side:
    """One version of the code with its database and a claiming process."""

    def __init__(self, postgres: Postgres, name: str, source: Path | None) -> None:
        self.name = name
        self.postgres = postgres
        self.tables = ChimesTables(postgres, f"claims_{name}")
        environment = {"PYTHONPATH": f"{BENCH}:{source}"} if source else {}
        self.child = Child(["nodes/claimer.py", self.tables.url, "1"], environment=environment)
        self.child.receive(60)

    def fire(self, kind: str, count: int) -> Iterable[tuple[str, Cost]]:
        """Schedules that are new to the process, and the same schedules again."""
        self.tables.empty()
        self.tables.fill(kind, count, due=self.tables.now() - timedelta(milliseconds=1))
        yield f"{kind}, new ({self.name})", self._cost(count)
        self.tables.end_runs()
        self.tables.make_due(count)
        yield f"{kind}, fired before ({self.name})", self._cost(count)

    def _cost(self, count: int) -> Cost:
        self.tables.settle()
        before, server_before = cpu_seconds(self.child.pid), self.postgres.cpu_seconds()
        claimed = run_claimers([self.child], {"limit": BATCH, "stores": 1})
        if claimed.count != count:
            raise RuntimeError(f"{claimed.count} of {count} schedules fired")
        spent = cpu_seconds(self.child.pid) - before
        return _micros(spent, count), _micros(self.postgres.cpu_seconds() - server_before, count)


def lean(side: Side, count: int) -> float:
    """CPU microseconds of the server per schedule."""
    side.tables.sql(f"DROP TABLE IF EXISTS lean_schedules, lean_runs; {LEAN_TABLES}")
    side.tables.sql(
        f"INSERT INTO lean_schedules SELECT n, n, 'x' FROM generate_series(1, {count}) AS n"
    )
    side.tables.sql("VACUUM ANALYZE lean_schedules")
    side.tables.sql("CHECKPOINT")
    command = [program("pgbench"), "-n", "-M", "prepared", "-f", "-"]
    before = side.postgres.cpu_seconds()
    subprocess.run(
        [*command, "-t", str(count // BATCH)],
        input=LEAN_STATEMENT.encode(),
        env=side.postgres.environment | side.tables.environment(),
        capture_output=True,
        check=True,
    )
    return _micros(side.postgres.cpu_seconds() - before, count)


def _micros(seconds: float, count: int) -> float:
    return seconds / count * 1_000_000


if __name__ == "__main__":
    main()
