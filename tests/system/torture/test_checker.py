"""The checker passes a correct history and reports each planted defect by its kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chimes.torture.checker import KINDS, check
from chimes.torture.history import (
    Attempt,
    Case,
    Effect,
    FaultSpan,
    ObservedRun,
    Run,
    RunLogLine,
    Schedule,
    Trigger,
    Version,
    load,
)
from chimes.torture.oracle import SECOND, Interval, Moment

START = 1_800_000_000 * SECOND
EVERY = Interval(step=2 * SECOND, anchor=START)
SLOTS = [START + number * 2 * SECOND for number in range(1, 6)]


def version(number: int, at: int, *, enabled: bool = True, acknowledged: bool = True) -> Version:
    return Version(
        schedule_id="s1",
        number=number,
        at=at,
        enabled=enabled,
        spec=EVERY,
        acknowledged=acknowledged,
    )


def attempt(number: int, began: int, end: str = "succeeded", fence: int | None = None) -> Attempt:
    return Attempt(
        number=number,
        fence=fence or number,
        node=f"n{number}",
        started=began,
        finished=began + SECOND // 10,
        end=end,
    )


def run(number: int, slot: int, *attempts: Attempt, status: str = "succeeded") -> Run:
    tried = attempts or (attempt(1, slot),)
    return Run(
        id=f"r{number}",
        schedule_id="s1",
        slot=slot,
        origin="schedule",
        status=status,
        attempt=len(tried),
        fence=tried[-1].fence,
        created=slot,
        finished=tried[-1].finished,
        claimed=tried[0].started,
        limit=0,
        attempts=tried,
    )


def effect(of: Run, fence: int = 1, after: int = SECOND // 20) -> Effect:
    assert of.slot is not None
    return Effect(
        at=of.slot + after,
        began=of.slot + after,
        run_id=of.id,
        schedule_id=of.schedule_id,
        slot=of.slot,
        fence=fence,
        attempt=fence,
        node="n1",
        path=f"/hook/{of.schedule_id}",
    )


def correct_case() -> Case:
    """A schedule that is created, runs five slots (one in two attempts) and is paused."""
    runs = [run(number, slot) for number, slot in enumerate(SLOTS)]
    taken_over = SLOTS[2] + 4 * SECOND
    runs[2] = run(
        2,
        SLOTS[2],
        replace(attempt(1, SLOTS[2], "lost"), finished=SLOTS[2] + 3 * SECOND),
        attempt(2, taken_over),
    )
    paused = version(2, SLOTS[-1] + SECOND, enabled=False)
    return Case(
        versions=(version(1, START), paused),
        effects=(
            *(effect(each) for each in runs),
            effect(runs[2], fence=2, after=taken_over - SLOTS[2]),
        ),
        log_lines=tuple(
            RunLogLine(
                at=each.finished or 0,
                event="run ended",
                run_id=each.id,
                fence=each.fence,
                status=each.status,
            )
            for each in runs
        ),
        observed=tuple(
            ObservedRun(at=each.finished or 0, run_id=each.id, status=each.status, fence=each.fence)
            for each in runs
        ),
        schedules={
            "s1": Schedule(id="s1", version=replace(paused, acknowledged=False), fired_count=5)
        },
        runs=tuple(runs),
        stopped=SLOTS[-1] + 60 * SECOND,
    )


def with_run(case: Case, number: int, **changes: object) -> Case:
    runs = list(case.runs)
    runs[number] = replace(runs[number], **changes)  # type: ignore[arg-type]
    return replace(case, runs=tuple(runs), log_lines=(), observed=())


def without(case: Case, *numbers: int) -> Case:
    """The case without these runs."""
    gone = {f"r{number}" for number in numbers}
    left = len(case.runs) - len(gone)
    return replace(
        case,
        runs=tuple(each for each in case.runs if each.id not in gone),
        effects=tuple(each for each in case.effects if each.run_id not in gone),
        log_lines=(),
        observed=(),
        schedules={"s1": replace(case.schedules["s1"], fired_count=left)},
    )


def violation_kinds(case: Case) -> set[str]:
    return {kind for kind, what in check(case).violations.items() if what}


def test_correct_history_passes() -> None:
    report = check(correct_case())
    assert report.clean, report.violations
    assert report.targets["must"] == 5
    assert report.effects["slots_repeated"] == 1


def test_lost_slot_is_reported() -> None:
    assert violation_kinds(without(correct_case(), 3)) == {"slot_lost"}


def test_slot_covered_by_a_missed_row_is_not_lost() -> None:
    case = without(correct_case(), 1, 3)
    missed = replace(
        run(1, SLOTS[1]),
        status="missed",
        reason="misfire",
        missed_count=1,
        attempts=(),
        attempt=0,
        fence=0,
    )
    assert violation_kinds(replace(case, runs=(*case.runs, missed))) == {"slot_lost"}
    covering = replace(missed, missed_count=3, missed_until=SLOTS[3])
    # The slot between them has a run, which contradicts the missed row.
    assert violation_kinds(replace(case, runs=(*case.runs, covering))) == {"slot_doubled"}
    fewer = without(correct_case(), 1, 2, 3)
    assert violation_kinds(replace(fewer, runs=(*fewer.runs, covering))) == set()
    wrong = replace(covering, missed_count=2)
    assert violation_kinds(replace(fewer, runs=(*fewer.runs, wrong))) == {"history_mismatch"}
    silent = replace(covering, reason="")
    assert violation_kinds(replace(fewer, runs=(*fewer.runs, silent))) == {"slot_lost"}


def test_slots_belong_to_the_version_at_their_time() -> None:
    case = correct_case()
    # Paused from the third slot on: later runs are unexpected.
    early = replace(case.versions[1], at=SLOTS[2])
    stored = {"s1": replace(case.schedules["s1"], version=early)}
    changed = replace(case, versions=(case.versions[0], early), schedules=stored)
    assert violation_kinds(changed) == {"slot_invented"}
    # If the current version is unknown, both are allowed.
    gap = replace(case.versions[1], number=3)
    stored = {"s1": replace(case.schedules["s1"], version=gap)}
    unknown = replace(case, versions=(case.versions[0], gap), schedules=stored)
    assert violation_kinds(unknown) == set()
    assert violation_kinds(without(unknown, 0)) == set()


def test_confirmed_trigger_that_differs_from_the_request_is_reported() -> None:
    case = correct_case()
    asked = replace(case.versions[0], asked=Moment(at=START))
    assert violation_kinds(replace(case, versions=(asked, case.versions[1]))) == {"ack_lost"}


def test_doubled_slot_is_reported() -> None:
    case = correct_case()
    again = replace(case.runs[1], id="other")
    both = replace(case, runs=(*case.runs, again), effects=(*case.effects, effect(again)))
    assert violation_kinds(both) == {"slot_doubled", "history_mismatch"}


def test_two_run_ids_for_one_slot_at_the_receiver_are_reported() -> None:
    case = correct_case()
    stranger = replace(effect(case.runs[1]), run_id="other")
    assert violation_kinds(replace(case, effects=(*case.effects, stranger))) == {
        "slot_doubled",
        "repeats_unexplained",
    }


def test_manual_request_with_two_runs_is_reported() -> None:
    case = correct_case()
    manual = [
        replace(run(number, SLOTS[1]), slot=None, origin="manual", id=f"m{number}")
        for number in (1, 2)
    ]
    effects = tuple(replace(effect(case.runs[1]), run_id=each.id) for each in manual)
    asked = tuple(Trigger(schedule_id="s1", key=key, run_id="m1") for key in ("a", "b"))
    fine = replace(
        case, runs=(*case.runs, *manual), effects=(*case.effects, *effects), triggers=asked
    )
    assert violation_kinds(fine) == set()
    assert violation_kinds(replace(fine, triggers=asked[:1])) == {"slot_doubled"}


def test_run_without_end_is_reported() -> None:
    case = with_run(correct_case(), 1, status="running", finished=None)
    assert violation_kinds(case) == {"run_without_end"}


@pytest.mark.parametrize("source", ["observed", "log_lines"])
def test_changed_completion_is_reported(source: str) -> None:
    case = correct_case()
    changed = with_run(case, 1, status="failed", attempts=(attempt(1, SLOTS[1], "failed"),))
    assert violation_kinds(changed) == set()
    assert violation_kinds(replace(changed, **{source: getattr(case, source)})) == {
        "completion_changed"
    }


def test_completion_with_an_old_fence_is_reported() -> None:
    case = correct_case()
    runs = list(case.runs)
    runs[2] = replace(runs[2], attempts=(runs[2].attempts[0],), attempt=1, fence=2)
    assert "completion_changed" in violation_kinds(
        replace(case, runs=tuple(runs), log_lines=(), observed=())
    )


def test_stale_write_is_reported() -> None:
    case = correct_case()
    lost, taken = case.runs[2].attempts
    stale = replace(taken, fence=lost.fence)
    broken = with_run(case, 2, attempts=(lost, stale), fence=1)
    assert "stale_write" in violation_kinds(broken)


def test_call_without_attempt_is_reported() -> None:
    case = correct_case()
    twice = replace(case, effects=(*case.effects, effect(case.runs[1])))
    assert violation_kinds(twice) == {"repeats_unexplained"}
    other_fence = replace(case, effects=(*case.effects, effect(case.runs[1], fence=2)))
    assert violation_kinds(other_fence) == {"repeats_unexplained"}


def test_call_after_the_lease_is_reported() -> None:
    case = correct_case()
    effects = list(case.effects)
    effects[2] = effect(case.runs[2], fence=1, after=3 * SECOND + 1)
    assert violation_kinds(replace(case, effects=tuple(effects))) == {"late_effect"}
    # Checked in time and suspended before the first byte: reported, but no violation.
    effects[2] = replace(effects[2], began=SLOTS[2])
    report = check(replace(case, effects=tuple(effects)))
    assert report.clean
    assert report.effects["begun_in_time_seen_late"] == 1


def test_success_without_call_is_reported() -> None:
    case = correct_case()
    effects = tuple(each for each in case.effects if each.run_id != "r1")
    assert violation_kinds(replace(case, effects=effects)) == {"hollow_success"}


def test_calls_with_wrong_run_ids_are_reported() -> None:
    case = correct_case()
    # Every run has a call with its id, but one path was called once too few.
    effects = list(case.effects)
    effects[4] = replace(effects[4], path="/hook/other")
    effects = [each for each in effects if each.fence == 1]
    labelled = {(each.run_id, each.fence) for each in effects}
    assert ("r4", 1) in labelled
    fewer = with_run(case, 2, attempts=(attempt(1, SLOTS[2]),), attempt=1, fence=1)
    assert violation_kinds(replace(fewer, effects=tuple(effects))) == {"hollow_success"}


def test_early_call_is_reported() -> None:
    case = correct_case()
    effects = (effect(case.runs[0], after=-SECOND // 10), *case.effects[1:])
    assert "early" in violation_kinds(replace(case, effects=effects))


def test_overlapping_runs_with_a_limit_of_one_are_reported() -> None:
    case = without(correct_case(), 2, 3, 4)
    stored = replace(case.versions[1], at=SLOTS[1] + SECOND)
    case = replace(
        case,
        versions=(case.versions[0], stored),
        runs=tuple(replace(each, limit=1) for each in case.runs),
        schedules={"s1": replace(case.schedules["s1"], version=stored)},
    )
    assert violation_kinds(case) == set()
    assert violation_kinds(with_run(case, 0, finished=SLOTS[1] + 1)) == {"overlap"}


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": 3},
        {"fence": 0, "attempts": (), "attempt": 0},
        {"finished": None},
        {"status": "failed"},
        {"attempts": (attempt(2, SLOTS[1], fence=1),)},
    ],
    ids=str,
)
def test_row_that_contradicts_its_attempts_is_reported(change: dict[str, object]) -> None:
    assert "history_mismatch" in violation_kinds(with_run(correct_case(), 1, **change))


def test_wrong_fired_count_is_reported() -> None:
    case = correct_case()
    stored = {"s1": replace(case.schedules["s1"], fired_count=6)}
    assert violation_kinds(replace(case, schedules=stored)) == {"history_mismatch"}


def test_lost_confirmed_change_is_reported() -> None:
    case = correct_case()
    newer = replace(case.versions[1], number=3, at=case.versions[1].at + SECOND)
    assert violation_kinds(replace(case, versions=(*case.versions, newer))) == {"ack_lost"}
    nowhere = replace(case, schedules={}, runs=(), effects=(), log_lines=(), observed=())
    assert violation_kinds(nowhere) == {"ack_lost"}


def test_report_has_all_kinds() -> None:
    assert set(check(correct_case()).violations) == set(KINDS)


def test_empty_directory_loads_as_an_empty_case(tmp_path: Path) -> None:
    assert load(tmp_path) == Case()


def test_clock_error_is_tolerated() -> None:
    case = correct_case()
    effects = (effect(case.runs[0], after=-SECOND // 10), *case.effects[1:])
    early = replace(case, effects=effects)
    assert violation_kinds(replace(early, clock_error=SECOND // 10)) == set()


def test_lateness_is_split_by_overlap_with_faults() -> None:
    case = correct_case()
    second = FaultSpan(kind="cut", node=0, begin=SLOTS[2] + SECOND, end=SLOTS[2] + 2 * SECOND)
    first = replace(second, begin=SLOTS[2], end=SLOTS[2] + SECOND)
    effects = list(case.effects)
    effects[2] = replace(effects[2], at=SLOTS[2] + SECOND)
    late = check(replace(case, effects=tuple(effects), fault_spans=(second, first), aftermath=0))
    assert late.latency_s["fault_p99"] == 1.0
    assert late.latency_s["quiet_p99"] == 0.05
