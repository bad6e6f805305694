"""Updates of time-zone and holiday data: fires that move are listed before they move."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.insights import IssueCause
from chimes.model.planning import plan
from chimes.model.schedule import Schedule, plan_after, reschedule_next
from chimes.model.time_data import cursor_version
from chimes.services.time_data import TimeDataService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron, Trigger, calendars, zones
from chimes.triggers.calendars import CountryYear
from chimes.triggers.zones import Zone
from tests.builders import a_schedule

NOW = datetime(2030, 3, 5, 12, tzinfo=UTC)
OLD, NEW = ("2030.1", "0.90"), ("2030.2", "0.91")
ANN = Owner(type=OwnerType.USER, id="ann")


@contextmanager
def patched_zone(
    patch: pytest.MonkeyPatch, name: str, changes: Mapping[int, int]
) -> Iterator[None]:
    """The data of a zone as a government has just changed them: the changes after 2029."""
    load = zones._load.__wrapped__
    real = load(name)
    cut = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    kept = [each for each in real.near.segments if each.start < cut]
    instants = [each.start for each in kept[1:]] + list(changes)
    offsets = [each.offset for each in kept] + list(changes.values())
    zone = Zone.of_changes(name, instants, offsets)
    with patch.context() as inner:
        inner.setattr(zones, "_load", lambda wanted: zone if wanted == name else load(wanted))
        yield


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOW)


@pytest.fixture
async def store(clock: SettableClock) -> MemoryStore:
    store = MemoryStore(clock)
    await store.open()
    return store


async def add(store: MemoryStore, name: str, trigger: Trigger, **given: Any) -> Schedule:
    draft = replace(a_schedule(id=name), name=name, trigger=trigger, updated_at=NOW, **given)
    return await store.add_schedule(plan_after(draft, NOW))


async def test_a_government_cancels_daylight_saving(
    store: MemoryStore,
    clock: SettableClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """New York stays on winter time from 2030 on: fires after 10 March are an hour later."""
    new_york = "America/New_York"
    await add(store, "weekly", Cron("30 9 * * 1", timezone=new_york), owner=ANN)
    await add(store, "yearly", Cron("0 12 1 7 *", timezone=new_york))
    await add(store, "winter", Cron("0 12 1 1 *", timezone=new_york))
    await add(store, "often", Cron("*/15 * * * *", timezone=new_york))
    await add(store, "elsewhere", Cron("30 9 * * 1", timezone="Europe/Berlin"))
    moved = reschedule_next(
        await add(store, "moved", Cron("0 12 1 7 *", timezone=new_york)),
        datetime(2030, 6, 1, 7, 0, tzinfo=UTC),
        NOW,
        "ann",
    )
    await store.change_schedule(moved.id, lambda before, now: moved)
    assert await TimeDataService(store, lambda: OLD).check() == ()
    data = await TimeDataService(store).read()
    assert set(data.zones) == {new_york, "Europe/Berlin"}
    weekly = await store.get_schedule(moved.id)
    assert weekly is not None
    clock.advance(timedelta(hours=1))

    service = TimeDataService(store, lambda: NEW)
    with patched_zone(monkeypatch, new_york, {}), caplog.at_level(logging.WARNING, "chimes.time"):
        pending = await service.list_pending()
        assert (await service.read()).moves == ()
        moves = await service.check()
        assert moves == pending
        by_name: dict[str, list[tuple[datetime | None, datetime | None]]] = {}
        for each in moves:
            by_name.setdefault(each.name, []).append((each.old, each.new))
        # The Monday after the change that does not take place.
        assert by_name["weekly"][0] == (
            datetime(2030, 3, 11, 13, 30, tzinfo=UTC),
            datetime(2030, 3, 11, 14, 30, tzinfo=UTC),
        )
        assert by_name["yearly"] == [
            (datetime(2030, 7, 1, 16, tzinfo=UTC), datetime(2030, 7, 1, 17, tzinfo=UTC))
        ]
        assert set(by_name) == {"weekly", "yearly", "moved"}
        assert "2030-03-11T13:30:00Z -> 2030-03-11T14:30:00Z" in caplog.text
        # The cursors follow, except of a run that a person has moved.
        cursors = {}
        for name in ("weekly", "yearly", "winter", "moved"):
            found = await store.get_schedule(a_schedule(id=name).id)
            assert found is not None
            cursors[name] = found.next_slot
        assert cursors == {
            "weekly": datetime(2030, 3, 11, 14, 30, tzinfo=UTC),
            "yearly": datetime(2030, 7, 1, 17, tzinfo=UTC),
            "winter": datetime(2031, 1, 1, 17, tzinfo=UTC),
            "moved": datetime(2030, 6, 1, 7, tzinfo=UTC),
        }
        # It is what then happens.
        clock.set(datetime(2030, 3, 11, 14, 30, tzinfo=UTC))
        fired = (await store.fire_due(plan, limit=100)).others
        assert [run.slot for run in fired if run.schedule_name == "weekly"] == [
            datetime(2030, 3, 11, 14, 30, tzinfo=UTC)
        ]
        # The version that computed each cursor is known, and nothing is found twice.
        data = await service.read()
        versions = {}
        for name in ("weekly", "winter"):
            found = await store.get_schedule(a_schedule(id=name).id)
            assert found is not None
            version = cursor_version(data, found)
            assert version is not None
            versions[name] = version.tzdata
        assert versions == {"weekly": "2030.2", "winter": "2030.1"}
        assert await service.check() == ()

    # A node with the older data changes nothing back.
    assert await TimeDataService(store, lambda: OLD).check() == ()
    assert (await service.read()).versions[-1].tzdata == "2030.2"


async def test_moves_are_shown_to_those_who_may_see_the_schedule(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(store, "hers", Cron("0 12 * * *", timezone="Europe/Berlin"), owner=ANN)
    service = TimeDataService(store, lambda: OLD)
    await service.check()
    with patched_zone(monkeypatch, "Europe/Berlin", {}):
        await service.check()
        ann, ben = (
            Actor(owner=Owner(type=OwnerType.USER, id=name), role=Role.MEMBER)
            for name in ("ann", "ben")
        )
        assert await service.list_moves(ben, NOW) == ()
        assert len(await service.list_moves(ann, NOW)) == 5
        [found], first = await service.list_attention(Actor(), NOW, 10)
        assert (found.schedule.name, found.sign.cause) == ("hers", IssueCause.TIME_DATA)
        assert first[found.schedule.id].new == datetime(2030, 3, 31, 11, tzinfo=UTC)
        assert (await service.list_attention(ben, NOW, 10))[0] == ()


async def test_a_new_public_holiday_drops_a_fire(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a calendar that skips, and moves it where the calendar moves."""
    skips = {"holidays": "DE"}
    await add(store, "skips", Cron("0 9 * * *", timezone="UTC", exclude=[skips]))
    moves = {"holidays": "DE", "on_excluded": "next"}
    await add(store, "moves", Cron("0 9 * * 3", timezone="UTC", exclude=[moves]))
    await TimeDataService(store, lambda: OLD).check()
    # Wednesday, 8 May 2030.
    new = (datetime(2030, 5, 8, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    load = calendars._load_country_year

    def with_new_holiday(name: str, year: int) -> CountryYear:
        found = load(name, year)
        return found._replace(holidays=found.holidays | {new})

    monkeypatch.setattr(calendars, "_load_country_year", with_new_holiday)
    found = await TimeDataService(store, lambda: NEW).check()
    at = datetime(2030, 5, 8, 9, tzinfo=UTC)
    assert {(each.name, each.old, each.new) for each in found} == {
        ("skips", at, None),
        ("moves", at, at + timedelta(days=1)),
    }
