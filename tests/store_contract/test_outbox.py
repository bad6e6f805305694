"""The end of a run writes one delivery per recipient to the outbox, in the same transaction.

This holds whatever ends the run and however often the end is reported.
"""

from __future__ import annotations

from datetime import time

import pytest

from chimes.model import replace
from chimes.model.ids import DeliveryId, RunId
from chimes.model.notification import Delivery, DeliveryState, plan_deliveries
from chimes.model.planning import end_immediately, plan, slot_run
from chimes.model.policy import Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, QuietHours, Recipient
from chimes.model.routing import Routing, Rule
from chimes.model.run import AttemptEnd, Origin, Reason, Run, RunStatus
from chimes.model.schedule import apply_edit, delete_schedule, skip_next_slot
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    CHAT,
    FLOW,
    HOOK,
    HOUR,
    INBOX,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    TASK,
    a_completion,
    a_delivery_completion,
    a_retry,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import all_deliveries, contents, joined, running_run, running_slot

WITH_RECIPIENT = Policy(delivery=(INBOX,))
FAILED, SUCCEEDED = AttemptEnd.FAILED, AttemptEnd.SUCCEEDED


async def deliveries_by_run(store: Store) -> list[tuple[str, NotifyOn]]:
    """Run id and event of every delivery, by run id."""
    rows = (await all_deliveries(store)).values()
    return sorted((row.run_id, row.notify_on) for row in rows)


async def ended(store: Store, run_id: RunId) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    assert run.status.terminal
    return run


@pytest.mark.parametrize(
    ("end", "notify_on"),
    [
        (SUCCEEDED, NotifyOn.SUCCESS),
        (FAILED, NotifyOn.FAILURE),
        (AttemptEnd.TIMEOUT, NotifyOn.FAILURE),
        (AttemptEnd.CANCELED, NotifyOn.ALWAYS),
    ],
)
async def test_completion_writes_its_delivery(
    store: Store, clock: SettableClock, end: AttemptEnd, notify_on: NotifyOn
) -> None:
    schedule, run = await running_slot(store, policy=WITH_RECIPIENT, owner=ALICE)
    now = clock.advance(2.5)
    before = store.changes()
    (after,) = (await store.finish([a_completion(run, now, end)])).accepted
    (delivery,) = (await all_deliveries(store)).values()
    assert delivery == Delivery(
        id=delivery.id,
        run_id=run.id,
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        owner=ALICE,
        recipient=INBOX,
        notify_on=notify_on,
        created_at=now,
        available_at=now,
    )
    assert (delivery,) == plan_deliveries(after, None, now)
    assert store.changes() > before, "the deliverer is woken"
    assert await store.next_delivery() == now


async def test_completion_applies_quiet_hours_and_digests(
    store: Store, clock: SettableClock
) -> None:
    now = clock.now()
    quiet = QuietHours(
        start=(now - HOUR).time().replace(second=0, microsecond=0),
        end=(now + 3 * HOUR).time().replace(second=0, microsecond=0),
        zone="UTC",
    )
    sleeper = replace(CHAT, on=(NotifyOn.ALWAYS,), quiet=quiet)
    reader = replace(INBOX, digest=Digest(every=Period.HOUR, at=time(), zone="UTC"))
    late = replace(HOOK, on=(NotifyOn.LATE,), late_after=SECOND)
    policy = Policy(delivery=(sleeper, reader, late))
    _, run = await running_slot(store, policy=policy, owner=ALICE)
    run_b = (await running_slot(store, policy=policy, owner=ALICE))[1]
    now = clock.advance(2.5)
    accepted = (await store.finish([a_completion(run, now), a_completion(run_b, now)])).accepted
    wanted = {each.id: each for after in accepted for each in plan_deliveries(after, None, now)}
    assert await all_deliveries(store) == wanted
    why = sorted(each.notify_on for each in wanted.values())
    assert why.count(NotifyOn.DIGEST) == 1, "both runs share one digest"
    assert {each.available_at for each in wanted.values() if each.recipient == sleeper} == {
        quiet.until(now)
    }
    assert (
        await store.claim_deliveries(
            [Channel.INBOX, Channel.TELEGRAM], limit=9, lease=MINUTE, overdue=HOUR
        )
        == ()
    )


