"""Python tasks: application functions that run inline, in a thread or in a child process."""

from chimes.targets.python.arguments import check, dump
from chimes.targets.python.context import Context, current_context
from chimes.targets.python.outcomes import Cancel, Permanent, Reject, Retry, TaskError
from chimes.targets.python.registry import Isolation, Registry, Task
from chimes.targets.python.runner import PythonTask

__all__ = [
    "Cancel",
    "Context",
    "Isolation",
    "Permanent",
    "PythonTask",
    "Registry",
    "Reject",
    "Retry",
    "Task",
    "TaskError",
    "check",
    "current_context",
    "dump",
]
