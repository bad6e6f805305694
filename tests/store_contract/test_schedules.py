"""Schedules: add, get, change."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from chimes.errors import AlreadyExists, Conflict, NotFound
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.planning import end_immediately, plan, slot_run
from chimes.model.run import Reason, Run, RunStatus, cancel
from chimes.model.schedule import (
    Schedule,
    delete_schedule,
    pause_schedule,
    record_run,
    restore_schedule,
    skip_next_slot,
)
from chimes.model.target import FlowTarget, TaskTarget
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every, Once, Trigger
from tests.builders import (
    ACTION,
    ALICE,
    BOB,
    FLOW,
    MINUTE,
    NOW,
    TASK,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
    full_schedule,
)
from tests.store_contract.scenes import all_runs, joined, running_slot


async def audit_verbs(store: Store) -> list[str]:
    return [entry.verb for entry in await store.list_audit(AuditQuery())]


async def test_schedule_round_trip_keeps_every_field(store: Store) -> None:
    for schedule in (
        full_schedule(),
        a_schedule(),
        a_schedule(labels={"x": None}),
        replace(full_schedule("task"), target=TASK),
        replace(full_schedule("flow"), target=FLOW),
        replace(full_schedule("action"), target=ACTION),
        a_schedule(target=TaskTarget(name="bare")),
        a_schedule(target=FlowTarget(name="bare")),
    ):
        assert await store.add_schedule(schedule) == schedule
        assert await store.get_schedule(schedule.id) == schedule


async def test_unknown_schedule_is_none(store: Store) -> None:
    assert await store.get_schedule(ScheduleId("nobody")) is None


async def test_schedule_id_is_never_reused(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule(), an_entry(verb="first"))
    with pytest.raises(AlreadyExists):
        await store.add_schedule(replace(schedule, name="other"), an_entry(verb="second"))
    assert await store.get_schedule(schedule.id) == schedule
    gone = await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    with pytest.raises(AlreadyExists):
        await store.add_schedule(schedule)
    assert await store.get_schedule(schedule.id) == gone
    assert await audit_verbs(store) == ["first"]


async def test_ids_are_case_sensitive(store: Store) -> None:
    lower = await store.add_schedule(a_schedule(id=ScheduleId("job")))
    upper = await store.add_schedule(a_schedule(id=ScheduleId("JOB")))
    assert await store.get_schedule(lower.id) == lower
    assert await store.get_schedule(upper.id) == upper


async def test_change_gets_the_current_value_and_the_store_time(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(a_schedule())
    now = clock.advance(5.000007)
    seen: list[tuple[Schedule, datetime]] = []

    def change(before: Schedule, at: datetime) -> Schedule:
        seen.append((before, at))
        return pause_schedule(before, at, "user:alice", note="lunch", until=at + MINUTE)

    after = await store.change_schedule(schedule.id, change, an_entry(verb="pause"))
    assert after == pause_schedule(schedule, now, "user:alice", note="lunch", until=now + MINUTE)
    assert await store.get_schedule(schedule.id) == after
    assert seen[-1] == (schedule, now)
    assert await audit_verbs(store) == ["pause"]


async def test_every_field_can_change(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule(id=ScheduleId("full")))
    after = await store.change_schedule(schedule.id, lambda s, now: full_schedule())
    assert after == full_schedule()
    assert await store.get_schedule(schedule.id) == full_schedule()


async def test_raising_change_changes_nothing(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())

    def refuse(before: Schedule, now: datetime) -> Schedule:
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        await store.change_schedule(
            schedule.id, refuse, an_entry(), runs=lambda s, now: [a_run(schedule)]
        )
    assert await store.get_schedule(schedule.id) == schedule
    assert await all_runs(store) == {}
    assert await audit_verbs(store) == []


async def test_raising_run_factory_changes_nothing(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())

    def refuse(before: Schedule, now: datetime) -> list[Run]:
        raise Conflict("no rows")

    with pytest.raises(Conflict, match="no rows"):
        await store.change_schedule(
            schedule.id, lambda s, now: pause_schedule(s, now, "me"), an_entry(), runs=refuse
        )
    assert await store.get_schedule(schedule.id) == schedule
    assert await audit_verbs(store) == []


async def test_changing_an_unknown_or_deleted_schedule_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.change_schedule(ScheduleId("nobody"), lambda s, now: s, an_entry())
    schedule = await store.add_schedule(a_schedule())
    gone = await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    with pytest.raises(NotFound):
        await store.change_schedule(schedule.id, lambda s, now: schedule, an_entry())
    assert await store.get_schedule(schedule.id) == gone
    assert await audit_verbs(store) == []


async def test_deleted_schedule_can_be_restored(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    back = await store.change_schedule(
        schedule.id,
        lambda s, now: restore_schedule(s, now, "me", enabled=True),
        an_entry(verb="restore"),
        deleted=True,
    )
    assert (back.deleted_at, back.enabled) == (None, True)
    assert await store.get_schedule(schedule.id) == back
    assert (await store.list_schedules(ScheduleQuery())).items == (back,)
    assert await store.count_schedules(ScheduleQuery()) == 1
    assert await audit_verbs(store) == ["restore"]


# A manual skip writes the run and moves the cursor in one transaction.
async def test_runs_of_a_change_are_built_from_the_value_before_it(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(a_schedule())
    slot = schedule.next_slot
    assert slot is not None

    def skipped(before: Schedule, now: datetime) -> list[Run]:
        assert before.next_slot is not None
        run = slot_run(before, before.next_slot, now)
        return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

    after = await store.change_schedule(
        schedule.id, lambda s, now: skip_next_slot(s, now, "me"), runs=skipped
    )
    (row,) = (await all_runs(store)).values()
    assert row == skipped(schedule, clock.now())[0]
    assert after.next_slot == slot + MINUTE

    back = await store.change_schedule(
        schedule.id, lambda s, now: replace(s, next_slot=slot, next_run_at=slot)
    )
    other = replace(slot_run(back, slot, clock.now()), id="other id", priority=9)
    await store.change_schedule(
        schedule.id, lambda s, now: skip_next_slot(s, now, "me"), runs=lambda s, now: [other]
    )
    assert await all_runs(store) == {row.id: row}


async def test_deleting_cancels_queued_runs_and_lets_running_ones_finish(
    store: Store, clock: SettableClock
) -> None:
    schedule, running = await running_slot(store)
    waiting, blocked = await store.add_runs(
        [a_run(schedule), a_run(schedule, concurrency_key=f"schedule:{schedule.id}")]
    )
    assert (waiting.blocked, blocked.blocked) == (False, True)
    (other,) = await store.add_runs([a_run()])
    now = clock.advance(2)
    gone = await store.change_schedule(schedule.id, lambda s, at: delete_schedule(s, at, "me"))
    assert gone == delete_schedule(schedule, now, "me")
    assert await all_runs(store) == {
        running.id: running,
        waiting.id: cancel(waiting, Reason.SCHEDULE_DELETED, now),
        blocked.id: cancel(blocked, Reason.SCHEDULE_DELETED, now),
        other.id: other,
    }
    (ended,) = (await store.finish([a_completion(running, now)])).accepted
    assert ended.status is RunStatus.SUCCEEDED
    assert await store.get_schedule(schedule.id) == record_run(gone, ended)


async def test_deleting_cancels_a_run_that_waits_for_its_retry(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store)
    await store.finish([a_retry(run, clock.now(), MINUTE)])
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    (ended,) = (await all_runs(store)).values()
    assert (ended.status, ended.reason) == (RunStatus.CANCELED, Reason.SCHEDULE_DELETED)
    clock.advance(MINUTE)
    assert await store.claim(claim_request()) == ()


async def test_concurrent_changes_do_not_overwrite_each_other(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())

    async def raise_priority() -> None:
        await store.change_schedule(schedule.id, lambda s, now: replace(s, priority=s.priority + 1))

    await asyncio.gather(*(raise_priority() for _ in range(25)))
    assert await store.get_schedule(schedule.id) == replace(schedule, priority=25)


async def test_concurrent_change_and_firing_lose_nothing(store: Store) -> None:
    schedule = await store.add_schedule(due_schedule())

    async def edit(number: int) -> None:
        await store.change_schedule(
            schedule.id, lambda s, now: replace(s, labels={**s.labels, str(number): None})
        )

    await asyncio.gather(edit(1), store.fire_due(plan, limit=5), edit(2))
    # The first pass skips a schedule that an edit has locked.
    await store.fire_due(plan, limit=5)
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert set(after.labels) == {"1", "2"}
    assert (after.last_slot, after.next_slot, after.fired_count) == (NOW, NOW + MINUTE, 1)


async def test_next_due_is_the_earliest_enabled_schedule(store: Store) -> None:
    assert await store.next_due() is None
    await store.add_schedule(due_schedule(NOW, enabled=False))
    assert await store.next_due() is None
    await store.add_schedule(due_schedule(NOW + 3 * MINUTE))
    first = await store.add_schedule(due_schedule(NOW - MINUTE, next_run_at=NOW + MINUTE))
    assert await store.next_due() == NOW + MINUTE
    await store.change_schedule(first.id, lambda s, now: delete_schedule(s, now, "me"))
    assert await store.next_due() == NOW + 3 * MINUTE


async def test_next_due_follows_a_moved_cursor(store: Store, clock: SettableClock) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule())
    assert await store.next_due() == NOW
    await store.fire_due(plan, limit=10)
    assert await store.next_due() == NOW + MINUTE
    await store.change_schedule(schedule.id, lambda s, now: pause_schedule(s, now, "me"))
    assert await store.next_due() is None


async def test_zones_of_enabled_schedules_are_listed(store: Store) -> None:
    assert await store.zones_in_use() == {}

    async def add(trigger: Trigger, **given: Any) -> ScheduleId:
        return (await store.add_schedule(due_schedule(trigger=trigger, **given))).id

    tokyo = [
        await add(Cron("0 9 * * *", timezone="Asia/Tokyo"), owner=owner) for owner in (ALICE, BOB)
    ]
    prefixed = await add(Cron("CRON_TZ=Europe/Paris 0 9 * * *"), owner=ALICE)
    once = await add(Once("2027-01-01T09:00:00", timezone="Europe/Paris"), owner=ALICE)
    every = await add(Every("1h"), owner=BOB)
    await add(Cron("0 9 * * *", timezone="Asia/Bangkok"), enabled=False)
    ended = await add(Cron("0 9 * * *", timezone="Asia/Seoul"))
    await store.change_schedule(ended, lambda s, now: delete_schedule(s, now, "me"))
    await add(Cron("0 9 * * *", timezone="Asia/Manila"), next_run_at=None, next_slot=None)
    assert await store.zones_in_use() == {
        "Asia/Tokyo": tuple(sorted(tokyo)),
        "Europe/Paris": tuple(sorted([prefixed, once])),
        "UTC": (every,),
    }
    assert await store.zones_in_use(BOB) == {"Asia/Tokyo": (tokyo[1],), "UTC": (every,)}
