"""Problems of the API as the errors that they were on the other side."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

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
)
from chimes.wording import say

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
        or say("The server answered {status}", status=status)
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
