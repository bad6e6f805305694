"""Which claimed deliveries are not sent."""

from __future__ import annotations

import json

from chimes.engine.notification_rules import MAINTENANCE, Suppressions
from chimes.model import replace
from chimes.model.ids import MonitorId
from chimes.model.monitor import event_reference
from chimes.model.notification import make_proposal_delivery, plan_deliveries
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    MaintenanceWindow,
    windows_to_document,
)
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import RunStatus
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, NOW, a_run, a_schedule

INBOX = Recipient(channel=Channel.INBOX)


async def test_silent_maintenance_applies_to_runs_and_not_to_monitors_and_proposals() -> None:
    store = MemoryStore(SettableClock())
    window = MaintenanceWindow(since=NOW, silence=True)
    await store.set_checkpoint(MAINTENANCE_CHECKPOINT, json.dumps(windows_to_document([window])))
    run = a_run(a_schedule(), policy=Policy(delivery=(INBOX,)), status=RunStatus.FAILED)
    (of_run,) = plan_deliveries(run, None, NOW)
    of_monitor = replace(
        of_run, run_id=event_reference(MonitorId("abc"), 1), schedule_id=None, schedule_name="x"
    )
    of_proposal = make_proposal_delivery("p", INBOX, ALICE, NOW)
    suppressions = Suppressions(store)
    found = await suppressions.check(of_run, run, NOW)
    assert found is not None
    assert found.code == MAINTENANCE
    assert await suppressions.check(of_monitor, None, NOW) is None
    assert await suppressions.check(of_proposal, None, NOW) is None
