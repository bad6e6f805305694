"""Text and JSON values that every store takes: no NUL, no lone surrogates, no secrets."""

from __future__ import annotations

import signal
import traceback

from chimes.i18n import Message, _
from chimes.redaction import Redactor

_REDACTOR = Redactor()


def cleaned(text: str) -> str:
    if not text.isascii():
        text = text.encode(errors="surrogatepass").decode(errors="replace")
    return text.replace("\x00", "\ufffd")


def storable(value: object) -> object:
    """The same JSON value with clean texts."""
    match value:
        case str():
            return cleaned(value)
        case list():
            return [storable(each) for each in value]
        case dict():
            return {cleaned(name): storable(each) for name, each in value.items()}
        case _:
            return value


def shown(text: str, limit: int, *, redactor: Redactor = _REDACTOR, keep_end: bool = False) -> str:
    """Without secrets, not longer than `limit`, and such that every store takes it."""
    # Cut before and after: patterns need not see megabytes, and hiding may lengthen.
    text = text[-limit:] if keep_end else text[:limit]
    text = cleaned(redactor.text(text))
    return text[-limit:] if keep_end else text[:limit]


# @@ How something ended, in words.

ERROR_LIMIT = 2000
TRACEBACK_LIMIT = 8 * 1024


def described(error: BaseException) -> str:
    """`Type: message`, whatever the exception's own `__str__` does."""
    try:
        message = str(error)
    except Exception:
        message = _("(its message cannot be shown)")
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


def process_ended(status: int | None) -> Message:
    """A process of ours, without having said what came of its work."""
    if status is None or status >= 0:
        return _("the process ended with status {status} without a result", status=status)
    return _("the process was killed by signal {signal} without a result", signal=_signal(-status))


def command_ended(status: int) -> Message:
    """A command that somebody wrote into the configuration."""
    if status >= 0:
        return _("the command ended with status {status}", status=status)
    return _("the command was killed by signal {signal}", signal=_signal(-status))


def _signal(number: int) -> str:
    """`11 (SIGSEGV)`"""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
