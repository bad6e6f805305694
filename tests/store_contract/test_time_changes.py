"""The store's clock is set back, the rules of a time zone change, a slot is moved and then edited:
no slot is lost and none runs twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.planning import plan
from chimes.model.schedule import (
    apply_edit,
    delete_schedule,
    move_next_run,
    pause_schedule,
    restore_schedule,
    resume_schedule,
)
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every
from tests.builders import MINUTE, NOW, SECOND, a_completion, claim_request, due_schedule
from tests.store_contract.scenes import all_runs, joined

BACK = timedelta(minutes=10)


async def slots(store: Store) -> list[object]:
    return sorted(run.slot for run in (await all_runs(store)).values())  # type: ignore[type-var]


async def test_a_clock_set_back_runs_no_slot_again(store: Store, clock: SettableClock) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule(NOW, trigger=Every(MINUTE, anchor=NOW)))
    fired = await store.fire_due(plan, limit=10, request=claim_request(free=1))
    assert len(fired.claimed) == 1
    cursor = (await store.get_schedule(schedule.id)).next_slot
    assert cursor == NOW + MINUTE
    clock.set(NOW - BACK)
    for _ in range(3):
        again = await store.fire_due(plan, limit=10, request=claim_request(free=1))
        assert (again.claimed, again.others) == ((), ())
        clock.advance(60)
    assert (await store.get_schedule(schedule.id)).next_slot == cursor
    # The run that was executing then is recorded, once.
    await store.finish([a_completion(fired.claimed[0], clock.now())])
    assert (await store.finish([a_completion(fired.claimed[0], clock.now())])).refused == ()
    clock.set(NOW + MINUTE)
    assert len((await store.fire_due(plan, limit=10)).others) == 1
    assert await slots(store) == [NOW, NOW + MINUTE]


async def test_new_zone_rules_apply_after_the_planned_slot(
    store: Store, clock: SettableClock
) -> None:
    """The stored slot is of the former rules, an hour later than the present ones say."""
    trigger = Cron("0 9 * * *", timezone="Asia/Bangkok")
    present = trigger.next_after(NOW)
    assert present is not None
    planned = present + timedelta(hours=1)
    schedule = await store.add_schedule(due_schedule(planned, trigger=trigger))
    clock.set(present)
    assert (await store.fire_due(plan, limit=10)).others == ()
    clock.set(planned)
    assert len((await store.fire_due(plan, limit=10)).others) == 1
    after = await store.get_schedule(schedule.id)
    assert after.next_slot == present + timedelta(days=1)
    clock.set(present + timedelta(days=1))
    assert len((await store.fire_due(plan, limit=10)).others) == 1
    assert await slots(store) == [planned, present + timedelta(days=1)]


@pytest.mark.parametrize("way", ["edit", "pause", "restore"])
@pytest.mark.parametrize("moved_to", [NOW + 20 * SECOND, NOW + 50 * SECOND])
async def test_a_moved_slot_that_is_edited_runs_once(
    store: Store, clock: SettableClock, way: str, moved_to: object
) -> None:
    """Before its new time; the slot keeps its identity."""
    slot = NOW + 30 * SECOND
    schedule = await store.add_schedule(due_schedule(slot, trigger=Every(MINUTE, anchor=slot)))
    await store.change_schedule(
        schedule.id,
        lambda s, now: move_next_run(s, moved_to, now, "me"),  # type: ignore[arg-type]
    )
    clock.set(NOW + 10 * SECOND)
    if way == "edit":
        await store.change_schedule(
            schedule.id, lambda s, now: apply_edit(s, replace(s, labels={"a": "b"}), now, "me")
        )
    elif way == "pause":
        await store.change_schedule(schedule.id, lambda s, now: pause_schedule(s, now, "me"))
        await store.change_schedule(schedule.id, lambda s, now: resume_schedule(s, now, "me"))
    else:
        await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
        await store.change_schedule(
            schedule.id, lambda s, now: restore_schedule(s, now, "me", enabled=True), deleted=True
        )
    for _ in range(8):
        clock.advance(10)
        await store.fire_due(plan, limit=10)
    assert await slots(store) == [slot, slot + MINUTE]
