"""What holds for a target by its kind, and whether anybody is there to carry it out."""

from __future__ import annotations

from datetime import timedelta

from chimes.model.target import FlowTarget, HttpTarget, Target, TaskTarget

#: Of the model's Policy, and of an HTTP target unless the settings say otherwise.
HTTP_TIMEOUT = timedelta(seconds=10)
TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
LONGEST_HTTP_TIMEOUT = timedelta(minutes=15)
LONGEST_TASK_TIMEOUT = timedelta(days=7)
LONGEST_FLOW_TIMEOUT = timedelta(days=365)


def usual_timeout(target: Target) -> timedelta:
    """Where nobody said how long a run may take."""
    match target:
        case HttpTarget():
            return HTTP_TIMEOUT
        case TaskTarget():
            return TASK_TIMEOUT
        case FlowTarget():
            return FLOW_TIMEOUT


def longest_timeout(target: Target) -> timedelta:
    """For a flow this is all of its steps together."""
    match target:
        case HttpTarget():
            return LONGEST_HTTP_TIMEOUT
        case TaskTarget():
            return LONGEST_TASK_TIMEOUT
        case FlowTarget():
            return LONGEST_FLOW_TIMEOUT
