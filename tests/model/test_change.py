"""`replace` equals dataclasses.replace."""

from __future__ import annotations

import dataclasses

import pytest

from chimes.model.change import fast_constructor, replace
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import TaskTarget
from tests.builders import HOUR, NOW, a_run, a_schedule


def test_replace_equals_dataclasses_replace() -> None:
    schedule, run = a_schedule(), a_run()
    assert replace(run) == run
    assert replace(run) is not run
    changes = {"status": RunStatus.RUNNING, "attempt": 3, "claimed_at": NOW + HOUR}
    assert replace(run, **changes) == dataclasses.replace(run, **changes)
    assert replace(schedule, name="other") == dataclasses.replace(schedule, name="other")
    assert type(replace(schedule)) is Schedule


def test_replace_does_not_change_the_original() -> None:
    run = a_run()
    before = dataclasses.replace(run)
    replace(run, status=RunStatus.FAILED)
    assert run == before


def test_every_single_field_can_be_changed() -> None:
    run = a_run()
    for field in dataclasses.fields(Run):
        marker = object()
        assert getattr(replace(run, **{field.name: marker}), field.name) is marker


def test_copy_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(a_run()).status = RunStatus.FAILED


def test_unknown_field_is_rejected() -> None:
    with pytest.raises(TypeError, match="Run has no field 'stauts'"):
        replace(a_run(), stauts=RunStatus.FAILED)


def test_replace_supports_fields_named_like_parameters() -> None:
    target = TaskTarget(name="tidy", args={"kind": 1})
    assert type(replace(target, name="other")) is TaskTarget
    assert replace(target, name="other") == dataclasses.replace(target, name="other")


def test_fast_constructor_takes_fields_in_order() -> None:
    run = a_run()
    values = [getattr(run, field.name) for field in dataclasses.fields(Run)]
    assert fast_constructor(Run)(*values) == run
    with pytest.raises(dataclasses.FrozenInstanceError):
        fast_constructor(Run)(*values).status = RunStatus.FAILED
