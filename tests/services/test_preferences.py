"""Preferences of an owner: time zone and language."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput, NotAllowed
from chimes.model import replace
from chimes.model.access import Actor, Role, Scope
from chimes.model.listing import AuditQuery
from chimes.services.preferences import NO_PREFERENCES, Preferences, PreferenceService
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.triggers import Cron, Every, Once
from tests.builders import ALICE, BOB, a_schedule
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, STRANGER, VIEWER

BANGKOK = {"timezone": "Asia/Bangkok"}


@pytest.fixture
def preferences(store: MemoryStore) -> PreferenceService:
    return PreferenceService(store)


async def test_changes_are_stored_and_audited(
    preferences: PreferenceService, store: MemoryStore
) -> None:
    assert await preferences.get(ALICE) == NO_PREFERENCES
    await preferences.change(MEMBER, BANGKOK)
    after = await preferences.change(MEMBER, {"language": "th-TH"})
    assert after == Preferences(timezone="Asia/Bangkok", language="th")
    assert await preferences.get(ALICE) == after
    assert await preferences.get(BOB) == NO_PREFERENCES
    assert await preferences.change(MEMBER, BANGKOK) == after
    notes = await store.list_audit(AuditQuery(verb="update_preferences"))
    assert [note.changes for note in notes] == [
        {"language": [None, "th"]},
        {"timezone": [None, "Asia/Bangkok"]},
    ]
    assert {note.owner for note in notes} == {"user:alice"}
    gone = await preferences.change(MEMBER, {"timezone": None, "language": None})
    assert gone == NO_PREFERENCES
    assert await store.get_checkpoint("me:user:alice") is None


@pytest.mark.parametrize(
    "chosen", [{"timezone": "Mars/Base"}, {"timezone": "+07:00"}, {"language": "de"}]
)
async def test_invalid_values_change_nothing(
    preferences: PreferenceService, chosen: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await preferences.change(MEMBER, BANGKOK | chosen)
    assert refused.value.field in chosen
    assert await preferences.get(ALICE) == NO_PREFERENCES


async def test_change_requires_permission_for_the_owner(preferences: PreferenceService) -> None:
    agent = Actor(role=Role.MEMBER, owner=ALICE, scopes=(Scope.AGENT, Scope.AGENT_SCHEDULES))
    narrowed = replace(VIEWER, scopes=(Scope.READ,))
    for actor in (narrowed, STRANGER, agent):
        with pytest.raises(NotAllowed):
            await preferences.change(actor, BANGKOK, owner=ALICE)
    for actor in (OPERATOR, VIEWER):
        await preferences.change(actor, BANGKOK)
        assert (await preferences.get(actor.owner)).timezone == "Asia/Bangkok"
    for actor in (OPERATOR, replace(VIEWER, owner=BOB)):
        with pytest.raises(NotAllowed):
            await preferences.change(actor, BANGKOK, owner=ALICE)
    await preferences.change(MEMBER, {"timezone": None})
    await preferences.change(ADMIN, BANGKOK, owner=ALICE)
    assert (await preferences.get(ALICE)).timezone == "Asia/Bangkok"


@pytest.mark.parametrize(
    "value", ["nonsense", "[]", '{"timezone": "Mars/Base", "language": 5}', '{"timezone": 1}']
)
async def test_corrupt_values_count_as_not_set(
    preferences: PreferenceService, store: MemoryStore, value: str
) -> None:
    await store.set_checkpoint("me:user:alice", value)
    assert await preferences.get(ALICE) == NO_PREFERENCES


async def test_trigger_without_a_zone_gets_the_zone_of_its_owner(
    preferences: PreferenceService, schedules: ScheduleService
) -> None:
    await preferences.change(MEMBER, BANGKOK)
    zones = []
    for trigger in (
        Cron("0 9 * * *"),
        Cron("0 9 * * *", timezone="Europe/Berlin"),
        Once("2031-01-01T09:00:00"),
    ):
        made = await schedules.create(MEMBER, a_schedule(owner=ALICE, trigger=trigger))
        zones.append(made.trigger.zone)
    assert zones == ["Asia/Bangkok", "Europe/Berlin", "Asia/Bangkok"]
    other = await schedules.create(ADMIN, a_schedule(trigger=Cron("0 9 * * *")))
    assert other.trigger.zone == "UTC"
    plain = await schedules.create(MEMBER, a_schedule(owner=ALICE, trigger=Every("1h")))
    assert plain.trigger.zone == "UTC"
    changed = await schedules.change(
        ADMIN, made.id, lambda before: replace(before, trigger=Cron("0 8 * * *"))
    )
    assert changed.trigger.zone == "Asia/Bangkok"
