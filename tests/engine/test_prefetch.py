"""Prefetched runs start at their time, once, and not after an edit in time (PostgreSQL)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from chimes.clock import SystemClock
from chimes.engine.events import RunEnded, SchedulesFired
from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.ids import ScheduleId, slot_run_id
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.model.policy import OnLost, Policy
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    delete_schedule,
    pause_schedule,
    reschedule_next,
)
from chimes.store.port import ScheduleChange
from chimes.triggers import Every
from tests.builders import a_schedule
from tests.engine.rig import FAR, Faults, Rig, eventually, until
from tests.store_contract.stores import KINDS, Home

BATCH = 80
PERMITS = 200


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    # A long lead, so that a busy machine claims them in time.
    monkeypatch.setattr("chimes.engine.prefetch.MIN_LEAD", timedelta(minutes=1))
    kind = next(each for each in KINDS if each.name == "postgresql")
    home = Home(kind, tmp_path, SystemClock())
    # With the clock of the database, as on a node.
    rig = Rig(await home.open(), kind.name)
    yield rig
    await rig.close()
    await home.close()


async def create_batch(
    rig: Rig,
    seconds: float = 1.5,
    count: int = BATCH,
    priorities: Sequence[int] = (0,),
    **given: Any,
) -> list[Schedule]:
    """Schedules that are due together, a few seconds from now."""
    slot = await rig.now() + timedelta(seconds=seconds)
    trigger = Every(FAR, anchor=slot)
    values = {"trigger": trigger, "next_slot": slot, "next_run_at": slot} | given
    ranks = islice(cycle(priorities), count)
    made = [a_schedule(priority=priority, **values) for priority in ranks]
    await rig.store.load(made)
    return made


def slot_of(made: list[Schedule]) -> datetime:
    slot = made[0].next_slot
    assert slot is not None
    return slot


async def prefetched_batch(
    rig: Rig, seconds: float = 1.5, *, left: float = 0.5, by: int = BATCH, **given: Any
) -> tuple[list[Schedule], list[Run]]:
    """A batch with `by` runs claimed while at least `left` seconds remain. If the machine is too
    busy, another batch is tried."""
    for more in (1, 2, 4, 8, 16):
        made = await create_batch(rig, seconds * more, **given)
        slot = slot_of(made)
        runs = await eventually(rig.runs, lambda runs: len(runs) >= by)
        if all(run.prefetched for run in runs) and await rig.now() < slot - timedelta(seconds=left):
            assert len(runs) == by
            return made, runs
        await all_ended(rig, len(made))
        await until(lambda: all(not engine.running for engine in rig.engines))
        await rig.store.prune_runs(before=slot + FAR, limit=len(made))
        rig.runner.calls.clear()
        rig.events.clear()
    raise AssertionError("no batch was prefetched")


async def all_ended(rig: Rig, count: int) -> list[Run]:
    return await eventually(
        rig.runs, lambda runs: sum(run.status.terminal for run in runs) >= count, within=90
    )


async def test_a_prefetched_batch_starts_at_its_time_once_each(rig: Rig) -> None:
    await rig.engine(workers=PERMITS, poll_interval=timedelta(seconds=30))
    made, _ = await prefetched_batch(rig)
    slot = slot_of(made)
    runs = await all_ended(rig, BATCH)
    assert all(run.created_at < slot for run in runs)
    assert {run.id for run in runs} == {slot_run_id(each.id, slot) for each in made}
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    for run in runs:
        (attempt,) = run.attempts
        assert run.started_at == slot
        assert slot <= attempt.started_at < slot + timedelta(seconds=30)  # no poll was needed
        assert run.finished_at is not None
        assert run.finished_at >= slot
    assert sum(len(event.schedules) for event in rig.emitted(SchedulesFired)) == BATCH
    after = await rig.schedule(made[0].id)
    assert (after.next_slot, after.fired_count, after.last_slot) == (slot + FAR, 1, slot)


async def test_the_higher_rank_starts_first(rig: Rig) -> None:
    await rig.engine(workers=PERMITS)
    await prefetched_batch(rig, priorities=(0, 1, 2))
    await all_ended(rig, BATCH)
    order = [call.run.priority for call in rig.runner.calls]
    assert order == sorted(order, reverse=True)
    assert set(order) == {0, 1, 2}


async def test_a_small_batch_is_not_prefetched(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store, workers=PERMITS)
    made = await create_batch(rig, count=5)
    runs = await all_ended(rig, 5)
    assert all(run.created_at >= slot_of(made) for run in runs)
    # Only the cheap query ran, not the one that locks.
    assert faults.count["confirm_prefetched"] == 0


async def test_prefetch_keeps_permits_free(rig: Rig) -> None:
    await rig.engine(workers=60)
    # Within MIN_LEAD, and far ahead: the test does not wait for the slot.
    made, _ = await prefetched_batch(rig, 50, left=20, by=60 - 6)
    (other,) = await rig.ended(await rig.due_now())
    assert other.status is RunStatus.SUCCEEDED
    assert other.claimed_at is not None
    assert other.claimed_at < slot_of(made)


async def test_prefetch_uses_the_last_permits_shortly_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long before, so that a busy machine is in time; the test does not wait for the slot. The first
    # runs have eight seconds, and another batch, which would cost half a minute, is rarely needed.
    lead = timedelta(seconds=20)
    for module in ("prefetch", "scheduler"):
        monkeypatch.setattr(f"chimes.engine.{module}.FULL_CAPACITY_LEAD", lead)
    await rig.engine(workers=60, poll_interval=timedelta(seconds=30))
    made, first = await prefetched_batch(rig, 28, left=20, by=60 - 6)
    runs = await eventually(rig.runs, lambda runs: len(runs) >= 60)
    last = [run for run in runs if run not in first]
    assert len(last) == 6
    slot = slot_of(made)
    assert all(slot - lead <= run.created_at < slot - lead / 2 for run in last)


async def test_a_dispatch_cap_disables_prefetch(rig: Rig) -> None:
    await rig.engine(
        workers=PERMITS, max_dispatch_per_tick=60, dispatch_tick=timedelta(seconds=0.1)
    )
    made = await create_batch(rig)
    runs = await all_ended(rig, BATCH)
    assert all(run.created_at >= slot_of(made) for run in runs)


class Changes:
    """Edits many schedules concurrently and records which edits were in time."""

    def __init__(self, rig: Rig, slot: datetime) -> None:
        self._rig = rig
        self._slot = slot
        # Fewer at once than the store has connections, so that none waits too long for one.
        self._writers = asyncio.Semaphore(4)
        self.in_time: set[ScheduleId] = set()

    async def make(self, made: Sequence[Schedule], *ways: ScheduleChange) -> None:
        await asyncio.gather(
            *(self._one(each.id, ways[n % len(ways)]) for n, each in enumerate(made))
        )
        assert self.in_time, "no change was made before the slot"

    async def _one(self, schedule_id: ScheduleId, way: ScheduleChange) -> None:
        def change(schedule: Schedule, now: datetime) -> Schedule:
            self.in_time.discard(schedule_id)
            if now < self._slot - PREFETCH_CUTOFF:
                self.in_time.add(schedule_id)
            return way(schedule, now)

        async with self._writers:
            await self._rig.store.change_schedule(schedule_id, change)


async def test_a_schedule_paused_deleted_or_moved_in_time_does_not_run(rig: Rig) -> None:
    await rig.engine(workers=PERMITS)
    made, _ = await prefetched_batch(rig, seconds=5.0, left=3.5)
    slot = slot_of(made)
    later = slot + timedelta(hours=1)
    changes = Changes(rig, slot)
    await changes.make(
        made[:30],
        lambda s, now: pause_schedule(s, now, "me"),
        lambda s, now: delete_schedule(s, now, "me"),
        lambda s, now: reschedule_next(s, later, now, "me"),
    )
    expected = {schedule.id for schedule in made} - changes.in_time
    await all_ended(rig, len(expected))
    await until(lambda: rig.engines[0].running == ())
    assert {call.run.schedule_id for call in rig.runner.calls} == expected
    assert len(await rig.runs()) == len(rig.runner.calls) == len(expected)


async def test_an_edited_schedule_that_is_still_due_runs_once(rig: Rig) -> None:
    await rig.engine(workers=PERMITS)
    made, _ = await prefetched_batch(rig, seconds=5.0, left=3.5)
    slot = slot_of(made)
    changes = Changes(rig, slot)
    await changes.make(made, lambda s, now: apply_edit(s, replace(s, name="new"), now, "me"))
    runs = await all_ended(rig, BATCH)
    assert {run.id for run in runs} == {slot_run_id(each.id, slot) for each in made}
    for run in runs:
        assert run.schedule_version == 1 + (run.schedule_id in changes.in_time)
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    assert all(call.triggered_at >= slot for call in rig.runner.calls)


async def test_a_run_canceled_while_prefetched_never_starts(rig: Rig) -> None:
    await rig.engine(workers=PERMITS)
    _, runs = await prefetched_batch(rig, 6, left=2.5)
    await rig.store.cancel_run(runs[0].id, Reason.CANCELED_BY_HAND)
    ended = {run.id: run for run in await all_ended(rig, BATCH)}
    assert ended[runs[0].id].status is RunStatus.CANCELED
    assert ended[runs[0].id].attempts == ()
    assert rig.runner.called(runs[0].id) == []
    assert len(rig.runner.calls) == BATCH - 1


# Released in time, and executed by the other node at the planned time.
async def test_a_stopping_node_releases_prefetched_runs(rig: Rig) -> None:
    first = await rig.engine(workers=PERMITS)
    second = await rig.engine(workers=PERMITS, roles=("worker",))
    made, _ = await prefetched_batch(rig)
    # On a busy machine they may have started already.
    begun = {call.run.id for call in rig.runner.calls}
    await first.drain(timedelta(seconds=5))
    runs = await all_ended(rig, BATCH)
    if not begun:
        assert {run.attempts[0].node for run in runs} == {second.node_id}
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    assert {(run.status, run.attempt) for run in runs} == {(RunStatus.SUCCEEDED, 1)}
    assert all(call.triggered_at >= slot_of(made) for call in rig.runner.calls)


async def test_a_node_without_lease_starts_no_prefetched_run(rig: Rig) -> None:
    faults = Faults(rig.store)
    first = await rig.engine(store=faults.store, workers=PERMITS, heartbeat=timedelta(seconds=0.2))
    made, _ = await prefetched_batch(rig, seconds=4.0, left=2.5)
    faults.failing = dict.fromkeys(("join", "leave", "release"), StoreUnavailable("cut"))
    await rig.store.leave(first.node_id)
    await until(lambda: not first.trusted)
    other = await rig.engine(workers=PERMITS)
    runs = await all_ended(rig, BATCH)
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert {run.attempts[-1].node for run in runs} == {other.node_id}
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    assert all(call.triggered_at >= slot_of(made) for call in rig.runner.calls)
    faults.failing = {}


async def test_an_unavailable_store_delays_prefetched_runs(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store, workers=PERMITS)
    made, _ = await prefetched_batch(rig)
    faults.failing = {"confirm_prefetched": StoreUnavailable("down")}
    await eventually(rig.now, lambda now: now > slot_of(made) + timedelta(seconds=0.3))
    assert rig.runner.calls == []
    faults.failing = {}
    runs = await all_ended(rig, BATCH)
    assert {(run.status, run.attempt) for run in runs} == {(RunStatus.SUCCEEDED, 1)}


async def test_a_lost_answer_only_delays_prefetched_runs(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store, workers=PERMITS)
    faults.answer_lost = {"fire_due": StoreUnavailable("the answer was lost")}
    made = await create_batch(rig)
    runs = await all_ended(rig, BATCH)
    assert {run.id for run in runs} == {slot_run_id(each.id, slot_of(made)) for each in made}
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    assert all(call.triggered_at >= slot_of(made) for call in rig.runner.calls)


async def test_the_started_mark_is_written_at_the_start(rig: Rig) -> None:
    await rig.engine(workers=PERMITS)
    _, runs = await prefetched_batch(rig, policy=Policy(on_lost=OnLost.STOP))
    rig.runner.script = [rig.runner.wait]
    assert not any(run.started for run in runs)
    await until(lambda: len(rig.runner.calls) == BATCH)
    assert all(run.started for run in await rig.runs())
    rig.runner.gate.set()
    await until(lambda: len(rig.emitted(RunEnded)) == BATCH)


async def test_two_nodes_share_a_batch(rig: Rig) -> None:
    count = BATCH * 3 // 2
    await asyncio.gather(*(rig.engine(workers=BATCH) for _ in range(2)))
    made, _ = await prefetched_batch(rig, 2.0, by=count, count=count)
    runs = await all_ended(rig, count)
    assert {run.id for run in runs} == {slot_run_id(each.id, slot_of(made)) for each in made}
    assert set(Counter(call.run.id for call in rig.runner.calls).values()) == {1}
    assert all(run.created_at < run.planned_at and run.fence > 1 for run in runs)
