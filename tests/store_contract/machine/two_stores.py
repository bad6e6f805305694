"""Runs each operation on both stores, compares results and checks invariants."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from chimes.clock import Clock
from chimes.errors import ChimesError
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.run import CRASH_LIMIT, Completion, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.memory import MemoryStore
from chimes.store.port import FireResult, Store
from chimes.testing import SettableClock
from tests.store_contract.scenes import all_runs

#: Durability has other tests; many examples should not wait for a disk.
IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class SentCompletion:
    """A completion that was sent, and whether the store accepted it."""

    completion: Completion
    accepted: bool


class TwoStores(RuleBasedStateMachine):
    make_subject: ClassVar[Callable[[Path, Clock], Store]]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self.subject = type(self).make_subject(Path(self.directory.name), self.clock)
        self.reference: Store = MemoryStore(clock=self.clock)
        self._wait(self.subject.open())
        self._wait(self.reference.open())
        self.schedules: list[ScheduleId] = []
        self.nodes: list[NodeId] = []
        #: Runs as claimed; some claims are stale.
        self.held: list[Run] = []
        self.sent: list[SentCompletion] = []
        self.last_seen: dict[RunId, Run] = {}
        self.made = 0

    # --- both stores --------------------------------------------------------------------------
    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _both(self, verb: str, *given: Any, **named: Any) -> Any:
        answers = [
            self._wait(_answer(getattr(store, verb)(*given, **named)))
            for store in (self.reference, self.subject)
        ]
        assert answers[1] == answers[0], f"{verb} returned different results"
        return answers[0]

    def _pick(self, rows: Sequence[Any], number: int) -> Any:
        return rows[number % len(rows)]

    def _now(self) -> datetime:
        return self.clock.now()

    def _runs(self) -> dict[str, Run]:
        return self._wait(all_runs(self.reference))

    # --- invariants ---------------------------------------------------------------------------
    @invariant()
    def is_safe(self) -> None:
        """Invariants of the reference store; the other store returns the same values."""
        runs = self._runs()
        slots = Counter((run.schedule_id, run.slot) for run in runs.values() if run.slot)
        assert all(times == 1 for times in slots.values())
        admitted: Counter[str] = Counter()
        limits: dict[str, int] = {}
        for run in runs.values():
            before = self.last_seen.get(run.id)
            if before is not None:
                assert before == run or not before.status.terminal, "an ended run changed"
                assert run.fence >= before.fence
                assert len(run.attempts) >= len(before.attempts)
            assert run.crashes <= CRASH_LIMIT
            assert (run.holder is None) == (run.status is not RunStatus.RUNNING)
            if run.concurrency_key and run.admitted:
                admitted[run.concurrency_key] += 1
                limits[run.concurrency_key] = max(
                    limits.get(run.concurrency_key, 0), run.concurrency_limit
                )
        assert all(times <= limits[key] for key, times in admitted.items())
        self.last_seen = dict(runs)


def _without_last_run(schedule: Schedule) -> Schedule:
    """A store may return an older one with a plan."""
    nothing = {"last_run_at": None, "last_status": None, "last_success_at": None}
    return replace(schedule, last_error="", **nothing)


async def _answer(work: Coroutine[Any, Any, Any]) -> Any:
    """The result or the type of the error; unordered rows are sorted."""
    try:
        answer = await work
    except ChimesError as error:
        return type(error)
    if isinstance(answer, FireResult):
        return replace(
            answer,
            others=tuple(sorted(answer.others, key=_id)),
            plans=tuple(
                (
                    _without_last_run(before),
                    replace(plan, schedule=_without_last_run(plan.schedule)),
                )
                for before, plan in sorted(answer.plans, key=lambda plan: plan[0].id)
            ),
            broken=tuple(map(_without_last_run, sorted(answer.broken, key=_id))),
        )
    return answer


def _id(row: Run | Schedule) -> str:
    return row.id
