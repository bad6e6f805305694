"""What a command can end with, and how an error becomes an exit code (UX.md B)."""

from __future__ import annotations

from collections.abc import Mapping

from chimes import errors
from chimes.wording import joined, say

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
CONFLICT = 5
INVALID = 6
UNREACHABLE = 7
RUN_FAILED = 8
PROBLEMS = 9
TIMED_OUT = 124
INTERRUPTED = 130

#: Most specific first.
_ERRORS: tuple[tuple[type[errors.ChimesError], int], ...] = (
    (errors.InvalidInput, INVALID),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.NotAllowed, NOT_ALLOWED),
    (errors.NotAuthenticated, NOT_ALLOWED),
    (errors.ConfigError, USAGE),
    (errors.StoreLocked, CONFLICT),
    (errors.SchemaMismatch, PROBLEMS),
    (errors.StoreUnsafe, PROBLEMS),
    (errors.StoreLost, PROBLEMS),
    (errors.StoreUnavailable, UNREACHABLE),
)
_STATUSES = {
    400: INVALID,
    401: NOT_ALLOWED,
    403: NOT_ALLOWED,
    404: NOT_FOUND,
    409: CONFLICT,
    412: CONFLICT,
    413: INVALID,
    415: INVALID,
    421: USAGE,
    422: INVALID,
    503: UNREACHABLE,
}


class Failure(Exception):
    """A command cannot do what was asked: what happened, and what to do next."""

    def __init__(
        self,
        message: str,
        code: int = FAILED,
        *,
        hint: str | None = None,
        problem: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self._problem = problem

    def problem(self) -> dict[str, object]:
        """RFC 9457, as the API would say it."""
        if self._problem is not None:
            return dict(self._problem)
        found: dict[str, object] = {"title": self.message, "exit_code": self.code}
        return found | ({"hint": self.hint} if self.hint else {})


def from_error(error: errors.ChimesError) -> Failure:
    code = next((code for kind, code in _ERRORS if isinstance(error, kind)), FAILED)
    if isinstance(error, errors.ConfigError) and error.details.get("code") == "unsafe_file":
        code = INVALID
    if isinstance(error, errors.NeedsClarification):
        return _question(error)
    hint = error.hint if isinstance(error, errors.InvalidInput) else None
    return Failure(error.message, code, hint=hint)


def _question(error: errors.NeedsClarification) -> Failure:
    """What has to be said as well, and how it could be."""
    asked = {
        "missing": list(error.missing),
        "message": error.message,
        "examples": list(error.examples),
    }
    return Failure(
        error.message,
        INVALID,
        hint=joined("; ", error.examples) if error.examples else None,
        problem={"title": error.message, "exit_code": INVALID, "clarification": asked},
    )


def from_problem(status: int, problem: Mapping[str, object]) -> Failure:
    """An error answer of the API, in the language in which it was asked for."""
    told = str(problem.get("detail") or problem.get("title") or "")
    parts = [told or say("The server answered {status}", status=status)]
    hints: list[str] = []
    listed = problem.get("errors")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict):
            where = str(each.get("pointer") or each.get("parameter") or "")
            detail = str(each.get("detail", ""))
            if detail and not any(detail in part for part in parts):
                parts.append(f"{where}: {detail}" if where else detail)
            if each.get("hint"):
                hints.append(str(each["hint"]))
    if status == 401:
        hints.append(say("set CHIMES_API_KEY, or name a file with --api-key-file"))
    return Failure(
        joined("; ", parts),
        _STATUSES.get(status, FAILED),
        hint=joined("; ", hints) if hints else None,
        problem=problem,
    )
