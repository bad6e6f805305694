"""Rules: manual runs and queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chimes.errors import AlreadyExists
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.planning import backfill_run, manual_run, retry_run
from chimes.model.run import Reason, RunStatus
from tests.builders import a_schedule, an_entry
from tests.store_contract.machine.schedules import ScheduleRules
from tests.store_contract.machine.strategies import INTERVALS, amount, index


class ManualRules(ScheduleRules):
    @precondition(lambda self: self.schedules)
    @rule(number=index, beside=st.booleans())
    def run_now(self, number: int, beside: bool) -> None:
        schedule = self._both("get_schedule", self._pick(self.schedules, number))
        run = manual_run(schedule, self._now(), beside_others=beside)
        self.made += 1
        self._both("add_runs", [replace(run, id=RunId(f"manual-{self.made}"))], an_entry())

    @precondition(lambda self: self.schedules)
    @rule(number=index, count=amount)
    def backfill(self, number: int, count: int) -> None:
        schedule = self._both("get_schedule", self._pick(self.schedules, number))
        slots: list[datetime] = []
        slot = schedule.trigger.previous_before(self._now())
        while slot is not None and len(slots) < count:
            slots.append(slot)
            slot = schedule.trigger.previous_before(slot)
        taken = self._both("find_slot_runs", schedule.id, slots)
        now = self._now()
        rows = [
            backfill_run(schedule, slot, taken.get(slot), now)
            for slot in slots
            if schedule.purged_until is None or slot > schedule.purged_until
        ]
        self._both("add_runs", rows)

    @precondition(lambda self: self.last_seen)
    @rule(number=index)
    def cancel(self, number: int) -> None:
        if number % 3 and not self._owned():
            self.work(number, max(INTERVALS), 2)
        running = [run.id for run in self._runs().values() if run.status is RunStatus.RUNNING]
        chosen = running if running and number % 3 else self.last_seen
        run_id = self._pick(sorted(chosen), number)
        run = self._both("cancel_run", run_id, Reason.CANCELED_BY_HAND, an_entry(verb="cancel"))
        if run is not None and run.holder is not None:
            self._heartbeat(run.holder)

    @precondition(lambda self: self.last_seen)
    @rule(number=index)
    def retry_manually(self, number: int) -> None:
        run = self._both("get_run", self._pick(sorted(self.last_seen), number))
        if run is not None and run.status.terminal:
            self.made += 1
            again = replace(retry_run(run, self._now()), id=RunId(f"again-{self.made}"))
            self._both("add_runs", [again])

    @rule(age=st.sampled_from([10, 60]))
    def prune(self, age: int) -> None:
        # Without a limit: a store chooses which ones of many it deletes first.
        before = self._now() - timedelta(seconds=age)
        self.reached["pruned"] += self._both("prune_runs", before=before, limit=1000)
        gone = self.last_seen.keys() - self._runs().keys()
        for run_id in gone:
            assert self.last_seen.pop(run_id).status.terminal

    @rule(
        number=index,
        by=st.sampled_from(ScheduleSort),
        sort=st.sampled_from(RunSort),
        descending=st.booleans(),
        limit=amount,
        status=st.sampled_from([None, *RunStatus]),
    )
    def query(
        self,
        number: int,
        by: ScheduleSort,
        sort: RunSort,
        descending: bool,
        limit: int,
        status: RunStatus | None,
    ) -> None:
        for verb in ("next_due", "next_available", "counts", "nodes"):
            self._both(verb)
        schedules = ScheduleQuery(sort=by, descending=descending, limit=limit)
        self._pages(partial(self._both, "list_schedules"), schedules)
        self._both("count_schedules", schedules)
        statuses = (status,) if status else ()
        runs = RunQuery(sort=sort, descending=descending, limit=limit, statuses=statuses)
        self._pages(partial(self._both, "list_runs"), runs)
        taken = a_schedule(id=self._pick(self.schedules, number))
        assert self._both("add_schedule", taken) is AlreadyExists

    def _pages(self, fetch: Callable[[Any], Any], query: Any) -> None:
        for _ in range(3):
            page = fetch(query)
            if page.next is None:
                return
            query = replace(query, after=page.next)
