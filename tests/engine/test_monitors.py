"""Nodes watch monitors: one notification for each change, also if a node is killed in between."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from chimes.engine.membership import StoreClock
from chimes.engine.monitor_watch import MonitorWatch
from chimes.errors import StoreUnavailable
from chimes.model.access import Actor
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.monitor import Monitor, MonitorStatus, PingKind, status_at
from chimes.model.notification import InboxItem
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.validation import check_target
from chimes.notifications.inbox import Inbox
from chimes.services.monitors import MonitorDraft, MonitorService, NewMonitor
from chimes.services.schedules.rules import ScheduleRules
from chimes.store.port import Store
from chimes.store.sql import open_sqlite
from chimes.triggers import Every
from tests.builders import ALICE
from tests.engine.rig import Faults, Rig, eventually
from tests.engine.test_deliver_crashes import another_node, killed_node
from tests.notifications.bot_api import bot_api
from tests.store_contract.stores import KINDS, Home

INBOX = Recipient(channel=Channel.INBOX, on=(NotifyOn.FAILURE, NotifyOn.RECOVERY))
ACTOR = Actor(owner=ALICE)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    home = Home(request.param, tmp_path, SystemClock())
    rig = Rig(await home.open(), request.param.name)
    yield rig
    await rig.close()
    await home.close()


def service(store: Store) -> MonitorService:
    return MonitorService(store, ScheduleRules(store, check_target=check_target))


async def create(store: Store, *, every: timedelta = SECOND) -> NewMonitor:
    draft = MonitorDraft(name="backup", trigger=Every(every), grace=SECOND, delivery=(INBOX,))
    return await service(store).create(ACTOR, draft)


async def inbox(store: Store) -> tuple[InboxItem, ...]:
    return (await store.list_inbox(InboxQuery())).items


async def read(store: Store, made: NewMonitor) -> Monitor:
    return await service(store).get(ACTOR, made.monitor.id)


async def test_two_nodes_notify_once_of_down_and_of_recovery(rig: Rig) -> None:
    made = await create(rig.store)
    for _node in range(2):
        await rig.engine(senders=[Inbox()])
    (item,) = await eventually(lambda: inbox(rig.store), lambda found: found)
    assert (item.title, item.status, item.run_id) == ("backup: down", "down", None)
    assert "No check-in" in item.text
    await service(rig.store).ping(made.ping_token, PingKind.SUCCESS)
    found = await eventually(lambda: inbox(rig.store), lambda found: len(found) >= 2)
    assert {each.title for each in found} == {"backup: down", "backup: recovered"}
    # Down again, and paused then: nothing more.
    found = await eventually(lambda: inbox(rig.store), lambda found: len(found) >= 3)
    await service(rig.store).pause(ACTOR, made.monitor.id)
    after = await read(rig.store, made)
    downs = [each for each in found if each.title == "backup: down"]
    assert len(downs) == sum(each.kind == "down" for each in after.events) == 2
    deliveries = (await rig.store.list_deliveries(DeliveryQuery())).items
    assert len(deliveries) == 3


# Killed after the event is stored and before or after its deliveries are: another node completes
# it, and there is one notification.
@pytest.mark.parametrize("failpoint", ["monitor.before_deliveries", "monitor.after_deliveries"])
async def test_a_node_killed_while_it_notifies_of_down(tmp_path: Path, failpoint: str) -> None:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    try:
        made = await create(store)
        await eventually(store.now, lambda now: status_at(made.monitor, now) is MonitorStatus.DOWN)
        async with bot_api() as api:
            async with killed_node(tmp_path / "chimes.db", api, f"{failpoint}:kill") as code:
                assert code == -signal.SIGKILL
            left = await read(store, made)
            assert (left.noticed, left.pending) == (MonitorStatus.DOWN, (1,))
            async with another_node(store, api), another_node(store, api):
                (item,) = await eventually(lambda: inbox(store), lambda found: found)
                await eventually(lambda: read(store, made), lambda found: not found.pending)
            assert item.title == "backup: down"
            assert len(await inbox(store)) == 1
            assert len((await store.list_deliveries(DeliveryQuery())).items) == 1
    finally:
        await store.close()


async def test_a_ping_whose_process_cannot_notify_wakes_a_node(rig: Rig) -> None:
    hour = timedelta(hours=1)
    draft = MonitorDraft(name="backup", trigger=Every(hour), grace=hour, delivery=(INBOX,))
    made = await service(rig.store).create(ACTOR, draft)
    await service(rig.store).ping(made.ping_token, PingKind.SUCCESS)
    clock = SystemClock()
    time = StoreClock(rig.store, clock)
    watch = MonitorWatch(rig.store, clock=clock, time=time, poll=SECOND)
    # It has read the index; its next check is in an hour.
    for _number in range(3):
        await watch.run_once()
    faults = Faults(rig.store)
    faults.failing["add_delivery"] = StoreUnavailable()
    await service(faults.store).ping(made.ping_token, PingKind.FAIL, body=b"disk full")
    assert (await read(rig.store, made)).pending

    async def watched() -> Monitor:
        await watch.run_once()
        return await read(rig.store, made)

    await eventually(watched, lambda found: not found.pending)
    (delivery,) = (await rig.store.list_deliveries(DeliveryQuery())).items
    assert delivery.notify_on is NotifyOn.FAILURE


async def test_an_event_of_a_ping_is_settled_by_a_node_after_the_store_failed(rig: Rig) -> None:
    """The node that took the ping could not write the delivery."""
    made = await create(rig.store, every=timedelta(hours=1))
    faults = Faults(rig.store)
    faults.failing["add_delivery"] = StoreUnavailable()
    await service(faults.store).ping(made.ping_token, PingKind.FAIL, exit_code=2)
    assert (await read(rig.store, made)).pending
    assert await inbox(rig.store) == ()
    await rig.engine(senders=[Inbox()])
    (item,) = await eventually(lambda: inbox(rig.store), lambda found: found)
    assert "exit code 2" in item.text
