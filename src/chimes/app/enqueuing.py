"""Runs that a program puts into the queue, alone or as part of its own transaction."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from chimes.app.runtime import Runtime
from chimes.app.tasks import EnqueueOptions
from chimes.model.access import SYSTEM_OWNER
from chimes.model.ids import RunId, manual_run_id
from chimes.model.run import Run
from chimes.service.orders import Order, ordered_run

KEY_NAMESPACE = uuid.UUID("5f0d2d5e-0e0b-5e7c-8f43-6a0f2b0c9d21")


def keyed_run_id(namespace: str, needs: str, key: str) -> RunId:
    """The same key for the same task means the same run, on every node, for as long as the run
    is kept."""
    return RunId(str(uuid.uuid5(KEY_NAMESPACE, f"{namespace}\0{needs}\0{key}")))


def wanted_run(order: Order, options: EnqueueOptions, now: datetime) -> Run:
    if options.priority is not None:
        order = replace(order, priority=options.priority)
    if options.at is not None:
        order = replace(order, at=options.at)
    if options.delay is not None:
        order = replace(order, at=now + options.delay)
    run_id = manual_run_id(now)
    if options.key is not None:
        run_id = keyed_run_id(order.namespace, order.target.needs, options.key)
    return ordered_run(order, options.owner or order.owner or SYSTEM_OWNER, run_id, now)


async def enqueue(runtime: Runtime, order: Order, options: EnqueueOptions) -> RunId:
    """The id of the run; of the one that is there already, where the key says so."""
    if options.connection is not None:
        from chimes.app.transaction import enqueue_in

        return await enqueue_in(runtime, order, options)
    store = runtime.services.store
    run = wanted_run(order, options, await store.now())
    return (await store.add_runs([run]))[0].id
