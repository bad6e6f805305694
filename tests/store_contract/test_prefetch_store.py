"""Prefetch: many schedules are claimed before they are due, and changes still apply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.model.ids import slot_run_id
from chimes.model.listing import RunQuery
from chimes.model.planning import (
    PREFETCH_CUTOFF,
    PREFETCH_MINIMUM,
    FireContext,
    PolicyPlan,
    manual_run,
    plan,
)
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Reason, Run, RunStatus, release_or_cancel
from chimes.model.schedule import (
    Dependency,
    Schedule,
    apply_edit,
    delete_schedule,
    move_next_run,
    pause_schedule,
    reschedule_next,
    resume_schedule,
    skip_next_slot,
)
from chimes.model.target import TaskTarget
from chimes.store.port import FireResult, PrefetchStore, PrefetchWindow, Store
from chimes.store.sql import SqlStore
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import NODE, all_runs, joined
from tests.store_contract.stores import KINDS, Home

AHEAD = timedelta(seconds=1.5)
SLOT = NOW + SECOND
POSTGRES = next(kind for kind in KINDS if kind.name == "postgresql")


@pytest.fixture
async def ahead_store(tmp_path: Path, clock: SettableClock) -> AsyncIterator[SqlStore]:
    """A store that looks ahead, apart from the one that every test can have."""
    (tmp_path / "ahead").mkdir()
    home = Home(POSTGRES, tmp_path / "ahead", clock)
    store = await home.open()
    assert isinstance(store, SqlStore)
    assert store.supports_prefetch
    yield store
    await home.close()


async def crowd(
    store: Store, count: int = PREFETCH_MINIMUM, slot: datetime = SLOT, **given: Any
) -> None:
    await store.load([due_schedule(slot, **given) for _ in range(count)])


async def a_crowd_ahead(store: Store, **given: Any) -> FireResult:
    """All of a crowd in the hands of node-1, a second before its time."""
    await joined(store)
    await crowd(store, **given)
    return await looked(store)


async def looked(store: Store, node_id: str = "node-1", **given: Any) -> FireResult:
    return await store.fire_due(
        plan, limit=1000, request=claim_request(node_id, **({"free": 1000} | given)), prefetch=AHEAD
    )


def holds(runs: Sequence[Run]) -> list[tuple[Any, int]]:
    return [(run.id, run.fence) for run in runs]


async def the(store: Store, run: Run) -> Schedule:
    assert run.schedule_id is not None
    found = await store.get_schedule(run.schedule_id)
    assert found is not None
    return found


async def test_every_store_takes_what_is_due(store: Store, clock: SettableClock) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule())
    later = await store.add_schedule(due_schedule(SLOT))
    fired = await looked(store)
    assert [run.schedule_id for run in fired.claimed] == [schedule.id]
    assert await store.get_schedule(later.id) == later
    assert not fired.claimed[0].prefetched


TENTH = timedelta(milliseconds=10)


@pytest.mark.parametrize("count", [0, PREFETCH_MINIMUM - 1])
async def test_few_do_not_press(ahead_store: SqlStore, count: int) -> None:
    await crowd(ahead_store, count)
    assert await ahead_store.next_prefetch(MINUTE, TENTH) is None


async def test_a_crowd_presses_the_earlier_the_larger_it_is(ahead_store: SqlStore) -> None:
    slot = NOW + 5 * SECOND
    await crowd(ahead_store, PREFETCH_MINIMUM, slot)
    expected = PrefetchWindow(due=slot, begin_by=slot - PREFETCH_MINIMUM * TENTH)
    assert await ahead_store.next_prefetch(MINUTE, TENTH) == expected
    await crowd(ahead_store, PREFETCH_MINIMUM, slot)
    expected = PrefetchWindow(due=slot, begin_by=slot - 2 * PREFETCH_MINIMUM * TENTH)
    assert await ahead_store.next_prefetch(MINUTE, TENTH) == expected
    assert await ahead_store.next_prefetch(4 * SECOND, TENTH) is None


async def test_who_comes_before_a_crowd_is_taken_before_it(ahead_store: SqlStore) -> None:
    near, far = NOW + 5 * SECOND, NOW + 6 * SECOND
    await crowd(ahead_store, 10, near)
    await crowd(ahead_store, 3 * PREFETCH_MINIMUM, far)
    await crowd(ahead_store, 5, far + 5 * SECOND)
    answer = await ahead_store.next_prefetch(MINUTE, TENTH)
    assert answer == PrefetchWindow(due=far, begin_by=far - (10 + 3 * PREFETCH_MINIMUM) * TENTH)
    # An even stream presses least: each has its own time.
    answer = await ahead_store.next_prefetch(MINUTE, timedelta(microseconds=1))
    assert answer is not None
    assert answer.due == near


async def test_what_is_taken_ahead_is_claimed_and_planned_for_its_time(
    ahead_store: SqlStore,
) -> None:
    fired = await a_crowd_ahead(ahead_store)
    assert (len(fired.claimed), fired.others, fired.more) == (PREFETCH_MINIMUM, (), False)
    assert await all_runs(ahead_store) == {run.id: run for run in fired.claimed}
    for run in fired.claimed:
        assert run.slot is not None
        assert run.id == slot_run_id(run.schedule_id or "", run.slot)
        assert (run.status, run.holder, run.attempt) == (RunStatus.RUNNING, NODE, 1)
        assert (run.slot, run.planned_at, run.available_at) == (SLOT, SLOT, SLOT)
        assert (run.created_at, run.claimed_at, run.started_at) == (NOW, NOW, SLOT)
        assert run.prefetched
        after = await the(ahead_store, run)
        assert (after.next_slot, after.last_slot) == (SLOT + MINUTE, SLOT)
        assert (after.last_enqueued_at, after.fired_count) == (NOW, 1)
    assert await looked(ahead_store) == FireResult()


async def test_at_its_time_it_goes_on_like_any_other(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    fired = await a_crowd_ahead(ahead_store)
    clock.advance(1.25)
    assert await looked(ahead_store) == FireResult()
    done = await ahead_store.finish([a_completion(run, clock.now()) for run in fired.claimed])
    assert {run.status for run in done.accepted} == {RunStatus.SUCCEEDED}
    assert (await the(ahead_store, fired.claimed[0])).last_run_at == SLOT


async def test_few_are_left_to_their_time(ahead_store: SqlStore) -> None:
    await joined(ahead_store)
    await crowd(ahead_store, PREFETCH_MINIMUM - 1)
    assert await looked(ahead_store) == FireResult()
    assert await all_runs(ahead_store) == {}


async def test_what_is_due_goes_first(ahead_store: SqlStore) -> None:
    await joined(ahead_store)
    await crowd(ahead_store, 3, NOW)
    await crowd(ahead_store)
    assert {run.slot for run in (await looked(ahead_store)).claimed} == {NOW}
    assert {run.slot for run in (await looked(ahead_store)).claimed} == {SLOT}


@pytest.mark.parametrize(
    "given",
    [
        {"target": TaskTarget(name="nobody")},
        {"policy": Policy(concurrency_key="shared")},
        {"depends_on": Dependency(schedule_id=due_schedule().id)},
        {"trigger": Every("1m", anchor=SLOT, jitter=SECOND)},
        {"next_slot": SLOT - MINUTE},
        {"next_slot": None},
        {"enabled": False},
        {"fired_count": 3, "trigger": Every("1m", anchor=SLOT, max_runs=3)},
    ],
    ids=["not offered", "shared key", "dependency", "jitter", "moved", "no slot", "off", "over"],
)
async def test_what_is_not_simple_is_left_to_its_time(
    ahead_store: SqlStore, given: dict[str, Any]
) -> None:
    assert await a_crowd_ahead(ahead_store, **given) == FireResult()
    assert await all_runs(ahead_store) == {}


async def test_who_is_still_at_work_is_left_to_its_time(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    await joined(ahead_store)
    await crowd(ahead_store, slot=NOW)
    assert len((await looked(ahead_store)).claimed) == PREFETCH_MINIMUM
    clock.advance(59)
    await joined(ahead_store, "node-2")
    assert await looked(ahead_store, "node-2") == FireResult()
    clock.advance(1)
    rows = (await looked(ahead_store, "node-2")).others
    assert {(run.status, run.reason) for run in rows} == {(RunStatus.SKIPPED, Reason.OVERLAP)}


async def test_one_slot_ahead_at_most(ahead_store: SqlStore, clock: SettableClock) -> None:
    given = {
        "trigger": Every("1s", anchor=SLOT),
        "policy": Policy(overlap=Overlap.ALLOW, misfire=Misfire.ALL),
    }
    assert len((await a_crowd_ahead(ahead_store, **given)).claimed) == PREFETCH_MINIMUM
    clock.advance(0.75)
    assert await looked(ahead_store) == FireResult()
    clock.advance(0.25)
    assert {run.slot for run in (await looked(ahead_store)).claimed} == {SLOT + SECOND}


async def test_a_plan_that_fails_is_left_to_its_time(ahead_store: SqlStore) -> None:
    await joined(ahead_store)
    await crowd(ahead_store)

    def faulty(schedule: Schedule, context: FireContext, now: datetime) -> PolicyPlan:
        raise ValueError("this can never be planned")

    fired = await ahead_store.fire_due(
        faulty, limit=99, request=claim_request(free=99), prefetch=AHEAD
    )
    assert fired == FireResult()
    page = await ahead_store.next_due()
    assert page == SLOT


async def test_no_more_than_there_are_places_for(ahead_store: SqlStore) -> None:
    await joined(ahead_store)
    await crowd(ahead_store)
    assert await looked(ahead_store, free=0) == FireResult()
    assert await looked(ahead_store, "node-2") == FireResult()
    assert await ahead_store.fire_due(plan, limit=1000, prefetch=AHEAD) == FireResult()
    assert len((await looked(ahead_store, free=7)).claimed) == 7
    assert len(await all_runs(ahead_store)) == 7


# --- confirming ---------------------------------------------------------------------------------
async def test_nothing_is_confirmed_before_it_is_closed(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    runs = (await a_crowd_ahead(ahead_store)).claimed
    clock.set(SLOT - PREFETCH_CUTOFF - timedelta(microseconds=1))
    assert await ahead_store.confirm_prefetched(holds(runs)) == frozenset()
    clock.set(SLOT - PREFETCH_CUTOFF)
    assert await ahead_store.confirm_prefetched(holds(runs)) == set(holds(runs))
    assert await ahead_store.confirm_prefetched([]) == frozenset()


async def test_only_what_is_still_held_is_confirmed(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    canceled, released, fenced, gone, *others = (await a_crowd_ahead(ahead_store)).claimed
    await ahead_store.cancel_run(canceled.id, Reason.CANCELED_BY_HAND)
    await ahead_store.release(holds([released]))
    assert gone.schedule_id is not None
    await ahead_store.change_schedule(gone.schedule_id, lambda s, now: pause_schedule(s, now, "me"))
    clock.set(SLOT)
    asked = [*holds([canceled, released, gone, *others]), (fenced.id, fenced.fence + 1)]
    assert await ahead_store.confirm_prefetched(asked) == set(holds(others))


async def test_given_back_it_waits_for_its_time_in_the_queue(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    run, asked, *_ = (await a_crowd_ahead(ahead_store)).claimed
    await ahead_store.cancel_run(asked.id, Reason.CANCELED_BY_HAND)
    await ahead_store.release(holds([run, asked]))
    assert await ahead_store.get_run(run.id) == release_or_cancel(run, NOW)
    ended = await ahead_store.get_run(asked.id)
    assert ended is not None
    assert (ended.status, ended.started_at, ended.attempts) == (RunStatus.CANCELED, None, ())
    assert await ahead_store.claim(claim_request()) == ()
    clock.set(SLOT)
    (again,) = await ahead_store.claim(claim_request())
    assert (again.id, again.attempt, again.fence) == (run.id, 1, run.fence + 1)
    assert not again.prefetched


# it has not begun, so no attempt is counted
@pytest.mark.parametrize("later", [False, True])
async def test_a_node_that_is_gone(
    ahead_store: SqlStore, clock: SettableClock, later: bool
) -> None:
    runs = (await a_crowd_ahead(ahead_store)).claimed
    if later:
        clock.advance(LEASE)
        assert len(await ahead_store.rescue(limit=1000)) == PREFETCH_MINIMUM
    else:
        await ahead_store.leave(NODE)
    found = (await ahead_store.list_runs(RunQuery(limit=None))).items
    assert {run.status for run in found} == {RunStatus.QUEUED}
    assert {len(run.attempts) for run in found} == {int(later)}
    assert {run.available_at for run in found} == {clock.now() if later else SLOT}
    await joined(ahead_store, "node-2")
    if not later:
        assert await ahead_store.claim(claim_request("node-2")) == ()
        clock.set(SLOT)
    again = await ahead_store.claim(claim_request("node-2", free=1000))
    assert {run.id for run in again} == {run.id for run in runs}


# --- changes ------------------------------------------------------------------------------------
Change = Callable[[Schedule, datetime], Schedule]
CHANGES: dict[str, Change] = {
    "pause": lambda s, now: pause_schedule(s, now, "me"),
    "bounce": lambda s, now: resume_schedule(pause_schedule(s, now, "me"), now, "me"),
    "delete": lambda s, now: delete_schedule(s, now, "me"),
    "skip": lambda s, now: skip_next_slot(s, now, "me"),
    "move": lambda s, now: move_next_run(s, now + MINUTE, now, "me"),
    "reschedule": lambda s, now: reschedule_next(s, now + MINUTE, now, "me"),
    "edit": lambda s, now: apply_edit(s, replace(s, trigger=Every("7s", anchor=SLOT)), now, "me"),
    "rename": lambda s, now: apply_edit(s, replace(s, name="another"), now, "me"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_until_it_is_closed_a_change_finds_nothing_taken(
    ahead_store: SqlStore, clock: SettableClock, change: Change
) -> None:
    await joined(ahead_store)
    await crowd(ahead_store, last_slot=NOW - MINUTE, fired_count=4)
    before = {s.id: s for s in [i async for i in ahead_store.dump()] if isinstance(s, Schedule)}
    run, *_ = (await looked(ahead_store)).claimed
    assert run.schedule_id is not None
    clock.set(SLOT - PREFETCH_CUTOFF - timedelta(microseconds=1))
    now, was = clock.now(), before[run.schedule_id]
    after = await ahead_store.change_schedule(was.id, change, an_entry())
    # There was no row before it; and something was put into the queue.
    as_it_was = replace(was, last_slot=None, last_enqueued_at=NOW)
    assert after == change(as_it_was, now) == await ahead_store.get_schedule(was.id)
    assert run.id not in await all_runs(ahead_store)
    assert len(await all_runs(ahead_store)) == PREFETCH_MINIMUM - 1
    clock.set(SLOT)
    assert await ahead_store.confirm_prefetched(holds([run])) == frozenset()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_once_it_is_closed_a_change_comes_after_it(
    ahead_store: SqlStore, clock: SettableClock, change: Change
) -> None:
    run, *_ = (await a_crowd_ahead(ahead_store)).claimed
    was = await the(ahead_store, run)
    clock.set(SLOT - PREFETCH_CUTOFF)
    after = await ahead_store.change_schedule(was.id, change, an_entry())
    assert after == change(was, clock.now())
    assert await ahead_store.confirm_prefetched(holds([run])) == set(holds([run]))
    # However the cursor stands now, the slot has its row.
    clock.set(SLOT)
    fired = await looked(ahead_store)
    assert run.id not in {each.id for each in (*fired.claimed, *fired.others)}
    assert await ahead_store.get_run(run.id) == run


async def test_a_change_that_is_refused_takes_nothing_back(ahead_store: SqlStore) -> None:
    run, *_ = (await a_crowd_ahead(ahead_store)).claimed
    was = await the(ahead_store, run)

    def refusing(schedule: Schedule, now: datetime) -> Schedule:
        raise ValueError("not like this")

    with pytest.raises(ValueError, match="not like this"):
        await ahead_store.change_schedule(was.id, refusing)
    assert (await ahead_store.get_run(run.id), await the(ahead_store, run)) == (run, was)


async def test_the_slot_before_is_found_again(ahead_store: SqlStore, clock: SettableClock) -> None:
    await joined(ahead_store)
    await crowd(ahead_store, slot=NOW)
    first = (await looked(ahead_store)).claimed
    await ahead_store.finish([a_completion(run, clock.now()) for run in first])
    clock.advance(59)
    await joined(ahead_store)
    run, other, *_ = (await looked(ahead_store)).claimed
    assert run.slot == NOW + MINUTE
    await ahead_store.change_schedule((await the(ahead_store, run)).id, CHANGES["rename"])
    after = await the(ahead_store, run)
    assert (after.last_slot, after.next_slot, after.fired_count) == (NOW, NOW + MINUTE, 1)
    # What retention has forgotten is remembered by its mark.
    await ahead_store.prune_runs(before=clock.now(), limit=1000)
    await ahead_store.change_schedule((await the(ahead_store, other)).id, CHANGES["rename"])
    assert (await the(ahead_store, other)).last_slot == NOW


# A slot that was taken back is another claim: nobody takes the one for the other.
async def test_taken_back_and_taken_again(ahead_store: SqlStore, clock: SettableClock) -> None:
    runs = (await a_crowd_ahead(ahead_store)).claimed
    clock.advance(0.25)
    for run in runs:
        assert run.schedule_id is not None
        await ahead_store.change_schedule(run.schedule_id, CHANGES["rename"])
    await joined(ahead_store, "node-2")
    again = (await looked(ahead_store, "node-2")).claimed
    assert {run.id for run in again} == {run.id for run in runs}
    assert not {run.fence for run in again} & {run.fence for run in runs}
    await ahead_store.release(holds(runs))
    clock.set(SLOT)
    assert await ahead_store.confirm_prefetched(holds([*runs, *again])) == set(holds(again))
    assert (await ahead_store.finish([a_completion(runs[0], SLOT)])).refused == (runs[0].id,)


# a run by hand goes at once, as if nothing had been taken
async def test_a_run_by_hand_does_not_wait_for_what_has_not_begun(
    ahead_store: SqlStore, clock: SettableClock
) -> None:
    run, closed, *_ = (await a_crowd_ahead(ahead_store)).claimed
    schedule = await the(ahead_store, run)
    (by_hand,) = await ahead_store.add_runs([manual_run(schedule, NOW)])
    assert not by_hand.blocked
    after = await the(ahead_store, run)
    assert (after.next_slot, after.fired_count) == (SLOT, 0)
    clock.set(SLOT - PREFETCH_CUTOFF)
    (behind,) = await ahead_store.add_runs([manual_run(await the(ahead_store, closed), SLOT)])
    assert behind.blocked
    clock.set(SLOT)
    (skipped,) = (await looked(ahead_store)).others
    assert (skipped.id, skipped.status) == (run.id, RunStatus.SKIPPED)


# 410 pauses the schedule, also what of it was taken ahead
async def test_a_pause_by_the_receiver(ahead_store: SqlStore, clock: SettableClock) -> None:
    given = {"trigger": Every("1s", anchor=NOW), "policy": Policy(overlap=Overlap.ALLOW)}
    await joined(ahead_store)
    await crowd(ahead_store, slot=NOW, **given)
    first = (await looked(ahead_store)).claimed[0]
    await looked(ahead_store)
    assert len(await all_runs(ahead_store)) == 2 * PREFETCH_MINIMUM
    gone = replace(a_completion(first, clock.now()), pause_schedule="gone")
    await ahead_store.finish([gone])
    after = await the(ahead_store, first)
    assert (after.enabled, after.next_slot, after.fired_count) == (False, None, 1)
    assert len(await all_runs(ahead_store)) == 2 * PREFETCH_MINIMUM - 1


async def test_a_store_moved_elsewhere_keeps_what_was_ahead(
    ahead_store: SqlStore, store: Store, clock: SettableClock
) -> None:
    runs = (await a_crowd_ahead(ahead_store)).claimed
    await store.load([item async for item in ahead_store.dump()])
    await joined(store)
    assert await store.claim(claim_request(free=1000)) == ()
    clock.set(SLOT)
    assert {run.id for run in await store.claim(claim_request(free=1000))} == {
        run.id for run in runs
    }


async def test_who_looks_ahead_says_so(store: Store) -> None:
    supports_prefetch = isinstance(store, PrefetchStore) and store.supports_prefetch
    assert supports_prefetch == ((await store.status()).kind == "postgresql")
