"""Sends a request with retries after lost connections and Retry-After.

All requests are repeatable: a POST has an Idempotency-Key, the other methods are idempotent.

Operations are generators that yield requests and receive responses. They do no I/O, so that the
blocking and the asynchronous client share the code.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from chimes.errors import (
    AlreadyExists,
    ChimesError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    QuotaExceeded,
    RateLimited,
    StaleVersion,
    StoreReadOnly,
    StoreUnavailable,
    Unreachable,
)
from chimes.i18n import _

_ERRORS_BY_STATUS: Mapping[int, type[ChimesError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: StaleVersion,
    503: StoreUnavailable,
}
#: Codes that are more specific than the status.
_ERRORS_BY_CODE: Mapping[str, type[ChimesError]] = {
    "already_exists": AlreadyExists,
    "quota_exceeded": QuotaExceeded,
    "store_read_only": StoreReadOnly,
}
_INVALID = frozenset({400, 413, 415, 422})


def error_from(
    status: int, problem: Mapping[str, object], headers: Mapping[str, str]
) -> ChimesError:
    detail = (
        _text(problem, "detail")
        or _text(problem, "title")
        or _("The server responded with status {status}", status=status)
    )
    code = _text(problem, "code")
    if status in _INVALID:
        return _invalid(problem, detail, code or "invalid")
    if status == 429:
        after = headers.get("retry-after", "")
        seconds = int(after) if after.isascii() and after.isdigit() else 1
        return RateLimited(detail, retry_after=timedelta(seconds=seconds))
    kind = _ERRORS_BY_CODE.get(code) or _ERRORS_BY_STATUS.get(status, ChimesError)
    return kind(detail, code=code, status=status)


def _invalid(problem: Mapping[str, object], detail: str, code: str) -> InvalidInput:
    errors = problem.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    if not isinstance(first, Mapping):
        first = {}
    pointer = _text(first, "pointer").strip("/").replace("/", ".")
    return InvalidInput(
        detail,
        field=pointer or _text(first, "parameter") or _text(first, "header") or None,
        code=code,
        hint=_text(first, "hint") or None,
    )


def _text(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    method: str
    #: Relative to /api/v1.
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class NoReply:
    """The connection failed; the request may or may not have taken effect."""

    reason: str


#: Yields a Call to receive a Reply or NoReply, or a Wait to receive None.
Steps = Generator[Call | Wait, Reply | NoReply | None, T]


Json = dict[str, object]
FIRST_DELAY, MAX_DELAY = 0.2, 5.0
#: Retryable statuses: store unavailable, too many requests.
_RETRYABLE = frozenset({429, 503})
_IN_PROGRESS = "request_under_way"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    #: Total seconds to wait over the retries of a request.
    patience: float

    def send(self, call: Call) -> Steps[Json]:
        """Sends a request until it has a response. Raises errors of chimes.errors."""
        if call.method == "POST":
            key = {"Idempotency-Key": str(uuid.uuid4())}
            call = replace(call, headers={**call.headers, **key})
        delays = retry_delays()
        remaining = self.patience
        while True:
            reply = yield call
            if isinstance(reply, Reply):
                found = parse_object(reply)
                if reply.status < 400:
                    return found
                error = error_from(reply.status, found, reply.headers)
                if reply.status not in _RETRYABLE and found.get("code") != _IN_PROGRESS:
                    raise error
                pause = max(next(delays), retry_after(reply.headers))
            else:
                assert isinstance(reply, NoReply)
                error = Unreachable(reply.reason)
                pause = next(delays)
            if pause > remaining:
                raise error
            remaining -= pause
            yield Wait(pause)


def retry_after(headers: Mapping[str, str]) -> float:
    """Retry-After in seconds, the format that Chimes uses."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def retry_delays() -> Iterator[float]:
    pause = FIRST_DELAY
    while True:
        # Jitter, so that clients do not all retry at the same time.
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - not for security
        pause = min(pause * 2, MAX_DELAY)


def parse_object(reply: Reply) -> Json:
    if not reply.body:
        return {}
    try:
        found = json.loads(reply.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _not_chimes(reply)
    return found


def _not_chimes(reply: Reply) -> ChimesError:
    return Unreachable(
        _(
            "the response ({status}) is not from Chimes; check the URL",
            status=reply.status,
        )
    )
