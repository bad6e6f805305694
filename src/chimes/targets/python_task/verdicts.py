"""What came of an attempt: from a return value or an exception to an outcome."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic_core import PydanticSerializationError, to_jsonable_python

from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.processes.storable import shown, storable
from chimes.targets.processes.traces import ERROR_LIMIT, described
from chimes.targets.processes.traces import trace_of as trace_outside
from chimes.targets.python_task.exceptions import Cancel, Reject, Retry
from chimes.wording import say

RESULT_LIMIT = 1024 * 1024

_OWN_FOLDER = str(Path(__file__).parent)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskError:
    """What an `on_failure` handler is told."""

    message: str
    #: Stable word for the kind of failure: `exception`, `timeout`, `crashed`, …
    code: str

    def __str__(self) -> str:
        return self.message


#: What most tasks return.
_NOTHING = Outcome(end=AttemptEnd.SUCCEEDED, result={"value": None})


def outcome_of_value(value: object) -> Outcome:
    """A task's return value becomes `{"value": …}`, if JSON has a form for it."""
    if value is None:
        return _NOTHING
    if value is True or value is False:
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"value": value})
    if inspect.iscoroutine(value):
        value.close()
        return failed(
            "bad_result", say("the function returned a coroutine: declare it `async def`")
        )
    try:
        text = json.dumps(to_jsonable_python(value), allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        return failed(
            "bad_result", say("the return value has no form in JSON: {error}", error=str(error))
        )
    if len(text) > RESULT_LIMIT:
        return failed(
            "result_too_large",
            say(
                "the return value is {size} bytes of JSON, more than {most}",
                size=len(text),
                most=RESULT_LIMIT,
            ),
        )
    return Outcome(end=AttemptEnd.SUCCEEDED, result={"value": storable(json.loads(text))})


def outcome_of_exception(error: BaseException) -> Outcome:
    if isinstance(error, Cancel):
        text = described(error) if str(error) else ""
        return Outcome(end=AttemptEnd.CANCELED, code="canceled_by_task", error=text)
    if isinstance(error, Retry):
        return Outcome(
            end=AttemptEnd.FAILED,
            retryable=True,
            code="retry_asked",
            error=described(error),
            retry_in=error.after,
        )
    if isinstance(error, Reject):
        return failed("rejected", described(error))
    return failed("exception", described(error), retryable=True)


def outcome_of_timeout(timeout: timedelta) -> Outcome:
    return Outcome(
        end=AttemptEnd.TIMEOUT,
        retryable=True,
        error=say("timed out after {seconds:g}s", seconds=timeout.total_seconds()),
        code="timeout",
    )


def failed(code: str, error: str, *, retryable: bool = False) -> Outcome:
    return Outcome(
        end=AttemptEnd.FAILED, retryable=retryable, code=code, error=shown(error, ERROR_LIMIT)
    )


def trace_of(error: BaseException) -> str:
    """The traceback from the task's own code on."""
    return trace_outside(error, _OWN_FOLDER)


def deserves_trace(error: BaseException) -> bool:
    """Not what a task raises on purpose to say what is to become of its run."""
    return not isinstance(error, Cancel | Retry | Reject | asyncio.CancelledError)
