"""Due schedules become runs, and runs are executed."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.engine.events import RunEnded, ScheduleBroken, SchedulesFired
from chimes.engine.poller import PollAfter, PollNow
from chimes.engine.scheduler import BATCH
from chimes.model.ids import slot_run_id
from chimes.model.listing import AuditQuery
from chimes.model.planning import FireContext, FirePlan, plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Reason, RunStatus
from chimes.model.schedule import (
    Dependency,
    Schedule,
    delete_schedule,
    move_next_run,
    pause_schedule,
    reschedule_next,
    resume_schedule,
)
from chimes.triggers import Every
from tests.builders import a_schedule
from tests.engine.rig import FAR, Faults, Rig, eventually, until

SECOND = timedelta(seconds=1)


async def test_a_schedule_fires_at_its_time_and_not_before(rig: Rig) -> None:
    await rig.engine(poll_interval=timedelta(seconds=30))
    slot = await rig.now() + timedelta(seconds=0.3)
    schedule = await rig.once_at(slot)
    (run,) = await rig.ended(schedule)
    assert run.id == slot_run_id(schedule.id, slot)
    assert (run.status, run.attempt, run.fence) == (RunStatus.SUCCEEDED, 1, 1)
    (call,) = rig.runner.calls
    # Before the next poll, however busy the machine is; `make bench` measures.
    assert timedelta(0) <= call.triggered_at - slot < timedelta(seconds=25)
    after = await rig.schedule(schedule.id)
    assert (after.next_slot, after.last_status) == (slot + FAR, RunStatus.SUCCEEDED)


async def test_an_earlier_schedule_wakes_the_sleeping_scheduler(rig: Rig) -> None:
    await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.engine(poll_interval=timedelta(seconds=30))
    await until(lambda: rig.engines)
    schedule = await rig.due_now()
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.SUCCEEDED


async def test_many_schedules_due_at_once_run_exactly_once(rig: Rig) -> None:
    # Three batches. The JSON file is rewritten for every change, so it gets fewer runs.
    count = 100 if rig.kind == "json" else 2 * BATCH + 100
    slot = await rig.now()
    trigger = Every(FAR, anchor=slot)
    made = [a_schedule(trigger=trigger, next_slot=slot, next_run_at=slot) for _ in range(count)]
    await rig.store.load(made)
    await rig.engine()
    await until(lambda: len(rig.emitted(RunEnded)) >= count, within=60)
    runs = await rig.runs(None, RunStatus.SUCCEEDED)
    assert {run.schedule_id for run in runs} == {schedule.id for schedule in made}
    assert len({call.run.id for call in rig.runner.calls}) == len(rig.runner.calls) == count
    assert all(len(event.schedules) <= BATCH for event in rig.emitted(SchedulesFired))


async def test_the_dispatch_cap_defers_the_rest_to_the_next_tick(rig: Rig) -> None:
    slot = await rig.now()
    for _ in range(5):
        await rig.once_at(slot)
    await rig.engine(max_dispatch_per_tick=2, dispatch_tick=timedelta(seconds=0.4))
    await until(lambda: len(rig.runner.calls) == 5)
    sizes = [len(event.schedules) for event in rig.emitted(SchedulesFired)]
    assert sizes == [2, 2, 1]
    made = sorted(run.created_at for run in await rig.runs())
    assert made[2] - made[0] >= timedelta(seconds=0.35)
    assert made[4] - made[2] >= timedelta(seconds=0.35)


# Also for schedules that come due one by one.
async def test_the_dispatch_cap_counts_earlier_fires_of_the_tick(rig: Rig) -> None:
    first = await rig.now()
    for late in (0, 0.2, 0.25, 0.3):
        await rig.once_at(first + timedelta(seconds=late))
    await rig.engine(max_dispatch_per_tick=2, dispatch_tick=timedelta(seconds=0.8))
    await until(lambda: len(rig.runner.calls) == 4)
    made = sorted(run.created_at for run in await rig.runs())
    assert made[2] - made[0] >= timedelta(seconds=0.75)
    assert made[3] - made[1] >= timedelta(seconds=0.75)


# SOFTNIX_SCHEDULER_ENABLED=false.
async def test_prompts_are_postponed_while_their_scheduler_is_off(rig: Rig) -> None:
    slot = await rig.now()
    prompt = await rig.once_at(slot, namespace="softnix")
    other = await rig.once_at(slot)
    engine = await rig.engine(softnix_scheduler_enabled=False)
    await rig.ended(other)
    after = await eventually(
        lambda: rig.schedule(prompt.id), lambda found: found.next_run_at != slot
    )
    assert await rig.runs(prompt) == []
    assert after.next_slot == slot
    assert [each.id for event in rig.emitted(SchedulesFired) for each in event.schedules] == [
        other.id
    ]
    await engine.drain()


# Slots that were due while no node ran.
async def test_misfire_policies_at_start(rig: Rig) -> None:
    first = await rig.now() - timedelta(minutes=65)
    made = {
        misfire: await rig.every(
            600, first, policy=Policy(misfire=misfire, misfire_grace=SECOND, catch_up_limit=4)
        )
        for misfire in Misfire
    }
    await rig.engine()
    one = await rig.ended(made[Misfire.ONE], 2)
    assert [(r.status, r.slot, r.missed_count) for r in one] == [
        (RunStatus.SUCCEEDED, first, 0),
        (RunStatus.MISSED, first + timedelta(minutes=10), 6),
    ]
    (skipped,) = await rig.ended(made[Misfire.SKIP])
    assert (skipped.status, skipped.reason) == (RunStatus.MISSED, Reason.MISFIRE)
    assert (skipped.slot, skipped.missed_count) == (first, 7)
    every = await rig.ended(made[Misfire.ALL], 7)
    assert {r.status for r in every} == {RunStatus.SUCCEEDED}
    assert [r.slot for r in every] == [first + timedelta(minutes=10 * n) for n in range(7)]
    (behind,) = {(await rig.schedule(s.id)).next_slot for s in made.values()}
    assert behind == first + timedelta(minutes=70)


async def test_overlapping_slots_follow_the_policy(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait]
    first = await rig.now()
    ways = {
        overlap: await rig.every(1.0, first, policy=Policy(overlap=overlap))
        for overlap in (Overlap.SKIP, Overlap.QUEUE, Overlap.ALLOW, Overlap.CANCEL_OLD)
    }
    await rig.engine()

    async def three_of_each() -> bool:
        return all([len(await rig.runs(schedule)) >= 3 for schedule in ways.values()])

    await eventually(three_of_each, bool)
    skip = await eventually(
        lambda: rig.runs(ways[Overlap.SKIP]),
        lambda runs: any(r.status is RunStatus.SKIPPED for r in runs),
    )
    assert skip[0].status is RunStatus.RUNNING
    # On a busy machine the first pass is late. Slots that it fires together wait for each other.
    others = [r for r in skip[1:] if not r.blocked]
    assert {(r.status, r.reason) for r in others} == {(RunStatus.SKIPPED, Reason.OVERLAP)}
    queue = await rig.runs(ways[Overlap.QUEUE])
    assert [(r.status, r.blocked) for r in queue[:2]] == [
        (RunStatus.RUNNING, False),
        (RunStatus.QUEUED, True),
    ]
    await eventually(
        lambda: rig.runs(ways[Overlap.ALLOW]),
        lambda runs: all(r.status is RunStatus.RUNNING for r in runs[:2]),
    )
    replaced = await eventually(
        lambda: rig.runs(ways[Overlap.CANCEL_OLD]),
        lambda runs: runs[0].status is RunStatus.CANCELED,
    )
    assert replaced[0].reason == Reason.REPLACED
    assert replaced[0].id in rig.runner.stopped
    rig.runner.gate.set()
    await rig.reached(queue[1].id, RunStatus.SUCCEEDED)


async def test_a_broken_schedule_stops_no_other(rig: Rig) -> None:
    healthy = [await rig.due_now() for _ in range(3)]
    broken = await rig.due_now()

    def planner(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        if schedule.id == broken.id:
            raise ValueError("no such calendar")
        return plan(schedule, context, now)

    scheduler = await rig.scheduler(planner)
    assert await scheduler.run_once() == PollNow()
    (event,) = rig.emitted(ScheduleBroken)
    aside = await rig.schedule(broken.id)
    assert event.schedule == aside
    assert (aside.next_run_at, aside.last_error) == (None, "ValueError: no such calendar")
    assert await rig.runs(broken) == []
    for schedule in healthy:
        assert len(await rig.runs(schedule)) == 1


async def test_scheduler_without_progress_waits_for_the_poll_interval(rig: Rig) -> None:
    await rig.due_now()
    scheduler = await rig.scheduler(lambda schedule, *_: FirePlan(schedule=schedule, runs=()))
    assert await scheduler.run_once() == PollAfter(rig.settings.poll_interval.total_seconds())


async def test_an_idle_node_neither_fires_nor_claims(rig: Rig) -> None:
    await rig.once_at(await rig.now() + timedelta(hours=1))
    faults = Faults(rig.store)
    await rig.engine(store=faults.store, poll_interval=timedelta(seconds=0.01))
    await until(lambda: faults.count["next_available"] >= 10 and faults.count["next_due"] >= 10)
    assert faults.count["fire_due"] == 0
    assert faults.count["claim"] == 1


async def test_edits_between_due_and_fire_take_effect(rig: Rig) -> None:
    engine = await rig.engine(roles=("worker",))
    slot = await rig.now()
    changes = {
        "pause": lambda s, now: pause_schedule(s, now, "me"),
        "delete": lambda s, now: delete_schedule(s, now, "me"),
        "move": lambda s, now: move_next_run(s, now + timedelta(hours=1), now, "me"),
        "reschedule": lambda s, now: reschedule_next(s, now - timedelta(hours=1), now, "me"),
        "bounce": lambda s, now: resume_schedule(pause_schedule(s, now, "me"), now, "me"),
    }
    made = {}
    for name, change in changes.items():
        made[name] = await rig.once_at(slot)
        await rig.store.change_schedule(made[name].id, change)
    untouched = await rig.once_at(slot)
    await rig.engine(roles=("scheduler",))
    await rig.ended(untouched)
    (again,) = await rig.ended(made["reschedule"])
    assert again.slot is not None
    assert again.slot > slot
    for name in ("pause", "delete", "move", "bounce"):
        assert await rig.runs(made[name]) == [], name
    assert (await rig.schedule(made["move"].id)).next_slot == slot
    assert len(rig.runner.calls) == 2
    await until(lambda: engine.running == ())


async def test_delete_cancels_queued_runs_and_lets_running_ones_finish(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait]
    schedule = await rig.every(0.2, await rig.now(), policy=Policy(overlap=Overlap.QUEUE))
    await rig.engine()
    await eventually(lambda: rig.runs(schedule), lambda runs: len(runs) >= 2)
    await rig.store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    rig.runner.gate.set()
    await rig.reached(rig.runner.calls[0].run.id, RunStatus.SUCCEEDED)
    runs = await rig.runs(schedule)
    assert len(runs) >= 2
    assert {r.status for r in runs[1:]} == {RunStatus.CANCELED}
    assert {r.reason for r in runs[1:]} == {Reason.SCHEDULE_DELETED}
    assert len(rig.runner.calls) == 1


async def test_a_dependency_that_did_not_succeed_leaves_a_skipped_row(rig: Rig) -> None:
    other = await rig.once_at(await rig.now() + timedelta(hours=1))
    schedule = await rig.due_now(depends_on=Dependency(schedule_id=other.id))
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.reason) == (RunStatus.SKIPPED, Reason.DEPENDENCY)
    assert rig.runner.calls == []


async def test_one_node_fires_and_another_executes(rig: Rig) -> None:
    await rig.engine(roles=("scheduler",))
    schedule = await rig.due_now()
    (run,) = await eventually(lambda: rig.runs(schedule), bool)
    assert (run.status, run.holder) == (RunStatus.QUEUED, None)
    worker = await rig.engine(roles=("worker",))
    (done,) = await rig.ended(schedule)
    assert done.status is RunStatus.SUCCEEDED
    assert done.attempts[0].node == worker.node_id


async def test_a_pause_ends_automatically_and_is_audited(rig: Rig) -> None:
    await rig.engine()
    now = await rig.now()
    schedule = await rig.every(0.3, now + SECOND)
    end = now + timedelta(seconds=0.2)
    await rig.store.change_schedule(
        schedule.id, lambda s, at: pause_schedule(s, at, "me", note="lunch", until=end)
    )
    kept = await rig.every(0.3, now + SECOND)
    await rig.store.change_schedule(
        kept.id, lambda s, at: pause_schedule(s, at, "me", note="for good")
    )
    await rig.ended(schedule)
    after = await rig.schedule(schedule.id)
    assert (after.enabled, after.pause_note, after.pause_until) == (True, "", None)
    assert not (await rig.schedule(kept.id)).enabled
    (entry,) = await rig.store.list_audit(AuditQuery(object_id=schedule.id))
    assert (entry.verb, entry.actor) == ("resume", "chimes")
    assert all((r.slot or now) > end for r in await rig.runs(schedule))