async def test_run_without_recipients_writes_no_delivery(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store)
    await store.finish([a_completion(run, clock.now())])
    assert await all_deliveries(store) == {}
    assert await store.next_delivery() is None


async def test_retry_writes_no_delivery(store: Store, clock: SettableClock) -> None:
    _, run = await running_slot(store, policy=WITH_RECIPIENT)
    await store.finish([a_retry(run, clock.now(), SECOND)])
    assert await deliveries_by_run(store) == []
    clock.advance(1)
    (again,) = await store.claim(claim_request())
    await store.finish([a_completion(again, clock.now())])
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.SUCCESS)]


async def test_retry_of_a_canceled_run_writes_a_delivery(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store, policy=WITH_RECIPIENT)
    await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    assert await deliveries_by_run(store) == []
    await store.finish([a_retry(run, clock.now(), SECOND)])
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.ALWAYS)]


async def test_repeated_completion_writes_no_second_delivery(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store, policy=WITH_RECIPIENT)
    completion = a_completion(run, clock.now())
    await store.finish([completion, completion])
    (delivery,) = (await all_deliveries(store)).values()
    clock.advance(1)
    assert len((await store.finish([completion])).accepted) == 1
    assert await all_deliveries(store) == {delivery.id: delivery}
    (claimed,) = await store.claim_deliveries(Channel, limit=9, lease=MINUTE, overdue=HOUR)
    (sent,) = await store.finish_deliveries([a_delivery_completion(claimed)])
    await store.finish([completion])
    assert await all_deliveries(store) == {sent.id: sent}


async def test_fenced_completion_writes_no_delivery(store: Store, clock: SettableClock) -> None:
    _, run = await running_slot(store, policy=WITH_RECIPIENT)
    clock.advance(LEASE)
    await store.rescue(limit=10)
    assert (await store.finish([a_completion(run, clock.now())])).refused == (run.id,)
    assert await all_deliveries(store) == {}


