"""Accumulates the reports of `chimes torture` and writes the table of docs/reliability.md.

    python tools/torture_results.py add REPORT.json ...    appends a row for each report
    python tools/torture_results.py simulate               replaces the simulated rows: seeds 1-1000
    python tools/torture_results.py table                  writes the table from the kept rows

The rows are kept in docs/reliability-results.jsonl. A report of planted bugs is rejected, and a row
is never added twice. `tests/test_reliability.py` recomputes the table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "reliability-results.jsonl"
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
FIELDS = (
    "began_at", "version", "python", "kind", "store", "simulated", "nodes", "seed", "seeds",
    "digest", "seconds", "result", "inconclusive_because", "slots", "runs", "lost", "doubled",
    "results_changed", "calls", "calls_repeated", "calls_unexplained", "faults",
    "faults_by_class", "lateness",
)  # fmt: skip
NAMES = {
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "redis": "Redis, AOF always",
    "sqlite": "SQLite",
    "json": "JSON file",
    "simulation": "simulation",
}
SEEDS, SEEDS_PER_ROW = 1000, 100
COUNTS = ("slots", "runs", "faults", "lost", "doubled", "results_changed")
HEADER = (
    "| store | runs of the command | slots | run rows | faults | lost | doubled | results changed |"
    " calls repeated, explained | lateness under fault p50 / p99, median of the runs |"
)


def row_of(report: dict[str, Any]) -> dict[str, Any]:
    if report["planted_bug"]:
        raise SystemExit("a report of a planted bug is no result")
    if report["result"] == "violation":
        raise SystemExit("a violation is a bug: fix it, and list the run in docs/reliability.md")
    row = {name: report[name] for name in FIELDS if name in report}
    violations = {kind: count for kind, count in report["violations"].items() if count}
    return row | {"violations": violations}


def read_rows() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def add(files: Iterable[str]) -> None:
    rows = read_rows()
    known = {(row["began_at"], row["kind"], row.get("seeds"), row.get("seed")) for row in rows}
    with RESULTS.open("a") as results:
        for file in files:
            row = row_of(json.loads(Path(file).read_text()))
            if (row["began_at"], row["kind"], row.get("seeds"), row.get("seed")) not in known:
                results.write(json.dumps(row) + "\n")


def simulate() -> None:
    """The rows are replaced together, so that all of them are of one state of the code."""
    with tempfile.TemporaryDirectory() as directory:
        reports = []
        for first in range(1, SEEDS, SEEDS_PER_ROW):
            seeds = f"{first}-{first + SEEDS_PER_ROW - 1}"
            reports.append(Path(directory, f"{seeds}.json"))
            command = ["chimes", "torture", "--simulate", "--seeds", seeds, "--report", reports[-1]]
            done = subprocess.run([Path(sys.executable).with_name(command[0]), *command[1:]])
            if done.returncode:
                raise SystemExit(f"seeds {seeds} ended with {done.returncode}: nothing is changed")
        rows = [row_of(json.loads(report.read_text())) for report in reports]
    kept = [row for row in read_rows() if not row["simulated"]]
    RESULTS.write_text("".join(f"{json.dumps(row)}\n" for row in (*kept, *rows)))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [HEADER, "|---" * (HEADER.count("|") - 1) + "|"]
    real = [row for row in rows if not row["simulated"]]
    for kind, name in NAMES.items():
        chosen = [row for row in rows if row["kind"] == kind]
        if chosen and kind == "simulation":
            lines.append(_line("**real processes**", real))
        if chosen:
            versions = sorted({row["store"].partition(" ")[2] for row in chosen} - {""})
            lines.append(_line(" ".join([name, *versions]), chosen))
    lines.append(_line("**all**", rows))
    return "\n".join(lines)


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    sums = {count: sum(row[count] for row in rows) for count in (*COUNTS, "calls_repeated")}
    late = " / ".join(_median(rows, each) for each in ("fault_p50", "fault_p99"))
    cells = [
        name,
        len(rows),
        *(f"{sums[count]:,}" for count in COUNTS),
        f"{sums['calls_repeated']:,}",
        late,
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _median(rows: list[dict[str, Any]], name: str) -> str:
    values = sorted(row["lateness"][name] for row in rows)
    return f"{values[len(values) // 2]:.2f} s"


def with_table(document: str, rows: list[dict[str, Any]]) -> str:
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _found: f"{BEGIN}\n{table(rows)}\n{END}", document)


def main(command: str, *files: str) -> None:
    match command:
        case "add":
            add(files)
        case "simulate":
            simulate()
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), read_rows()))


if __name__ == "__main__":
    main(*sys.argv[1:])
