"""Why an attempt came to nothing, and whether another one may do better (R1.32, C14)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import aiohttp

from chimes.model.run import AttemptEnd, Outcome
from chimes.redaction import Redactor
from chimes.targets.agent_prompt.answer import short
from chimes.targets.http_callback.response import wait_asked
from chimes.targets.http_callback.verdicts import failure_of
from chimes.wording import say

LONGEST_DETAIL = 300
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})


class Trouble(Exception):
    """Ends an attempt without success."""

    def __init__(
        self,
        code: str,
        text: str,
        *,
        retryable: bool = False,
        retry_after: timedelta | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retryable = retryable
        self.retry_after = retry_after
        #: Of HTTP; 0: it is not about one.
        self.status = status


def trouble_of_status(
    status: int, headers: Mapping[str, str], body: str, *, who: str, now: datetime
) -> Trouble:
    """For an answer that is none; `now` is the store's time."""
    if 300 <= status <= 399:
        return Trouble(
            "redirect",
            say("{who} answered HTTP {status}: redirects are not followed", who=who, status=status),
            status=status,
        )
    retryable = status in _WORTH_ANOTHER_TRY or status >= 500
    detail = said_in(body)
    text = say("{who} answered HTTP {status}", who=who, status=status)
    if detail:
        text = say("{who} answered HTTP {status}: {detail}", who=who, status=status, detail=detail)
    if status in (401, 403):
        text = say("{problem} (is CHIMES_AGENT_API_KEY right?)", problem=text)
    elif status == 404:
        text = say("{problem} (are CHIMES_AGENT_URL and the model right?)", problem=text)
    return Trouble(
        f"http_{status}",
        text,
        retryable=retryable,
        retry_after=wait_asked(headers.get("Retry-After"), now) if retryable else None,
        status=status,
    )


def trouble_of_error(error: Exception, *, who: str) -> Trouble:
    """For a connection that failed."""
    if isinstance(error, aiohttp.InvalidURL):
        return Trouble("bad_address", say("the address of {who} cannot be used", who=who))
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Trouble(
            "connect_failed", say("{who}: no connection could be made", who=who), retryable=True
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Trouble("reset", say("{who}: the connection was lost", who=who), retryable=True)
    failure = failure_of(error)
    return Trouble(
        failure.code,
        say("no answer from {who}: {problem}", who=who, problem=failure.text),
        retryable=failure.retryable,
    )


def said_in(body: str) -> str:
    """What a refusal says for people, in whichever of the usual shapes; in one line."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return "" if body.lstrip().startswith("<") else short(body, LONGEST_DETAIL)
    return error_text(found)


def error_text(found: object) -> str:
    if isinstance(found, Mapping):
        for name in ("error", "message", "detail", "title"):
            if found.get(name):
                return error_text(found[name])
        return ""
    return short(found, LONGEST_DETAIL)


def outcome_of(trouble: Trouble, result: dict[str, object], redactor: Redactor) -> Outcome:
    return Outcome(
        end=AttemptEnd.FAILED,
        retryable=trouble.retryable,
        result=result,
        error=redactor.text(trouble.text),
        code=trouble.code,
        retry_after=trouble.retry_after,
    )
