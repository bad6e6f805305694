"""One request until it has its answer: again after a lost connection, and when asked to wait.

Everything may be sent again: a POST carries an Idempotency-Key, the other methods are repeatable.
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

# @@ Problems of the API as the errors that they were on the other side.

_BY_STATUS: Mapping[int, type[ChimesError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: StaleVersion,
    503: StoreUnavailable,
}
#: Where the code says more than the status.
_BY_CODE: Mapping[str, type[ChimesError]] = {
    "already_exists": AlreadyExists,
    "quota_exceeded": QuotaExceeded,
    "store_read_only": StoreReadOnly,
}
_INVALID = frozenset({400, 413, 415, 422})


def error_of(status: int, problem: Mapping[str, object], headers: Mapping[str, str]) -> ChimesError:
    detail = (
        _text(problem, "detail")
        or _text(problem, "title")
        or _("The server answered {status}", status=status)
    )
    code = _text(problem, "code")
    if status in _INVALID:
        return _invalid(problem, detail, code or "invalid")
    if status == 429:
        after = headers.get("retry-after", "")
        seconds = int(after) if after.isascii() and after.isdigit() else 1
        return RateLimited(detail, retry_after=timedelta(seconds=seconds))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ChimesError)
    return kind(detail, code=code, status=status)


def _invalid(problem: Mapping[str, object], detail: str, code: str) -> InvalidInput:
    errors = problem.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    if not isinstance(first, Mapping):
        first = {}
    place = _text(first, "pointer").strip("/").replace("/", ".")
    return InvalidInput(
        detail,
        field=place or _text(first, "parameter") or _text(first, "header") or None,
        code=code,
        hint=_text(first, "hint") or None,
    )


def _text(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


# @@ What a verb wants from the outside world, step by step.
#
# A verb is a generator that yields what is to be done and is sent what came of it. It never
# touches a socket, so that the blocking and the asynchronous client drive one and the same code.

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    method: str
    #: Below /api/v1.
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
class NoAnswer:
    """The connection failed; whether the server has done something is not known."""

    reason: str


#: Send a Call to get a Reply or NoAnswer, a Wait to get None.
Steps = Generator[Call | Wait, Reply | NoAnswer | None, T]


Json = dict[str, object]
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
#: Come back later: the store is away, too many requests, the first request is still under way.
_LATER = frozenset({429, 503})
_UNDER_WAY = "request_under_way"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    #: Seconds to wait in all, over the repeats of one request.
    patience: float

    def answer(self, call: Call) -> Steps[Json]:
        """The object that was asked for; every error is one of chimes.errors."""
        if call.method == "POST":
            key = {"Idempotency-Key": str(uuid.uuid4())}
            call = replace(call, headers={**call.headers, **key})
        waits = pauses()
        left = self.patience
        while True:
            reply = yield call
            if isinstance(reply, Reply):
                found = object_of(reply)
                if reply.status < 400:
                    return found
                error = error_of(reply.status, found, reply.headers)
                if reply.status not in _LATER and found.get("code") != _UNDER_WAY:
                    raise error
                pause = max(next(waits), asked_to_wait(reply.headers))
            else:
                assert isinstance(reply, NoAnswer)
                error = Unreachable(reply.reason)
                pause = next(waits)
            if pause > left:
                raise error
            left -= pause
            yield Wait(pause)


def asked_to_wait(headers: Mapping[str, str]) -> float:
    """Retry-After in seconds, which is how Chimes says it."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        # Spread, so that clients of a server that comes back do not all come at once.
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - nobody is to be kept from guessing
        pause = min(pause * 2, LONGEST_PAUSE)


def object_of(reply: Reply) -> Json:
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
            "the answer ({status}) does not come from Chimes; is the URL right?",
            status=reply.status,
        )
    )
