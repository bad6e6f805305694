"""Checks the history of a torture run: `check` is a pure function from records to violations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise

from chimes.torture.history import (
    TERMINAL,
    Attempt,
    Case,
    FaultSpan,
    Run,
    RunLogLine,
    Version,
)
from chimes.torture.oracle import SECOND, text_of

#: Kind of violation and description.
Found = tuple[str, str]

# --- expected slots ------------------------------------------------------------------------------
#: Slots this close to the end may have no row yet.
LAST_MOMENTS = 5 * SECOND


@dataclass
class Expected:
    """Expected slots of one schedule. A slot in `doubtful` may have a record or not, because a lost
    answer leaves the current version unknown."""

    must: set[int] = field(default_factory=set)
    doubtful: list[tuple[int, int]] = field(default_factory=list)

    def allows(self, slot: int) -> bool:
        return slot in self.must or any(after < slot <= until for after, until in self.doubtful)


def known_versions(case: Case) -> dict[str, dict[int, list[Version]]]:
    """Versions by schedule and number; two values for one number contradict each other."""
    found: dict[str, dict[int, list[Version]]] = defaultdict(lambda: defaultdict(list))
    stored = [schedule.version for schedule in case.schedules.values()]
    for version in (*case.versions, *stored):
        same = found[version.schedule_id][version.number]
        if not any(_facts(version) == _facts(other) for other in same):
            same.append(version)
    return found


def expectations(case: Case) -> dict[str, Expected]:
    """Only for stored schedules: a missing schedule is another violation."""
    known = known_versions(case)
    return {
        each: _expected((versions[0] for _, versions in sorted(known[each].items())), case)
        for each in case.schedules
    }


def _expected(versions: Iterable[Version], case: Case) -> Expected:
    """A slot belongs to the version that was current at its time."""
    ordered = list(versions)
    found = Expected()
    first, last = ordered[0], ordered[-1]
    if first.number > 1:
        found.doubtful.append((0, first.at))
    for before, after in pairwise(ordered):
        if after.number > before.number + 1:
            found.doubtful.append((before.at, after.at))
        elif before.enabled and not before.deleted:
            found.must.update(before.spec.slots(before.at, after.at))
    if last.enabled and not last.deleted:
        end = case.stopped - LAST_MOMENTS
        found.must.update(last.spec.slots(last.at, end))
        found.doubtful.append((max(end, last.at), case.stopped + 3600 * SECOND))
    return found


def _facts(version: Version) -> tuple[object, ...]:
    return version.at, version.enabled, version.spec, version.deleted


# --- slots and acknowledged changes --------------------------------------------------------------
#: Tolerance for rounding.
EARLY = SECOND // 20
BY_SCHEDULE = ("schedule",)


def slot_violations(case: Case) -> Iterator[Found]:
    expected = expectations(case)
    rows: dict[str, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in case.runs:
        if run.slot is not None:
            rows[run.schedule_id][run.slot].append(run)
    for schedule_id, wanted in expected.items():
        yield from _of_schedule(schedule_id, wanted, rows[schedule_id])
    for schedule_id in rows.keys() - expected.keys():
        yield "history_mismatch", f"{schedule_id} has runs, and no row of its own"


def _of_schedule(schedule_id: str, wanted: Expected, rows: dict[int, list[Run]]) -> Iterator[Found]:
    missed = [run for runs in rows.values() for run in runs if run.status == "missed"]
    for slot, runs in rows.items():
        name = f"{schedule_id} {text_of(slot)}"
        if len(runs) > 1:
            yield "slot_doubled", f"{name} has runs {sorted(run.id for run in runs)}"
        if not wanted.allows(slot):
            yield "slot_invented", f"{name} is no slot of the version that was current then"
        for run in runs:
            if run.status in ("missed", "skipped") and not run.reason:
                yield "slot_lost", f"{name} is {run.status} without a reason"
    for slot in wanted.must:
        covering = [each for each in missed if _covers(each, slot)]
        records = len(rows.get(slot, ())) + sum(each.slot != slot for each in covering)
        if not records:
            yield "slot_lost", f"{schedule_id} {text_of(slot)} has no record"
        elif records > 1 and covering:
            yield "slot_doubled", f"{schedule_id} {text_of(slot)} has a run and is missed"
    for each in missed:
        inside = sum(_covers(each, slot) for slot in wanted.must)
        if inside != each.missed_count and not wanted.doubtful:
            yield (
                "history_mismatch",
                f"{each.id} stands for {each.missed_count} missed slots, there are {inside}",
            )


def _covers(missed: Run, slot: int) -> bool:
    assert missed.slot is not None
    return missed.slot <= slot <= (missed.missed_until or missed.slot)


def receiver_violations(case: Case) -> Iterator[Found]:
    """A slot has one run id at the receiver, and no call is early."""
    runs = {run.id: run for run in case.runs}
    ids: dict[tuple[str, int], set[str]] = defaultdict(set)
    for effect in case.effects:
        run = runs.get(effect.run_id)
        if run is not None and run.origin not in BY_SCHEDULE:
            continue
        ids[effect.schedule_id, effect.slot].add(effect.run_id)
        if effect.at < effect.slot - EARLY - case.clock_error:
            early = (effect.slot - effect.at) / SECOND
            yield "early", f"run {effect.run_id} was called {early:.3f} s before its slot"
        if run is not None and run.slot != effect.slot:
            yield "history_mismatch", f"run {effect.run_id} was called for another slot"
    for (schedule_id, slot), found in ids.items():
        if len(found) > 1:
            yield "slot_doubled", f"{schedule_id} {text_of(slot)} was called as {sorted(found)}"


def acknowledgement_violations(case: Case) -> Iterator[Found]:
    """Every confirmed change is stored once, as requested."""
    for version in case.versions:
        if version.asked is not None and version.asked != version.spec:
            yield (
                "ack_lost",
                f"{version.schedule_id} version {version.number} is not what was asked for",
            )
    for schedule_id, by_number in known_versions(case).items():
        confirmed = [v for each in by_number.values() for v in each if v.acknowledged]
        stored = case.schedules.get(schedule_id)
        if stored is None:
            if confirmed:
                yield "ack_lost", f"schedule {schedule_id} was confirmed and is gone"
            continue
        newest = max((version.number for version in confirmed), default=0)
        if newest > stored.version.number:
            yield (
                "ack_lost",
                f"{schedule_id} was confirmed as version {newest}, is {stored.version.number}",
            )
        for number, versions in by_number.items():
            if len(versions) > 1:
                yield "ack_lost", f"{schedule_id} version {number} has {len(versions)} contents"


def trigger_violations(case: Case) -> Iterator[Found]:
    """Every confirmed request for a run has one run."""
    made = Counter(run.schedule_id for run in case.runs if run.origin == "manual")
    asked = Counter(trigger.schedule_id for trigger in case.triggers)
    for schedule_id, count in made.items():
        if count > asked[schedule_id]:
            yield (
                "slot_doubled",
                f"{schedule_id} was triggered {asked[schedule_id]} times and has {count} runs",
            )
    ids = {run.id for run in case.runs}
    for trigger in case.triggers:
        if trigger.run_id and trigger.run_id not in ids:
            yield "ack_lost", f"run {trigger.run_id} was confirmed and is gone"


def unmatched(case: Case) -> Iterator[Found]:
    """Matches succeeded slots with calls by time, ignoring run ids, to detect wrong ids. Sorted
    greedy matching is exact because all windows have the same width."""
    calls: dict[str, list[int]] = defaultdict(list)
    for effect in case.effects:
        calls[effect.path.rpartition("/")[2]].append(effect.at)
    served: dict[str, list[int]] = defaultdict(list)
    width = 0
    for run in case.runs:
        if run.origin in BY_SCHEDULE and run.status == "succeeded" and run.slot is not None:
            served[run.schedule_id].append(run.slot)
            width = max(width, (run.finished or run.slot) - run.slot + SECOND)
    for schedule_id, slots in served.items():
        times = iter(sorted(calls[schedule_id]))
        for slot in sorted(slots):
            call = next((at for at in times if at >= slot - EARLY - case.clock_error), None)
            if call is None or call > slot + width:
                yield "hollow_success", f"{schedule_id} {text_of(slot)}: no call is left for it"
                break


# --- runs and attempts ---------------------------------------------------------------------------
#: Logged by a node after the store has accepted the completion of a run.
ENDED = "run ended"
RESCUED = "rescued"
#: Statuses that only a worker's completion or a rescue sets.
COMPLETED_STATUSES = ("succeeded", "failed", "timeout", "unknown")
CRASH_LIMIT = 3
#: Tolerance: a node estimates the store's time between two answers, which may be slow.
ESTIMATE = 3 * SECOND


def run_violations(case: Case) -> Iterator[Found]:
    log_lines: dict[str, list[RunLogLine]] = defaultdict(list)
    for line in case.log_lines:
        log_lines[line.run_id].append(line)
    for run in case.runs:
        if run.status not in TERMINAL:
            yield "run_without_end", f"run {run.id} is {run.status}"
            continue
        yield from _completions(run, log_lines[run.id])
        yield from _fences(run)
        yield from _replayed(run)
    runs = {run.id: run for run in case.runs}
    for observed in case.observed:
        now = runs.get(observed.run_id)
        if now is None:
            yield "ack_lost", f"run {observed.run_id} was seen {observed.status} and is gone"
        elif (now.status, now.fence) != (observed.status, observed.fence):
            was = f"{observed.status} (fence {observed.fence})"
            yield "completion_changed", f"run {run_text(now)} was {was} at {text_of(observed.at)}"


def run_text(run: Run) -> str:
    return f"{run.id} {run.status} (fence {run.fence})"


def _completions(run: Run, log_lines: list[RunLogLine]) -> Iterator[Found]:
    """A run has one completion, with the last fence."""
    final = (run.status, run.fence)
    for line in log_lines:
        ends = line.event == ENDED or (line.event == RESCUED and line.status in TERMINAL)
        if ends and (line.status, line.fence) != final:
            logged = f"{line.status} (fence {line.fence})"
            yield "completion_changed", f"run {run_text(run)}: a node logged {logged}"
    if run.status in COMPLETED_STATUSES and run.attempts and run.attempts[-1].fence != run.fence:
        yield "completion_changed", f"run {run_text(run)}: its completion has another fence"


def _fences(run: Run) -> Iterator[Found]:
    """Fences increase. A completion accepted under a lost fence appears after the attempt that was
    lost, with a lower fence."""
    for before, after in pairwise(run.attempts):
        if after.fence <= before.fence:
            yield "stale_write", f"run {run_text(run)}: fence {after.fence} after {before.fence}"


def _replayed(run: Run) -> Iterator[Found]:
    """The row of a run follows from its attempts."""
    wrong = list(_differences(run))
    if wrong:
        yield "history_mismatch", f"run {run_text(run)}: {'; '.join(wrong)}"


def _differences(run: Run) -> Iterator[str]:
    numbers = [attempt.number for attempt in run.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"attempts {numbers}"
    if run.attempt != len(numbers):
        yield f"attempt {run.attempt} with {len(numbers)} attempts on record"
    if run.fence < len(numbers):
        yield f"fence {run.fence} after {len(numbers)} claims"
    if run.finished is None:
        yield "no end time"
    elif run.attempts and run.finished + ESTIMATE < run.attempts[-1].finished:
        yield "it ended before its last attempt"
    for before, after in pairwise(run.attempts):
        if after.started + ESTIMATE < before.finished:
            yield f"attempt {after.number} began before the one before it had ended"
    folded = _folded(run)
    if run.status not in folded:
        yield f"its attempts make it {' or '.join(sorted(folded))}"


def _folded(run: Run) -> set[str]:
    """The statuses that a run with these attempts may have."""
    if not run.attempts:
        return {"skipped", "missed", "canceled"}
    ends = [attempt.end for attempt in run.attempts]
    failures = sum(end in ("failed", "timeout") for end in ends)
    match ends[-1]:
        case "lost" if run.on_lost == "stop" and run.reason == "lost_after_start":
            return {"unknown"}
        case "lost":
            return {"failed"} if ends.count("lost") >= CRASH_LIMIT else {"canceled"}
        case "failed" | "timeout" if failures <= run.max_retries:
            # Retries were left, so the failure was not retryable.
            return {ends[-1], "canceled"}
        case end:
            return {end}


def effect_violations(case: Case) -> Iterator[Found]:
    """Every call belongs to a recorded attempt, and every success has a call."""
    runs = {run.id: run for run in case.runs}
    calls = Counter((effect.run_id, effect.fence) for effect in case.effects)
    for (run_id, fence), count in calls.items():
        if count > 1:
            yield "repeats_unexplained", f"run {run_id} was called {count} times by fence {fence}"
    for effect in case.effects:
        run = runs.get(effect.run_id)
        if run is None:
            yield "repeats_unexplained", f"a call for run {effect.run_id}, which has no row"
            continue
        attempt = _of_fence(run, effect.fence)
        if attempt is None:
            yield (
                "repeats_unexplained",
                f"run {run_text(run)}: a call by fence {effect.fence}, which is not on record",
            )
        elif attempt.end == "lost" and effect.began > attempt.finished:
            late = (effect.began - attempt.finished) / SECOND
            yield (
                "late_effect",
                f"run {run.id} was begun {late:.3f} s after fence {effect.fence} was taken away",
            )
    for run in case.runs:
        for attempt in run.attempts:
            if attempt.end == "succeeded" and not calls[run.id, attempt.fence]:
                yield "hollow_success", f"run {run_text(run)}: the receiver saw no call of it"


def _of_fence(run: Run, fence: int) -> Attempt | None:
    return next((attempt for attempt in run.attempts if attempt.fence == fence), None)


def overlap_violations(case: Case) -> Iterator[Found]:
    """With a limit of one, no two runs overlap from first claim to end: a run that waits for its
    retry keeps its permit. Both times are the store's."""
    held: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for run in case.runs:
        if run.limit == 1 and run.claimed is not None and run.finished is not None:
            held[run.schedule_id].append((run.claimed, run.finished, run.id))
    for schedule_id, spans in held.items():
        for (_, until, first), (since, _, second) in pairwise(sorted(spans)):
            if since < until:
                yield "overlap", f"{schedule_id}: runs {first} and {second} at once"


