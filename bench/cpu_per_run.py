"""CPU time of a no-op run in the process and in PostgreSQL, for Chimes and PgQueuer.

    python bench/cpu_per_run.py [--count 20000] [--rounds 3]

CPU time is comparable on a busy machine; rates are not. A process on one core executes at most
1,000,000 / (its microseconds per run) runs per second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

from suite import peers
from suite.children import BENCH
from suite.chimes_tables import ChimesTables
from suite.nodes import Nodes
from suite.postgres import Postgres

TICKS = os.sysconf("SC_CLK_TCK")
AHEAD = timedelta(seconds=3)
SECONDS = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with Postgres() as postgres:
        ours = _chimes(postgres, options.count, options.rounds)
        theirs = [_pgqueuer(postgres, options.count) for _ in range(options.rounds)]
    print(f"{'':12}{'process µs/run':>16}{'server µs/run':>16}{'limit of one core':>20}")
    for name, found in (("Chimes", ours), ("PgQueuer", theirs)):
        process = median(each[0] for each in found)
        server = median(each[1] for each in found)
        print(f"{name:12}{process:16.0f}{server:16.0f}{1_000_000 / process:17,.0f}/s")


def _chimes(postgres: Postgres, count: int, rounds: int) -> list[tuple[float, float]]:
    tables = ChimesTables(postgres, "noop")
    nodes = Nodes(tables, 1)
    node = nodes.processes[0].pid
    found = []
    for number in range(rounds):
        available = tables.now() + AHEAD
        tables.queue(count, available=available, first=number * count)
        tables.analyze()
        while tables.now() < available - timedelta(milliseconds=100):
            time.sleep(0.02)
        before, server_before = _cpu(node), postgres.cpu_seconds()
        nodes.wait_until_done(available, 180)
        found.append(
            (
                (_cpu(node) - before) / count * 1_000_000,
                (postgres.cpu_seconds() - server_before) / count * 1_000_000,
            )
        )
    nodes.close()
    return found


def _pgqueuer(postgres: Postgres, count: int) -> tuple[float, float]:
    """The cost of a round minus that of a round that only fills the queue."""
    filled, worked = (_round(postgres, count, seconds) for seconds in (0.0, SECONDS))
    process, server = ((b - a) / count * 1_000_000 for a, b in zip(filled, worked, strict=True))
    return process, server


def _round(postgres: Postgres, count: int, seconds: float) -> tuple[float, float]:
    """CPU seconds of the peer and of the server."""
    url = postgres.fresh_database("peer")
    server_before, before = postgres.cpu_seconds(), os.times()
    script = str(BENCH / "peers" / peers.PGQUEUER.script)
    subprocess.run(
        [str(peers.peer_python(peers.PGQUEUER)), script, "jobs", url, str(count), str(seconds)],
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return spent, postgres.cpu_seconds() - server_before


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
