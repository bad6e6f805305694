"""Quotas of manual runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import QuotaExceeded
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.policy import Policy
from chimes.model.run import Reason, RunStatus
from chimes.model.target import HttpTarget
from chimes.services.access import RunLimits
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunRequest, RunService
from chimes.services.schedules.rules import Limits, ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron
from tests.builders import ALICE, BOB, a_run, a_schedule
from tests.services.conftest import ADMIN, MEMBER, STRANGER, any_target
from tests.store_contract.scenes import joined, running_run

ORDER = RunRequest(target=HttpTarget(url="http://127.0.0.1:9/"), policy=Policy())


def limited(store: MemoryStore, limits: RunLimits) -> ScheduleService:
    return ScheduleService(
        store, ScheduleRules(store, check_target=any_target, limits=lambda: Limits(runs=limits))
    )


async def test_quota_of_running_manual_runs(store: MemoryStore) -> None:
    limits = RunLimits(running=2)
    schedules = limited(store, limits)
    manual_runs = ManualRuns(store, schedules.rules)
    runs = RunService(store, limits=lambda: limits)
    mine = await schedules.create(MEMBER, a_schedule(owner=ALICE))
    ended = a_run(owner=ALICE, status=RunStatus.FAILED)
    await store.load([ended])
    await joined(store)
    for owner in (BOB, BOB, ALICE):
        await running_run(store, a_run(owner=owner))
    # One active run leaves room for one. A queued run does not count.
    waiting = await manual_runs.run_now(MEMBER, mine.id)
    await store.cancel_run(waiting.id, Reason.CANCELED_BY_HAND)
    await running_run(store, a_run(owner=ALICE))
    before = await store.list_runs(RunQuery(limit=None))
    notes = await store.list_audit(AuditQuery())
    for start in (
        lambda: manual_runs.run_now(MEMBER, mine.id),
        lambda: manual_runs.start(MEMBER, ORDER),
        lambda: runs.retry(MEMBER, ended.id),
    ):
        with pytest.raises(QuotaExceeded, match="2 active runs") as error:
            await start()
        assert error.value.details["quota"] == "running"
    assert await store.list_runs(RunQuery(limit=None)) == before
    assert await store.list_audit(AuditQuery()) == notes
    with pytest.raises(QuotaExceeded):
        await manual_runs.start(STRANGER, ORDER)
    await manual_runs.run_now(ADMIN, mine.id)


async def test_quota_of_manual_runs_per_day(store: MemoryStore, clock: SettableClock) -> None:
    schedules = limited(store, RunLimits(per_day=24))
    manual_runs = ManualRuns(store, schedules.rules)
    mine = await schedules.create(MEMBER, a_schedule(owner=ALICE, trigger=Cron("0 * * * *")))
    now = await store.now()
    filled = await manual_runs.backfill(MEMBER, mine.id, now - timedelta(hours=22), now)
    for _ in range(24 - len(filled.runs)):
        await manual_runs.start(MEMBER, ORDER)
    with pytest.raises(QuotaExceeded, match="24 runs a day") as error:
        await manual_runs.run_now(MEMBER, mine.id)
    assert error.value.details["quota"] == "runs_per_day"
    clock.advance(timedelta(hours=1))
    await manual_runs.run_now(MEMBER, mine.id)
