"""Why an attempt came to nothing, and whether another one may do better (R3.48, C14)."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.model.run import AttemptEnd, Outcome
from chimes.redaction import Redactor
from chimes.targets.action.answer import refusal_in
from chimes.targets.http_callback.response import Reply, wait_asked
from chimes.wording import say


class Trouble(Exception):
    """Ends an attempt without success."""

    def __init__(
        self,
        code: str,
        text: str,
        *,
        end: AttemptEnd = AttemptEnd.FAILED,
        retryable: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.end = end
        self.retryable = retryable
        self.retry_after = retry_after


def not_accepted(reply: Reply, now: datetime) -> Trouble:
    """An answer to `execute` that is neither 200 nor 202; `now` is the store's time."""
    status = reply.status
    if 300 <= status <= 399:
        return Trouble(
            "redirect",
            say(
                "the action service answered HTTP {status}: redirects are not followed",
                status=status,
            ),
        )
    detail = refusal_in(reply)
    if detail:
        text = say(
            "the action service answered HTTP {status}: {detail}", status=status, detail=detail
        )
    else:
        text = say("the action service answered HTTP {status}", status=status)
    retryable = status in (408, 429) or status >= 500
    return Trouble(
        f"http_{status}",
        text,
        retryable=retryable,
        retry_after=wait_asked(reply.retry_after, now) if status in (429, 503) else None,
    )


def too_slow(seconds: float) -> Trouble:
    """Of a single request."""
    return Trouble(
        "timeout",
        say("the action service did not answer within {seconds:g} s", seconds=seconds),
        end=AttemptEnd.TIMEOUT,
        retryable=True,
    )


def outcome_of(trouble: Trouble, result: dict[str, object], redactor: Redactor) -> Outcome:
    clean = redactor.text(trouble.text)
    return Outcome(
        end=trouble.end,
        retryable=trouble.retryable,
        result=result,
        # As it was said, unless something had to be hidden: only then can it be told otherwise.
        error=trouble.text if clean == trouble.text else clean,
        code=trouble.code,
        retry_after=trouble.retry_after,
    )
