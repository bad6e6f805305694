"""Runners and calls for tests of sync tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from chimes.clock import SystemClock
from chimes.egress import EgressRules
from chimes.model.run import Outcome
from chimes.model.sync import Collection, Source, Sources, task_policy, task_run
from chimes.model.target import SyncTarget
from chimes.targets.base import Call
from chimes.targets.sync.runner import SyncRunner, process_state
from tests.builders import NOW, with_definition

PAIR = SyncTarget(source="shop", collection="orders")
MODULE = "tests.targets.sync_module"


@dataclass
class StoredCheckpoint:
    """The checkpoint of a source and collection, in memory."""

    value: str | None = None
    values: list[str] = field(default_factory=list)
    #: Writes are fenced off: another node has claimed the run.
    lost: bool = False
    error: Exception | None = None

    async def read(self) -> str | None:
        return self.value

    async def save(self, value: str) -> bool:
        if self.error is not None:
            raise self.error
        if self.lost:
            return False
        self.value = value
        self.values.append(value)
        return True


class ClockFrom(SystemClock):
    """Stands still until the condition holds: how long a process takes to start, which counts as
    inactivity, depends on the load of the machine."""

    def __init__(self, begin: Callable[[], bool]) -> None:
        super().__init__()
        self._begin = begin
        self._began: float | None = None

    def monotonic(self) -> float:
        now = SystemClock.monotonic()
        if self._began is None and self._begin():
            self._began = now
        return 0.0 if self._began is None else now - self._began


def is_stopped(file: Path) -> bool:
    """Whether the process with the pid in this file was stopped by a signal."""
    pid = file.read_text().strip() if file.exists() else ""
    return bool(pid) and process_state(int(pid)) == "T"


@dataclass
class ExecutedRun:
    outcome: Outcome
    kept: StoredCheckpoint
    lines: list[tuple[str, str]]

    @property
    def text(self) -> str:
        return "\n".join(message for _, message in self.lines)

    def at(self, level: str) -> list[str]:
        return [message for each, message in self.lines if each == level]


def a_runner(
    driver: str,
    config: dict[str, Any],
    directory: Path,
    *,
    collections: tuple[str, ...] = (PAIR.collection,),
    **given: Any,
) -> SyncRunner:
    source = Source(
        id=PAIR.source,
        driver=driver,
        config=config,
        collections=tuple(Collection(name=name) for name in collections),
    )
    sources = Sources({source.id: source}, str(directory))
    options: dict[str, Any] = {"egress": EgressRules, "stall_after": timedelta(seconds=60)}
    return SyncRunner(lambda: sources, **(options | given))


def a_call(
    log: Callable[[str, str], None],
    kept: StoredCheckpoint,
    *,
    timeout: float = 60,
    target: SyncTarget = PAIR,
) -> Call:
    run = task_run(target, None, NOW)
    policy = task_policy(target, timeout=timedelta(seconds=timeout))
    return Call(run=with_definition(run, policy=policy), triggered_at=NOW, log=log, state=kept)


async def execute(
    runner: SyncRunner,
    kept: StoredCheckpoint | None = None,
    *,
    timeout: float = 60,  # noqa: ASYNC109 - of the run, not of this call
    target: SyncTarget = PAIR,
) -> ExecutedRun:
    kept = kept or StoredCheckpoint()
    lines: list[tuple[str, str]] = []
    call = a_call(lambda *line: lines.append(line), kept, timeout=timeout, target=target)
    return ExecutedRun(await runner.execute(call), kept, lines)
