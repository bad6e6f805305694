"""Restoring a deleted schedule within ten minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.listing import AuditQuery
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import RESTORE_WITHIN, ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import a_schedule

ANNA = Owner(type=OwnerType.USER, id="anna")
ADMIN = Actor()


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def service(store: MemoryStore) -> ScheduleService:
    return ScheduleService(store, ScheduleRules(store, check_target=lambda target: None))


@pytest.mark.parametrize("paused", [False, True])
async def test_restores_the_schedule(
    service: ScheduleService, store: MemoryStore, paused: bool
) -> None:
    made = await service.create(ADMIN, a_schedule())
    if paused:
        made = await service.pause(ADMIN, made.id, note="holiday")
    await service.delete(ADMIN, made.id)
    back = await service.restore(ADMIN, made.id)
    assert (back.enabled, back.pause_note, back.name) == (made.enabled, made.pause_note, made.name)
    assert (back.next_slot is None) == paused
    assert await service.get(ADMIN, made.id) == back
    newest = (await store.list_audit(AuditQuery(object_id=made.id)))[0]
    assert newest.verb == "restore"
    with pytest.raises(Conflict):
        await service.restore(ADMIN, made.id)


async def test_time_limit_and_permissions(service: ScheduleService, clock: SettableClock) -> None:
    made = await service.create(ADMIN, a_schedule(owner=ANNA))
    await service.delete(ADMIN, made.id)
    stranger = Actor(role=Role.MEMBER, owner=Owner(type=OwnerType.USER, id="bob"))
    with pytest.raises(NotFound):
        await service.restore(stranger, made.id)
    with pytest.raises(NotAllowed):
        await service.restore(Actor(role=Role.VIEWER, owner=ANNA), made.id)
    clock.advance(RESTORE_WITHIN + timedelta(seconds=1))
    with pytest.raises(NotFound):
        await service.restore(ADMIN, made.id)
