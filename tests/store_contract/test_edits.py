"""Atomic changes of several schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from chimes.errors import ChimesError, Conflict, NotFound
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.planning import end_immediately, plan, slot_run
from chimes.model.run import Reason, Run, RunStatus, cancel
from chimes.model.schedule import Schedule, delete_schedule, record_run
from chimes.services.audit import verify_chain
from chimes.store.port import ScheduleEdit, Store
from chimes.testing import SettableClock
from tests.builders import a_completion, a_run, a_schedule, an_entry, due_schedule
from tests.store_contract.scenes import all_runs, contents, running_slot
from tests.store_contract.stores import Home
from tests.tables import each_row


def deletion(schedule_id: str, **given: object) -> ScheduleEdit:
    edit = ScheduleEdit(
        schedule_id=ScheduleId(schedule_id),
        change=lambda s, now: delete_schedule(s, now, "me"),
        audit=an_entry(object_id=schedule_id, verb="delete"),
    )
    return replace(edit, **given)


async def audited(store: Store) -> list[str]:
    return [entry.object_id for entry in await store.list_audit(AuditQuery())][::-1]


async def test_schedules_are_changed_in_the_given_order(store: Store, clock: SettableClock) -> None:
    made = [await store.add_schedule(a_schedule()) for _ in range(4)]
    now = clock.advance(3)
    asked = [made[2], made[0], made[3]]
    changed = await store.change_schedules([deletion(each.id) for each in asked])
    assert changed == tuple(delete_schedule(each, now, "me") for each in asked)
    for each, after in zip(asked, changed, strict=True):
        assert await store.get_schedule(each.id) == after
    assert await store.get_schedule(made[1].id) == made[1]
    assert await audited(store) == [each.id for each in asked]
    assert (await verify_chain(store)).ok


async def test_each_edit_has_its_own_change_and_runs(store: Store, clock: SettableClock) -> None:
    first, second = await store.add_schedule(a_schedule()), await store.add_schedule(a_schedule())

    def skipped(before: Schedule, now: datetime) -> Sequence[Run]:
        assert before.next_slot is not None
        run = slot_run(before, before.next_slot, now)
        return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

    gone, renamed = await store.change_schedules(
        [
            deletion(first.id, runs=skipped, audit=None),
            deletion(second.id, change=lambda s, now: replace(s, name="renamed")),
        ]
    )
    assert gone.deleted_at == clock.now()
    assert renamed == replace(second, name="renamed")
    (row,) = (await all_runs(store)).values()
    assert row == skipped(first, clock.now())[0]
    assert await audited(store) == [second.id]


def _refuse(before: Schedule, now: datetime) -> Schedule:
    raise Conflict("no")


def _refuse_rows(before: Schedule, now: datetime) -> Sequence[Run]:
    raise Conflict("no rows")


@each_row(
    ("break_edit", "raised"),
    [
        (lambda edit: replace(edit, schedule_id=ScheduleId("nobody")), NotFound),
        (lambda edit: replace(edit, change=_refuse), Conflict),
        (lambda edit: replace(edit, runs=_refuse_rows), Conflict),
    ],
    ids=["unknown schedule", "change refuses", "runs refuse"],
)
@each_row("place", [0, 1, 2])
async def test_one_failing_edit_rolls_back_all(
    store: Store,
    break_edit: Callable[[ScheduleEdit], ScheduleEdit],
    raised: type[ChimesError],
    place: int,
) -> None:
    made = [await store.add_schedule(a_schedule()) for _ in range(3)]
    await store.add_runs([a_run(each) for each in made])
    before = await contents(store)
    edits = [deletion(each.id, runs=lambda s, now: [a_run(s, id=f"new {s.id}")]) for each in made]
    edits[place] = break_edit(edits[place])
    with pytest.raises(raised):
        await store.change_schedules(edits)
    assert await contents(store) == before


async def test_edit_of_a_deleted_schedule_rolls_back_all(store: Store) -> None:
    made = [await store.add_schedule(a_schedule()) for _ in range(2)]
    await store.change_schedules([deletion(made[1].id)])
    with pytest.raises(NotFound):
        await store.change_schedules([deletion(each.id) for each in made])
    assert await store.get_schedule(made[0].id) == made[0]
    assert await audited(store) == [made[1].id]


async def test_deletion_cancels_queued_runs_and_keeps_running_ones(
    store: Store, clock: SettableClock
) -> None:
    busy, running = await running_slot(store)
    other = await store.add_schedule(a_schedule())
    shared, blocked, left = await store.add_runs(
        [
            a_run(busy, concurrency_key="shared"),
            a_run(other, concurrency_key="shared"),
            a_run(concurrency_key="shared"),
        ]
    )
    assert (shared.blocked, blocked.blocked, left.blocked) == (False, True, True)
    now = clock.advance(2)
    gone, _ = await store.change_schedules([deletion(busy.id), deletion(other.id)])
    assert await all_runs(store) == {
        running.id: running,
        shared.id: cancel(shared, Reason.SCHEDULE_DELETED, now),
        blocked.id: cancel(blocked, Reason.SCHEDULE_DELETED, now),
        left.id: replace(left, blocked=False),
    }
    (ended,) = (await store.finish([a_completion(running, now)])).accepted
    assert await store.get_schedule(busy.id) == record_run(gone, ended)


async def test_edits_are_durable(durable_home: Home) -> None:
    store = await durable_home.open()
    made = [await store.add_schedule(a_schedule()) for _ in range(3)]
    changed = await store.change_schedules([deletion(each.id) for each in made])
    again = await durable_home.reopen()
    assert [await again.get_schedule(each.id) for each in made] == [*changed]


# Transactions that edit the same schedules in another order must not deadlock.
async def test_concurrent_edits_and_firing_do_not_deadlock(store: Store) -> None:
    made = [await store.add_schedule(due_schedule()) for _ in range(8)]

    async def remove(ids: Sequence[str]) -> bool:
        try:
            await store.change_schedules([deletion(each) for each in ids])
        except NotFound:
            return False
        return True

    ids = [each.id for each in made]
    answers = await asyncio.gather(
        remove(ids), store.fire_due(plan, limit=5), remove(ids[::-1]), remove(ids[2:6])
    )
    won = [answer for answer in answers if answer is True]
    after = [await store.get_schedule(each) for each in ids]
    gone = [each is not None and each.deleted_at is not None for each in after]
    if len(won) == 1:
        assert all(gone) or gone == [False] * 2 + [True] * 4 + [False] * 2
    else:
        raise AssertionError(f"{len(won)} of them deleted the same schedules")
    assert len(await audited(store)) == sum(gone)
