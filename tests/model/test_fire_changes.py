"""`compare_fires`: the fires that a change of a schedule adds, drops and moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from chimes.model import replace
from chimes.model.schedule import Schedule, apply_edit, compare_fires, plan_after, upcoming_fires
from chimes.triggers import Cron, Every, Once, Trigger
from tests.builders import a_schedule
from tests.tables import each_row

NOW = datetime(2030, 1, 7, 8, 30, tzinfo=UTC)  # a Monday
WEEK = NOW + timedelta(days=7)


def planned(trigger: Trigger | None, **more: object) -> Schedule | None:
    if trigger is None:
        return None
    return plan_after(replace(a_schedule(), trigger=trigger, **more), NOW)


def cron(expression: str, **more: object) -> Cron:
    return Cron(expression, timezone="UTC", **more)  # type: ignore[arg-type]


@each_row(
    ("before", "after", "added", "dropped", "moved"),
    [
        (None, cron("0 9 * * *"), 7, 0, 0),
        (cron("0 9 * * *"), None, 0, 7, 0),
        (cron("0 9 * * *"), cron("0 9 * * *"), 0, 0, 0),
        (cron("0 9 * * *"), cron("0 10 * * *"), 0, 0, 7),
        # Eight o'clock has passed today: one fire is dropped, and another one added at the end.
        (cron("0 9 * * *"), cron("0 8 * * *"), 1, 1, 6),
        (cron("0 9 * * *"), cron("0 9 * * 1-5"), 0, 2, 0),
        (cron("0 9 * * 1-5"), cron("0 9,17 * * *"), 9, 0, 0),
        # Between the two lies a fire of both versions: nothing has moved.
        (cron("0 9,12 8 1 *"), cron("0 12,13 8 1 *"), 1, 1, 0),
        (cron("0 9 * * *", max_runs=3), cron("0 10 * * *", max_runs=1), 0, 2, 1),
        (cron("0 9 * * *"), Once("2030-01-08T09:00:00Z"), 0, 6, 0),
    ],
)
def test_changes_are_counted(
    before: Trigger | None, after: Trigger | None, added: int, dropped: int, moved: int
) -> None:
    found = compare_fires(planned(before), planned(after), NOW, WEEK)
    assert (len(found.added), len(found.dropped), len(found.moved)) == (added, dropped, moved)
    assert found.until == WEEK


def test_a_pause_drops_and_an_edit_of_the_target_changes_nothing() -> None:
    before = planned(cron("0 9 * * *"))
    assert before is not None
    paused = apply_edit(before, replace(before, enabled=False), NOW, "x")
    assert len(compare_fires(before, paused, NOW, WEEK).dropped) == 7
    other = apply_edit(before, replace(before, priority=5), NOW, "x")
    assert compare_fires(before, other, NOW, WEEK) == compare_fires(before, before, NOW, WEEK)


def test_the_period_is_shorter_for_a_schedule_that_fires_often() -> None:
    each_second = planned(Every("1s", anchor=NOW))
    found = compare_fires(None, each_second, NOW, WEEK, limit=100)
    assert len(found.added) == 100
    assert found.until == NOW + timedelta(seconds=100)
    # Both versions are compared in the period that is complete for both.
    found = compare_fires(planned(Every("10s", anchor=NOW)), each_second, NOW, WEEK, limit=100)
    assert (len(found.added), len(found.dropped)) == (90, 0)
    assert found.until == NOW + timedelta(seconds=100)


EXPRESSIONS = st.sampled_from(
    ["0 9 * * *", "30 * * * *", "*/7 * * * *", "0 0 * * 0", "15 8,9,10 * * 1-5", "0 9 1 1 *"]
)


@given(EXPRESSIONS, EXPRESSIONS)
def test_the_changes_turn_the_fires_of_one_version_into_those_of_the_other(
    first: str, second: str
) -> None:
    before, after = planned(cron(first)), planned(cron(second))
    assert before is not None
    assert after is not None
    found = compare_fires(before, after, NOW, WEEK)
    was = {each.at for each in upcoming_fires([before], WEEK, limit=100_000)}
    becomes = {each.at for each in upcoming_fires([after], WEEK, limit=100_000)}
    gone = {*found.dropped, *(old for old, _new in found.moved)}
    come = {*found.added, *(new for _old, new in found.moved)}
    assert gone <= was
    assert not gone & becomes
    assert (was - gone) | come == becomes
    # Every one of them counts once.
    assert len(gone) == len(found.dropped) + len(found.moved)
    assert len(come) == len(found.added) + len(found.moved)
