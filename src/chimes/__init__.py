"""Chimes: durable schedules, one run per slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chimes.errors import (
        ChimesError,
        RunCanceled,
        RunFailed,
        RunLost,
        RunNotCarriedOut,
        RunTimedOut,
    )
    from chimes.model.recipient import Recipient
    from chimes.model.target import (
        ActionTarget,
        AgentTarget,
        CommandTarget,
        HttpTarget,
        MessageTarget,
    )
    from chimes.sdk.app import Chimes
    from chimes.sdk.flows import AppFlow as Flow
    from chimes.sdk.handles import RunHandle, ScheduleInfo
    from chimes.sdk.tasks import AppTask as Task
    from chimes.targets.python import Cancel, Context, Reject, Retry, TaskError, current_context
    from chimes.triggers import (
        AnyOf,
        BusinessDay,
        Calendar,
        Cron,
        Every,
        Once,
        OnFile,
        OnRunEnd,
        OnSql,
        RRule,
        Sun,
        Webhook,
        trigger_from_dict,
    )


__all__ = [
    "ActionTarget",
    "AgentTarget",
    "AnyOf",
    "BusinessDay",
    "Calendar",
    "Cancel",
    "Chimes",
    "ChimesError",
    "CommandTarget",
    "Context",
    "Cron",
    "Every",
    "Flow",
    "HttpTarget",
    "MessageTarget",
    "OnFile",
    "OnRunEnd",
    "OnSql",
    "Once",
    "RRule",
    "Recipient",
    "Reject",
    "Retry",
    "RunCanceled",
    "RunFailed",
    "RunHandle",
    "RunLost",
    "RunNotCarriedOut",
    "RunTimedOut",
    "ScheduleInfo",
    "Sun",
    "Task",
    "TaskError",
    "Webhook",
    "__version__",
    "current_context",
    "trigger_from_dict",
]

__version__ = "0.1.0"

_EXPORTS = {
    "chimes.sdk.flows:AppFlow": ("Flow",),
    "chimes.sdk.handles": ("RunHandle", "ScheduleInfo"),
    "chimes.sdk.app": ("Chimes",),
    "chimes.sdk.tasks:AppTask": ("Task",),
    "chimes.errors": (
        "ChimesError",
        "RunCanceled",
        "RunFailed",
        "RunLost",
        "RunNotCarriedOut",
        "RunTimedOut",
    ),
    "chimes.model.recipient": ("Recipient",),
    "chimes.model.target": (
        "ActionTarget",
        "AgentTarget",
        "CommandTarget",
        "HttpTarget",
        "MessageTarget",
    ),
    "chimes.targets.python": (
        "Cancel",
        "Context",
        "Reject",
        "Retry",
        "TaskError",
        "current_context",
    ),
    "chimes.triggers": (
        "AnyOf",
        "BusinessDay",
        "Calendar",
        "Cron",
        "Every",
        "OnFile",
        "OnRunEnd",
        "OnSql",
        "Once",
        "RRule",
        "Sun",
        "Webhook",
        "trigger_from_dict",
    ),
}


def __getattr__(name: str) -> object:
    """Lazy imports: client commands start without the SDK."""
    for home, names in _EXPORTS.items():
        if name in names:
            from importlib import import_module

            module, _, there = home.partition(":")
            return getattr(import_module(module), there or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
