"""Checks the records of a torture run: `check` is a pure function.

python -m tests.system.torture.checker DIR     checks a saved directory again
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.system.torture.attempts import (
    count_violations,
    effect_violations,
    overlap_violations,
    run_violations,
)
from tests.system.torture.collector import load
from tests.system.torture.oracle import SECOND
from tests.system.torture.records import TERMINAL, Case, FaultSpan
from tests.system.torture.slots import (
    Found,
    acknowledgement_violations,
    sink_violations,
    slot_violations,
    unmatched,
)
from tests.system.torture.timeline import expectations

#: All kinds of violations; the summary has a count for each.
KINDS = (
    "slot_lost",
    "slot_doubled",
    "slot_invented",
    "ack_lost",
    "run_without_end",
    "completion_changed",
    "stale_write",
    "repeats_unexplained",
    "late_effect",
    "hollow_success",
    "early",
    "overlap",
    "history_mismatch",
    "node_exited",
    "unbounded",
)
CHECKS: tuple[Callable[[Case], Iterator[Found]], ...] = (
    slot_violations,
    sink_violations,
    acknowledgement_violations,
    unmatched,
    run_violations,
    effect_violations,
    overlap_violations,
    count_violations,
)
#: A fault has effects until a takeover is complete.
AFTERMATH = 4_200_000


@dataclass(frozen=True, kw_only=True)
class Report:
    violations: dict[str, list[str]]
    targets: dict[str, int]
    runs: dict[str, int]
    effects: dict[str, int]
    latency_s: dict[str, float]

    @property
    def clean(self) -> bool:
        return not any(self.violations.values())


def check(case: Case, more: Iterable[Found] = ()) -> Report:
    violations: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, what in chain(more, *(check(case) for check in CHECKS)):
        violations[kind].append(what)
    return Report(
        violations=violations,
        targets=_targets(case),
        runs=_runs(case),
        effects=_effects(case),
        latency_s=_latency(case),
    )


def _targets(case: Case) -> dict[str, int]:
    expected = expectations(case)
    rows = {(run.schedule_id, run.slot) for run in case.runs if run.slot is not None}
    must = {(each, slot) for each, wanted in expected.items() for slot in wanted.must}
    passed_over = [run for run in case.runs if run.status in ("skipped", "missed")]
    return {
        "must": len(must),
        "optional": len(rows - must),
        "not_run_with_reason": sum(run.missed_count or 1 for run in passed_over),
    }


def _runs(case: Case) -> dict[str, int]:
    ends = Counter(attempt.end for run in case.runs for attempt in run.attempts)
    return {
        "rows": len(case.runs),
        "executed": sum(bool(run.attempts) for run in case.runs),
        "terminal": sum(run.status in TERMINAL for run in case.runs),
        "attempts": ends.total(),
        "lost_attempts": ends["lost"],
        "crash_limit": sum(run.reason == "crash_limit" for run in case.runs),
        "unknown": sum(run.status == "unknown" for run in case.runs),
        "manual": sum(run.origin == "manual" for run in case.runs),
    }


def _effects(case: Case) -> dict[str, int]:
    by_run = Counter(effect.run_id for effect in case.effects)
    lost = {
        (run.id, attempt.fence): attempt.finished
        for run in case.runs
        for attempt in run.attempts
        if attempt.end == "lost"
    }
    return {
        "seen": len(case.effects),
        "slots_repeated": sum(count > 1 for count in by_run.values()),
        # Suspended between the last lease check and the first byte: cannot be prevented.
        "begun_in_time_seen_late": sum(
            effect.began <= lost[key] < effect.at
            for effect in case.effects
            if (key := (effect.run_id, effect.fence)) in lost
        ),
    }


def _latency(case: Case) -> dict[str, float]:
    first: dict[str, int] = {}
    for effect in sorted(case.effects, key=lambda each: each.at):
        first.setdefault(effect.run_id, effect.at)
    late = [
        (run.slot, first[run.id] - run.slot)
        for run in case.runs
        if run.slot is not None and run.id in first and run.origin == "schedule"
    ]
    quiet = [
        delay for slot, delay in late if not _during_fault(case.fault_spans, slot, slot + delay)
    ]
    noisy = [delay for slot, delay in late if _during_fault(case.fault_spans, slot, slot + delay)]
    left_over = [slot + delay - case.healed for slot, delay in late if slot <= case.healed]
    return {
        "quiet_p50": _percentile(quiet, 0.5),
        "quiet_p99": _percentile(quiet, 0.99),
        "chaos_p99": _percentile(noisy, 0.99),
        "max": _percentile(quiet + noisy, 1),
        # From the end of the last fault to the last call that was due before it.
        "recover_max": max(0.0, _percentile(left_over, 1)),
    }


def _during_fault(fault_spans: Iterable[FaultSpan], since: int, until: int) -> bool:
    return any(span.begin <= until and since <= span.end + AFTERMATH for span in fault_spans)


def _percentile(values: list[int], share: float) -> float:
    if not values:
        return 0.0
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))] / SECOND, 3)


def main(directory: Path) -> int:
    report = check(load(directory))
    for kind, found in report.violations.items():
        for what in found:
            print(f"{kind}: {what}")
    print(json.dumps({"targets": report.targets, "runs": report.runs, "effects": report.effects}))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
