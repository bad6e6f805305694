"""Cancelling a run in each of its states."""

from __future__ import annotations

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.run import Reason, RunStatus, cancel
from chimes.model.schedule import record_run
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    MINUTE,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
)
from tests.store_contract.scenes import NODE, all_runs, joined, running_run, running_slot

BY_HAND = Reason.CANCELED_BY_HAND


async def test_cancel_of_an_unknown_run_is_none(store: Store) -> None:
    assert await store.cancel_run(RunId("nobody"), BY_HAND, an_entry()) is None
    assert await store.list_audit(AuditQuery()) == ()


async def test_cancel_of_a_queued_run_updates_its_schedule(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(a_schedule())
    (run,) = await store.add_runs([a_run(schedule)])
    ended = cancel(run, BY_HAND, clock.advance(1))
    assert await store.cancel_run(run.id, BY_HAND, an_entry(verb="cancel")) == ended
    assert await store.get_run(run.id) == ended
    assert await store.get_schedule(schedule.id) == record_run(schedule, ended)
    assert [entry.verb for entry in await store.list_audit(AuditQuery())] == ["cancel"]


async def test_cancel_of_a_blocked_run_unblocks_nothing(store: Store) -> None:
    rows = await store.add_runs([a_run(concurrency_key="k") for _ in range(3)])
    after = await store.cancel_run(rows[1].id, BY_HAND)
    assert after is not None
    assert (after.status, after.blocked) == (RunStatus.CANCELED, False)
    assert (await all_runs(store))[rows[2].id] == rows[2]


async def test_cancel_ends_a_run_that_waits_for_its_retry(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    (waiting,) = (await store.finish([a_retry(run, clock.now(), MINUTE)])).accepted
    assert await store.cancel_run(run.id, BY_HAND) == cancel(waiting, BY_HAND, clock.now())
    clock.advance(MINUTE)
    assert await store.next_available() is None


async def test_cancel_of_a_running_run_is_reported_by_the_heartbeat(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store)
    before = store.changes()
    asked = replace(run, cancel_requested=True, reason=BY_HAND)
    assert await store.cancel_run(run.id, BY_HAND) == asked
    assert store.changes() > before
    assert await store.get_run(run.id) == asked
    assert await store.get_schedule(schedule.id) == schedule
    heartbeat = await store.heartbeat(NODE, LEASE, clock=clock.now())
    assert heartbeat.cancel == (run.id,)
    (ended,) = (await store.finish([a_completion(run, clock.now())])).accepted
    assert ended.status is RunStatus.SUCCEEDED
    assert (await store.heartbeat(NODE, LEASE, clock=clock.now())).cancel == ()


async def test_cancel_of_an_ended_run_changes_nothing(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    (ended,) = (await store.finish([a_completion(run, clock.now())])).accepted
    summary = await store.get_schedule(schedule.id)
    clock.advance(1)
    assert await store.cancel_run(run.id, BY_HAND, an_entry()) == ended
    assert await store.get_run(run.id) == ended
    assert await store.get_schedule(schedule.id) == summary
    assert await store.claim(claim_request()) == ()


async def test_release_of_a_run_with_requested_cancel_ends_it(
    store: Store, clock: SettableClock
) -> None:
    key = {"concurrency_key": "k", "concurrency_limit": 1}
    await store.add_runs([a_run(id=RunId("first"), **key), a_run(id=RunId("second"), **key)])
    await joined(store)
    (run,) = await store.claim(claim_request())
    await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    await store.release([(run.id, run.fence)])
    after = await store.get_run(run.id)
    assert after is not None
    assert (after.status, after.reason, after.attempt) == (
        RunStatus.CANCELED,
        Reason.CANCELED_BY_HAND,
        0,
    )
    assert [run.id for run in await store.claim(claim_request())] == ["second"]
