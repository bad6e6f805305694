"""Fail-over of three PostgreSQL servers under Patroni, with 200 slots a second."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.ha.cluster import Cluster, Mode
from tests.ha.load import STEP, Call, Counts, Records, Row, count
from tests.ha.scenario import FAULTS, run


@pytest.fixture
def alone() -> Iterator[None]:
    """One cluster at a time on this machine: it has nine servers and a load."""
    with Path(tempfile.gettempdir(), "chimes-ha.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("mode", get_args(Mode))
def test_no_slot_is_lost_or_doubled_by_a_fail_over(alone: None, mode: Mode) -> None:
    with Cluster(mode) as cluster:
        for fault in FAULTS:
            found = run(cluster, fault)
            wrong = {name: value for name, value in violations(found).items() if value}
            assert not wrong, found
            assert found.slots > 0
            if mode == "async" and fault == "isolate":
                # What the isolated leader acknowledged is lost, and every node notices it.
                assert found.repeated_after_lost_commits
                assert found.regressions == found.nodes


def violations(found: Counts) -> dict[str, int]:
    """What must not happen. With asynchronous replication a fail-over undoes results, which the
    repeated run records again."""
    wrong = {
        "lost": found.lost,
        "doubled": found.doubled,
        "unended": found.unended,
        "hollow": found.hollow,
        "unexplained": found.unexplained,
    }
    if found.mode == "sync":
        wrong |= {"results_changed": found.results_changed, "regressions": found.regressions}
    return wrong


# --- the counts ---------------------------------------------------------------------------------
def a_row(slot: int, run_id: str = "", attempt: int = 1, status: str = "succeeded") -> Row:
    return Row(
        run_id=run_id or f"run {slot}",
        schedule_id="s",
        slot=slot * STEP,
        status=status,
        attempt=attempt,
        end=(status, attempt, "call 1"),
        missed_count=0,
    )


def a_call(slot: int, run_id: str = "", attempt: int = 1) -> Call:
    return Call(float(slot), run_id or f"run {slot}", "s", slot * STEP, attempt)


def counted(rows: list[Row], calls: list[Call], *, lossy: bool = False, **given: object) -> Counts:
    records = Records(first={"s": STEP}, paused=3.5, rows=rows, calls=calls, **given)  # type: ignore[arg-type]
    return count(records, may_lose_commits=lossy)


def test_counts_find_what_is_wrong() -> None:
    rows, calls = [a_row(each) for each in (1, 2, 3)], [a_call(each) for each in (1, 2, 3)]
    good = counted(rows, calls)
    assert (good.slots, good.runs, good.calls) == (3, 3, 3)
    assert not any(violations(good).values())
    assert counted(rows[:2], calls).lost == 1
    assert counted([*rows, a_row(2, "other")], calls).doubled == 1
    assert counted(rows, [*calls, a_call(2, "other")]).doubled == 1
    assert counted(rows, calls[:2]).hollow == 1
    assert counted([*rows[:2], a_row(3, status="running")], calls).unended == 1
    assert counted(rows, calls, seen={"run 1": ("failed", 1, "")}).results_changed == 1
    assert counted(rows, calls, seen={"gone": ("succeeded", 1, "")}).results_changed == 1
    again = [*calls, a_call(2)]
    assert counted(rows, again).unexplained == 1
    assert counted(rows, again, lossy=True).unexplained == 0
    taken_over = [*calls, a_call(2, attempt=2)]
    assert counted(rows, taken_over).unexplained == 1
    assert counted([rows[0], a_row(2, attempt=2), rows[2]], taken_over).unexplained == 0
