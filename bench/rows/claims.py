"""claims: due schedules turned into runs per second on PostgreSQL, compared with one statement on
lean tables.

A node reads a schedule when it first fires it and remembers it; both cases are measured."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from suite.bench import Bench
from suite.children import Child
from suite.chimes_tables import ChimesTables
from suite.claim_processes import run_claimers, start_claimers
from suite.postgres import Postgres, program
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, ratio

ROW = "claims"
BATCH = 500
CONNECTIONS = 4
NODES = (1, 2, 4)
#: Schedules per round; pgbench needs spare ones, so that no transaction is empty.
COUNT = 20_000
SPARE = CONNECTIONS * BATCH
LEAST = {"every": 0.45, "cron": 0.4}

RAW = "pgbench, one statement, Chimes' tables"
LEAN = "pgbench, one statement, lean tables"
LEAN_TABLES = """
CREATE TABLE lean_schedules (id bigint PRIMARY KEY, next_run_at bigint, body text)
  WITH (fillfactor = 70);
CREATE INDEX ON lean_schedules (next_run_at);
CREATE TABLE lean_runs (schedule_id bigint, slot bigint, status text, body text,
  PRIMARY KEY (schedule_id, slot)) WITH (fillfactor = 70);
"""
LEAN_STATEMENT = f"""
WITH due AS (SELECT id, next_run_at FROM lean_schedules WHERE next_run_at <= 1000000000
 ORDER BY next_run_at LIMIT {BATCH} FOR NO KEY UPDATE SKIP LOCKED),
made AS (INSERT INTO lean_runs SELECT id, next_run_at, 'running', 'x' FROM due
 ON CONFLICT DO NOTHING)
UPDATE lean_schedules AS s SET next_run_at = s.next_run_at + 3600000000000
FROM due WHERE s.id = due.id;
""".replace("\n", " ")


class Contest:
    def __init__(self, bench: Bench, folder: Path) -> None:
        self.tables = ChimesTables(bench.postgres, "claims")
        self.faults = Faults()
        self._postgres = bench.postgres
        self._count = COUNT * 3 if bench.long else COUNT
        self._script = folder / "statement.sql"
        self._script.write_text(self.tables.raw_statement(BATCH), encoding="utf-8")
        self._lean_script = folder / "lean.sql"
        self._lean_script.write_text(LEAN_STATEMENT, encoding="utf-8")
        self.tables.sql(LEAN_TABLES)
        self.children: list[Child] = start_claimers(
            "nodes/claimer.py", self.tables.url, 1, max(NODES)
        )

    def raw(self) -> float:
        self._make_due("every", self._count + SPARE)
        seconds = self._pgbench(self._script)
        return self.tables.count("runs") / seconds

    def lean(self) -> float:
        self.tables.sql(
            "TRUNCATE lean_schedules, lean_runs;"
            " INSERT INTO lean_schedules SELECT n, n, 'x'"
            f" FROM generate_series(1, {self._count + SPARE}) AS n"
        )
        self.tables.sql("VACUUM ANALYZE lean_schedules")
        seconds = self._pgbench(self._lean_script)
        return self.tables.count("lean_runs") / seconds

    def chimes(self, kind: str, nodes: int) -> float:
        """Schedules that no node has fired before."""
        self._make_due(kind, self._count)
        claimed = run_claimers(self.children[:nodes], {"limit": BATCH, "stores": 1})
        self.faults += self.tables.faults(self._count)
        return claimed.rate

    def again(self, kind: str) -> float:
        """Schedules that the node has fired before."""
        self.chimes(kind, 1)
        self.tables.end_runs()
        self.tables.make_due(self._count)
        self.tables.settle()
        claimed = run_claimers(self.children[:1], {"limit": BATCH, "stores": 1})
        self.faults += self.tables.faults(self._count, slots=2)
        return claimed.rate

    def _make_due(self, kind: str, count: int) -> None:
        self.tables.empty()
        self.tables.fill(kind, count, due=self.tables.now() - timedelta(milliseconds=1))
        self.tables.settle()

    def _pgbench(self, script: Path) -> float:
        return pgbench(self._postgres, self.tables, script, self._count // BATCH // CONNECTIONS)


def pgbench(postgres: Postgres, tables: ChimesTables, script: Path, each: int) -> float:
    """Runs the script and returns the seconds of its transactions, without connecting."""
    command = [program("pgbench"), "-n", "-M", "prepared", "-f", str(script)]
    command += ["-c", str(CONNECTIONS), "-j", "1", "-t", str(each)]
    done = subprocess.run(
        command,
        env=postgres.environment | tables.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    if done.returncode or found is None:
        raise RuntimeError(f"pgbench: {done.stderr.strip()[-1000:]}")
    return each * CONNECTIONS / float(found[1])


def measure(bench: Bench) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="chimes-bench-") as folder:
        contest = Contest(bench, Path(folder))
        try:
            return _lines(contest, bench.rounds)
        finally:
            for child in contest.children:
                child.close()


def _lines(contest: Contest, rounds: int) -> list[Line]:
    contestants: dict[str, Callable[[], float]] = {RAW: contest.raw, LEAN: contest.lean}
    for kind in LEAST:
        for nodes in NODES:
            contestants[_name(kind, nodes)] = partial(contest.chimes, kind, nodes)
        contestants[_again(kind)] = partial(contest.again, kind)
    found = interleave(rounds, contestants)
    ratios = {name: ratio(rates, found[LEAN]) for name, rates in found.items()}
    lines = [
        line(ROW, LEAN, "claims/s", found[LEAN], how=f"{CONNECTIONS} connections × {BATCH}"),
        line(ROW, RAW, "claims/s", found[RAW], ratio=ratios[RAW], how="for scale"),
    ]
    for kind, least in LEAST.items():
        # The goal applies to the store, so the best number of nodes counts.
        names = [_name(kind, nodes) for nodes in NODES]
        best = max(names, key=ratios.__getitem__)
        for name in (*names, _again(kind)):
            has_goal = name == best
            lines.append(
                line(
                    *(ROW, name, "claims/s", found[name]),
                    goal=f"≥ {least} × lean" if has_goal else "",
                    ratio=ratios[name],
                    met=ratios[name] >= least if has_goal else None,
                    how=f"fire_due, batch {BATCH}",
                )
            )
    return [*lines, faults_line(ROW, contest.faults)]


def _name(kind: str, nodes: int) -> str:
    words = "intervals" if kind == "every" else "distinct crons"
    return f"Chimes, {words}, {nodes} node{'s' * (nodes > 1)}"


def _again(kind: str) -> str:
    return f"{_name(kind, 1)}, fired before"
