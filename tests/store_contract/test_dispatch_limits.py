"""Changes of schedules while dispatch is limited."""

from __future__ import annotations

from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.services.schedules.prompts import plan_without_prompts
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Cron
from tests.builders import HOUR, a_schedule
from tests.services.conftest import any_target

OTHER = Cron("30 12 * * *", timezone="UTC")
ME = Actor()


async def add_due_schedules(
    store: Store, clock: SettableClock, count: int, namespace: str
) -> list[Schedule]:
    trigger = Cron("0 * * * *", timezone="UTC")
    schedules = ScheduleService(store, ScheduleRules(store, check_target=any_target))
    made = [
        await schedules.create(
            ME, a_schedule(id=ScheduleId(f"s{number}"), namespace=namespace, trigger=trigger)
        )
        for number in range(count)
    ]
    clock.advance(HOUR)
    return made


async def runs_of(store: Store) -> list[tuple[str | None, RunStatus]]:
    page = await store.list_runs(RunQuery(limit=None))
    return sorted((run.schedule_id, run.status) for run in page.items)


# The scheduler of prompts is disabled.
async def test_edit_fires_no_slots_of_a_disabled_scheduler(
    store: Store, clock: SettableClock
) -> None:
    first, second, _ = await add_due_schedules(store, clock, 3, "softnix")
    service = ScheduleService(
        store, ScheduleRules(store, check_target=any_target), planner=plan_without_prompts
    )
    await service.change(ME, first.id, lambda s: replace(s, trigger=OTHER))
    assert await runs_of(store) == [("s0", RunStatus.SKIPPED)]
    # The same after a scheduler pass has postponed it.
    await store.fire_due(plan_without_prompts, limit=10)
    await service.change(ME, second.id, lambda s: replace(s, trigger=OTHER))
    assert await runs_of(store) == [("s0", RunStatus.SKIPPED), ("s1", RunStatus.SKIPPED)]


async def test_edit_through_another_interface_fires_no_suspended_slots(
    store: Store, clock: SettableClock
) -> None:
    await add_due_schedules(store, clock, 2, "softnix")
    other = await ScheduleService(store, ScheduleRules(store, check_target=any_target)).create(
        ME, a_schedule(id=ScheduleId("n"), trigger=Cron("0 * * * *", timezone="UTC"))
    )
    clock.advance(HOUR)
    service = ScheduleService(
        store, ScheduleRules(store, check_target=any_target), planner=plan_without_prompts
    )
    await service.change(ME, other.id, lambda s: replace(s, trigger=OTHER))
    assert await runs_of(store) == [("n", RunStatus.QUEUED)]


async def test_edit_fires_no_other_schedules_under_a_dispatch_cap(
    store: Store, clock: SettableClock
) -> None:
    made = await add_due_schedules(store, clock, 5, "native")
    service = ScheduleService(
        store, ScheduleRules(store, check_target=any_target), dispatch_capped=True
    )
    await service.change(ME, made[4].id, lambda s: replace(s, enabled=False))
    assert await runs_of(store) == [("s4", RunStatus.SKIPPED)]
    await service.change(ME, made[3].id, lambda s: replace(s, trigger=OTHER))
    assert await runs_of(store) == [("s3", RunStatus.QUEUED), ("s4", RunStatus.SKIPPED)]
    # The other schedules are still due.
    fired = await store.fire_due(plan, limit=10)
    assert sorted(run.schedule_id or "" for run in fired.others) == ["s0", "s1", "s2"]
