"""The checker sees what it is there for: a good history passes, and each planted defect is found
under its own name (RELIABILITY 0.12)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.system.torture.checker import KINDS, check
from tests.system.torture.collector import load
from tests.system.torture.oracle import SECOND, Interval, Moment
from tests.system.torture.records import (
    Attempt,
    Case,
    Effect,
    Run,
    Schedule,
    Seen,
    Telling,
    Trigger,
    Version,
)

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


def good() -> Case:
    """Made, five slots, one of them in two attempts, paused."""
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
        tellings=tuple(
            Telling(
                at=each.finished or 0,
                event="run ended",
                run_id=each.id,
                fence=each.fence,
                status=each.status,
            )
            for each in runs
        ),
        seen=tuple(
            Seen(at=each.finished or 0, run_id=each.id, status=each.status, fence=each.fence)
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
    return replace(case, runs=tuple(runs), tellings=(), seen=())


def without(case: Case, *numbers: int) -> Case:
    """As if these runs had never been."""
    gone = {f"r{number}" for number in numbers}
    left = len(case.runs) - len(gone)
    return replace(
        case,
        runs=tuple(each for each in case.runs if each.id not in gone),
        effects=tuple(each for each in case.effects if each.run_id not in gone),
        tellings=(),
        seen=(),
        schedules={"s1": replace(case.schedules["s1"], fired_count=left)},
    )


def found(case: Case) -> set[str]:
    return {kind for kind, what in check(case).violations.items() if what}


def test_a_good_history_passes() -> None:
    report = check(good())
    assert report.clean, report.violations
    assert report.targets["must"] == 5
    assert report.effects["slots_repeated"] == 1


# I1
def test_a_lost_slot() -> None:
    assert found(without(good(), 3)) == {"slot_lost"}


def test_a_slot_that_is_covered_by_a_missed_row_is_not_lost() -> None:
    case = without(good(), 1, 3)
    missed = replace(
        run(1, SLOTS[1]),
        status="missed",
        reason="misfire",
        missed_count=1,
        attempts=(),
        attempt=0,
        fence=0,
    )
    assert found(replace(case, runs=(*case.runs, missed))) == {"slot_lost"}
    covering = replace(missed, missed_count=3, missed_until=SLOTS[3])
    # The slot between them has its run: it is missed and not missed.
    assert found(replace(case, runs=(*case.runs, covering))) == {"slot_doubled"}
    fewer = without(good(), 1, 2, 3)
    assert found(replace(fewer, runs=(*fewer.runs, covering))) == set()
    wrong = replace(covering, missed_count=2)
    assert found(replace(fewer, runs=(*fewer.runs, wrong))) == {"history_mismatch"}
    silent = replace(covering, reason="")
    assert found(replace(fewer, runs=(*fewer.runs, silent))) == {"slot_lost"}


def test_slots_belong_to_the_version_of_their_instant() -> None:
    case = good()
    # Paused from the third slot on: what ran after that was not asked for.
    early = replace(case.versions[1], at=SLOTS[2])
    stored = {"s1": replace(case.schedules["s1"], version=early)}
    changed = replace(case, versions=(case.versions[0], early), schedules=stored)
    assert found(changed) == {"slot_invented"}
    # If nobody knows which version was current, both is allowed.
    gap = replace(case.versions[1], number=3)
    stored = {"s1": replace(case.schedules["s1"], version=gap)}
    unknown = replace(case, versions=(case.versions[0], gap), schedules=stored)
    assert found(unknown) == set()
    assert found(without(unknown, 0)) == set()


def test_a_moment_that_was_asked_for_differently() -> None:
    case = good()
    asked = replace(case.versions[0], asked=Moment(at=START))
    assert found(replace(case, versions=(asked, case.versions[1]))) == {"ack_lost"}


# I2
def test_a_doubled_slot() -> None:
    case = good()
    again = replace(case.runs[1], id="other")
    both = replace(case, runs=(*case.runs, again), effects=(*case.effects, effect(again)))
    assert found(both) == {"slot_doubled", "history_mismatch"}


def test_two_ids_for_one_slot_at_the_sink() -> None:
    case = good()
    stranger = replace(effect(case.runs[1]), run_id="other")
    assert found(replace(case, effects=(*case.effects, stranger))) == {
        "slot_doubled",
        "repeats_unexplained",
    }


def test_a_trigger_that_made_two_runs() -> None:
    case = good()
    manual = [
        replace(run(number, SLOTS[1]), slot=None, origin="manual", id=f"m{number}")
        for number in (1, 2)
    ]
    effects = tuple(replace(effect(case.runs[1]), run_id=each.id) for each in manual)
    asked = tuple(Trigger(schedule_id="s1", key=key, run_id="m1") for key in ("a", "b"))
    fine = replace(
        case, runs=(*case.runs, *manual), effects=(*case.effects, *effects), triggers=asked
    )
    assert found(fine) == set()
    assert found(replace(fine, triggers=asked[:1])) == {"slot_doubled"}


# I3
def test_a_run_without_end() -> None:
    case = with_run(good(), 1, status="running", finished=None)
    assert found(case) == {"run_without_end"}


# I4
@pytest.mark.parametrize("source", ["seen", "tellings"])
def test_a_verdict_that_changed(source: str) -> None:
    case = good()
    changed = with_run(case, 1, status="failed", attempts=(attempt(1, SLOTS[1], "failed"),))
    assert found(changed) == set()
    assert found(replace(changed, **{source: getattr(case, source)})) == {"verdict_changed"}


def test_a_verdict_of_an_old_fence() -> None:
    case = good()
    runs = list(case.runs)
    runs[2] = replace(runs[2], attempts=(runs[2].attempts[0],), attempt=1, fence=2)
    assert "verdict_changed" in found(replace(case, runs=tuple(runs), tellings=(), seen=()))


# I5
def test_a_stale_write() -> None:
    case = good()
    lost, taken = case.runs[2].attempts
    stale = replace(taken, fence=lost.fence)
    broken = with_run(case, 2, attempts=(lost, stale), fence=1)
    assert "stale_write" in found(broken)


# I6
def test_a_call_that_no_attempt_explains() -> None:
    case = good()
    twice = replace(case, effects=(*case.effects, effect(case.runs[1])))
    assert found(twice) == {"repeats_unexplained"}
    other_fence = replace(case, effects=(*case.effects, effect(case.runs[1], fence=2)))
    assert found(other_fence) == {"repeats_unexplained"}


def test_a_call_after_its_lease() -> None:
    case = good()
    effects = list(case.effects)
    effects[2] = effect(case.runs[2], fence=1, after=3 * SECOND + 1)
    assert found(replace(case, effects=tuple(effects))) == {"late_effect"}
    # Begun in time and stopped before the first byte: reported, not prevented.
    effects[2] = replace(effects[2], began=SLOTS[2])
    report = check(replace(case, effects=tuple(effects)))
    assert report.clean
    assert report.effects["begun_in_time_seen_late"] == 1


# I7
def test_a_hollow_success() -> None:
    case = good()
    effects = tuple(each for each in case.effects if each.run_id != "r1")
    assert found(replace(case, effects=effects)) == {"hollow_success"}


def test_wrong_labels_are_found_without_them() -> None:
    case = good()
    # Every run has its labelled call, and yet one path was called once too seldom.
    effects = list(case.effects)
    effects[4] = replace(effects[4], path="/hook/other")
    effects = [each for each in effects if each.fence == 1]
    labelled = {(each.run_id, each.fence) for each in effects}
    assert ("r4", 1) in labelled
    fewer = with_run(case, 2, attempts=(attempt(1, SLOTS[2]),), attempt=1, fence=1)
    assert found(replace(fewer, effects=tuple(effects))) == {"hollow_success"}


# I9
def test_an_early_call() -> None:
    case = good()
    effects = (effect(case.runs[0], after=-SECOND // 10), *case.effects[1:])
    assert "early" in found(replace(case, effects=effects))


# I11
def test_two_at_once_where_one_is_allowed() -> None:
    case = without(good(), 2, 3, 4)
    stored = replace(case.versions[1], at=SLOTS[1] + SECOND)
    case = replace(
        case,
        versions=(case.versions[0], stored),
        runs=tuple(replace(each, limit=1) for each in case.runs),
        schedules={"s1": replace(case.schedules["s1"], version=stored)},
    )
    assert found(case) == set()
    assert found(with_run(case, 0, finished=SLOTS[1] + 1)) == {"overlap"}


# I12
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
def test_a_row_that_its_attempts_do_not_give(change: dict[str, object]) -> None:
    assert "history_mismatch" in found(with_run(good(), 1, **change))


def test_a_cursor_that_counts_otherwise() -> None:
    case = good()
    stored = {"s1": replace(case.schedules["s1"], fired_count=6)}
    assert found(replace(case, schedules=stored)) == {"history_mismatch"}


# R3.11
def test_a_confirmed_change_that_is_gone() -> None:
    case = good()
    newer = replace(case.versions[1], number=3, at=case.versions[1].at + SECOND)
    assert found(replace(case, versions=(*case.versions, newer))) == {"ack_lost"}
    nowhere = replace(case, schedules={}, runs=(), effects=(), tellings=(), seen=())
    assert found(nowhere) == {"ack_lost"}


def test_every_kind_has_a_name() -> None:
    assert set(check(good()).violations) == set(KINDS)


def test_an_empty_directory_is_an_empty_case(tmp_path: Path) -> None:
    assert load(tmp_path) == Case()
