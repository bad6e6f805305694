from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.engine.events import AuditNotPruned, AuditPruned, RunsPruned, UnusedPruned
from chimes.model import replace
from chimes.model.audit import chain_entry
from chimes.model.listing import AuditQuery
from chimes.model.policy import Misfire, Policy
from chimes.model.schedule import delete_schedule, plan_after
from chimes.services.audit import verify_chain
from chimes.services.time_data import TimeDataService
from chimes.triggers import Cron, zones
from chimes.triggers.zones import Zone
from tests.builders import a_schedule, an_entry
from tests.engine.rig import Rig, eventually, until


# A pruned slot is never created again.
async def test_runs_older_than_the_retention_are_deleted(rig: Rig) -> None:
    first = await rig.engine()
    schedule = await rig.due_now(policy=Policy(misfire=Misfire.ALL))
    (run,) = await rig.ended(schedule)
    await first.drain()
    kept = await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.engine(retention=timedelta(0))
    await until(lambda: rig.emitted(RunsPruned))
    assert await eventually(lambda: rig.runs(schedule), lambda runs: not runs) == []
    assert (await rig.schedule(schedule.id)).purged_until == run.slot
    assert (await rig.schedule(kept.id)).purged_until is None


async def test_schedules_deleted_before_the_retention_are_purged(rig: Rig) -> None:
    kept = await rig.once_at(await rig.now() + timedelta(hours=1))
    gone = await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.store.change_schedule(gone.id, lambda s, now: delete_schedule(s, now, "eva"))
    await rig.engine(retention=timedelta(0))
    await until(lambda: rig.emitted(UnusedPruned))
    assert rig.emitted(UnusedPruned)[0].count == 1
    assert await rig.store.get_schedule(gone.id) is None
    assert await rig.store.get_schedule(kept.id) is not None


KEY = "a key of thirty-two characters.."


async def test_old_audit_entries_are_pruned(rig: Rig) -> None:
    now = await rig.now()
    for age in (400, 380, 10):
        await rig.store.append_audit(an_entry(at=now - timedelta(days=age)))
    await rig.engine(audit_retention=timedelta(days=365), audit_key=KEY)
    await until(lambda: rig.emitted(AuditPruned))
    assert rig.emitted(AuditPruned)[0].count == 2
    found = await verify_chain(rig.store, KEY)
    assert found.ok
    assert found.checkpoint is not None
    assert found.checkpoint.number == 2


async def test_changed_audit_entries_are_not_pruned(rig: Rig) -> None:
    now = await rig.now()
    entry = chain_entry(an_entry(at=now - timedelta(days=400)), number=1, previous_hash="")
    await rig.store.load([replace(entry, actor="somebody else")])
    await rig.engine(audit_retention=timedelta(days=365), audit_key=KEY)
    await until(lambda: rig.emitted(AuditNotPruned))
    assert "entry 1 " in rig.emitted(AuditNotPruned)[0].why
    assert rig.emitted(AuditPruned) == []


async def test_audit_entries_are_kept_by_default(rig: Rig) -> None:
    await rig.store.append_audit(an_entry(at=await rig.now() - timedelta(days=4000)))
    await rig.once_at(await rig.now() + timedelta(hours=1))
    gone = await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.store.change_schedule(gone.id, lambda s, now: delete_schedule(s, now, "eva"))
    await rig.engine(retention=timedelta(0))
    await until(lambda: rig.emitted(UnusedPruned))
    entries = await rig.store.list_audit(AuditQuery(limit=100))
    assert entries[-1].number == 1


async def test_a_node_records_the_time_data_of_its_schedules(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new node with other data lists the fires that move, and moves the cursor."""
    now = await rig.now()
    rule = Cron("0 12 1 7 *", timezone="Europe/Berlin")
    schedule = await rig.store.add_schedule(
        plan_after(replace(a_schedule(id="summer"), trigger=rule, updated_at=now), now)
    )
    first = await rig.engine()
    service = TimeDataService(rig.store)
    await eventually(service.read, lambda data: "Europe/Berlin" in data.zones)
    await first.drain()

    winter = Zone.of_changes("Europe/Berlin", [], [3600])
    load = zones._load.__wrapped__
    monkeypatch.setattr(
        zones, "_load", lambda name: winter if name == "Europe/Berlin" else load(name)
    )
    await rig.engine()
    data = await eventually(service.read, lambda data: bool(data.moves))
    assert schedule.next_slot is not None
    later = schedule.next_slot + timedelta(hours=1)
    assert (data.moves[0].old, data.moves[0].new) == (schedule.next_slot, later)
    moved = await eventually(
        lambda: rig.schedule(schedule.id), lambda found: found.next_slot == later
    )
    assert moved.version == schedule.version
