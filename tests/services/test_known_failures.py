"""Failures marked as known, and when a mark ends."""

from __future__ import annotations

import asyncio
import json

import pytest

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.checkpoint import Checkpoint
from chimes.model.insights import AttentionList, IssueCause, ScheduleAttention, ScheduleIssue
from chimes.model.listing import AuditQuery
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services import attention as known_failures
from chimes.services.attention import (
    MAX_MARKS,
    MAX_NOTE,
    KnownFailures,
    SnoozeService,
    is_still_known,
    without_suppressed,
)
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import MINUTE, NOW, a_run, a_schedule, with_definition

ANNA = Owner(type=OwnerType.USER, id="anna")
ACTOR = Actor(owner=ANNA, role=Role.MEMBER)
EVERYBODY = Actor(role=Role.OPERATOR)


class InterleavingStore(MemoryStore):
    """Yields between reads and writes, so that concurrent changes interleave."""

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        found = await super().get_checkpoint(name)
        await asyncio.sleep(0)
        return found


def failed(schedule: Schedule, error: str = "HTTP 500") -> Run:
    return a_run(
        schedule,
        status=RunStatus.FAILED,
        planned_at=NOW - MINUTE,
        created_at=NOW - MINUTE,
        started_at=NOW - MINUTE,
        finished_at=NOW - MINUTE / 2,
        error=error,
    )


def failing(schedule: Schedule, cause: IssueCause = IssueCause.FAILING) -> AttentionList:
    sign = ScheduleIssue(schedule_id=schedule.id, cause=cause, at=NOW)
    return AttentionList(total=1, items=(ScheduleAttention(schedule=schedule, sign=sign),))


async def marked(error: str = "HTTP 500") -> tuple[MemoryStore, Schedule, Run]:
    store = MemoryStore(SettableClock())
    schedule = a_schedule(owner=ANNA, last_status=RunStatus.FAILED, last_error=error)
    await store.add_schedule(schedule)
    run = failed(schedule, error)
    await KnownFailures(store).mark(ACTOR, run, "  the supplier is told ")
    return store, schedule, run


async def test_a_known_failure_is_hidden_for_all() -> None:
    store, schedule, run = await marked()
    for actor in (ACTOR, EVERYBODY):
        put_off = await SnoozeService(store).get_suppressions(actor, NOW)
        assert without_suppressed(failing(schedule), put_off, 20) == AttentionList()
    known = await KnownFailures(store).get(schedule)
    assert known is not None
    assert (known.run_id, known.note, known.by) == (run.id, "the supplier is told", ACTOR.name)
    (entry,) = await store.list_audit(AuditQuery())
    assert (entry.verb, entry.object_id, entry.reason) == (
        "mark_known",
        run.id,
        "the supplier is told",
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"last_error": "dns"}, IssueCause.FAILING),
        # It succeeded since and fails again with the same error.
        ({"last_success_at": NOW}, IssueCause.FAILING),
        # More severe, or another cause.
        ({}, IssueCause.STOPPED),
        ({}, IssueCause.MISSED),
    ],
)
async def test_new_failures_are_shown(changes: dict[str, object], cause: IssueCause) -> None:
    store, schedule, _ = await marked()
    other = replace(schedule, **changes)  # type: ignore[arg-type]
    put_off = await SnoozeService(store).get_suppressions(ACTOR, NOW)
    assert without_suppressed(failing(other, cause), put_off, 20).total == 1


async def test_an_earlier_success_does_not_end_the_mark() -> None:
    store, schedule, _ = await marked()
    known = await KnownFailures(store).get(schedule)
    assert known is not None
    assert is_still_known(known, replace(schedule, last_success_at=NOW - 2 * MINUTE))


async def test_unmark_keeps_the_snooze() -> None:
    store, schedule, run = await marked()
    service = SnoozeService(store)
    await service.snooze(ACTOR, schedule.id, IssueCause.MISSED)
    put_off = await service.get_suppressions(ACTOR, NOW)
    assert without_suppressed(failing(schedule), put_off, 20).total == 0
    assert without_suppressed(failing(schedule, IssueCause.MISSED), put_off, 20).total == 0
    await KnownFailures(store).unmark(ACTOR, run)
    put_off = await service.get_suppressions(ACTOR, NOW)
    assert without_suppressed(failing(schedule), put_off, 20).total == 1
    assert without_suppressed(failing(schedule, IssueCause.LATE), put_off, 20).total == 0
    await service.unsnooze(ACTOR, schedule.id)
    assert await service.get_suppressions(ACTOR, NOW) == {}


