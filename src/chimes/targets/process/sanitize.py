"""Text and JSON values that every store takes: no NUL, no lone surrogates, no secrets."""

from __future__ import annotations

import signal
import traceback

from chimes.i18n import Message, _
from chimes.redaction import Redactor

_DEFAULT_REDACTOR = Redactor()


def clean_text(text: str) -> str:
    if not text.isascii():
        text = text.encode(errors="surrogatepass").decode(errors="replace")
    return text.replace("\x00", "\ufffd")


def sanitize_json(value: object) -> object:
    """The same JSON value with clean texts."""
    match value:
        case str():
            return clean_text(value)
        case list():
            return [sanitize_json(each) for each in value]
        case dict():
            return {clean_text(name): sanitize_json(each) for name, each in value.items()}
        case _:
            return value


def sanitize_text(text: str, limit: int, *, redactor: Redactor = _DEFAULT_REDACTOR, keep_end: bool = False) -> str:
    """Removes secrets and characters that a store rejects, and cuts the text to `limit`. A message
    that fits stays a message."""
    if isinstance(text, Message):
        message = text.map_text(lambda part: clean_text(redactor.text(part)))
        if len(message) <= limit:
            return message
        text = str(message)
    # Cut before and after: patterns need not see megabytes, and redaction may lengthen the text.
    text = text[-limit:] if keep_end else text[:limit]
    text = clean_text(redactor.text(text))
    return text[-limit:] if keep_end else text[:limit]


# @@ How something ended, in words.

ERROR_LIMIT = 2000
TRACEBACK_LIMIT = 8 * 1024


def describe_exception(error: BaseException) -> str:
    """`Type: message`, whatever the exception's own `__str__` does."""
    try:
        message = str(error)
    except Exception:
        message = _("(its message cannot be shown)")
    name = type(error).__name__
    return sanitize_text(f"{name}: {message}" if message else name, ERROR_LIMIT)


def format_traceback(error: BaseException, own_folder: str) -> str:
    """The traceback from the task's own code on, which lies outside of `own_folder`: its end
    matters most."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        inner = [frame for frame in report.stack if not frame.filename.startswith(own_folder)]
        report.stack = traceback.StackSummary.from_list(inner)
        text = "".join(report.format()).rstrip()
    except Exception:
        return describe_exception(error)
    return sanitize_text(text, TRACEBACK_LIMIT, keep_end=True)


def describe_process_exit(status: int | None) -> Message:
    """A process of ours, without having said what came of its work."""
    if status is None or status >= 0:
        return _("the process ended with status {status} without a result", status=status)
    return _("the process was killed by signal {signal} without a result", signal=_signal(-status))


def describe_command_exit(status: int) -> Message:
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
