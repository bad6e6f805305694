"""What is common to stores that keep equal definitions of runs once.

The key of a definition is computed from its contents. The arguments of a task that was enqueued
without a schedule are not part of its definition but of the run: all runs of the task share one
definition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta

from chimes.model import replace
from chimes.model.run import Run, RunDefinition
from chimes.model.target import TaskTarget

#: A definition in use is marked as used once in this time. Retention deletes definitions whose mark
#: is older than the history, so that it never deletes one that a process still uses.
USED_INTERVAL = timedelta(days=1)


def content_digest(text: str) -> str:
    """Practically unique for the text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def split_args(run: Run) -> tuple[RunDefinition, Mapping[str, object] | None]:
    """The definition to store, and the arguments that are stored with the run."""
    definition = run.definition
    target = definition.target
    if definition.schedule_id is None and type(target) is TaskTarget:
        return replace(definition, target=replace(target, args={})), target.args
    return definition, None


def with_args(definition: RunDefinition, args: Mapping[str, object]) -> RunDefinition:
    """The reverse of `split_args`."""
    target = definition.target
    assert isinstance(target, TaskTarget)
    return replace(definition, target=replace(target, args=args))
