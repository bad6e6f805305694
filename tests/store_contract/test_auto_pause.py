"""`auto_pause_after`: failed runs in a row pause their schedule, once, in the completing
transaction."""

from __future__ import annotations

import asyncio
from datetime import datetime

from chimes.model import replace
from chimes.model.listing import AuditQuery
from chimes.model.policy import Policy
from chimes.model.recipient import NotifyOn
from chimes.model.run import AttemptEnd, Run, RunStatus
from chimes.model.schedule import Schedule, is_paused_by_failures, resume_schedule
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import CHAT, LEASE, MINUTE, a_completion, a_run, a_schedule, claim_request
from tests.store_contract.scenes import all_deliveries, joined
from tests.store_contract.stores import Home

FAILED, TIMEOUT, SUCCEEDED = AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.SUCCEEDED


async def paused_after(store: Store, limit: int, clock: SettableClock) -> Schedule:
    await joined(store)
    policy = Policy(auto_pause_after=limit, delivery=(replace(CHAT, on=(NotifyOn.RECOVERY,)),))
    now = clock.now()
    return await store.add_schedule(a_schedule(policy=policy, created_at=now, updated_at=now))


async def started(store: Store, schedule: Schedule, clock: SettableClock, count: int) -> list[Run]:
    runs: list[Run] = []
    for _number in range(count):
        now = clock.advance(0.001)
        given = {"created_at": now, "planned_at": now, "available_at": now}
        runs.append(a_run(schedule, slot=None, concurrency_key=None, **given))
    await store.add_runs(runs)
    ids = {run.id for run in runs}
    claimed = [run for run in await store.claim(claim_request(free=1000)) if run.id in ids]
    return sorted(claimed, key=lambda run: run.created_at)


async def end(
    store: Store, schedule: Schedule, clock: SettableClock, *ends: AttemptEnd
) -> Schedule:
    for each in ends:
        (run,) = await started(store, schedule, clock, 1)
        await store.finish([a_completion(run, clock.now(), each)])
    return await current(store, schedule)


async def current(store: Store, schedule: Schedule) -> Schedule:
    found = await store.get_schedule(schedule.id)
    assert found is not None
    return found


async def pauses(store: Store) -> int:
    entries = await store.list_audit(AuditQuery())
    return sum((each.verb, each.actor) == ("pause", "chimes") for each in entries)


async def messages(store: Store) -> list[str]:
    found = (await all_deliveries(store)).values()
    return sorted(each.recipient.channel for each in found if each.notify_on is NotifyOn.PAUSED)


async def resume(store: Store, schedule: Schedule, clock: SettableClock) -> Schedule:
    clock.advance(0.001)

    def change(before: Schedule, now: datetime) -> Schedule:
        return resume_schedule(before, now, "me")

    return await store.change_schedule(schedule.id, change)


async def test_failures_in_a_row_pause_the_schedule_once(
    store: Store, clock: SettableClock
) -> None:
    schedule = await paused_after(store, 3, clock)
    assert (await end(store, schedule, clock, FAILED, TIMEOUT, SUCCEEDED, FAILED)).enabled
    canceled = await end(store, schedule, clock, AttemptEnd.CANCELED, TIMEOUT)
    assert canceled.enabled, "two failures since the success; a canceled run does not count"
    late, last = await started(store, schedule, clock, 2)
    completion = a_completion(last, clock.now(), FAILED)
    await store.finish([completion])
    paused = await current(store, schedule)
    assert not paused.enabled
    assert (paused.next_run_at, paused.version) == (None, schedule.version + 1)
    assert str(paused.pause_note) == "paused after 3 failures in a row"
    assert is_paused_by_failures(paused)
    assert (paused.last_status, paused.updated_by) == (RunStatus.FAILED, "chimes")
    # To every recipient, whatever it selects, and to the inbox of the owner.
    assert await messages(store) == ["inbox", "telegram"]
    await store.finish([completion])
    await store.finish([a_completion(late, clock.now(), FAILED)])
    assert (await current(store, schedule)).version == paused.version
    assert await pauses(store) == 1
    assert await messages(store) == ["inbox", "telegram"]


async def test_resuming_starts_the_count_again(store: Store, clock: SettableClock) -> None:
    schedule = await paused_after(store, 2, clock)
    old, *_others = await started(store, schedule, clock, 3)
    assert not (await end(store, schedule, clock, FAILED, FAILED)).enabled
    resumed = await resume(store, schedule, clock)
    assert (resumed.enabled, resumed.pause_note) == (True, "")
    await store.finish([a_completion(old, clock.now(), FAILED)])
    assert (await end(store, resumed, clock, FAILED)).enabled, "a run from before does not count"
    assert not (await end(store, resumed, clock, FAILED)).enabled
    assert await pauses(store) == 2
    assert await messages(store) == ["inbox", "inbox", "telegram", "telegram"]


async def test_failures_of_one_batch_and_of_lost_nodes_count(
    store: Store, clock: SettableClock
) -> None:
    schedule = await paused_after(store, 2, clock)
    both = await started(store, schedule, clock, 2)
    await store.finish([a_completion(run, clock.now(), FAILED) for run in both])
    assert not (await current(store, schedule)).enabled
    # A run whose nodes crash again and again fails without a completion.
    crashing = await paused_after(store, 1, clock)
    (run,) = await started(store, crashing, clock, 1)
    for number in range(3):
        clock.advance(LEASE.total_seconds() + 1)
        (after,) = await store.rescue(limit=10)
        node = f"node-{number + 2}"
        await joined(store, node)
        await store.claim(claim_request(node, 10))
    assert (after.id, after.status) == (run.id, RunStatus.FAILED)
    assert is_paused_by_failures(await current(store, crashing))
    assert await pauses(store) == 2


async def test_without_the_option_failures_pause_nothing(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    schedule = await store.add_schedule(a_schedule(updated_at=clock.now()))
    assert (await end(store, schedule, clock, *[FAILED] * 6)).enabled
    assert await pauses(store) == 0


async def test_runs_that_fail_on_several_nodes_at_once_pause_it_once(
    shared_home: Home, clock: SettableClock
) -> None:
    first, second = await shared_home.open(), await shared_home.open()
    for number in range(3):
        schedule = await paused_after(first, 5, clock)
        runs = await started(first, schedule, clock, 8)
        now = clock.now()
        await asyncio.gather(
            *(
                (first, second)[place % 2].finish([a_completion(run, now, FAILED)])
                for place, run in enumerate(runs)
            )
        )
        paused = await current(second, schedule)
        assert is_paused_by_failures(paused)
        assert paused.version == schedule.version + 1
        assert await pauses(first) == number + 1
        clock.advance(MINUTE.total_seconds() / 60)
        await first.join((await first.nodes())[0], LEASE)