# --- events -----------------------------------------------------------------------------------
async def test_first_success_after_a_failure_is_a_recovery(
    store: Store, clock: SettableClock
) -> None:
    await joined(store, lease=HOUR)
    await store.add_schedule(due_schedule(policy=WITH_RECIPIENT))
    seen = []
    for end in (SUCCEEDED, FAILED, SUCCEEDED, SUCCEEDED, AttemptEnd.TIMEOUT, SUCCEEDED):
        (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
        await store.finish([a_completion(run, clock.now(), end)])
        seen += [why for run_id, why in await deliveries_by_run(store) if run_id == run.id]
        clock.advance(MINUTE)
    assert seen == ["success", "failure", "recovery", "success", "failure", "recovery"]


# Completions of one batch apply in order.
@pytest.mark.parametrize("known", [True, False])
async def test_recovery_is_detected_within_a_batch(
    store: Store, clock: SettableClock, known: bool
) -> None:
    await joined(store)
    other = await store.add_schedule(a_schedule(policy=WITH_RECIPIENT))
    schedule = await store.add_schedule(a_schedule(policy=WITH_RECIPIENT))
    await store.add_runs(
        [
            a_run(schedule, id=RunId("1"), created_at=NOW, priority=9),
            a_run(schedule, id=RunId("2"), priority=8),
            a_run(schedule, id=RunId("3"), priority=7),
            a_run(other, id=RunId("4"), priority=6),
        ]
    )
    runs = await store.claim(claim_request())
    ends = (FAILED, SUCCEEDED, SUCCEEDED, SUCCEEDED)
    await store.finish(
        [
            replace(a_completion(run, clock.now(), end), run=run if known else None)
            for run, end in zip(runs, ends, strict=True)
        ]
    )
    assert await deliveries_by_run(store) == [
        ("1", NotifyOn.FAILURE),
        ("2", NotifyOn.RECOVERY),
        ("3", NotifyOn.SUCCESS),
        ("4", NotifyOn.SUCCESS),
    ]


# Runs keep the recipients of their creation, so one batch may mix runs with and without recipients.
@pytest.mark.parametrize("known", [True, False])
async def test_runs_without_recipients_count_for_recovery(
    store: Store, clock: SettableClock, known: bool
) -> None:
    await joined(store)
    schedule = await store.add_schedule(a_schedule())
    await store.add_runs(
        [
            a_run(schedule, id=RunId("1"), priority=9),
            a_run(schedule, id=RunId("2"), priority=8, policy=WITH_RECIPIENT),
            a_run(schedule, id=RunId("3"), priority=7),
            a_run(schedule, id=RunId("4"), priority=6, policy=WITH_RECIPIENT),
            a_run(id=RunId("5"), priority=5),
        ]
    )
    runs = await store.claim(claim_request())
    ends = (FAILED, SUCCEEDED, FAILED, SUCCEEDED, SUCCEEDED)
    finished = await store.finish(
        [
            replace(a_completion(run, clock.now(), end), run=run if known else None)
            for run, end in zip(runs, ends, strict=True)
        ]
    )
    assert [run.id for run in finished.accepted] == ["1", "2", "3", "4", "5"]
    assert await deliveries_by_run(store) == [("2", NotifyOn.RECOVERY), ("4", NotifyOn.RECOVERY)]
    now = await store.get_schedule(schedule.id)
    assert now is not None
    assert now.last_status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("before", [None, *(each for each in RunStatus if each.terminal)])
async def test_statuses_that_make_a_success_a_recovery(
    store: Store, clock: SettableClock, before: RunStatus | None
) -> None:
    schedule = await store.add_schedule(a_schedule(policy=WITH_RECIPIENT, last_status=before))
    run = await running_run(store, a_run(schedule))
    await store.finish([a_completion(run, clock.now())])
    bad = {RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN, RunStatus.MISSED}
    expected = NotifyOn.RECOVERY if before in bad else NotifyOn.SUCCESS
    assert await deliveries_by_run(store) == [(run.id, expected)]


async def test_recipients_are_notified_of_their_notify_on_events(
    store: Store, clock: SettableClock
) -> None:
    def on(*occasions: NotifyOn) -> Recipient:
        words = "+".join(occasions)
        return Recipient(channel=Channel.EMAIL, to=f"{words}@example.com", on=occasions)

    recipients = (
        on(NotifyOn.SUCCESS),
        on(NotifyOn.FAILURE),
        on(NotifyOn.RECOVERY),
        on(NotifyOn.ALWAYS),
        on(NotifyOn.FAILURE, NotifyOn.RECOVERY),
        on(),
    )
    await joined(store, lease=HOUR)
    await store.add_schedule(due_schedule(policy=Policy(delivery=recipients)))
    recipients_by_end = {}
    for name, end in (
        ("success", SUCCEEDED),
        ("failure", FAILED),
        ("recovery", SUCCEEDED),
        ("canceled", AttemptEnd.CANCELED),
    ):
        (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
        await store.finish([a_completion(run, clock.now(), end)])
        rows = (await all_deliveries(store)).values()
        to = [row.recipient.to for row in rows if row.run_id == run.id]
        recipients_by_end[name] = sorted(each.removesuffix("@example.com") for each in to)
        clock.advance(MINUTE)
    assert recipients_by_end == {
        "success": ["always", "success"],
        "failure": ["always", "failure", "failure+recovery"],
        "recovery": ["always", "failure+recovery", "recovery", "success"],
        "canceled": ["always"],
    }


async def test_each_distinct_recipient_has_one_delivery(store: Store, clock: SettableClock) -> None:
    recipients = (INBOX, CHAT, HOOK, INBOX, replace(CHAT, to="other"))
    run = await running_run(store, a_run(policy=Policy(delivery=recipients)))
    (after,) = (await store.finish([a_completion(run, clock.now())])).accepted
    rows = await all_deliveries(store)
    assert rows == {row.id: row for row in plan_deliveries(after, None, clock.now())}
    sent_to = {row.recipient for row in rows.values()}
    assert sent_to == {INBOX, CHAT, replace(CHAT, to="other")}, (
        "the hook does not notify on success"
    )


async def test_run_keeps_its_recipients_after_an_edit_of_the_schedule(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store, policy=WITH_RECIPIENT)
    await store.change_schedule(
        schedule.id,
        lambda s, now: apply_edit(s, replace(s, policy=Policy(delivery=(CHAT,))), now, "me"),
    )
    await store.finish([a_completion(run, clock.now())])
    (row,) = (await all_deliveries(store)).values()
    assert row.recipient == INBOX


# --- other ways to end a run ------------------------------------------------------------------
async def test_completion_that_pauses_the_schedule_writes_a_delivery(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store, policy=WITH_RECIPIENT)
    await store.finish([a_completion(run, clock.now(), FAILED, pause_schedule="gone")])
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert not after.enabled
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.FAILURE)]


