"""Python tasks on a real engine: what is recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.clock import SystemClock
from chimes.engine import executor
from chimes.engine.events import TargetStuck
from chimes.engine.in_flight import LOG_LIMITS_BY_KIND
from chimes.model.ids import RunId
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Reason, Run, RunStatus
from chimes.model.target import TaskTarget
from chimes.store.memory import MemoryStore
from chimes.targets.process.child import DRAIN_SECONDS, GRACE_SECONDS
from chimes.targets.python import PythonTask
from chimes.targets.python.wire import LOG_LIMITS
from tests.builders import a_run
from tests.engine.rig import Rig, eventually
from tests.targets import python_tasks
from tests.targets.task_calls import alive
from tests.targets.waiting import pass_time, until


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    store = MemoryStore(SystemClock())
    await store.open()
    rig = Rig(store, "memory")
    await rig.engine(runners=[PythonTask(python_tasks.registry, app=python_tasks.PATH)])
    yield rig
    await rig.close()
    await store.close()


async def add(rig: Rig, name: str, args: dict[str, object] | None = None, **policy: Any) -> RunId:
    now = await rig.now()
    run = a_run(
        target=TaskTarget(name=name, args=args or {}),
        policy=Policy(**({"timeout": timedelta(seconds=60)} | policy)),
        created_at=now,
        planned_at=now,
        available_at=now,
    )
    await rig.store.add_runs([run])
    return run.id


async def ended(rig: Rig, run_id: RunId) -> Run:
    return await eventually(lambda: rig.run(run_id), lambda run: run.status.terminal, within=60)


async def lines(rig: Rig, run_id: RunId) -> list[tuple[str, str]]:
    page = await rig.store.read_logs(run_id, after=0, limit=100_000)
    return [(entry.level, entry.message) for entry in page]


async def test_result_and_log_lines_are_recorded(rig: Rig) -> None:
    run = await ended(rig, run_id := await add(rig, "facts_process"))
    assert run.status is RunStatus.SUCCEEDED
    assert run.result is not None
    value = run.result["value"]
    assert isinstance(value, dict)
    assert value["run_id"] == run_id
    assert await lines(rig, run_id) == [("debug", "a detail"), ("warning", "careful with this")]


async def test_crashing_task_fails_and_other_runs_continue(rig: Rig) -> None:
    poison = await add(rig, "segfaults", max_retries=1, retry_backoff=timedelta(milliseconds=10))
    good = await add(rig, "add", {"a": 1})
    assert (await ended(rig, good)).status is RunStatus.SUCCEEDED
    run = await ended(rig, poison)
    assert (run.status, run.reason) == (RunStatus.FAILED, "crashed")
    assert [each.end for each in run.attempts] == [AttemptEnd.FAILED, AttemptEnd.FAILED]
    assert (await ended(rig, await add(rig, "add", {"a": 1}))).status is RunStatus.SUCCEEDED


async def test_process_is_killed_before_the_timeout_is_recorded(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it ignores SIGTERM: a retry never overlaps the previous attempt."""
    monkeypatch.setattr(executor, "STUCK_AFTER", 60.0)  # a busy machine takes longer
    pid = tmp_path / "pid"
    run_id = await add(rig, "ignores_sigterm", {"pid": str(pid)}, timeout=timedelta(seconds=60))
    await until(pid.exists)
    pass_time(60)
    run = await ended(rig, run_id)
    assert not alive(int(pid.read_text()))
    assert (run.status, run.reason) == (RunStatus.TIMEOUT, "timeout")
    assert not rig.emitted(TargetStuck)


async def test_process_is_killed_before_the_cancel_is_recorded(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GRACE_SECONDS + DRAIN_SECONDS < executor.STUCK_AFTER
    monkeypatch.setattr(executor, "STUCK_AFTER", 60.0)  # a busy machine takes longer
    pid = tmp_path / "pid"
    run_id = await add(rig, "ignores_sigterm", {"pid": str(pid)})
    await until(pid.exists)
    await rig.store.cancel_run(run_id, Reason.CANCELED_BY_HAND)
    run = await ended(rig, run_id)
    assert not alive(int(pid.read_text()))
    assert (run.status, run.reason) == (RunStatus.CANCELED, Reason.CANCELED_BY_HAND)
    assert not rig.emitted(TargetStuck)


async def test_output_flood_leaves_room_for_the_error_in_the_log(rig: Rig) -> None:
    run_id = await add(rig, "floods_and_fails")
    run = await ended(rig, run_id)
    assert (run.status, run.error) == (RunStatus.FAILED, "ValueError: after the flood")
    kept = await lines(rig, run_id)
    assert LOG_LIMITS.lines < len(kept) <= LOG_LIMITS_BY_KIND["task"].lines
    assert kept[-1][1].endswith("ValueError: after the flood")
