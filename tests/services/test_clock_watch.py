"""Upcoming clock changes and the schedules that they affect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import ScheduleId
from chimes.model.insights import IssueCause
from chimes.model.schedule import Schedule, delete_schedule, pause_schedule, plan_after
from chimes.services import insights as clock_watch
from chimes.services.insights import CACHE_SECONDS, ClockWatch, UpcomingClockChanges
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron
from chimes.triggers.clock_changes import Effect
from tests.builders import ALICE, BOB, a_schedule

NEW_YORK = "America/New_York"
#: Two days before daylight saving time starts in New York.
NOW = datetime(2027, 3, 12, 7, tzinfo=UTC)
OPERATOR = Actor(role=Role.OPERATOR)
ANNA = Actor(owner=ALICE, role=Role.MEMBER)


class Scene:
    def __init__(self) -> None:
        self.clock = SettableClock(NOW)
        self.store = MemoryStore(self.clock)
        self.watch = ClockWatch(self.store, self.clock)

    async def add(self, expression: str, zone: str = NEW_YORK, **given: Any) -> Schedule:
        trigger = Cron(expression, timezone=zone)
        schedule = plan_after(a_schedule(trigger=trigger, **given), self.clock.now())
        return await self.store.add_schedule(schedule)

    async def upcoming(self, actor: Actor = OPERATOR) -> UpcomingClockChanges:
        return await self.watch.get_upcoming(actor, self.clock.now())


def effects_of(found: UpcomingClockChanges) -> list[tuple[ScheduleId, Effect]]:
    return [(each.found.schedule.id, each.touched.effect) for each in found.affected_schedules]


async def test_affected_schedules_and_count_per_zone() -> None:
    scene = Scene()
    moved = await scene.add("30 2 * * *")
    for expression in ("0 9 * * *", "30 2 * * 1", "*/5 * * * *"):
        await scene.add(expression)
    await scene.add("30 2 * * *", "Asia/Bangkok")
    found = await scene.upcoming()
    assert effects_of(found) == [(moved.id, Effect.MOVED)]
    (zone,) = found.zones
    assert (zone.change.zone, zone.change.at, zone.schedules) == (
        NEW_YORK,
        datetime(2027, 3, 14, 7, tzinfo=UTC),
        4,
    )
    sign = found.affected_schedules[0].found.sign
    assert (sign.cause, sign.at) == (IssueCause.CLOCK_CHANGE, zone.change.at)


async def test_each_zone_has_its_own_change() -> None:
    scene = Scene()
    chicago = await scene.add("30 2 * * *", "America/Chicago")
    new_york = await scene.add("30 2 * * *")
    found = await scene.upcoming()
    assert effects_of(found) == [(new_york.id, Effect.MOVED), (chicago.id, Effect.MOVED)]
    assert [each.schedules for each in found.zones] == [1, 1]


async def test_only_changes_within_a_week_are_listed() -> None:
    scene = Scene()
    await scene.add("30 2 * * *")
    assert (
        await scene.watch.get_upcoming(OPERATOR, NOW - timedelta(days=6))
    ) == UpcomingClockChanges()
    scene = Scene()
    await scene.add("30 2 * * *")
    assert (await scene.upcoming()).zones
    scene.clock.advance(timedelta(days=2))
    assert await scene.upcoming() == UpcomingClockChanges()


async def test_only_visible_schedules_are_listed() -> None:
    scene = Scene()
    await scene.add("30 2 * * *", owner=BOB)
    assert await scene.upcoming(ANNA) == UpcomingClockChanges()
    mine = await scene.add("30 2 * * *", owner=ALICE)
    scene.clock.advance(timedelta(seconds=CACHE_SECONDS + 1))
    assert effects_of(await scene.upcoming(ANNA)) == [(mine.id, Effect.MOVED)]
    assert (await scene.upcoming(ANNA)).zones[0].schedules == 1
    assert len((await scene.upcoming()).affected_schedules) == 2


async def test_zones_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    calls = 0
    real = scene.store.zones_in_use

    async def counted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return await real(*given)

    monkeypatch.setattr(scene.store, "zones_in_use", counted)
    for _ in range(3):
        await scene.upcoming()
    assert calls == 1
    scene.clock.advance(timedelta(seconds=CACHE_SECONDS + 1))
    await scene.upcoming()
    assert calls == 2
    monkeypatch.setattr(clock_watch, "MAX_CACHED_OWNERS", 1)
    await scene.upcoming(ANNA)
    await scene.upcoming()
    assert calls == 4


async def test_paused_deleted_and_skipped_are_left_out() -> None:
    scene = Scene()
    three = [await scene.add("30 2 * * *", name=name) for name in "abc"]
    assert len(effects_of(await scene.upcoming())) == 3
    await scene.store.change_schedule(three[0].id, lambda s, now: pause_schedule(s, now, "me"))
    await scene.store.change_schedule(three[1].id, lambda s, now: delete_schedule(s, now, "me"))
    later = datetime(2027, 3, 15, 6, 30, tzinfo=UTC)
    await scene.store.change_schedule(
        three[2].id, lambda s, now: replace(s, next_slot=later, next_run_at=later)
    )
    assert effects_of(await scene.upcoming()) == []


async def test_unknown_zones_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    moved = await scene.add("30 2 * * *")

    async def damaged(*_: Any) -> dict[str, tuple[ScheduleId, ...]]:
        return {"No/Where": (ScheduleId("x"),), NEW_YORK: (moved.id,)}

    monkeypatch.setattr(scene.store, "zones_in_use", damaged)
    assert effects_of(await scene.upcoming()) == [(moved.id, Effect.MOVED)]