async def test_run_at_the_crash_limit_writes_a_delivery(store: Store, clock: SettableClock) -> None:
    run = await running_run(store, a_run(policy=WITH_RECIPIENT))
    for turn in (2, 3):
        clock.advance(LEASE)
        await store.rescue(limit=10)
        assert await deliveries_by_run(store) == []
        await joined(store, f"node-{turn}")
        (again,) = await store.claim(claim_request(f"node-{turn}"))
        assert again.id == run.id
    clock.advance(LEASE)
    (dead,) = await store.rescue(limit=10)
    assert (dead.status, dead.reason) == (RunStatus.FAILED, Reason.CRASH_LIMIT)
    assert await store.rescue(limit=10) == ()
    rows = await all_deliveries(store)
    assert rows == {row.id: row for row in plan_deliveries(dead, None, clock.now())}
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.FAILURE)]


async def test_unknown_run_writes_a_failure_delivery(store: Store, clock: SettableClock) -> None:
    _, run = await running_slot(store, policy=replace(WITH_RECIPIENT, on_lost=OnLost.STOP))
    await store.start(run.id, run.fence)
    clock.advance(LEASE)
    (gone,) = await store.rescue(limit=10)
    assert gone.status is RunStatus.UNKNOWN
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.FAILURE)]


async def test_unknown_run_of_a_leaving_node_writes_a_delivery(store: Store) -> None:
    run = await running_run(store, a_run(policy=replace(WITH_RECIPIENT, on_lost=OnLost.STOP)))
    await store.start(run.id, run.fence)
    assert run.holder is not None
    await store.leave(run.holder)
    assert (await ended(store, run.id)).status is RunStatus.UNKNOWN
    assert await deliveries_by_run(store) == [(run.id, NotifyOn.FAILURE)]


async def test_cancel_writes_a_delivery_once_it_ends_the_run(
    store: Store, clock: SettableClock
) -> None:
    (waiting,) = await store.add_runs([a_run(policy=WITH_RECIPIENT)])
    await store.cancel_run(waiting.id, Reason.CANCELED_BY_HAND, an_entry())
    assert await deliveries_by_run(store) == [(waiting.id, NotifyOn.ALWAYS)]
    before = await all_deliveries(store)
    clock.advance(1)
    await store.cancel_run(waiting.id, Reason.CANCELED_BY_HAND)
    assert await all_deliveries(store) == before
    run = await running_run(store, a_run(policy=WITH_RECIPIENT))
    await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    assert await all_deliveries(store) == before
    await store.release([(run.id, run.fence)])
    assert (await ended(store, run.id)).status is RunStatus.CANCELED
    assert await deliveries_by_run(store) == sorted(
        [(waiting.id, NotifyOn.ALWAYS), (run.id, NotifyOn.ALWAYS)]
    )


async def test_release_writes_no_delivery(store: Store) -> None:
    run = await running_run(store, a_run(policy=WITH_RECIPIENT))
    await store.release([(run.id, run.fence)])
    assert await deliveries_by_run(store) == []


