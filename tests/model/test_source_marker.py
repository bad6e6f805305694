"""Source markers: edits of schedules that code declares (ADR 33)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap, Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import (
    Dependency,
    clear_source_marker,
    definition_digest,
    is_detached,
    mark_source,
    move_source,
    pause_schedule,
    reattach,
    source_marker,
)
from chimes.model.target import HttpTarget, TaskTarget
from chimes.store.codec.values import schedule_from_plain, schedule_to_plain
from chimes.triggers import Cron
from tests.builders import NOW, a_schedule

DECLARED = mark_source(
    a_schedule(
        target=TaskTarget(name="report", args={"day": "Monday", "list": [1, 2.5, None]}),
        policy=Policy(overlap=Overlap.QUEUE, delivery=(Recipient(channel=Channel.INBOX),)),
        labels={"team": "ops", "bare": None},
        depends_on=Dependency(schedule_id=ScheduleId("other")),
        compat_data={"ksana": {"every": "90s"}},
    ),
    "shop/tasks.py:12",
)


@pytest.mark.parametrize(
    "edit",
    [
        {"trigger": Cron("1 2 3 4 *", timezone="UTC")},
        {"target": HttpTarget(url="https://example.com")},
        {"target": TaskTarget(name="report", args={"day": "Tuesday", "list": [1, 2.5, None]})},
        {"policy": replace(DECLARED.policy, timeout=timedelta(seconds=77))},
        {"policy": replace(DECLARED.policy, delivery=())},
        {"priority": 3},
        {"labels": {"team": "ops"}},
        {"depends_on": None},
    ],
)
def test_edit_of_the_definition_detaches(edit: dict[str, Any]) -> None:
    assert not is_detached(DECLARED)
    edited = replace(DECLARED, **edit)
    assert is_detached(edited)
    # Undoing the edit attaches it again.
    back = {name: getattr(DECLARED, name) for name in edit}
    assert not is_detached(replace(edited, **back))
    assert not is_detached(mark_source(edited, "shop/tasks.py:12"))
    assert not is_detached(reattach(edited))


def test_changes_outside_of_the_definition_do_not_detach() -> None:
    assert not is_detached(pause_schedule(DECLARED, NOW, "anna", note="holiday"))
    assert not is_detached(replace(DECLARED, next_run_at=NOW, fired_count=9, last_error="x"))


def test_source_marker_survives_storage() -> None:
    again = schedule_from_plain(schedule_to_plain(DECLARED))
    assert again == DECLARED
    assert definition_digest(again) == definition_digest(DECLARED)


def test_default_values_are_not_part_of_the_digest() -> None:
    # A release with a new field must not detach stored schedules.
    assert definition_digest(a_schedule(policy=Policy())) == definition_digest(
        a_schedule(policy=Policy(max_retries=0))
    )
    assert mark_source(DECLARED, "shop/tasks.py:12") == DECLARED


def test_moving_and_clearing_the_marker_keeps_other_compat_data() -> None:
    moved = move_source(DECLARED, "shop/jobs.py:3")
    mark, before = source_marker(moved), source_marker(DECLARED)
    assert mark is not None
    assert before is not None
    assert (mark.at, mark.digest) == ("shop/jobs.py:3", before.digest)
    assert clear_source_marker(moved).compat_data == {"ksana": {"every": "90s"}}
    plain = clear_source_marker(DECLARED)
    assert source_marker(plain) is None
    assert not is_detached(plain)
    assert move_source(plain, "x") == reattach(plain) == clear_source_marker(plain) == plain
    assert source_marker(replace(plain, compat_data={"declared": "damaged"})) is None
