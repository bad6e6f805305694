"""The JSON summary of a torture run."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chimes import __version__
from tests.system.torture.checker import Report
from tests.system.torture.collector import HISTORY, NODES
from tests.system.torture.profiles import below_minimum
from tests.system.torture.records import lines

if TYPE_CHECKING:
    from tests.system.torture.conductor import RunRequest

ROOT = Path(__file__).parents[3]
EXAMPLES = 5


def summary(
    request: RunRequest,
    store: str,
    report: Report,
    seconds: Mapping[str, float],
    *,
    ambiguous: int,
    largest: Mapping[str, int],
) -> dict[str, Any]:
    faults = Counter(
        entry["kind"] for entry in lines(request.out / HISTORY) if entry["type"] == "fault"
    )
    reached = _reached(request.out) | {"ambiguous_commits": ambiguous}
    counted = reached | {
        "slots": report.targets["must"],
        "faults": faults.total(),
        "fault_classes": len(faults),
    }
    because = below_minimum(request.profile, request.store, request.seconds / 60, counted)
    violations = {kind: len(found) for kind, found in report.violations.items()}
    return {
        "tool": "chimes-torture",
        "version": __version__,
        "commit": _commit(),
        "store": store,
        "seed": request.seed,
        "seed_gives": "the same workload and fault plan, not the same interleaving",
        "profile": request.profile.name,
        "mutant": request.mutant,
        "nodes": request.nodes,
        "seconds": dict(seconds),
        "targets": report.targets,
        "runs": report.runs,
        "effects": report.effects,
        "faults": {"total": faults.total(), **dict(sorted(faults.items()))},
        "reached": reached,
        "failpoints": _failpoints(request.out),
        "violations": violations,
        "examples": {kind: found[:EXAMPLES] for kind, found in report.violations.items() if found},
        "latency_s": report.latency_s,
        "resources": dict(largest),
        "not_checked": ["deliveries", "bounds of the latency (reported)", "access of owners"],
        "result": "violation" if not report.clean else "inconclusive" if because else "pass",
        "inconclusive_because": because,
        "plan": "plan.json",
        "history": HISTORY,
    }


def _reached(directory: Path) -> dict[str, int]:
    """Counts of events in the nodes' logs."""
    said = [line for log in (directory / NODES).glob("*.log") for line in lines(log)]
    events = Counter(line.get("event") for line in said)
    silent = [event for event in events if event and event.endswith("the store does not answer")]
    return {
        "fenced_writes": events["fenced"],
        "takeovers": events["rescued"],
        "trust_stops": events["attempt stopped"],
        "leases_lost": events["lease lost"],
        "retries": events["attempt failed, will be retried"],
        "store_silent": sum(events[event] for event in silent),
        "engine_errors": sum(line.get("level") == "error" for line in said),
    }


def _failpoints(directory: Path) -> dict[str, int]:
    path = directory / "failpoints"
    return dict(sorted(Counter(path.read_text().split()).items())) if path.exists() else {}


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return found.stdout.strip() or "unknown"
