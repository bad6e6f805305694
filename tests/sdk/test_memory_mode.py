"""The memory scheduler, pass by pass, with a settable clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.engine.events import (
    DutyFailed,
    DutyRecovered,
    Event,
    Events,
    FallbackEnded,
    FallbackStarted,
    ScheduleBroken,
    SchedulesFired,
    SlotsAlreadyTaken,
)
from chimes.engine.poller import PollOnEvent
from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId, declared_id, slot_run_id
from chimes.model.listing import RunQuery
from chimes.model.planning import slot_run
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Dependency, Schedule, plan_after
from chimes.sdk.memory_mode import (
    LOOK_BACK,
    REFRESH,
    Fallback,
    LocalSchedule,
    MemoryScheduler,
    ids_from_runs,
)
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every
from tests.builders import a_schedule
from tests.engine.rig import Faults

START = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Scene:
    def __init__(self) -> None:
        self.clock = SettableClock(START)
        self.store = MemoryStore(self.clock)
        self.events: list[Event] = []
        self.declared: list[LocalSchedule] = []
        self.declaring_fails: Exception | None = None

    def schedule(self, name: str = "tick", **given: Any) -> Schedule:
        values: dict[str, Any] = {
            "name": name,
            "trigger": Cron("* * * * *"),
            "policy": Policy(),
            "created_at": START,
            "updated_at": START,
        }
        return plan_after(a_schedule(**(values | given)), self.clock.now())

    def timer(self, *schedules: Schedule, memory_mode: bool = True) -> MemoryScheduler:
        self.declared = [
            LocalSchedule(schedule=each, memory_mode=memory_mode) for each in schedules
        ]
        self.faults = Faults(self.store)
        self.fallback = Fallback(self.events.append)

        async def declarations() -> list[LocalSchedule]:
            if self.declaring_fails is not None:
                raise self.declaring_fails
            return self.declared

        return MemoryScheduler(
            self.faults.store,
            load=declarations,
            initial=self.declared,
            fallback=self.fallback,
            clock=self.clock,
            events=Events([self.events.append]),
            poll=timedelta(seconds=1),
        )

    async def runs(self) -> list[Run]:
        found = (await self.store.list_runs(RunQuery(limit=None))).items
        return sorted(found, key=lambda run: (run.planned_at, run.id))

    async def slots(self, *statuses: RunStatus) -> list[int]:
        """The minutes of the slots."""
        return [
            run.slot.minute
            for run in await self.runs()
            if run.slot and (not statuses or run.status in statuses)
        ]

    def emitted(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.store.open()
    yield scene
    await scene.store.close()


async def test_each_slot_fires_on_time(scene: Scene) -> None:
    schedule = scene.schedule()
    timer = scene.timer(schedule)
    rest = await timer.run_once()
    assert isinstance(rest, PollOnEvent)
    assert await scene.slots() == []
    for minute in (1, 2, 3):
        scene.clock.set(START.replace(minute=minute, second=0))
        await timer.run_once()
        assert await scene.slots() == list(range(1, minute + 1))
    run = (await scene.runs())[0]
    # The deterministic id and key of the slot.
    assert run.id == slot_run_id(schedule.id, START.replace(minute=1, second=0))
    assert run.schedule_id == schedule.id
    assert await scene.store.get_schedule(schedule.id) is None
    assert len(scene.emitted(SchedulesFired)) == 3


async def test_sleeps_until_the_next_slot_or_poll(scene: Scene) -> None:
    timer = scene.timer(scene.schedule())
    rest = await timer.run_once()
    assert isinstance(rest, PollOnEvent)
    assert rest.seconds == 1.0
    scene.clock.advance(29.75)
    rest = await timer.run_once()
    assert isinstance(rest, PollOnEvent)
    assert rest.seconds == pytest.approx(0.25)


async def test_slot_has_one_run_on_all_nodes(scene: Scene) -> None:
    schedule = scene.schedule()
    timers = [scene.timer(schedule) for _ in range(5)]
    scene.clock.advance(MINUTE)
    for timer in timers:
        await timer.run_once()
        scene.clock.advance(0.001)
    assert len(await scene.runs()) == 1
    assert sum(event.count for event in scene.emitted(SlotsAlreadyTaken)) == 4
    assert sum(len(event.runs) for event in scene.emitted(SchedulesFired)) == 1


@pytest.mark.parametrize(
    ("misfire", "run", "missed"),
    [
        (Misfire.SKIP, [5], [1]),
        (Misfire.ONE, [1, 5], [2]),
        (Misfire.ALL, [1, 2, 3, 4, 5], []),
    ],
)
async def test_catch_up_after_a_store_outage(
    scene: Scene, misfire: Misfire, run: list[int], missed: list[int]
) -> None:
    policy = Policy(misfire=misfire, misfire_grace=timedelta(seconds=30), overlap=Overlap.ALLOW)
    timer = scene.timer(scene.schedule(policy=policy))
    await timer.run_once()
    scene.faults.down = StoreUnavailable("gone")
    for _ in range(5):
        scene.clock.advance(MINUTE)
        with pytest.raises(StoreUnavailable):
            await timer.run_once()
    assert scene.fallback.active is False
    scene.faults.down = None
    scene.clock.set(START.replace(minute=5, second=10))
    await timer.run_once()
    assert await scene.slots(RunStatus.QUEUED) == run
    assert await scene.slots(RunStatus.MISSED) == missed


async def test_lost_response_makes_no_second_run(scene: Scene) -> None:
    timer = scene.timer(scene.schedule())
    scene.clock.advance(MINUTE)
    scene.faults.answer_lost["add_runs"] = StoreUnavailable("no answer")
    with pytest.raises(StoreUnavailable):
        await timer.run_once()
    await timer.run_once()
    assert len(await scene.runs()) == 1


async def test_overlapping_slots_are_skipped(scene: Scene) -> None:
    schedule = scene.schedule()
    timer = scene.timer(schedule)
    for _ in range(3):
        scene.clock.advance(MINUTE)
        await timer.run_once()
    assert await scene.slots(RunStatus.QUEUED) == [1]
    assert await scene.slots(RunStatus.SKIPPED) == [2, 3]


async def test_overlap_cancel_old_cancels_the_previous_run(scene: Scene) -> None:
    timer = scene.timer(scene.schedule(policy=Policy(overlap=Overlap.CANCEL_OLD)))
    for _ in range(2):
        scene.clock.advance(MINUTE)
        await timer.run_once()
    assert await scene.slots(RunStatus.CANCELED) == [1]
    assert await scene.slots(RunStatus.QUEUED) == [2]


async def test_shared_concurrency_key_blocks_in_the_store(scene: Scene) -> None:
    policy = Policy(concurrency_key="task:x", max_concurrent_runs=1, overlap=Overlap.QUEUE)
    timer = scene.timer(scene.schedule(policy=policy))
    for _ in range(2):
        scene.clock.advance(MINUTE)
        await timer.run_once()
    assert [run.blocked for run in await scene.runs()] == [False, True]


async def test_dependency_is_read_from_the_runs(scene: Scene) -> None:
    other = scene.schedule("other")
    dependency = Dependency(schedule_id=other.id)
    timer = scene.timer(scene.schedule(depends_on=dependency))
    scene.clock.advance(MINUTE)
    await timer.run_once()
    assert await scene.slots(RunStatus.SKIPPED) == [1]
    done = replace(
        slot_run(other, scene.clock.now(), scene.clock.now()),
        status=RunStatus.SUCCEEDED,
        finished_at=scene.clock.now(),
    )
    await scene.store.add_runs([done])
    scene.clock.advance(MINUTE)
    await timer.run_once()
    assert await scene.slots(RunStatus.QUEUED) == [2]


async def test_planning_error_stops_only_its_schedule(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chimes.sdk import memory_mode

    plan = memory_mode.plan

    def broken(schedule: Schedule, *rest: Any) -> Any:
        if schedule.name == "bad":
            raise ValueError("cannot")
        return plan(schedule, *rest)

    monkeypatch.setattr(memory_mode, "plan", broken)
    timer = scene.timer(scene.schedule("bad"), scene.schedule("good"))
    for _ in range(2):
        scene.clock.advance(MINUTE)
        await timer.run_once()
    assert [event.schedule.name for event in scene.emitted(ScheduleBroken)] == ["bad"]
    assert {run.schedule_name for run in await scene.runs()} == {"good"}


async def test_db_mode_schedules_are_not_fired(scene: Scene) -> None:
    timer = scene.timer(scene.schedule(), memory_mode=False)
    scene.clock.advance(MINUTE)
    await timer.run_once()
    assert await scene.runs() == []


async def test_fallback_starts_and_ends(scene: Scene) -> None:
    schedule = scene.schedule()
    timer = scene.timer(schedule, scene.schedule("paused", enabled=False), memory_mode=False)
    await timer.run_once()
    scene.clock.set(START.replace(minute=3, second=5))
    # Slot 3 was fired by the store just before its table broke.
    await scene.store.add_runs(
        [slot_run(schedule, START.replace(minute=3, second=0), scene.clock.now())]
    )
    scene.fallback(DutyFailed(duty="scheduler", error=KeyError("no table"), first=True))
    scene.declaring_fails = KeyError("no table")
    assert scene.fallback.active
    assert "memory" in scene.fallback.reason
    await timer.run_once()
    # Recent slots are fired again; the run of slot 3 already exists.
    assert set(await scene.slots()) == {3}
    scene.clock.set(START.replace(minute=4, second=0))
    await timer.run_once()
    assert await scene.slots() == [3, 4]
    scene.declaring_fails = None
    scene.fallback(DutyRecovered(duty="scheduler"))
    scene.clock.advance(REFRESH)
    await timer.run_once()
    scene.clock.set(START.replace(minute=5, second=0))
    await timer.run_once()
    assert await scene.slots() == [3, 4]
    assert {run.schedule_name for run in await scene.runs()} == {"tick"}
    assert [
        type(each) for each in scene.events if isinstance(each, FallbackStarted | FallbackEnded)
    ] == [
        FallbackStarted,
        FallbackEnded,
    ]


async def test_slot_just_before_the_fallback_is_not_lost(scene: Scene) -> None:
    timer = scene.timer(scene.schedule(), memory_mode=False)
    await timer.run_once()
    scene.clock.set(START.replace(minute=1, second=0) + LOOK_BACK / 2)
    scene.fallback(DutyFailed(duty="scheduler", error=KeyError("no table"), first=True))
    await timer.run_once()
    assert await scene.slots() == [1]


async def test_fallback_fires_no_slot_before_the_last_change(scene: Scene) -> None:
    """It was created, or resumed, after the slot of minute 1."""
    scene.clock.set(START.replace(minute=1, second=10))
    young = scene.schedule(updated_at=scene.clock.now())
    timer = scene.timer(young, memory_mode=False)
    await timer.run_once()
    scene.clock.set(START.replace(minute=1, second=20))
    scene.fallback(DutyFailed(duty="scheduler", error=KeyError("no table"), first=True))
    await timer.run_once()
    assert await scene.slots() == []
    scene.clock.set(START.replace(minute=2, second=0))
    await timer.run_once()
    assert await scene.slots() == [2]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), TimeoutError()])
async def test_unavailable_store_does_not_start_a_fallback(scene: Scene, error: Exception) -> None:
    scene.timer(scene.schedule(), memory_mode=False)
    scene.fallback(DutyFailed(duty="scheduler", error=error, first=True))
    scene.fallback(DutyFailed(duty="maintenance", error=KeyError("x"), first=True))
    assert not scene.fallback.active
    assert scene.fallback.reason == ""


async def test_new_declarations_are_loaded(scene: Scene) -> None:
    """The id changes when the schedule was deleted and created again; the cursor stays."""
    schedule = scene.schedule()
    timer = scene.timer(schedule)
    await timer.run_once()
    moved = replace(schedule, id=ScheduleId("another"))
    scene.declared = [LocalSchedule(schedule=moved, memory_mode=True)]
    scene.clock.advance(REFRESH)
    await timer.run_once()
    scene.clock.set(START.replace(minute=1, second=0))
    await timer.run_once()
    assert [run.schedule_id for run in await scene.runs()] == ["another"]
    # A changed trigger is planned from now.
    scene.declared = [
        LocalSchedule(schedule=replace(moved, trigger=Every("3m")), memory_mode=True),
    ]
    scene.clock.advance(REFRESH)
    await timer.run_once()
    scene.clock.set(START.replace(minute=2, second=0))
    await timer.run_once()
    assert await scene.slots() == [1]
    scene.clock.set(START.replace(minute=3, second=0))
    await timer.run_once()
    assert await scene.slots(RunStatus.QUEUED, RunStatus.SKIPPED) == [1, 3]


async def test_ids_are_found_in_the_runs(scene: Scene) -> None:
    schedule = scene.schedule("known", namespace="catbird")
    await scene.store.add_runs([slot_run(schedule, START, START)])
    found = await ids_from_runs(scene.store, "catbird", ["known", "unknown"])
    assert found == {"known": schedule.id}


async def test_id_of_a_rare_schedule_is_found(scene: Scene) -> None:
    """Deleted and declared again, followed by a thousand runs of other schedules."""
    for generation in (1, 2):
        rare = scene.schedule(
            "rare", namespace="catbird", id=declared_id("catbird", "rare", generation)
        )
        await scene.store.add_runs([slot_run(rare, START, START)])
    busy = scene.schedule("busy", namespace="catbird")
    for number in range(1000):
        scene.clock.advance(1)
        now = scene.clock.now()
        await scene.store.add_runs([replace(slot_run(busy, now, now), id=RunId(f"r{number}"))])
    found = await ids_from_runs(scene.store, "catbird", ["busy", "rare"])
    assert found == {"busy": busy.id, "rare": declared_id("catbird", "rare", 2)}
