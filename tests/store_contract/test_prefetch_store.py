"""Prefetch: many schedules are claimed before they are due, and changes still apply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import slot_run_id
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.planning import (
    PREFETCH_CUTOFF,
    PREFETCH_MINIMUM,
    FireContext,
    FirePlan,
    manual_run,
    plan,
    withdraw_prefetched,
)
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Reason, Run, RunStatus, confirm, release_or_cancel
from chimes.model.schedule import (
    Dependency,
    Schedule,
    apply_edit,
    delete_schedule,
    move_next_run,
    pass_slot,
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

PREFETCH = timedelta(seconds=1.5)
SLOT = NOW + SECOND
POSTGRES = next(kind for kind in KINDS if kind.name == "postgresql")


@pytest.fixture
async def prefetch_store(tmp_path: Path, clock: SettableClock) -> AsyncIterator[SqlStore]:
    """A store that supports prefetch, separate from the parametrised `store`."""
    (tmp_path / "ahead").mkdir()
    home = Home(POSTGRES, tmp_path / "ahead", clock)
    store = await home.open()
    assert isinstance(store, SqlStore)
    assert store.supports_prefetch
    yield store
    await home.close()


async def add_due_schedules(
    store: Store, count: int = PREFETCH_MINIMUM, slot: datetime = SLOT, **given: Any
) -> None:
    await store.load([due_schedule(slot, **given) for _ in range(count)])


async def prefetch_batch(store: Store, **given: Any) -> FireResult:
    """Prefetches a whole batch for node-1, one second before its slot."""
    await joined(store)
    await add_due_schedules(store, **given)
    return await fire_with_prefetch(store)


async def fire_with_prefetch(store: Store, node_id: str = "node-1", **given: Any) -> FireResult:
    return await store.fire_due(
        plan,
        limit=1000,
        request=claim_request(node_id, **({"free": 1000} | given)),
        prefetch=PREFETCH,
    )


def run_claims(runs: Sequence[Run]) -> list[tuple[Any, int]]:
    return [(run.id, run.fence) for run in runs]


async def schedule_of(store: Store, run: Run) -> Schedule:
    assert run.schedule_id is not None
    found = await store.get_schedule(run.schedule_id)
    assert found is not None
    return found


async def test_stores_without_prefetch_claim_due_schedules_only(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule())
    later = await store.add_schedule(due_schedule(SLOT))
    fired = await fire_with_prefetch(store)
    assert [run.schedule_id for run in fired.claimed] == [schedule.id]
    assert await store.get_schedule(later.id) == later
    assert not fired.claimed[0].prefetched


EACH_CLAIM = timedelta(milliseconds=10)


@pytest.mark.parametrize("count", [0, PREFETCH_MINIMUM - 1])
async def test_no_prefetch_window_below_the_minimum(prefetch_store: SqlStore, count: int) -> None:
    await add_due_schedules(prefetch_store, count)
    assert await prefetch_store.next_prefetch(MINUTE, EACH_CLAIM) is None


async def test_prefetch_window_begins_earlier_for_larger_batches(prefetch_store: SqlStore) -> None:
    slot = NOW + 5 * SECOND
    await add_due_schedules(prefetch_store, PREFETCH_MINIMUM, slot)
    expected = PrefetchWindow(due=slot, begin_by=slot - PREFETCH_MINIMUM * EACH_CLAIM)
    assert await prefetch_store.next_prefetch(MINUTE, EACH_CLAIM) == expected
    await add_due_schedules(prefetch_store, PREFETCH_MINIMUM, slot)
    expected = PrefetchWindow(due=slot, begin_by=slot - 2 * PREFETCH_MINIMUM * EACH_CLAIM)
    assert await prefetch_store.next_prefetch(MINUTE, EACH_CLAIM) == expected
    assert await prefetch_store.next_prefetch(4 * SECOND, EACH_CLAIM) is None


async def test_prefetch_window_includes_earlier_schedules(prefetch_store: SqlStore) -> None:
    near, far = NOW + 5 * SECOND, NOW + 6 * SECOND
    await add_due_schedules(prefetch_store, 10, near)
    await add_due_schedules(prefetch_store, 3 * PREFETCH_MINIMUM, far)
    await add_due_schedules(prefetch_store, 5, far + 5 * SECOND)
    answer = await prefetch_store.next_prefetch(MINUTE, EACH_CLAIM)
    assert answer == PrefetchWindow(
        due=far, begin_by=far - (10 + 3 * PREFETCH_MINIMUM) * EACH_CLAIM
    )
    # Without claim time the window ends at the first slot.
    answer = await prefetch_store.next_prefetch(MINUTE, timedelta(microseconds=1))
    assert answer is not None
    assert answer.due == near


async def test_prefetched_runs_are_claimed_and_planned_for_their_slot(
    prefetch_store: SqlStore,
) -> None:
    fired = await prefetch_batch(prefetch_store)
    assert (len(fired.claimed), fired.others, fired.more) == (PREFETCH_MINIMUM, (), False)
    assert await all_runs(prefetch_store) == {run.id: run for run in fired.claimed}
    for run in fired.claimed:
        assert run.slot is not None
        assert run.id == slot_run_id(run.schedule_id or "", run.slot)
        assert (run.status, run.holder, run.attempt) == (RunStatus.RUNNING, NODE, 1)
        assert (run.slot, run.planned_at, run.available_at) == (SLOT, SLOT, SLOT)
        assert (run.created_at, run.claimed_at, run.started_at) == (NOW, NOW, SLOT)
        assert run.prefetched
        after = await schedule_of(prefetch_store, run)
        assert (after.next_slot, after.last_slot) == (SLOT + MINUTE, SLOT)
        assert (after.last_enqueued_at, after.fired_count) == (NOW, 1)
    assert await fire_with_prefetch(prefetch_store) == FireResult()


async def test_prefetched_runs_are_completed_like_others(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    fired = await prefetch_batch(prefetch_store)
    clock.advance(1.25)
    assert await fire_with_prefetch(prefetch_store) == FireResult()
    done = await prefetch_store.finish([a_completion(run, clock.now()) for run in fired.claimed])
    assert {run.status for run in done.accepted} == {RunStatus.SUCCEEDED}
    assert (await schedule_of(prefetch_store, fired.claimed[0])).last_run_at == SLOT


async def test_small_batch_is_not_prefetched(prefetch_store: SqlStore) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, PREFETCH_MINIMUM - 1)
    assert await fire_with_prefetch(prefetch_store) == FireResult()
    assert await all_runs(prefetch_store) == {}


async def test_due_schedules_are_claimed_before_prefetched_ones(prefetch_store: SqlStore) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, 3, NOW)
    await add_due_schedules(prefetch_store)
    assert {run.slot for run in (await fire_with_prefetch(prefetch_store)).claimed} == {NOW}
    assert {run.slot for run in (await fire_with_prefetch(prefetch_store)).claimed} == {SLOT}


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
async def test_ineligible_schedules_are_not_prefetched(
    prefetch_store: SqlStore, given: dict[str, Any]
) -> None:
    assert await prefetch_batch(prefetch_store, **given) == FireResult()
    assert await all_runs(prefetch_store) == {}


async def test_schedules_with_a_running_run_are_not_prefetched(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, slot=NOW)
    assert len((await fire_with_prefetch(prefetch_store)).claimed) == PREFETCH_MINIMUM
    clock.advance(59)
    await joined(prefetch_store, "node-2")
    assert await fire_with_prefetch(prefetch_store, "node-2") == FireResult()
    clock.advance(1)
    rows = (await fire_with_prefetch(prefetch_store, "node-2")).others
    assert {(run.status, run.reason) for run in rows} == {(RunStatus.SKIPPED, Reason.OVERLAP)}


async def test_only_one_slot_per_schedule_is_prefetched(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    given = {
        "trigger": Every("1s", anchor=SLOT),
        "policy": Policy(overlap=Overlap.ALLOW, misfire=Misfire.ALL),
    }
    assert len((await prefetch_batch(prefetch_store, **given)).claimed) == PREFETCH_MINIMUM
    clock.advance(0.75)
    assert await fire_with_prefetch(prefetch_store) == FireResult()
    clock.advance(0.25)
    assert {run.slot for run in (await fire_with_prefetch(prefetch_store)).claimed} == {
        SLOT + SECOND
    }


async def test_schedules_whose_plan_raises_are_not_prefetched(prefetch_store: SqlStore) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store)

    def faulty(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        raise ValueError("this can never be planned")

    fired = await prefetch_store.fire_due(
        faulty, limit=99, request=claim_request(free=99), prefetch=PREFETCH
    )
    assert fired == FireResult()
    page = await prefetch_store.next_due()
    assert page == SLOT


async def test_no_more_runs_are_prefetched_than_free_permits(prefetch_store: SqlStore) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store)
    assert await fire_with_prefetch(prefetch_store, free=0) == FireResult()
    assert await fire_with_prefetch(prefetch_store, "node-2") == FireResult()
    assert await prefetch_store.fire_due(plan, limit=1000, prefetch=PREFETCH) == FireResult()
    assert len((await fire_with_prefetch(prefetch_store, free=7)).claimed) == 7
    assert len(await all_runs(prefetch_store)) == 7


# --- confirmation -------------------------------------------------------------------------------
async def test_prefetched_runs_are_confirmed_only_after_the_cutoff(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    runs = (await prefetch_batch(prefetch_store)).claimed
    clock.set(SLOT - PREFETCH_CUTOFF - timedelta(microseconds=1))
    assert await prefetch_store.confirm_prefetched(run_claims(runs)) == frozenset()
    clock.set(SLOT - PREFETCH_CUTOFF)
    assert await prefetch_store.confirm_prefetched(run_claims(runs)) == set(run_claims(runs))
    assert await prefetch_store.confirm_prefetched([]) == frozenset()


async def test_only_runs_that_are_still_owned_are_confirmed(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    canceled, released, fenced, gone, *others = (await prefetch_batch(prefetch_store)).claimed
    await prefetch_store.cancel_run(canceled.id, Reason.CANCELED_BY_HAND)
    await prefetch_store.release(run_claims([released]))
    assert gone.schedule_id is not None
    await prefetch_store.change_schedule(
        gone.schedule_id, lambda s, now: pause_schedule(s, now, "me")
    )
    clock.set(SLOT)
    asked = [*run_claims([canceled, released, gone, *others]), (fenced.id, fenced.fence + 1)]
    assert await prefetch_store.confirm_prefetched(asked) == set(run_claims(others))


async def test_released_prefetched_run_is_queued_until_its_slot(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    run, asked, *_ = (await prefetch_batch(prefetch_store)).claimed
    await prefetch_store.cancel_run(asked.id, Reason.CANCELED_BY_HAND)
    await prefetch_store.release(run_claims([run, asked]))
    assert await prefetch_store.get_run(run.id) == release_or_cancel(run, NOW)
    ended = await prefetch_store.get_run(asked.id)
    assert ended is not None
    assert (ended.status, ended.started_at, ended.attempts) == (RunStatus.CANCELED, None, ())
    assert await prefetch_store.claim(claim_request()) == ()
    clock.set(SLOT)
    (again,) = await prefetch_store.claim(claim_request())
    assert (again.id, again.attempt, again.fence) == (run.id, 1, run.fence + 1)
    assert not again.prefetched


# The runs have not started, so `leave` counts no attempt.
@pytest.mark.parametrize("later", [False, True])
async def test_prefetched_runs_of_a_lost_node_are_claimed_by_another(
    prefetch_store: SqlStore, clock: SettableClock, later: bool
) -> None:
    runs = (await prefetch_batch(prefetch_store)).claimed
    if later:
        clock.advance(LEASE)
        assert len(await prefetch_store.rescue(limit=1000)) == PREFETCH_MINIMUM
    else:
        await prefetch_store.leave(NODE)
    found = (await prefetch_store.list_runs(RunQuery(limit=None))).items
    assert {run.status for run in found} == {RunStatus.QUEUED}
    assert {len(run.attempts) for run in found} == {int(later)}
    assert {run.available_at for run in found} == {clock.now() if later else SLOT}
    await joined(prefetch_store, "node-2")
    if not later:
        assert await prefetch_store.claim(claim_request("node-2")) == ()
        clock.set(SLOT)
    again = await prefetch_store.claim(claim_request("node-2", free=1000))
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
#: Also a reason to withdraw a prefetched run.
RUN_NOW = "run now"


async def test_change_before_the_cutoff_withdraws_the_prefetched_run(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    """Each change with another run of one batch."""
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, last_slot=NOW - MINUTE, fired_count=4)
    before = {s.id: s for s in [i async for i in prefetch_store.dump()] if isinstance(s, Schedule)}
    claimed = (await fire_with_prefetch(prefetch_store)).claimed
    runs = dict(zip(CHANGES, claimed, strict=False))
    clock.set(SLOT - PREFETCH_CUTOFF - timedelta(microseconds=1))
    now = clock.now()
    for name, run in runs.items():
        assert run.schedule_id is not None
        was, change = before[run.schedule_id], CHANGES[name]
        after = await prefetch_store.change_schedule(was.id, change, an_entry())
        # No earlier run exists.
        as_it_was = withdraw_prefetched(replace(was, fired_count=was.fired_count + 1), run, None)
        assert after == change(as_it_was, now) == await prefetch_store.get_schedule(was.id), name
    left = {run.id for run in claimed} - {run.id for run in runs.values()}
    assert set(await all_runs(prefetch_store)) == left
    clock.set(SLOT)
    assert await prefetch_store.confirm_prefetched(run_claims([*runs.values()])) == frozenset()


async def test_change_after_the_cutoff_keeps_the_prefetched_run(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    """Each change with another run of one batch."""
    runs = dict(zip(CHANGES, (await prefetch_batch(prefetch_store)).claimed, strict=False))
    clock.set(SLOT - PREFETCH_CUTOFF)
    for name, run in runs.items():
        was = await schedule_of(prefetch_store, run)
        after = await prefetch_store.change_schedule(was.id, CHANGES[name], an_entry())
        expected = CHANGES[name](was, clock.now())
        # The cursor does not return to a slot that has its run.
        assert after == (pass_slot(expected) if expected.next_slot == SLOT else expected), name
    claims = run_claims([*runs.values()])
    assert await prefetch_store.confirm_prefetched(claims) == set(claims)
    # Wherever the cursor stands, the slot keeps its run.
    clock.set(SLOT)
    fired = await fire_with_prefetch(prefetch_store)
    assert not {run.id for run in runs.values()} & {e.id for e in (*fired.claimed, *fired.others)}
    for name, run in runs.items():
        assert await prefetch_store.get_run(run.id) == confirm(run), name


async def test_raising_change_does_not_withdraw_the_prefetched_run(
    prefetch_store: SqlStore,
) -> None:
    run, *_ = (await prefetch_batch(prefetch_store)).claimed
    was = await schedule_of(prefetch_store, run)

    def refusing(schedule: Schedule, now: datetime) -> Schedule:
        raise ValueError("not like this")

    with pytest.raises(ValueError, match="not like this"):
        await prefetch_store.change_schedule(was.id, refusing)
    assert (await prefetch_store.get_run(run.id), await schedule_of(prefetch_store, run)) == (
        run,
        was,
    )


async def test_withdrawal_restores_the_previous_last_slot(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, slot=NOW)
    first = (await fire_with_prefetch(prefetch_store)).claimed
    await prefetch_store.finish([a_completion(run, clock.now()) for run in first])
    clock.advance(59)
    await joined(prefetch_store)
    run, other, *_ = (await fire_with_prefetch(prefetch_store)).claimed
    assert run.slot == NOW + MINUTE
    await prefetch_store.change_schedule(
        (await schedule_of(prefetch_store, run)).id, CHANGES["rename"]
    )
    after = await schedule_of(prefetch_store, run)
    assert (after.last_slot, after.next_slot, after.fired_count) == (NOW, NOW + MINUTE, 1)
    # For pruned runs `purged_until` is used.
    await prefetch_store.prune_runs(before=clock.now(), limit=1000)
    await prefetch_store.change_schedule(
        (await schedule_of(prefetch_store, other)).id, CHANGES["rename"]
    )
    assert (await schedule_of(prefetch_store, other)).last_slot == NOW


async def test_withdrawn_slot_is_prefetched_again_with_a_new_fence(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    runs = (await prefetch_batch(prefetch_store)).claimed
    clock.advance(0.25)
    for run in runs:
        assert run.schedule_id is not None
        await prefetch_store.change_schedule(run.schedule_id, CHANGES["rename"])
    await joined(prefetch_store, "node-2")
    again = (await fire_with_prefetch(prefetch_store, "node-2")).claimed
    assert {run.id for run in again} == {run.id for run in runs}
    assert not {run.fence for run in again} & {run.fence for run in runs}
    await prefetch_store.release(run_claims(runs))
    clock.set(SLOT)
    assert await prefetch_store.confirm_prefetched(run_claims([*runs, *again])) == set(
        run_claims(again)
    )
    assert (await prefetch_store.finish([a_completion(runs[0], SLOT)])).refused == (runs[0].id,)


async def test_manual_run_withdraws_the_prefetched_run_before_the_cutoff(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    run, closed, *_ = (await prefetch_batch(prefetch_store)).claimed
    schedule = await schedule_of(prefetch_store, run)
    (manual,) = await prefetch_store.add_runs([manual_run(schedule, NOW)])
    assert not manual.blocked
    after = await schedule_of(prefetch_store, run)
    assert (after.next_slot, after.fired_count) == (SLOT, 0)
    clock.set(SLOT - PREFETCH_CUTOFF)
    (behind,) = await prefetch_store.add_runs(
        [manual_run(await schedule_of(prefetch_store, closed), SLOT)]
    )
    assert behind.blocked
    clock.set(SLOT)
    (skipped,) = (await fire_with_prefetch(prefetch_store)).others
    assert (skipped.id, skipped.status) == (run.id, RunStatus.SKIPPED)


# HTTP 410 pauses the schedule, including its prefetched slot.
async def test_completion_that_pauses_the_schedule_withdraws_the_prefetched_run(
    prefetch_store: SqlStore, clock: SettableClock
) -> None:
    given = {"trigger": Every("1s", anchor=NOW), "policy": Policy(overlap=Overlap.ALLOW)}
    await joined(prefetch_store)
    await add_due_schedules(prefetch_store, slot=NOW, **given)
    first = (await fire_with_prefetch(prefetch_store)).claimed[0]
    await fire_with_prefetch(prefetch_store)
    assert len(await all_runs(prefetch_store)) == 2 * PREFETCH_MINIMUM
    gone = replace(a_completion(first, clock.now()), pause_schedule="gone")
    await prefetch_store.finish([gone])
    after = await schedule_of(prefetch_store, first)
    assert (after.enabled, after.next_slot, after.fired_count) == (False, None, 1)
    assert len(await all_runs(prefetch_store)) == 2 * PREFETCH_MINIMUM - 1


# --- the clock is set back ----------------------------------------------------------------------
# On every store: where there is no prefetch, the slots fire on time and are never withdrawn.
async def confirm_if_prefetched(store: Store, runs: Sequence[Run]) -> None:
    if isinstance(store, PrefetchStore) and store.supports_prefetch:
        assert await store.confirm_prefetched(run_claims(runs)) == set(run_claims(runs))


async def runs_at_their_slot(store: Store, clock: SettableClock) -> dict[str, Run]:
    """The whole batch is executing, prefetched or claimed on time."""
    early = (await prefetch_batch(store)).claimed
    clock.set(SLOT - PREFETCH_CUTOFF)
    await confirm_if_prefetched(store, early)
    clock.set(SLOT)
    late = (await fire_with_prefetch(store)).claimed
    assert len(early) + len(late) == PREFETCH_MINIMUM
    return await all_runs(store)


async def test_clock_set_back_withdraws_no_executing_run(
    store: Store, clock: SettableClock
) -> None:
    """Each change with another run of one batch."""
    names = [*CHANGES, RUN_NOW]
    runs = dict(zip(names, (await runs_at_their_slot(store, clock)).values(), strict=False))
    clock.set(SLOT - 2 * SECOND)
    for name, run in runs.items():
        schedule = await schedule_of(store, run)
        if name == RUN_NOW:
            (manual,) = await store.add_runs([manual_run(schedule, clock.now())])
            assert manual.blocked
        else:
            await store.change_schedule(schedule.id, CHANGES[name])
        assert await store.get_run(run.id) == run, name
    clock.set(SLOT)
    fired = await fire_with_prefetch(store)
    assert not {run.id for run in runs.values()} & {e.id for e in (*fired.claimed, *fired.others)}
    completions = [a_completion(run, SLOT) for run in runs.values()]
    assert (await store.finish(completions)).refused == ()


async def test_clock_set_back_loses_no_executing_run(store: Store, clock: SettableClock) -> None:
    """A node that is lost then may have started its runs."""
    run, *_ = (await runs_at_their_slot(store, clock)).values()
    await joined(store, "node-2", 2 * LEASE)
    clock.set(SLOT - 2 * SECOND)
    await store.leave(NODE)
    after = await store.get_run(run.id)
    assert after is not None
    assert (after.status, after.crashes) == (RunStatus.QUEUED, 1)


@pytest.mark.parametrize("back", [timedelta(0), 2 * SECOND])
@pytest.mark.parametrize("again", [False, True], ids=["on time", "prefetched again"])
async def test_fence_of_a_slot_never_restarts(
    store: Store, clock: SettableClock, again: bool, back: timedelta
) -> None:
    """A third of the batch is changed in each of three ways."""
    first = (await prefetch_batch(store)).claimed
    clock.set(NOW - back)
    page = await store.list_schedules(ScheduleQuery(limit=None))
    for schedule, change in zip(page.items, cycle(["rename", "bounce", RUN_NOW]), strict=False):
        if change != RUN_NOW:
            await store.change_schedule(schedule.id, CHANGES[change])
            continue
        (manual,) = await store.add_runs([manual_run(schedule, clock.now())])
        await store.cancel_run(manual.id, Reason.CANCELED_BY_HAND)
    await joined(store, "node-2")
    second: dict[str, Run] = {}
    if again:
        found = await fire_with_prefetch(store, "node-2")
        second |= {run.id: run for run in found.claimed}
    clock.set(SLOT)
    await joined(store, "node-2")
    second |= {run.id: run for run in (await fire_with_prefetch(store, "node-2")).claimed}
    assert len(second) == PREFETCH_MINIMUM
    for run in first:
        assert second[run.id].fence > run.fence
    if first:
        assert isinstance(store, PrefetchStore)
        assert await store.confirm_prefetched(run_claims(first)) == frozenset()
    await store.release(run_claims(first))
    stale = [a_completion(run, SLOT) for run in first]
    assert (await store.finish(stale)).accepted == ()
    fresh = [a_completion(run, SLOT) for run in second.values()]
    assert (await store.finish(fresh)).refused == ()


async def test_prefetched_runs_survive_export_and_import(
    prefetch_store: SqlStore, store: Store, clock: SettableClock
) -> None:
    runs = (await prefetch_batch(prefetch_store)).claimed
    await store.load([item async for item in prefetch_store.dump()])
    await joined(store)
    assert await store.claim(claim_request(free=1000)) == ()
    clock.set(SLOT)
    assert {run.id for run in await store.claim(claim_request(free=1000))} == {
        run.id for run in runs
    }


async def test_only_postgresql_supports_prefetch(store: Store) -> None:
    supports_prefetch = isinstance(store, PrefetchStore) and store.supports_prefetch
    assert supports_prefetch == ((await store.status()).kind == "postgresql")
