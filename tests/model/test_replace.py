"""`replace` copies Structs and dataclasses with changes."""

from __future__ import annotations

import pytest

from chimes.model import replace
from chimes.model.run import RunStatus
from chimes.triggers import Every
from tests.builders import a_run, a_schedule


def test_replace_changes_a_copy() -> None:
    run = a_run()
    before = replace(run)
    assert replace(run, status=RunStatus.FAILED).status is RunStatus.FAILED
    assert run == before
    assert before is not run


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        a_schedule().name = "other"  # type: ignore[misc]


def test_unknown_field_is_rejected() -> None:
    with pytest.raises(TypeError, match="stauts"):
        replace(a_run(), stauts=RunStatus.FAILED)  # type: ignore[call-arg]


def test_replace_copies_triggers() -> None:
    assert replace(Every("5m"), every="10m") == Every("10m")