async def test_deleting_a_schedule_writes_deliveries_of_its_queued_runs(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(a_schedule(policy=WITH_RECIPIENT))
    runs = await store.add_runs([a_run(schedule), a_run(schedule), a_run(policy=WITH_RECIPIENT)])
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    assert await deliveries_by_run(store) == sorted((run.id, NotifyOn.ALWAYS) for run in runs[:2])


async def test_missed_slots_write_deliveries_and_skipped_ones_do_not(
    store: Store, clock: SettableClock
) -> None:
    late = replace(WITH_RECIPIENT, misfire=Misfire.SKIP, misfire_grace=SECOND)
    await store.add_schedule(due_schedule(policy=late))
    now = clock.advance(30 * SECOND)
    before = store.changes()
    (missed,) = (await store.fire_due(plan, limit=10)).others
    assert missed.status is RunStatus.MISSED
    rows = await all_deliveries(store)
    assert rows == {row.id: row for row in plan_deliveries(missed, None, now)}
    assert await deliveries_by_run(store) == [(missed.id, NotifyOn.FAILURE)]
    assert store.changes() > before

    await joined(store, lease=HOUR)
    await store.add_schedule(due_schedule(now, policy=WITH_RECIPIENT))
    (running,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    clock.advance(MINUTE)
    fired = await store.fire_due(plan, limit=10)
    skipped = [run for run in fired.others if run.schedule_id == running.schedule_id]
    assert [run.status for run in skipped] == [RunStatus.SKIPPED]
    assert skipped[0].id not in {run_id for run_id, _ in await deliveries_by_run(store)}


async def test_refired_slot_writes_no_second_delivery(store: Store, clock: SettableClock) -> None:
    late = replace(WITH_RECIPIENT, misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = await store.add_schedule(due_schedule(policy=late))
    clock.advance(30 * SECOND)
    await store.fire_due(plan, limit=10)
    before = await all_deliveries(store)
    await store.change_schedule(
        schedule.id, lambda s, now: replace(s, next_slot=NOW, next_run_at=NOW)
    )
    clock.advance(1)
    await store.fire_due(plan, limit=10)
    assert await all_deliveries(store) == before


async def test_run_canceled_by_overlap_writes_a_delivery(
    store: Store, clock: SettableClock
) -> None:
    await store.add_schedule(
        due_schedule(policy=replace(WITH_RECIPIENT, overlap=Overlap.CANCEL_OLD))
    )
    (old,) = (await store.fire_due(plan, limit=10)).others
    clock.advance(MINUTE)
    (new,) = (await store.fire_due(plan, limit=10)).others
    assert (await ended(store, old.id)).status is RunStatus.CANCELED
    assert new.claimable
    assert await deliveries_by_run(store) == [(old.id, NotifyOn.ALWAYS)]


async def test_run_added_as_ended_writes_deliveries_once(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(
        a_schedule(policy=WITH_RECIPIENT, last_status=RunStatus.FAILED)
    )
    good = a_run(schedule, status=RunStatus.SUCCEEDED, finished_at=NOW)
    waits = a_run(schedule)
    alone = a_run(policy=WITH_RECIPIENT, status=RunStatus.FAILED, finished_at=NOW)
    now = clock.advance(1)
    await store.add_runs([good, waits, alone])
    expected = {(good.id, NotifyOn.RECOVERY), (alone.id, NotifyOn.FAILURE)}
    assert set(await deliveries_by_run(store)) == expected
    before = await all_deliveries(store)
    assert {row.created_at for row in before.values()} == {now}
    clock.advance(1)
    await store.add_runs([good, alone])
    assert await all_deliveries(store) == before


async def test_ended_run_added_by_a_change_writes_a_delivery(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(due_schedule(policy=WITH_RECIPIENT))
    now = clock.advance(1)

    def rows(before: object, at: object) -> list[Run]:
        run = slot_run(schedule, NOW, now)
        return [end_immediately(run, RunStatus.MISSED, Reason.MISFIRE, now)]

    for _ in range(2):
        await store.change_schedule(
            schedule.id, lambda s, at: skip_next_slot(s, at, "me"), runs=rows
        )
    ((_, notify_on),) = await deliveries_by_run(store)
    assert notify_on is NotifyOn.FAILURE


async def test_flow_writes_a_delivery_and_its_steps_do_not(
    store: Store, clock: SettableClock
) -> None:
    capabilities = frozenset({FLOW.requirement, TASK.requirement})
    await joined(store)
    (flow,) = await store.add_runs([a_run(target=FLOW, policy=WITH_RECIPIENT)])
    (held,) = await store.claim(claim_request(capabilities=capabilities))
    step = {"origin": Origin.CHILD, "parent_id": flow.id, "target": TASK, "policy": WITH_RECIPIENT}
    await store.add_runs([a_run(**step), a_run(**step, step="never begun", priority=-1)])
    (first,) = await store.claim(claim_request(free=1, capabilities=capabilities))
    await store.finish([a_completion(first, clock.now())])
    assert await deliveries_by_run(store) == []
    await store.finish([a_completion(held, clock.now())])
    assert await deliveries_by_run(store) == [(flow.id, NotifyOn.SUCCESS)]
    # A step of an ended flow is added as canceled.
    (late,) = await store.add_runs([a_run(**step, step="late")])
    assert late.status is RunStatus.CANCELED
    assert await deliveries_by_run(store) == [(flow.id, NotifyOn.SUCCESS)]


# --- import -----------------------------------------------------------------------------------
async def test_imported_run_writes_no_delivery(store: Store) -> None:
    run = a_run(policy=WITH_RECIPIENT, status=RunStatus.FAILED, finished_at=NOW)
    assert await store.load([run]) == 1
    assert await all_deliveries(store) == {}


async def test_existing_delivery_is_not_overwritten(store: Store, clock: SettableClock) -> None:
    run = await running_run(store, a_run(policy=WITH_RECIPIENT))
    (expected,) = plan_deliveries(
        replace(run, status=RunStatus.SUCCEEDED, finished_at=NOW), None, NOW
    )
    kept = replace(expected, state=DeliveryState.DELIVERED, finished_at=NOW, attempts=1)
    other = replace(kept, id=DeliveryId("other"))
    assert await store.load([kept, other]) == 2
    clock.advance(1)
    await store.finish([a_completion(run, clock.now())])
    assert await all_deliveries(store) == {kept.id: kept, other.id: other}
    assert await store.load([expected]) == 0
    assert kept in await contents(store)


async def test_routing_rules_add_recipients_whatever_ends_the_run(
    store: Store, clock: SettableClock
) -> None:
    escalated = replace(CHAT, on=(NotifyOn.ALWAYS,), after=HOUR)
    store.routing.current = Routing(
        rules=(
            Rule(labels={"team": "billing"}, recipients=(escalated,), proceed=True),
            Rule(labels={"team": None}, recipients=(replace(INBOX, on=(NotifyOn.LATE,)), HOOK)),
            Rule(owner=str(ALICE), statuses=(RunStatus.CANCELED,), recipients=(INBOX,)),
        )
    )
    labels = {"team": "billing", "other": None}
    _, run = await running_slot(store, labels=labels)
    stored = await store.get_run(run.id)
    assert stored is not None
    assert stored.definition.labels == labels
    alone = await running_run(store, a_run(owner=ALICE))
    waiting = a_run(owner=ALICE)
    await store.add_runs([waiting])
    now = clock.advance(2.5)
    (failed,) = (await store.finish([a_completion(run, now, FAILED)])).accepted
    (succeeded,) = (await store.finish([a_completion(alone, now)])).accepted
    canceled = await store.cancel_run(waiting.id, "not needed")
    assert canceled is not None
    rows = await all_deliveries(store)
    wanted = [
        each
        for after in (failed, succeeded, canceled)
        for each in plan_deliveries(after, None, now, store.routing.current)
    ]
    assert rows == {each.id: each for each in wanted}
    assert sorted((each.run_id, each.recipient.to, each.available_at) for each in wanted) == sorted(
        [
            (run.id, CHAT.to, now + HOUR),
            (run.id, HOOK.to, now),
            (waiting.id, INBOX.to, now),
        ]
    )


async def test_suppressed_deliveries_have_ended(store: Store, clock: SettableClock) -> None:
    run = await running_run(store, a_run(policy=WITH_RECIPIENT))
    await store.finish([a_completion(run, clock.now())])
    (claimed,) = await store.claim_deliveries([Channel.INBOX], limit=1, lease=LEASE, overdue=HOUR)
    completion = replace(
        a_delivery_completion(claimed), sent=False, suppressed=True, error="quiet", code="silenced"
    )
    (after,) = await store.finish_deliveries([completion])
    assert (after.state, after.code) == (DeliveryState.SUPPRESSED, "silenced")
    assert await all_deliveries(store) == {after.id: after}
    assert await store.next_delivery() is None
    counts = (await store.counts()).deliveries
    assert counts.get(DeliveryState.SUPPRESSED) == 1
    again = await store.retry_delivery(after.id)
    assert again is not None
    assert again.state is DeliveryState.PENDING
