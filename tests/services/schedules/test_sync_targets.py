"""Sync targets: available pairs, and at most one active run of a pair."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import Conflict, InvalidInput
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import plan
from chimes.model.policy import PRIORITY, Overlap, Policy, RunDefaults
from chimes.model.run import AttemptEnd, Reason, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.sync import HIGH, LOW, SYNC_TIMEOUT, task_policy
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import HttpTarget, SyncTarget
from chimes.model.validation import check_target, longest_timeout
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest, RunService
from chimes.services.schedules.rules import ScheduleRules, default_timeout, fallback_run_defaults
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import HOUR, LEASE, MINUTE, NOW, a_completion, a_node, a_schedule, claim_request
from tests.services.conftest import ADMIN

ORDERS = SyncTarget(source="shop", collection="orders")
CLIENTS = SyncTarget(source="shop", collection="clients")
ELSEWHERE = SyncTarget(source="crm", collection="deals")
TIMEOUT = timedelta(minutes=7)
HERE = {
    each.key: RunDefaults(policy=task_policy(each, timeout=TIMEOUT), priority=HIGH)
    for each in (ORDERS, CLIENTS)
}
NOTHING: frozenset[str] = frozenset()


@pytest.fixture
def schedules(store: MemoryStore) -> ScheduleService:
    return ScheduleService(
        store, ScheduleRules(store, check_target=check_target, capabilities=lambda: HERE)
    )


@pytest.fixture
async def node(store: MemoryStore) -> None:
    """A node with sources of its own."""
    defaults = {ELSEWHERE.key: RunDefaults(policy=task_policy(ELSEWHERE), priority=LOW)}
    await store.join(
        a_node(capabilities=(ORDERS.requirement, ELSEWHERE.requirement), defaults=defaults), LEASE
    )


def draft(target: SyncTarget = ORDERS, **given: Any) -> Schedule:
    return a_schedule(**({"target": target, "policy": task_policy(target)} | given))


def run_request(target: SyncTarget = ORDERS, **given: Any) -> RunRequest:
    values: dict[str, Any] = {
        "target": target,
        "policy": task_policy(target),
        "explicit_fields": NOTHING,
    }
    return RunRequest(**(values | given))


async def end(store: MemoryStore, clock: SettableClock) -> list[Run]:
    claimed = await store.claim(claim_request(capabilities=frozenset({ORDERS.requirement})))
    verdicts = [a_completion(run, clock.now(), AttemptEnd.SUCCEEDED) for run in claimed]
    return list((await store.finish(verdicts)).accepted)


def test_timeouts_of_sync_targets() -> None:
    assert default_timeout(ORDERS) == SYNC_TIMEOUT
    assert longest_timeout(ORDERS) == timedelta(days=7)
    assert fallback_run_defaults(ORDERS) == RunDefaults(policy=task_policy(ORDERS), priority=HIGH)


@pytest.mark.parametrize(
    ("target", "field", "code", "hint"),
    [
        (replace(ORDERS, source="shpo"), "target.source", "unknown_source", "did you mean shop?"),
        (replace(ELSEWHERE, source="cmr"), "target.source", "unknown_source", "did you mean crm?"),
        (
            replace(ORDERS, collection="order"),
            "target.collection",
            "unknown_collection",
            "did you mean orders?",
        ),
        (
            replace(ELSEWHERE, collection="xx"),
            "target.collection",
            "unknown_collection",
            None,
        ),
        (replace(ORDERS, source="a#b"), "source", "bad_name", None),
    ],
)
@pytest.mark.usefixtures("node")
async def test_unknown_pairs_are_rejected_with_a_hint(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    target: SyncTarget,
    field: str,
    code: str,
    hint: str | None,
) -> None:
    made = await schedules.create(ADMIN, draft(ELSEWHERE), explicit_fields=NOTHING)
    for refused in (
        schedules.create(ADMIN, draft(target), explicit_fields=NOTHING),
        manual_runs.start_or_get(ADMIN, run_request(target)),
        schedules.change(
            ADMIN, made.id, lambda s: replace(s, target=target), explicit_fields=NOTHING
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            await refused
        assert (caught.value.field, caught.value.code) == (field, code)
        assert caught.value.hint == hint


@pytest.mark.usefixtures("node")
async def test_sources_of_expired_nodes_are_unknown(
    schedules: ScheduleService, clock: SettableClock
) -> None:
    await schedules.rules.check_source("crm")
    await schedules.rules.check_source("shop")
    clock.advance(LEASE)
    await schedules.rules.check_source("shop")
    with pytest.raises(InvalidInput, match="no running node has the source 'crm'"):
        await schedules.rules.check_source("crm")


async def test_a_schedule_has_the_concurrency_key_of_its_pair(
    schedules: ScheduleService,
) -> None:
    made = await schedules.create(ADMIN, draft(policy=Policy()), explicit_fields=NOTHING)
    assert made.policy == replace(task_policy(ORDERS, timeout=TIMEOUT), misfire=Policy().misfire)
    assert made.priority == HIGH
    chosen = await schedules.create(ADMIN, draft(priority=7), explicit_fields=frozenset({PRIORITY}))
    assert chosen.priority == 7


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("overlap", Overlap.QUEUE),
        ("overlap", Overlap.ALLOW),
        ("overlap", Overlap.CANCEL_OLD),
        ("max_concurrent_runs", 2),
        ("burst_allowed", True),
        ("concurrency_key", "mine"),
        ("concurrency_key", CLIENTS.key),
    ],
)
async def test_concurrency_cannot_be_raised(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    store: MemoryStore,
    field: str,
    value: object,
) -> None:
    policy = replace(Policy(), **{field: value})
    made = await schedules.create(ADMIN, draft(), explicit_fields=NOTHING)
    for refused in (
        schedules.create(ADMIN, draft(policy=policy), explicit_fields={field}),
        schedules.create(ADMIN, draft(policy=policy)),
        manual_runs.start_or_get(
            ADMIN, run_request(policy=policy, explicit_fields=frozenset({field}))
        ),
        schedules.change(
            ADMIN, made.id, lambda s: replace(s, policy=policy), explicit_fields={field}
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            await refused
        assert (caught.value.field, caught.value.code) == (f"policy.{field}", "one_at_a_time")
    assert await store.get_schedule(made.id) == made


async def test_pair_keys_are_reserved(schedules: ScheduleService) -> None:
    with pytest.raises(InvalidInput) as caught:
        await schedules.create(ADMIN, a_schedule(policy=Policy(concurrency_key=ORDERS.key)))
    assert (caught.value.field, caught.value.code) == ("policy.concurrency_key", "reserved")


@pytest.mark.parametrize("priority", [0, -1, 1001])
async def test_priority_must_be_positive(
    schedules: ScheduleService, manual_runs: ManualRuns, priority: int
) -> None:
    explicit = frozenset({PRIORITY})
    for refused in (
        schedules.create(ADMIN, draft(priority=priority), explicit_fields=explicit),
        manual_runs.start_or_get(ADMIN, run_request(priority=priority, explicit_fields=explicit)),
    ):
        with pytest.raises(InvalidInput, match="between 1 and 1000"):
            await refused


async def test_another_pair_changes_the_key(
    schedules: ScheduleService,
) -> None:
    made = await schedules.create(ADMIN, draft(), explicit_fields=NOTHING)
    for explicit in (NOTHING, None):
        for target in (CLIENTS, ORDERS):
            after = await schedules.change(
                ADMIN, made.id, lambda s, to=target: replace(s, target=to), explicit_fields=explicit
            )
            assert after.policy.concurrency_key == target.key


async def test_manual_run_of_a_busy_pair_returns_the_active_run(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    runs: RunService,
    store: MemoryStore,
    clock: SettableClock,
) -> None:
    await store.join(a_node(capabilities=(ORDERS.requirement,)), LEASE)
    made = await schedules.create(ADMIN, draft(), explicit_fields=NOTHING)
    first, created = await manual_runs.start_or_get(ADMIN, run_request(name="shop/orders"))
    assert created
    assert (first.concurrency_key, first.concurrency_limit) == (ORDERS.key, 1)
    assert (first.priority, first.policy.timeout) == (NOW_CLASS, TIMEOUT)

    async def asks() -> list[tuple[Run, bool]]:
        return [
            await manual_runs.start_or_get(ADMIN, run_request()),
            await manual_runs.run_now_or_get(ADMIN, made.id),
            await manual_runs.run_now_or_get(ADMIN, made.id, beside_others=True),
        ]

    noted = len(await store.list_audit(AuditQuery()))
    assert await asks() == [(first, False)] * 3
    (running,) = await store.claim(claim_request(capabilities=frozenset({ORDERS.requirement})))
    assert await asks() == [(running, False)] * 3
    # Rejected requests are not audited.
    assert len(await store.list_audit(AuditQuery())) == noted
    await store.finish([a_completion(running, clock.now(), AttemptEnd.FAILED)])

    again, created = await runs.retry(ADMIN, first.id)
    assert created
    assert (again.retry_of, again.priority) == (first.id, NOW_CLASS)
    assert await runs.retry(ADMIN, first.id) == (again, False)
    assert (await manual_runs.start(ADMIN, run_request())).id == again.id
    assert (await manual_runs.run_now(ADMIN, made.id)).id == again.id
    _, elsewhere = await manual_runs.start_or_get(ADMIN, run_request(CLIENTS))
    assert elsewhere


async def test_run_now_has_the_priority_of_manual_runs(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
) -> None:
    made = await schedules.create(ADMIN, draft(), explicit_fields=NOTHING)
    run, created = await manual_runs.run_now_or_get(ADMIN, made.id, beside_others=True)
    assert created
    assert (run.priority, run.concurrency_key, run.slot) == (NOW_CLASS, ORDERS.key, None)


async def test_a_repeated_request_is_accepted(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    results = [
        await manual_runs.start_or_get(ADMIN, run_request(), run_id=RunId("r1")) for _ in range(2)
    ]
    assert results == [(results[0][0], True)] * 2


async def test_a_slot_is_skipped_while_the_pair_is_active(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore, clock: SettableClock
) -> None:
    await store.join(a_node(capabilities=(ORDERS.requirement,)), HOUR)
    await schedules.create(ADMIN, draft(trigger=Every("1m", anchor=NOW)), explicit_fields=NOTHING)
    task, _ = await manual_runs.start_or_get(ADMIN, run_request())
    clock.advance(MINUTE)
    (tick,) = (await store.fire_due(plan, limit=10)).others
    assert (tick.status, tick.reason) == (RunStatus.SKIPPED, Reason.OVERLAP)
    assert [run.id for run in await end(store, clock)] == [task.id]
    clock.advance(MINUTE)
    (tick,) = (await store.fire_due(plan, limit=10)).others
    assert (tick.status, tick.priority) == (RunStatus.QUEUED, HIGH)


async def test_no_backfill_and_no_move_beyond_the_following_slot(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    made = await schedules.create(
        ADMIN, draft(trigger=Every("1m", anchor=NOW)), explicit_fields=NOTHING
    )
    with pytest.raises(InvalidInput) as caught:
        await manual_runs.backfill(ADMIN, made.id, NOW - MINUTE, NOW)
    assert caught.value.code == "not_slot_bound"
    assert made.next_slot is not None
    with pytest.raises(Conflict):
        await schedules.move(ADMIN, made.id, made.next_slot + MINUTE)
    moved = await schedules.move(ADMIN, made.id, made.next_slot + MINUTE / 2)
    assert moved.next_run_at == made.next_slot + MINUTE / 2
    assert not (await store.list_runs(RunQuery())).items


async def test_an_edit_adds_no_second_run_of_the_pair(
    schedules: ScheduleService, store: MemoryStore, clock: SettableClock
) -> None:
    """The slot is past and waits for its jitter."""
    trigger = Every("1h", anchor=NOW, jitter="30m")
    made = await schedules.create(ADMIN, draft(trigger=trigger), explicit_fields=NOTHING)
    assert made.next_slot is not None
    assert made.next_run_at is not None
    assert made.next_slot < made.next_run_at
    clock.set(made.next_slot + (made.next_run_at - made.next_slot) / 2)
    await schedules.change(
        ADMIN,
        made.id,
        lambda s: replace(s, trigger=Every("2h", anchor=NOW)),
        explicit_fields=NOTHING,
    )
    (left,) = (await store.list_runs(RunQuery())).items
    assert (left.status, left.slot) == (RunStatus.SKIPPED, made.next_slot)


async def test_another_target_removes_the_key(
    schedules: ScheduleService,
) -> None:
    made = await schedules.create(ADMIN, draft(), explicit_fields=NOTHING)

    def away(schedule: Schedule) -> Schedule:
        return replace(schedule, target=HttpTarget(url="http://127.0.0.1:9/"))

    turned: Callable[[Schedule], Schedule] = away
    after = await schedules.change(
        ADMIN,
        made.id,
        lambda s: replace(turned(s), policy=replace(s.policy, timeout=timedelta(seconds=1))),
    )
    assert after.policy.concurrency_key is None
