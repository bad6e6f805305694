"""A set of schedules that is not written completely leaves none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from chimes.errors import QuotaExceeded
from chimes.model import replace
from chimes.model.access import Scope
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.services.schedules.service import ScheduleChange, ScheduleService
from chimes.store.memory import MemoryStore
from tests.builders import ALICE, a_schedule
from tests.services.conftest import MEMBER

#: May create schedules, but neither change nor delete them.
CREATOR = replace(MEMBER, scopes=(Scope.AGENT, Scope.AGENT_SCHEDULES))
RENAME = ScheduleChange(verb="update", apply=lambda before, now: replace(before, name="renamed"))


def new_schedule(name: str) -> Schedule:
    return a_schedule(id=ScheduleId(name), name=name, owner=ALICE)


async def names(store: MemoryStore) -> set[str]:
    return {each.name for each in (await store.list_schedules(ScheduleQuery())).items}


class Pause:
    """Holds a call of the store after it has written."""

    def __init__(self) -> None:
        self._reached, self._proceed = asyncio.Event(), asyncio.Event()

    async def hold(self) -> None:
        self._reached.set()
        await self._proceed.wait()

    async def cancel_meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        await asyncio.wait_for(self._reached.wait(), 60)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, self._proceed.set)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_creations_are_undone_if_the_request_is_canceled(
    schedules: ScheduleService, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, add, added = Pause(), store.add_schedule, []

    async def hold_second(schedule: Schedule, *args: Any, **more: Any) -> Schedule:
        found = await add(schedule, *args, **more)
        added.append(schedule.name)
        if schedule.name == "b":
            await pause.hold()
        return found

    old = await store.add_schedule(new_schedule("old"))
    monkeypatch.setattr(store, "add_schedule", hold_second)
    new = [new_schedule(name) for name in "abc"]
    await pause.cancel_meanwhile(schedules.write_set(MEMBER, new, [(old, RENAME)]))
    assert added == ["a", "b"]
    assert await names(store) == {"old"}


async def test_a_transaction_that_was_committed_is_not_undone(
    schedules: ScheduleService, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, change = Pause(), store.change_schedules

    async def hold(edits: Any) -> Any:
        found = await change(edits)
        await pause.hold()
        return found

    old = await store.add_schedule(new_schedule("old"))
    monkeypatch.setattr(store, "change_schedules", hold)
    work = schedules.write_set(MEMBER, [new_schedule("a")], [(old, RENAME)])
    await pause.cancel_meanwhile(work)
    assert await names(store) == {"a", "renamed"}


async def test_a_key_that_may_only_create_leaves_nothing_either(
    schedules: ScheduleService, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = store.add_schedule

    async def refuse_third(schedule: Schedule, *args: Any, **more: Any) -> Schedule:
        if schedule.name == "c":
            raise QuotaExceeded()
        return await add(schedule, *args, **more)

    monkeypatch.setattr(store, "add_schedule", refuse_third)
    assert not CREATOR.may_write(ALICE)
    with pytest.raises(QuotaExceeded):
        await schedules.write_set(CREATOR, [new_schedule(name) for name in "abc"], [])
    assert await names(store) == set()
