"""The decode cache is bounded in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.redis.rows import SCHEDULE, RunRows, ScheduleRows
from chimes.store.redis.wire import texts
from tests.builders import a_run, a_schedule

MIB = 1024 * 1024


def _target(size: int, number: int) -> HttpTarget:
    return HttpTarget(url="http://127.0.0.1/x", body=f"{number:09d}" + "x" * (size - 9))


def _runs(count: int, size: int) -> object:
    rows = RunRows()
    for number in range(count):
        rows.new_fields(a_run(target=_target(size, number), schedule_id=str(number)), {})
    return rows


def _record(rows: ScheduleRows, schedule: Schedule) -> list[str]:
    written, cursor = (texts(each) for each in rows.fields(schedule))
    words = [*written, *cursor]
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return [fields.get(name, "1") for name in SCHEDULE]


def _schedules(count: int, size: int) -> object:
    rows = ScheduleRows()
    for number in range(count):
        _, revision = rows.schedule(_record(rows, a_schedule(target=_target(size, number))))
        assert not revision.damaged
    return rows


@pytest.mark.parametrize("remember", [_runs, _schedules])
@pytest.mark.parametrize(("count", "size"), [(1800, 15_000), (400, 60_000)])
def test_large_records_do_not_exceed_the_cache_size(
    remember: Callable[[int, int], object], count: int, size: int
) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        rows = remember(count, size)
        after, _ = tracemalloc.get_traced_memory()
        assert rows
        assert after - before < 24 * MIB, "the cache kept all records"
    finally:
        tracemalloc.stop()


def test_known_record_is_not_decoded_again() -> None:
    rows = ScheduleRows()
    record = _record(ScheduleRows(), a_schedule(target=_target(1000, 1)))
    first, again = rows.schedule(record)[0], rows.schedule(record)[0]
    assert first.target is again.target
