"""Common set-ups of contract tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.model import replace
from chimes.model.access import Scope
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import NodeId
from chimes.model.listing import DeliveryQuery, RunQuery
from chimes.model.notification import Delivery, InboxItem
from chimes.model.planning import plan
from chimes.model.policy import Policy
from chimes.model.recipient import Channel
from chimes.model.run import AttemptEnd, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.store.port import ApiKey, AuditEntry, Item, RunLog, Store
from chimes.testing import SettableClock
from tests.builders import (
    BOB,
    CHAT,
    HOUR,
    INBOX,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    SYNC,
    a_completion,
    a_delivery_completion,
    a_key,
    a_node,
    a_retry,
    a_run,
    a_schedule,
    a_sync_run,
    an_entry,
    an_item,
    claim_request,
    due_schedule,
    full_delivery,
    full_item,
    full_run,
    full_schedule,
    log_lines,
)

SCOPES = (Scope.READ, Scope.AGENT)


async def joined(store: Store, node_id: str = "node-1", lease: timedelta = LEASE) -> None:
    await store.join(a_node(node_id), lease)


async def running_run(store: Store, run: Run | None = None, node_id: str = "node-1") -> Run:
    """Adds a run and claims it for a joined node."""
    await joined(store, node_id)
    wanted = run or a_run()
    await store.add_runs([wanted])
    return next(
        each for each in await store.claim(claim_request(node_id, 1000)) if each.id == wanted.id
    )


async def running_slot(store: Store, **given: Any) -> tuple[Schedule, Run]:
    """A schedule whose current slot is claimed by node-1."""
    await joined(store)
    schedule = await store.add_schedule(due_schedule(**given))
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    now = await store.get_schedule(schedule.id)
    assert now is not None
    return now, run


async def all_runs(store: Store) -> dict[str, Run]:
    return {run.id: run for run in (await store.list_runs(RunQuery(limit=None))).items}


async def contents(store: Store) -> list[Item]:
    """All exported items in a store-independent order."""
    return sorted([item async for item in store.dump()], key=item_order)


def item_order(item: Item) -> tuple[str, str]:
    match item:
        case RunLog():
            return "log", item.run_id
        case AuditEntry():
            return "audit", f"{item.number:09d}"
        case ApiKey():
            return "key", item.id
        case Schedule():
            return "schedule", item.id
        case Run():
            return "run", item.id
        case Checkpoint():
            return "state", item.name
        case Delivery():
            return "delivery", item.id
        case InboxItem():
            return "inbox", item.id


async def all_deliveries(store: Store) -> dict[str, Delivery]:
    page = await store.list_deliveries(DeliveryQuery(limit=None))
    assert page.next is None
    return {delivery.id: delivery for delivery in page.items}


async def populate(store: Store, clock: SettableClock) -> None:
    """Adds items of every kind in every state."""
    await store.load([full_schedule(), full_run()])
    await joined(store)
    await store.add_key(a_key(), an_entry(verb="key"))
    await store.add_key(
        a_key(expires_at=NOW + MINUTE, revoked_at=NOW, last_used_at=NOW, scopes=SCOPES)
    )
    await store.add_schedule(due_schedule(next_run_at=NOW + SECOND / 2), an_entry())
    await store.add_schedule(a_schedule(owner=BOB, enabled=False, labels={"a": "b"}))
    gone = await store.add_schedule(a_schedule())
    await store.change_schedule(
        gone.id, lambda s, now: delete_schedule(s, now, "user:alice"), an_entry()
    )
    clock.advance(1.25)
    await store.fire_due(plan, limit=10)
    await store.add_runs([a_run(priority=number) for number in range(5)])
    ended, again, stays, *_ = await store.claim(claim_request(free=5))
    await store.append_logs(ended.id, ended.fence, log_lines("one", "two", moment=clock.now()))
    clock.advance(0.5)
    await store.finish([a_completion(ended, clock.now(), AttemptEnd.TIMEOUT)])
    await store.finish([a_retry(again, clock.now(), MINUTE)])
    await store.start(stays.id, stays.fence)
    await store.cancel_run(stays.id, "canceled_by_hand", an_entry(verb="cancel"))
    key = {"concurrency_key": "k"}
    await store.add_runs([a_run(**key), a_run(**key)])
    await store.add_unless_active(a_sync_run(), an_entry(verb="run"))
    await store.save_checkpoint(stays.id, stays.fence, SYNC.key, '{"cursor": "น้ำ 水"}')
    await store.set_checkpoint("by hand", "[]", an_entry(verb="state"))
    await populate_messages(store, clock)


async def populate_messages(store: Store, clock: SettableClock) -> None:
    """Adds deliveries in every state, and inbox items."""
    await store.load([full_delivery(), full_item()])
    notifying = [a_run(policy=Policy(delivery=(INBOX, CHAT))) for _ in range(3)]
    ended = [replace(run, status=RunStatus.SUCCEEDED, finished_at=clock.now()) for run in notifying]
    await store.add_runs(ended)
    first, second, *_ = await store.claim_deliveries(
        [Channel.INBOX], limit=3, lease=MINUTE, overdue=HOUR
    )
    await store.finish_deliveries(
        [
            a_delivery_completion(first, inbox=an_item()),
            a_delivery_completion(second, retry_in=MINUTE, error="busy"),
        ]
    )


NODE = NodeId("node-1")
