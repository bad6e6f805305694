"""Run defaults that tasks declare, and values that override them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.policy import (
    TASK_POLICY_FIELDS,
    Backoff,
    Misfire,
    OnLost,
    Overlap,
    Policy,
    RunDefaults,
)
from chimes.model.schedule import Schedule
from chimes.model.target import FlowTarget, HttpTarget, TaskTarget
from chimes.model.validation import check_target
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import LEASE, a_node, a_schedule
from tests.services.conftest import ADMIN

PAY, SHIP = TaskTarget(name="pay"), TaskTarget(name="ship")
PAYING = Policy(
    max_retries=3,
    retry_backoff=timedelta(seconds=2),
    backoff=Backoff.EXPONENTIAL,
    timeout=timedelta(seconds=1),
    on_lost=OnLost.STOP,
    overlap=Overlap.QUEUE,
    max_concurrent_runs=2,
    concurrency_key="task:pay",
)
SHIPPING = Policy(timeout=timedelta(hours=1), max_retries=1)
OWN = {
    "task:pay": RunDefaults(policy=PAYING, priority=7),
    "task:ship": RunDefaults(policy=SHIPPING),
}
#: The defaults of the API.
USUAL = Policy(timeout=timedelta(minutes=5), misfire=Misfire.ALL)
NOTHING: frozenset[str] = frozenset()


@pytest.fixture
async def schedules(store: MemoryStore) -> ScheduleService:
    await store.join(a_node(capabilities=("flow:f", "task:mute", *OWN), defaults=OWN), LEASE)
    return ScheduleService(store, ScheduleRules(store, check_target=check_target))


def run_request(explicit: frozenset[str] | None, **given: object) -> RunRequest:
    return replace(RunRequest(target=PAY, policy=USUAL, explicit_fields=explicit), **given)  # type: ignore[arg-type]


async def test_a_run_has_the_defaults_of_its_task(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    runs = [await manual_runs.start(ADMIN, run_request(NOTHING)) for _ in range(3)]
    assert runs[0].policy == replace(PAYING, misfire=Misfire.ALL)
    assert runs[0].priority == 7
    assert [run.blocked for run in runs] == [False, False, True]


async def test_explicit_fields_override_defaults(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    chosen = replace(USUAL, max_retries=0, timeout=timedelta(minutes=1))
    explicit = frozenset({"max_retries", "timeout", "priority"})
    run = await manual_runs.start(ADMIN, run_request(explicit, policy=chosen, priority=0))
    assert (run.policy.max_retries, run.policy.timeout, run.priority) == (
        0,
        timedelta(minutes=1),
        0,
    )
    assert (run.policy.on_lost, run.concurrency_key) == (OnLost.STOP, "task:pay")
    whole = await manual_runs.start(ADMIN, run_request(None))
    assert (whole.policy, whole.priority) == (USUAL, 0)


async def test_a_schedule_and_its_runs_have_the_defaults(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    made = await schedules.create(
        ADMIN, a_schedule(target=PAY, policy=USUAL), explicit_fields=NOTHING
    )
    assert (made.policy, made.priority) == (replace(PAYING, misfire=Misfire.ALL), 7)
    run = await manual_runs.run_now(ADMIN, made.id)
    assert (run.policy, run.priority, run.concurrency_key) == (made.policy, 7, "task:pay")


async def test_task_without_defaults_keeps_the_policy(
    schedules: ScheduleService, manual_runs: ManualRuns
) -> None:
    run = await manual_runs.start(ADMIN, run_request(NOTHING, target=TaskTarget(name="mute")))
    assert run.policy == USUAL
    flow = await manual_runs.start(ADMIN, run_request(NOTHING, target=FlowTarget(name="f")))
    assert flow.policy == USUAL


async def test_the_local_application_has_precedence(store: MemoryStore) -> None:
    await store.join(a_node(capabilities=tuple(OWN), defaults=OWN), LEASE)
    here = {"task:pay": RunDefaults(policy=SHIPPING)}
    rules = ScheduleRules(store, check_target=check_target, capabilities=lambda: here)
    manual_runs = ManualRuns(store, rules)
    run = await manual_runs.start(ADMIN, run_request(NOTHING))
    assert run.policy.timeout == timedelta(hours=1)


async def test_the_newest_node_has_precedence(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore, clock: SettableClock
) -> None:
    clock.advance(1)
    newer = {"task:pay": RunDefaults(policy=replace(PAYING, max_retries=9))}
    await store.join(a_node("node-2", capabilities=tuple(OWN), defaults=newer), LEASE)
    clock.advance(1)
    # An older node that declares no run defaults.
    await store.join(a_node("node-3", capabilities=tuple(OWN)), LEASE)
    assert (await manual_runs.start(ADMIN, run_request(NOTHING))).policy.max_retries == 9


def with_target(target: TaskTarget | FlowTarget | HttpTarget) -> Callable[[Schedule], Schedule]:
    return lambda schedule: replace(schedule, target=target)


async def test_change_to_another_task_applies_its_defaults(schedules: ScheduleService) -> None:
    chosen = replace(USUAL, retry_backoff=timedelta(seconds=30))
    made = await schedules.create(
        ADMIN, a_schedule(target=PAY, policy=chosen), explicit_fields={"retry_backoff"}
    )
    turned = await schedules.change(ADMIN, made.id, with_target(SHIP), explicit_fields=NOTHING)
    assert turned.policy == replace(
        SHIPPING, misfire=Misfire.ALL, retry_backoff=timedelta(seconds=30)
    )
    assert turned.priority == 0
    back = await schedules.change(
        ADMIN,
        made.id,
        lambda schedule: replace(
            schedule, target=PAY, policy=replace(schedule.policy, max_retries=5)
        ),
        explicit_fields={"max_retries"},
    )
    assert (back.policy.max_retries, back.policy.concurrency_key) == (5, "task:pay")
    assert back.policy.retry_backoff == timedelta(seconds=30)


async def test_the_limit_of_an_unavailable_task_is_removed(
    schedules: ScheduleService, store: MemoryStore, clock: SettableClock
) -> None:
    made = await schedules.create(
        ADMIN, a_schedule(target=PAY, policy=USUAL), explicit_fields=NOTHING
    )
    clock.advance(LEASE)
    await store.join(a_node("later", capabilities=("task:ship",), defaults=OWN), LEASE)
    turned = await schedules.change(ADMIN, made.id, with_target(SHIP), explicit_fields=NOTHING)
    assert turned.policy.concurrency_key is None
    assert (turned.policy.max_concurrent_runs, turned.policy.overlap) == (None, Overlap.SKIP)


async def test_change_from_a_callback_to_a_task_applies_its_defaults(
    schedules: ScheduleService,
) -> None:
    made = await schedules.create(
        ADMIN, a_schedule(policy=USUAL, priority=4), explicit_fields={"priority"}
    )
    turned = await schedules.change(ADMIN, made.id, with_target(PAY), explicit_fields=NOTHING)
    assert (turned.policy, turned.priority) == (replace(PAYING, misfire=Misfire.ALL), 4)


async def test_other_changes_keep_the_policy(
    schedules: ScheduleService, store: MemoryStore, clock: SettableClock
) -> None:
    made = await schedules.create(ADMIN, a_schedule(target=PAY, policy=USUAL))
    args = replace(PAY, args={"a": 1})
    assert (
        await schedules.change(ADMIN, made.id, with_target(args), explicit_fields=NOTHING)
    ).policy == USUAL


def test_task_fields_are_policy_fields() -> None:
    assert set(Policy.__struct_fields__) >= TASK_POLICY_FIELDS
