"""What nothing uses any more is deleted: schedules deleted long ago, old keys, checkpoints of
runs."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.errors import AlreadyExists
from chimes.model import replace
from chimes.model.access import ApiKey
from chimes.model.checkpoint import run_checkpoint_names, schedule_checkpoint_names
from chimes.model.event import event_document
from chimes.model.ids import KeyId, RunId, ScheduleId, declared_id
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, delete_schedule, restore_schedule
from chimes.model.target import AgentTarget
from chimes.store.port import Item, Store
from chimes.testing import SettableClock
from tests.builders import HOUR, MINUTE, NOW, a_key, a_run, a_schedule, due_schedule
from tests.store_contract.stores import Home

DAY = timedelta(days=1)


async def deleted(store: Store, schedule: Schedule) -> Schedule:
    await store.add_schedule(schedule)
    return await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "eva"))


async def everything(store: Store) -> list[Item]:
    return [item async for item in store.dump()]


async def ids_of_schedules(store: Store) -> set[ScheduleId]:
    return {item.id for item in await everything(store) if isinstance(item, Schedule)}


async def prune(store: Store, before: datetime, limit: int = 100) -> None:
    """Until nothing is left to delete."""
    while await store.prune_unused(before=before, limit=limit):
        pass


async def test_schedules_deleted_long_ago_are_purged(
    store: Store, clock: SettableClock, home: Home
) -> None:
    old = await deleted(store, a_schedule())
    documents = schedule_checkpoint_names(old.id)
    assert event_document(old.id) == documents[0]
    for name in (*documents, "events:due"):
        await store.set_checkpoint(name, "{}")
    present = await store.add_schedule(a_schedule(next_slot=NOW + HOUR, next_run_at=NOW + HOUR))
    clock.advance(10)
    edge = clock.now()
    young = await deleted(store, a_schedule())
    await prune(store, edge)
    assert await ids_of_schedules(store) == {present.id, young.id}
    assert await store.get_schedule(old.id) is None
    assert [await store.get_checkpoint(name) for name in documents] == [None] * 4
    assert await store.get_checkpoint("events:due") is not None
    if home.kind.durable:
        store = await home.reopen()
        assert await ids_of_schedules(store) == {present.id, young.id}
    assert await store.next_due() == NOW + HOUR
    # The id is free again, and nothing of the old schedule is left.
    again = replace(old, deleted_at=None, enabled=True, name="again")
    assert await store.add_schedule(again) == again
    assert await store.get_schedule(old.id) == again


async def test_schedules_are_purged_in_batches(store: Store, clock: SettableClock) -> None:
    for _number in range(5):
        await deleted(store, a_schedule())
        clock.advance(1)
    assert await store.prune_unused(before=clock.now(), limit=2) >= 2
    assert len(await ids_of_schedules(store)) == 3
    await prune(store, clock.now(), limit=2)
    assert await ids_of_schedules(store) == set()
    assert await store.prune_unused(before=clock.now(), limit=2) == 0


async def test_schedules_with_runs_are_not_purged(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(a_schedule())
    moment = NOW - MINUTE
    await store.add_runs(
        [a_run(schedule, slot=moment, status=RunStatus.SUCCEEDED, finished_at=moment)]
    )
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "eva"))
    clock.advance(HOUR)
    await prune(store, clock.now())
    assert await ids_of_schedules(store) == {schedule.id}
    await store.prune_runs(before=clock.now(), limit=10)
    await prune(store, clock.now())
    assert await ids_of_schedules(store) == set()


async def test_schedules_with_purged_slots_ahead_are_not_purged(
    store: Store, clock: SettableClock
) -> None:
    """Slots whose runs were deleted must not fire again under the same id."""
    ahead = NOW + 2 * HOUR
    schedule = await deleted(store, a_schedule(purged_until=ahead))
    clock.advance(HOUR)
    await prune(store, clock.now())
    assert await ids_of_schedules(store) == {schedule.id}
    clock.advance(2 * HOUR)
    await prune(store, clock.now())
    assert await ids_of_schedules(store) == set()


async def test_declared_schedules_are_not_purged(store: Store, clock: SettableClock) -> None:
    """The next generation is found by the ids of the earlier ones."""
    first = await deleted(store, a_schedule(id=declared_id("default", "nightly", 1)))
    other = await deleted(store, a_schedule())
    clock.advance(HOUR)
    await prune(store, clock.now(), limit=1)
    assert await ids_of_schedules(store) == {first.id}
    assert other.id != first.id
    try:
        await store.add_schedule(a_schedule(id=first.id))
    except AlreadyExists:
        return
    raise AssertionError("the id of a declared schedule was used again")


async def test_restored_schedules_are_not_purged(store: Store, clock: SettableClock) -> None:
    schedule = await deleted(store, due_schedule())
    clock.advance(HOUR)
    await store.change_schedule(
        schedule.id,
        lambda s, now: restore_schedule(s, now, "eva", enabled=True),
        deleted=True,
    )
    clock.advance(HOUR)
    await prune(store, clock.now())
    assert await ids_of_schedules(store) == {schedule.id}
    fired = await store.fire_due(plan, limit=10)
    assert [before.id for before, _plan in fired.plans] == [schedule.id]


async def test_old_keys_are_deleted(store: Store, clock: SettableClock) -> None:
    now = clock.now()

    async def add(name: str, **given: datetime | None) -> ApiKey:
        return await store.add_key(a_key(id=KeyId(name), **given))

    await add("revoked", revoked_at=now - DAY)
    await add("expired", expires_at=now - DAY)
    await add("revoked now", revoked_at=now)
    await add("expires", expires_at=now + DAY)
    await add("used")
    await prune(store, now)
    assert {key.id for key in await store.list_keys()} == {"revoked now", "expires", "used"}


async def test_last_key_that_is_not_revoked_stays(store: Store, clock: SettableClock) -> None:
    """Without it the API would need no key."""
    now = clock.now()
    for number in range(3):
        key = a_key(
            id=KeyId(f"expired {number}"),
            created_at=now - (9 - number) * DAY,
            expires_at=now - DAY,
        )
        await store.add_key(key)
    await store.add_key(a_key(id=KeyId("revoked"), revoked_at=now - DAY))
    await prune(store, now)
    assert [key.id for key in await store.list_keys()] == ["expired 2"]


async def test_checkpoints_of_a_run_are_deleted_with_it(store: Store, home: Home) -> None:
    moment = NOW - MINUTE
    gone, kept = (
        a_run(
            id=RunId(name),
            target=AgentTarget(prompt="hello"),
            status=RunStatus.SUCCEEDED,
            created_at=at,
            finished_at=at,
        )
        for name, at in (("gone", moment), ("kept", NOW))
    )
    await store.add_runs([gone, kept])
    for run in (gone, kept):
        for name in run_checkpoint_names(run.id):
            await store.set_checkpoint(name, "{}")
    await store.set_checkpoint("source/collection", "{}")
    assert await store.prune_runs(before=NOW, limit=10) == 1
    if home.kind.durable:
        store = await home.reopen()
    left = {
        name
        for name in (*run_checkpoint_names(gone.id), *run_checkpoint_names(kept.id))
        if await store.get_checkpoint(name) is not None
    }
    assert left == set(run_checkpoint_names(kept.id))
    assert await store.get_checkpoint("source/collection") is not None
