"""An error while building one completion affects no other attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.engine import executor as execution
from chimes.model.policy import Policy
from chimes.model.run import Attempt, Completion, LogEntry, Outcome, Run, RunStatus
from chimes.store.memory import MemoryStore
from tests.builders import a_run
from tests.engine.rig import Recording, Rig


async def test_an_error_in_one_completion_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(MemoryStore(), "memory")
    now = await rig.now()
    policy = Policy(timeout=timedelta(milliseconds=200))
    runs = [
        a_run(id=f"run-{number}", policy=policy, created_at=now, planned_at=now, available_at=now)
        for number in range(5)
    ]
    broken: list[str] = []
    build = execution.completion_of

    def one_is_broken(
        run: Run, outcome: Outcome, attempt: Attempt, logs: tuple[LogEntry, ...]
    ) -> Completion:
        if run.id == "run-0" and not broken:
            broken.append(run.id)
            raise RuntimeError("a bug in one completion")
        return build(run, outcome, attempt, logs)

    monkeypatch.setattr(execution, "completion_of", one_is_broken)
    await rig.store.add_runs(runs)
    await rig.engine(runners=[Recording()])
    for run in runs[1:]:
        await rig.reached(run.id, RunStatus.SUCCEEDED)
    # It keeps its permit until its timeout.
    await rig.reached(runs[0].id, RunStatus.TIMEOUT)
    assert broken == ["run-0"]
