"""`replace` equals dataclasses.replace."""

from __future__ import annotations

import dataclasses

import pytest

from chimes.model.change import fast_constructor, replace
from chimes.model.definition import TaskTarget
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from tests.builders import HOUR, NOW, a_run, a_schedule


def test_a_changed_copy_is_what_dataclasses_would_make() -> None:
    schedule, run = a_schedule(), a_run()
    assert replace(run) == run
    assert replace(run) is not run
    changes = {"status": RunStatus.RUNNING, "attempt": 3, "claimed_at": NOW + HOUR}
    assert replace(run, **changes) == dataclasses.replace(run, **changes)
    assert replace(schedule, name="other") == dataclasses.replace(schedule, name="other")
    assert type(replace(schedule)) is Schedule


def test_the_original_stays_as_it_was() -> None:
    run = a_run()
    before = dataclasses.replace(run)
    replace(run, status=RunStatus.FAILED)
    assert run == before


def test_every_single_field_can_be_changed() -> None:
    run = a_run()
    for field in dataclasses.fields(Run):
        marker = object()
        assert getattr(replace(run, **{field.name: marker}), field.name) is marker


def test_a_copy_is_frozen_too() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(a_run()).status = RunStatus.FAILED


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Run has no field 'stauts'"):
        replace(a_run(), stauts=RunStatus.FAILED)


def test_fields_may_have_any_name() -> None:
    target = TaskTarget(name="tidy", args={"kind": 1})
    assert type(replace(target, name="other")) is TaskTarget
    assert replace(target, name="other") == dataclasses.replace(target, name="other")


def test_a_value_is_made_of_its_fields_in_their_order() -> None:
    run = a_run()
    values = [getattr(run, field.name) for field in dataclasses.fields(Run)]
    assert fast_constructor(Run)(*values) == run
    with pytest.raises(dataclasses.FrozenInstanceError):
        fast_constructor(Run)(*values).status = RunStatus.FAILED
