"""Rules: create and change schedules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chimes.errors import QuotaExceeded
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Quota
from chimes.model.ids import ScheduleId
from chimes.model.planning import end_immediately, slot_run
from chimes.model.policy import Policy
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Dependency,
    Schedule,
    apply_edit,
    delete_schedule,
    move_next_run,
    pause_schedule,
    reschedule_next,
    resume_schedule,
    skip_next_slot,
)
from chimes.model.target import Target
from chimes.store.port import ScheduleEdit
from chimes.store.sql.rows.values import schedule_number
from chimes.triggers import Every, Once
from tests.builders import BOB, NOW, TARGET, a_schedule, an_entry
from tests.store_contract.machine.strategies import INTERVALS, POLICIES, index, targets
from tests.store_contract.machine.work import WorkRules

MAX_SCHEDULES = 6


def _ids() -> list[ScheduleId]:
    """Ids in the order of their keys in SQL stores. A pass with a limit takes a part of the
    schedules that are due at the same time, and which ones is not part of the contract: stores sort
    them by id or by key."""
    found: list[ScheduleId] = []
    for number in range(1000):
        schedule_id = ScheduleId(f"s{number:03}")
        if schedule_number(schedule_id) * MAX_SCHEDULES >> 63 == len(found):
            found.append(schedule_id)
    assert len(found) == MAX_SCHEDULES
    return found


IDS = _ids()
QUOTAS = (Quota(limit=MAX_SCHEDULES), Quota(limit=4, active=True, namespace="default"))


class ScheduleRules(WorkRules):
    @precondition(lambda self: len(self.schedules) < MAX_SCHEDULES)
    @rule(
        number=index,
        interval=st.sampled_from(INTERVALS),
        priority=st.integers(-1, 1),
        jitter=st.booleans(),
        max_runs=st.sampled_from([None, None, 3]),
        depends=st.booleans(),
        does=targets,
    )
    def add_schedule(
        self,
        number: int,
        interval: int,
        priority: int,
        jitter: bool,
        max_runs: int | None,
        depends: bool,
        does: Target = TARGET,
    ) -> None:
        now = self._now()
        every = Every(
            timedelta(seconds=interval),
            anchor=now,
            jitter=timedelta(seconds=interval // 2) if jitter else None,
            max_runs=max_runs,
        )
        schedule = a_schedule(
            id=IDS[len(self.schedules)],
            trigger=Once(now + timedelta(seconds=interval)) if number % 7 == 0 else every,
            target=does,
            policy=self._pick(POLICIES, number),
            priority=priority,
            owner=BOB if number % 4 == 3 else SYSTEM_OWNER,
            depends_on=Dependency(schedule_id=IDS[0]) if depends and number % 3 else None,
            created_at=now,
            updated_at=now,
            next_slot=now,
            next_run_at=now,
        )
        entry = an_entry(at=now, verb="create")
        if self._both("add_schedule", schedule, entry, quotas=QUOTAS) is QuotaExceeded:
            self.reached["quota"] += 1
        else:
            self.schedules.append(schedule.id)

    def _change(
        self,
        number: int,
        change: Callable[[Schedule, datetime], Schedule],
        **named: Any,
    ) -> None:
        schedule_id = self._pick(self.schedules, number)
        self._both("change_schedule", schedule_id, change, **named)

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def pause(self, number: int) -> None:
        self._change(number, lambda s, now: pause_schedule(s, now, "me", note="x"))

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def resume(self, number: int) -> None:
        self._change(number, lambda s, now: resume_schedule(s, now, "me"), quotas=QUOTAS)

    @precondition(lambda self: self.schedules)
    @rule(number=index, policy=st.sampled_from(POLICIES), priority=st.integers(-1, 1))
    def edit(self, number: int, policy: Policy, priority: int) -> None:
        self._change(
            number,
            lambda s, now: apply_edit(s, replace(s, policy=policy, priority=priority), now, "me"),
        )

    @precondition(lambda self: self.schedules)
    @rule(number=index, does=targets)
    def edit_target(self, number: int, does: Target) -> None:
        self._change(number, lambda s, now: apply_edit(s, replace(s, target=does), now, "me"))

    @precondition(lambda self: self.schedules)
    @rule(number=index, interval=st.sampled_from(INTERVALS))
    def edit_trigger(self, number: int, interval: int) -> None:
        trigger = Every(timedelta(seconds=interval), anchor=NOW)
        self._change(number, lambda s, now: apply_edit(s, replace(s, trigger=trigger), now, "me"))

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def delete(self, number: int) -> None:
        self._change(number, lambda s, now: delete_schedule(s, now, "me"))

    @precondition(lambda self: len(self.schedules) > 1)
    @rule(number=index, together=st.integers(2, 3))
    def delete_together(self, number: int, together: int) -> None:
        chosen = {self._pick(self.schedules, number + each) for each in range(together)}
        self._both(
            "change_schedules",
            [
                ScheduleEdit(
                    schedule_id=schedule_id,
                    change=lambda s, now: delete_schedule(s, now, "me"),
                    audit=an_entry(at=self._now(), object_id=schedule_id, verb="delete"),
                )
                for schedule_id in sorted(chosen, reverse=number % 2 == 0)
            ],
        )

    @precondition(lambda self: self.schedules)
    @rule(number=index, seconds=st.integers(-20, 40), keep_slot=st.booleans())
    def move(self, number: int, seconds: int, keep_slot: bool) -> None:
        step = timedelta(seconds=seconds)

        def change(schedule: Schedule, now: datetime) -> Schedule:
            if schedule.next_slot is None:
                return schedule
            how = move_next_run if keep_slot else reschedule_next
            return how(schedule, now + step, now, "me")

        self._change(number, change)

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def skip(self, number: int) -> None:
        def change(schedule: Schedule, now: datetime) -> Schedule:
            return skip_next_slot(schedule, now, "me") if schedule.next_slot else schedule

        def rows(schedule: Schedule, now: datetime) -> list[Run]:
            if schedule.next_slot is None:
                return []
            run = slot_run(schedule, schedule.next_slot, now)
            return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

        self._change(number, change, runs=rows)

    @precondition(lambda self: self.schedules)
    @rule(number=index, intervals=st.integers(1, 3))
    def rewind_cursor(self, number: int, intervals: int) -> None:
        """For example after a manual edit of the row or a clock that was set back."""

        def change(schedule: Schedule, now: datetime) -> Schedule:
            slot = schedule.next_slot
            for _ in range(intervals if slot is not None else 0):
                assert slot is not None
                slot = schedule.trigger.previous_before(slot) or slot
            return replace(schedule, next_slot=slot, next_run_at=slot)

        self._change(number, change)
