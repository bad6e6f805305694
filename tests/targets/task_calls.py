"""Runners and calls for tests of Python tasks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from chimes.model.policy import Policy
from chimes.model.run import Outcome
from chimes.model.target import TaskTarget
from chimes.targets.base import Call
from chimes.targets.python import PythonTask, Registry, Task
from tests.builders import NOW, a_run


@dataclass
class ExecutedRun:
    outcome: Outcome
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def value(self) -> Any:
        assert self.outcome.result is not None, self.outcome
        return self.outcome.result["value"]

    @property
    def text(self) -> str:
        return "\n".join(message for _, message in self.lines)


def a_call(
    name: str,
    log: Callable[[str, str], None] = lambda level, message: None,
    *,
    timeout: float = 60,
    retries: int = 0,
    run: dict[str, Any] | None = None,
    **args: object,
) -> Call:
    values: dict[str, Any] = {
        "target": TaskTarget(name=name, args=args),
        "policy": Policy(timeout=timedelta(seconds=timeout), max_retries=retries),
        "attempt": 1,
        "fence": 1,
    }
    return Call(run=a_run(**(values | (run or {}))), triggered_at=NOW, log=log)


async def execute(runner: PythonTask, name: str, **given: Any) -> ExecutedRun:
    lines: list[tuple[str, str]] = []
    outcome = await runner.execute(a_call(name, lambda *line: lines.append(line), **given))
    return ExecutedRun(outcome, lines)


@asynccontextmanager
async def running(registry: Registry, **given: Any) -> AsyncIterator[PythonTask]:
    runner = PythonTask(registry, **given)
    await runner.open()
    try:
        yield runner
    finally:
        await runner.close()


def a_registry(*functions: Callable[..., object], **options: Any) -> Registry:
    registry = Registry()
    for function in functions:
        registry.add(Task(name=function.__name__, function=function, **options))
    return registry


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"
