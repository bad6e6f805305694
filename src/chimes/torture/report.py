"""The report of a torture run: counts, violations, and whether the run was conclusive."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chimes import __version__
from chimes.torture.checker import Report
from chimes.torture.history import HISTORY, NODES, lines

#: Version of the report's format.
FORMAT = 1
EXAMPLES = 5
PASS, VIOLATION, INCONCLUSIVE = "pass", "violation", "inconclusive"
#: Counts below which a run proves nothing: per minute of faults, and in total.
PER_MINUTE = {"slots": 600, "faults": 15, "takeovers": 2}
AT_LEAST_ONCE = ("takeovers", "fenced_writes", "ambiguous_commits")
FAULT_CLASSES = 5
_ENDED_ONCE = ("completion_changed", "stale_write")


def missing_counts(
    minutes: float, reached: Mapping[str, int], *, nodes: int, readable: bool, classes: int
) -> list[str]:
    """The counts that are below their minimum. `readable`: answers to commits can be lost;
    `classes`: how many kinds of faults are possible."""
    wanted = {name: round(count * minutes) for name, count in PER_MINUTE.items()}
    wanted |= {name: max(1, wanted.get(name, 1)) for name in AT_LEAST_ONCE}
    wanted["fault_classes"] = min(FAULT_CLASSES, classes)
    if not readable:
        del wanted["ambiguous_commits"]
    if nodes == 1:
        # No other node takes over, and a JSON file is rewritten as a whole.
        del wanted["takeovers"], wanted["fenced_writes"]
        wanted["slots"] //= 4
    return [
        f"{name}: {reached.get(name, 0)} of {least}"
        for name, least in wanted.items()
        if reached.get(name, 0) < least
    ]


def make_report(
    checked: Report,
    *,
    store: str,
    faults: Mapping[str, int],
    reached: Mapping[str, int],
    missing: Sequence[str],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """`facts`: how the run was started and what else was measured."""
    violations = {kind: len(found) for kind, found in checked.violations.items()}
    result = INCONCLUSIVE if missing else PASS
    return {
        "tool": "chimes torture",
        "format": FORMAT,
        "version": __version__,
        "python": platform.python_version(),
        "store": store,
        **facts,
        "result": result if checked.clean else VIOLATION,
        "inconclusive_because": list(missing),
        "slots": checked.targets["must"],
        "runs": checked.runs["rows"],
        "lost": violations["slot_lost"],
        "doubled": violations["slot_doubled"],
        "results_changed": sum(violations[kind] for kind in _ENDED_ONCE),
        "calls": checked.effects["seen"],
        "calls_repeated": checked.effects["repeated_calls"],
        "calls_unexplained": violations["repeats_unexplained"],
        "faults": sum(faults.values()),
        "faults_by_class": dict(sorted(faults.items())),
        "lateness": checked.latency_s,
        "reached": dict(reached),
        "violations": violations,
        "examples": {kind: found[:EXAMPLES] for kind, found in checked.violations.items() if found},
        "targets": checked.targets,
        "run_counts": checked.runs,
        "effects": checked.effects,
    }


def injected_faults(directory: Path) -> Counter[str]:
    return Counter(
        entry["kind"] for entry in lines(directory / HISTORY) if entry["type"] == "fault"
    )


def reached_events(directory: Path) -> dict[str, int]:
    """Counts of events in the nodes' logs."""
    events: Counter[str] = Counter()
    errors = 0
    for log in (directory / NODES).glob("*.log"):
        for line in lines(log):
            events[line.get("event", "")] += 1
            errors += line.get("level") == "error"
    silent = [event for event in events if event.endswith("the store does not answer")]
    return {
        "fenced_writes": events["fenced"],
        "takeovers": events["rescued"],
        "trust_stops": events["attempt stopped"],
        "leases_lost": events["lease lost"],
        "retries": events["attempt failed, will be retried"],
        "store_silent": sum(events[event] for event in silent),
        "engine_errors": errors,
    }


def failpoint_hits(directory: Path) -> dict[str, int]:
    path = directory / "failpoints"
    return dict(sorted(Counter(path.read_text().split()).items())) if path.exists() else {}