def count_violations(case: Case) -> Iterator[Found]:
    """`fired_count` of a schedule is its number of runs."""
    fired = Counter(
        run.schedule_id
        for run in case.runs
        if run.origin in BY_SCHEDULE and run.status not in ("skipped", "missed")
    )
    for schedule in case.schedules.values():
        if schedule.fired_count != fired[schedule.id]:
            yield (
                "history_mismatch",
                f"{schedule.id} counts {schedule.fired_count} runs, there are {fired[schedule.id]}",
            )


# --- all checks ----------------------------------------------------------------------------------
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
    receiver_violations,
    acknowledgement_violations,
    trigger_violations,
    unmatched,
    run_violations,
    effect_violations,
    overlap_violations,
    count_violations,
)


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
    """`more`: violations that were seen while the run was under way."""
    violations: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, what in chain(more, *(each(case) for each in CHECKS)):
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
        # Calls after the first of a run. Each belongs to an attempt on record, else it is a
        # violation (`repeats_unexplained`).
        "repeated_calls": sum(count - 1 for count in by_run.values()),
        # Suspended between the last lease check and the first byte: cannot be prevented.
        "begun_in_time_seen_late": sum(
            effect.began <= lost[key] < effect.at
            for effect in case.effects
            if (key := (effect.run_id, effect.fence)) in lost
        ),
    }


