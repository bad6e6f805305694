"""A slot moved beyond the following one: it is queued at once, and no later change undoes that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from chimes.model import replace
from chimes.model.planning import end_immediately, manual_run, plan, slot_run
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    delete_schedule,
    pause_schedule,
    restore_schedule,
    resume_schedule,
    skip_next_slot,
)
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import MINUTE, NOW, SECOND, a_completion, claim_request, due_schedule
from tests.store_contract.scenes import joined

SLOT = NOW + MINUTE
#: Between two later slots.
MOVED_TO = SLOT + 2.5 * MINUTE


async def move_beyond_following(store: Store, schedule: Schedule, to: datetime) -> Schedule:
    """As `ScheduleService.move` does."""

    def runs(before: Schedule, now: datetime) -> Sequence[Run]:
        assert before.next_slot is not None
        run = slot_run(before, before.next_slot, now)
        return [replace(run, planned_at=to, available_at=to, concurrency_key=None)]

    def change(before: Schedule, now: datetime) -> Schedule:
        after = skip_next_slot(before, now, "me")
        return replace(after, fired_count=before.fired_count + 1)

    return await store.change_schedule(schedule.id, change, runs=runs)


async def change_later(store: Store, schedule: Schedule, way: str, now: datetime) -> None:
    match way:
        case "edit":
            await store.change_schedule(
                schedule.id, lambda s, now: apply_edit(s, replace(s, labels={"a": "b"}), now, "me")
            )
        case "pause":
            await store.change_schedule(schedule.id, lambda s, now: pause_schedule(s, now, "me"))
            await store.change_schedule(schedule.id, lambda s, now: resume_schedule(s, now, "me"))
        case "run now":
            # The second one finds the key full.
            for seconds in (0, 1):
                await store.add_runs([manual_run(schedule, now + seconds * SECOND)])


async def executed(
    store: Store, clock: SettableClock, until: datetime
) -> list[tuple[datetime | None, datetime]]:
    """Runs everything every half minute; returns slot and start of each run of a slot."""
    found = []
    while clock.now() <= until:
        await joined(store)
        while True:
            fired = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
            runs = [*fired, *await store.claim(claim_request())]
            if not runs:
                break
            found += [(r.slot, clock.now()) for r in runs if r.origin is Origin.SCHEDULE]
            await store.finish([a_completion(run, clock.now()) for run in runs])
        clock.advance(MINUTE / 2)
    return found


@pytest.mark.parametrize("way", ["nothing", "edit", "pause", "run now"])
@pytest.mark.parametrize("moved", [1, 2])
async def test_moved_slots_run_once_at_their_new_time(
    store: Store, clock: SettableClock, way: str, moved: int
) -> None:
    await joined(store)
    policy = Policy(overlap=Overlap.QUEUE)
    schedule = await store.add_schedule(due_schedule(SLOT, policy=policy))
    for _ in range(moved):
        await move_beyond_following(store, schedule, MOVED_TO)
    clock.advance(1)
    await change_later(store, schedule, way, clock.now())
    after = await store.get_schedule(schedule.id)
    assert after is not None
    following = SLOT + moved * MINUTE
    assert (after.next_slot, after.next_run_at) == (following, following)
    assert after.fired_count == moved
    clock.set(NOW)
    others = [SLOT + number * MINUTE for number in range(moved, 4)]
    expected = [(SLOT + number * MINUTE, MOVED_TO) for number in range(moved)]
    expected += [(slot, slot) for slot in others]
    assert sorted(await executed(store, clock, SLOT + 3 * MINUTE)) == sorted(expected)


async def test_skipped_slot_is_not_planned_again(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(due_schedule(SLOT))

    def runs(before: Schedule, now: datetime) -> Sequence[Run]:
        run = slot_run(before, SLOT, now)
        return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

    await store.change_schedule(schedule.id, lambda s, now: skip_next_slot(s, now, "me"), runs=runs)
    await change_later(store, schedule, "pause", NOW)
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert after.next_run_at == SLOT + MINUTE
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    after = await store.change_schedule(
        schedule.id, lambda s, now: restore_schedule(s, now, "me", enabled=True), deleted=True
    )
    assert after.next_run_at == SLOT + MINUTE


# Only slots that have their run are passed over.
async def test_new_trigger_is_planned_from_now_on(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(due_schedule(SLOT))
    await move_beyond_following(store, schedule, MOVED_TO)
    trigger = Every("20s", anchor=NOW)
    await store.change_schedule(
        schedule.id, lambda s, now: apply_edit(s, replace(s, trigger=trigger), now, "me")
    )
    await change_later(store, schedule, "pause", NOW)
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert after.next_run_at == NOW + 20 * SECOND
    clock.set(SLOT - SECOND)
    await change_later(store, schedule, "pause", NOW)
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert after.next_run_at == SLOT + 20 * SECOND
