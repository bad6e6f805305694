"""How something ended, in words."""

from __future__ import annotations

import signal
import traceback

from chimes.targets.processes.storable import shown

ERROR_LIMIT = 2000
TRACEBACK_LIMIT = 8 * 1024


def described(error: BaseException) -> str:
    """`Type: message`, whatever the exception's own `__str__` does."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    name = type(error).__name__
    return shown(f"{name}: {message}" if message else name, ERROR_LIMIT)


def trace_of(error: BaseException, own_folder: str) -> str:
    """The traceback from the task's own code on, which lies outside of `own_folder`: its end
    matters most."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        inner = [frame for frame in report.stack if not frame.filename.startswith(own_folder)]
        report.stack = traceback.StackSummary.from_list(inner)
        text = "".join(report.format()).rstrip()
    except Exception:
        return described(error)
    return shown(text, TRACEBACK_LIMIT, keep_end=True)


def how_it_ended(status: int | None) -> str:
    """In words: `ended with status 3`, `was killed by signal 11 (SIGSEGV)`."""
    if status is None or status >= 0:
        return f"ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-status}{name}"
