"""Silences: who may silence what, and how many."""

from __future__ import annotations

import pytest

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model import silence as silences
from chimes.model.access import Actor, Role
from chimes.model.silence import has_labels
from chimes.services.silences import SilenceService, read_silences
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, HOUR, MINUTE, NOW, a_schedule

MEMBER = Actor(owner=ALICE, role=Role.MEMBER)
OPERATOR = Actor(owner=BOB, role=Role.OPERATOR)


def test_labels_match_by_name_and_value() -> None:
    labels = {"team": "billing", "urgent": None}
    for wanted, matches in (
        ({}, True),
        ({"team": None}, True),
        ({"team": "billing", "urgent": None}, True),
        ({"team": "web"}, False),
        ({"urgent": "yes"}, False),
        ({"other": None}, False),
    ):
        assert has_labels(labels, wanted) is matches, wanted


async def test_members_silence_their_own_schedules_only() -> None:
    clock = SettableClock()
    store = MemoryStore(clock)
    service = SilenceService(store)
    mine, theirs = a_schedule(owner=ALICE), a_schedule(owner=BOB)
    await store.load([mine, theirs])
    with pytest.raises(NotAllowed):
        await service.add(Actor(owner=ALICE, role=Role.VIEWER), labels={}, until=NOW + HOUR)
    with pytest.raises(NotFound):
        await service.add(MEMBER, labels={}, schedule=theirs.id, until=NOW + HOUR)
    own = await service.add(MEMBER, labels={}, until=NOW + HOUR)
    assert own.covers(mine.id, str(ALICE), {})
    assert not own.covers(theirs.id, str(BOB), {})
    every = await service.add(OPERATOR, labels={"a": None}, until=NOW + HOUR)
    assert every.covers(theirs.id, str(BOB), {"a": "1"})
    assert await service.list_current(MEMBER) == await service.list_current(OPERATOR)
    other = Actor(owner=BOB, role=Role.MEMBER)
    assert [each.id for each in await service.list_current(other)] == [every.id]
    with pytest.raises(NotFound):
        await service.remove(other, own.id)
    with pytest.raises(NotAllowed):
        await service.remove(other, every.id)
    clock.advance(MINUTE)
    await service.remove(MEMBER, own.id)
    planned = await service.add(OPERATOR, labels={}, since=NOW + HOUR, until=NOW + 2 * HOUR)
    await service.remove(OPERATOR, planned.id)
    assert [each.id for each in await service.list_current(OPERATOR)] == [every.id]
    # The past of one that was active is kept, for messages that waited meanwhile.
    assert {each.id for each in await read_silences(store)} == {own.id, every.id}


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silences, "MAX_OWN_SILENCES", 2)
    clock = SettableClock()
    service = SilenceService(MemoryStore(clock))
    for _ in range(2):
        await service.add(MEMBER, labels={}, until=NOW + HOUR)
    with pytest.raises(Conflict):
        await service.add(MEMBER, labels={}, until=NOW + HOUR)
    await service.add(OPERATOR, labels={}, until=NOW + HOUR)
    clock.advance(2 * HOUR)
    await service.add(MEMBER, labels={}, until=NOW + 3 * HOUR)
    for wrong in (NOW, NOW + 10_000 * HOUR):
        with pytest.raises(InvalidInput):
            await service.add(MEMBER, labels={}, until=wrong)
