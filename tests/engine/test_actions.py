"""Actions on whole engines: retry, takeover by another node, cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from chimes.clock import SystemClock
from chimes.engine.events import RunEnded
from chimes.engine.executor import checkpoint_of
from chimes.engine.maintenance import CheckpointCleaner
from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.checkpoint import action_checkpoint_name
from chimes.model.policy import Backoff, Policy
from chimes.model.run import AttemptEnd, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.memory import MemoryStore
from chimes.targets.action import runner as following
from tests.builders import ACTION, a_run
from tests.engine.rig import Faults, Recording, Rig, until
from tests.targets.action_servers import (
    COMPLETED,
    PENDING,
    RUNNING,
    TARGET,
    action_runner,
    action_service,
)

LEASE = timedelta(seconds=1.2)
POLICY = Policy(
    timeout=timedelta(seconds=20),
    max_retries=3,
    retry_backoff=timedelta(milliseconds=10),
    backoff=Backoff.EXPONENTIAL,
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(following, "LONGEST_PAUSE", 0.02)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    store = MemoryStore(SystemClock())
    await store.open()
    rig = Rig(store, "memory")
    yield rig
    await rig.close()
    await store.close()


async def due(rig: Rig, policy: Policy = POLICY) -> Schedule:
    return await rig.due_now(target=TARGET, policy=policy)


async def test_a_failed_dispatch_is_retried_within_its_run(rig: Rig) -> None:
    async with (
        action_service(executes=[500, 429, PENDING]) as there,
        action_runner(there.url) as runner,
    ):
        await rig.engine(runners=[runner])
        schedule = await due(rig)
        (run,) = await rig.ended(schedule)
        await rig.close()
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 3)
    assert run.result is not None
    assert run.result["execution_id"] == "e1"
    assert [(each.end, each.error) for each in run.attempts] == [
        (AttemptEnd.FAILED, "the action service answered HTTP 500: not now: busy"),
        (AttemptEnd.FAILED, "the action service answered HTTP 429: not now: busy"),
        (AttemptEnd.SUCCEEDED, ""),
    ]
    assert {each.headers["idempotency-key"] for each in there.executed} == {run.id}


async def test_a_dispatch_that_never_succeeds_fails(rig: Rig) -> None:
    async with action_service(executes=[503]) as there, action_runner(there.url) as runner:
        await rig.engine(runners=[runner])
        schedule = await due(rig, replace(POLICY, max_retries=1))
        (run,) = await rig.ended(schedule)
        await rig.close()
    assert (run.status, run.reason, len(run.attempts)) == (RunStatus.FAILED, "http_503", 2)
    assert len(there.executed) == 2


async def test_a_failed_execution_is_not_repeated(rig: Rig) -> None:
    failed = {"id": "e1", "status": "failed"}
    async with action_service(states=[failed]) as there, action_runner(there.url) as runner:
        await rig.engine(runners=[runner])
        (run,) = await rig.ended(await due(rig))
        await rig.close()
    assert (run.status, run.reason, run.attempt) == (RunStatus.FAILED, "action_failed", 1)
    assert len(there.executed) == 1


# A node dies while its action runs longer than the lease.
async def test_the_next_node_resumes_the_same_execution(rig: Rig) -> None:
    faults = Faults(rig.store)
    async with (
        action_service(states=[RUNNING]) as there,
        action_runner(there.url) as first,
        action_runner(there.url) as second,
    ):
        engine = await rig.engine(
            store=faults.store, runner=Recording("other"), runners=[first], lease=LEASE
        )
        schedule = await due(rig)
        await until(lambda: there.polls)
        faults.down = StoreUnavailable("the cable is cut")
        await until(lambda: not engine.trusted)
        there.states = [COMPLETED]
        await rig.engine(runner=Recording("other"), runners=[second])
        (run,) = await rig.ended(schedule)
        faults.down = None
        await rig.close()
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
    assert run.result is not None
    assert run.result["status"] == "completed"
    assert len(there.executed) == 1
    assert there.canceled == []


async def test_a_cancel_is_forwarded_to_the_action_service(rig: Rig) -> None:
    async with action_service(states=[RUNNING]) as there, action_runner(there.url) as runner:
        await rig.engine(runners=[runner])
        schedule = await due(rig)
        await until(lambda: there.polls)
        (run,) = await rig.runs(schedule)
        await rig.store.cancel_run(run.id, "canceled_by_hand")
        assert (await rig.reached(run.id, RunStatus.CANCELED)).reason == "canceled_by_hand"
        await until(lambda: there.canceled)
        await rig.close()


async def test_the_checkpoint_is_deleted_when_the_run_ends(rig: Rig) -> None:
    store = rig.store
    run = a_run(target=ACTION)
    assert checkpoint_of(store, run) is not None
    await store.set_checkpoint(action_checkpoint_name(run.id), '{"execution_id": "e1"}')
    cleaner = CheckpointCleaner(store)
    cleaner(RunEnded(run=run, seconds=0.0))
    await cleaner.clean()
    assert await store.get_checkpoint(action_checkpoint_name(run.id)) is not None
    ended = replace(run, status=RunStatus.SUCCEEDED)
    cleaner(RunEnded(run=ended, seconds=0.0))
    await cleaner.clean()
    assert await store.get_checkpoint(action_checkpoint_name(run.id)) is None
