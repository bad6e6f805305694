"""The run id of a slot is a UUID version 5."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from chimes.model.ids import SLOT_NAMESPACE, ScheduleId, slot_key, slot_run_id


@given(st.text(), st.datetimes(timezones=st.just(UTC)))
def test_run_id_is_the_uuid5_of_the_slot_key(name: str, slot: datetime) -> None:
    schedule_id = ScheduleId(name)
    expected = uuid.uuid5(SLOT_NAMESPACE, slot_key(schedule_id, slot))
    assert slot_run_id(schedule_id, slot) == str(expected)
