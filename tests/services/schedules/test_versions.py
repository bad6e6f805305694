"""Earlier definitions from the audit log: changes, and restoring one."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput, NotFound
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.services.schedules.versions import (
    Version,
    list_schedule_audit,
    versions_in,
    with_version,
)
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron
from tests.builders import a_schedule

ADMIN = Actor()
TARGET = HttpTarget(
    url="http://127.0.0.1:9/a?token=abc", headers={"Authorization": "hush", "X-A": "1"}
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SettableClock())


@pytest.fixture
def service(store: MemoryStore) -> ScheduleService:
    return ScheduleService(store, ScheduleRules(store, check_target=lambda target: None))


async def versions(store: MemoryStore, schedule: Schedule) -> tuple[Version, ...]:
    return versions_in(await list_schedule_audit(store, ADMIN, schedule))


async def test_with_version_keeps_current_secrets(
    store: MemoryStore, service: ScheduleService
) -> None:
    first = await service.create(ADMIN, a_schedule(name="one", target=TARGET))
    await service.change(
        ADMIN,
        first.id,
        lambda s: replace(
            s,
            name="two",
            labels={"a": None},
            trigger=Cron("0 9 * * *", timezone="Asia/Tokyo"),
            policy=replace(s.policy, overlap=Overlap.QUEUE),
            target=replace(TARGET, headers={"Authorization": "other", "X-A": "2"}),
        ),
    )
    await service.pause(ADMIN, first.id, note="holiday")
    now = await service.change(ADMIN, first.id, lambda s: replace(s, name="three", priority=5))
    found = await versions(store, now)
    assert [each.verb for each in found] == ["update", "update", "create"]
    assert "hush" not in str(found)
    assert found[0].changes["name"] == ("two", "three")
    back = with_version(now, found, found[2].number)
    assert (back.name, back.labels, back.priority) == ("one", {}, 0)
    assert (back.trigger, back.policy) == (first.trigger, first.policy)
    assert back.target == replace(TARGET, headers={"Authorization": "other", "X-A": "1"})
    assert (back.enabled, back.pause_note) == (False, "holiday"), "a pause is not part of a version"
    assert with_version(now, found, found[0].number) == now
    between = with_version(now, found, found[1].number)
    assert (between.name, between.priority, between.labels) == ("two", 0, {"a": None})


async def test_version_with_a_deleted_secret_cannot_be_restored(
    store: MemoryStore, service: ScheduleService
) -> None:
    first = await service.create(ADMIN, a_schedule(target=TARGET))
    other = HttpTarget(url="http://127.0.0.1:9/a")
    now = await service.change(ADMIN, first.id, lambda s: replace(s, target=other))
    found = await versions(store, now)
    with pytest.raises(InvalidInput, match="secret"):
        with_version(now, found, found[1].number)
    with pytest.raises(NotFound):
        with_version(now, found, 99)
