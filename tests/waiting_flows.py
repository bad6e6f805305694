"""Flows that wait, as rows of a store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from chimes.model.ids import step_run_id
from chimes.model.run import Origin, Run
from chimes.model.target import FlowTarget
from chimes.model.wait import Wait, WaitKind, wait_target
from chimes.services.waits import announce_approval
from chimes.store.port import Store
from tests.builders import a_run

HOUR = timedelta(hours=1)


async def add_waiting_flow(
    store: Store,
    now: datetime,
    *,
    step: str = "approve",
    expires_in: timedelta = HOUR,
    **given: Any,
) -> tuple[Run, Run]:
    """A flow in the queue that only waits, and its wait; `given`: fields of the wait, `owner`."""
    owner = {"owner": given.pop("owner")} if "owner" in given else {}
    times = {"created_at": now, "planned_at": now, "available_at": now + expires_in}
    flow = a_run(target=FlowTarget(name="report"), schedule_name="report", **owner, **times)
    wait = Wait(**{"kind": WaitKind.APPROVAL, "prompt": "Publish it?", "flow": "report"} | given)
    row = a_run(
        id=step_run_id(flow.id, step),
        origin=Origin.CHILD,
        parent_id=flow.id,
        step=step,
        schedule_name="report",
        target=wait_target(wait),
        **owner,
        **times,
    )
    await store.add_runs([flow])
    (row,) = await store.add_runs([row])
    if wait.kind is WaitKind.APPROVAL:
        await announce_approval(store, row, ())
    return flow, row
