"""Two nodes and one concurrency key: the first node is stopped just before its commit.

A transaction locks the head of the audit chain last. A test that holds this lock stops another
transaction at the critical point: its rows are inserted, but not visible yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from chimes.model.ids import ScheduleId
from chimes.model.run import Run
from chimes.store.sql import SqlStore
from tests.builders import LEASE, a_completion, a_node, a_run, a_schedule, an_entry, claim_request

AUDIT_HEAD = "SELECT number FROM audit_head FOR UPDATE"
#: Long enough for an operation that does not wait.
WHILE_HELD = 0.5
#: The lock of the key: the row of its schedule, or a row in `concurrency_keys`.
KINDS_OF_KEY = ("schedule", "no schedule", "shared")


async def check_blocked_run_is_unblocked_by_a_concurrent_completion(
    adding: SqlStore, ending: SqlStore, kind: str, audit_held: AbstractAsyncContextManager[object]
) -> None:
    first, second = await _two_of_one_key(adding, kind)
    await ending.join(a_node(), LEASE)
    await adding.add_runs([first])
    (running,) = await ending.claim(claim_request())
    completion = a_completion(running, await ending.now())
    await one_after_the_other(
        adding.add_runs([second], an_entry()), ending.finish([completion]), audit_held
    )
    (now,) = await ending.claim(claim_request())
    assert (now.id, now.blocked) == (second.id, False)


async def check_concurrently_added_runs_are_not_both_admitted(
    one: SqlStore, other: SqlStore, kind: str, audit_held: AbstractAsyncContextManager[object]
) -> None:
    first, second = await _two_of_one_key(one, kind)
    await one.join(a_node(), LEASE)
    await one_after_the_other(
        one.add_runs([first], an_entry()), other.add_runs([second]), audit_held
    )
    assert [run.id for run in await one.claim(claim_request())] == [first.id]


async def _two_of_one_key(store: SqlStore, kind: str) -> tuple[Run, Run]:
    schedule_id = ScheduleId("somebody")
    if kind == "schedule":
        await store.add_schedule(a_schedule(id=schedule_id))
    key = "shared" if kind == "shared" else f"schedule:{schedule_id}"
    now = await store.now()
    first, second = (
        a_run(schedule_id=schedule_id, concurrency_key=key, available_at=now) for _ in range(2)
    )
    return first, second


async def one_after_the_other(
    first: Coroutine[Any, Any, object],
    second: Coroutine[Any, Any, object],
    held: AbstractAsyncContextManager[object],
) -> list[object]:
    """`first` is stopped at its last lock when `second` begins."""
    async with held:
        before = asyncio.create_task(first)
        await asyncio.wait({before}, timeout=WHILE_HELD)
        assert not before.done()
        after = asyncio.create_task(second)
        # An operation that does not wait for the key ends here, without having seen the other one.
        await asyncio.wait({after}, timeout=WHILE_HELD)
    return await asyncio.wait_for(asyncio.gather(before, after), 60)
