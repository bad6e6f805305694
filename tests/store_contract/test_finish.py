"""Completions: fenced, repeatable, with side effects."""

from __future__ import annotations

import pytest

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import AttemptEnd, Reason, RunStatus, cancel, complete, unblock
from chimes.model.schedule import delete_schedule, pause_schedule, record_run
from chimes.store.port import CompletionResult, Store
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    claim_request,
    log_lines,
)
from tests.store_contract.scenes import all_runs, contents, joined, running_run, running_slot

ENDS = [AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED]


@pytest.mark.parametrize("end", ENDS)
async def test_completion_ends_the_run_and_updates_its_schedule(
    store: Store, clock: SettableClock, end: AttemptEnd
) -> None:
    schedule, run = await running_slot(store)
    now = clock.advance(2.5)
    completion = a_completion(run, now, end, reason="some_code", logs=tuple(log_lines("line")))
    ended = complete(run, completion, now)
    assert (ended.status, ended.finished_at) == (RunStatus(end.value), now)
    assert await store.finish([completion]) == CompletionResult(accepted=(ended,))
    assert await store.get_run(run.id) == ended
    assert await store.get_schedule(schedule.id) == record_run(schedule, ended)
    assert [entry.message for entry in await store.read_logs(run.id)] == ["line"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_run_without_a_schedule_is_completed(
    store: Store, clock: SettableClock, known: bool, end: AttemptEnd
) -> None:
    """With and without the run in the completion (`known`)."""
    run = await running_run(store)
    whose = run if known else None
    completion = replace(a_completion(run, clock.now(), end), run=whose)
    ended = complete(run, completion, NOW)
    assert await store.finish([completion]) == CompletionResult(accepted=(ended,))
    assert await store.get_run(run.id) == ended
    assert await store.finish([completion]) == CompletionResult(accepted=(ended,))
    later = replace(a_completion(run, clock.advance(1)), run=whose)
    assert await store.finish([later]) == CompletionResult(refused=(run.id,))


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_batch_of_runs_without_a_schedule_is_completed_individually(
    store: Store, clock: SettableClock, known: bool
) -> None:
    await joined(store)
    await store.add_runs([a_run() for _ in range(5)])
    runs = await store.claim(claim_request(free=5))
    await store.cancel_run(runs[3].id, "no_more")
    now = clock.advance(1)
    said = [
        a_completion(runs[0], now),
        a_retry(runs[1], now, 5 * SECOND),
        a_completion(replace(runs[2], fence=7), now),
        a_retry(runs[3], now, SECOND),
        a_completion(runs[4], now, result={"word": "สวัสดี"}),
    ]
    completions = [
        replace(v, run=run if known else None) for v, run in zip(said, runs, strict=True)
    ]
    answer = await store.finish(completions)
    assert answer.refused == (runs[2].id,)
    assert [run.status for run in answer.accepted] == [
        RunStatus.SUCCEEDED,
        RunStatus.QUEUED,
        RunStatus.CANCELED,
        RunStatus.SUCCEEDED,
    ]
    stored = [await store.get_run(run.id) for run in runs if run.id != runs[2].id]
    assert stored == list(answer.accepted)
    assert (await store.finish(completions)).accepted == answer.accepted


async def test_empty_batch_changes_nothing(store: Store) -> None:
    assert await store.finish([]) == CompletionResult()


async def test_retry_queues_the_run_again(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    now = clock.advance(1)
    completion = a_retry(run, now, 5 * SECOND)
    waiting = complete(run, completion, now)
    assert await store.finish([completion]) == CompletionResult(accepted=(waiting,))
    assert (waiting.status, waiting.available_at) == (RunStatus.QUEUED, now + 5 * SECOND)
    assert await store.get_schedule(schedule.id) == schedule
    assert await store.next_available() == now + 5 * SECOND
    assert await store.claim(claim_request()) == ()
    clock.advance(5)
    (again,) = await store.claim(claim_request())
    assert (again.id, again.attempt, again.fence) == (run.id, 2, 2)
    assert again.attempts == (completion.attempt,)


async def test_repeated_completion_is_accepted_and_changes_nothing(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store)
    completion = a_completion(run, clock.advance(1), logs=tuple(log_lines("once")))
    first = await store.finish([completion])
    after = await contents(store)
    clock.advance(1)
    assert await store.finish([completion]) == first
    assert await store.finish([completion, completion]) == CompletionResult(
        accepted=first.accepted * 2
    )
    assert await contents(store) == after


async def test_repeated_retry_is_accepted_even_after_the_next_claim(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    completion = a_retry(run, clock.now(), SECOND)
    await store.finish([completion])
    clock.advance(1)
    (again,) = await store.claim(claim_request())
    assert await store.finish([completion]) == CompletionResult(accepted=(again,))
    assert await store.get_run(run.id) == again


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["nul", "surrogate"])
@pytest.mark.parametrize("retry", [False, True])
async def test_repeated_completion_is_accepted_although_its_text_was_sanitised(
    store: Store, clock: SettableClock, text: str, retry: bool
) -> None:
    run = await running_run(store)
    completion = a_completion(run, clock.advance(1), AttemptEnd.FAILED, error=text)
    completion = replace(completion, attempt=replace(completion.attempt, error=text))
    if retry:
        completion = replace(completion, status=RunStatus.QUEUED, retry_in=SECOND)
    (first,) = (await store.finish([completion])).accepted
    again = await store.finish([completion])
    assert [each.id for each in again.accepted] == [first.id]
    assert again.refused == ()
    assert await store.get_run(run.id) == again.accepted[0]


async def test_different_completion_of_the_same_attempt_is_rejected(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    (ended,) = (await store.finish([a_completion(run, clock.now())])).accepted
    other = a_completion(run, clock.now(), AttemptEnd.FAILED)
    assert await store.finish([other]) == CompletionResult(refused=(run.id,))
    assert await store.get_run(run.id) == ended


async def test_completion_with_an_old_fence_is_rejected(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    clock.advance(LEASE)
    await store.rescue(limit=10)
    await joined(store, "node-2")
    (taken,) = await store.claim(claim_request("node-2"))
    stale = a_completion(run, clock.now(), logs=tuple(log_lines("too late")))
    before = await contents(store)
    assert await store.finish([stale]) == CompletionResult(refused=(run.id,))
    assert await contents(store) == before
    fresh = a_completion(taken, clock.now(), AttemptEnd.FAILED)
    (ended,) = (await store.finish([fresh])).accepted
    assert await store.finish([stale]) == CompletionResult(refused=(run.id,))
    assert await store.get_run(run.id) == ended
    summary = await store.get_schedule(schedule.id)
    assert summary is not None
    assert summary.last_status is RunStatus.FAILED


@pytest.mark.parametrize("stale_first", [True, False])
async def test_of_two_completions_in_a_batch_the_one_with_the_old_fence_is_rejected(
    store: Store, clock: SettableClock, stale_first: bool
) -> None:
    run = await running_run(store)
    clock.advance(LEASE)
    await store.rescue(limit=10)
    await joined(store, "node-2")
    (taken,) = await store.claim(claim_request("node-2"))
    stale = a_completion(run, clock.now(), AttemptEnd.FAILED)
    fresh = a_completion(taken, clock.now())
    result = await store.finish([stale, fresh] if stale_first else [fresh, stale])
    assert [each.status for each in result.accepted] == [RunStatus.SUCCEEDED]
    assert result.refused == (run.id,)
    ended = await store.get_run(run.id)
    assert ended is not None
    assert (ended.status, ended.fence) == (RunStatus.SUCCEEDED, taken.fence)


async def test_completion_of_a_rescued_queued_run_is_rejected(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    clock.advance(LEASE)
    (waiting,) = await store.rescue(limit=10)
    assert await store.finish([a_completion(run, clock.now())]) == CompletionResult(
        refused=(run.id,)
    )
    assert await store.get_run(run.id) == waiting


# The fence decides, not the lease.
async def test_late_completion_is_accepted_before_the_rescue(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    clock.advance(LEASE + SECOND)
    assert len((await store.finish([a_completion(run, clock.now())])).accepted) == 1


async def test_batch_returns_accepted_and_rejected_runs(store: Store, clock: SettableClock) -> None:
    await joined(store)
    await store.add_runs([a_run(priority=priority) for priority in (3, 2, 1)])
    first, second, third = await store.claim(claim_request())
    now = clock.advance(1)
    completions = [
        a_completion(third, now, AttemptEnd.FAILED),
        replace(a_completion(second, now), fence=second.fence + 1),
        replace(a_completion(first, now), run_id=RunId("nobody")),
        a_completion(first, now),
    ]
    finished = await store.finish(completions)
    assert finished.accepted == (
        complete(third, completions[0], now),
        complete(first, completions[3], now),
    )
    assert finished.refused == (second.id, "nobody")
    assert await store.get_run(second.id) == second


async def test_accepted_runs_are_in_the_order_of_their_completions(
    store: Store, clock: SettableClock
) -> None:
    """Also if a batch has a stale and a valid completion of the same run."""
    await joined(store)
    await store.add_runs([a_run(priority=priority) for priority in (2, 1)])
    first, second = await store.claim(claim_request())
    now = clock.advance(1)
    completions = [
        a_completion(first, now),
        a_completion(second, now),
        replace(a_completion(first, now, AttemptEnd.FAILED), fence=first.fence - 1),
    ]
    finished = await store.finish(completions)
    assert finished.accepted == (
        complete(first, completions[0], now),
        complete(second, completions[1], now),
    )
    assert finished.refused == (first.id,)


async def test_completion_can_pause_the_schedule(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    now = clock.advance(1)
    completion = a_completion(run, now, AttemptEnd.FAILED, pause_schedule="gone")
    (ended,) = (await store.finish([completion])).accepted
    expected = pause_schedule(record_run(schedule, ended), now, "chimes", note="gone")
    assert await store.get_schedule(schedule.id) == expected
    assert (expected.enabled, expected.next_run_at) == (False, None)
    await store.finish([completion])
    assert await store.get_schedule(schedule.id) == expected


async def test_completion_does_not_pause_a_paused_or_deleted_schedule(
    store: Store, clock: SettableClock
) -> None:
    for change in (
        lambda s, now: pause_schedule(s, now, "me", note="by hand"),
        lambda s, now: delete_schedule(s, now, "me"),
    ):
        schedule, run = await running_slot(store)
        before = await store.change_schedule(schedule.id, change)
        completion = a_completion(run, clock.now(), AttemptEnd.FAILED, pause_schedule="gone")
        (ended,) = (await store.finish([completion])).accepted
        assert await store.get_schedule(schedule.id) == record_run(before, ended)


async def test_next_blocked_run_of_the_key_is_unblocked_on_completion(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    key = {"concurrency_key": "k"}
    rows = [a_run(**key), a_run(**key), a_run(priority=5, **key), a_run(concurrency_key="other")]
    await store.add_runs(rows)
    first = next(run for run in await store.claim(claim_request()) if run.id == rows[0].id)
    before = store.changes()
    await store.finish([a_completion(first, clock.now())])
    assert store.changes() > before
    runs = await all_runs(store)
    assert runs[rows[2].id] == rows[2]
    assert runs[rows[1].id] == replace(rows[1], blocked=True)
    (second,) = await store.claim(claim_request())
    await store.finish([a_completion(second, clock.now(), AttemptEnd.FAILED)])
    assert await store.get_run(rows[1].id) == rows[1]


async def test_retry_keeps_its_permit_of_the_concurrency_key(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store, a_run(concurrency_key="k"))
    (waiting,) = await store.add_runs([a_run(concurrency_key="k")])
    await store.finish([a_retry(run, clock.now(), MINUTE)])
    assert await store.get_run(waiting.id) == waiting
    assert waiting.blocked


async def test_as_many_runs_are_unblocked_as_the_limit_allows(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    key = {"concurrency_key": "k", "concurrency_limit": 2}
    rows = await store.add_runs([a_run(**key) for _ in range(6)])
    assert [run.blocked for run in rows] == [False, False, True, True, True, True]
    both = await store.claim(claim_request())
    await store.finish([a_completion(run, clock.now()) for run in both])
    assert [run.id for run in await store.claim(claim_request())] == [rows[2].id, rows[3].id]


# A run keeps the limit of its creation, even if the schedule is edited.
async def test_each_blocked_run_has_its_own_limit(store: Store, clock: SettableClock) -> None:
    run = await running_run(store, a_run(concurrency_key="k"))
    narrow = a_run(concurrency_key="k", concurrency_limit=1)
    (waiting,) = await store.add_runs([narrow])
    (wide,) = await store.add_runs([a_run(concurrency_key="k", concurrency_limit=2)])
    assert (waiting.blocked, wide.blocked) == (True, False)
    await store.finish([a_completion(run, clock.now())])
    # `wide` still counts, so the run with limit 1 stays blocked.
    assert await store.get_run(waiting.id) == waiting
    (claimed_wide,) = await store.claim(claim_request())
    await store.finish([a_completion(claimed_wide, clock.now())])
    assert await store.get_run(waiting.id) == unblock(waiting)


async def test_completions_of_a_batch_unblock_in_order(store: Store, clock: SettableClock) -> None:
    """The run with limit 2 is unblocked by the first completion; the run with limit 1 stays."""
    await joined(store)
    key = {"concurrency_key": "k", "concurrency_limit": 2}
    await store.add_runs([a_run(**key), a_run(**key)])
    running = await store.claim(claim_request())
    narrow = a_run(concurrency_key="k", concurrency_limit=1, priority=1)
    wide = a_run(**key)
    await store.add_runs([narrow, wide])
    await store.finish([a_completion(run, clock.now()) for run in running])
    assert [run.id for run in await store.claim(claim_request())] == [wide.id]


async def test_queued_slots_of_a_schedule_run_one_after_the_other(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store, policy=Policy(overlap=Overlap.QUEUE))
    order = [run.slot]
    for _ in range(3):
        clock.advance(MINUTE)
        await store.fire_due(plan, limit=10)
    await joined(store, "node-2")
    while True:
        await store.finish([a_completion(run, clock.now())])
        claimed = await store.claim(claim_request("node-2"))
        if not claimed:
            break
        (run,) = claimed
        order.append(run.slot)
    assert order == [NOW + number * MINUTE for number in range(4)]


async def test_cancel_takes_precedence_over_a_retry(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    now = clock.advance(1)
    (ended,) = (await store.finish([a_retry(run, now, SECOND)])).accepted
    assert (ended.status, ended.reason) == (RunStatus.CANCELED, Reason.CANCELED_BY_HAND)
    assert ended.finished_at == now
    assert len(ended.attempts) == 1
    summary = await store.get_schedule(schedule.id)
    assert summary == record_run(schedule, ended)


async def test_cancel_ends_a_queued_run_and_unblocks_the_next(
    store: Store, clock: SettableClock
) -> None:
    (first,), (second,) = (
        await store.add_runs([a_run(concurrency_key="k")]),
        await store.add_runs([a_run(concurrency_key="k")]),
    )
    now = clock.advance(3)
    ended = cancel(first, "because", now)
    before = store.changes()
    assert await store.cancel_run(first.id, "because") == ended
    assert store.changes() > before
    assert await all_runs(store) == {first.id: ended, second.id: unblock(second)}


# The actor is the system.
async def test_pause_by_a_completion_is_audited(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(a_schedule())
    await joined(store)
    await store.add_runs([a_run(schedule)])
    (run,) = await store.claim(claim_request())
    gone = a_completion(run, clock.now(), AttemptEnd.FAILED, pause_schedule="gone")
    await store.finish([gone])
    (entry,) = await store.list_audit(AuditQuery())
    assert (entry.verb, entry.object_id, entry.actor, entry.reason) == (
        "pause",
        schedule.id,
        "chimes",
        "gone",
    )
