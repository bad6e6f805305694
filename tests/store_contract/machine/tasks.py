"""Rules: sync runs and checkpoints."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from chimes.model.checkpoint import version_of
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery
from tests.builders import SYNC, a_sync_run, an_entry
from tests.store_contract.machine.manual_actions import ManualRules
from tests.store_contract.machine.strategies import INTERVALS, STATES, index


class TaskRules(ManualRules):
    @rule(again=st.booleans(), priority=st.integers(-1, 1))
    def request_sync_run(self, again: bool, priority: int) -> None:
        """Requests a new run, or repeats the last request as after a lost response."""
        self.made += not again
        now = self._now()
        run = a_sync_run(
            id=RunId(f"task-{self.made}"),
            priority=priority,
            created_at=now,
            planned_at=now,
            available_at=now,
        )
        _, created = self._both("add_unless_active", run, an_entry(at=now, verb="sync"))
        self.reached["task added" if created else "task standing"] += 1
        self._both(
            "list_runs", RunQuery(requirement=SYNC.requirement, concurrency_key=SYNC.key, limit=3)
        )

    @rule(number=index, name=st.sampled_from(STATES))
    def save_checkpoint(self, number: int, name: str) -> None:
        if not self._owned():
            self.work(number, max(INTERVALS), 2)
        if not self.held:
            return
        run = self._pick((number % 3 and self._owned()) or self.held, number)
        kept = self._both("save_checkpoint", run.id, run.fence, name, f"{number}")
        self.reached["state kept" if kept else "state refused"] += 1
        self._both("get_checkpoint", name)

    @rule(
        name=st.sampled_from(STATES),
        value=st.sampled_from([None, "{}", "[]"]),
        expect=st.sampled_from(["any", "none", "stored"]),
    )
    def set_checkpoint(self, name: str, value: str | None, expect: str) -> None:
        stored = version_of(self._both("get_checkpoint", name))
        expected = {"any": None, "none": 0, "stored": stored}[expect]
        entry = an_entry(at=self._now(), verb="state")
        self._both("set_checkpoint", name, value, entry, expected=expected)
        self.reached["state stale"] += expected not in (None, stored)
        self._both("get_checkpoint", name)
