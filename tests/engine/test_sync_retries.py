"""Collections with `max_retries` and `retry_backoff`: failed tasks are executed again."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chimes.egress import EgressRules
from chimes.model.run import AttemptEnd, RunStatus
from chimes.model.sync import task_run
from chimes.model.target import SyncTarget
from chimes.targets.sync.config import read_sources
from chimes.targets.sync.runner import SyncRunner
from tests.engine.rig import Rig

#: Notes the state it was given, stores the next one and fails until there have been three attempts.
TAP = """
import json, os, sys
at = json.load(open(os.environ["CHIMES_STATE_FILE"])).get("at", 0)
print(json.dumps({"type": "STATE", "value": {"at": at + 1}}), flush=True)
sys.exit(0 if at >= 2 else 3)
"""
BACKOFF = timedelta(milliseconds=300)


async def test_failed_tasks_of_a_collection_are_retried_from_its_last_state(
    rig: Rig, tmp_path: Path
) -> None:
    config: dict[str, Any] = {"command": [sys.executable, "-c", TAP], "format": "singer"}
    section = {
        "shop": {
            "driver": "command",
            "config": config | {"output": "{collection}.jsonl"},
            "collections": [
                {"name": "orders", "max_retries": 2, "retry_backoff": "300ms"},
                {"name": "users", "max_retries": 1, "retry_backoff": "300ms"},
                {"name": "events"},
            ],
        }
    }
    sources = read_sources(section, str(tmp_path), datetime(2030, 1, 1, tzinfo=UTC))
    runner = SyncRunner(lambda: sources, egress=EgressRules, stall_after=timedelta(minutes=2))
    await rig.engine(runners=[runner])
    runs = {}
    for target, collection in sources.pairs():
        run, created = await rig.store.add_unless_active(
            task_run(target, collection, await rig.now())
        )
        assert created
        runs[target.collection] = run.id
    orders = await rig.reached(runs["orders"], RunStatus.SUCCEEDED)
    assert [each.end for each in orders.attempts] == [
        AttemptEnd.FAILED,
        AttemptEnd.FAILED,
        AttemptEnd.SUCCEEDED,
    ]
    for before, after in zip(orders.attempts, orders.attempts[1:], strict=False):
        assert before.finished_at is not None
        assert after.started_at - before.finished_at >= BACKOFF
    users = await rig.reached(runs["users"], RunStatus.FAILED)
    events = await rig.reached(runs["events"], RunStatus.FAILED)
    assert (len(users.attempts), len(events.attempts)) == (2, 1)
    states = {}
    for name in runs:
        stored = await rig.store.get_checkpoint(SyncTarget(source="shop", collection=name).key)
        states[name] = None if stored is None else json.loads(stored.value)
    assert states == {"orders": {"at": 3}, "users": {"at": 2}, "events": {"at": 1}}
