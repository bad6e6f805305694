"""What a task may raise to say more than "it failed"."""

from __future__ import annotations

from datetime import timedelta

from chimes.triggers.duration import parse_duration
from chimes.wording import say


class Retry(Exception):
    """Try again, `after` this time instead of the task's own back-off: seconds, a timedelta, or
    text such as `90s`. It counts as a failed attempt: the task's `retries` are the limit."""

    def __init__(self, message: str = "", *, after: timedelta | float | str | None = None) -> None:
        super().__init__(message or say("the task asked to be tried again"))
        if isinstance(after, int | float):
            after = timedelta(seconds=after)
        self.after = None if after is None else parse_duration(after, allow_zero=True)


class Reject(Exception):
    """No further attempt can do better: the run fails at once."""


#: The same, under the name that other queues use.
Permanent = Reject


class Cancel(BaseException):
    """Ends the run as canceled. `Context.check_canceled` raises it; a task may do so itself.

    No `Exception`, so that a task's own `except Exception` lets it pass, as with
    `asyncio.CancelledError`."""
