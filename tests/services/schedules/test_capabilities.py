"""Targets need a capable node or application; runs without a schedule."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.config import Settings
from chimes.errors import InvalidInput, NotAllowed
from chimes.model import replace
from chimes.model.access import Role
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.policy import Overlap, Policy, RunDefaults
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import FlowTarget, HttpTarget, TaskTarget
from chimes.model.validation import check_target, longest_timeout
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest
from chimes.services.schedules.rules import ScheduleRules, default_timeout
from chimes.services.schedules.service import ScheduleService
from chimes.services.schedules.setup import SetupService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, LEASE, MINUTE, NOW, a_node, a_schedule
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, VIEWER

GREET = TaskTarget(name="greet")
LOCAL = {"task:local": RunDefaults(policy=Policy(max_retries=4), priority=3)}


@pytest.fixture
def schedules(store: MemoryStore) -> ScheduleService:
    return ScheduleService(
        store, ScheduleRules(store, check_target=check_target, capabilities=lambda: LOCAL)
    )


async def join_node(store: MemoryStore, *capabilities: str, node: str = "node-1") -> None:
    await store.join(a_node(node, capabilities=capabilities), LEASE)


def test_default_and_longest_timeout_of_each_kind() -> None:
    targets = (HttpTarget(url="http://h/"), GREET, FlowTarget(name="f"))
    assert [default_timeout(each) for each in targets] == [
        timedelta(seconds=10),
        timedelta(minutes=5),
        timedelta(days=1),
    ]
    assert [longest_timeout(each) for each in targets] == [
        timedelta(minutes=15),
        timedelta(days=7),
        timedelta(days=365),
    ]


async def warning_of(service: ScheduleService, store: MemoryStore, schedule: Schedule) -> str:
    """The message of its only warning; empty if it has none."""
    setup = SetupService(store, service.rules, Settings())
    [found] = await setup.warnings_of([schedule])
    if not found:
        return ""
    [warning] = found
    assert (warning.code, warning.field) == (f"unknown_{schedule.target.kind}", "target.name")
    return warning.message


async def test_a_schedule_may_wait_for_a_worker_with_its_task(
    schedules: ScheduleService, store: MemoryStore, clock: SettableClock
) -> None:
    made = await schedules.create(ADMIN, a_schedule(target=GREET), explicit_fields=())
    message = "no running node offers the task 'greet': its runs wait for one"
    assert await warning_of(schedules, store, made) == message
    await join_node(store, "http", "task:greet")
    assert await warning_of(schedules, store, made) == ""
    clock.advance(LEASE)
    assert await warning_of(schedules, store, made) == message
    flow = await schedules.change(
        ADMIN, made.id, lambda s: replace(s, target=FlowTarget(name="f")), explicit_fields=()
    )
    assert "the flow 'f'" in await warning_of(schedules, store, flow)


async def test_the_local_application_needs_no_node(
    schedules: ScheduleService, store: MemoryStore
) -> None:
    made = await schedules.create(ADMIN, a_schedule(target=TaskTarget(name="local")))
    assert await warning_of(schedules, store, made) == ""
    typo = await schedules.create(ADMIN, a_schedule(target=TaskTarget(name="locla")))
    assert (await warning_of(schedules, store, typo)).endswith("; did you mean local?")


async def test_steps_are_not_suggested(schedules: ScheduleService, store: MemoryStore) -> None:
    await join_node(store, "task:pipe/greeting", "flow:greeting")
    made = await schedules.create(ADMIN, a_schedule(target=TaskTarget(name="greetin")))
    assert "did you mean" not in await warning_of(schedules, store, made)


async def test_malformed_names_are_rejected_first(
    schedules: ScheduleService, store: MemoryStore
) -> None:
    await join_node(store, "task:os:system")
    made = await schedules.create(ADMIN, a_schedule())
    with pytest.raises(InvalidInput) as caught:
        await schedules.change(
            ADMIN, made.id, lambda s: replace(s, target=TaskTarget(name="os:system"))
        )
    assert caught.value.code == "bad_name"


# --- runs without a schedule ------------------------------------------------------------------
def run_request(**given: object) -> RunRequest:
    values: dict[str, object] = {"target": GREET, "policy": Policy()}
    return RunRequest(**(values | given))  # type: ignore[arg-type]


async def test_start_creates_an_audited_manual_run(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    run = await manual_runs.start(MEMBER, run_request(name=" hello ", priority=4))
    assert (run.schedule_id, run.schedule_name, run.owner) == (None, "hello", ALICE)
    assert (run.origin, run.status, run.priority) == (Origin.MANUAL, RunStatus.QUEUED, 4)
    assert (run.available_at, run.concurrency_key) == (NOW, None)
    [note] = await store.list_audit(AuditQuery(verb="start"))
    assert (note.object_id, note.owner, note.actor) == (run.id, str(ALICE), MEMBER.name)
    assert note.changes == {"target": {"kind": "task", "name": "greet"}}


async def test_secrets_are_masked_in_the_audit(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    args = {"token": "hush", "list": [{"password": "hush"}]}
    await manual_runs.start(ADMIN, run_request(target=TaskTarget(name="greet", args=args)))
    await schedules.create(ADMIN, a_schedule(target=TaskTarget(name="greet", args=args)))
    assert "hush" not in repr(await store.list_audit(AuditQuery()))


async def test_start_is_idempotent_by_id(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    first = await manual_runs.start(ADMIN, run_request(), run_id=RunId("r1"))
    assert await manual_runs.start(ADMIN, run_request(), run_id=RunId("r1")) == first


async def test_concurrency_key_blocks_runs(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    policy = Policy(concurrency_key="one at a time", overlap=Overlap.QUEUE)
    runs = [await manual_runs.start(ADMIN, run_request(policy=policy)) for _ in range(2)]
    assert [run.blocked for run in runs] == [False, True]
    free = await manual_runs.start(ADMIN, run_request(policy=replace(policy, burst_allowed=True)))
    assert not free.blocked


async def test_start_requires_permission_for_owner_and_target(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    for actor in (VIEWER, OPERATOR):
        with pytest.raises(NotAllowed):
            await manual_runs.start(actor, run_request())
    with pytest.raises(NotAllowed):
        await manual_runs.start(MEMBER, run_request(owner=BOB))
    assert (await manual_runs.start(ADMIN, run_request(owner=BOB))).owner == BOB
    target = HttpTarget(url="https://h/", verify_tls=False)
    with pytest.raises(NotAllowed, match="certificate"):
        await manual_runs.start(MEMBER, run_request(target=target))
    assert MEMBER.role is Role.MEMBER


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"priority": 1001}, "priority"),
        ({"policy": Policy(timeout=timedelta(days=8))}, "policy.timeout"),
        ({"policy": Policy(concurrency_key="\u202e")}, "policy.concurrency_key"),
        ({"policy": Policy(concurrency_key="schedule:s")}, "policy.concurrency_key"),
        ({"at": NOW + timedelta(days=366)}, "at"),
        ({"name": "x" * 201}, "name"),
        ({"target": TaskTarget(name="nobody")}, "target.name"),
    ],
)
async def test_invalid_run_requests_are_rejected(
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    store: MemoryStore,
    given: dict[str, object],
    field: str,
) -> None:
    await join_node(store, "task:greet")
    with pytest.raises(InvalidInput) as caught:
        await manual_runs.start(ADMIN, run_request(**given))
    assert caught.value.field == field


async def test_start_at_a_later_time(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    await join_node(store, "task:greet")
    later = await manual_runs.start(ADMIN, run_request(at=NOW + MINUTE))
    assert (later.planned_at, later.available_at, later.created_at) == (
        NOW + MINUTE,
        NOW + MINUTE,
        NOW,
    )
    past = await manual_runs.start(ADMIN, run_request(at=NOW - MINUTE))
    assert past.available_at == NOW
