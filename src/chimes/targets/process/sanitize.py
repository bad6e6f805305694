"""Makes text and JSON values storable, and describes exceptions and process exits.

Stores reject NUL characters and lone surrogates.
"""

from __future__ import annotations

import signal
import traceback

from chimes.i18n import Message, _
from chimes.redaction import Redactor

_DEFAULT_REDACTOR = Redactor()


def clean_text(text: str) -> str:
    """The text with U+FFFD instead of characters that stores reject."""
    if not text.isascii():
        text = text.encode(errors="surrogatepass").decode(errors="replace")
    return text.replace("\x00", "\ufffd")


def sanitize_json(value: object) -> object:
    """The JSON value with `clean_text` applied to every string."""
    match value:
        case str():
            return clean_text(value)
        case list():
            return [sanitize_json(each) for each in value]
        case dict():
            return {clean_text(name): sanitize_json(each) for name, each in value.items()}
        case _:
            return value


def sanitize_text(
    text: str, limit: int, *, redactor: Redactor = _DEFAULT_REDACTOR, keep_end: bool = False
) -> str:
    """Removes secrets and characters that a store rejects, and cuts the text to `limit`.

    A `Message` that fits stays one, so that it can be translated when it is shown."""
    if isinstance(text, Message):
        message = text.map_text(lambda part: clean_text(redactor.text(part)))
        if len(message) <= limit:
            return message
        text = str(message)
    # Cut before and after: redaction is slow on megabytes, and may lengthen the text.
    text = text[-limit:] if keep_end else text[:limit]
    text = clean_text(redactor.text(text))
    return text[-limit:] if keep_end else text[:limit]


ERROR_LIMIT = 2000
TRACEBACK_LIMIT = 8 * 1024


def describe_exception(error: BaseException) -> str:
    """`Type: message`, even if the exception's `__str__` fails."""
    try:
        message = str(error)
    except Exception:
        message = _("(the message of the exception cannot be displayed)")
    name = type(error).__name__
    return sanitize_text(f"{name}: {message}" if message else name, ERROR_LIMIT)


def format_traceback(error: BaseException, hidden_folder: str) -> str:
    """The traceback without frames of files in `hidden_folder`. A long one keeps its end, where
    the error is."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        shown = [frame for frame in report.stack if not frame.filename.startswith(hidden_folder)]
        report.stack = traceback.StackSummary.from_list(shown)
        text = "".join(report.format()).rstrip()
    except Exception:
        return describe_exception(error)
    return sanitize_text(text, TRACEBACK_LIMIT, keep_end=True)


def describe_process_exit(status: int | None) -> Message:
    """How a child process ended that sent no result message."""
    if status is None or status >= 0:
        return _("the process ended with status {status} without a result", status=status)
    return _("the process was killed by signal {signal} without a result", signal=_signal(-status))


def describe_command_exit(status: int) -> Message:
    """How the program of a `command` source ended."""
    if status >= 0:
        return _("the command ended with status {status}", status=status)
    return _("the command was killed by signal {signal}", signal=_signal(-status))


def _signal(number: int) -> str:
    """`11 (SIGSEGV)`"""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
