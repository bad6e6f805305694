"""A Hypothesis state machine that runs the same random operations on a store and the memory store.

It compares every result, checks the invariants after every step and the contents at the end. Faults
that need several steps (a stall past the lease with a takeover, a run that kills its nodes) are
single rules, because random steps never reach them. `reached` counts events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from chimes.clock import Clock
from chimes.model.ids import NodeId
from chimes.model.schedule import pause_schedule
from chimes.store.port import Store
from tests.builders import CAPABILITIES, LEASE, SECOND, a_completion, a_node, claim_request
from tests.store_contract.machine.messages import MessageRules
from tests.store_contract.machine.strategies import INTERVALS, POLICIES, index
from tests.store_contract.scenes import contents


class StoreMachine(MessageRules):
    @initialize(first=index, interval=st.sampled_from(INTERVALS), priority=st.integers(-1, 1))
    def populate(self, first: int, interval: int, priority: int) -> None:
        """Starts with schedules and runs: operations on an empty store find no bugs."""
        self.join()
        for number in (first, first + 1, len(POLICIES) - 1):
            self.add_schedule(number, interval, priority, number % 2 == 0, None, number % 5 == 0)
        for _ in range(2):
            self.work(first, interval, 2)

    def teardown(self) -> None:
        try:
            self._drain()
            assert self._wait(contents(self.subject)) == self._wait(contents(self.reference))
        finally:
            self._wait(self.subject.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.directory.cleanup()

    def _drain(self) -> None:
        """One live node with unlimited time completes every run."""
        self.clock.advance(LEASE)
        self.rescue()
        for schedule_id in self.schedules:
            self._both("change_schedule", schedule_id, lambda s, now: pause_schedule(s, now, "me"))
        self.made += 1
        drainer = NodeId(f"drainer-{self.made}")
        self._both("join", a_node(drainer), timedelta(days=1))
        while claimed := self._both("claim", claim_request(drainer, 50, CAPABILITIES)):
            self._finish(*(a_completion(run, self._now()) for run in claimed))
            self.clock.advance(SECOND)
        waiting = [run for run in self._runs().values() if not run.status.terminal]
        assert all(run.available_at > self._now() for run in waiting), "a run never ends"
        if waiting:
            self.clock.set(max(run.available_at for run in waiting))
            for run in self._both("claim", claim_request(drainer, 1000, CAPABILITIES)):
                self._finish(a_completion(run, self._now()))
        assert all(run.status.terminal for run in self._runs().values())


def machine_for(make: Callable[[Path, Clock], Store]) -> type[StoreMachine]:
    """A new machine class per store, since `reached` is a class attribute."""
    name = "StoreMachine"
    return type(name, (StoreMachine,), {"make_subject": staticmethod(make), "reached": Counter()})