async def test_permissions_and_conflicts_of_mark() -> None:
    store, schedule, run = await marked()
    service = KnownFailures(store)
    bob = Actor(owner=Owner(type=OwnerType.USER, id="bob"), role=Role.MEMBER)
    with pytest.raises(NotFound):
        await service.mark(bob, run, "")
    with pytest.raises(NotAllowed):
        await service.mark(Actor(owner=ANNA, role=Role.VIEWER), run, "")
    with pytest.raises(NotAllowed):
        await service.unmark(Actor(owner=ANNA, role=Role.VIEWER), run)
    with pytest.raises(Conflict):
        await service.mark(ACTOR, replace(run, status=RunStatus.SUCCEEDED), "")
    alone = with_definition(run, schedule_id=None, owner=ANNA)
    with pytest.raises(NotFound):
        await service.mark(bob, alone, "")
    with pytest.raises(NotAllowed):
        await service.mark(Actor(owner=ANNA, role=Role.VIEWER), alone, "")
    assert (await service.mark(ACTOR, alone, "")).run_id == run.id
    assert await service.get_for_run(alone) is not None
    await service.unmark(ACTOR, alone)
    assert await service.get_for_run(alone) is None
    with pytest.raises(InvalidInput):
        await service.mark(ACTOR, run, "x" * (MAX_NOTE + 1))
    with pytest.raises(InvalidInput):
        await service.mark(ACTOR, run, "a\u202eb")
    await store.change_schedule(schedule.id, lambda each, now: replace(each, deleted_at=now))
    with pytest.raises(NotFound):
        await service.mark(ACTOR, run, "")


async def test_the_oldest_marks_are_dropped() -> None:
    store = MemoryStore(SettableClock())
    service = KnownFailures(store)
    first = a_schedule(owner=ANNA)
    for schedule in (first, *(a_schedule(owner=ANNA) for _ in range(MAX_MARKS))):
        await store.add_schedule(schedule)
        await service.mark(ACTOR, failed(schedule), "")
    assert len(await service.get_all()) == MAX_MARKS
    assert first.id not in await service.get_all()


async def test_marks_of_one_owner_do_not_displace_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_failures, "MAX_MARKS", 4)
    monkeypatch.setattr(known_failures, "MAX_ALL_MARKS", 6)
    store, schedule, _ = await marked()
    service = KnownFailures(store)
    made = []
    for name in ("bob",) * 5 + ("eve",) * 3:
        owner = Owner(type=OwnerType.USER, id=name)
        other = a_schedule(owner=owner)
        made.append(other.id)
        await store.add_schedule(other)
        await service.mark(Actor(owner=owner, role=Role.MEMBER), failed(other), "")
    # Bob lost one mark to his own limit and two to the limit of all.
    assert list(await service.get_all()) == [schedule.id, *made[3:]]


async def test_concurrent_marks_are_all_stored() -> None:
    store = InterleavingStore(SettableClock())
    schedules = [a_schedule(owner=ANNA) for _ in range(5)]
    for schedule in schedules:
        await store.add_schedule(schedule)
    service = KnownFailures(store)
    runs = [failed(schedule) for schedule in schedules]
    await asyncio.gather(*(service.mark(ACTOR, run, "") for run in runs))
    assert set(await service.get_all()) == {schedule.id for schedule in schedules}
    await asyncio.gather(*(service.unmark(ACTOR, run) for run in runs[1:]))
    assert set(await service.get_all()) == {schedules[0].id}


async def test_mark_without_an_owner_is_read() -> None:
    store, schedule, _ = await marked()
    state = await store.get_checkpoint("known-failures")
    assert state is not None
    plain = json.loads(state.value)
    del plain[schedule.id]["owner"]
    await store.set_checkpoint("known-failures", json.dumps(plain))
    assert await KnownFailures(store).get(schedule) is not None


@pytest.mark.parametrize("damaged", ["{", "[]", '{"a": 1}', '{"a": {"run": "x"}}', '{"a": []}'])
async def test_corrupt_marks_are_ignored(damaged: str) -> None:
    store = MemoryStore(SettableClock())
    await store.set_checkpoint("known-failures", damaged)
    assert await KnownFailures(store).get_all() == {}
