"""Formats of ids."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from chimes.model.ids import (
    ScheduleId,
    manual_run_id,
    new_schedule_id,
    slot_key,
    slot_run_id,
    uuid7,
)
from tests.builders import HOUR, NOW, SECOND


def test_uuid7_ids_are_ordered_by_time() -> None:
    made = [uuid7(NOW + timedelta(milliseconds=number)) for number in range(100)]
    assert made == sorted(made)
    assert len({uuid7(NOW) for _ in range(1000)}) == 1000


def test_ids_are_uuid7_with_their_time() -> None:
    for made in (new_schedule_id(NOW), manual_run_id(NOW)):
        parsed = uuid.UUID(made)
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
        assert parsed.int >> 80 == int(NOW.timestamp() * 1000)


def test_slot_key_format() -> None:
    schedule_id = ScheduleId("s1")
    slot = datetime(2030, 1, 1, tzinfo=UTC)
    assert slot_key(schedule_id, slot) == "schedule:s1:1893456000"
    assert slot_key(schedule_id, slot + SECOND / 4) == "schedule:s1:1893456000.250000"
    assert (
        slot_key(schedule_id, slot + timedelta(microseconds=1)) == "schedule:s1:1893456000.000001"
    )


# The same on every node, store and release.
def test_run_id_of_a_slot_is_stable() -> None:
    slot = datetime(2030, 1, 1, tzinfo=UTC)
    assert slot_run_id(ScheduleId("s1"), slot) == "b8fc34a3-2113-545b-8cb6-eefea637a774"
    elsewhere = slot.astimezone(tz=None)
    assert slot_run_id(ScheduleId("s1"), elsewhere) == slot_run_id(ScheduleId("s1"), slot)
    others = {slot_run_id(ScheduleId("s1"), slot + number * HOUR) for number in range(100)}
    assert len(others) == 100
