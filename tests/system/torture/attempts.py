"""Checks of runs and attempts: completions, fences, calls, overlap, counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.system.torture.oracle import SECOND, text_of
from tests.system.torture.records import TERMINAL, Attempt, Case, Run, RunLogLine
from tests.system.torture.slots import BY_SCHEDULE, Found

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
                yield "hollow_success", f"run {run_text(run)}: the sink saw no call of it"


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