def _latency(case: Case) -> dict[str, float]:
    """Seconds from a slot to its first call. A slot is under fault if a fault, or its aftermath,
    overlaps the time from the slot to the call."""
    first: dict[str, int] = {}
    for effect in sorted(case.effects, key=lambda each: each.at):
        first.setdefault(effect.run_id, effect.at)
    late = [
        (run.slot, first[run.id] - run.slot)
        for run in case.runs
        if run.slot is not None and run.id in first and run.origin == "schedule"
    ]
    faults = _merged(case.fault_spans, case.aftermath)
    quiet = [delay for slot, delay in late if not _overlaps(faults, slot, slot + delay)]
    under_fault = [delay for slot, delay in late if _overlaps(faults, slot, slot + delay)]
    left_over = [slot + delay - case.healed for slot, delay in late if slot <= case.healed]
    return {
        "quiet_p50": _percentile(quiet, 0.5),
        "quiet_p99": _percentile(quiet, 0.99),
        "fault_p50": _percentile(under_fault, 0.5),
        "fault_p99": _percentile(under_fault, 0.99),
        "max": _percentile(quiet + under_fault, 1),
        # From the end of the last fault to the last call that was due before it.
        "recover_max": max(0.0, _percentile(left_over, 1)),
    }


def _merged(spans: Iterable[FaultSpan], aftermath: int) -> list[tuple[int, int]]:
    """The times under fault, sorted and without overlaps."""
    merged: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda each: each.begin):
        end = span.end + aftermath
        if merged and span.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((span.begin, end))
    return merged


def _overlaps(merged: list[tuple[int, int]], since: int, until: int) -> bool:
    place = bisect_right(merged, until, key=lambda each: each[0])
    return place > 0 and merged[place - 1][1] >= since


def _percentile(values: list[int], share: float) -> float:
    if not values:
        return 0.0
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))] / SECOND, 3)
