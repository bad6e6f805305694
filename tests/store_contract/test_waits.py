"""Runs in the queue that something else than a node ends or moves: `change_run`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial

import pytest

from chimes.errors import Conflict
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.target import FlowTarget
from chimes.model.wait import (
    Decision,
    Wait,
    WaitKind,
    decide_wait,
    expedite,
    expire_wait,
    wait_requirement,
    wait_target,
)
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, HOUR, a_run, an_entry, claim_request
from tests.store_contract.scenes import joined

APPROVAL = Wait(kind=WaitKind.APPROVAL, prompt="Publish?")


def a_wait(clock: SettableClock, flow: Run, **given: object) -> Run:
    now = clock.now()
    defaults: dict[str, object] = {
        "origin": Origin.CHILD,
        "parent_id": flow.id,
        "step": "approve",
        "target": wait_target(APPROVAL),
        "owner": ALICE,
        "created_at": now,
        "planned_at": now,
        "available_at": now + HOUR,
    }
    return a_run(**defaults | given)


async def a_waiting_flow(store: Store, clock: SettableClock) -> tuple[Run, Run]:
    flow = a_run(target=FlowTarget(name="report"), available_at=clock.now() + HOUR)
    await store.add_runs([flow])
    (wait,) = await store.add_runs([a_wait(clock, flow)])
    return flow, wait


async def test_of_concurrent_decisions_one_counts(store: Store, clock: SettableClock) -> None:
    _flow, wait = await a_waiting_flow(store, clock)

    async def decide(number: int) -> Run | Conflict:
        change = partial(_decide, by=f"user:{number}")
        try:
            decided = await store.change_run(wait.id, change, an_entry(verb="approve"))
        except Conflict as error:
            return error
        assert decided is not None
        return decided

    before = store.changes()
    answers = await asyncio.gather(*(decide(number) for number in range(5)))
    decided = [each for each in answers if isinstance(each, Run)]
    assert len(decided) == 1
    stored = await store.get_run(wait.id)
    assert stored == decided[0]
    assert stored is not None
    assert stored.status is RunStatus.SUCCEEDED
    assert stored.finished_at == clock.now()
    assert len(await store.list_audit(AuditQuery())) == 1, "refused decisions are not audited"
    assert store.changes() > before, "the flow may continue"
    again = await store.change_run(wait.id, partial(expire_wait))
    assert again == stored


def _decide(run: Run, now: datetime, *, by: str) -> Run:
    return decide_wait(run, Decision.APPROVE, by, "", now)


async def test_an_expedited_flow_is_due_at_once(store: Store, clock: SettableClock) -> None:
    flow, wait = await a_waiting_flow(store, clock)
    await joined(store)
    request = claim_request(capabilities=frozenset({flow.target.requirement}))
    assert await store.claim(request) == ()
    changed = await store.change_run(flow.id, expedite)
    assert changed == replace(flow, available_at=clock.now())
    assert await store.get_run(flow.id) == changed
    assert await store.next_available() == clock.now()
    (claimed,) = await store.claim(request)
    assert claimed.id == flow.id
    assert await store.change_run(flow.id, expedite) == claimed, "a running flow stays as it is"
    assert await store.get_run(flow.id) == claimed
    assert (await store.get_run(wait.id)) == wait


async def test_a_canceled_flow_ends_its_wait(store: Store, clock: SettableClock) -> None:
    flow, wait = await a_waiting_flow(store, clock)
    await store.cancel_run(flow.id, "canceled_by_hand")
    ended = await store.get_run(wait.id)
    assert ended is not None
    assert ended.status is RunStatus.CANCELED
    with pytest.raises(Conflict):
        await store.change_run(wait.id, partial(_decide, by="user:ann"))
    assert await store.change_run(RunId("nobody"), expedite, an_entry()) is None


async def test_waits_are_found_by_their_kind_and_owner(store: Store, clock: SettableClock) -> None:
    flow, wait = await a_waiting_flow(store, clock)
    event = Wait(kind=WaitKind.EVENT, event="paid")
    other = a_wait(clock, flow, step="paid", target=wait_target(event), owner=BOB)
    await store.add_runs([other])
    for requirement, owner, expected in (
        (wait_requirement(WaitKind.APPROVAL), None, [wait.id]),
        (wait_requirement(WaitKind.APPROVAL), BOB, []),
        (wait_requirement(WaitKind.EVENT, "paid"), BOB, [other.id]),
        (wait_requirement(WaitKind.EVENT), None, []),
    ):
        query = RunQuery(
            requirement=requirement, owner=owner, origin=Origin.CHILD, statuses=(RunStatus.QUEUED,)
        )
        assert [run.id for run in (await store.list_runs(query)).items] == expected
