"""Deletion of several schedules in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import plan
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import ALICE, MINUTE, NOW, a_schedule, due_schedule
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, STRANGER, VIEWER, any_target


async def add_schedule(store: MemoryStore, **given: Any) -> Schedule:
    return await store.add_schedule(a_schedule(**({"owner": ALICE} | given)))


async def test_deletes_all_with_an_audit_entry_each(
    schedules: ScheduleService, store: MemoryStore
) -> None:
    first, second, kept = [await add_schedule(store) for _ in range(3)]
    gone = await schedules.delete_all(MEMBER, [second.id, first.id, second.id])
    assert [each.id for each in gone] == [second.id, first.id]
    assert all(each.deleted_at == NOW for each in gone)
    assert await store.get_schedule(kept.id) == kept
    notes = await store.list_audit(AuditQuery())
    assert [(note.verb, note.object_id) for note in notes] == [
        ("delete", first.id),
        ("delete", second.id),
    ]
    assert notes[0].changes["deleted_at"]


@pytest.mark.parametrize(
    ("actor", "raised"), [(STRANGER, NotFound), (VIEWER, NotAllowed), (OPERATOR, NotAllowed)]
)
async def test_one_without_permission_deletes_none(
    schedules: ScheduleService, store: MemoryStore, actor: Any, raised: type[Exception]
) -> None:
    own = await add_schedule(store, owner=actor.owner)
    other = await add_schedule(store)
    with pytest.raises(raised):
        await schedules.delete_all(actor, [own.id, other.id])
    assert [await store.get_schedule(each.id) for each in (own, other)] == [own, other]


async def test_check_runs_in_order_and_again_in_the_transaction(
    schedules: ScheduleService, store: MemoryStore
) -> None:
    first, second = await add_schedule(store), await add_schedule(store)
    checked: list[str] = []

    def check(schedule: Schedule) -> None:
        checked.append(schedule.id)
        if len(checked) > 3:
            raise InvalidInput("it has gone elsewhere meanwhile")

    with pytest.raises(InvalidInput):
        await schedules.delete_all(ADMIN, [first.id, second.id], check=check)
    assert checked == [first.id, second.id, first.id, second.id]
    with pytest.raises(NotFound):
        await schedules.delete_all(ADMIN, [first.id, ScheduleId("nobody")])
    assert await store.get_schedule(first.id) == first


# Due slots are fired before the deletion.
@pytest.mark.parametrize("capped", [False, True])
async def test_due_slots_are_fired_first(
    store: MemoryStore, clock: SettableClock, capped: bool
) -> None:
    schedules = ScheduleService(
        store, ScheduleRules(store, check_target=any_target), planner=plan, dispatch_capped=capped
    )
    made = [await store.add_schedule(due_schedule(NOW - MINUTE)) for _ in range(3)]
    gone = await schedules.delete_all(ADMIN, [each.id for each in made[:2]])
    assert all(each.deleted_at is not None for each in gone)
    runs = (await store.list_runs(RunQuery(limit=None))).items
    slots = {(run.schedule_id, run.slot) for run in runs if run.slot is not None}
    assert {(each.id, NOW - MINUTE) for each in made[:2]} <= slots
    ends = {run.status for run in runs if run.schedule_id in {each.id for each in made[:2]}}
    assert RunStatus.QUEUED not in ends
    # With a dispatch cap the other schedules are not fired.
    assert (made[2].id in {run.schedule_id for run in runs}) is not capped
