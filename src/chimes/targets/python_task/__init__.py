"""Python tasks: functions of the application, inline, in a thread or in a process of their own."""

from chimes.targets.python_task.arguments import check, dump
from chimes.targets.python_task.context import Context, current_context
from chimes.targets.python_task.exceptions import Cancel, Permanent, Reject, Retry
from chimes.targets.python_task.registry import Isolation, Registry, Task
from chimes.targets.python_task.runner import PythonTask
from chimes.targets.python_task.verdicts import TaskError

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
