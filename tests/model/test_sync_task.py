"""Sync runs as EventNative tasks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.run import RunStatus
from chimes.model.sync import (
    TASK_RUN_STATUSES,
    TaskStatus,
    is_task,
    parse_task_id,
    run_statuses,
    task_fields,
    task_id,
    task_priority,
    task_status,
    task_time,
)
from chimes.model.target import SyncTarget
from tests.builders import a_run

PAIR = SyncTarget(source="my_source", collection="users_all")
RUN_ID = RunId("0193a6e0-0000-7000-8000-000000000001")
CREATED = datetime(2021, 3, 10, 22, 13, 32, 999999, tzinfo=UTC)
RUN = replace(a_run(target=PAIR, priority=300, created_at=CREATED), id=RUN_ID)


def test_priority_score_matches_eventnative() -> None:
    """The score that EventNative stores for this time."""
    assert task_priority(RUN) == 299998384585588
    assert float(task_priority(RUN)) == task_priority(RUN)


def test_priority_score_orders_by_class_then_age() -> None:
    older = replace(RUN, created_at=datetime(2021, 3, 10, 22, 13, 31, tzinfo=UTC))
    assert task_priority(older) > task_priority(RUN)
    assert task_priority(RUN) > task_priority(replace(older, priority=299))


def test_the_fields_of_a_task() -> None:
    assert task_fields(RUN) == {
        "id": f"my_source_users_all_{RUN_ID}",
        "source": "my_source",
        "collection": "users_all",
        "priority": 299998384585588,
        "created_at": "2021-03-10T22:13:32.999999Z",
        "started_at": "",
        "finished_at": "",
        "status": "SCHEDULED",
    }


def test_task_id_round_trips() -> None:
    assert parse_task_id(task_id(RUN)) == ("my_source_users_all", RUN_ID)


@pytest.mark.parametrize("text", ["", RUN_ID, f"_{RUN_ID}", f"a_{RUN_ID}", f"a_b{RUN_ID}", "a_b_c"])
def test_invalid_task_ids(text: str) -> None:
    assert parse_task_id(text) is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("queued", "SCHEDULED"),
        ("running", "RUNNING"),
        ("succeeded", "SUCCESS"),
        ("failed", "FAILED"),
        ("timeout", "FAILED"),
        ("unknown", "FAILED"),
        ("canceled", "CANCELED"),
    ],
)
def test_run_statuses_map_to_task_statuses(ours: str, theirs: str) -> None:
    run = replace(RUN, status=RunStatus(ours))
    assert is_task(run)
    assert task_status(run) == theirs
    assert run.status in run_statuses(TaskStatus(theirs))


def test_skipped_and_missed_runs_are_not_tasks() -> None:
    left = set(RunStatus) - set(TASK_RUN_STATUSES)
    assert left == {RunStatus.SKIPPED, RunStatus.MISSED}
    assert not any(is_task(replace(RUN, status=status)) for status in left)
    assert not is_task(a_run())


def test_times_have_microseconds_and_z() -> None:
    assert task_time(datetime(2021, 3, 10, 22, 45, 2, tzinfo=UTC)) == "2021-03-10T22:45:02.000000Z"
    assert task_time(None) == ""
