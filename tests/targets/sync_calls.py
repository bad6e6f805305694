"""Runners and calls for tests of sync tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from chimes.model import replace
from chimes.model.egress import EgressRules
from chimes.model.run import Outcome
from chimes.model.sync import Collection, Source, Sources, task_policy, task_run
from chimes.model.target import SyncTarget
from chimes.targets.base import Call
from chimes.targets.sync.runner import SyncRunner
from tests.builders import NOW

PAIR = SyncTarget(source="shop", collection="orders")
MODULE = "tests.targets.sync_module"


@dataclass
class StoredCheckpoint:
    """The checkpoint of a source and collection, in memory."""

    value: str | None = None
    values: list[str] = field(default_factory=list)
    #: Writes are fenced off: another node has claimed the run.
    lost: bool = False
    #: Seconds that a write takes.
    slow: float = 0.0
    error: Exception | None = None

    async def read(self) -> str | None:
        return self.value

    async def save(self, value: str) -> bool:
        if self.slow:
            await asyncio.sleep(self.slow)
        if self.error is not None:
            raise self.error
        if self.lost:
            return False
        self.value = value
        self.values.append(value)
        return True


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
    return Call(run=replace(run, policy=policy), triggered_at=NOW, log=log, state=kept)


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
