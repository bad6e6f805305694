"""Maps the return value or exception of a task to the outcome of its attempt."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.process.sanitize import (
    ERROR_LIMIT,
    describe_exception,
    format_traceback,
    sanitize_json,
    sanitize_text,
)
from chimes.triggers.values import parse_duration


class Retry(Exception):
    """Raised by a task to be retried `after` a delay that replaces its back-off: seconds, a
    timedelta, or text such as `90s`. Counts as a failed attempt; `retries` is the limit."""

    def __init__(self, message: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(message or _("the task requested a retry"))
        if isinstance(after, int | float):
            after = timedelta(seconds=after)
        self.after = None if after is None else parse_duration(after, allow_zero=True)


class Reject(Exception):
    """Raised by a task to fail the run at once, without retries."""


#: Alias with the name that other task queues use.
Permanent = Reject


class Cancel(BaseException):
    """Ends the run as canceled. Raised by `Context.check_canceled` or by the task itself.

    Not an `Exception`, so that `except Exception` in a task does not catch it, as with
    `asyncio.CancelledError`."""


RESULT_LIMIT = 1024 * 1024

_OWN_FOLDER = str(Path(__file__).parent)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskError:
    """The failure that an `on_failure` handler receives."""

    message: str
    #: Stable code of the failure: `exception`, `timeout`, `crashed`, …
    code: str

    def __str__(self) -> str:
        return self.message


_NOTHING = Outcome(end=AttemptEnd.SUCCEEDED, result={"value": None})


def to_json_value(value: object) -> object:
    """A value that `json` can write. Raises a ValueError if there is none."""
    if value is None or type(value) in (bool, int) or (type(value) is str and value.isascii()):
        return value
    # At first use: most idle workers do without the memory of pydantic.
    from pydantic_core import to_jsonable_python

    plain: object = to_jsonable_python(value)
    return plain


def outcome_of_value(value: object) -> Outcome:
    """Stores the return value as `{"value": …}`; fails if it is not JSON serializable."""
    if value is None:
        return _NOTHING
    if value is True or value is False:
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"value": value})
    if inspect.iscoroutine(value):
        value.close()
        return failed_outcome(
            "bad_result", _("the function returned a coroutine: declare it `async def`")
        )
    try:
        text = json.dumps(to_json_value(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return failed_outcome(
            "bad_result", _("the return value is not JSON serializable: {error}", error=str(error))
        )
    if len(text) > RESULT_LIMIT:
        return failed_outcome(
            "result_too_large",
            _(
                "the return value is {size} bytes of JSON; the limit is {most}",
                size=len(text),
                most=RESULT_LIMIT,
            ),
        )
    return Outcome(end=AttemptEnd.SUCCEEDED, result={"value": sanitize_json(json.loads(text))})


def outcome_of_exception(error: BaseException) -> Outcome:
    if isinstance(error, Cancel):
        text = describe_exception(error) if str(error) else ""
        return Outcome(end=AttemptEnd.CANCELED, code="canceled_by_task", error=text)
    if isinstance(error, Retry):
        return Outcome(
            end=AttemptEnd.FAILED,
            retryable=True,
            code="retry_asked",
            error=describe_exception(error),
            retry_in=error.after,
        )
    if isinstance(error, Reject):
        return failed_outcome("rejected", describe_exception(error))
    return failed_outcome("exception", describe_exception(error), retryable=True)


def outcome_of_timeout(timeout: timedelta) -> Outcome:
    return Outcome(
        end=AttemptEnd.TIMEOUT,
        retryable=True,
        error=_("timed out after {seconds:g}s", seconds=timeout.total_seconds()),
        code="timeout",
    )


def failed_outcome(code: str, error: str, *, retryable: bool = False) -> Outcome:
    return Outcome(
        end=AttemptEnd.FAILED,
        retryable=retryable,
        code=code,
        error=sanitize_text(error, ERROR_LIMIT),
    )


def task_traceback(error: BaseException) -> str:
    """The traceback, starting at the task's own code."""
    return format_traceback(error, _OWN_FOLDER)


def needs_traceback(error: BaseException) -> bool:
    """False for exceptions that a task raises on purpose to control its run."""
    return not isinstance(error, Cancel | Retry | Reject | asyncio.CancelledError)
