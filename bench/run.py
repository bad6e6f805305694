"""The benchmark: measures every performance goal in one run.

    python bench/run.py [--only ROW ...] [--rounds 5] [--long]

Starts its own PostgreSQL, nodes and peers on loopback and stops them at the end. Prints a table and
writes the same figures as JSON to bench/results/. Exits with 1 if a goal is not met.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

from suite.bench import Bench, Row  # noqa: E402 (needs the path above)
from suite.postgres import Postgres, program  # noqa: E402
from suite.report import Report, table  # noqa: E402

ROWS = {
    "claims": "due schedules claimed per second, compared with one lean statement",
    "claimers": "50 claimers and 1,000 due schedules",
    "due": "lateness with 1,000 and 10,000 due; fired/s compared with the peers",
    "noop": "no-op runs end to end, compared with PgQueuer, awa and Procrastinate",
    "fairness": "single runs of one owner beside 10,000 queued runs of another",
    "sustained": "2,000 no-op runs per second for a minute, compared with PgQueuer and awa",
    "pressure": "the same while another transaction holds a snapshot",
    "wal": "bytes of write-ahead log per run, compared with the wide tables",
    "http": "HTTP callbacks, compared with the bare client",
    "sqlite": "10,000 HTTP callbacks due on SQLite, compared with the bare client",
    "footprint": "memory and idle CPU with 10 k and 100 k schedules",
    "size": "cost of a claim with 10 k, 100 k and 1 M schedules",
    "cron": "next fire time, compared with cronsim and croniter",
}


def main() -> int:
    options = _parse_options()
    chosen = options.only or list(ROWS)
    # As an exit, so that context managers stop all processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report(machine=_machine(options.rounds, options.long))
    began = time.monotonic()
    with Postgres() as postgres:
        bench = Bench(postgres=postgres, rounds=options.rounds, long=options.long)
        for name in chosen:
            since = time.monotonic()
            print(f"{name}: {ROWS[name]}", file=sys.stderr, flush=True)
            row: Row = importlib.import_module(f"rows.{name}").measure
            try:
                report.add(row(bench))
            except Exception as error:
                # The other rows are still measured.
                traceback.print_exc()
                report.failed.append(f"{name}: {type(error).__name__}: {error}")
            print(f"  {time.monotonic() - since:.0f} s", file=sys.stderr, flush=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = BENCH / "results" / f"{stamp}.json"
    report.write(path)
    print(table(report.lines))
    print(f"\n{time.monotonic() - began:.0f} s, {options.rounds} rounds; {path}")
    missed = report.missed_goals
    goals = sum(line.met is not None for line in report.lines)
    print(f"{goals - len(missed)} of {goals} goals met")
    for failure in report.failed:
        print(f"not measured: {failure}")
    return 1 if missed or report.failed else 0


def _parse_options() -> argparse.Namespace:
    rows = "\n".join(f"  {name:10} {what}" for name, what in ROWS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--long", action="store_true", help="larger counts, slow peers in every round"
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return options


def _machine(rounds: int, long: bool) -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "postgres": os.popen(f"{program('postgres')} --version").read().strip(),
        "load_before": os.getloadavg(),
        "rounds": rounds,
        "long": long,
    }


if __name__ == "__main__":
    sys.exit(main())
